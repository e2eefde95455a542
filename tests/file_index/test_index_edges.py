"""The index and extreme values and columns: no write fails because of them, and the index continues."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.file_index.stored import bounds_schema, concat_files, fold_bounds, with_bounds
from lakeformat.file_system_view.live_files import file_columns
from lakeformat.model.files import BaseFile, BaseFileName
from lakeformat.predicate import ColumnBounds
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.write.intake import create_table
from tests.helpers.index_tables import OPTIONS, copy_table

FAR = 400_000_000_000_000_000  # Microseconds: the year 14645, which Spark supports and Python does not.


@pytest.mark.parametrize(
    ("of", "low", "high"),
    [
        (pa.timestamp("us"), -FAR, FAR),
        (pa.timestamp("us", "UTC"), FAR, FAR + 1),
        (pa.date32(), -5_000_000, 5_000_000),
    ],
)
def test_bounds_outside_pythons_range_are_kept(of: pa.DataType, low: int, high: int) -> None:
    raw = pa.int32() if pa.types.is_date32(of) else pa.int64()
    files = [BaseFile("p", BaseFileName(f"f{n}-0", "0-0-0", "20250101000000000"), 10) for n in range(2)]
    ends = (pa.array([end, end], raw).cast(of) for end in (low, high))
    table = with_bounds(file_columns(files), {"x": ColumnBounds(*ends, pa.array([0, 0]))})
    found, _ = fold_bounds(table, bounds_schema(pa.schema([("x", of)])))
    assert found["x"].minimum.cast(raw).to_pylist() == [low]
    assert found["x"].maximum.cast(raw).to_pylist() == [high]


def test_a_timestamp_beyond_the_year_9999_is_written_once() -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.timestamp("us"))])
    table = Table(MemoryStorage(), resolve(OPTIONS))
    create_table(table.context.store, table.options, schema, SystemClock())
    far = pa.array([FAR], pa.int64()).cast(pa.timestamp("us"))
    for number in range(4):
        table.insert(pa.table({"id": [number], "p": ["a"], "ts": far}, schema))
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == [0, 1, 2, 3]
    assert copy_table(table).to_arrow(["id"], where="ts > TIMESTAMP '9999-01-01 00:00:00'").num_rows == 4
    assert judged_bounds(copy_table(table))


@pytest.mark.parametrize(
    "of",
    [
        pa.struct([("y", pa.int64())]),
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        pa.string(),
        pa.float64(),
        pa.decimal128(20, 0),
        pa.bool_(),
    ],
)
def test_column_readded_with_another_type_has_bounds_of_that_type(of: pa.DataType) -> None:
    file = BaseFile("p", BaseFileName("f-0", "0-0-0", "20250101000000000"), 10)
    known = {"x": ColumnBounds(pa.array([1]), pa.array([5]), pa.array([0]))}
    schema = bounds_schema(pa.schema([("x", of)]))
    found, _ = fold_bounds(concat_files([with_bounds(file_columns([file]), known)], schema), schema)
    assert ("x" in found) == (not pa.types.is_nested(of))
    assert all(bounds.minimum.type == of for bounds in found.values())


def judged_bounds(table: Table) -> bool:
    (portion, *_) = table.snapshot().live.portions(["ts"])
    return not portion.bounds["ts"].minimum.null_count
