"""Global indexes in tasks: they leave the same table as in one process. The oracle is the way in one process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.errors import DuplicateKeyError, WriteConflictError
from lakeformat.model.operation import Operation
from lakeformat.write.intake import plan_job
from lakeformat.write.shuffled_session import ShuffledSession
from tests.helpers.examples import examples
from tests.helpers.local_shuffle import InterruptedRunner, write_shuffled
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="string", part="string", ts="int64", v="int64", w="int64", _hoodie_is_deleted="bool")
POLICY: Final = "hoodie.datasource.insert.dup.policy"
PAYLOAD: Final = "hoodie.datasource.write.payload.class"
KINDS: Final[dict[str, dict[str, Any]]] = {
    "as they come": {},
    "ordered": {"ordering": "ts"},
    "merge on read": {"table_type": "MERGE_ON_READ"},
    "merge on read, ordered": {"table_type": "MERGE_ON_READ", "ordering": "ts"},
    "incoming row filled": {PAYLOAD: "OverwriteNonDefaultsWithLatestAvroPayload"},
    "newer row filled": {"ordering": "ts", PAYLOAD: "PartialUpdateAvroPayload"},
    "change data": {"hoodie.table.cdc.enabled": True},
}
SIZES: Final[dict[str, dict[str, Any]]] = {
    "one file": {},
    "many files": {"hoodie.parquet.max.file.size": 2000, "hoodie.parquet.small.file.limit": 1500},
    "no small files": {"hoodie.parquet.small.file.limit": 0},
}
Row = dict[str, Any]


def options(kind: str, *, moves: bool) -> dict[str, Any]:
    switch = "bloom" if kind == "GLOBAL_BLOOM" else "simple"
    return {"hoodie.index.type": kind, f"hoodie.{switch}.index.update.partition.path": moves}


def row(key: str, part: str, v: int = 0, ts: int | None = 0, w: int | None = 0, *, deleted: bool = False) -> Row:
    return {"id": key, "part": part, "ts": ts, "v": v, "w": w, "_hoodie_is_deleted": deleted}


def batch(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def contents(table: lakeformat.Table) -> list[tuple[Any, ...]]:
    """Return the rows. hudi-rs cannot be asked here: it lets a row in a log file win that has no ordering value."""
    names = ("_hoodie_partition_path", "_hoodie_record_key", *SCHEMA.names)
    rows = table.to_arrow(meta_columns=True).to_pylist()
    return sorted((tuple(each[name] for name in names) for each in rows), key=str)


def write_both(
    tables: Sequence[lakeformat.Table],
    tasks: Sequence[Sequence[Row]],
    operation: Operation,
    columns: Sequence[str] = (),
) -> None:
    """Write the rows in one process and in tasks. Check that results and tables are the same."""
    staged, moved = tables
    batches = [batch(rows).select(list(columns) or SCHEMA.names) for rows in tasks]
    combine = operation is Operation.INSERT_OVERWRITE_TABLE
    theirs = staged.write(pa.concat_tables(batches), operation, combine=combine)
    ours = write_shuffled(moved, batches, operation)
    assert ours.report["rows"] == theirs.report["rows"]
    assert contents(moved) == contents(staged)


ROWS: Final = st.builds(
    row,
    st.sampled_from("abcdefghijkl"),
    st.sampled_from(["p1", "p2", "p3"]),
    st.integers(0, 9),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 9),
    deleted=st.sampled_from([False, False, False, True]),
)
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(
            [Operation.UPSERT, Operation.UPSERT, Operation.UPSERT, Operation.DELETE, Operation.INSERT_OVERWRITE_TABLE]
        ),
        st.lists(st.lists(ROWS, max_size=9), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(
    "sizes", ["no small files", *(pytest.param(n, marks=pytest.mark.slow) for n in SIZES if n[0] != "n")]
)
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_writes_in_tasks_leave_the_same_table(
    kind: str,
    moves: bool,
    sizes: str,
    steps: list[tuple[Operation, list[list[Row]]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    index = options("GLOBAL_SIMPLE" if len(steps) % 2 else "GLOBAL_BLOOM", moves=moves)
    settings_ = {"record_key": "id", "partition_by": "part", **index, **KINDS[kind], **SIZES[sizes]}
    tables = [lakeformat.create(folder / name, SCHEMA, **settings_) for name in ("staged", "moved")]
    for operation, tasks in steps:
        write_both(tables, tasks, operation, ["id", "part"] if operation is Operation.DELETE else ())


def test_rows_keep_columns_that_the_input_lacks_when_they_move(tmp_path: Path) -> None:
    index = options("GLOBAL_SIMPLE", moves=True)
    tables = [lakeformat.create(tmp_path / n, SCHEMA, record_key="id", partition_by="part", **index) for n in "ab"]
    write_both(tables, [[row(f"k{n}", f"p{n % 3}", n, w=n) for n in range(9)]], Operation.UPSERT)
    for named, columns in (("part,v", ["id", "part", "v"]), ("v", ["id", "part", "v"])):
        partial = {"lakeformat.write.partial.update": named}
        opened = [lakeformat.open(tmp_path / n, **index, **partial) for n in "ab"]
        tasks = [[row(f"k{n}", f"p{n % 2}", 50 + n) for n in (0, 1, 2)], [row(f"k{n}", "p9", 70) for n in (5, 11)]]
        write_both(opened, tasks, Operation.UPSERT, columns)


def test_unpartitioned_table_and_deletes_by_key_alone(tmp_path: Path) -> None:
    index = options("GLOBAL_BLOOM", moves=True)
    for at, partitions in enumerate(({}, {"partition_by": "part"})):
        tables = [
            lakeformat.create(tmp_path / f"{n}{at}", SCHEMA, record_key="id", **index, **partitions) for n in "ab"
        ]
        write_both(tables, [[row("a", "p1"), row("b", "p2")], [row("c", "p1"), row("a", "p2", 5)]], Operation.UPSERT)
        write_both(tables, [[row("a", "p1")], [row("x", "p1"), row("c", "p1")]], Operation.DELETE, ["id"])
        assert [found[1] for found in contents(tables[1])] == ["b"]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_duplicate_policy_searches_every_partition(table_type: str, tmp_path: Path) -> None:
    index = {**options("GLOBAL_SIMPLE", moves=True), "hoodie.parquet.small.file.limit": 0}
    kind = {"record_key": "id", "partition_by": "part", "table_type": table_type, **index}
    tables = [lakeformat.create(tmp_path / name, SCHEMA, **kind) for name in "ab"]
    write_both(tables, [[row("a", "p1", 1), row("b", "p1", 1)], [row("c", "p2", 1)]], Operation.UPSERT)
    write_both(tables, [[row("b", "p1")]], Operation.DELETE, ["id"])
    dropping = [lakeformat.open(tmp_path / name, **index, **{POLICY: "drop"}) for name in "ab"]
    write_both(
        dropping, [[row("a", "p2", 2), row("b", "p1", 2)], [row("b", "p3", 3), row("d", "p2")]], Operation.INSERT
    )
    refusing = lakeformat.open(tmp_path / "b", **index, **{POLICY: "fail"})
    before = contents(refusing)
    with pytest.raises(DuplicateKeyError, match=r"1 record key.* in the table already, e\.g\. 'a'; leave"):
        write_shuffled(refusing, [batch([row("x", "p1")]), batch([row("a", "p9")])], Operation.INSERT)
    with pytest.raises(DuplicateKeyError, match=r"1 record key.* more than once in the input, e\.g\. 'x'; leave"):
        write_shuffled(refusing, [batch([row("x", "p1")]), batch([row("x", "p9")])], Operation.INSERT)
    assert contents(refusing) == before


def test_copies_of_a_key_become_one_or_are_all_updated(tmp_path: Path) -> None:
    for moves in (True, False):
        folders = [tmp_path / f"{name}{moves}" for name in "ab"]
        for folder in folders:
            plain = lakeformat.create(folder, SCHEMA, record_key="id", partition_by="part")
            plain.upsert(batch([row("a", "p1", 1), row("a", "p2", 1), row("b", "p1", 1)]))
        tables = [lakeformat.open(folder, **options("GLOBAL_SIMPLE", moves=moves)) for folder in folders]
        write_both(tables, [[row("a", "p3", 2)]], Operation.UPSERT)


def test_many_new_keys_are_divided_over_files_by_key(tmp_path: Path) -> None:
    sizes = {"hoodie.parquet.max.file.size": 8_000, "hoodie.parquet.small.file.limit": 0}
    index = options("GLOBAL_BLOOM", moves=True)
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="part", **index, **sizes)
    write_shuffled(table, [batch([row(f"{n:04}", "p1") for n in range(2000)])], Operation.UPSERT)
    rows = table.to_arrow(columns=["id", "_hoodie_file_name"])
    grouped = rows.group_by("_hoodie_file_name").aggregate([("id", "min"), ("id", "max")])
    found = sorted(zip(grouped["id_min"].to_pylist(), grouped["id_max"].to_pylist(), strict=True))
    assert len(found) > 2
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(found))


@pytest.mark.parametrize("retries", [0, 1])
def test_key_that_another_writer_inserts_into_another_partition_is_a_conflict(retries: int, tmp_path: Path) -> None:
    index = {**options("GLOBAL_SIMPLE", moves=True), "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="part", **index)
    table.upsert(batch([row("a", "p1")]))
    ours = lakeformat.open(tmp_path, **index, **{"hoodie.write.num.retries.on.conflict.failures": retries})
    rows = batch([row("a", "p2", 1), row("b", "p2", 1)])
    job = plan_job(ours.context.store, ours.context.snapshot(), ours.options, rows.schema, ours.context.ids)
    runner = InterruptedRunner(table, job, [batch([row("b", "p3", 2)])])
    session = ShuffledSession(ours.context, job, runner)
    if not retries:
        with pytest.raises(WriteConflictError):
            session.run(runner.stage([rows]), rows.num_rows, frozenset())
        assert [found[:2] for found in contents(table)] == [("p1", "a"), ("p3", "b")]
    else:
        session.run(runner.stage([rows]), rows.num_rows, frozenset())
        assert [found[:2] for found in contents(table)] == [("p2", "a"), ("p2", "b")]
    assert not (tmp_path / ".hoodie" / ".lakeformat" / "stage" / job.write_id).exists()
