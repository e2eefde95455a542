"""The data of the workload: sizes, deterministic rows, samples to write, and the expected content.

The data of a `Variant` are in one folder, made once and used by every engine. ``rows`` files are numpy arrays of the
base rows that a sample updates or deletes. The content after any steps is computed from them, without an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

WORK: Final = Path(__file__).resolve().parents[1] / ".work" / "bench"
FORMAT: Final = 2  # Increase it when the generated rows change: older folders are then replaced.
SEED: Final = 20251121
CORES: Final = 2

RECORD_KEY: Final = "id"
ORDERING: Final = "ts"
PARTITION: Final = "part"
POINT_SQL: Final = "x between 500000 and 505000 and y between 200000 and 700000"
ZORDER_FILE_BYTES: Final = 16 * 1024 * 1024
DICTIONARY_COLUMNS: Final = ("part", "city")

SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("part", pa.string()),
        ("city", pa.string()),
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("amount", pa.float64()),
        ("note", pa.string()),
    ]
)

#: All samples, in the order of writing. The ordering values of each are greater than those of all samples before.
SAMPLES: Final = (
    *("u1-1", "u1-2", "u5-1", "u5-2", "d1-1", "d1-2", "u1-3", "u1-4"),
    *("u5all-1", "u5all-2", "u50-1", "u50-2", "new-1", "u20-1", "dc50-1"),
)
#: The number of commits that insert the rows of ``new-1``.
COMMITS: Final = 50
#: The number of upserts that write ``u20-1`` and ``dc50-1``.
ROUNDS: Final = 20
DELTACOMMITS: Final = 50
#: Kinds of keys: random; sorted by time; sorted by time, but half of the keys of u1 are late.
KEYS: Final = ("random", "ordered", "mixed")

_FIRST_TS_MS: Final = 1_700_000_000_000
_FIRST_DATE: Final = date(2026, 1, 1)
_CITIES: Final = 1_000
_GRID: Final = 1_000_000
_HEX: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Variant:
    """The size of the workload, ``rows`` base rows, and the kind of its ``keys``, one of `KEYS`.

    With ``random`` keys the rows of u1 are spread over all rows. With time-``ordered`` keys they are near the end. With
    ``mixed`` keys, which are time-ordered, half of the updates and half of the new keys of u1 are near the end and half
    anywhere.

    Beyond 4,000,000 rows the number of input files and, with time-ordered keys, the number of dates grow: one for each
    500,000 rows. Such a table has run for longer. Samples stop growing there, so that costs can be compared by size: u1
    is then the same 40,000 rows, counted from the table's end.
    """

    rows: int = 4_000_000
    keys: str = "random"

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise ValueError(f"no such keys: {self.keys}; keys are {', '.join(KEYS)}")

    @property
    def name(self) -> str:
        """Return the folder's name, such as ``random-4000000``."""
        return f"{self.keys}-{self.rows}"

    @property
    def files(self) -> int:
        """Return the number of input files: 8, or one per 500,000 rows."""
        return max(8, self.rows // 500_000)

    @property
    def partitions(self) -> int:
        """Return the number of dates: 8, or one per input file with time-ordered keys."""
        return self.files if self.timed else 8

    @property
    def timed(self) -> bool:
        """Tell whether keys and dates follow the row number."""
        return self.keys != "random"

    @property
    def sample_rows(self) -> dict[str, int]:
        """Return the rows of each sample by the first part of its name. One percent is at most 40,000 rows."""
        one_percent = max(10, min(self.rows // 100, 40_000))
        return {
            "u1": one_percent,
            "u5": 5 * one_percent,
            "d1": one_percent,
            "u5all": 5 * one_percent,
            "u50": 50 * one_percent,
            "new": COMMITS * max(1, one_percent // 40),
            "u20": ROUNDS * one_percent,
            "dc50": DELTACOMMITS * max(1, one_percent // 10),
        }

    def first_ts(self, sample: str) -> int:
        """Return the first ordering value of a sample, in milliseconds."""
        rows = self.sample_rows
        before = SAMPLES[: SAMPLES.index(sample)]
        return _FIRST_TS_MS + self.rows + sum(max(1_000_000, rows[name.partition("-")[0]]) for name in before)

    def file_bounds(self) -> list[tuple[int, int]]:
        """Return (first row, end) of each input file."""
        edges = [self.rows * i // self.files for i in range(self.files + 1)]
        return list(pairwise(edges))

    def dates(self) -> list[str]:
        """Return the values of ``part``."""
        return [(_FIRST_DATE + timedelta(days=day)).isoformat() for day in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Content:
    """The content on which engines must agree: row count and sum(amount)."""

    rows: int
    amount: float

    def agrees(self, other: Content) -> bool:
        """Tell whether the counts are equal, and the sums except for the order in which doubles were added."""
        return self.rows == other.rows and abs(self.amount - other.amount) <= 1e-9 * max(1.0, abs(other.amount))


@dataclass(frozen=True, slots=True)
class Dataset:
    """The generated files of one variant."""

    root: Path
    variant: Variant

    def base_files(self) -> list[Path]:
        """Return the Parquet files to load, in row order."""
        return [self.root / f"base-{i:04d}.parquet" for i in range(self.variant.files)]

    def some_key(self) -> str:
        """Return the record key of one base row."""
        return str(next(pq.ParquetFile(self.base_files()[0]).iter_batches(1, columns=[RECORD_KEY]))[0][0])

    def sample(self, name: str) -> Path:
        """Return the Parquet file of a sample such as ``u1-2``. ``d1`` samples hold keys, partitions and ``ts``."""
        return self.root / f"{name}.parquet"

    def touched(self, name: str) -> Rows:
        """Return the base rows that a sample updates or deletes. Its other rows are new."""
        rows: Rows = np.load(self.root / f"{name}.rows.npy")
        return rows


def prepare(work: Path, variant: Variant, samples: Iterable[str] = SAMPLES) -> Dataset:
    """Make the data set of a variant with the named samples below ``work``, except for parts that exist already.

    Memory: two input files of 500,000 rows, the largest sample, and 16 bytes a base row for the choice of its rows.
    """
    dataset = Dataset(work / variant.name, variant)
    done = dataset.root / "done.json"
    stamp = {"format": FORMAT, "seed": SEED, **asdict(variant)}
    made: list[str] = []
    if done.exists():
        found = json.loads(done.read_text())
        made = found.pop("samples", [])
        if found != stamp:
            done.unlink()
    if not done.exists():
        made = []
        dataset.root.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(lambda file: _write_base_file(dataset, file), range(variant.files)))
        done.write_text(json.dumps(stamp))
    for sample in sorted({*samples} - {*made}, key=SAMPLES.index):
        _write_sample(dataset, sample, np.random.default_rng([SEED, 1, SAMPLES.index(sample)]))
        made.append(sample)
        done.write_text(json.dumps({**stamp, "samples": made}))
    return dataset


def expected_content(dataset: Dataset, samples: Iterable[str]) -> Content:
    """Return the content after the load and the named samples, in this order."""
    amounts = np.concatenate([_column(path, "amount") for path in dataset.base_files()])
    alive = np.ones(len(amounts), dtype=bool)
    new_rows, new_amount = 0, 0.0
    for name in samples:
        touched = dataset.touched(name)
        if name.startswith("d"):
            alive[touched] = False
            continue
        written = _column(dataset.sample(name), "amount")
        amounts[touched], alive[touched] = written[: len(touched)], True
        new_rows += len(written) - len(touched)
        new_amount += float(written[len(touched) :].sum())
    return Content(int(alive.sum()) + new_rows, float(amounts[alive].sum()) + new_amount)


def _column(path: Path, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = pq.read_table(path, columns=[name])[name].to_numpy()
    return values


def _write_base_file(dataset: Dataset, file: int) -> None:
    variant = dataset.variant
    first, end = variant.file_bounds()[file]
    rng = np.random.default_rng([SEED, 0, file])
    numbers = np.arange(first, end)
    if variant.timed:
        parts = _parts_of(variant, numbers)
        ids = _ordered_ids(rng, numbers)
    else:
        parts = rng.integers(0, variant.partitions, end - first)
        ids = _hex_strings(rng, end - first)
    rows = _rows(rng, ids, _FIRST_TS_MS + numbers, _dates(variant, parts))
    pq.write_table(rows, dataset.base_files()[file], compression="zstd", use_dictionary=list(DICTIONARY_COLUMNS))


def _write_sample(dataset: Dataset, sample: str, rng: np.random.Generator) -> None:
    variant = dataset.variant
    name = sample.partition("-")[0]
    rows = variant.sample_rows[name]
    old = rows if name == "d1" else 0 if name == "new" else rows * 9 // 10
    touched = _choose(dataset, name, old, rng)
    ids, parts = _keys_of(dataset, touched)
    first_ts = variant.first_ts(sample)
    if name == "d1":
        ts = pa.array(np.full(rows, first_ts), pa.int64())
        table = pa.table({"id": ids, "ts": ts, "part": parts})
    else:
        new_ids, new_parts = _new_keys(variant, name, rows - old, first_ts, rng)
        ids = pa.concat_arrays([ids, new_ids])
        parts = pa.concat_arrays([parts, _dates(variant, new_parts)])
        table = _rows(rng, ids, first_ts + np.arange(rows), parts)
    pq.write_table(table, dataset.sample(sample), compression="zstd")
    np.save(dataset.root / f"{sample}.rows.npy", touched)


def _new_keys(variant: Variant, name: str, count: int, first_ts: int, rng: np.random.Generator) -> tuple[Any, Rows]:
    """Return keys that no base row has, and the numbers of their partitions."""
    last = variant.partitions - 1
    if not variant.timed:
        ids = _hex_strings(rng, count)
        return ids, np.full(count, last) if name == "u5" else rng.integers(0, variant.partitions, count)
    numbers = first_ts - _FIRST_TS_MS + np.arange(count)
    if variant.keys == "mixed" and name == "u1":
        numbers[: count // 2] = rng.integers(0, variant.rows, count // 2)
    return _ordered_ids(rng, numbers), np.minimum(_parts_of(variant, numbers), last)


def _choose(dataset: Dataset, name: str, count: int, rng: np.random.Generator) -> Rows:
    """Choose base rows to touch, ascending: any, those of the last partition or, with time-ordered keys, the latest."""
    variant = dataset.variant
    if variant.timed and name == "u1":
        late = count // 2 if variant.keys == "mixed" else 0
        end = max(0, variant.rows - 4 * count)
        anywhere = rng.choice(end, size=late, replace=False) if late else np.empty(0, np.int64)
        near_end = np.arange(end, variant.rows)
        near: Rows = rng.choice(near_end, size=min(count - late, len(near_end)), replace=False)
        return np.sort(np.concatenate([anywhere, near]))
    if name == "u5":
        last = variant.dates()[-1]
        pool = np.flatnonzero(np.concatenate([_column(path, "part") == last for path in dataset.base_files()]))
    else:
        pool = np.arange(variant.rows)
    chosen: Rows = np.sort(rng.choice(pool, size=min(count, len(pool)), replace=False))
    return chosen


def _keys_of(dataset: Dataset, rows: Rows) -> tuple[Any, Any]:
    """Return the record keys and the partitions of base rows (ascending)."""

    def chunks() -> Iterator[pa.Table]:
        yield pa.table({"id": pa.array([], pa.string()), "part": pa.array([], pa.string())})
        for path, (first, end) in zip(dataset.base_files(), dataset.variant.file_bounds(), strict=True):
            here = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)] - first
            if len(here):
                yield pq.read_table(path, columns=["id", "part"]).take(here)

    keys = pa.concat_tables(chunks())
    return pa.concat_arrays(keys["id"].chunks), pa.concat_arrays(keys["part"].chunks)


def _rows(rng: np.random.Generator, ids: Any, ts: Rows, parts: Any) -> pa.Table:
    count = len(ids)
    cities = pa.array([f"city-{i:03d}" for i in range(_CITIES)])
    columns = {
        "id": ids,
        "ts": pa.array(ts, pa.int64()),
        "part": parts,
        "city": cities.take(pa.array(rng.integers(0, _CITIES, count))),
        "x": rng.integers(0, _GRID, count),
        "y": rng.integers(0, _GRID, count),
        "lat": rng.uniform(-90, 90, count),
        "lon": rng.uniform(-180, 180, count),
        "amount": rng.uniform(0, 1_000, count),
        "note": _hex_strings(rng, count),
    }
    return pa.table(columns, schema=SCHEMA)


def _parts_of(variant: Variant, numbers: Rows) -> Rows:
    """Return the partitions of time-ordered rows. Row numbers beyond the base rows give greater partitions."""
    return numbers * variant.partitions // variant.rows


def _dates(variant: Variant, parts: Rows) -> Any:
    return pa.array(variant.dates()).take(pa.array(parts))


def _hex_strings(rng: np.random.Generator, count: int) -> Any:
    return _strings_of(rng.integers(0, 256, (count, 16), dtype=np.uint8))


def _ordered_ids(rng: np.random.Generator, numbers: Rows) -> Any:
    """Return keys that sort by row number: 8 bytes of it and 8 random bytes, in hex."""
    raw = rng.integers(0, 256, (len(numbers), 16), dtype=np.uint8)
    raw[:, :8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    return _strings_of(raw)


def _strings_of(raw: npt.NDArray[np.uint8]) -> Any:
    count, width = raw.shape
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(_HEX[raw].tobytes()))
