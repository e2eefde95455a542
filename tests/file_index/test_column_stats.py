"""The column statistics of finished base files, for every way in which they are written."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.files.column_stats import FileStats, collect_file_stats, fold_file_stats, indexed_columns
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("a.b", pa.date32()),
    ]
)


def collect_stats(column: pa.Array, row_group_size: int = 2) -> FileStats:
    table = pa.table({"c": column})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size)
    return collect_file_stats(pq.ParquetFile(sink).metadata, table.schema, ["c"])


def test_statistics_cover_all_leaves_up_to_a_limit_or_the_named_ones() -> None:
    key = (RECORD_KEY, COMMIT_TIME)
    assert indexed_columns(NESTED, None, 32) == (*key, "id", "s.a", "s.b.c", "`a.b`")
    assert indexed_columns(NESTED, None, 2) == (*key, "id", "s.a")
    assert indexed_columns(NESTED, ["s", "nobody", "s.a"], 1) == (*key, "s.a", "s.b.c")
    assert indexed_columns(NESTED, [], 32) == key


def test_leaves_are_found_by_position_in_the_file() -> None:
    rows = [{"id": i, "s": {"a": -i, "b": {"c": f"x{i}"}}, "tags": ["q"], "m": [("k", 9)], "a.b": None} for i in (3, 5)]
    table = pa.Table.from_pylist(rows, NESTED)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    columns = ["id", "s.a", "s.b.c", "`a.b`"]
    bounds, counts = fold_file_stats(
        [collect_file_stats(pq.ParquetFile(sink).metadata, NESTED, columns)], columns, NESTED
    )
    assert counts.to_pylist() == [2]
    found = {
        path: (b.minimum.to_pylist(), b.maximum.to_pylist(), b.null_count.to_pylist()) for path, b in bounds.items()
    }
    assert found == {
        "id": ([3], [5], [0]),
        "s.a": ([-5], [-3], [0]),
        "s.b.c": (["x3"], ["x5"], [0]),
        "`a.b`": ([None], [None], [2]),
    }


@given(
    st.lists(
        st.text(st.sampled_from("aé\ud7ff\U0010ffff"), min_size=58, max_size=80) | st.none(), min_size=1, max_size=6
    )
)
def test_long_texts_are_cut_outwards(values: list[Any]) -> None:
    column = pa.array(values, pa.string())
    (bounds,) = fold_file_stats([collect_stats(column)], ["c"], pa.schema([("c", pa.string())]))[0].values()
    low, high = bounds.minimum[0], bounds.maximum[0]
    wanted = pc.min_max(column)
    assert bounds.null_count.to_pylist() == [column.null_count]
    if wanted["min"].is_valid and low.is_valid:
        assert low.as_py().encode() <= wanted["min"].as_py().encode()
        assert len(low.as_py().encode()) <= 64
    if wanted["max"].is_valid and high.is_valid:
        assert high.as_py().encode() >= wanted["max"].as_py().encode()
        assert len(high.as_py().encode()) <= 68
    assert low.is_valid == high.is_valid


@pytest.mark.parametrize(
    ("values", "high"), [([b"\xff" * 70], None), ([b"a\xff" + b"\xff" * 70], b"b"), ([b"b" * 64], b"b" * 64)]
)
def test_long_bytes_are_cut_upwards(values: list[bytes], high: bytes | None) -> None:
    (bounds,) = fold_file_stats([collect_stats(pa.array(values, pa.binary()))], ["c"], pa.schema([("c", pa.binary())]))[
        0
    ].values()
    assert bounds.maximum.to_pylist() == [high]


def test_files_without_statistics_are_unknown() -> None:
    wanted = pa.schema([("c", pa.int64())])
    files = [collect_stats(pa.array([4, 1, None], pa.int64())), FileStats((7, 8)), FileStats(())]
    (bounds,) = fold_file_stats(files, ["c"], wanted)[0].values()
    assert bounds.minimum.to_pylist() == [1, None, None]
    assert bounds.maximum.to_pylist() == [4, None, None]
    assert bounds.null_count.to_pylist() == [1, None, 0]
    assert fold_file_stats(files, ["c"], wanted)[1].to_pylist() == [3, 15, 0]
