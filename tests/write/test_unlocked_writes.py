"""Writers that work at the same time: they hold the lock only to begin and to publish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import WriteConflictError
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.write.append_session import find_bucket_places, publish_appended
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BucketPlaces, append_in_task, task_folder
from lakeformat.write.intake import plan_job
from lakeformat.write.session import WriteSession
from lakeformat.write.shuffled_session import ShuffledSession
from tests.helpers.faulty import Call, FaultyStorage, UnlockedStorage, once
from tests.helpers.flights import (
    SCHEMA,
    Model,
    Write,
    assert_whole,
    copy_of,
    make_template,
    open_at,
    rows_of,
)
from tests.helpers.local_shuffle import LocalTaskRunner, write_shuffled

KINDS = [
    (version, table_type, storage)
    for version, table_type in [("6", "COPY_ON_WRITE"), ("6", "MERGE_ON_READ"), ("9", "MERGE_ON_READ")]
    for storage in (LocalStorage, UnlockedStorage)
]
Kind = tuple[str, str, type[LocalStorage]]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join((*kind[:2], kind[2].__name__)))
ONCE = {"lakeformat.write.retries": 0}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}


def table_of(kind: Kind, folder: Path, **template: object) -> tuple[LocalStorage, Model]:
    path, model = make_template(folder, version=kind[0], table_type=kind[1], **template)
    return kind[2](copy_of(path, folder).root), model


def is_data(call: Call) -> bool:
    """Tell whether the call writes a data file of a partition."""
    return call.name == "open_output" and not call.path.startswith(".hoodie")


def beside(storage: LocalStorage, theirs: Write, options: Mapping[str, object] | None = None) -> FaultyStorage:
    """Return our storage. Before our first data file is written, another writer makes its whole write."""
    return FaultyStorage(storage, meanwhile=once(is_data, lambda _: theirs.run(open_at(storage, "theirs", options))))


def run_at_once(actions: Sequence[Callable[[], object]]) -> list[object]:
    """Run all actions in threads that start together. Return their results."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> object:
        start.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


@every_kind
def test_write_that_meets_another_in_the_same_files_keeps_both(kind: Kind, tmp_path: Path) -> None:
    """In timeline layout 1 both writers choose the same version for their log files. No file may replace another."""
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("upsert", (1, 3, 4), "ours"), Write("upsert", (3, 7), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours"))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_conflict_without_retries_is_raised(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("upsert", (1, 3, 4), "ours"), Write("upsert", (3, 7), "theirs")
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        ours.run(open_at(beside(storage, theirs), "ours", ONCE))
    assert_whole(storage, theirs.applied(before))


@every_kind
def test_two_upserts_of_one_new_key_leave_one_row(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("upsert", (300,), "ours"), Write("upsert", (300,), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours"))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_insert_that_drops_known_keys_leaves_the_other_writers_row(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    drop = {"hoodie.datasource.insert.dup.policy": "drop"}
    ours, theirs = Write("insert", (300, 301), "ours"), Write("insert", (300,), "theirs")
    ours.run(open_at(beside(storage, theirs, drop), "ours", drop))
    assert_whole(storage, ours.applied(before) | theirs.applied({}))


@every_kind
def test_delete_beside_an_upsert_deletes_no_other_row(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("delete", (1, 3), ""), Write("upsert", (1, 7, 301), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours"))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_update_by_condition_changes_rows_that_came_meanwhile(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("update", (1, 3), "ours"), Write("upsert", (1, 7), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours"))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_overwrite_of_a_partition_that_grew_meanwhile_is_a_conflict(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("insert_overwrite", (1, 4), "ours"), Write("insert", (301,), "theirs")
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        ours.run(open_at(beside(storage, theirs), "ours", ONCE))
    assert_whole(storage, theirs.applied(before))


@every_kind
def test_retried_overwrite_replaces_the_rows_that_came_meanwhile(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("insert_overwrite", (1, 4), "ours"), Write("insert", (301,), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours"))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_overwrite_beside_an_insert_into_another_partition_lands(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("insert_overwrite", (1, 4), "ours"), Write("insert", (300,), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours", ONCE))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_disjoint_upserts_at_once_do_not_conflict(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    writes = [Write("upsert", (first, first + 3, first + 300), f"w{first}") for first in range(3)]
    run_at_once(
        [lambda write=write: write.run(lakeformat.Table(storage, resolve(ONCE))) for write in writes]  # type: ignore[misc]
    )
    for write in writes:
        before = write.applied(before)
    assert_whole(storage, before)


@pytest.mark.slow
@every_kind
def test_overlapping_upserts_of_four_writers_lose_nothing(kind: Kind, tmp_path: Path) -> None:
    """Each write changes one shared row, and adds a row of its own."""
    storage, model = table_of(kind, tmp_path)
    options = resolve({"lakeformat.write.retries": 100})
    done: list[tuple[str, Write]] = []

    def work(writer: int) -> None:
        for round_number in range(5):
            write = Write("upsert", (0, 300 + 3 * (writer * 5 + round_number)), f"w{writer}-{round_number}")
            done.append((lakeformat.Table(storage, options).upsert(write.rows).instant_time, write))

    run_at_once([lambda writer=writer: work(writer) for writer in range(4)])  # type: ignore[misc]
    for _, write in sorted(done, key=lambda each: each[0]):
        model = write.applied(model)
    assert len(done) == 20
    assert_whole(storage, model)


@every_kind
def test_batch_that_two_runs_write_at_once_lands_once(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    options = resolve({"lakeformat.batch.app": "job", "lakeformat.batch.id": "7"})
    write = Write("upsert", (1, 300), "batch")
    results = run_at_once([lambda: lakeformat.Table(storage, options).upsert(write.rows)] * 2)
    assert sorted(isinstance(each, WriteResult) and bool(each.skipped) for each in results) == [False, True]
    assert_whole(storage, write.applied(before))


@every_kind
def test_insert_always_lands_beside_an_upsert_of_the_same_file(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    packing = {**ONCE, "hoodie.parquet.small.file.limit": 100_000_000}
    ours, theirs = Write("insert", (301, 304), "ours"), Write("upsert", (1, 7), "theirs")
    ours.run(open_at(beside(storage, theirs), "ours", packing))
    assert_whole(storage, ours.applied(theirs.applied(before)))


# --- buckets ----------------------------------------------------------------------------------------------


def bucket_table(folder: Path, version: str = "9", **more: str) -> lakeformat.Table:
    path = folder / "t"
    values = {**BUCKETS, "hoodie.write.table.version": version, "table_type": "MERGE_ON_READ", **more}
    return lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="v", **values)


def open_bucket_table(table: lakeformat.Table, name: str, **more: object) -> lakeformat.Table:
    return open_at(table.context.storage, name, {**BUCKETS, **more})


def bucket_beside(table: lakeformat.Table, theirs: Write, **more: object) -> lakeformat.Table:
    """Return our table, in which another writer makes its write before our first data file is written."""
    other = once(is_data, lambda _: theirs.run(open_bucket_table(table, "theirs", **more)))
    storage = table.context.storage
    assert isinstance(storage, LocalStorage)
    return open_at(FaultyStorage(storage, meanwhile=other), "ours", {**BUCKETS, **more})


@pytest.mark.parametrize("version", ["8", "9"])
def test_appends_to_the_same_buckets_do_not_conflict(version: str, tmp_path: Path) -> None:
    table = bucket_table(tmp_path, version)
    first = Write("upsert", tuple(range(12)), "a")
    first.run(open_bucket_table(table, "first"))
    ours, theirs = Write("upsert", (0, 1, 300), "c"), Write("upsert", (0, 3, 303), "b")
    ours.run(bucket_beside(table, theirs, **ONCE))
    assert rows_of(table.context.storage) == ours.applied(theirs.applied(first.applied({})))
    assert str(table.check()) == "nothing is wrong"


def test_delete_in_a_bucket_is_a_conflict_for_an_append(tmp_path: Path) -> None:
    table = bucket_table(tmp_path)
    first = Write("upsert", tuple(range(12)), "a")
    first.run(open_bucket_table(table, "first"))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        Write("upsert", (0, 1), "c").run(bucket_beside(table, Write("delete", (0,), ""), **ONCE))
    assert rows_of(table.context.storage) == Write("delete", (0,), "").applied(first.applied({}))


def test_two_first_writers_of_a_bucket_leave_one_file_group(tmp_path: Path) -> None:
    table = bucket_table(tmp_path)
    ours, theirs = Write("upsert", (0, 3), "c"), Write("upsert", (0, 6), "b")
    ours.run(bucket_beside(table, theirs))
    assert rows_of(table.context.storage) == ours.applied(theirs.applied({}))
    assert str(table.check()) == "nothing is wrong"


def test_two_first_writers_of_a_bucket_with_a_fixed_id_do_not_conflict(tmp_path: Path) -> None:
    table = bucket_table(tmp_path)
    ours, theirs = Write("upsert", (0, 3), "c"), Write("upsert", (0, 6), "b")
    ours.run(bucket_beside(table, theirs, **ONCE, **NON_BLOCKING))
    assert rows_of(table.context.storage) == ours.applied(theirs.applied({}))
    ids = {piece.group.file_id for piece in table.snapshot().each_slice()}
    assert {file_id[8:] for file_id in ids} == {"-0000-0000-0000-000000000000-0"}
    assert str(table.check()) == "nothing is wrong"


@pytest.mark.parametrize(("version", "is_first"), [("6", False), ("9", False), ("9", True)])
def test_log_files_of_tasks_follow_a_bucket_that_changed_meanwhile(
    version: str, is_first: bool, tmp_path: Path
) -> None:
    """Tasks wrote their log files for the buckets of the beginning. The driver publishes them without writing again."""
    table = bucket_table(tmp_path, version)
    first = Write("upsert", (0, 3, 6), "a")
    if not is_first:
        first.run(open_bucket_table(table, "first"))
    ours, theirs = Write("upsert", (0, 3, 9), "c"), Write("upsert", (0, 6, 12), "b")
    options, context = resolve(BUCKETS), table.context
    snapshot = table.snapshot()
    job = plan_job(context.store, snapshot, options.with_values(operation="upsert"), SCHEMA, context.ids)
    session = WriteSession(context, job)
    places = find_bucket_places(context.storage, job, snapshot)
    assert isinstance(places, BucketPlaces)
    with session.transaction.run_unlocked(snapshot.timeline.commit_times) as commit:
        handles = HandleSettings.of(job, commit.time, job.final_schema(snapshot))
        handles = replace(handles, folder=task_folder(job))
        tasks = [
            append_in_task(context.storage, job, handles, places, ours.rows.slice(at, 2).to_batches(), at, at)[1]
            for at in (0, 2)
        ]
        theirs.run(open_bucket_table(table, "theirs"))
        written = [file for task in tasks for file in task]
        publish_appended(session, commit, job.final_schema(snapshot), places, written, 3)
    expected = theirs.applied({} if is_first else first.applied({}))
    assert rows_of(context.storage) == ours.applied(expected)
    assert str(table.check()) == "nothing is wrong"


# --- writes whose tasks write the files -------------------------------------------------------------------


@every_kind
def test_shuffled_upsert_is_repeated_from_its_staged_rows(kind: Kind, tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("upsert", (1, 3, 4), "ours"), Write("upsert", (3, 7), "theirs")
    other = once(lambda call: call.name == "open_output" and "/files/" in call.path, run(storage, theirs))
    table = open_at(FaultyStorage(storage, meanwhile=other), "ours")
    write_shuffled(table, [ours.rows.slice(0, 1), ours.rows.slice(1)], Operation.UPSERT)
    assert_whole(storage, ours.applied(theirs.applied(before)))


@every_kind
def test_rows_of_a_direct_write_go_into_new_files_after_a_conflict(kind: Kind, tmp_path: Path) -> None:
    """The tasks have staged rows that were too few for a file. The driver adds them to a small file, which changes."""
    storage, before = table_of(kind, tmp_path)
    ours, theirs = Write("insert", (301, 304), "ours"), Write("upsert", (1, 7), "theirs")
    other = once(lambda call: call.name == "open_output" and "/files/" in call.path, run(storage, theirs))
    table = open_at(FaultyStorage(storage, meanwhile=other), "ours", {"hoodie.parquet.small.file.limit": 100_000_000})
    context, snapshot = table.context, table.snapshot()
    job = plan_job(context.store, snapshot, table.options.with_values(operation="insert"), SCHEMA, context.ids)
    runner = LocalTaskRunner(table, job)
    session = ShuffledSession(context, job, runner)
    with session.session.transaction.run_unlocked(snapshot.timeline.commit_times) as commit:
        session.publish(commit, (), runner.stage([ours.rows]), snapshot)
    assert_whole(storage, ours.applied(theirs.applied(before)))


def run(storage: LocalStorage, write: Write) -> Callable[[Call], None]:
    return lambda _: write.run(open_at(storage, "theirs"))
