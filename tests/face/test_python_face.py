"""Calls that users of other libraries try first: each works, or is refused with the right name."""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lakeformat
from lakeformat import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    Table,
    TableNotFoundError,
    WriteConflictError,
)
from lakeformat.model.record import META_COLUMNS
from lakeformat.storage import LocalStorage
from tests.helpers.tables import a_schema

SCHEMA = a_schema(
    id="int64",
    part="string",
    price=pa.decimal128(10, 2),
    day="date32",
    at=pa.timestamp("us", "UTC"),
    small="int32",
    tags=pa.list_(pa.string()),
)
ROWS: list[dict[str, Any]] = [
    {
        "id": at,
        "part": "ab"[at % 2],
        "price": decimal.Decimal(at),
        "day": date(2025, 1, at + 1),
        "at": datetime(2025, 1, 1, at, tzinfo=timezone.utc),
        "small": at * 10,
        "tags": ["x"] * at,
    }
    for at in range(6)
]


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in SCHEMA.names}


def new_table(folder: Path, **options: Any) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="part", **options)


def rows_by_key(rows: Any) -> list[dict[str, Any]]:
    """Return rows without Hudi's columns, sorted by key."""
    kept = pa.table(rows).select(SCHEMA.names).to_pylist()
    return sorted(kept, key=lambda row: row["id"])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path)
    table.upsert(pa.Table.from_pylist(ROWS, SCHEMA))
    return table


INPUTS: dict[str, Callable[[], Any]] = {
    "list of dicts": lambda: ROWS,
    "dict of lists": lambda: columns_of(ROWS),
    "dict of arrays": lambda: {
        name: pa.array(columns_of(ROWS)[name], SCHEMA.field(name).type) for name in SCHEMA.names
    },
    "polars LazyFrame": lambda: pl.from_arrow(pa.Table.from_pylist(ROWS, SCHEMA)).lazy(),
    "dataset": lambda: ds.dataset(pa.Table.from_pylist(ROWS, SCHEMA)),
    "scanner": lambda: ds.dataset(pa.Table.from_pylist(ROWS, SCHEMA)).scanner(),
}


@pytest.mark.parametrize("name", INPUTS)
def test_write_accepts_every_kind_of_rows(name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    result = table.upsert(INPUTS[name]())
    assert (result.rows.incoming, result.rows.inserted, result.rows.updated) == (6, 6, 0)
    assert rows_by_key(table.to_arrow()) == ROWS


def test_a_lazy_frame_is_written_as_it_is_computed(tmp_path: Path) -> None:
    """Batches may be empty, and a lazy frame of no rows has columns."""
    letters = pl.Series(["a", "b"] * 500, dtype=pl.Categorical)
    frame = pl.DataFrame({"id": range(1000), "v": ["x", None] * 500, "c": letters})
    frame.write_parquet(tmp_path / "rows.parquet")
    lazy = pl.scan_parquet(tmp_path / "rows.parquet")
    table = lakeformat.create(tmp_path / "t", lazy, record_key="id")
    table.upsert(lazy.filter(pl.col("id") < 900))
    table.upsert(lazy.filter(pl.col("id") < 0))
    table.upsert(lazy.filter(pl.col("id") >= 900).with_columns(pl.lit("y").alias("v")))
    found = table.to_arrow().sort_by("id").to_pylist()
    assert found == [row | ({"v": "y"} if row["id"] >= 900 else {}) for row in frame.to_dicts()]


def test_write_accepts_a_table_and_a_read(table: Table, tmp_path: Path) -> None:
    copy = new_table(tmp_path / "copy")
    copy.upsert(table.read(meta_columns=False, where="id < 4"))
    assert rows_by_key(copy) == ROWS[:4]


def test_missing_dict_key_is_null(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    lacking = {name: value for name, value in ROWS[0].items() if name != "small"}
    table.upsert([lacking, ROWS[1]])
    assert [row["small"] for row in rows_by_key(table.to_arrow())] == [None, 10]


def test_delete_and_plan_accept_the_same_rows(table: Table) -> None:
    assert table.plan_delete([{"id": 1, "part": "b"}]).updates == 1
    assert table.delete([{"id": 1, "part": "b"}]).rows.deleted == 1
    assert table.delete({"id": [2, 99]}).rows.deleted == 1
    merged = table.merge([{"id": 3, "part": "b", "small": 7}]).when_matched_update(columns=["small"]).execute()
    assert (merged.rows.updated, merged.files.merged) == (1, 1)


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ({"id": [1], "part": ["a", "b"]}, InvalidInputError, "id 1, part 2"),
        ({"id": 1, "part": "a"}, InvalidInputError, "give a list of values"),
        ([{"id": 1}, "no row"], InvalidInputError, "not a dict"),
        ([{"id": 1, "part": "a", "small": "many"}], SchemaMismatchError, "'small' cannot be read as int32"),
        ([{"id": 1, "part": "a", 3: 4}], InvalidInputError, "keys that are str"),
        ("rows.parquet", InvalidInputError, "a list of dicts"),
    ],
)
def test_input_that_is_not_rows_is_refused_in_one_line(
    table: Table, rows: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        table.upsert(rows)
    assert "\n" not in str(caught.value)
    assert table.count() == 6


OUTPUTS: dict[str, Callable[[Table], Any]] = {
    "to_arrow": lambda table: table.to_arrow(),
    "to_pandas": lambda table: pa.Table.from_pandas(table.to_pandas()),
    "to_polars": lambda table: table.to_polars().to_arrow(),
    "to_duckdb": lambda table: table.to_duckdb().to_arrow_table(),
    "polars of the table": lambda table: pl.DataFrame(table).to_arrow(),
    "pyarrow of the table": pa.table,
    "pyarrow of a scan": lambda table: pa.table(table.read(SCHEMA.names)),
    "rows as dicts": lambda table: pa.Table.from_pylist(table.read().to_pylist()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_read_returns_every_kind_of_rows(name: str, table: Table) -> None:
    ids = OUTPUTS[name](table)
    assert sorted(zip(ids["id"].to_pylist(), ids["small"].to_pylist(), strict=True)) == [
        (at, at * 10) for at in range(6)
    ]


def test_pandas_polars_and_duckdb_see_the_filter_and_the_columns(table: Table) -> None:
    assert isinstance(table.to_pandas(["id"], where="id > 3"), pd.DataFrame)
    assert sorted(table.to_pandas(["id"], where="id > 3")["id"]) == [4, 5]
    assert table.to_polars("id", where=pc.field("id") > 4).rows() == [(5,)]
    assert table.to_duckdb(["small"], limit=2).aggregate("count(*)").fetchall() == [(2,)]
    named = table.read(where="id < 2").to_duckdb(duckdb.connect())
    assert named.filter("part = 'b'").count("*").fetchall() == [(1,)]


def test_meta_columns_are_returned_on_request(table: Table) -> None:
    assert table.to_arrow().column_names == table.schema.names
    assert pa.table(table).column_names == list(table.to_pandas()) == table.to_polars().columns == table.schema.names
    assert table.changes("000").to_arrow().column_names == table.schema.names
    assert table.to_arrow(["_hoodie_record_key", "id"]).column_names == ["_hoodie_record_key", "id"]
    whole = [*META_COLUMNS, *table.schema.names]
    assert table.to_arrow(meta_columns=True).column_names == whole
    asked = lakeformat.open(table.context.storage.location, meta_columns=True)
    assert asked.to_arrow().column_names == asked.read().schema.names == whole
    assert asked.to_arrow(meta_columns=False).column_names == table.schema.names


def test_limit_returns_that_many_matching_rows(table: Table) -> None:
    for limit in (0, 1, 5, 6, 100):
        rows = table.to_arrow(["id"], where="id >= 1", limit=limit)["id"].to_pylist()
        assert len(rows) == len(set(rows)) == min(limit, 5)
        assert set(rows) <= {1, 2, 3, 4, 5}
        assert table.read(where="id >= 1", limit=limit).count() == min(limit, 5)
    with pytest.raises(InvalidInputError, match="limit=-1"):
        table.to_arrow(limit=-1)


def test_count_is_how_many_rows_there_are(table: Table) -> None:
    first = table.history()[-1].instant_time
    table.delete({"id": [0]})
    assert (table.count(), len(table), table.count("small > 20"), table.count(as_of=first)) == (5, 5, 3, 6)
    assert table.changes(since="000").count() == 5
    assert table.count(pc.field("small") < 0) == 0
    assert bool(table)
    table.overwrite(SCHEMA.empty_table())
    assert (len(table), bool(table)) == (0, True)


def test_count_without_the_file_index_reads_footers(table: Table) -> None:
    listed = lakeformat.open(table.context.storage.location, **{"lakeformat.file.index": False})
    assert (listed.files()["rows"].null_count, listed.count()) == (2, 6)


def test_files_lists_the_files_on_disk(table: Table) -> None:
    folder = Path(table.context.storage.location)
    files = table.files()
    on_disk = {str(file.relative_to(folder)): file.stat().st_size for file in folder.glob("*/*.parquet")}
    assert dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)) == on_disk
    assert sum(files["rows"].to_pylist()) == 6
    assert set(files["partition_path"].to_pylist()) == {"a", "b"}
    assert all(
        path.startswith(f"{part}/{id_}_")
        for path, part, id_ in zip(
            *(files[name].to_pylist() for name in ("path", "partition_path", "file_id")), strict=True
        )
    )


def test_exists_open_and_create(table: Table, tmp_path: Path) -> None:
    location = table.context.storage.location
    assert lakeformat.exists(location)
    assert table.exists()
    assert not lakeformat.exists(tmp_path / "nowhere")
    assert not lakeformat.exists("memory://nowhere/at/all", storage_options={})
    assert lakeformat.create(location, SCHEMA, record_key="id", partition_by="part").count() == 6
    with pytest.raises(InvalidOptionError, match="already; choose"):
        lakeformat.create(location, SCHEMA, record_key="id", partition_by="part", if_exists="error")
    with pytest.raises(InvalidOptionError, match="overwrite"):
        lakeformat.create(location, SCHEMA, record_key="id", if_exists="replace")
    with pytest.raises(TableNotFoundError):
        lakeformat.open(tmp_path / "nowhere", storage_options=None)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": "int64", "name": pa.string()},
        [("id", pa.int64()), ("name", pa.string())],
        pa.table({"id": [1], "name": ["a"]}),
        pl.DataFrame({"id": [1], "name": ["a"]}),
        pd.DataFrame({"id": [1], "name": ["a"]}),
        [{"id": 1, "name": "a"}],
        {"id": [1], "name": ["a"]},
    ],
    ids=["names", "pairs", "arrow", "polars", "pandas", "dicts", "lists"],
)
def test_create_accepts_every_kind_of_schema(columns: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", columns, record_key="id", if_exists="error")
    assert table.schema == pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert table.count() == 0


def test_create_refuses_an_unknown_type(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="give names and Arrow types"):
        lakeformat.create(tmp_path / "t", {"id": "integer!"}, record_key="id")


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("vacuum", "clean()"),
        ("to_pyarrow_table", "to_arrow()"),
        ("append", "insert(rows)"),
        ("load_as_version", "as_of"),
        ("upsret", "did you mean 'upsert'"),
    ],
)
def test_method_names_of_other_formats_suggest_ours(name: str, ours: str, table: Table) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(table, name)
    assert ours in str(caught.value)
    assert not hasattr(table, "_repr_mimebundle_")


def test_delete_given_a_condition_as_keys_suggests_where(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="delete\\(where='id = 1'\\)"):
        table.delete("id = 1")


def test_notebook_view_escapes_html_in_values(table: Table, tmp_path: Path) -> None:
    columns = {"id": "int64", "part": "string"}
    hostile = lakeformat.create(tmp_path / "<b>", columns, record_key="id", partition_by="part")
    result = hostile.upsert([{"id": 1, "part": "<script>"}])
    shown = {
        "table": hostile._repr_html_(),
        "result": result._repr_html_(),
        "history": hostile.history()._repr_html_(),
        "plan": hostile.plan_upsert([{"id": 1, "part": "<script>"}])._repr_html_(),
        "layout": table.layout_report(["id", "small"])._repr_html_(),
    }
    assert [name for name, html in shown.items() if "<script>" in html or "<b>" in html or "<table" not in html] == []
    assert "&lt;script&gt;" in shown["plan"]
    assert "&lt;b&gt;" in shown["table"]
    assert result.instant_time in shown["history"]
    assert "no table" in Table(LocalStorage(str(tmp_path / "nowhere")))._repr_html_()


def test_conflict_error_has_the_file_group_ids(table: Table) -> None:
    table.schedule_clustering("id", partitions=["a"])
    with pytest.raises(WriteConflictError) as caught:
        table.upsert(ROWS[:1])
    waiting = table.files().filter(pc.field("partition_path") == "a")["file_id"].to_pylist()
    assert caught.value.file_ids == set(waiting)
    assert pickle.loads(pickle.dumps(caught.value)).file_ids == set(waiting)  # noqa: S301
