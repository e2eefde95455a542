"""Frames of pandas, polars and duckdb go into tables unchanged, and come out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import SchemaMismatchError, Table
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "text": ["a", None, "c"],
    "kind": ["x", "y", "x"],
    "list": [[1], None, [2, 3]],
    "inner": [{"a": 1, "b": "p"}, {"a": 2, "b": None}, {"a": 3, "b": "q"}],
}
SCHEMA = a_schema(
    id="int64",
    text="string",
    kind="string",
    list=pa.list_(pa.int64()),
    inner=pa.struct([("a", pa.int64()), ("b", pa.string())]),
)


NAMES = ["pandas", "polars", "polars categorical", "polars enum", "duckdb", "arrow views"]


def frame(name: str) -> Any:
    plain = pa.table(ROWS, schema=SCHEMA)
    match name:
        case "pandas":
            return plain.to_pandas().astype({"kind": "category"})
        case "polars":
            return pl.DataFrame(ROWS)
        case "polars categorical":
            return pl.DataFrame(ROWS).with_columns(pl.col("kind").cast(pl.Categorical))
        case "polars enum":
            return pl.DataFrame(ROWS).with_columns(pl.col("kind").cast(pl.Enum(["x", "y"])))
        case "duckdb":
            return duckdb.sql("select * from plain")  # duckdb finds variables by their names.
    return plain.set_column(1, "text", plain["text"].cast(pa.string_view()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["id", "kind,id"])
def test_a_frame_is_stored_as_its_rows(name: str, key: str, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key=key, partition_by="kind")
    table.upsert(frame(name))
    assert table.upsert(frame(name)).report["rows"]["updated"] == 3
    assert table.to_arrow(meta_columns=False).sort_by("id").to_pydict() == ROWS
    hudi_rs.assert_same_rows(table)
    assert table.merge(frame(name)).when_matched_delete("source.id = 2").execute().report["rows"]["deleted"] == 1
    assert table.delete(frame(name)).report["rows"]["deleted"] == 2


def people(tmp_path: Path) -> tuple[Table, pd.DataFrame]:
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "v": [0.5, None, 1.5, 2.5]})
    return lakeformat.create(tmp_path, pa.Schema.from_pandas(frame), record_key="id"), frame


def test_pandas_row_numbers_are_not_a_column(tmp_path: Path) -> None:
    """For a frame that lost rows, pandas exports the old positions as ``__index_level_0__``."""
    table, frame = people(tmp_path)
    table.upsert(frame[frame["id"] > 2])
    table.upsert(pa.Table.from_pandas(frame[frame["id"] == 1]))
    assert table.schema.names == ["id", "v"]
    assert table.to_arrow(meta_columns=False).sort_by("id").to_pylist() == [
        {"id": 1, "v": 0.5},
        {"id": 3, "v": 1.5},
        {"id": 4, "v": 2.5},
    ]
    other = lakeformat.create(tmp_path / "other", pa.Schema.from_pandas(frame[frame["id"] > 2]), record_key="id")
    assert other.schema.names == ["id", "v"]


def test_named_pandas_index_is_a_column(tmp_path: Path) -> None:
    table, frame = people(tmp_path)
    table.upsert(frame.set_index("id"))
    assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == [1, 2, 3, 4]


def test_named_range_of_a_pandas_index_is_a_column(tmp_path: Path) -> None:
    """pandas 3 makes a range of any index of evenly spaced numbers."""
    table, frame = people(tmp_path)
    table.upsert(frame.drop(columns="id").set_index(pd.RangeIndex(1, 5, name="id")))
    assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == [1, 2, 3, 4]


def test_named_pandas_index_outside_the_schema_is_ignored(tmp_path: Path) -> None:
    table, frame = people(tmp_path)
    named = frame.set_index(pd.Index([7, 8, 9, 10], name="row"))
    for operation in ("upsert", "bulk_insert", "overwrite"):
        getattr(table, operation)(named)
        table.merge(named).when_matched_update().when_not_matched_insert().execute()
        assert str(table.plan_upsert(named))
        assert table.schema.names == ["id", "v"]
    table.upsert(named.reset_index())
    assert table.schema.names == ["id", "v", "row"]
    table.upsert(named[named["id"] == 1])
    assert set(table.to_arrow(["row"])["row"].to_pylist()) == {7, 8, 9, 10}, "the table has it now"
    keyed = pa.Schema.from_pandas(frame.set_index(["id", "v"]))
    assert lakeformat.create(tmp_path / "a", keyed, record_key="id").schema.names == ["id"]
    assert set(lakeformat.create(tmp_path / "b", keyed, recordkey="id", partitionpath="v").schema.names) == {"id", "v"}


NESTED = pa.schema([
    ("id", pa.int64()),
    ("p", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
    ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    ("l", pa.list_(pa.struct([("c", pa.float64())]))),
    ("m", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip


@pytest.mark.parametrize(
    ("library", "operation"), [(pd, "upsert"), (pl, "upsert"), (pd, "bulk_insert"), (pl, "insert"), (pl, "overwrite")]
)
def test_columns_without_a_value_take_the_tables_types(
    library: Any, operation: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakeformat.create(tmp_path / "t", NESTED, record_key="id", partition_by="p", ordering="at")
    nothing = {name: [None] for name in NESTED.names[1:]}
    getattr(table, operation)(library.DataFrame({"id": [1], **nothing, "more": [None]}))
    assert "'more' is null in all rows" in caplog.text
    getattr(table, operation)(library.DataFrame({"id": [2], **nothing, "s": [{"a": None, "b": []}], "l": [[]]}))
    table.upsert(
        pa.table(
            {
                "id": [2],
                "p": pa.nulls(1),
                "at": pa.nulls(1),
                "s": [{"a": 2, "b": [None]}],
                "l": [[None]],
                "m": pa.nulls(1),
            }
        )
    )
    assert table.schema.equals(NESTED)
    rows = {row["id"]: row for row in hudi_rs.assert_same_rows(table)}
    assert rows[2]["s"] == {"a": 2, "b": [None]}
    assert rows[2]["l"] == [None]
    assert {rows[key][name] for key in rows for name in ("p", "at", "m")} == {None}
    assert set(rows) == ({2} if operation == "overwrite" else {1, 2})
    assert table.merge(library.DataFrame({"id": [2], **nothing, "more": [None]})).when_matched_update().execute()
    assert hudi_rs.assert_same_rows(table)[-1]["s"] is None
    assert table.delete(library.DataFrame({"id": [2], "p": [None]})).report["rows"]["deleted"] == 1


def test_a_frame_of_mixed_values_is_refused(tmp_path: Path) -> None:
    table, _ = people(tmp_path)
    with pytest.raises(SchemaMismatchError, match=r"column 'v' .* row 1") as refused:
        table.upsert(pd.DataFrame({"id": [1, 2], "v": [1, "x"]}))
    assert "\n" not in str(refused.value)
    assert table.history() == []


def test_frames_are_read_from_a_table(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id")
    table.upsert(pl.DataFrame(ROWS))
    read = pl.DataFrame(table.to_batches(meta_columns=False)).sort("id")
    assert read.to_dict(as_series=False) == ROWS
    assert duckdb.from_arrow(table.to_batches(["id"])).sum("id").fetchall() == [(6,)]
