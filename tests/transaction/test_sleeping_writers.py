"""A process sleeps between two steps of an undo or a plan on storage without locks. Then it goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Semaphore

import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import LockLostError, StorageError, WriteConflictError
from lakeformat.locks.file_lock import LOCK_PATH
from lakeformat.storage.port import OWN
from lakeformat.transaction.order.claims import HEARTBEATS
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, UnlockedStorage, is_decided, once
from tests.helpers.flights import NEXT, Model, Write, assert_whole, copy_of, make_template, open_at
from tests.helpers.tables import a_batch, a_schema

LONG = 60.0
ONCE = {"lakeformat.write.retries": 0}
OURS = Write("upsert", (1, 3, 4), "ours")
THEIRS = Write("upsert", (1, 7), "theirs")
COPY_ON_WRITE, MERGE_ON_READ = "COPY_ON_WRITE", "MERGE_ON_READ"


class Sleeper:
    """A process that falls asleep before some of its calls to the storage, until it is woken.

    Args:
        when: tells before which calls the process falls asleep.
        run: what the process does.
    """

    def __init__(
        self, storage: UnlockedStorage, when: Callable[[Call], bool], run: Callable[[lakeformat.Table], object]
    ) -> None:
        self._when, self._asleep, self._awake = when, Semaphore(0), Semaphore(0)
        table = open_at(FaultyStorage(storage, meanwhile=self._look), "ours", ONCE)
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(run, table)

    def _look(self, call: Call) -> None:
        if self._when(call):
            self._asleep.release()
            assert self._awake.acquire(timeout=LONG)

    def wait(self) -> None:
        """Wait until the process is asleep."""
        assert self._asleep.acquire(timeout=LONG)

    def wake(self) -> None:
        """Let the process go on."""
        self._awake.release()

    def finish(self) -> object:
        """Let the process go on to its end, and return its result."""
        for _ in range(100):
            self._awake.release()
        with self._pool:
            return self._done.result(LONG)


def age_writers(storage: UnlockedStorage) -> None:
    """Make every writer look dead: set its claim and its heartbeat to the year 1970."""
    for folder in (HEARTBEATS, f"{OWN}/pending"):
        for entry in storage.list(folder):
            os.utime(Path(storage.root, entry.path), (1, 1))


def table_of(table_type: str, folder: Path) -> tuple[UnlockedStorage, Model]:
    path, model = make_template(folder, version="9", table_type=table_type)
    return UnlockedStorage(copy_of(path, folder).root), model


def test_restore_that_begins_while_another_process_gives_it_up_is_finished(tmp_path: Path) -> None:
    storage, before = table_of(COPY_ON_WRITE, tmp_path)
    target = lakeformat.Table(storage).history()[0].instant_time
    OURS.run(open_at(storage, "first"))
    sleeper = Sleeper(storage, is_decided, lambda table: table.restore(target))
    sleeper.wait()
    sleeper.wake()
    sleeper.wait()  # The restore is requested, and is about to begin.
    age_writers(storage)

    def begin(_: Call) -> None:
        sleeper.wake()
        sleeper.wait()  # The restore has begun, and is about to undo the commit.

    with pytest.raises(WriteConflictError, match=r"restore\.requested is running"):
        THEIRS.run(open_at(FaultyStorage(storage, meanwhile=once(is_decided, begin)), "theirs", ONCE))
    sleeper.finish()
    assert_whole(storage, before)


def test_restore_whose_claim_is_removed_is_not_decided(tmp_path: Path) -> None:
    """The other writer has listed the claim and the timeline before the restore is decided."""
    storage, before = table_of(COPY_ON_WRITE, tmp_path)
    target = lakeformat.Table(storage).history()[0].instant_time
    OURS.run(open_at(storage, "first"))
    sleeper = Sleeper(storage, is_decided, lambda table: table.restore(target))
    sleeper.wait()
    age_writers(storage)
    (claim,) = (entry.name for entry in storage.list(f"{OWN}/pending"))

    def decide(_: Call) -> None:
        sleeper.wake()
        with pytest.raises(WriteConflictError, match=f"took restore {claim} .* for dead"):
            sleeper.finish()

    is_tidied = once(lambda call: call.path.endswith(f".temp/{claim}"), decide)
    THEIRS.run(open_at(FaultyStorage(storage, meanwhile=is_tidied), "theirs"))
    assert storage.list(f"{OWN}/pending") == []
    NEXT.run(open_at(storage, "next"))
    assert_whole(storage, NEXT.applied(THEIRS.applied(OURS.applied(before))))


def test_compaction_is_planned_again_after_a_rollback(tmp_path: Path) -> None:
    storage, before = table_of(MERGE_ON_READ, tmp_path)
    OURS.run(open_at(storage, "first"))
    rollback = once(is_decided, lambda _: lakeformat.Table(storage).rollback())
    table = open_at(FaultyStorage(storage, meanwhile=rollback), "ours")
    table.schedule_compaction()
    table.compact()
    assert_whole(storage, before)


def test_rollback_is_refused_if_a_plan_uses_the_commit_meanwhile(tmp_path: Path) -> None:
    storage, before = table_of(MERGE_ON_READ, tmp_path)
    OURS.run(open_at(storage, "first"))
    plan = once(is_decided, lambda _: lakeformat.Table(storage).schedule_compaction())
    with pytest.raises(WriteConflictError, match="was planned with the files of commit"):
        open_at(FaultyStorage(storage, meanwhile=plan), "ours").rollback()
    lakeformat.Table(storage).compact()
    assert_whole(storage, OURS.applied(before))


def is_placed(call: Call) -> bool:
    """Tell whether the call is the first one that brings files of a clustering into their partitions."""
    return call.path.endswith("/MARKERS.type")


def test_staged_file_that_another_process_has_deleted_is_a_conflict(tmp_path: Path) -> None:
    storage, before = table_of(COPY_ON_WRITE, tmp_path)
    delete = once(is_placed, lambda _: storage.delete_folder(f"{OWN}/stage"))
    with pytest.raises(WriteConflictError, match="was deleted by another process meanwhile"):
        open_at(FaultyStorage(storage, meanwhile=delete), "ours").cluster()
    assert_whole(storage, before)


def test_staged_files_that_cannot_be_deleted_keep_their_claim(tmp_path: Path) -> None:
    """So the next writer deletes them."""
    storage, before = table_of(COPY_ON_WRITE, tmp_path)

    def fails(_: int, call: Call) -> bool:
        return is_placed(call) or (call.name == "delete_folder" and "/stage/" in call.path)

    fault = Fault(fails, Mode.BEFORE, kills=False)
    with pytest.raises(StorageError, match="injected"):
        open_at(FaultyStorage(storage, fault), "ours").cluster()
    age_writers(storage)
    NEXT.run(open_at(storage, "next"))
    assert_whole(storage, NEXT.applied(before))


def old_table(path: Path, **options: object) -> lakeformat.Table:
    """Make a table of 16 commits that may all be archived. Return it as another process opens it."""
    table = lakeformat.create(
        path,
        a_schema(id="int64"),
        record_key="id",
        **{"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, **options},
    )
    for number in range(16):
        table.upsert(a_batch(id=[number]))
    for file in Path(path, ".hoodie").rglob("*.commit"):
        os.utime(file, (946_684_800, 946_684_800))
    return lakeformat.Table(UnlockedStorage(path), resolve({"hoodie.clean.automatic": False}))


def test_table_is_read_while_others_archive_twice(tmp_path: Path) -> None:
    path = tmp_path / "t"
    other = old_table(path)
    kept = [10, 4]

    def archive(call: Call) -> None:
        if kept and call.name == "read" and call.path.endswith(".commit"):
            assert other.archive(min_commits=kept.pop(0)).instants

    reader = lakeformat.Table(
        FaultyStorage(UnlockedStorage(path), meanwhile=archive), resolve({"lakeformat.file.index": False})
    )
    assert sorted(reader.to_arrow()["id"].to_pylist()) == list(range(16))
    assert not kept


def test_undo_beside_an_archiving_is_a_conflict(tmp_path: Path) -> None:
    """The lock's lease ends while the process sleeps, so another process archives a commit of the snapshot."""
    path = tmp_path / "t"
    other = old_table(path)

    def archive(_: Call) -> None:
        Path(path, LOCK_PATH).unlink()
        assert other.archive(min_commits=2, max_commits=3).instants

    is_read = once(lambda call: call.name == "list" and call.path == "", archive)
    with pytest.raises(WriteConflictError, match="was deleted by another process meanwhile"):
        lakeformat.Table(FaultyStorage(UnlockedStorage(path), meanwhile=is_read)).rollback()
    assert sorted(other.to_arrow()["id"].to_pylist()) == list(range(16))


@pytest.mark.parametrize("merges", [False, True])
def test_commits_that_two_processes_archive_are_read_once(merges: bool, tmp_path: Path) -> None:
    """The lock's lease ends while the first process archives, so the second one archives the same commits."""
    path = tmp_path / "t"
    other = old_table(path, **{"hoodie.write.table.version": 8})
    options = {"hoodie.timeline.compaction.batch.size": 2 if merges else 10, "hoodie.clean.automatic": False}
    second = lakeformat.Table(UnlockedStorage(path), resolve(options))

    def archive(_: Call) -> None:
        Path(path, LOCK_PATH).unlink()
        assert len(second.archive(min_commits=8).instants) == 8

    def is_written(call: Call) -> bool:
        return call.name == "replace" and "/history/" in call.path

    storage = FaultyStorage(UnlockedStorage(path), meanwhile=once(is_written, archive))
    with suppress(LockLostError):
        lakeformat.Table(storage, resolve(options)).archive(min_commits=4)
    assert sorted(other.to_arrow()["id"].to_pylist()) == list(range(16))
    assert len(other.history()) == 16
    assert str(other.check()) == "nothing is wrong"
    archived = other.context.store.read_archived()
    times = [instant.time for instant, _ in archived.commits(archived.completed_in(""))]
    assert sorted(times) == sorted(entry.instant_time for entry in other.history())[:12]
