"""Global indexes: a key has one row in all partitions. The oracle is a dict from key to partition and values.

With ``update.partition.path`` a row moves to the partition that it names. Without it, the columns change and the folder
stays. With event-time ordering, a stored row that is newer stays in its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import lakeformat
from lakeformat import Table
from lakeformat.errors import DuplicateKeyError, InvalidOptionError
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", part="string", ts="int64", v="int64", w="int64", _hoodie_is_deleted="bool")
Row = dict[str, Any]
#: Key -> folder and row.
Model = dict[str, tuple[str, Row]]

GLOBALS = [(kind, moves) for kind in ("GLOBAL_BLOOM", "GLOBAL_SIMPLE") for moves in (True, False)]


def options(kind: str, *, moves: bool) -> dict[str, Any]:
    switch = "bloom" if kind == "GLOBAL_BLOOM" else "simple"
    return {"hoodie.index.type": kind, f"hoodie.{switch}.index.update.partition.path": moves}


def make_table(path: Path, kind: str = "AUTO", *, moves: bool = True, **more: Any) -> Table:
    asked = {**options(kind, moves=moves), **more} if kind != "AUTO" else more
    return lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", **asked)


def row(key: str, part: str, v: int = 0, ts: int | None = 0, w: int | None = 0, *, deleted: bool = False) -> Row:
    return {"id": key, "part": part, "ts": ts, "v": v, "w": w, "_hoodie_is_deleted": deleted}


def batch(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def read_rows(table: Table) -> Model:
    """Return the rows. Check that hudi-rs reads the same. Fail if a key is doubled."""
    listed = hudi_rs.assert_same_rows(table)
    names = set(SCHEMA.names)
    found = {r["id"]: (r["_hoodie_partition_path"], {k: v for k, v in r.items() if k in names}) for r in listed}
    assert len(found) == len(listed), "a key is doubled"
    return found


@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
def test_key_that_moves_between_partitions_is_stored_once(kind: str, moves: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, moves=moves)
    table.upsert(batch(row("a", "p1"), row("b", "p1"), row("c", "p2")))
    for step, part in enumerate(("p2", "p3", "p1", "p1", "p3"), start=1):
        table.upsert(batch(row("a", part, step), row(f"new{step}", "p2", step)))
        at, found = read_rows(table)["a"]
        assert found == row("a", part, step)
        assert at == (part if moves else "p1")
    assert set(read_rows(table)) == {"a", "b", "c", *(f"new{step}" for step in range(1, 6))}


@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
def test_last_row_of_a_key_with_several_partitions_in_a_batch_is_stored(kind: str, moves: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, moves=moves)
    table.upsert(batch(row("a", "p3", 1), row("a", "p1", 2), row("a", "p2", 3)))
    assert read_rows(table) == {"a": ("p2", row("a", "p2", 3))}
    table.upsert(batch(row("a", "p1", 4), row("a", "p2", 5), row("a", "p3", 6), row("a", "p1", 7)))
    assert read_rows(table) == {"a": ("p1" if moves else "p2", row("a", "p1", 7))}


@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
def test_delete_finds_its_key_in_any_partition(kind: str, moves: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, moves=moves)
    table.upsert(batch(*(row(f"k{n}", f"p{n % 3}") for n in range(9))))
    table.delete(pa.table({"id": ["k0", "k1", "absent"]}))
    table.delete(pa.table({"id": ["k2", "k3"], "part": ["p0", "nowhere"]}))
    table.upsert(batch(row("k4", "p2", deleted=True), row("k5", "nowhere", deleted=True), row("x", "p1", deleted=True)))
    assert set(read_rows(table)) == {"k6", "k7", "k8"}


@pytest.mark.parametrize("kind", ["GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
def test_newer_stored_row_is_not_moved(kind: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, ordering="ts")
    table.upsert(batch(row("a", "p1", 1, ts=5), row("b", "p1", 1, ts=5), row("c", "p1", 1, ts=None)))
    result = table.upsert(
        batch(row("a", "p2", 2, ts=4), row("b", "p2", 2, ts=5), row("c", "p2", 2, ts=-1), row("d", "p2", 2, ts=0))
    )
    assert read_rows(table) == {
        "a": ("p1", row("a", "p1", 1, ts=5)),
        "b": ("p2", row("b", "p2", 2, ts=5)),
        "c": ("p2", row("c", "p2", 2, ts=-1)),
        "d": ("p2", row("d", "p2", 2, ts=0)),
    }
    (tag,) = (step for step in result.report["steps"] if step["step"] == "tag")
    assert tag["moved"] == 2
    assert result.report["rows"] == {"incoming": 4, "inserted": 3, "updated": 0, "deleted": 2}
    table.upsert(batch(row("a", "p9", ts=4, deleted=True), row("b", "p9", ts=6, deleted=True)))
    assert set(read_rows(table)) == {"a", "c", "d"}


@pytest.mark.parametrize("kind", ["GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
def test_moved_row_keeps_its_stored_fields(kind: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind)
    table.upsert(batch(row("a", "p1", 1, w=7), row("b", "p1", 2, w=8)))
    partial = {"lakeformat.write.partial.update": "part,v"}
    lakeformat.open(tmp_path / "t", **options(kind, moves=True), **partial).upsert(
        batch(row("a", "p2", 3, w=None)).select(["id", "part", "v"])
    )
    only_v = {"lakeformat.write.partial.update": "v"}
    lakeformat.open(tmp_path / "t", **options(kind, moves=True), **only_v).upsert(
        batch(row("b", "p2", 4)).select(["id", "part", "v"])
    )
    assert read_rows(table) == {"a": ("p2", row("a", "p2", 3, w=7)), "b": ("p1", row("b", "p1", 4, w=8))}


@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
def test_insert_with_a_duplicate_policy_searches_every_partition(kind: str, moves: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, moves=moves)
    table.upsert(batch(row("a", "p1", 1)))
    policy = "hoodie.datasource.insert.dup.policy"
    drop = lakeformat.open(tmp_path / "t", **options(kind, moves=moves), **{policy: "drop"})
    drop.insert(batch(row("a", "p2", 2), row("b", "p1", 2), row("b", "p2", 3)))
    assert read_rows(table) == {"a": ("p1", row("a", "p1", 1)), "b": ("p2", row("b", "p2", 3))}
    fail = lakeformat.open(tmp_path / "t", **options(kind, moves=moves), **{policy: "fail"})
    with pytest.raises(DuplicateKeyError, match=r"in the table already, e\.g\. 'a'; leave"):
        fail.insert(batch(row("a", "p3"), row("c", "p3")))
    with pytest.raises(DuplicateKeyError, match=r"more than once in the input, e\.g\. 'c'; leave"):
        fail.insert(batch(row("c", "p3"), row("c", "p2")))
    fail.insert(batch(row("c", "p3")))
    assert set(read_rows(table)) == {"a", "b", "c"}


def test_a_merger_cannot_move_rows(tmp_path: Path) -> None:
    make_table(tmp_path / "t")
    asked = {**options("GLOBAL_SIMPLE", moves=True), "lakeformat.write.merger": "os.path:join"}
    with pytest.raises(InvalidOptionError, match="a merger cannot say which partition"):
        lakeformat.open(tmp_path / "t", **asked).upsert(batch(row("a", "p1")))


@pytest.mark.parametrize("moves", [True, False])
def test_copies_of_a_key_from_other_writers_become_one_or_are_all_updated(moves: bool, tmp_path: Path) -> None:
    plain = make_table(tmp_path / "t")
    plain.upsert(batch(row("a", "p1", 1), row("a", "p2", 1), row("b", "p1", 1)))
    table = lakeformat.open(tmp_path / "t", **options("GLOBAL_SIMPLE", moves=moves))
    table.upsert(batch(row("a", "p3", 2)))
    rows = [(r["_hoodie_partition_path"], r["v"]) for r in hudi_rs.assert_same_rows(table) if r["id"] == "a"]
    assert rows == ([("p3", 2)] if moves else [("p1", 2), ("p2", 2)])


@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
def test_merge_finds_keys_in_any_partition_and_does_not_move_them(kind: str, moves: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind, moves=moves)
    table.upsert(batch(*(row(key, f"p{at}", at) for at, key in enumerate("abc"))))
    source = batch(row("a", "p9", 7), row("b", "p1", 8), row("d", "p3", 9))
    table.merge(source).when_matched_update(["v"]).when_not_matched_insert().execute()
    found = {key: (at, held["part"], held["v"]) for key, (at, held) in read_rows(table).items()}
    assert found == {"a": ("p0", "p0", 7), "b": ("p1", "p1", 8), "c": ("p2", "p2", 2), "d": ("p3", "p3", 9)}
    table.merge(pa.table({"id": ["c", "d", "x"]})).when_matched_delete().execute()
    assert set(read_rows(table)) == {"a", "b"}


def test_global_index_works_without_partitions(tmp_path: Path) -> None:
    asked = options("GLOBAL_BLOOM", moves=True)
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **asked)
    table.upsert(batch(row("a", "p1", 1), row("b", "p1", 1)))
    table.upsert(batch(row("a", "p2", 2)))
    table.delete(pa.table({"id": ["b"]}))
    assert read_rows(table) == {"a": ("", row("a", "p2", 2))}


ROWS: SearchStrategy[Row] = st.builds(
    row,
    st.sampled_from("abcdefgh"),
    st.sampled_from(["p1", "p2", "p3"]),
    st.integers(0, 9),
    st.none() | st.integers(0, 3),
    deleted=st.sampled_from([False, False, False, True]),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "overwrite"]),
        st.lists(ROWS, max_size=10),
        st.booleans(),
    ),
    max_size=5,
)


def rank(ts: int | None) -> int:
    return -1 if ts is None else ts


def apply_upsert(model: Model, rows: list[Row], *, moves: bool, by_event: bool) -> Model:
    """Return the model after an upsert: one row per key of the batch is chosen, and these are applied in turn."""
    chosen: dict[str, Row] = {}
    for new in rows:
        known = chosen.get(new["id"])
        if known is None or not by_event or rank(new["ts"]) >= rank(known["ts"]):
            chosen[new["id"]] = new
    model = dict(model)
    for key, new in chosen.items():
        at, old = model.get(key, (new["part"], None))
        if old is not None and by_event and rank(old["ts"]) > rank(new["ts"]):
            continue
        model.pop(key, None)
        if not new["_hoodie_is_deleted"]:
            model[key] = (new["part"] if moves else at, new)
    return model


@pytest.mark.parametrize("by_event", [True, False])
@pytest.mark.parametrize(("kind", "moves"), GLOBALS)
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_writes_follow_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    moves: bool,
    by_event: bool,
    steps: list[tuple[str, list[Row], bool]],
) -> None:
    more: dict[str, Any] = {"ordering": "ts"} if by_event else {}
    table = make_table(tmp_path_factory.mktemp("t") / "table", kind, moves=moves, **more)
    model: Model = {}
    for operation, rows, small_files in steps:
        limit = {"hoodie.parquet.small.file.limit": 0 if small_files else 1 << 20}
        table = lakeformat.open(table.context.storage.location, **options(kind, moves=moves), **limit)
        if operation == "delete":
            table.delete(batch(*rows).select(["id", "part"]))
            model = {key: value for key, value in model.items() if key not in {r["id"] for r in rows}}
        elif operation == "overwrite":
            table.overwrite(batch(*rows))
            model = apply_upsert({}, rows, moves=moves, by_event=by_event)
        else:
            table.upsert(batch(*rows))
            model = apply_upsert(model, rows, moves=moves, by_event=by_event)
        assert read_rows(table) == model
