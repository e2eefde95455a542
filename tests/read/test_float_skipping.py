"""Boxes on floats skip as many files as boxes on integers, with and without NaN, and lose no row.

The oracle is numpy on all rows, with Spark's order: NaN is greater than all numbers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.file_system_view.file_index.stored import FOLDER, IndexName, write_file
from lakeformat.model.operation import Operation
from lakeformat.read.query import resolve_query
from lakeformat.read.run.file_statistics import file_statistics
from lakeformat.read.run.session import plan_read
from lakeformat.storage import Storage
from tests.helpers.local_shuffle import write_shuffled
from tests.helpers.tables import a_schema

ROWS, FILES = 8_000, 40
NAN: Final = float("nan")


def make_table(path: Path, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> lakeformat.Table:
    rows = pa.table({"id": np.arange(len(x)), "x": x, "y": y})
    table = lakeformat.create(path, rows.schema, record_key="id", **{"hoodie.index.bloom.fpp": 0.5})
    table.bulk_insert(rows)
    size = sum(file.size_bytes for file in table.snapshot().files)
    table.cluster(by=["x", "y"], curve="hilbert", target_file_bytes=size // FILES)
    return table


def files_read(table: lakeformat.Table, where: str) -> int:
    snapshot = table.snapshot()
    assert snapshot.schema is not None
    query = resolve_query(snapshot.schema, table.options, columns=["id"], where=where)
    return plan_read(table.context.storage, snapshot, query, split_bytes=1 << 30).files_after_stats


def boxes(x: npt.NDArray[Any], y: npt.NDArray[Any], count: int) -> list[tuple[Any, Any, Any, Any]]:
    """Return boxes whose sides are a tenth of the rows wide, so that a box on both columns holds a hundredth."""
    starts = np.random.default_rng(3).random((count, 2)) * 0.9
    return [
        (*np.quantile(x, [a, a + 0.1], method="lower").tolist(), *np.quantile(y, [b, b + 0.1], method="lower").tolist())
        for a, b in starts.tolist()
    ]


def test_a_box_on_doubles_reads_as_few_files_as_one_on_bigints(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 10**6, ROWS), rng.integers(0, 10**6, ROWS)
    whole = make_table(tmp_path / "bigints", x, y)
    asked = [f"x >= {a} and x <= {b} and y >= {c} and y <= {d}" for a, b, c, d in boxes(x, y, 40)]
    wanted = sum(files_read(whole, where) for where in asked) / whole.snapshot().live.count
    assert wanted < 0.2 * len(asked), "the layout tells something"
    for name, share in (("doubles", 0.0), ("with NaN", 0.02)):
        some = rng.random((2, ROWS)) < share
        floats = [np.where(at, NAN, column.astype(float)) for at, column in zip(some, (x, y), strict=True)]
        table = make_table(tmp_path / name, *floats)
        read = sum(files_read(table, where) for where in asked) / table.snapshot().live.count
        assert read <= 1.2 * wanted, name
        for where, (a, b, c, d) in list(zip(asked, boxes(x, y, 40), strict=True))[:5]:
            with np.errstate(invalid="ignore"):
                inside = (floats[0] >= a) & (floats[0] <= b) & (floats[1] >= c) & (floats[1] <= d)
            assert table.to_arrow(["id"], where=where)["id"].sort().to_pylist() == np.flatnonzero(inside).tolist()
        a, _, c, _ = boxes(x, y, 1)[0]
        beyond = ((floats[0] >= a) | np.isnan(floats[0])) & ((floats[1] > c) | np.isnan(floats[1]))
        where = f"x >= {a} and y > {c}"
        assert table.to_arrow(["id"], where=where)["id"].sort().to_pylist() == np.flatnonzero(beyond).tolist()
        if not share:
            assert files_read(table, where) < table.snapshot().live.count


def test_layout_report_equals_what_reads_skip(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x, y = (np.where(rng.random(ROWS) < 0.02, NAN, rng.normal(0, 1, ROWS)) for _ in range(2))
    table = make_table(tmp_path / "t", x, y)
    report = table.layout_report(["x", "y"])
    numbers = [column[~np.isnan(column)] for column in (x, y)]
    asked = [f"x between {a} and {b} and y between {c} and {d}" for a, b, c, d in boxes(*numbers, 60)]
    read = np.mean([files_read(table, where) for where in asked]) / table.snapshot().live.count
    assert 1 - report.layouts[0].skipped_together == pytest.approx(read, abs=0.02)


# --- the counts -----------------------------------------------------------------------------------------

SCHEMA: Final = a_schema(id="int64", f="float32", d="float64", s=pa.struct([("d", pa.float64())]))
OPTIONS: Final[Mapping[str, Any]] = {
    "hoodie.parquet.small.file.limit": 0,
    "lakeformat.file.index.commits": 3,
    "lakeformat.parquet.row.group.rows": 7,
}


def nan_rows(ids: range, nan_every: int) -> pa.Table:
    values = [NAN if nan_every and i % nan_every == 0 else None if i % 5 == 0 else i / 2 for i in ids]
    structs = [None if i % 11 == 0 else {"d": value} for i, value in zip(ids, values, strict=True)]
    return pa.table({"id": list(ids), "f": values, "d": values, "s": structs}, SCHEMA)


def without_nan(table: lakeformat.Table, files: list[str], *paths: str) -> set[str]:
    """Return the columns that hold no NaN in these files, according to the statistics."""
    return set(file_statistics(table.snapshot(), files, dict.fromkeys(paths, pa.float64())).without_nan)


def newest(table: lakeformat.Table) -> list[str]:
    snapshot = table.snapshot()
    return [file.path for file in snapshot.files if file.name.instant_time == snapshot.instant_time]


def check_nan_counts(table: lakeformat.Table) -> bool:
    """Compare the index's counts of NaN with the rows of each file. Return whether all counts are known."""
    known = True
    paths = ["f", "d", "s.d"]
    for portion in table.snapshot().live.portions(paths):
        files = [f"{folder}/{name}".lstrip("/") for folder, name in zip(
            portion.files["partition_path"].to_pylist(), portion.files["name"].to_pylist(), strict=True
        )]  # fmt: skip
        for at, file in enumerate(files):
            with table.context.storage.open_input(file) as source:
                rows = pq.read_table(source, columns=["f", "d", "s"]).to_pylist()
            for path in paths:
                values = [(row["s"] or {}).get("d") if path == "s.d" else row[path] for row in rows]
                wanted = sum(value is not None and bool(np.isnan(value)) for value in values)
                bounds = portion.bounds.get(path)
                nan_count = (
                    bounds.nan_count[at].as_py() if bounds is not None and bounds.nan_count is not None else None
                )
                known &= nan_count is not None
                assert nan_count in (wanted, None), (file, path)
                assert without_nan(table, [file], path) == ({path} if nan_count == 0 else set())
    return known


WRITES: Final[Mapping[str, Callable[[lakeformat.Table], Any]]] = {
    "upsert": lambda table: table.upsert(nan_rows(range(30, 60), 4)),
    "upsert without NaN": lambda table: table.upsert(nan_rows(range(0, 60), 0)),
    "partial": lambda table: lakeformat.open(table.context.storage.location, **OPTIONS, partial_update=True).upsert(
        nan_rows(range(30, 60), 4).select(["id", "f"])
    ),
    "exchanged": lambda table: write_shuffled(table, [nan_rows(range(30, 60), 4)], Operation.UPSERT),
    "delete": lambda table: table.delete(nan_rows(range(10), 0).select(["id"])),
    "delete where": lambda table: table.delete(where="id < 20"),
    "update": lambda table: table.update({"d": NAN}, where="id < 20"),
    "merge": lambda table: (
        table.merge(nan_rows(range(30, 60), 4)).when_matched_update().when_not_matched_insert().execute()
    ),
    "overwrite": lambda table: table.overwrite(nan_rows(range(30), 4)),
    "cluster": lambda table: table.cluster(["d"], target_file_bytes=10_000),
}


@pytest.fixture(scope="module")
def with_nan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nan") / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id", **OPTIONS)
    table.insert(nan_rows(range(40), 7))
    table.bulk_insert(nan_rows(range(40, 50), 0))
    return path


@pytest.mark.parametrize("write", WRITES)
def test_every_write_counts_nan(write: str, with_nan: Path, tmp_path: Path) -> None:
    table = lakeformat.open(shutil.copytree(with_nan, tmp_path / "t"), **OPTIONS)
    for _ in range(2):  # The facts come first from deltas, then from a snapshot of the index.
        WRITES[write](table)
        assert check_nan_counts(table)


def test_files_without_nan_counts_can_hold_nan(with_nan: Path, tmp_path: Path) -> None:
    table = lakeformat.open(shutil.copytree(with_nan, tmp_path / "t"), **OPTIONS)
    paths = ("f", "d", "s.d")
    assert without_nan(table, [file.path for file in table.snapshot().files], *paths) == set()
    assert without_nan(table, newest(table), *paths) == {*paths}
    # This upsert writes as a program without the index.
    lakeformat.open(tmp_path / "t", **OPTIONS, **{"lakeformat.file.index": False}).upsert(nan_rows(range(40, 50), 9))
    assert not check_nan_counts(table)
    assert without_nan(table, newest(table), *paths) == set()
    assert sorted(table.to_arrow(["id"], where="d >= 24")["id"].to_pylist()) == [0, 7, 14, 21, 28, 35, 45, 48, 49]


def drop_nan_counts(storage: Storage, new: Collection[str]) -> None:
    """Rewrite files of the index without the counts of NaN, as the release before wrote them."""
    renamed: dict[str, str] = {}
    for path in sorted(new, key=lambda path: "/manifest-" in path):  # The manifest names the shards.
        table = pq.read_table(pa.BufferReader(storage.read(path)))
        facts = json.loads(table.schema.metadata[b"lakeformat.index"])
        kept = table.select([name for name in table.column_names if not name.startswith("nans/")])
        if "path" in kept.column_names:
            paths = [renamed.get(shard, shard) for shard in kept["path"].to_pylist()]
            kept = kept.set_column(0, kept.schema.field("path"), pa.array(paths, kept["path"].type))
        storage.delete(path)
        name = IndexName.parse(path.rpartition("/")[2])
        assert name is not None
        renamed[path] = write_file(storage, name.kind, name.instant_time, kept, facts).path


def test_index_without_nan_counts_is_read(tmp_path: Path) -> None:
    def write(start: int, count: int) -> None:
        for number in range(count):
            table.insert(nan_rows(range(start + 10 * number, start + 10 * number + 10), 0))

    def write_as_before(start: int, count: int) -> None:
        storage = table.context.storage
        for number in range(count):
            there = {entry.path for entry in storage.list(FOLDER)}
            write(start + 10 * number, 1)
            drop_nan_counts(storage, {entry.path for entry in storage.list(FOLDER)} - there)

    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **OPTIONS)
    write_as_before(0, 5)
    for start, count in ((50, 1), (60, 4)):  # The counts are in a delta, then in a snapshot of the index.
        write(start, count)
        assert not check_nan_counts(table)
        high = start + 10 * count
        assert table.to_arrow(["id"], where=f"d > {high / 2 - 3}")["id"].to_pylist() == [
            high - 4,
            high - 3,
            high - 2,
            high - 1,
        ]
        assert files_read(table, "d > 25") == 5 + count + (start - 50) // 10, "of five files nothing is known"
        assert files_read(table, "d > 25 and d < 1000") == count + (start - 50) // 10
    write_as_before(100, 2)  # The older release continues the index.
    assert len(table.to_arrow(["id"], where="d >= 0")) == 120 - 24


def test_integer_column_widened_to_float_has_no_nan(tmp_path: Path) -> None:
    first = pa.schema([("id", pa.int64()), ("x", pa.int32())])
    last = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    table = lakeformat.create(tmp_path / "t", first, record_key="id", **OPTIONS)
    for number in range(4):
        table.insert(pa.table({"id": [2 * number, 2 * number + 1], "x": [number, number]}, first))
    table.insert(pa.table({"id": [100, 101], "x": [NAN, 9.0]}, last))
    assert files_read(table, "x >= 3") == 2
    assert sorted(table.to_arrow(["id"], where="x >= 3")["id"].to_pylist()) == [6, 7, 100, 101]


def test_row_groups_are_skipped_if_the_file_has_no_nan(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **OPTIONS)
    table.insert(nan_rows(range(70), 0))
    for split_bytes in (1, 1 << 30):
        options = {**OPTIONS, "lakeformat.read.split.bytes": split_bytes}
        again = lakeformat.open(tmp_path / "t", **options)
        assert "row groups          1" in again.explain(where="d > 32")
        assert again.to_arrow(["id"], where="d > 32")["id"].to_pylist() == [66, 67, 68, 69]
    table.upsert(nan_rows(range(1), 1))
    assert "row groups         10" in table.explain(where="d > 32")
    assert sorted(table.to_arrow(["id"], where="d > 32", verify=True)["id"].to_pylist()) == [0, 66, 67, 68, 69]
