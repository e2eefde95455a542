"""SQL in plain Python: the same statements as under Spark, and queries that duckdb computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, SchemaMismatchError, Table, UnsupportedTableError
from lakeformat.config.resolve import resolve
from lakeformat.write.intake import create_table
from tests.helpers import hudi_rs
from tests.helpers.counting import CountingStorage
from tests.helpers.sql_cases import FIRST, REFUSED, STATEMENTS, Held

COLUMNS = {"id": "int64", "part": "string", "price": "float64", "ts": "int64"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = lakeformat.create(tmp_path / "t", COLUMNS, record_key="id", partition_by="part")
    table.bulk_insert([dict(zip(COLUMNS, (key, *value), strict=True)) for key, value in FIRST.items()])
    return table


def read_rows(table: Table) -> Held:
    return {row["id"]: (row["part"], row["price"], row["ts"]) for row in hudi_rs.assert_same_rows(table)}


def run_sql(text: str, table: Table) -> Any:
    path = table.context.storage.location
    return lakeformat.sql(text.replace("{t}", "flights").replace("{path}", path), flights=table)


@pytest.mark.parametrize("case", STATEMENTS)
def test_statement_changes_the_rows_it_selects(case: str, table: Table) -> None:
    text, wanted = STATEMENTS[case]
    result = run_sql(text, table)
    assert read_rows(table) == wanted(dict(FIRST))
    assert table.history()[0].instant_time == result.instant_time
    assert len(table.history()) == 2


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_statement_is_refused_in_one_line(case: str, table: Table) -> None:
    text, error, part = REFUSED[case]
    with pytest.raises(error, match=part) as caught:
        run_sql(text, table)
    assert "\n" not in str(caught.value)
    assert read_rows(table) == FIRST


def test_queries_join_tables_paths_and_frames(table: Table) -> None:
    names = pl.DataFrame({"part": ["a", "b"], "name": ["first", "second"]})
    path = table.context.storage.location
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


@pytest.mark.parametrize("retries", [0, 5])
def test_update_of_rows_changed_meanwhile_runs_again(retries: int, table: Table) -> None:
    """The values come from a row that another writer changes before they are written."""
    other = lakeformat.open(table.context.storage.location)
    table = lakeformat.open(table.context.storage.location, **{"lakeformat.write.retries": retries})

    def meddling() -> Iterator[pa.RecordBatch]:
        other.update({"price": 100.0}, where="id = 1")
        yield pa.record_batch({"id": [1], "more": [1.0]})

    schema = pa.schema([("id", pa.int64()), ("more", pa.float64())])
    source = pa.RecordBatchReader.from_batches(schema, meddling())
    text = "update flights set price = price + s.more from s where s.id = flights.id"
    if retries:
        lakeformat.sql(text, flights=table, s=source)
    else:
        with pytest.raises(lakeformat.WriteConflictError):
            lakeformat.sql(text, flights=table, s=source)
    assert read_rows(table) == FIRST | {1: ("b", 101.0 if retries else 100.0, 1)}


def test_known_procedure_runs_and_unknown_one_is_refused(table: Table) -> None:
    assert run_sql("call show_commits(table => '{t}')", table)["operation"].to_pylist() == ["bulk_insert"]
    run_sql("call run_clustering(table => '{path}', order => 'price')", table)
    assert table.history()[0].operation == "cluster"
    with pytest.raises(UnsupportedTableError, match="run_clustering"):
        run_sql("call run_clustring(table => '{t}')", table)
    with pytest.raises(InvalidInputError, match="rows, not a table"):
        lakeformat.sql("delete from names where true", names=pa.table({"a": [1]}))


def test_variable_in_scope_is_not_a_table_and_the_error_says_how_to_pass_it(table: Table) -> None:
    flights = pa.table({"id": [1]})
    with pytest.raises(lakeformat.TableNotFoundError, match=r'sql\("\.\.\.", flights=table\)'):
        lakeformat.sql("select * from flights")
    assert lakeformat.sql("select * from flights", flights=flights) == flights


def test_a_path_is_named_in_any_quotes(table: Table) -> None:
    path = table.context.storage.location
    for name in (f'lakehouse."{path}"', f"lakehouse.`{path}`", f"lakehouse.'{path}'", f'"{path}"', f"'{path}'"):
        assert lakeformat.sql(f"select count(*) as n from {name}").to_pylist() == [{"n": 6}], name
    lakeformat.sql(f'update "{path}" set price = -0.0::double where id = 2')
    lakeformat.sql(f'delete from lakehouse."{path}" as f where f.id::double < 2')
    lakeformat.sql(f"insert into lakehouse.\"{path}\" by name select 7 as id, 'a' as part")
    assert read_rows(table) == {at: FIRST[at] for at in (3, 4, 5)} | {2: ("a", 0.0, 1), 7: ("a", None, None)}


def test_a_query_reads_the_columns_and_files_that_it_needs() -> None:
    storage = CountingStorage()
    schema = pa.schema([("id", pa.int64()), *((f"c{at}", pa.int64()) for at in range(20))])
    table = Table(storage, resolve({"recordkey": "id", "name": "t"}))
    create_table(table.context.store, table.options, schema, table.context.clock)
    for start in (0, 20_000):
        values = np.random.default_rng(start).permutation(np.arange(start, start + 20_000))
        table.bulk_insert(pa.table([values] * 21, schema=schema))

    def bytes_of(text: str) -> int:
        before = storage.bytes_read
        lakeformat.sql(text, t=table)
        return storage.bytes_read - before

    whole, some = bytes_of("select * from t"), bytes_of("select sum(c1) from t where c2 + c2 >= 0")
    assert some * 4 < whole
    assert bytes_of("select c1 from t where c2 = 7") < some * 0.7
    assert bytes_of("select count(*) from t t1 natural join t t2") > whole


MONTHS = pa.table(
    {
        "id": [1, 2, 3],
        "ts": pa.array([1704031200, 1704052800, 1704078000], pa.timestamp("s")).cast(pa.timestamp("us", "UTC")),
    }
)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize(
    "condition", ["ts < '2024-01-01'", "ts < '2024-01-01' and abs(id) > 0", "ts::date < '2024-01-01'"]
)
def test_a_delete_takes_the_rows_that_a_select_shows(zone: str, condition: str, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", MONTHS.schema, record_key="id")
    table.insert(MONTHS)
    how = {"t": table, "time_zone": zone}
    shown = lakeformat.sql(f"select id from t where {condition}", **how)["id"].to_pylist()
    assert shown == [
        at for at, hour in ((1, 14), (2, 20), (3, 27)) if hour < {"UTC": 24, "Asia/Tokyo": 15}.get(zone, 32)
    ]
    lakeformat.sql(f"delete from t where {condition}", **how)
    assert table.to_arrow()["id"].to_pylist() == [each for each in (1, 2, 3) if each not in shown]


UNFIT = {
    "update {t} set ts = 1e30": "out of range",
    "update {t} set ts = part": "'[ab]'",
    "insert into {t} values (1, 'a', 'x', 1)": "'x'",
    "update {t} set ts = cast((price + 1) * 1e30 as int)": "out of range",
}


@pytest.mark.parametrize("text", UNFIT)
def test_values_that_do_not_fit_are_refused(text: str, table: Table) -> None:
    with pytest.raises(InvalidInputError, match=UNFIT[text]):
        run_sql(text, table)
    assert read_rows(table) == FIRST


def test_a_natural_join_joins_by_all_columns(tmp_path: Path) -> None:
    rows = {name: pa.table({"id": [1, 2], "k": ["A", "A"], name: [10, 20]}) for name in "xy"}
    tables = {}
    for name, each in rows.items():
        tables[name] = lakeformat.create(tmp_path / name, each.schema, record_key="id")
        tables[name].insert(each)
    found = lakeformat.sql("select k, x, y from a natural join b order by x", a=tables["x"], b=tables["y"])
    assert found.to_pylist() == [{"k": "A", "x": 10, "y": 10}, {"k": "A", "x": 20, "y": 20}]


def test_each_row_is_taken_by_one_clause(table: Table) -> None:
    """A condition that changes with each evaluation is evaluated once."""
    source = pa.table({"id": list(FIRST)})
    lakeformat.sql(
        "merge into flights t using s on t.id = s.id when matched and random() < 0.5 then update set price = 1, ts = 1 "
        "when matched then update set price = 2, ts = 2",
        flights=table,
        s=source,
    )
    assert {(price, ts) for _, price, ts in read_rows(table).values()} <= {(1.0, 1), (2.0, 2)}


def test_update_of_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "x": "int64"}, record_key="id")
    for x in (1, 2):
        table.insert([{"id": 1, "x": x}])
    before = table.to_arrow()
    for text in ("update t set x = 5 where x + 0 = 2", "delete from t where x + 0 = 2"):
        with pytest.raises(InvalidInputError, match="id=1 more than once"):
            lakeformat.sql(text, t=table)
    assert table.to_arrow() == before
    assert lakeformat.sql("delete from t where x = 2", t=table).rows.deleted == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "x": 1}]


def test_commit_stores_its_statement(table: Table) -> None:
    text = "update {t} set price = 1 where id = 1 -- " + "x" * 600
    run_sql(text, table)
    store = table.context.store
    kept = store.read_commit(store.load().commits[-1]).extra["lakeformat.statement"]
    assert kept == text.replace("{t}", "flights")[:497] + "..."


@pytest.mark.parametrize("key", [None, "id"])
@pytest.mark.parametrize("name", ["rowid", "RowId", "lakeformat_row", "lakeformat_does"])
def test_column_named_like_the_row_number_is_refused_where_it_is_copied(
    name: str, key: str | None, tmp_path: Path
) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", name: "int64"}, **({"record_key": key} if key else {}))
    rows = [{"id": 0, name: 1}, {"id": 1, name: 0}, {"id": 2, name: 9}]
    table.insert(rows)
    for text in (f'update t set "{name}" = "{name}" + 1 where id > 0', f'delete from t where "{name}" + 0 = 1'):
        with pytest.raises(InvalidInputError, match=f"column '{name}'.*use the verbs of lakeformat.Table"):
            lakeformat.sql(text, t=table)
    assert table.to_arrow(["id", name]).sort_by("id").to_pylist() == rows
    assert lakeformat.sql(f'delete from t where "{name}" = 9', t=table).rows.deleted == 1
    assert lakeformat.sql("update t set id = id where false", t=table).rows.updated == 0


def test_a_pivot_finds_its_values_itself(table: Table) -> None:
    pivot = "pivot (select part, id from flights) on part using count(id)"
    assert (
        run_sql(pivot, table).to_pylist()
        == run_sql(f"select * from ({pivot})", table).to_pylist()
        == [{"a": 3, "b": 3}]
    )


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_dates_and_times_without_end_are_refused(value: str, tmp_path: Path) -> None:
    day, moment = pa.date32(), pa.timestamp("us")
    kinds = {"day": day, "naive": moment, "zoned": pa.timestamp("us", "UTC"), "st": pa.struct([("d", day)]),
             "days": pa.list_(day), "m": pa.map_(pa.string(), pa.list_(pa.struct([("d", moment)])))}  # fmt: skip
    table = lakeformat.create(tmp_path / "t", {"id": pa.int64(), **kinds}, record_key="id")
    table.insert([{"id": 1} | dict.fromkeys(kinds)])
    said = dict.fromkeys(kinds, f"'{value}'") | {
        "st": f"{{'d': date '{value}'}}",
        "days": f"[null, date '{value}']",
        "m": f"map {{'a': [{{'d': timestamp '{value}'}}]}}",
    }
    for name, text in said.items():
        for statement in (f"update t set {name} = {text}", f"insert into t (id, {name}) values (2, {text})"):
            with pytest.raises(SchemaMismatchError, match=f"column '{name}' would hold 'infinity'"):
                lakeformat.sql(statement, t=table)
    assert table.to_arrow().to_pylist() == [{"id": 1} | dict.fromkeys(kinds)]
