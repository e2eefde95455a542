"""Update and delete by condition.

`update(values, where=...)` and `delete(where=...)` rewrite the files that hold a selected row, and no other file.
Random statements on random tables are compared with a model: rows in a dictionary, and `tests.helpers.row_oracle`,
which evaluates a condition row by row. The other sections say what such a statement costs, what it leaves, and what is
refused. Values and functions that a statement may set are in test_update_where_values.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat import InvalidInputError, LakeformatError, SchemaMismatchError, Table, UnsupportedTableError
from lakeformat.predicate import parse_where
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.refusal import check_refused
from tests.helpers.row_oracle import evaluate
from tests.helpers.tables import NO_PACKING, a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", p="string", n="int32", t="string", f="bool")
Row = dict[str, Any]
#: id -> row.
Model = dict[int, Row]
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")


def data(rows: pa.Table) -> Model:
    """Return the rows by id, without meta columns. Fail if an id comes twice."""
    listed = [{name: row[name] for name in SCHEMA.names} for row in rows.to_pylist()]
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row for row in listed}


def meta(table: Table) -> dict[int, Row]:
    """Return the meta columns of each row by id."""
    return {
        row["id"]: {name: row[name] for name in (*META, "_hoodie_file_name")}
        for row in table.to_arrow(meta_columns=True).to_pylist()
    }


def three_partitions(folder: Path, **options: Any) -> Table:
    """Create a table of twelve rows: n = id, t = the id as text, partitions x, y and z in turn."""
    ids = range(12)
    rows = a_batch(SCHEMA, id=ids, p=["xyz"[i % 3] for i in ids], n=ids, t=list(map(str, ids)), f=[True, False] * 6)
    return a_table(folder / "t", rows=rows, partition_by="p", operation="bulk_insert", **options)


# --- any statements, against a model ------------------------------------------------------------------

NUMBERS = st.none() | st.integers(-2, 3)
TEXTS = st.none() | st.sampled_from(["", "a", "ab", "b%"])
ROWS = st.lists(st.tuples(st.sampled_from("xyz"), NUMBERS, TEXTS, st.none() | st.booleans()), min_size=1, max_size=14)


def leaf() -> st.SearchStrategy[str]:
    """Conditions on one column."""
    column_and_literal = st.sampled_from(["id", "n"]).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(["=", "<>", "<", ">=", "<=>"]), st.integers(-2, 12))
    )
    return st.one_of(
        column_and_literal.map(lambda parts: "{} {} {}".format(*parts)),
        st.sampled_from(
            [
                "n in (1, null)",
                "n is null",
                "t like 'a%'",
                "t = null",
                "f",
                "not f",
                "p = 'x'",
                "p in ('y', 'z')",
                "t between 'a' and 'ab'",
                "_hoodie_partition_path = 'y'",
                "_hoodie_record_key < '4'",
                "true",
                "false",
            ]
        ),
    )


CONDITIONS = st.recursive(
    leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: "({} {} {})".format(*parts)),
        inner.map(lambda text: f"not ({text})"),
    ),
    max_leaves=4,
)


def doubled(rows: pa.RecordBatch) -> pa.Array:
    return pc.multiply(rows.column("n"), 2)


def with_key(rows: pa.RecordBatch) -> pa.Array:
    return pc.binary_join_element_wise(rows.column("_hoodie_record_key"), rows.column("p"), "/")


#: Name -> the values that an update sets, and what it does to one row.
SETS: dict[str, tuple[Mapping[str, Any], Callable[[Row], Row]]] = {
    "literals": ({"n": -1, "t": "new"}, lambda row: row | {"n": -1, "t": "new"}),
    "nulls": ({"n": None, "f": None}, lambda row: row | {"n": None, "f": None}),
    "a function": ({"n": doubled}, lambda row: row | {"n": row["n"] if row["n"] is None else row["n"] * 2}),
    "both": ({"t": with_key, "F": True}, lambda row: row | {"t": f"{row['id']}/{row['p']}", "f": True}),
}
#: Statements: a condition, and the name of an update or None for a delete.
STEPS = st.lists(st.tuples(CONDITIONS, st.none() | st.sampled_from(sorted(SETS))), min_size=1, max_size=3)


def with_meta(row: Row) -> Row:
    """Return the row with the meta columns that conditions name."""
    return row | {"_hoodie_partition_path": row["p"], "_hoodie_record_key": str(row["id"])}


def random_table(folder: Path, rows: list[tuple[Any, ...]]) -> tuple[Table, Model]:
    """Create a table with two commits, up to three partitions and more than one file group in a partition."""
    listed = [dict(zip(SCHEMA.names, (number, *row), strict=True)) for number, row in enumerate(rows)]
    halves = (listed[: len(listed) // 2], listed[len(listed) // 2 :])
    commits = [pa.Table.from_pylist(half, SCHEMA) for half in halves]
    return a_table(folder / "t", rows=commits, partition_by="p", **NO_PACKING), {row["id"]: row for row in listed}


@settings(max_examples=examples(60))
@given(ROWS, STEPS)
def test_any_updates_and_deletes_do_what_the_model_does_row_by_row(
    rows: list[tuple[Any, ...]], steps: list[tuple[str, str | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, model = random_table(Path(folder), rows)
        past = {table.history()[0].instant_time: dict(model)}
        for where, name in steps:
            condition = parse_where(where)
            selected = {id_ for id_, row in model.items() if evaluate(condition, with_meta(row)) is True}
            before = meta(table)
            if name is None:
                result = table.delete(where=where)
                model = {id_: row for id_, row in model.items() if id_ not in selected}
                assert result.report["rows"]["deleted"] == len(selected)
            else:
                values, changed = SETS[name]
                result = table.update(values, where=where)
                model = {id_: changed(row) if id_ in selected else row for id_, row in model.items()}
                assert result.report["rows"]["updated"] == len(selected)
            assert data(table.to_arrow()) == model
            assert_meta_columns(before, meta(table), selected, result.instant_time)
            past[result.instant_time] = dict(model)
        hudi_rs.assert_same_rows(table)
        for instant, then in past.items():
            assert data(table.to_arrow(as_of=instant)) == then


def assert_meta_columns(before: dict[int, Row], after: dict[int, Row], selected: set[int], instant: str) -> None:
    """Check the meta columns after a statement.

    Selected rows have a new commit time and sequence number. Other rows keep theirs. The file name changes for all rows
    of a file that holds a selected row, and for no other row. Record key and partition path never change.
    """
    rewritten = {before[id_]["_hoodie_file_name"] for id_ in selected}
    for id_, now in after.items():
        then = before[id_]
        assert (now["_hoodie_record_key"], now["_hoodie_partition_path"]) == (
            then["_hoodie_record_key"],
            then["_hoodie_partition_path"],
        )
        assert (now["_hoodie_commit_time"] == instant) == (id_ in selected)
        assert (now["_hoodie_commit_seqno"] == then["_hoodie_commit_seqno"]) == (id_ not in selected)
        assert (now["_hoodie_file_name"] != then["_hoodie_file_name"]) == (then["_hoodie_file_name"] in rewritten)
    assert len({now["_hoodie_commit_seqno"] for now in after.values()}) == len(after)


# --- what a statement costs ---------------------------------------------------------------------------


def test_update_writes_only_the_files_that_hold_a_selected_row(tmp_path: Path) -> None:
    """Files are ruled out by partition path, then by statistics, then by reading the columns of the condition."""
    table = three_partitions(tmp_path)
    result = table.update({"t": "hit"}, where="n in (3, 6) and f is not null")
    assert result.report["files"]["merged"] == 1
    result = table.update({"t": "hit"}, where="p = 'y'")
    (find, *_) = result.report["steps"]
    assert (find["files"], find["after_names"], find["with_matches"]) == (3, 1, 1)
    # Statistics cannot rule this condition out, but no row satisfies it.
    result = table.update({"t": "hit"}, where="n >= 0 and t = '20'")
    assert result.report["files"]["merged"] == 0
    assert result.report["steps"][0]["after_stats"] > 0
    assert table.history()[0].files_written == 0


def test_update_selects_rows_in_one_or_in_all_row_groups_of_a_large_file(tmp_path: Path) -> None:
    """The file has three row groups."""
    count = 300_000
    rows = a_batch(id=pa.array(range(count), pa.int64()), n=pa.repeat(pa.scalar(0, pa.int32()), count))
    table = a_table(tmp_path / "t", rows=rows, operation="bulk_insert")
    assert table.update({"n": 1}, where="id >= 299990").report["rows"]["updated"] == 10
    assert table.update({"n": 2}, where="id < 5 or id in (140000, 299999)").report["rows"]["updated"] == 7
    assert table.delete(where="n = 0").report["rows"]["deleted"] == count - 16
    found = table.to_arrow(columns=["id", "n"]).sort_by("id").to_pydict()
    assert found == {
        "id": [*range(5), 140000, *range(299990, 300000)],
        "n": [2] * 6 + [1] * 9 + [2],
    }
    hudi_rs.assert_same_rows(table)


# --- which rows ---------------------------------------------------------------------------------------


def test_update_without_a_condition_sets_every_row(tmp_path: Path) -> None:
    table = three_partitions(tmp_path)
    assert table.update({"n": 5}).report["rows"]["updated"] == 12
    assert set(table.to_arrow(columns=["n"])["n"].to_pylist()) == {5}
    assert table.delete(where="true").report["rows"]["deleted"] == 12
    assert table.to_arrow().num_rows == 0


def test_statements_on_a_table_without_rows_change_no_row(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA)
    assert table.update({"n": 5}, where="n = 4").report["rows"]["updated"] == 0
    assert table.delete(where="true").report["rows"]["deleted"] == 0
    table.upsert(pa.Table.from_pylist([{"id": 1, "p": "x"}], SCHEMA))
    assert table.delete(where="n is null").report["rows"]["deleted"] == 1
    assert table.update({"n": 5}).report["rows"]["updated"] == 0


def test_statements_on_a_table_with_generated_keys_keep_the_keys(tmp_path: Path) -> None:
    """No record key is needed to select rows. Merging needs one and is refused."""
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=(), partition_by="p")
    table.insert(pa.Table.from_pylist([{"id": i % 2, "p": "xy"[i % 2], "n": i} for i in range(6)], SCHEMA))
    before = {row["n"]: row["_hoodie_record_key"] for row in table.to_arrow(meta_columns=True).to_pylist()}
    assert table.update({"id": 9, "t": "hit"}, where="n > 3").report["rows"]["updated"] == 2
    assert table.delete(where="n < 2").report["rows"]["deleted"] == 2
    rows = hudi_rs.assert_same_rows(table)
    assert {row["n"]: (row["id"], row["t"]) for row in rows} == {
        2: (0, None),
        3: (1, None),
        4: (9, "hit"),
        5: (9, "hit"),
    }
    assert {row["n"]: row["_hoodie_record_key"] for row in rows} == {n: before[n] for n in range(2, 6)}
    commits = table.snapshot().timeline.commits
    with pytest.raises(UnsupportedTableError, match="no record key to merge by; use update and delete"):
        table.merge(table.to_arrow(meta_columns=True)).when_matched_delete().execute()
    assert table.snapshot().timeline.commits == commits


# --- what a statement leaves --------------------------------------------------------------------------


def test_delete_of_all_rows_of_a_file_leaves_what_a_delete_by_key_leaves(tmp_path: Path) -> None:
    """The file group keeps a file without rows, and takes rows again."""
    by_where, by_key = (three_partitions(tmp_path / name) for name in "ab")
    by_where.delete(where="p = 'x'")
    by_key.delete(a_batch(id=[0, 3, 6, 9], p="x"))
    shapes = []
    for table in (by_where, by_key):
        files = [file for file in table.snapshot().files if file.partition_path == "x"]
        stats = list(table.context.store.read_commit(table.snapshot().timeline.commits[-1]).all_stats())
        shapes.append([(len(files), stat.num_writes, stat.num_deletes, stat.prev_commit is None) for stat in stats])
        assert table.history()[0].operation == "delete"
        hudi_rs.assert_same_rows(table)
        table.upsert(a_batch(id=3, p="x", n=1, t="back", f=True))
        assert {row["t"] for row in table.to_arrow(where="p = 'x'").to_pylist()} == {"back"}
        hudi_rs.assert_same_rows(table)
    assert shapes == [[(1, 0, 4, False)]] * 2


def test_commits_of_update_and_delete_have_hudis_operation_types(tmp_path: Path) -> None:
    table = three_partitions(tmp_path)
    table.update({"n": 1}, where="id = 1")
    table.delete(where="id = 1")
    commits = [table.context.store.read_commit(instant) for instant in table.snapshot().timeline.commits[-2:]]
    assert [commit.operation for commit in commits] == ["UPSERT", "DELETE"]
    assert [(s.num_updates, s.num_deletes, s.num_writes) for c in commits for s in c.all_stats()] == [
        (1, 0, 4),
        (0, 1, 3),
    ]


def test_update_of_the_ordering_field_decides_later_upserts(tmp_path: Path) -> None:
    """The update lowers the ordering value, so a row that lost by event time wins when it comes again."""
    table = three_partitions(tmp_path, ordering="n")
    older = a_batch(SCHEMA, id=11, p="z", n=3, t="older", f=None)
    table.upsert(older)
    assert table.to_arrow(columns=["t"], where="id = 11")["t"].to_pylist() == ["11"]
    table.update({"n": 2}, where="id = 11")
    table.upsert(older)
    assert table.to_arrow(columns=["t"], where="id = 11")["t"].to_pylist() == ["older"]


# --- refusals -----------------------------------------------------------------------------------------

#: Name -> statement, error, parts of its message.
REFUSALS: dict[str, tuple[Callable[[Table], object], type[LakeformatError], tuple[str, ...]]] = {
    "record key": (
        lambda table: table.update({"id": 5}),
        SchemaMismatchError,
        ("record key column 'id'", "cannot be set"),
    ),
    "in any case": (
        lambda table: table.update({"ID": 5}),
        SchemaMismatchError,
        ("record key column 'id'", "cannot be set"),
    ),
    "partition": (
        lambda table: table.update({"p": "q"}),
        SchemaMismatchError,
        ("partition column 'p'", "cannot be set"),
    ),
    "meta": (
        lambda table: table.update({"_hoodie_record_key": "x"}),
        SchemaMismatchError,
        ("_hoodie_record_key", "cannot be set"),
    ),
    "unknown": (lambda table: table.update({"tt": "x"}), SchemaMismatchError, ("'tt'", "did you mean 't'")),
    "nothing": (lambda table: table.update({}), InvalidInputError, ("nothing to set",)),
    "twice": (lambda table: table.update({"t": "x", "T": "y"}), InvalidInputError, ("'t' is set twice",)),
    "no mapping": (lambda table: table.update("t"), InvalidInputError, ("nothing to set", "column: value")),
    "unknown in the condition": (
        lambda table: table.update({"t": ""}, where="tt = 1"),
        InvalidInputError,
        ("'tt'", "did you mean 't'"),
    ),
    "no SQL": (lambda table: table.update({"t": ""}, where="t ="), InvalidInputError, ("cannot read the filter",)),
    "a blank condition": (lambda table: table.delete(where=" "), InvalidInputError, ("cannot read the filter",)),
    "an unknown function": (
        lambda table: table.delete(where="uper(t) = 'X'"),
        InvalidInputError,
        ("uper", "did you mean 'upper'"),
    ),
    "neither": (lambda table: table.delete(), InvalidInputError, ("keys or a condition",)),
    "both": (
        lambda table: table.delete(pa.table({"id": [1]}), where="true"),
        InvalidInputError,
        ("keys or a condition",),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_statement_raises_one_line_and_publishes_nothing(case: str, tmp_path: Path) -> None:
    statement, error, parts = REFUSALS[case]
    table = three_partitions(tmp_path)
    with check_refused(table, error, *parts):
        statement(table)


def test_update_of_the_delete_flag_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=a_schema(id="int64", _hoodie_is_deleted="bool"))
    with check_refused(table, SchemaMismatchError, "_hoodie_is_deleted", "use delete"):
        table.update({"_hoodie_is_deleted": True})
