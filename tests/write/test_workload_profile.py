"""The workload profile of a write: what each partition brings to which file group, and what goes into log files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.index.port import Tagged
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED, RECORD_KEY
from lakeformat.storage import SystemClock
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.intake import plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.workload.buckets import (
    AppendRules,
    Bucket,
    FileSizing,
    derive_file_id,
    encoded_bytes,
    max_encoded_bytes,
    measure_row_bytes,
)
from lakeformat.write.workload.profile import (
    BucketPlan,
    assign_buckets,
    count_false_positives,
    drop_deletes_of_new_keys,
    make_append_rules,
    workload_profile,
)
from tests.helpers.tables import NO_PACKING, a_batch, a_schema, a_table

T1 = "20240101000000000"
SCHEMA = a_schema(id="string", v="string")


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def job_of(table: Table, operation: str = "upsert", rows: pa.Schema = SCHEMA, **options: Any) -> WriteJob:
    given = resolve({**table.options.values, "operation": operation, **options})
    return plan_job(table.context.store, table.snapshot(), given, rows, table.context.ids)


def rows_of(keys: str, v: str = "x", **more: Any) -> pa.Table:
    return pa.table({RECORD_KEY: [*keys], "id": [*keys], "v": [v] * len(keys), **more})


# --- the profile that an inflight file holds --------------------------------------------------------------------


def test_a_profile_has_an_entry_for_each_updated_group_and_one_for_the_inserts_of_a_partition() -> None:
    base = BaseFile("b", BaseFileName("f", "0-0-0", T1), 1)
    buckets = [
        Bucket("b", "new", None, 0, 2),
        Bucket("b", "f", base, 2, 1),
        Bucket("b", "newer", None, 0, 1),
        Bucket("a", "g", base, 1, 0),
        Bucket("d", "new", None),
    ]
    written = [WriteStat("w", "", "c", None, 9, num_inserts=9), WriteStat("x", "", "b", None, 4, num_inserts=4)]
    assert workload_profile(Operation.UPSERT, buckets, [*written, written[0]]) == CommitMetadata(
        "UPSERT",
        {
            "a": (WriteStat("g", "", "a", T1, 0, num_updates=1),),
            "b": (
                WriteStat("", "", "b", None, 0, num_inserts=7),
                WriteStat("f", "", "b", T1, 0, num_updates=2, num_inserts=1),
            ),
            "c": (WriteStat("", "", "c", None, 0, num_inserts=18),),
            "d": (WriteStat("", "", "d", None, 0),),
        },
    )


@pytest.mark.parametrize(
    ("operation", "index", "expected"),
    [("upsert", None, {"false_positives": 7}), ("insert", None, {}), ("upsert", "BUCKET", {})],
)
def test_false_positives_are_counted_if_keys_are_looked_up(
    operation: str, index: str | None, expected: dict[str, int]
) -> None:
    table = a_table(schema=SCHEMA, index=index)
    stat = WriteStat("f", "", "", None, 1)
    files = [WrittenFile("", stat, unmatched_lookups=count) for count in (3, 0, 4)]
    assert count_false_positives(job_of(table, operation), files) == expected


@pytest.mark.parametrize(
    ("operation", "flags", "new"),
    [
        ("upsert", None, [3, 1]),
        ("upsert", [False] * 4, [3, 1]),
        ("upsert", [True, False, None, True], [1]),
        ("upsert", [True, True, None, True], []),
        ("delete", None, []),
    ],
)
def test_deletes_of_new_keys_are_dropped(operation: str, flags: list[bool | None] | None, new: list[int]) -> None:
    job = job_of(a_table(schema=SCHEMA), operation)
    rows = rows_of("abcd", **({} if flags is None else {IS_DELETED: pa.array(flags, pa.bool_())}))
    found = drop_deletes_of_new_keys(job, rows, Tagged(ints(0, 2), ints(0, 0), ints(3, 1)))
    assert (found.keys.tolist(), found.new.tolist()) == ([0, 2], new)


# --- the rules by which rows are appended ----------------------------------------------------------------------


def keep(of: Any, **options: Any) -> Any:
    return of


def field(kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field("ts", kind, nullable)


DELETED = pa.field(IS_DELETED, pa.bool_())


@pytest.mark.parametrize(
    ("ordering", "deletes", "ts", "reads"),
    [
        ("ts", False, field(pa.int64(), nullable=True), False),
        ("ts", True, field(pa.int64(), nullable=True), True),
        ("ts", True, field(pa.int64()), False),
        ("ts", True, field(pa.int32()), True),
        ("ts", True, field(pa.date32()), True),
        ("ts", False, field(pa.int32()), False),
        ("ts,n", True, field(pa.int32()), False),
        ("ts,n", True, field(pa.int64(), nullable=True), True),
        (None, True, field(pa.int64(), nullable=True), False),
    ],
)
def test_stored_rows_are_read_if_a_delete_may_win_over_a_newer_row(
    ordering: str | None, deletes: bool, ts: pa.Field, reads: bool
) -> None:
    schema = pa.schema([*SCHEMA, ts, pa.field("n", pa.int64(), False)])
    table = a_table(schema=schema, ordering=ordering, merge_on_read=True, version=9)
    job = job_of(table, rows=schema.append(DELETED) if deletes else schema)
    rules = make_append_rules(job, table.snapshot(), {})
    assert rules.reads_stored == reads
    assert rules.orders_versions == (ordering is not None)
    assert make_append_rules(job, table.snapshot(), {}, reads_stored=True).reads_stored


@pytest.mark.parametrize(
    ("ordering", "payload", "reads"),
    [
        ("_event_lsn", None, False),
        ("s.ts", None, True),
        ("_event_lsn", "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload", True),
    ],
)
def test_stored_rows_are_read_if_the_ordering_field_is_in_a_struct_or_a_payload_class_lets_each_delete_win(
    ordering: str, payload: str | None, reads: bool
) -> None:
    inner = pa.struct([pa.field("ts", pa.int64(), False)])
    schema = pa.schema([*SCHEMA, pa.field("_event_lsn", pa.int64(), False), pa.field("s", inner, False), DELETED])
    more: Any = {"hoodie.datasource.write.payload.class": payload} if payload else {}
    table = a_table(schema=schema, ordering=ordering, merge_on_read=True, version=6, **more)
    assert make_append_rules(job_of(table, rows=schema), table.snapshot(), {}).reads_stored == reads


@pytest.mark.parametrize(
    ("version", "index", "operation", "buckets", "opens", "by_commit"),
    [
        (6, None, "upsert", False, False, False),
        (8, None, "upsert", False, False, True),
        (8, "BUCKET", "upsert", True, True, True),
        (6, "BUCKET", "insert", True, True, False),
        (8, "BUCKET", "insert_overwrite", True, False, True),
    ],
)
def test_append_rules_follow_the_table_and_its_index(
    version: int, index: str | None, operation: str, buckets: bool, opens: bool, by_commit: bool
) -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]), version=version, merge_on_read=True, index=index)
    compacting = {FileGroupId("", "f"): T1}
    rules = make_append_rules(job_of(table, operation), table.snapshot(), compacting)
    assert (rules.takes_logs, rules.reads_stored, rules.fills_nulls) == (True, False, False)
    assert (rules.has_buckets, rules.opens_logs, rules.by_commit) == (buckets, opens, by_commit)
    assert rules.compaction_instants == compacting
    piece = table.snapshot().slices[""][0]
    assert rules.merging_of is not None
    assert rules.merging_of(piece) == table.snapshot().merge_rules(piece)


def test_log_files_of_upserts_are_known_to_delete_nothing() -> None:
    table = a_table(rows=a_batch(id=["a", "b"], v=["x", "x"]), merge_on_read=True)
    table.upsert(a_batch(id=["a"], v=["y"]))
    table.delete(a_batch(id=["b"]))
    first, _ = table.snapshot().slices[""][0].logs
    assert make_append_rules(job_of(table), table.snapshot(), {}).upserting == {first.path}


def test_stored_rows_are_read_for_a_merger_and_a_table_without_log_files_appends_nothing() -> None:
    table = a_table(schema=SCHEMA, merge_on_read=True)
    job = job_of(table, merger=f"{__name__}:keep")
    assert make_append_rules(job, table.snapshot(), {}).reads_stored
    plain = a_table(schema=SCHEMA)
    assert make_append_rules(job_of(plain), plain.snapshot(), {}, reads_stored=True) == AppendRules()


# --- the buckets of all partitions -----------------------------------------------------------------------------


def plan_of(
    table: Table, job: WriteJob, rows: pa.Table, tagged: Tagged, *, closed: tuple[str, ...] = (), path: str = ""
) -> tuple[BucketPlan, dict[str, Any]]:
    """Return the plan and the counts of its step."""
    snapshot = table.snapshot()
    report = Report(SystemClock(), "upsert", "t")
    plan = assign_buckets(
        job,
        {path: rows},
        {path: tagged},
        snapshot,
        SCHEMA,
        report,
        append_rules=make_append_rules(job, snapshot, {}),
        closed_groups=frozenset(FileGroupId(path, each) for each in closed),
    )
    [step] = report.steps
    return plan, step


def shown(plan: BucketPlan) -> list[tuple[str, list[int], int]]:
    return [(bucket.file_id, bucket.rows.tolist(), bucket.updates) for bucket in plan.buckets]


NOTHING = (ints(), ints())


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_new_rows_fill_a_small_file_and_deletes_of_new_keys_vanish(merge_on_read: bool) -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]), merge_on_read=merge_on_read)
    [base] = table.snapshot().files
    flags: Any = {IS_DELETED: [False, True, False, False]}
    job, rows = job_of(table), rows_of("abcd", **flags)
    tagged = Tagged(ints(0), ints(0), ints(1, 2, 3), base_rows=ints(0))
    plan, step = plan_of(table, job, rows, tagged)
    [bucket] = plan.buckets
    assert shown(plan) == [(base.name.file_id, [0, 2, 3], 1)]
    assert (bucket.base, bucket.base_rows, bucket.log_place) == (base, ints(0), None)
    assert plan.new[""].tolist() == [1, 2, 3]
    size = max_encoded_bytes(rows, 2, len(SCHEMA)) / 2
    assert plan.sizing[""].row_bytes == size
    assert step["row_bytes"] == round(size, 1)
    # A closed file takes no new rows, so that updates alone are appended to a log file.
    closed, _ = plan_of(table, job, rows, tagged, closed=(base.name.file_id,))
    assert shown(closed) == [(base.name.file_id, [0], 1), (derive_file_id(job.write_id, -1, 0), [2, 3], 0)]
    assert [each.log_place is not None for each in closed.buckets] == [merge_on_read, False]


def test_a_write_that_replaces_files_fills_none() -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]))
    job = job_of(table, "insert_overwrite")
    plan, _ = plan_of(table, job, rows_of("bc"), Tagged(*NOTHING, ints(0, 1)))
    assert shown(plan) == [(derive_file_id(job.write_id, -1, 0), [0, 1], 0)]


def test_rows_that_leave_and_rows_without_news_need_no_size() -> None:
    table = a_table(rows=a_batch(id=["a", "b"], v=["x", "x"]))
    tagged = Tagged(ints(0, 1), ints(0, 0), ints(), is_leaving=np.array([False, True]))
    plan, step = plan_of(table, job_of(table), rows_of("ab"), tagged)
    assert [(each.rows.tolist(), each.moved_rows) for each in plan.buckets] == [([1, 0], 1)]
    assert step["row_bytes"] == 0
    assert plan.sizing[""].row_bytes == max_encoded_bytes(rows_of("ab"), 0, len(SCHEMA))


def test_rows_of_a_bucket_index_go_to_their_buckets() -> None:
    options: Any = {"hoodie.bucket.index.num.buckets": 4}
    table = a_table(schema=SCHEMA, index="BUCKET", **options)
    job = job_of(table)
    rows = rows_of("abcd")
    tagged = job.index.place(table.context.storage, table.snapshot(), {"": pa.chunked_array([[*"abcd"]])})[""]
    plan, _ = plan_of(table, job, rows, tagged)
    assert tagged.buckets is not None
    assert tagged.new_buckets is not None
    numbers = sorted(set(tagged.new_buckets.tolist()))
    assert [tagged.buckets.bucket_of(each.file_id) for each in plan.buckets] == numbers
    assert [each.file_id[8:] for each in plan.buckets] == [
        derive_file_id(job.write_id, -1, at)[8:] for at in range(len(numbers))
    ]


WIDE = "x" * 4_000
LIMITS: Any = {"hoodie.parquet.max.file.size": 10_000, **NO_PACKING}


def test_rows_that_may_need_several_files_are_measured() -> None:
    table = a_table(schema=SCHEMA)
    job = job_of(table, **LIMITS)
    values = [np.random.default_rng(at).bytes(1_000).hex() for at in range(20)]
    rows = pa.table({RECORD_KEY: [f"k{at:02}" for at in range(20)], "id": ["k"] * 20, "v": values})
    plan, step = plan_of(table, job, rows, Tagged(*NOTHING, np.arange(4, 20)))
    files = job.files(SCHEMA)
    assert plan.sizing[""] == FileSizing(
        measure_row_bytes(rows, np.arange(4, 20), files), 10_000, 0, encoded_bytes(rows.slice(0, 0), files)
    )
    assert step["row_bytes"] == round(plan.sizing[""].row_bytes, 1)
    assert len(plan.buckets) > 1


@pytest.mark.parametrize(("rows", "measured"), [(4, False), (5, True)])
def test_rows_are_measured_only_if_they_may_not_fit_into_one_file(rows: int, measured: bool) -> None:
    table = a_table(schema=SCHEMA)
    given = rows_of("abcdefgh"[:rows], WIDE)
    most = max_encoded_bytes(rows_of("abcd", WIDE), 4, len(SCHEMA))
    limits: Any = {**LIMITS, "hoodie.parquet.max.file.size": int(most)}
    job = job_of(table, **limits)
    plan, _ = plan_of(table, job, given, Tagged(*NOTHING, np.arange(rows)))
    assert (plan.sizing[""].row_bytes < 2 * 4_000) == measured
    assert (plan.sizing[""].empty_bytes > 0) == measured


@pytest.mark.parametrize(
    ("limit", "closed", "measured"), [(10**6, False, True), (10**6, True, False), (10, False, False)]
)
def test_the_smallest_file_that_takes_rows_leaves_less_room(limit: int, closed: bool, measured: bool) -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]))
    [base] = table.snapshot().files
    rows = rows_of("bcde", WIDE)
    most = max_encoded_bytes(rows, 4, len(SCHEMA)) + base.size_bytes - 1
    options: Any = {"hoodie.parquet.max.file.size": int(most), "hoodie.parquet.small.file.limit": limit}
    tagged = Tagged(*NOTHING, np.arange(4))
    ids = (base.name.file_id,) if closed else ()
    plan, _ = plan_of(table, job_of(table, **options), rows, tagged, closed=ids)
    assert (plan.sizing[""].empty_bytes > 0) == measured


@pytest.mark.parametrize(("more", "measured"), [(0, False), (1, True)])
def test_a_file_of_the_small_file_limit_takes_no_rows(more: int, measured: bool) -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]))
    [base] = table.snapshot().files
    rows = rows_of("bcde", WIDE)
    options: Any = {
        "hoodie.parquet.max.file.size": int(max_encoded_bytes(rows, 4, len(SCHEMA))),
        "hoodie.parquet.small.file.limit": base.size_bytes + more,
    }
    plan, _ = plan_of(table, job_of(table, **options), rows, Tagged(*NOTHING, np.arange(4)))
    assert (plan.sizing[""].empty_bytes > 0) == measured


def test_rows_that_cannot_be_encoded_count_half_of_their_maximum() -> None:
    table = a_table(schema=SCHEMA)
    rows = pa.table({RECORD_KEY: [*"abcd"], "id": [*"abcd"], "v": pa.array([[WIDE]] * 4)})
    plan, _ = plan_of(table, job_of(table, **LIMITS), rows, Tagged(*NOTHING, np.arange(4)))
    assert plan.sizing[""].row_bytes == max_encoded_bytes(rows, 4, len(SCHEMA)) / 4 / 2


def test_updates_alone_are_not_measured_though_a_file_may_be_smaller_than_its_footer() -> None:
    table = a_table(rows=a_batch(id=["a"], v=["x"]))
    limits: Any = {**LIMITS, "hoodie.parquet.max.file.size": 100}
    plan, _ = plan_of(table, job_of(table, **limits), rows_of("a"), Tagged(ints(0), ints(0), ints()))
    assert [each.rows.tolist() for each in plan.buckets] == [[0]]
    assert plan.sizing[""].empty_bytes == 0


def test_a_base_file_of_a_megabyte_is_rewritten_for_new_rows_only_if_these_are_as_many_bytes() -> None:
    table = a_table(rows=a_batch(id=["a"], v=[np.random.default_rng(0).bytes(1_200_000).hex()]), merge_on_read=True)
    [base] = table.snapshot().files
    assert 1 << 20 < base.size_bytes < 3_000_000
    fills = []
    for value in ("x", "x" * 1_500_000):
        plan, _ = plan_of(table, job_of(table), rows_of("b", value), Tagged(*NOTHING, ints(0)))
        fills += [each.base == base for each in plan.buckets]
    assert fills == [False, True]


def test_the_maximum_size_of_a_file_depends_on_the_bytes_of_a_row_and_not_on_the_number_of_examples() -> None:
    rows = pa.table({"n": np.arange(10), "m": np.arange(10)})
    assert max_encoded_bytes(rows[:1], 10, 2) == max_encoded_bytes(rows, 10, 2)


def test_the_mean_size_of_one_new_row_is_its_size() -> None:
    table = a_table(schema=SCHEMA)
    plan, step = plan_of(table, job_of(table), rows_of("a", WIDE), Tagged(*NOTHING, ints(0)))
    assert step["row_bytes"] == round(plan.sizing[""].row_bytes, 1)


def test_the_mean_size_of_a_row_counts_the_rows_of_each_partition() -> None:
    table = a_table(schema=SCHEMA)
    job, snapshot, report = job_of(table), table.snapshot(), Report(SystemClock(), "upsert", "t")
    rows = {"a": rows_of("abc"), "b": rows_of("d", WIDE)}
    tagged = {path: Tagged(*NOTHING, np.arange(len(of))) for path, of in rows.items()}
    rules = make_append_rules(job, snapshot, {})
    plan = assign_buckets(job, rows, tagged, snapshot, SCHEMA, report, append_rules=rules, closed_groups=frozenset())
    sizes = [plan.sizing[path].row_bytes for path in "ab"]
    assert report.steps[0]["row_bytes"] == round((3 * sizes[0] + sizes[1]) / 4, 1)
    assert [(each.partition_path, each.file_id) for each in plan.buckets] == [
        (path, derive_file_id(job.write_id, -1, at)) for at, path in enumerate("ab")
    ]
