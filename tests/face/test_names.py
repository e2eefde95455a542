"""Names that a table does not have are refused with our own message, and each answer of a call is one line."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat import (
    InstantNotAvailableError,
    InvalidInputError,
    InvalidOptionError,
    LakeformatError,
    SchemaMismatchError,
    Table,
)
from lakeformat.config import foreign_names
from lakeformat.model.operation import Operation
from lakeformat.spark.table import LakehouseTable

COLUMNS = {"id": "int64", "v": "int64", "name": "string"}
ROWS = [{"id": at, "v": at * 10, "name": "x"} for at in range(4)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = lakeformat.create(tmp_path / "t", COLUMNS, record_key="id")
    table.upsert(ROWS)
    return table


#: Name -> the call, the error class, and a part of the message.
REFUSED: dict[str, tuple[Callable[[Table], Any], type[LakeformatError], str]] = {
    "options of an insert": (lambda t: t.insert(ROWS, options={"a": 1}), InvalidOptionError, "'options'.*are given to"),
    "what is ours inside": (lambda t: t.insert(ROWS, combine=True), InvalidOptionError, "'combine'"),
    "a runner": (lambda t: t.update({"v": 1}, runner=None), InvalidOptionError, "'runner' of update"),
    "misspelt": (lambda t: t.upsert(ROWS, partial_udpate=True), InvalidOptionError, "'partial_update'"),
    "misspelt in bulk": (lambda t: t.bulk_insert(ROWS, sort_column=["id"]), InvalidOptionError, "'sort_columns'"),
    "mode": (lambda t: t.overwrite(ROWS, mode="append"), InvalidOptionError, "a method of its own"),
    "predicate of a delete": (lambda t: t.delete(predicate="id = 1"), InvalidOptionError, "'where'"),
    "predicate of a merge": (lambda t: t.merge(ROWS, predicate="s.id = t.id"), InvalidOptionError, "record key"),
    "alias of a merge": (lambda t: t.merge(ROWS, source_alias="s"), InvalidOptionError, "source.x"),
    "a read": (lambda t: t.to_arrow(filters=[("id", "=", 1)]), InvalidOptionError, "'where'"),
    "changes": (lambda t: t.changes("000").to_arrow(colums=["id"]), InvalidOptionError, "'columns'"),
    "options of a clean": (lambda t: t.clean(options={}), InvalidOptionError, "'options' of clean.*table is opened"),
    "unknown to a clean": (
        lambda t: t.clean(foo=1),
        InvalidOptionError,
        "'foo' of clean.*there are commits, hours, ver",
    ),
    "misspelt in a restore": (lambda t: t.restore("0", dryrun=True), InvalidOptionError, "did you mean 'dry_run'"),
    "a verb without arguments": (lambda t: t.compact(force=True), InvalidOptionError, "'force' of compact"),
    "history": (lambda t: t.history(n=3), InvalidOptionError, "'limit'"),
    "an operation": (lambda t: t.write(ROWS, "upsret"), InvalidInputError, "'upsert'"),
    "restore to a version to come": (
        lambda t: t.restore(7),
        InstantNotAvailableError,
        "no version 7; it has versions 0",
    ),
    "savepoint by number": (lambda t: t.savepoint(0), InvalidInputError, "instant time as text"),
    "rollback by number": (lambda t: t.rollback(1), InvalidInputError, "instant time as text"),
    "no savepoint by number": (lambda t: t.delete_savepoint(1), InvalidInputError, "instant time as text"),
    "clustering by number": (lambda t: t.cancel_clustering(1), InvalidInputError, "instant time as text"),
    "compaction by number": (lambda t: t.run_compaction(1), InvalidInputError, "instant time as text"),
    "a read by version": (lambda t: t.to_arrow(version=3), InvalidOptionError, "'version'; did you mean 'as_of'"),
    "a filter of polars": (
        lambda t: pl.scan_pyarrow_dataset(t).collect(),  # type: ignore[arg-type]
        InvalidOptionError,
        r"to_polars\(lazy=True\)",
    ),
    "changes by version": (lambda t: t.changes(starting_version=0), InvalidOptionError, "did you mean 'since'"),  # type: ignore[call-overload]
    "changes since when": (lambda t: t.changes(), InvalidOptionError, 'since="000"'),
    "images since when": (lambda t: t.changes(images=True), InvalidOptionError, 'since="000"'),
    "a computed value": (lambda t: t.update({"v": "v+1"}), SchemaMismatchError, "function.*lakeformat.sql.*update t"),
    "an expression": (lambda t: t.update({"v": pc.field("v")}), InvalidInputError, "function.*lakeformat.sql"),
    "a set as text": (lambda t: t.update("v = 1"), InvalidInputError, "lakeformat.sql"),
    "keys as expression": (lambda t: t.delete(pc.field("id") == 6), InvalidInputError, r"delete\(where="),
    "a row of a frame": (lambda t: t.upsert(pd.DataFrame(ROWS).iloc[0]), InvalidInputError, r"df.iloc\[\[0\]\]"),
    "a column of a frame": (lambda t: t.delete(pl.DataFrame(ROWS)["id"]), InvalidInputError, r"df\[\['id'\]\]"),
    "columns of one name": (
        lambda t: t.upsert(pd.concat([pd.DataFrame(ROWS), pd.DataFrame({"v": [1] * 4})], axis=1)),
        SchemaMismatchError,
        "Duplicate column names",
    ),
    "operators of pandas": (lambda t: t.count("v > 1 & name = 'x'"), InvalidInputError, "write and"),
    "keys as text": (lambda t: t.delete("id = 6"), InvalidInputError, r"delete\(where='id = 6'\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_missing_name_is_refused_in_one_line(case: str, table: Table) -> None:
    call, error, said = REFUSED[case]
    before = (table.to_arrow().to_pylist(), len(table.history()))
    with pytest.raises(error, match=said) as caught:
        call(table)
    assert "\n" not in str(caught.value)
    assert (table.to_arrow().to_pylist(), len(table.history())) == before


def test_version_number_of_open_points_to_as_of(table: Table) -> None:
    with pytest.raises(InvalidOptionError, match=r"unknown option 'version'; .*read\(as_of="):
        lakeformat.open(table.location, version=1)


#: Options that create and open take neither, and a part of the message.
OPTIONS = [
    ({"key": "id"}, "did you mean 'record_key'"),
    ({"primary_key": "id"}, "did you mean 'record_key'"),
    ({"AWS_ACCESS_KEY_ID": "k"}, "storage_options={'aws_access_key_id': ...}, in Spark as the option 'fs.aws_"),
    ({"endpoint_url": "k"}, "storage_options={'endpoint_url': ...}"),
    ({"exist_ok": True}, "if_exists='error'"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS, ids=[next(iter(each)) for each, _ in OPTIONS])
def test_options_of_other_libraries_suggest_ours(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(said)) as caught:
        lakeformat.create(tmp_path / "t", COLUMNS, **options)
    assert "\n" not in str(caught.value)
    assert not lakeformat.exists(tmp_path / "t")


def test_operations_are_accepted_by_name(table: Table) -> None:
    assert table.write([{"id": 9, "v": 1, "name": "y"}], "UPSERT").rows.inserted == 1
    assert table.plan([{"id": 9}], "delete").operation == Operation.DELETE.value


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("add_column", "alter().add("),
        ("with_columns", "alter().add("),
        ("rename_column", "alter().rename("),
        ("drop_columns", "alter().drop("),
        ("alter_columns", "alter().add("),
        ("update_schema", "alter().rename("),
        ("restoreToVersion", "restore(...) with a version number"),
        ("table_name", "here it is called name"),
        ("drop", "delete its folder"),
        ("sample", "to_arrow(limit=...)"),
        ("to_ray", "lakeformat.integrations.ray.read_table(path)"),
        ("sql", "lakeformat.sql("),
        ("undo", "rollback()"),
        ("plot", "layout_report(columns).figure()"),
        ("where", "read(where=...)"),
        ("diff", "changes(since, images=True)"),
        ("get", "read(where=...)"),
        ("refresh", "each read sees the newest commit"),
        ("scan_polars", "to_polars(lazy=True)"),
        ("latest_version", "history()[0].version"),
        ("table_uri", "uri"),
        ("alias", "source.x"),
        ("vacuum", "clean()"),
        ("forName", "path"),
        ("primary_key", "config.record_fields"),
        ("keys", "config.record_fields"),
        ("whenMatchedUpdateAll", "merge(rows), and then when_matched_update()"),
        ("whenNotMatchedBySourceDelete", "rows that the source does not have"),
        ("upsrt", "did you mean 'upsert'"),
    ],
)
@pytest.mark.parametrize("kind", [Table, LakehouseTable])
def test_names_of_other_libraries_suggest_ours_on_both_hosts(kind: type, name: str, said: str) -> None:
    for asked in (kind, object.__new__(kind)):
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(asked, name)


@pytest.mark.parametrize("kind", [Table, LakehouseTable])
def test_verbs_keep_their_signatures(kind: Any) -> None:
    assert list(inspect.signature(kind.clean).parameters) == ["self", "commits", "hours", "versions", "dry_run"]
    assert inspect.getdoc(kind.clean).startswith("Delete files")
    with pytest.raises(InvalidOptionError, match="there are min_commits, max_commits"):
        object.__new__(kind).archive(foo=1)


def test_as_of_before_the_first_commit_warns(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    first = table.history()[0].instant_time
    assert table.count(as_of="2001-01-01") == 0
    (record,) = caplog.records
    said = f"{table.location}: as of 20010101000000000 is before its first commit {first}, so there are no rows"
    assert (record.name, record.levelno, record.getMessage()) == ("lakeformat.read", logging.WARNING, said)
    assert table.count(as_of=first) == len(ROWS)
    assert len(caplog.records) == 1


def test_hints_name_existing_methods() -> None:
    wrong = []
    for kind in (Table, LakehouseTable):
        hints = {**foreign_names._OWN_CALLS, **(foreign_names._UNDER_SPARK if kind is LakehouseTable else {})}
        for name, ours in hints.items():
            verbs = re.findall(r"(?:^| and )(\w+)\(", ours)
            wrong += [(kind.__name__, name, verb) for verb in verbs if verb not in dir(kind) and name not in dir(kind)]
            if kind is Table and name in dir(kind):
                wrong.append((kind.__name__, name, "is there"))
    assert wrong == []


def test_hints_name_existing_arguments() -> None:
    texts = [*foreign_names._OWN_CALLS.values(), *foreign_names._INSTEAD.values()]
    calls = [
        (verb, name)
        for text in texts
        for verb, named in re.findall(r"\b(\w+)\(([^()]*)\)", text)
        for name in re.findall(r"(\w+)=", named)
        if hasattr(Table, verb)
    ]
    assert len(calls) > 10
    of_reads = lakeformat.ReadArguments.__annotations__
    known = {verb: {*inspect.signature(getattr(Table, verb)).parameters, *of_reads} for verb, _ in calls}
    assert [(verb, name) for verb, name in calls if name not in known[verb]] == []


@pytest.mark.parametrize("name", ["rows", "iterrows", "to_pylist"])
def test_loops_over_rows_are_answered_on_both_hosts(name: str) -> None:
    for kind, said in ((Table, "to_arrow().to_pylist()"), (LakehouseTable, "read().collect()")):
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(kind, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("when_matched_update_all", "when_matched_update()"),
        ("whenMatchedUpdateAll", "when_matched_update()"),
        ("when_not_matched_insert_all", "when_not_matched_insert()"),
        ("whenNotMatchedInsertAll", "when_not_matched_insert()"),
        ("when_not_matched_by_source_delete", "rows that the source does not have"),
        ("when_matched_udpate", "did you mean 'when_matched_update'"),
    ],
)
def test_merge_clauses_of_other_libraries_suggest_ours(name: str, said: str, table: Table) -> None:
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(table.merge(ROWS), name)


def test_module_names_of_other_libraries_suggest_ours() -> None:
    with pytest.raises(AttributeError, match=r"here it is called lakeformat.open\(path\)"):
        lakeformat.DeltaTable  # noqa: B018
    with pytest.raises(AttributeError, match="insert=True"):
        lakeformat.write_deltalake  # noqa: B018


def test_location_is_the_table_path(table: Table, tmp_path: Path) -> None:
    assert table.location == table.path == str(tmp_path / "t")
    assert table.uri == (tmp_path / "t").as_uri()
    assert table.name == table.config.name


def test_repr_of_results_is_one_line(table: Table) -> None:
    result = table.upsert(ROWS)
    table.savepoint(comment="kept")
    answers = [
        table,
        result,
        *table.history(actions=True),
        table.merge(ROWS).when_matched_update(),
        table.describe(),
        table.check(),
        table.savepoints()[0],
        table.restore(result.instant_time),
        table.clean(),
        table.archive(),
        table.plan_upsert(ROWS),
        table.layout_report(["id"]),
        table.dedupe(dry_run=True),
        table.upgrade(8),
    ]
    assert [each for each in map(repr, answers) if "\n" in each or len(each) > 200 or "object at" in each] == []
    assert repr(result) == f"WriteResult({result})"


# --- create ---------------------------------------------------------------------------------------------

GIVEN: dict[str, Callable[[], Any]] = {
    "a list of dicts": lambda: ROWS,
    "a dict of lists": lambda: {name: [row[name] for row in ROWS] for name in COLUMNS},
    "an Arrow table": lambda: pa.Table.from_pylist(ROWS),
    "a reader": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "a generator": lambda: iter(pa.Table.from_pylist(ROWS).to_batches()),
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy polars": lambda: pl.LazyFrame(ROWS),
}


@pytest.mark.parametrize("case", GIVEN)
def test_create_with_insert_inserts_the_rows(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = lakeformat.create(tmp_path / "t", GIVEN[case](), record_key="id", insert=True)
    assert sorted(made.to_arrow().to_pylist(), key=lambda row: row["id"]) == ROWS
    assert caplog.records == []
    with pytest.raises(InvalidInputError, match="with commits already"):
        lakeformat.create(tmp_path / "t", GIVEN[case](), record_key="id", insert=True)
    assert made.count() == len(ROWS)


@pytest.mark.parametrize("case", GIVEN)
def test_create_with_rows_without_insert_warns(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = lakeformat.create(tmp_path / "t", GIVEN[case](), record_key="id")
    assert made.count() == 0
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "insert=True" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("schema", [COLUMNS, pa.schema({"id": pa.int64()}), pa.table({"id": pa.array([], "int64")})])
def test_create_with_a_schema_does_not_warn(schema: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lakeformat.create(tmp_path / "t", schema, record_key="id")
    assert caplog.records == []


def test_create_with_insert_refuses_a_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs rows"):
        lakeformat.create(tmp_path / "t", COLUMNS, record_key="id", insert=True)
    assert not lakeformat.exists(tmp_path / "t")


def test_create_with_insert_fills_an_existing_empty_table(tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", COLUMNS, record_key="id")
    assert lakeformat.create(tmp_path / "t", ROWS, record_key="id", insert=True).count() == len(ROWS)


def test_a_first_insert_that_failed_leaves_no_table_for_the_next(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError("the source is gone")

    settings: Any = {"record_key": "id", "if_exists": "error", "insert": True}
    with pytest.raises(OSError, match="the source is gone"):
        lakeformat.create(
            tmp_path / "t", pa.RecordBatchReader.from_batches(pa.schema({"id": "int64"}), broken()), **settings
        )
    assert lakeformat.open(tmp_path / "t").history() == []
    assert lakeformat.create(tmp_path / "t", [{"id": 1}], **settings).count() == 1
    with pytest.raises(InvalidInputError, match="with commits already"):
        lakeformat.create(tmp_path / "t", [{"id": 1}], **settings)


def test_create_table_as_runs_again_after_a_failure(tmp_path: Path) -> None:
    target, first = (
        f"create table lakehouse.`{tmp_path}/t` as select ",
        "cast(x as int) as id from (values ('a')) as v(x)",
    )
    with pytest.raises(Exception, match="Could not convert"):
        lakeformat.sql(target + first)
    lakeformat.create(tmp_path / "t", {"id": "int32"})
    lakeformat.sql(target.replace("create table", "create table if not exists") + "1 as id")
    assert lakeformat.open(tmp_path / "t").count() == 1
    lakeformat.sql(target.replace("create table", "create table if not exists") + "2 as id")
    assert lakeformat.open(tmp_path / "t").count() == 1
