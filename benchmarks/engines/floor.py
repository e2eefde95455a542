"""The floor: the time that tuned pyarrow needs for the same work without a table format.

The table has one Parquet file per value of ``part``: zstd, dictionaries only for columns that they make smaller, row
groups of 131,072 rows. All cores process files in parallel. Nothing is logged, locked or indexed, and ordering values
are not compared: an engine that keeps a table's promises cannot do less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.workload import CORES, DICTIONARY_COLUMNS, SCHEMA, Content, Dataset

ROW_GROUP_ROWS: Final = 131_072
POINT: Final = (
    (pc.field("x") >= 500_000) & (pc.field("x") <= 505_000) & (pc.field("y") >= 200_000) & (pc.field("y") <= 700_000)
)
In = TypeVar("In")
Out = TypeVar("Out")


class Floor:
    """A folder of ``part=<date>/data.parquet`` files (see the module)."""

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table
        self._pool = ThreadPoolExecutor(CORES)

    def load(self, table: Path) -> None:
        parts = self._dataset.variant.dates()
        writers = {part: _writer(table / f"part={part}" / "data.parquet") for part in parts}
        # Read eight files at a time: memory use stays flat, and a row group still gets enough rows.
        files = self._dataset.base_files()
        for wave in (files[i : i + 8] for i in range(0, len(files), 8)):
            pieces = self._map(_split_by_part, wave)

            def write(part: str, pieces: list[dict[str, pa.Table]] = pieces) -> None:
                if found := [piece[part] for piece in pieces if part in piece]:
                    writers[part].write_table(pa.concat_tables(found), row_group_size=ROW_GROUP_ROWS)

            self._map(write, parts)
        self._map(lambda writer: writer.close(), writers.values())

    def upsert(self, rows: Path) -> None:
        self._rewrite(pq.read_table(rows), inserts=True)

    def delete(self, keys: Path) -> None:
        self._rewrite(pq.read_table(keys), inserts=False)

    def keys(self) -> int:
        return sum(self._map(lambda path: _read(path, ["id"]).num_rows, self._files()))

    def point(self) -> int:
        return int(self._arrow().to_table(filter=POINT).num_rows)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._arrow().to_batches())

    def agg(self) -> list[int]:
        found = self._map(
            lambda path: (
                (pc.sum(columns["x"]).as_py(), pc.max(columns["y"]).as_py())
                if (columns := _read(path, ["x", "y"])).num_rows
                else (0, 0)
            ),
            self._files(),
        )
        return [sum(x for x, _ in found), max(y for _, y in found)]

    def count(self) -> int:
        return sum(pq.ParquetFile(path).metadata.num_rows for path in self._files())

    def content(self) -> Content:
        amounts = self._arrow().to_table(columns=["amount"])["amount"]
        return Content(len(amounts), pc.sum(amounts).as_py())

    def versions(self) -> dict[str, str]:
        return {"pyarrow": pa.__version__}

    def close(self) -> None:
        self._pool.shutdown()

    def _map(self, function: Callable[[In], Out], values: Iterable[In]) -> list[Out]:
        return list(self._pool.map(function, values))

    def _files(self) -> list[Path]:
        return sorted(self._table.glob("part=*/data.parquet"))

    def _arrow(self) -> Any:
        return ds.dataset(self._files(), schema=SCHEMA)

    def _rewrite(self, rows: pa.Table, *, inserts: bool) -> None:
        """Rewrite each touched file without the rows of these keys. Add the given rows if ``inserts``."""
        by_part = _split(rows)

        def rewrite(part: str) -> None:
            path = self._table / f"part={part}" / "data.parquet"
            written = by_part[part]
            keys = written["id"].combine_chunks()
            old = pq.ParquetFile(path)
            with _writer(path.with_suffix(".new")) as writer:
                for group in range(old.num_row_groups):
                    kept = old.read_row_group(group, use_threads=False)
                    found = pc.index_in(kept["id"], value_set=keys)
                    writer.write_table(kept.filter(pc.is_null(found)))
                if inserts:
                    writer.write_table(written)
            os.replace(path.with_suffix(".new"), path)

        self._map(rewrite, by_part)


def open_engine(dataset: Dataset, table: Path) -> Floor:
    """Return the engine of this module."""
    pa.set_cpu_count(CORES)
    return Floor(dataset, table)


def _writer(path: Path) -> pq.ParquetWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    return pq.ParquetWriter(path, SCHEMA, compression="zstd", use_dictionary=list(DICTIONARY_COLUMNS))


def _read(path: Path, columns: list[str] | None = None) -> pa.Table:
    return pq.ParquetFile(path).read(columns=columns, use_threads=False)


def _split_by_part(path: Path) -> dict[str, pa.Table]:
    return _split(_read(path))


def _split(rows: pa.Table) -> dict[str, pa.Table]:
    """Return the rows by their value of ``part``: slices of one stable sort, without copies."""
    values = pc.unique(rows["part"])
    if len(values) == 1:
        return {values[0].as_py(): rows}
    ordered = rows.take(pc.sort_indices(rows["part"]))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rows["part"]).to_pylist()}
    slices, start = {}, 0
    for part in sorted(counts):
        slices[part] = ordered.slice(start, counts[part])
        start += counts[part]
    return slices
