"""Savepoint, restore and rollback and the rest of the table: refusals, index, batches, readers that began before."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import (
    CorruptTableError,
    InstantNotAvailableError,
    InvalidInputError,
    WriteConflictError,
)
from lakeformat.model.instant import Action, State
from lakeformat.transaction.undo.commit_undo import CommitUndo
from tests.helpers import hudi_rs
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", v="string")


def rows(ids: range, v: str) -> pa.Table:
    return a_batch(SCHEMA, id=ids, v=v)


def read(table: lakeformat.Table) -> dict[int, str]:
    found = table.to_arrow(meta_columns=False)
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def table(tmp_path: Path) -> lakeformat.Table:
    """Return a table of three commits: 0-9 are a, 5-14 are b, 0-2 are c."""
    commits = [rows(range(10), "a"), rows(range(5, 15), "b"), rows(range(3), "c")]
    return a_table(tmp_path / "t", rows=commits, operation="upsert")


def instants(table: lakeformat.Table) -> list[str]:
    return [entry.instant_time for entry in reversed(table.history())]


def test_restore_to_a_savepoint_works_after_cleaning(table: lakeformat.Table) -> None:
    first, second, _ = instants(table)
    state = {**dict.fromkeys(range(5), "a"), **dict.fromkeys(range(5, 15), "b")}
    saved = table.savepoint(second, comment="before the change", user="me")
    assert (saved.instant_time, saved.comment, saved.user) == (second, "before the change", "me")
    for number in range(5):
        table.upsert(rows(range(3), f"d{number}"))
    table.clean(commits=1)
    with pytest.raises(InstantNotAvailableError, match="cleaned away"):
        table.savepoint(first)
    undone = table.restore(second).undone
    assert len(undone) == 6
    assert read(table) == state
    assert instants(table) == [first, second]
    table.upsert(rows(range(100, 101), "e"))
    assert read(table) == {**state, 100: "e"}


def test_refused_restore_says_why_and_changes_nothing(table: lakeformat.Table) -> None:
    first, second, third = instants(table)
    before = sorted(os.listdir(Path(table.context.storage.location, ".hoodie")))
    with pytest.raises(InstantNotAvailableError, match="is not a commit"):
        table.restore("20300101000000000")
    with pytest.raises(InstantNotAvailableError, match="oldest commit that is not archived"):
        table.savepoint("20000101000000000")
    with pytest.raises(InvalidInputError, match=f"not the last commit, which is {third}"):
        table.rollback(first)
    with pytest.raises(InvalidInputError, match="no savepoint"):
        table.delete_savepoint(first)
    assert sorted(os.listdir(Path(table.context.storage.location, ".hoodie"))) == before
    table.savepoint(third)
    with pytest.raises(InvalidInputError, match="has a savepoint already"):
        table.savepoint(third)
    for going in (lambda: table.restore(second), table.rollback):
        with pytest.raises(InvalidInputError, match="held by a savepoint"):
            going()
    assert instants(table) == [first, second, third]


@pytest.mark.parametrize("pending", ["20300101000000000.commit.requested", "20300101000000000.clean.requested"])
def test_restore_beside_a_pending_write_or_clean_is_refused(pending: str, table: lakeformat.Table) -> None:
    first = instants(table)[0]
    Path(table.context.storage.location, ".hoodie", pending).touch()
    for going in (lambda: table.restore(first), table.rollback):
        with pytest.raises(WriteConflictError, match="pending"):
            going()
    assert len(instants(table)) == 3


def test_repeated_rollback_ends_at_an_empty_table(table: lakeformat.Table) -> None:
    times = instants(table)
    assert table.rollback().target == times[1]
    assert read(table) == {**dict.fromkeys(range(5), "a"), **dict.fromkeys(range(5, 15), "b")}
    table.rollback(times[1])
    assert read(table) == dict.fromkeys(range(10), "a")
    assert table.rollback().target is None
    assert table.to_arrow().num_rows == 0
    with pytest.raises(InstantNotAvailableError, match="nothing to roll back"):
        table.rollback()
    table.upsert(rows(range(2), "z"))
    assert read(table) == {0: "z", 1: "z"}


def test_last_commit_before_an_archive_is_not_rolled_back(table: lakeformat.Table) -> None:
    """With an empty timeline, files of archived commits would not count as committed."""
    table = lakeformat.open(table.context.storage.location, **{"hoodie.clean.commits.retained": 1})
    for number in range(3):
        table.upsert(rows(range(3), f"d{number}"))
    assert table.archive(min_commits=2).instants
    oldest = table.snapshot().timeline.commits[0].time
    table.restore(oldest)
    state = read(table)
    with pytest.raises(
        InstantNotAvailableError, match=f"cannot roll {oldest} back: all commits before it are archived"
    ):
        table.rollback()
    assert read(table) == state
    assert len(state) == 15


def test_restore_undoes_clusterings_replaced_partitions_and_new_columns(table: lakeformat.Table) -> None:
    last, state = instants(table)[-1], read(table)
    table.cluster(by="id")
    wider = rows(range(3), "n").append_column("extra", pa.array([1, 2, 3]))
    table.upsert(wider)
    table.overwrite(rows(range(50, 60), "o"))
    table.restore(last)
    assert read(table) == state
    assert table.to_arrow(meta_columns=False).column_names == SCHEMA.names
    table.cluster(by="id")
    assert read(table) == state


def test_index_changes_and_batch_ids_are_right_after_a_restore(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"lakeformat.file.index.commits": 2})
    for number in range(6):
        batch = {"lakeformat.batch.app": "app", "lakeformat.batch.id": number}
        lakeformat.open(tmp_path / "t", **batch).upsert(rows(range(number, number + 5), f"v{number}"))
    times = instants(table)
    table.restore(times[2])
    fresh = lakeformat.open(tmp_path / "t")
    expected = {0: "v0", 1: "v1", **dict.fromkeys(range(2, 7), "v2")}
    assert read(fresh) == expected
    assert read(lakeformat.open(tmp_path / "t", **{"lakeformat.file.index": False})) == expected
    again = lakeformat.open(tmp_path / "t", **{"lakeformat.batch.app": "app", "lakeformat.batch.id": 3})
    assert not again.upsert(rows(range(3, 8), "again")).skipped
    assert read(fresh) == expected | dict.fromkeys(range(3, 8), "again")


def test_reader_of_rolled_back_files_gets_an_error(table: lakeformat.Table) -> None:
    batches = table.to_batches()
    table.rollback()
    with pytest.raises(CorruptTableError, match="taken back by a rollback or restore while it was read; read"):
        list(batches)


def test_restore_metadata_names_the_undone_commits(table: lakeformat.Table) -> None:
    first, second, third = instants(table)
    done = table.restore(first)
    store = table.context.store
    (restore,) = store.load().of_action(Action.RESTORE)
    assert restore.time == done.instant_time
    plan = store.read_restore_plan(restore)
    assert plan is not None
    assert (plan.target, plan.instants) == (first, ((third, "commit"), (second, "commit")))
    assert done.undone == (third, second)


def test_a_restore_whose_process_slept_leaves_later_rollbacks_alone(table: lakeformat.Table) -> None:
    table.restore(instants(table)[1])
    table.upsert(rows(range(3), "later"))
    context = table.context
    undoing = CommitUndo(context.store, context.store.config(), context.clock)
    timeline = context.store.load()
    rollback = undoing.begin(timeline.commits[-1], {})
    (restore,) = timeline.of_action(Action.RESTORE)
    plan = context.store.read_restore_plan(restore)
    assert plan is not None
    undoing.restore(restore.at(State.INFLIGHT), plan)  # Its process did not see that another one has finished it.
    assert context.store.load().of_action(Action.ROLLBACK) == (rollback,)
    undoing.roll_back(rollback)
    assert read(table) == {**dict.fromkeys(range(5), "a"), **dict.fromkeys(range(5, 15), "b")}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_restore_works_in_every_version_and_kind_of_table(version: int, kind: str, tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    table.upsert(rows(range(10), "a"))
    table.upsert(rows(range(5, 15), "b"))
    saved, state = table.savepoint().instant_time, read(table)
    table.upsert(rows(range(3), "c"))
    before = read(table)
    table.upsert(rows(range(2, 4), "d"))
    table.rollback()
    assert read(table) == before
    table.upsert(rows(range(20, 22), "e"))
    if kind == "MERGE_ON_READ":
        table.compact()
    table.upsert(rows(range(1, 6), "f"))
    assert len(table.restore(saved).undone) == (4 if kind == "MERGE_ON_READ" else 3)
    assert read(table) == state
    assert not table.check()
    table.upsert(rows(range(3), "z"))
    assert read(table) == {**state, **dict.fromkeys(range(3), "z")}
    hudi_rs.assert_same_rows(table)
    assert not table.check()


def test_rollback_of_a_commit_with_a_dependent_plan_is_refused(table: lakeformat.Table) -> None:
    second = instants(table)[1]
    planned = table.schedule_clustering(by="id")
    with pytest.raises(WriteConflictError, match=f"{planned}.* was planned with the files of commit"):
        table.rollback()
    assert planned in table.restore(second).undone
    assert read(table) == {**dict.fromkeys(range(5), "a"), **dict.fromkeys(range(5, 15), "b")}
    assert not table.check()
