"""Rollbacks and restores keep the metadata tables that Hudi made, whether or not they were compacted since."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat.codec.timeline_files.recovery import RollbackPlan, decode_rollback_plan, encode_rollback_plan
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.metadata_table.compaction import compact, last_compaction
from lakeformat.metadata_table.names import FOLDER, MetadataPartition
from lakeformat.model.instant import instant_time_before, next_instant_time
from lakeformat.storage import LocalStorage
from lakeformat.storage.port import SystemClock
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.undo.commit_undo import CommitUndo, choose_files
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.fixture_tables import unpack
from tests.helpers.flights import open_at
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import LAYOUTS, LONG_LAYOUTS, TABLES, assert_kept, changed, rows_of


def keys_of(path: Path) -> dict[str, tuple[str, str]]:
    """Return what the record index says of all keys."""
    metadata = open_table(path)
    assert metadata is not None
    found = metadata.record_index().to_pylist()
    return {row["key"]: (row["partition_path"], row["file_id"]) for row in found}


def names_of(path: Path) -> set[str]:
    metadata = open_table(path)
    assert metadata is not None
    return set(metadata.names)


def compactions(path: Path) -> str:
    metadata = open_table(path)
    assert metadata is not None
    return last_compaction(metadata)


def new_rows(rows: pa.Table, name: str) -> pa.Table:
    return rows.set_column(0, "id", pa.array([f"{name}{number}" for number in range(len(rows))]))


def write_all(table: lakeformat.Table, rows: pa.Table, name: str) -> None:
    """Update, insert, move rows to other file groups, and delete."""
    table.upsert(changed(rows.slice(0, 3)))
    table.insert(new_rows(rows.slice(0, 3), name))
    table.delete(rows.slice(4, 2))
    table.cluster(by=["qty", "ts"])
    table.insert_overwrite(rows.slice(1, 2))
    table.upsert(new_rows(rows.slice(0, 2), f"{name}-more"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_rollback_of_each_kind_of_commit_takes_back_what_it_recorded(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow(where="region <> 'mars'")  # Hudi has left a row of this region in the partition of another.
    table.overwrite(rows)
    actions = {
        "upsert": lambda: table.upsert(changed(rows.slice(0, 3))),
        "insert": lambda: table.insert(new_rows(rows.slice(0, 3), "new")),
        "delete": lambda: table.delete(rows.slice(0, 2)),
        "cluster": lambda: table.cluster(by=["qty", "ts"]),
        "insert_overwrite": lambda: table.insert_overwrite(rows.slice(0, 2)),
    }
    for action in actions.values():
        before, keys, partitions = rows_of(table), keys_of(path), names_of(path)
        action()
        table.rollback()
        assert_kept(path)
        assert rows_of(table) == before
        assert keys_of(path) == keys
        assert names_of(path) == partitions
        table.upsert(rows.slice(0, 1))
        assert_kept(path)
    hudi_rs.assert_same_rows(table)


@pytest.mark.parametrize("compacts", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["logs", "compacted"])
@pytest.mark.parametrize("name", LONG_LAYOUTS)
def test_restore_takes_back_what_was_recorded_since(name: str, compacts: bool, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow(where="region <> 'mars'")
    table.overwrite(rows)
    while compacts and table_logs(path) < 8:
        table.upsert(rows.slice(0, 1))
    target, before, keys, partitions = table.history()[0].instant_time, rows_of(table), keys_of(path), names_of(path)
    compacted = compactions(path)
    write_all(table, rows, "new")
    if compacts:
        write_all(table, rows, "newer")
        assert compactions(path) > max(compacted, target)
    table.restore(target)
    assert_kept(path)
    assert rows_of(table) == before
    assert keys_of(path) == keys
    # Merged statistics of partitions cannot be taken back.
    assert names_of(path) == partitions - ({"partition_stats"} if compacts else set())
    write_all(table, rows, "again")
    assert_kept(path)
    hudi_rs.assert_same_rows(table)


def table_logs(path: Path) -> int:
    metadata = open_table(path)
    assert metadata is not None
    return len(metadata.list_slices(MetadataPartition.FILES)[0].logs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_rollback_of_a_commit_that_a_clean_has_merged(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow(where="region <> 'mars'")
    table.overwrite(rows)
    while table_logs(path) < 10:
        table.upsert(rows.slice(0, 1))
    before, keys = rows_of(table), keys_of(path)
    big = lakeformat.open(path, **{"hoodie.parquet.small.file.limit": "0"})
    commit = big.insert(new_rows(rows.slice(0, 3), "new")).instant_time
    table.clean(commits=2)
    assert compactions(path) > commit
    table.rollback()
    assert_kept(path)
    assert rows_of(table) == before
    assert keys_of(path) == keys


@pytest.mark.slow
def test_rollback_by_a_plan_of_another_program_records_all_files_of_a_partition(tmp_path: Path) -> None:
    """Such a plan has a request for each file group."""
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow(where="region <> 'mars'")
    table.overwrite(rows)
    while table_logs(path) < 10:
        table.upsert(rows.slice(0, 1))
    before = rows_of(table)
    new_files = {"hoodie.parquet.small.file.limit": "0", "hoodie.parquet.max.file.size": "1"}
    twice = pa.concat_tables([new_rows(rows.slice(0, 1), "new"), new_rows(rows.slice(0, 1), "newer")])
    commit = lakeformat.open(path, **new_files).insert(twice).instant_time
    table.clean(commits=2)
    assert compactions(path) > commit
    store = TimelineStore(LocalStorage(str(path)))
    victim = next(each for each in store.load().commits if each.time == commit)
    undoing = CommitUndo(store, store.config(), SystemClock())
    files = choose_files(store, victim, list_files(store.storage), frozenset())
    assert [len(names) for names in files.values()] == [2]
    rollback = undoing.begin(victim, files)
    (request,) = decode_rollback_plan(store.read(rollback), name="").requests
    requests = tuple(replace(request, files_to_delete=(file,)) for file in request.files_to_delete)
    store.storage.replace(
        store.path(rollback), encode_rollback_plan(RollbackPlan(commit, victim.action.value, requests))
    )
    undoing.roll_back(rollback)
    assert_kept(path)
    assert rows_of(table) == before


def test_nothing_is_dropped_by_a_restore_or_rollback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow()
    table.upsert(changed(rows.slice(0, 1)))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lakeformat"):
        table.upsert(changed(rows.slice(0, 2)))
        table.upsert(changed(rows.slice(2, 2)))
        table.rollback()
        table.restore(table.history()[1].instant_time)
    assert not [record for record in caplog.records if "metadata table" in record.getMessage()]
    metadata = open_table(path)
    assert metadata is not None
    assert set(pc.unique(metadata.files()["partition_path"]).to_pylist()) == set(table.snapshot().slices)


def test_rollback_whose_deltacommit_another_process_writes_is_a_conflict(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    storage = LocalStorage(str(path))
    rows = lakeformat.open(path).to_arrow()
    lakeformat.open(path).upsert(changed(rows.slice(0, 2)))

    def is_requested(call: Call) -> bool:
        return call.name == "create" and FOLDER in call.path and call.path.endswith(".deltacommit.requested")

    meeting = FaultyStorage(storage, meanwhile=once(is_requested, lambda call: storage.create(call.path, b"")))
    with pytest.raises(WriteConflictError, match="another process writes"):
        open_at(meeting, "writer").rollback()
    open_at(storage, "next").upsert(changed(rows.slice(3, 2)))
    assert_kept(path)


def test_a_compaction_passes_over_the_times_of_undone_writes(tmp_path: Path) -> None:
    """A log file of an undone write may arrive later. At the time of a compaction it would count as completed."""
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path / "table")

    def compact_without(name: str, undone: frozenset[str]) -> str:
        copy = shutil.copytree(path, tmp_path / name)
        store = TimelineStore(LocalStorage(copy))
        metadata, ours = open_table(copy), next_instant_time(0, store.load().last_time or "", store.config().zone)
        assert metadata is not None
        assert compact(metadata, store.load(), ours, undone=undone)
        after = open_table(copy)
        assert after is not None
        return last_compaction(after)

    newest = compact_without("none", frozenset())
    second = compact_without("one", frozenset({newest}))
    assert second == instant_time_before(newest)
    assert compact_without("two", frozenset({newest, second})) == instant_time_before(second)
