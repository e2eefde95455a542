"""SQL in plain Python: the same statements as under Spark, and queries that duckdb computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, Table, UnsupportedTableError
from tests.helpers import hudi_rs
from tests.helpers.sql_cases import FIRST, REFUSED, STATEMENTS, Held

COLUMNS = {"id": "int64", "part": "string", "price": "float64", "ts": "int64"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = lakeformat.create(tmp_path / "t", COLUMNS, record_key="id", partition_by="part")
    table.bulk_insert([dict(zip(COLUMNS, (key, *value), strict=True)) for key, value in FIRST.items()])
    return table


def held(table: Table) -> Held:
    return {row["id"]: (row["part"], row["price"], row["ts"]) for row in hudi_rs.assert_same_rows(table)}


def said(text: str, table: Table) -> Any:
    path = table.engine.storage.location
    return lakeformat.sql(text.replace("{t}", "flights").replace("{path}", path), flights=table)


@pytest.mark.parametrize("case", STATEMENTS)
def test_a_statement_does_what_it_says(case: str, table: Table) -> None:
    text, wanted = STATEMENTS[case]
    result = said(text, table)
    assert held(table) == wanted(dict(FIRST))
    assert table.history()[0].instant_time == result.instant_time
    assert len(table.history()) == 2


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_told_in_one_line(case: str, table: Table) -> None:
    text, error, part = REFUSED[case]
    with pytest.raises(error, match=part) as caught:
        said(text, table)
    assert "\n" not in str(caught.value)
    assert held(table) == FIRST


def test_queries_join_tables_paths_and_frames(table: Table) -> None:
    names = pl.DataFrame({"part": ["a", "b"], "name": ["first", "second"]})
    path = table.engine.storage.location
    rows = lakeformat.sql(
        "select n.name, count(*) as rows, max(f.price) as top from flights f join names n using (part) "
        f"where f.id in (select id from lakehouse.`{path}` where id > 0) group by n.name order by n.name",
        flights=path,
        names=names,
    )
    assert rows.to_pylist() == [{"name": "first", "rows": 2, "top": 6.0}, {"name": "second", "rows": 3, "top": 7.5}]
    assert lakeformat.sql(
        "select if(id > 2, 'x', 'y') as k from flights order by id limit 1", flights=table
    ) == pa.table({"k": ["y"]})
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        lakeformat.sql("select nothing from flights", flights=table)


def test_rows_that_changed_since_are_a_conflict(table: Table) -> None:
    """The values were computed from a row that another writer changes before they are written."""
    other = lakeformat.open(table.engine.storage.location)

    def meddling() -> Iterator[pa.RecordBatch]:
        other.update({"price": 100.0}, where="id = 1")
        yield pa.record_batch({"id": [1], "more": [1.0]})

    schema = pa.schema([("id", pa.int64()), ("more", pa.float64())])
    source = pa.RecordBatchReader.from_batches(schema, meddling())
    text = "update flights set price = price + s.more from s where s.id = flights.id"
    with pytest.raises(lakeformat.WriteConflictError):
        lakeformat.sql(text, flights=table, s=source)
    assert held(table) == FIRST | {1: ("b", 100.0, 1)}


def test_procedures_and_what_is_none(table: Table) -> None:
    assert said("call show_commits(table => '{t}')", table)["operation"].to_pylist() == ["bulk_insert"]
    said("call run_clustering(table => '{path}', order => 'price')", table)
    assert table.history()[0].operation == "cluster"
    with pytest.raises(UnsupportedTableError, match="run_clustering"):
        said("call run_clustring(table => '{t}')", table)
    with pytest.raises(InvalidInputError, match="rows and no table"):
        lakeformat.sql("delete from names where true", names=pa.table({"a": [1]}))
