"""The exchanged way and the staged way leave the same table. Some tests are about the exchanged way only."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.errors import DuplicateKeyError, WriteConflictError
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.index.bucket import bucket_of
from lakeformat.model.operation import Operation
from lakeformat.write.intake import plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.shuffled_session import ShuffledSession
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.shuffle_plan import assign_to_tasks, cut_key_ranges, may_skip_shuffle
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.local_shuffle import InterruptedRunner, write_shuffled
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="int64", part="string", ts="int64", x="float64")
Row = tuple[int, str, int, float | None]


def rows_of(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def contents(table: lakeformat.Table) -> list[tuple[Any, ...]]:
    """Return the rows. Check that hudi-rs reads the same, unless the table has several ordering columns."""
    names = ("_hoodie_partition_path", "_hoodie_record_key", *SCHEMA.names)
    is_read = len(table.config.ordering_fields) < 2
    rows = hudi_rs.assert_same_rows(table) if is_read else table.to_arrow(meta_columns=True).to_pylist()
    found = (tuple(row[name] for name in names) for row in rows)
    return sorted(found, key=lambda row: row[:-1])


PAYLOAD: Final = "hoodie.datasource.write.payload.class"
FILLING: Final = "OverwriteNonDefaultsWithLatestAvroPayload"
DAYS: Final = {
    "hoodie.keygen.timebased.timestamp.type": "SCALAR",
    "hoodie.keygen.timebased.timestamp.scalar.time.unit": "days",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}
BUCKETS: Final = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 3}
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "partitioned": {"record_key": "id", "partition_by": "part", "ordering": "ts"},
    "hive style": {"record_key": "id", "partition_by": "part", "ordering": "ts", "hive_style": True},
    "unpartitioned": {"record_key": "id", "ordering": "ts"},
    "complex": {"record_key": ["id", "x"], "partition_by": ["part", "ts"], "keygenerator": "complex"},
    "latest wins": {"record_key": "id", "partition_by": "part"},
    "commit time": {"record_key": "id", "ordering": "ts", "merge_mode": "COMMIT_TIME_ORDERING"},
    "timestamp keys": {"record_key": "id", "partition_by": "ts", "keygenerator": "TimestampBasedKeyGenerator", **DAYS},
    "custom keys": {
        "record_key": "id",
        "partition_by": "part:SIMPLE,ts:TIMESTAMP",
        "keygenerator": "CustomKeyGenerator",
        **DAYS,
    },
    "newer row filled": {"record_key": "id", "ordering": "ts", PAYLOAD: "PartialUpdateAvroPayload"},
    "merge on read": {"record_key": "id", "partition_by": "part", "ordering": "ts", "table_type": "MERGE_ON_READ"},
    "merge on read, latest wins": {
        "record_key": "id",
        "table_type": "MERGE_ON_READ",
        "hoodie.write.table.version": 9,
    },
    "incoming row filled": {"record_key": "id", "partition_by": "part", PAYLOAD: FILLING},
    "buckets": {"record_key": "id", "partition_by": "part", "ordering": "ts", **BUCKETS},
    "buckets, latest wins": {"record_key": "id", **BUCKETS},
    "buckets, merge on read": {
        "record_key": "id",
        "partition_by": "part",
        "ordering": "ts",
        "table_type": "MERGE_ON_READ",
        **BUCKETS,
    },
    "several ordering columns": {"record_key": "id", "ordering": "ts,x", "hoodie.write.table.version": 9},
    "buckets, incoming row filled": {"record_key": "id", PAYLOAD: FILLING, **BUCKETS},
}
SIZES: Final[Mapping[str, Mapping[str, Any]]] = {
    "one file": {},
    "many files": {"hoodie.parquet.max.file.size": 2000, "hoodie.parquet.small.file.limit": 1500},
    "no small files": {"hoodie.parquet.max.file.size": 2000, "hoodie.parquet.small.file.limit": 0},
}
#: Writes, each a list of tasks, each a list of rows. Keys repeat within a task, across tasks and across writes.
WRITES: Final = st.lists(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.integers(0, 3), st.just(0.5)), max_size=30),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=3,
)


def with_distinct_values(batches: Sequence[Sequence[Row]], numbers: Iterator[int]) -> list[list[Row]]:
    """Return the same rows with different values in the last column (no part of the key here); one in four is null."""
    return [[(i, p, t, float(n) if (n := next(numbers)) % 4 else None) for i, p, t, _ in rows] for rows in batches]


@pytest.mark.parametrize(
    "sizes", ["many files", *(pytest.param(n, marks=pytest.mark.slow) for n in ("one file", "no small files"))]
)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(6))
@given(writes=WRITES, last=st.sampled_from([Operation.UPSERT, Operation.DELETE, Operation.INSERT_OVERWRITE_TABLE]))
def test_staged_and_shuffled_writes_leave_the_same_table(
    kind: str, sizes: str, writes: list[list[list[Row]]], last: Operation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    options = {**KINDS[kind], **SIZES[sizes]}
    staged, moved = (lakeformat.create(folder / name, SCHEMA, **options) for name in ("staged", "moved"))
    numbers = itertools.count()
    for at, write in enumerate(writes):
        tasks = write if kind == "complex" else with_distinct_values(write, numbers)
        operation = last if at and at == len(writes) - 1 else Operation.UPSERT
        combine = operation is Operation.INSERT_OVERWRITE_TABLE
        theirs = staged.write(rows_of([row for rows in tasks for row in rows]), operation, combine=combine)
        ours = write_shuffled(moved, [rows_of(rows) for rows in tasks], operation)
        assert ours.report["rows"] == theirs.report["rows"]
        assert contents(moved) == contents(staged)


@pytest.mark.parametrize(
    "operation", [Operation.INSERT, Operation.BULK_INSERT, Operation.INSERT_OVERWRITE, Operation.UPSERT]
)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("buckets")])
def test_each_operation_fills_the_same_buckets_both_ways(kind: str, operation: Operation, tmp_path: Path) -> None:
    staged, moved = (lakeformat.create(tmp_path / name, SCHEMA, **KINDS[kind]) for name in ("staged", "moved"))
    for first in (0, 20):
        tasks = [keys(first, first + 30), keys(first + 30, first + 40), keys(first, first + 10, "b")]
        theirs = staged.write(pa.concat_tables(tasks), operation)
        ours = write_shuffled(moved, tasks, operation)
        assert ours.report["rows"] == theirs.report["rows"]
        assert contents(moved) == contents(staged)
    files = [
        sorted((file.partition_path, bucket_of(file.name.file_id)) for file in table.context.snapshot().files)
        for table in (staged, moved)
    ]
    assert files[0] == files[1]


POLICY: Final = "hoodie.datasource.insert.dup.policy"


@settings(max_examples=examples(10))
@given(writes=WRITES)
@pytest.mark.parametrize("sizes", [*SIZES, "buckets"])
def test_duplicate_policy_drops_the_same_rows_both_ways(
    sizes: str, writes: list[list[list[Row]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    options = {"record_key": "id", "partition_by": "part", "ordering": "ts", POLICY: "drop"}
    options = {**options, **SIZES.get(sizes, BUCKETS)}
    staged, moved = (lakeformat.create(folder / name, SCHEMA, **options) for name in ("staged", "moved"))
    numbers = itertools.count()
    for write in writes:
        tasks = with_distinct_values(write, numbers)
        staged.insert(rows_of([row for rows in tasks for row in rows]))
        write_shuffled(moved, [rows_of(rows) for rows in tasks], Operation.INSERT)
        assert contents(moved) == contents(staged)


@settings(max_examples=examples(10))
@given(writes=WRITES, deleted=st.lists(st.lists(st.integers(0, 40), max_size=20), min_size=3, max_size=3))
@pytest.mark.parametrize("ordering", [{}, {"ordering": "ts"}], ids=["as they come", "ordered"])
@pytest.mark.parametrize("sizes", ["one file", "no small files", "buckets"])
def test_duplicate_policy_inserts_rows_that_logs_have_deleted_both_ways(
    sizes: str,
    ordering: dict[str, str],
    writes: list[list[list[Row]]],
    deleted: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    options = {"record_key": "id", "partition_by": "part", POLICY: "drop", "table_type": "MERGE_ON_READ"}
    options = {**options, **ordering, **SIZES.get(sizes, BUCKETS)}
    staged, moved = (lakeformat.create(folder / name, SCHEMA, **options) for name in ("staged", "moved"))
    numbers = itertools.count()
    for write, gone in zip(writes, deleted, strict=False):
        tasks = with_distinct_values(write, numbers)
        theirs = staged.insert(rows_of([row for rows in tasks for row in rows]))
        ours = write_shuffled(moved, [rows_of(rows) for rows in tasks], Operation.INSERT)
        assert ours.report["rows"] == theirs.report["rows"]
        assert contents(moved) == contents(staged)
        for table in (staged, moved):
            table.delete(pa.table({"id": pa.array(gone, pa.int64())}))


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ([[5, 6], [1, 9]], "1 record key(s) of the input are in the table already, e.g. '1' in partition 'a'"),
        ([[5, 6], [6, 7]], "1 record key(s) come more than once in the input, e.g. '6' in partition 'a'"),
    ],
)
@pytest.mark.parametrize("index", [{}, BUCKETS], ids=["files", "buckets"])
def test_duplicate_policy_refuses_a_key_before_anything_is_published(
    index: Mapping[str, Any], tasks: list[list[int]], found: str, tmp_path: Path
) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="part", **{POLICY: "fail", **index})
    table.insert(keys(0, 4))
    before = contents(table)
    with pytest.raises(DuplicateKeyError, match=re.escape(found)):
        write_shuffled(table, [pa.concat_tables([keys(n, n + 1) for n in task]) for task in tasks], Operation.INSERT)
    assert contents(table) == before
    write_shuffled(table, [keys(5, 7), keys(7, 8)], Operation.INSERT)
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [0, 1, 2, 3, 5, 6, 7]


def test_duplicate_policy_sees_a_row_that_another_writer_appends_meanwhile(tmp_path: Path) -> None:
    options = {"record_key": "id", "partition_by": "part", "table_type": "MERGE_ON_READ", POLICY: "drop", **BUCKETS}
    table = lakeformat.create(tmp_path, SCHEMA, ordering="ts", **options, **{"hoodie.write.table.version": 9})
    table.insert(keys(0, 30))
    job = plan_insert(table)
    runner = InterruptedRunner(table, job, [rows_of([(50, "a", 0, 9.0)])])
    staged = runner.stage([keys(50, 52)])
    ShuffledSession(table.context, job, runner).run(staged, 2, frozenset())
    assert table.to_arrow(["x"], where="id >= 50").sort_by("x")["x"].to_pylist() == [0.5, 9.0]


def plan_insert(table: lakeformat.Table) -> WriteJob:
    context = table.context
    options = table.options.with_values(**{"hoodie.datasource.write.operation": "insert"})
    return plan_job(context.store, load_snapshot(context.store), options, SCHEMA, context.ids)


def keys(first: int, last: int, part: str = "a") -> pa.Table:
    return rows_of([(number, part, 1, 0.5) for number in range(first, last)])


def ranges(table: lakeformat.Table) -> list[tuple[int, int]]:
    """Return the least and the greatest id of each file."""
    rows = table.to_arrow(columns=["id", "_hoodie_file_name"])
    grouped = rows.group_by("_hoodie_file_name").aggregate([("id", "min"), ("id", "max")])
    return sorted(zip(grouped["id_min"].to_pylist(), grouped["id_max"].to_pylist(), strict=True))


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.INSERT_OVERWRITE])
def test_new_files_have_disjoint_key_ranges(operation: Operation, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", **{"hoodie.parquet.max.file.size": 8_000})
    mixed = [keys(start, start + 100) for start in (10_900, 10_100, 10_500, 10_000, 10_700)]
    mixed += [keys(start, start + 100) for start in (10_200, 10_400, 10_300, 10_800, 10_600)]
    write_shuffled(table, [pa.concat_tables(mixed[:5]), pa.concat_tables(mixed[5:])], operation)
    found = ranges(table)
    assert len(found) > 2
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(found))
    assert contents(table) == sorted(("", str(n), n, "a", 1, 0.5) for n in range(10_000, 11_000))


def test_delete_without_partition_columns_searches_every_partition(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="part")
    write_shuffled(table, [keys(0, 9), keys(5, 20, "b")], Operation.UPSERT)
    write_shuffled(table, [keys(3, 8).select(["id"])], Operation.DELETE)
    left = [(part, str(n), n, part, 1, 0.5) for part, rows in (("a", range(9)), ("b", range(5, 20))) for n in rows]
    assert contents(table) == sorted(row for row in left if not 3 <= row[2] < 8)


@pytest.mark.parametrize("theirs", [keys(0, 1), keys(99, 100)], ids=["same file", "same new key"])
@pytest.mark.parametrize("retries", [0, 1])
def test_commit_between_planning_and_publishing_is_a_conflict(theirs: pa.Table, retries: int, tmp_path: Path) -> None:
    sizes = {"hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", **sizes)
    table.upsert(keys(0, 10))
    options = {"hoodie.write.num.retries.on.conflict.failures": retries}
    ours = lakeformat.open(tmp_path, **sizes, **options)
    rows = keys(5, 120) if len(theirs) and theirs["id"][0].as_py() == 99 else keys(5, 10)
    snapshot = load_snapshot(ours.context.store)
    job = plan_job(ours.context.store, snapshot, ours.options, rows.schema, ours.context.ids)
    exchange = InterruptedRunner(table, job, [theirs])
    session = ShuffledSession(ours.context, job, exchange)
    if retries:
        session.run(exchange.stage([rows]), rows.num_rows, frozenset())
        ids = [row[2] for row in contents(table)]
        assert ids == sorted({*range(10), *rows["id"].to_pylist()}, key=str)
    else:
        with pytest.raises(WriteConflictError):
            session.run(exchange.stage([rows]), rows.num_rows, frozenset())
        assert {row[2] for row in contents(table)} == {*range(10), *theirs["id"].to_pylist()}
    assert not (tmp_path / ".hoodie" / ".lakeformat" / "stage" / job.write_id).exists()
    assert list((tmp_path / ".hoodie" / ".heartbeat").iterdir()) == []


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 500), st.integers(1, 8))
def test_bundles_balance_the_tasks(weights: list[int], task: int, least: int) -> None:
    tasks = assign_to_tasks(weights, task_weight=task, at_least=least)
    loads = [0] * (max(tasks) + 1)
    for at, weight in zip(tasks, weights, strict=True):
        loads[at] += weight
    assert set(tasks) == set(range(len(loads)))
    assert len(loads) == min(len(weights), max(least, -(-sum(weights) // task)))
    assert max(loads) <= sum(weights) / len(loads) + max(weights) + len(weights)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=8))
def test_key_ranges_cut_a_sample_into_the_requested_shares(rows: list[int]) -> None:
    sample = pa.array([f"{number:04}" for number in range(sum(rows))])
    cuts = [*cut_key_ranges(sample, rows), "~"]
    below = [sum(key < cut for key in sample.to_pylist()) for cut in cuts]
    assert [after - before for before, after in itertools.pairwise([0, *below])] == rows


def test_shuffle_is_skipped_if_few_rows_are_read_again_and_a_task_has_few() -> None:
    def bucket(path: str, rows: int = 10) -> Bucket:
        return Bucket(path, "f", None, rows, 0)

    stages = [{"a": 10, "b": 10}, {"a": 10}]
    apart, together = [bucket("a", 20), bucket("b")], [bucket("a") for _ in range(5)]
    assert may_skip_shuffle(stages, apart, [0, 1], most_rows=20)
    assert not may_skip_shuffle(stages, apart, [0, 0], most_rows=20)  # One task has all 30 rows.
    assert not may_skip_shuffle([{"a": 50}], together, [0, 1, 2, 3, 4], most_rows=50)  # All rows are read five times.
    assert not may_skip_shuffle([{"a": 1}] * 2000, [bucket("a", 2000)], [0], most_rows=9999)  # 2,000 files are opened.
    assert not may_skip_shuffle([{"": 50}], together[:4], [0, 1, 2, 3], most_rows=50)  # Keys without their partition.
