"""Merging a source by clauses, against a model of rows in dictionaries that applies the clauses pair by pair."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, LakeformatError, Merge, SchemaMismatchError, Table
from lakeformat.predicate import parse_where
from lakeformat.transaction.order.conflict import OverlapError
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.session import WriteSession
from lakeformat.write.shuffled_session import ShuffledSession
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import merge_into, plan_merge
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.local_shuffle import LocalTaskRunner, merge_shuffled
from tests.helpers.refusal import check_refused
from tests.helpers.row_oracle import evaluate
from tests.helpers.tables import a_schema, a_table

SCHEMA = a_schema(id="int64", p="string", n="int32", t="string")
SOURCE = SCHEMA.append(pa.field("op", pa.string()))
Row = dict[str, Any]
Model = dict[tuple[str, int], Row]

#: Each insert opens new files.
NO_PACKING: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0}
BUCKETS: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 3}


def data(rows: pa.Table) -> Model:
    """Return (partition, id) -> row, without meta columns."""
    listed = [{name: row[name] for name in SCHEMA.names} for row in rows.to_pylist()]
    model = {(row["p"], row["id"]): row for row in listed}
    assert len(model) == len(listed)
    return model


# --- random tables, sources and clauses ---------------------------------------------------------------

NUMBERS = st.none() | st.integers(-1, 2)
TEXTS = st.none() | st.sampled_from(["", "a", "b"])
KEYS = st.tuples(st.sampled_from("xy"), st.integers(0, 9))
ROWS = st.dictionaries(KEYS, st.tuples(NUMBERS, TEXTS), max_size=14)
SOURCES = st.dictionaries(KEYS, st.tuples(NUMBERS, TEXTS, st.sampled_from(["u", "d", None])), max_size=12)

OF_SOURCE = [
    "op = 'u'",
    "op is null",
    "source.n >= 1",
    "source.t like 'a%'",
    "source.id in (1, 2, 3)",
    "source.n = null",
]
OF_PAIRS = [
    *OF_SOURCE,
    "target.n = 1",
    "source.n > target.n",
    "source.t <=> target.t and op = 'd'",
    "not (source.n < target.n)",
    "target._hoodie_partition_path = 'x'",
]


def conditions(texts: list[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(st.sampled_from(texts), st.sampled_from(["and", "or"]), st.sampled_from(texts))
    return st.sampled_from(texts) | pair.map(lambda parts: "({}) {} ({})".format(*parts))


def joined(rows: pa.RecordBatch) -> pa.Array:
    return pc.binary_join_element_wise(rows.column("source.t"), rows.column("target.t"), "+")


#: Name -> the argument of an update, and the same update for a pair of rows.
UPDATES: dict[str, tuple[Any, Callable[[Row, Row], Row]]] = {
    "all": (None, lambda source, target: {"n": source["n"], "t": source["t"]}),
    "one": (["t"], lambda source, target: {"t": source["t"]}),
    "literal": ({"n": 7}, lambda source, target: {"n": 7}),
    "function": (
        {"t": joined, "n": None},
        lambda source, target: {
            "n": None,
            "t": None if None in (source["t"], target["t"]) else source["t"] + "+" + target["t"],
        },
    ),
}


@dataclass(frozen=True)
class Step:
    """One clause."""

    verb: str
    where: str | None
    update: str = ""

    def add(self, merge: Merge) -> Merge:
        if self.verb == "when_matched_update":
            return merge.when_matched_update(UPDATES[self.update][0], self.where)
        added: Merge = getattr(merge, self.verb)(self.where)
        return added

    def holds(self, scope: Row) -> bool:
        return self.where is None or evaluate(parse_where(self.where), scope) is True


@st.composite
def clauses(draw: st.DrawFn) -> list[Step]:
    matched = [
        draw(
            st.builds(Step, st.just("when_matched_delete"), conditions(OF_PAIRS))
            | st.builds(Step, st.just("when_matched_update"), conditions(OF_PAIRS), st.sampled_from(sorted(UPDATES)))
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    if draw(st.booleans()):
        matched.append(Step("when_matched_update", None, draw(st.sampled_from(sorted(UPDATES)))))
    inserts = draw(st.lists(st.builds(Step, st.just("when_not_matched_insert"), conditions(OF_SOURCE)), max_size=2))
    if draw(st.booleans()) or not (matched or inserts):
        inserts.append(Step("when_not_matched_insert", None))
    return [*inserts, *matched] if draw(st.booleans()) else [*matched, *inserts]


def apply_merge(model: Model, source: Model, steps: list[Step]) -> tuple[Model, dict[str, int]]:
    """Return the rows after a merge, and how many rows it inserted, updated and deleted."""
    result, counts = dict(model), {"inserted": 0, "updated": 0, "deleted": 0}
    for key, row in source.items():
        target = model.get(key)
        if target is None:
            if any(step.holds({**row, "source": row}) for step in steps if step.verb.endswith("insert")):
                result[key] = {name: row[name] for name in SCHEMA.names}
                counts["inserted"] += 1
            continue
        scope = {"op": row["op"], "source": row, "target": target | {"_hoodie_partition_path": target["p"]}}
        taken = next((step for step in steps if "not" not in step.verb and step.holds(scope)), None)
        if taken is None:
            continue
        if taken.verb == "when_matched_delete":
            del result[key]
            counts["deleted"] += 1
        else:
            result[key] = target | UPDATES[taken.update][1](row, target)
            counts["updated"] += 1
    return result, counts


def random_table(folder: Path, model: Model) -> Table:
    """Create a table with two commits, up to two partitions, and several file groups in each."""
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **NO_PACKING)
    rows = list(model.values())
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        table.insert(pa.Table.from_pylist(part, SCHEMA))
    return table


def as_model(rows: dict[tuple[str, int], tuple[Any, ...]], names: list[str]) -> Model:
    return {(p, id_): {"id": id_, "p": p, **dict(zip(names, values, strict=True))} for (p, id_), values in rows.items()}


@settings(max_examples=examples(60))
@given(ROWS, SOURCES, clauses(), st.booleans())
def test_any_merge_does_what_the_model_does_pair_by_pair(
    rows: dict[tuple[str, int], tuple[Any, ...]],
    changes: dict[tuple[str, int], tuple[Any, ...]],
    steps: list[Step],
    packing: bool,
) -> None:
    model, source = as_model(rows, ["n", "t"]), as_model(changes, ["n", "t", "op"])
    with tempfile.TemporaryDirectory() as folder:
        table = random_table(Path(folder), model)
        before = {(r["p"], r["id"]): r for r in table.to_arrow(meta_columns=True).to_pylist()}
        past = table.history()[0].instant_time
        if packing:  # Inserts go into existing files.
            table = lakeformat.open(Path(folder) / "t")
        merge = table.merge(pa.Table.from_pylist(list(source.values()), SOURCE))
        for step in steps:
            merge = step.add(merge)
        result = merge.execute()
        expected, counts = apply_merge(model, source, steps)
        assert data(table.to_arrow(meta_columns=True)) == expected
        assert {name: result.report["rows"][name] for name in counts} == counts
        assert result.report["rows"]["incoming"] == len(source)
        touched = 0
        for row in table.to_arrow(meta_columns=True).to_pylist():
            then = before.get((row["p"], row["id"]))
            touched += row["_hoodie_commit_time"] == result.instant_time
            assert row["_hoodie_record_key"] == str(row["id"])
            if then and row["_hoodie_commit_time"] != result.instant_time:
                assert row["_hoodie_commit_seqno"] == then["_hoodie_commit_seqno"]
        assert touched == counts["inserted"] + counts["updated"]
        hudi_rs.assert_same_rows(table)
        assert data(table.to_arrow(as_of=past, meta_columns=True)) == model


@pytest.mark.parametrize("index", ["AUTO", "GLOBAL_SIMPLE", "BUCKET"])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@settings(max_examples=examples(25))
@given(ROWS, SOURCES, clauses(), st.lists(KEYS, max_size=5), st.booleans())
@example(  # The key comes again for another partition than the one whose log file has deleted it.
    {("x", 0): (None, None), ("x", 1): (None, None)},
    {("y", 0): (None, None, "u"), ("x", 1): (None, None, "u")},
    [Step("when_matched_delete", "op = 'u'"), Step("when_not_matched_insert", "op is null")],
    [("x", 0)],
    True,
)
def test_merge_in_process_and_in_tasks_does_what_the_model_does(
    kind: str,
    index: str,
    rows: dict[tuple[str, int], tuple[Any, ...]],
    changes: dict[tuple[str, int], tuple[Any, ...]],
    steps: list[Step],
    deleted: list[tuple[str, int]],
    packing: bool,
) -> None:
    model, changed = as_model(rows, ["n", "t"]), as_model(changes, ["n", "t", "op"])
    if index == "GLOBAL_SIMPLE":
        model, changed = ({row["id"]: {**row} for row in each.values()} for each in (model, changed))
    gone = {id_ if index == "GLOBAL_SIMPLE" else (p, id_) for p, id_ in deleted}
    expected, counts = apply_merge({key: row for key, row in model.items() if key not in gone}, changed, steps)
    found: list[list[Row]] = []
    results: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for in_tasks in (False, True):
            path = Path(folder) / str(in_tasks)
            options = {**BUCKETS, "hoodie.index.type": index, **({} if packing else NO_PACKING)}
            table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", table_type=kind, **options)
            table.upsert(pa.Table.from_pylist(list(model.values()), SCHEMA))
            table.delete(
                pa.table(
                    {"id": [id_ for _, id_ in deleted], "p": [p for p, _ in deleted]}, a_schema(id="int64", p="string")
                )
            )
            merge = table.merge(pa.Table.from_pylist(list(changed.values()), SOURCE))
            for step in steps:
                merge = step.add(merge)
            parts = [list(changed.values())[at::3] for at in range(3)]
            tasks = [pa.Table.from_pylist(part, SOURCE) for part in parts]
            result = merge_shuffled(table, tasks, merge.clauses) if in_tasks else merge.execute()
            results.append(result.report["rows"])
            listed = hudi_rs.assert_same_rows(table)
            found.append(sorted(({name: row[name] for name in SCHEMA.names} for row in listed), key=str))
    assert found[0] == found[1] == sorted(expected.values(), key=str)
    assert results[0] == results[1]
    assert {name: results[0][name] for name in counts} == counts


@pytest.mark.parametrize("index", [{}, BUCKETS], ids=["files", "buckets"])
def test_merge_in_tasks_without_partition_columns_searches_every_partition(
    index: dict[str, Any], tmp_path: Path
) -> None:
    table = table_of(tmp_path, **index)
    rows = [source((4, "?", 1, "new", "u")), source((3, "?", 1, "new", "u"), (99, "?", 1, "new", "u"))]
    merge_shuffled(table, [part.drop_columns(["p"]) for part in rows], [Clause(Kind.UPDATE, None, ["t"])])
    assert {row["id"]: row["t"] for row in data(table.to_arrow()).values()} == {
        n: "new" if n in {3, 4} else str(n) for n in range(8)
    }


@pytest.mark.parametrize("index", [{}, BUCKETS], ids=["files", "buckets"])
@pytest.mark.parametrize("matched", [True, False])
def test_merge_in_tasks_refuses_a_key_that_comes_twice(matched: bool, index: dict[str, Any], tmp_path: Path) -> None:
    table = table_of(tmp_path, **index)
    key = 1 if matched else 77
    rows = [source((key, "y", 1, "a", "u"), (5, "y", 1, "a", "u")), source((key, "y", 2, "b", "d"))]
    before = data(table.to_arrow())
    with pytest.raises(InvalidInputError, match=f"1 key.s. more than once, e.g. '{key}'; a merge needs each once"):
        merge_shuffled(table, rows, [Clause(Kind.DELETE, "op = 'u'")])
    assert data(table.to_arrow()) == before


# --- what it leaves -----------------------------------------------------------------------------------


def table_of(folder: Path, **options: Any) -> Table:
    rows = [{"id": i, "p": "xy"[i % 2], "n": i, "t": str(i)} for i in range(8)]
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **options)
    table.bulk_insert(pa.Table.from_pylist(rows, SCHEMA))
    return table


def source(*rows: tuple[int, str, int | None, str | None, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SOURCE.names, row, strict=True)) for row in rows], SOURCE)


CHANGES = source((1, "y", 10, "new", "u"), (2, "x", 20, "new", "d"), (3, "y", 1, "old", "u"), (90, "x", 0, "new", "i"))


def test_change_records_of_a_database(tmp_path: Path) -> None:
    """One commit has deletes, newer updates, and inserts."""
    table = table_of(tmp_path)
    merge = table.merge(CHANGES).when_matched_delete("op = 'd'").when_matched_update(where="source.n > target.n")
    result = merge.when_not_matched_insert("op <> 'd'").execute()
    assert result.report["rows"] == {"incoming": 4, "inserted": 1, "updated": 1, "deleted": 1}
    assert len(table.history()) == 2
    rows = {row["id"]: row["t"] for row in table.to_arrow().to_pylist()}
    assert rows == {0: "0", 1: "new", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 90: "new"}
    (commit,) = (table.context.store.read_commit(i) for i in table.snapshot().timeline.commits[-1:])
    assert commit.operation == "UPSERT"
    assert commit.schema_text == table.context.store.read_commit(table.snapshot().timeline.commits[0]).schema_text


def test_merge_builders_are_immutable(tmp_path: Path) -> None:
    """A builder may be reused and continued in two ways. Nothing happens before execute."""
    table = table_of(tmp_path)
    start = table.merge(CHANGES)
    deleting, updating = start.when_matched_delete(), start.when_matched_update(["t"])
    assert len(table.history()) == 1
    assert updating.execute().report["rows"]["updated"] == 3
    assert deleting.execute().report["rows"]["deleted"] == 3


def test_files_without_a_matched_key_are_not_written(tmp_path: Path) -> None:
    """New keys that no clause inserts cost nothing, even if there are small files."""
    table = table_of(tmp_path)
    result = table.merge(source((50, "x", 1, "a", "u"), (51, "y", 1, "a", "u"))).when_matched_update().execute()
    assert result.report["files"]["merged"] == result.report["files"]["created"] == 0
    result = table.merge(source((52, "x", 1, "a", "u"))).when_not_matched_insert("op = 'i'").execute()
    assert result.report["files"]["merged"] == result.report["files"]["created"] == 0


def test_without_partition_columns_every_partition_is_searched(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    result = table.merge(CHANGES.drop_columns(["p"])).when_matched_update(["t"]).execute()
    assert result.report["rows"]["updated"] == 3
    assert table.to_arrow(["t"], where="id in (1, 2)")["t"].to_pylist() == ["new", "new"]


def test_duplicate_key_is_updated_in_every_row(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.insert(pa.table({"id": [1], "p": ["y"], "n": [11], "t": ["again"]}, schema=SCHEMA))
    assert table.merge(CHANGES).when_matched_update(["n"]).execute().report["rows"]["updated"] == 4
    assert table.to_arrow(["n"], where="id = 1")["n"].to_pylist() == [10, 10]
    assert len({row["_hoodie_commit_seqno"] for row in hudi_rs.assert_same_rows(table)}) == 9


def test_merge_ignores_the_event_time_rule(tmp_path: Path) -> None:
    """The clauses decide: an older row updates unless a condition says otherwise."""
    table = table_of(tmp_path, ordering="n")
    merge = table.merge(CHANGES.slice(2, 1))
    merge.when_matched_update(where="source.n >= target.n").execute()
    assert table.to_arrow(["t"], where="id = 3")["t"].to_pylist() == ["3"]
    merge.when_matched_update().execute()
    assert table.to_arrow(["t"], where="id = 3")["t"].to_pylist() == ["old"]


def test_source_values_of_other_types_are_converted(tmp_path: Path) -> None:
    """The table keeps its types. Wider numbers are narrowed if each of them fits."""
    table = table_of(tmp_path)
    rows = pa.table({"id": pa.array([1], pa.int32()), "p": ["y"], "n": pa.array([5], pa.int64()), "extra": [1.5]})
    table.merge(rows).when_matched_update().execute()
    assert table.schema.equals(SCHEMA)
    assert table.to_arrow(["n"], where="id = 1")["n"].to_pylist() == [5]


def test_rows_marked_as_deleted_are_not_inserted(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    rows = pa.table({"id": [1, 2, 3], "_hoodie_is_deleted": [True, False, None]}, schema=schema)
    assert table.merge(rows).when_not_matched_insert().execute().report["rows"]["inserted"] == 2
    assert table.merge(rows).when_matched_delete("source._hoodie_is_deleted = false").execute().report["rows"] == {
        "incoming": 3,
        "inserted": 0,
        "updated": 0,
        "deleted": 1,
    }


def test_source_derived_from_an_older_snapshot_conflicts_with_later_writes(tmp_path: Path) -> None:
    """The source's rows may be stale: later writes to their files are conflicts, and stay."""
    table = table_of(tmp_path)
    seen = table.snapshot()
    table.update({"t": "later"}, where="id = 1")
    rows, clauses = CHANGES.slice(0, 1), (Clause(Kind.UPDATE),)
    job, plan = plan_merge(table.context.store, seen, table.options, rows.schema, clauses, table.context.ids)
    prepared = prepare(rows, job.prepare)
    with check_refused(table, OverlapError, "overlaps commit", "run the write again"):
        merge_into(WriteSession(table.context, job), plan, prepared, 1, seen)
    runner = LocalTaskRunner(table, job)
    session = ShuffledSession(table.context, job, runner, merge=plan, merge_source=seen)
    with check_refused(table, OverlapError, "overlaps commit", "run the write again"):
        session.run(runner.stage([rows]), 1)
    assert table.to_arrow(["t"], where="id = 1")["t"].to_pylist() == ["later"]


# --- refusals -----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[Merge], Merge], type[LakeformatError], tuple[str, ...]]] = {
    "no clause": (lambda m: m, InvalidInputError, ("no clause",)),
    "never reached": (
        lambda m: m.when_matched_update().when_not_matched_insert().when_matched_delete(),
        InvalidInputError,
        ("when_matched_delete is never reached", "when_matched_update before it"),
    ),
    "on both sides": (
        lambda m: m.when_matched_update(where="n = 1"),
        InvalidInputError,
        ("'n' is ambiguous", "write source.n or target.n"),
    ),
    "only in the table": (
        lambda m: m.when_matched_update(where="_hoodie_commit_time = '1'"),
        InvalidInputError,
        ("not in the source", "write target._hoodie_commit_time"),
    ),
    "nowhere": (lambda m: m.when_matched_delete("opp = 'd'"), InvalidInputError, ("'opp'", "did you mean 'op'?")),
    "not in the table": (lambda m: m.when_matched_delete("target.op = 'd'"), InvalidInputError, ("'op'", "the target")),
    "no stored row": (lambda m: m.when_not_matched_insert("target.n = 1"), InvalidInputError, ("cannot decide",)),
    "a side alone": (lambda m: m.when_matched_delete("source = 1"), InvalidInputError, ("names no column",)),
    "types": (
        lambda m: m.when_matched_delete("source.n = target.t"),
        InvalidInputError,
        ("no common type", "source.n", "int", "target.t", "string"),
    ),
    "no SQL": (lambda m: m.when_matched_delete("op ="), InvalidInputError, ("cannot read the filter",)),
    "key": (lambda m: m.when_matched_update(["id"]), SchemaMismatchError, ("record key column 'id'", "cannot be set")),
    "partition": (lambda m: m.when_matched_update({"p": "x"}), SchemaMismatchError, ("partition column 'p'",)),
    "meta": (lambda m: m.when_matched_update({"_hoodie_file_name": "x"}), SchemaMismatchError, ("cannot be set",)),
    "a column of the source": (lambda m: m.when_matched_update("op"), SchemaMismatchError, ("'op'", "the table has")),
    "a literal": (lambda m: m.when_matched_update({"n": 2.5}), SchemaMismatchError, ("'n'", "2.5")),
    "a function": (
        lambda m: m.when_matched_update({"n": lambda rows: rows.column("n")}),
        InvalidInputError,
        ("function for column 'n'", "KeyError"),
    ),
    "an overflow": (
        lambda m: m.when_matched_update({"n": lambda rows: pa.array([2**40] * len(rows))}),
        SchemaMismatchError,
        ("'n'", "int32"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_clause_publishes_nothing(case: str, tmp_path: Path) -> None:
    build, error, parts = REFUSED[case]
    table = table_of(tmp_path)
    with check_refused(table, error, *parts):
        build(table.merge(CHANGES)).execute()


BAD_SOURCES: dict[str, tuple[Any, type[LakeformatError], tuple[str, ...]]] = {
    "a key twice": (
        pa.concat_tables([CHANGES, CHANGES.slice(1, 1)]),
        InvalidInputError,
        ("1 key(s) more than once", "'2'", "one row per key"),
    ),
    "no key": (CHANGES.drop_columns(["id"]), SchemaMismatchError, ("'id'", "add it")),
    "no partition": (CHANGES.drop_columns(["p"]), SchemaMismatchError, ("'p'", "add it")),
    "a column too few": (CHANGES.drop_columns(["t"]), SchemaMismatchError, ("'t'", "add it")),
    "another type": (
        CHANGES.set_column(2, "n", pa.array(["1"] * 4)),
        SchemaMismatchError,
        ("'n'", "string", "int32", "convert"),
    ),
    "too large": (CHANGES.set_column(2, "n", pa.array([2**40] * 4)), SchemaMismatchError, ("'n'", "int32")),
    "another case": (
        CHANGES.rename_columns(["id", "p", "N", "t", "op"]),
        SchemaMismatchError,
        ("'N'", "'n'", "rename"),
    ),
    "a null key": (CHANGES.set_column(0, "id", pa.array([1, 2, None, 3])), InvalidInputError, ("'id' is null",)),
    "no rows at all": ([], InvalidInputError, ("an empty list",)),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_refused_source_publishes_nothing(case: str, tmp_path: Path) -> None:
    rows, error, parts = BAD_SOURCES[case]
    table = table_of(tmp_path)
    with check_refused(table, error, *parts):
        table.merge(rows).when_matched_update().when_not_matched_insert().execute()


def test_column_named_source_or_target_works(tmp_path: Path) -> None:
    """``target.x`` could be a field of the column, so it is refused in conditions but allowed elsewhere."""
    table = table_of(tmp_path)
    rows = CHANGES.append_column("target", pa.array([{"n": 1}] * 4))
    with check_refused(table, InvalidInputError, "ambiguous", "rename the source's"):
        table.merge(rows).when_matched_update(where="target.n = 1").execute()
    assert table.merge(rows).when_matched_update().execute().report["rows"]["updated"] == 3


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_duplicate_key_in_the_table_is_not_blamed_on_the_source(kind: str, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", table_type=kind)
    rows = pa.table([[1, 2], ["a", "a"], [1, 1]], schema=schema)
    table.insert(rows)
    table.insert(rows.slice(1))
    for statement in (
        "update t set v = v + 1",
        "merge into t using (select 2 as id, 'a' as p) s on t.id = s.id when matched then update set v = 7",
    ):
        with pytest.raises(InvalidInputError) as caught:
            lakeformat.sql(statement, t=table)
        message = str(caught.value)
        assert "the table has the key id=2, p='a' more than once" in message
        assert "lakeformat dedupe" in message
        assert "upsert the row that is right" in message
    assert sorted(table.to_arrow(columns=["v"])["v"].to_pylist()) == [1, 1, 1]


def test_a_text_that_names_a_column_is_that_column(tmp_path: Path) -> None:
    schema = a_schema(id="int64", name="string", old="string", n="int64")
    stored = pa.table({"id": [1], "name": ["a"], "old": ["-"], "n": [5]}, schema=schema)
    table = a_table(tmp_path / "t", rows=stored, schema=schema)
    merge = table.merge(pa.table({"id": [1], "name": ["b"], "Extra": [7]}))
    merge.when_matched_update({"name": "source.name", "old": "TARGET.`name`", "n": "source.extra"}).execute()
    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "b", "old": "a", "n": 7}]
    for text in ("source.nme", "upper(source.name)", "source.name || 'x'", "updates.name", "s.id", "'done'", "now()"):
        with check_refused(table, InvalidInputError, "'old'", repr(text), "source.column"):
            merge.when_matched_update({"old": text}).execute()
    with check_refused(table, SchemaMismatchError, "'n'"):
        merge.when_matched_update({"n": "source.name"}).execute()
    merge.when_matched_update({"name": pa.scalar("source.name"), "old": "name, a text. It's (one)"}).execute()
    assert table.to_arrow(["name", "old"]).to_pylist() == [{"name": "source.name", "old": "name, a text. It's (one)"}]
