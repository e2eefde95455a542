"""Update and delete by condition, against a model of rows in a dictionary and a row-by-row evaluator of conditions."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, LakeformatError, SchemaMismatchError, Table, UnsupportedTableError
from lakeformat.predicate import parse_where
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.refusal import refused
from tests.helpers.row_oracle import truth

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int32()), ("t", pa.string()), ("f", pa.bool_())])
Row = dict[str, Any]
Model = dict[int, Row]
#: Each insert opens files of its own.
NO_PACKING: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0}
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")


def data(rows: pa.Table) -> Model:
    """id -> row, without meta columns."""
    listed = [{name: row[name] for name in SCHEMA.names} for row in rows.to_pylist()]
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row for row in listed}


def meta(table: Table) -> dict[int, Row]:
    """id -> meta columns."""
    return {
        row["id"]: {name: row[name] for name in (*META, "_hoodie_file_name")}
        for row in table.to_arrow(meta_columns=True).to_pylist()
    }


# --- random tables, conditions and values -------------------------------------------------------------

NUMBERS = st.none() | st.integers(-2, 3)
TEXTS = st.none() | st.sampled_from(["", "a", "ab", "b%"])
ROWS = st.lists(st.tuples(st.sampled_from("xyz"), NUMBERS, TEXTS, st.none() | st.booleans()), min_size=1, max_size=14)


def leaf() -> st.SearchStrategy[str]:
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


#: By name: what is set, and the same for one row.
SETS: dict[str, tuple[Mapping[str, Any], Callable[[Row], Row]]] = {
    "literals": ({"n": -1, "t": "new"}, lambda row: row | {"n": -1, "t": "new"}),
    "nulls": ({"n": None, "f": None}, lambda row: row | {"n": None, "f": None}),
    "a function": ({"n": doubled}, lambda row: row | {"n": row["n"] if row["n"] is None else row["n"] * 2}),
    "both": ({"t": with_key, "F": True}, lambda row: row | {"t": f"{row['id']}/{row['p']}", "f": True}),
}


def as_seen(row: Row) -> Row:
    """With the meta columns that conditions ask for."""
    return row | {"_hoodie_partition_path": row["p"], "_hoodie_record_key": str(row["id"])}


def random_table(folder: Path, rows: list[tuple[Any, ...]]) -> tuple[Table, Model]:
    """Two commits, up to three partitions, more than one file group and row count a file."""
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **NO_PACKING)
    listed = [dict(zip(SCHEMA.names, (number, *row), strict=True)) for number, row in enumerate(rows)]
    for part in (listed[: len(listed) // 2], listed[len(listed) // 2 :]):
        table.insert(pa.Table.from_pylist(part, SCHEMA))
    return table, {row["id"]: row for row in listed}


STEPS = st.lists(st.tuples(CONDITIONS, st.none() | st.sampled_from(sorted(SETS))), min_size=1, max_size=3)


@settings(max_examples=examples(60))
@given(ROWS, STEPS)
def test_any_updates_and_deletes_do_what_they_do_row_by_row(
    rows: list[tuple[Any, ...]], steps: list[tuple[str, str | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, model = random_table(Path(folder), rows)
        past = {table.history()[0].instant_time: dict(model)}
        for where, name in steps:
            condition = parse_where(where)
            hits = {id_ for id_, row in model.items() if truth(condition, as_seen(row)) is True}
            before = meta(table)
            if name is None:
                result = table.delete(where=where)
                model = {id_: row for id_, row in model.items() if id_ not in hits}
                assert result.report["rows"]["deleted"] == len(hits)
            else:
                values, changed = SETS[name]
                result = table.update(values, where)
                model = {id_: changed(row) if id_ in hits else row for id_, row in model.items()}
                assert result.report["rows"]["updated"] == len(hits)
            assert data(table.to_arrow()) == model
            assert_meta_columns(before, meta(table), hits, result.instant_time)
            past[result.instant_time] = dict(model)
        hudi_rs.assert_same_rows(table)
        for instant, then in past.items():
            assert data(table.to_arrow(as_of=instant)) == then


def assert_meta_columns(before: dict[int, Row], after: dict[int, Row], hits: set[int], instant: str) -> None:
    """Copied rows keep all but the file name, which changes where a row of the file was hit and nowhere else."""
    rewritten = {before[id_]["_hoodie_file_name"] for id_ in hits}
    for id_, now in after.items():
        then = before[id_]
        assert now["_hoodie_record_key"], now["_hoodie_partition_path"] == (
            then["_hoodie_record_key"],
            then["_hoodie_partition_path"],
        )
        assert (now["_hoodie_commit_time"] == instant) == (id_ in hits)
        assert (now["_hoodie_commit_seqno"] == then["_hoodie_commit_seqno"]) == (id_ not in hits)
        assert (now["_hoodie_file_name"] != then["_hoodie_file_name"]) == (then["_hoodie_file_name"] in rewritten)
    assert len({now["_hoodie_commit_seqno"] for now in after.values()}) == len(after)


# --- what it costs, and what it leaves ----------------------------------------------------------------


def three_partitions(folder: Path, **options: Any) -> Table:
    rows = [{"id": i, "p": "xyz"[i % 3], "n": i, "t": str(i), "f": i % 2 == 0} for i in range(12)]
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **options)
    table.bulk_insert(pa.Table.from_pylist(rows, SCHEMA))
    return table


def test_only_files_with_a_match_are_written(tmp_path: Path) -> None:
    table = three_partitions(tmp_path)
    result = table.update({"t": "hit"}, where="n in (3, 6) and f is not null")
    assert result.report["files"]["merged"] == 1
    result = table.update({"t": "hit"}, where="p = 'y'")
    (find, *_) = result.report["steps"]
    assert (find["files"], find["after_names"], find["with_matches"]) == (3, 1, 1)
    # Statistics cannot rule this out, a look at the column does: nothing is written.
    result = table.update({"t": "hit"}, where="n >= 0 and t = '20'")
    assert result.report["files"]["merged"] == 0
    assert result.report["steps"][0]["after_stats"] > 0
    assert table.history()[0].files_written == 0


def test_row_groups_of_a_large_file(tmp_path: Path) -> None:
    """A file of three row groups, a match in the last one only, and in all of them."""
    rows = 300_000
    ids = pa.array(range(rows), pa.int64())
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    table.bulk_insert(pa.table({"id": ids, "n": pa.repeat(pa.scalar(0, pa.int32()), rows)}))
    assert table.update({"n": 1}, where="id >= 299990").report["rows"]["updated"] == 10
    assert table.update({"n": 2}, where="id < 5 or id in (140000, 299999)").report["rows"]["updated"] == 7
    assert table.delete(where="n = 0").report["rows"]["deleted"] == rows - 16
    found = table.to_arrow(["id", "n"]).sort_by("id").to_pydict()
    assert found == {
        "id": [*range(5), 140000, *range(299990, 300000)],
        "n": [2] * 6 + [1] * 9 + [2],
    }
    hudi_rs.assert_same_rows(table)


def test_a_file_that_loses_all_rows_is_as_after_a_delete_by_key(tmp_path: Path) -> None:
    """It stays in its file group with no rows, and takes rows again."""
    by_where, by_key = (three_partitions(tmp_path / name) for name in "ab")
    by_where.delete(where="p = 'x'")
    by_key.delete(pa.table({"id": [0, 3, 6, 9], "p": ["x"] * 4}))
    shapes = []
    for table in (by_where, by_key):
        files = [file for file in table.snapshot().files if file.partition_path == "x"]
        stats = list(table.engine.store.commit(table.snapshot().timeline.commits[-1]).all_stats())
        shapes.append([(len(files), stat.num_writes, stat.num_deletes, stat.prev_commit is None) for stat in stats])
        assert table.history()[0].operation == "delete"
        hudi_rs.assert_same_rows(table)
        table.upsert(pa.table({"id": [3], "p": ["x"], "n": [1], "t": ["back"], "f": [True]}))
        assert {row["t"] for row in table.to_arrow(where="p = 'x'").to_pylist()} == {"back"}
        hudi_rs.assert_same_rows(table)
    assert shapes == [[(1, 0, 4, False)]] * 2


def test_without_a_condition_every_row(tmp_path: Path) -> None:
    table = three_partitions(tmp_path)
    assert table.update({"n": 5}).report["rows"]["updated"] == 12
    assert set(table.to_arrow(["n"])["n"].to_pylist()) == {5}
    assert table.delete(where="true").report["rows"]["deleted"] == 12
    assert table.to_arrow().num_rows == 0


def test_a_table_with_no_rows(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    assert table.update({"n": 5}, where="n = 4").report["rows"]["updated"] == 0
    assert table.delete(where="true").report["rows"]["deleted"] == 0
    table.upsert(pa.Table.from_pylist([{"id": 1, "p": "x"}], SCHEMA))
    assert table.delete(where="n is null").report["rows"]["deleted"] == 1
    assert table.update({"n": 5}).report["rows"]["updated"] == 0


def test_a_table_with_generated_keys(tmp_path: Path) -> None:
    """No record key is asked for; rows keep the keys they were given."""
    table = lakeformat.create(tmp_path / "t", SCHEMA, partition_by="p")
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


def test_history_tells_hudis_operations(tmp_path: Path) -> None:
    table = three_partitions(tmp_path)
    table.update({"n": 1}, where="id = 1")
    table.delete(where="id = 1")
    commits = [table.engine.store.commit(instant) for instant in table.snapshot().timeline.commits[-2:]]
    assert [commit.operation for commit in commits] == ["UPSERT", "DELETE"]
    assert [(s.num_updates, s.num_deletes, s.num_writes) for c in commits for s in c.all_stats()] == [
        (1, 0, 4),
        (0, 1, 3),
    ]


def test_the_ordering_column_may_be_set_and_decides_later(tmp_path: Path) -> None:
    """Lowered by an update, it lets an older row in that the event-time rule had kept out."""
    table = three_partitions(tmp_path, ordering="n")
    older = pa.table({"id": [11], "p": ["z"], "n": [3], "t": ["older"], "f": [None]}, schema=SCHEMA)
    table.upsert(older)
    assert table.to_arrow(["t"], where="id = 11")["t"].to_pylist() == ["11"]
    table.update({"n": 2}, where="id = 11")
    table.upsert(older)
    assert table.to_arrow(["t"], where="id = 11")["t"].to_pylist() == ["older"]


# --- values of every type -----------------------------------------------------------------------------

UTC = dt.timezone.utc
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("r", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("st", pa.struct([("a", pa.int64()), ("t", pa.string())])),
        ("li", pa.list_(pa.int64())),
        ("ma", pa.map_(pa.string(), pa.int64())),
    ]
)
#: Column, what is set, what is read.
LITERALS: list[tuple[str, Any, Any]] = [
    ("i", 2.0, 2),
    ("l", 2**60, 2**60),
    ("r", 0.1, 0.10000000149011612),
    ("d", 3, 3.0),
    ("m", Decimal("1.5"), Decimal("1.50")),
    ("m", 7, Decimal("7.00")),
    ("b", b"\x00\xff", b"\x00\xff"),
    ("day", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    ("at", dt.datetime(2024, 1, 1, 5), dt.datetime(2024, 1, 1, 5, tzinfo=UTC)),
    (
        "at",
        dt.datetime(2024, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2024, 1, 1, 3, tzinfo=UTC),
    ),
    ("wall", dt.datetime(2024, 1, 1, 5), dt.datetime(2024, 1, 1, 5)),
    ("st", {"a": 1, "t": "x"}, {"a": 1, "t": "x"}),
    ("li", [1, None], [1, None]),
    ("ma", {"k": 1}, [("k", 1)]),
    ("i", pa.scalar(5, pa.int64()), 5),
    ("d", None, None),
]
TOO_MUCH: list[tuple[str, Any]] = [
    ("i", 2.5),
    ("i", 2**31),
    ("i", True),
    ("i", "1"),
    ("d", 2**53 + 1),
    ("r", 1e300),
    ("m", Decimal("1.234")),
    ("m", 1.5),
    ("b", "text"),
    ("day", dt.datetime(2024, 1, 1, 5)),
    ("day", "2024-01-01"),
    ("wall", dt.datetime(2024, 1, 1, tzinfo=UTC)),
    ("st", {"a": 1, "t": "x", "more": 1}),
    ("li", [1, 2.5]),
    ("i", pa.scalar(2**40)),
    ("i", object()),
]


#: hudi-rs does not know times without a zone.
WITHOUT_WALL = WIDE.remove(WIDE.get_field_index("wall"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Table:
    table = lakeformat.create(tmp_path_factory.mktemp("wide") / "t", WIDE, record_key="id")
    table.upsert(pa.Table.from_pylist([{"id": 1}, {"id": 2}], WIDE))
    return table


@pytest.mark.parametrize(("column", "value", "read"), LITERALS, ids=lambda value: str(value)[:20])
def test_a_literal_is_stored_as_it_was_given(column: str, value: Any, read: Any, wide: Table) -> None:
    wide.update({column: value}, where="id = 1")
    assert wide.to_arrow([column], where="id = 1").column(0).to_pylist() == [read]
    assert wide.to_arrow([column], where="id = 2").column(0).to_pylist() == [None]


def test_hudi_rs_reads_literals_of_every_type(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", WITHOUT_WALL, record_key="id")
    table.upsert(pa.Table.from_pylist([{"id": 1}, {"id": 2}], WITHOUT_WALL))
    table.update({column: value for column, value, _ in LITERALS if column != "wall"}, where="id = 1")
    rows = hudi_rs.assert_same_rows(table)
    assert [row["st"] for row in rows] == [{"a": 1, "t": "x"}, None]


@pytest.mark.parametrize(("column", "value"), TOO_MUCH, ids=lambda value: str(value)[:20])
def test_a_literal_that_would_change_is_refused(column: str, value: Any, wide: Table) -> None:
    commits = wide.snapshot().timeline.commits
    with pytest.raises(InvalidInputError, match=f"column '{column}'") as caught:
        wide.update({column: value}, where="id = 1")
    assert "\n" not in str(caught.value)
    assert wide.snapshot().timeline.commits == commits


FUNCTIONS: dict[str, tuple[str, Callable[[pa.RecordBatch], Any], type[LakeformatError], tuple[str, ...]]] = {
    "overflow": (
        "i",
        lambda rows: pa.array([2**31] * len(rows)),
        SchemaMismatchError,
        ("'i'", "int32", "convert them first"),
    ),
    "fraction": (
        "i",
        lambda rows: pa.array([1.5] * len(rows)),
        SchemaMismatchError,
        ("'i'", "truncated", "convert them first"),
    ),
    "float overflow": (
        "r",
        lambda rows: pa.array([1e300] * len(rows)),
        SchemaMismatchError,
        ("'r'", "exceed", "float"),
    ),
    "float to decimal": (
        "m",
        lambda rows: pa.array([1.555] * len(rows)),
        SchemaMismatchError,
        ("'m'", "double", "convert"),
    ),
    "text to binary": (
        "b",
        lambda rows: pa.array(["x"] * len(rows)),
        SchemaMismatchError,
        ("'b'", "string", "convert"),
    ),
    "time zone": ("wall", lambda rows: rows.column("at"), SchemaMismatchError, ("'wall'", "UTC", "convert")),
    "digits": ("m", lambda rows: pa.array([Decimal("1.234")] * len(rows)), SchemaMismatchError, ("'m'", "data loss")),
    "too few": ("i", lambda rows: pa.array([], pa.int32()), InvalidInputError, ("'i'", "0 values for 1 rows")),
    "no array": ("i", lambda rows: [1], InvalidInputError, ("'i'", "list", "return an Arrow array")),
    "an error": ("i", lambda rows: rows.column("nope"), InvalidInputError, ("'i'", "KeyError", "nope")),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_what_a_function_gives_is_checked(case: str, wide: Table) -> None:
    column, function, error, parts = FUNCTIONS[case]
    with refused(wide, error, *parts):
        wide.update({column: function}, where="id = 1")


def test_a_function_gets_the_selected_rows_as_readers_see_them(wide: Table) -> None:
    """With all columns, and as they were: what is set beside it does not show."""
    seen: list[pa.Table] = []

    def look(rows: pa.RecordBatch) -> pa.Array:
        seen.append(pa.table(rows))
        return pc.add(rows.column("l"), 1)

    wide.update({"l": 10}, where="id = 2")
    before = wide.to_arrow(where="id = 2", meta_columns=True)
    wide.update({"i": look, "l": 20}, where="id = 2")
    assert seen[0].schema == before.schema
    assert seen[0].to_pylist() == before.to_pylist()
    assert wide.to_arrow(["i", "l"], where="id = 2").to_pylist() == [{"i": 11, "l": 20}]


# --- refusals -----------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[Callable[[Table], object], type[LakeformatError], tuple[str, ...]]] = {
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
        lambda table: table.update({"t": ""}, "tt = 1"),
        InvalidInputError,
        ("'tt'", "did you mean 't'"),
    ),
    "no SQL": (lambda table: table.update({"t": ""}, "t ="), InvalidInputError, ("cannot read the filter",)),
    "a blank condition": (lambda table: table.delete(where=" "), InvalidInputError, ("cannot read the filter",)),
    "a function": (
        lambda table: table.delete(where="upper(t) = 'X'"),
        InvalidInputError,
        ("cannot filter by", "UPPER(t)"),
    ),
    "neither": (lambda table: table.delete(), InvalidInputError, ("keys or a condition",)),
    "both": (
        lambda table: table.delete(pa.table({"id": [1]}), where="true"),
        InvalidInputError,
        ("keys or a condition",),
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_refused_in_one_line_with_nothing_published(case: str, tmp_path: Path) -> None:
    act, error, parts = SHAPES[case]
    table = three_partitions(tmp_path)
    with refused(table, error, *parts):
        act(table)


def test_the_flag_of_deleted_rows_cannot_be_set(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    with refused(table, SchemaMismatchError, "_hoodie_is_deleted", "use delete"):
        table.update({"_hoodie_is_deleted": True})
