"""Pre-commit validators: a commit that they refuse never becomes visible.

A validator that lakeformat cannot run is refused before the write.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, Table, ValidationFailedError
from lakeformat.model.operation import Operation
from lakeformat.transaction.commit.hooks import ProposedWrite
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", v="float64", name="string")
VALIDATORS = "hoodie.precommit.validators"
PACKAGE = "org.apache.hudi.client.validator."
SINGLE = {
    VALIDATORS: PACKAGE + "SqlQuerySingleResultPreCommitValidator",
    "query": f"{VALIDATORS}.single.value.sql.queries",
}
EQUAL = {VALIDATORS: "SqlQueryEqualityPreCommitValidator", "query": f"{VALIDATORS}.equality.sql.queries"}
UNEQUAL = {VALIDATORS: "SqlQueryInequalityPreCommitValidator", "query": f"{VALIDATORS}.inequality.sql.queries"}


def asking(kind: dict[str, str], *queries: str) -> dict[str, str]:
    return {VALIDATORS: kind[VALIDATORS], kind["query"]: ";".join(queries)}


def rows(ids: list[int], values: list[float | None] | None = None, names: list[str | None] | None = None) -> pa.Table:
    columns = {
        "id": ids,
        "p": [f"p{n % 2}" for n in ids],
        "v": values or [float(n) for n in ids],
        "name": names or [f"n{n}" for n in ids],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p")
    table.upsert(rows([1, 2, 3, 4]))
    return tmp_path / "t"


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow(["id"])["id"].to_pylist())


def assert_nothing_happened(path: Path, before: list[int]) -> None:
    table = lakeformat.open(path)
    assert ids(table) == before
    timeline = table.context.store.load()
    assert len(timeline.commits) == 1
    assert [instant for instant in timeline.pending if instant.action.value == "commit"] == []
    hudi_rs.assert_same_rows(table)
    table.upsert(rows([9]))
    assert ids(table) == sorted([*before, 9])


PASSING = [
    asking(SINGLE, "select count(*) from <TABLE_NAME>#5"),
    asking(SINGLE, "select count(*) from <TABLE_NAME> where name is null#0", "select max(v) from <TABLE_NAME>#5"),
    asking(SINGLE, "SELECT SUM(id) AS total FROM <TABLE_NAME> WHERE v > 2.5 AND name LIKE 'n%'#12.0"),
    asking(SINGLE, "select avg(id) from <TABLE_NAME>#3"),
    asking(SINGLE, "select count(distinct p) from <TABLE_NAME>#2"),
    asking(SINGLE, "select min(name) from <TABLE_NAME> t#n1"),
    asking(SINGLE, "select max(v) from <TABLE_NAME> where id > 100#null"),
    asking(EQUAL, "select count(*) from <TABLE_NAME> where name is null"),
    asking(EQUAL, "select min(id), count(distinct p), min(name) from <TABLE_NAME>"),
    asking(UNEQUAL, "select count(*) from <TABLE_NAME>"),
]
FAILING = [
    (asking(SINGLE, "select count(*) from <TABLE_NAME>#4"), "found 5, wanted 4"),
    (asking(SINGLE, "select count(*) from <TABLE_NAME>#5", "select max(name) from <TABLE_NAME>#n4"), "found n5"),
    (asking(EQUAL, "select count(*), max(id) from <TABLE_NAME>"), "4, 4 before and 5, 5 after, wanted equal"),
    (asking(UNEQUAL, "select min(id) from <TABLE_NAME>"), "1 before and 1 after, wanted different"),
]


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT])
@pytest.mark.parametrize("options", PASSING, ids=lambda o: next(v for k, v in o.items() if k != VALIDATORS))
def test_a_write_that_satisfies_its_queries_is_published(
    path: Path, options: dict[str, str], operation: Operation
) -> None:
    table = lakeformat.open(path, **options)
    table.write(rows([5]), operation)
    assert ids(table) == [1, 2, 3, 4, 5]
    steps = {step["step"]: step for step in table.history()[0].report["steps"]}
    assert steps["validate"]["validators"] == len(options[next(k for k in options if k != VALIDATORS)].split(";"))


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT])
@pytest.mark.parametrize(("options", "found"), FAILING, ids=lambda o: "" if isinstance(o, dict) else o)
def test_a_write_that_fails_a_query_leaves_no_trace(
    path: Path, options: dict[str, str], found: str, operation: Operation
) -> None:
    with pytest.raises(ValidationFailedError) as refused:
        lakeformat.open(path, **options).write(rows([5]), operation)
    assert found in str(refused.value)
    assert "PreCommitValidator (select" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert_nothing_happened(path, [1, 2, 3, 4])


def test_validator_sees_the_table_after_deletes_updates_and_overwrites(path: Path) -> None:
    def check(expected: int) -> dict[str, str]:
        return asking(SINGLE, "#".join(["select sum(v) from <TABLE_NAME>", str(expected)]))

    lakeformat.open(path, **check(60)).upsert(rows([4], [54.0]))
    lakeformat.open(path, **check(6)).delete(pa.table({"id": [4], "p": ["p0"]}))
    with pytest.raises(ValidationFailedError, match="found 7"):
        lakeformat.open(path, **check(8)).overwrite(rows([7]))
    lakeformat.open(path, **check(7)).overwrite(rows([7]))
    assert ids(lakeformat.open(path)) == [7]


def test_validation_query_can_use_a_column_that_the_write_adds(path: Path) -> None:
    wider = rows([5]).append_column("extra", pa.array([1]))
    table = lakeformat.open(path, **asking(UNEQUAL, "select count(extra) from <TABLE_NAME>"))
    table.upsert(wider)
    assert ids(table) == [1, 2, 3, 4, 5]


def test_first_write_is_validated_against_an_empty_table(tmp_path: Path) -> None:
    options = asking(UNEQUAL, "select count(*), max(id) from <TABLE_NAME>")
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    table.upsert(rows([1]))
    assert ids(table) == [1]


BAD = [
    (asking(SINGLE, "select count(*) from <TABLE_NAME>"), "no expected result"),
    (asking(SINGLE, "select v from <TABLE_NAME>#1"), "v is not in the subset"),
    (asking(SINGLE, "select count(*) from other#1"), "must select from <TABLE_NAME>"),
    (asking(SINGLE, "select count(*) from <TABLE_NAME>, other#1"), "joins is not in the subset"),
    (asking(SINGLE, "select count(*) from <TABLE_NAME> group by p#1"), "group is not in the subset"),
    (asking(SINGLE, "select count(*) from <TABLE_NAME> order by 1 limit 1#1"), "is not in the subset"),
    (asking(SINGLE, "select count(*), max(v) from <TABLE_NAME>#1"), "gives 2 values"),
    (asking(SINGLE, "select sum(v + 1) from <TABLE_NAME>#1"), "SUM"),
    (asking(SINGLE, "select max(distinct v) from <TABLE_NAME>#1"), "MAX"),
    (asking(SINGLE, "select count(*) from <TABLE_NAME> where v in (select 1)#1"), "IN takes a list"),
    (asking(SINGLE, "delete from <TABLE_NAME>#1"), "write one SELECT"),
    (asking(SINGLE, "this is no sql from <TABLE_NAME>#1"), "cannot run the query"),
    (asking(SINGLE, "select sum(name) from <TABLE_NAME>#1"), "there is no sum of string"),
    (asking(SINGLE, "select max(vv) from <TABLE_NAME>#1"), "unknown column 'vv'; did you mean 'v'?"),
    (asking(EQUAL, "select count(*) from <TABLE_NAME> where w > 1"), "w"),
    ({VALIDATORS: "SqlQuerySingleResultPreCommitValidators"}, "did you mean 'SqlQuerySingleResultPreCommitValidator'?"),
    ({VALIDATORS: SINGLE[VALIDATORS]}, "need each other"),
    ({EQUAL["query"]: "select count(*) from <TABLE_NAME>"}, "need each other"),
    ({"lakeformat.transaction.validators": "no.such.module:function"}, "names no function"),
    ({"lakeformat.transaction.validators": "math:no_such"}, "names no function"),
    ({"lakeformat.transaction.validators": "math"}, "names no function"),
]


@pytest.mark.parametrize(("options", "reason"), BAD, ids=lambda o: "" if isinstance(o, dict) else o)
def test_bad_validators_are_refused_before_the_write(path: Path, options: dict[str, str], reason: str) -> None:
    files = sorted(str(p) for p in path.rglob("*"))
    with pytest.raises((InvalidInputError, InvalidOptionError)) as refused:
        lakeformat.open(path, **options).upsert(rows([5]))
    assert reason in str(refused.value)
    assert sorted(str(p) for p in path.rglob("*")) == files


# --- Python functions ------------------------------------------------------------------------------------


def refuse_nulls(write: ProposedWrite) -> bool:
    """Tell whether the new rows are valid. Tests name this function in an option."""
    return write.after.count() == 0 or write.after.to_arrow(["name"], where="name is null").num_rows == 0


def test_validator_function_sees_the_table_before_and_after(path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(write: ProposedWrite) -> None:
        seen["before"] = sorted(write.before.to_arrow(["id"])["id"].to_pylist())
        seen["after"] = sorted(write.after.to_arrow(["id"])["id"].to_pylist())
        seen["published"] = ids(lakeformat.open(path))
        seen["rows"] = (write.before.count(), write.after.count())
        seen["inserts"] = sum(stat.num_inserts for stat in write.stats)
        seen["operation"] = write.operation

    lakeformat.open(path).upsert(rows([4, 5]), validators=[look])
    assert seen == {
        "before": [1, 2, 3, 4],
        "after": [1, 2, 3, 4, 5],
        "published": [1, 2, 3, 4],
        "rows": (4, 5),
        "inserts": 1,
        "operation": "upsert",
    }


def test_validator_function_refuses_by_false_or_by_an_error(path: Path) -> None:
    def too_many(write: ProposedWrite) -> None:
        raise ValueError(f"{write.after.count()} rows\nare too many")

    with pytest.raises(ValidationFailedError, match="too_many refused the write: ValueError: 5 rows are too many"):
        lakeformat.open(path).upsert(rows([5]), validators=[lambda write: True, too_many])
    with pytest.raises(ValidationFailedError, match="it returned False"):
        lakeformat.open(path).insert(rows([5]), validators=[lambda write: False])
    assert_nothing_happened(path, [1, 2, 3, 4])


def test_validator_function_can_be_named_by_an_option(path: Path) -> None:
    table = lakeformat.open(path, **{"lakeformat.transaction.validators": f"{__name__}:refuse_nulls"})
    table.upsert(rows([5]))
    with pytest.raises(ValidationFailedError, match="refuse_nulls"):
        table.upsert(rows([6], names=[None]))
    assert ids(table) == [1, 2, 3, 4, 5]


# --- answers ---------------------------------------------------------------------------------------------

FLOATS = st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(math.nan))


@given(st.lists(FLOATS, min_size=1, max_size=20), st.integers(1, 5))
def test_validation_queries_equal_plain_python(values: list[float | None], batch_rows: int) -> None:
    from lakeformat.predicate.query import parse_select
    from lakeformat.read.run.view import evaluate

    class InMemory:
        schema = pa.schema([("v", pa.float64())])

        def count(self) -> int:
            return len(values)

        def scan(self, columns: Any, predicate: Any) -> Any:
            table = pa.table({"v": pa.array(values, pa.float64()), "_hoodie_record_key": ["k"] * len(values)})
            return table.select(list(columns)).to_batches(batch_rows)

        def with_schema(self, schema: pa.Schema) -> Any:
            return self

    select = parse_select(
        "select count(*), count(v), count(distinct v), min(v), max(v), sum(v), avg(v) from <TABLE_NAME>"
    )
    found = evaluate(select, InMemory())
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not math.isnan(value)]
    has_nan = len(numbers) < len(present)
    assert found[:3] == (len(values), len(present), len(set(numbers)) + has_nan)
    assert repr(found[3]) in {repr(min(numbers)), "-0.0", "0.0"} if numbers else (found[3] is None) is not has_nan
    assert (math.isnan(found[4]) if has_nan else found[4] == max(numbers)) if present else found[4] is None
    for value, wanted in ((found[5], sum(present)), (found[6], sum(present) / max(len(present), 1))):
        if not present:
            assert value is None
        elif has_nan:
            assert math.isnan(value)
        else:
            assert math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-6)


STATEMENTS = {
    "update": lambda table, **hooks: table.update({"name": None}, where="id = 1", **hooks),
    "delete": lambda table, **hooks: table.delete(where="id < 3", **hooks),
    "merge": lambda table, **hooks: table.merge(rows([4, 5]), **hooks).when_not_matched_insert().execute(),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_are_validated_and_replayed_batches_skipped(path: Path, statement: Any) -> None:
    def unchanged(write: ProposedWrite) -> bool:
        return bool(write.after.to_arrow(["name"]).equals(write.before.to_arrow(["name"])))

    with pytest.raises(ValidationFailedError, match="unchanged"):
        statement(lakeformat.open(path), validators=[unchanged])
    assert_nothing_happened(path, [1, 2, 3, 4])
    table = lakeformat.open(path, **{"lakeformat.batch.app": "job", "lakeformat.batch.id": 1})
    instants: list[str] = []
    assert statement(table, callbacks=[lambda message: instants.append(message.commit_time)]).skipped == ""
    assert instants == [table.history()[0].instant_time]
    assert statement(table).skipped
    hudi_rs.assert_same_rows(table)
