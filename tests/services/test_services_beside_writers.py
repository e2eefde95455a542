"""Services beside writers, and beside another run of the same service: every step may fall between two of theirs.

Each case runs once for every changing call of the service. Directly before that call, the other process does its whole
work. Then the rows are those of a dict model, no live file is missing, and the next writer finds nothing to repair.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.codec.timeline_files.archive import InstantToArchive
from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidInputError, LockTimeoutError, WriteConflictError
from lakeformat.locks.file_lock import LOCK_PATH
from lakeformat.model.instant import Action
from lakeformat.storage import LocalStorage
from lakeformat.timeline.archive import read_lsm_history
from lakeformat.timeline.archive_writer import write_history
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import LATEST_REQUEST_MS
from tests.helpers.faulty import (
    Call,
    CountingIds,
    Crash,
    Fault,
    FaultyStorage,
    Mode,
    SteppingClock,
    UnlockedStorage,
    once,
)
from tests.helpers.flights import NEXT, Model, Write, copy_of, grow_old, leftovers, make_template, rows_of

PAST = (
    Write("bulk_insert", tuple(range(9)), "first"),
    Write("upsert", (0, 4, 8, 9), "second"),
    Write("upsert", (0, 1, 2), "third"),
    Write("upsert", (3, 4, 5, 12), "fourth"),
    Write("upsert", (0, 1, 2), "fifth"),
)
THEIRS = Write("upsert", (1, 3, 70), "theirs")
#: The other process does not wait for the lock that the service holds: it is refused.
AT_ONCE = {"hoodie.write.lock.wait_time_ms": 0, "lakeformat.write.retries": 0, "hoodie.clean.automatic": False}


@dataclass(frozen=True)
class Service:
    """A service, the table that it works on, and the rows that it leaves."""

    run: Callable[[lakeformat.Table], Any]
    leaves: Callable[[Sequence[Model]], Model] = lambda models: models[-1]
    version: str = "8"
    table_type: str = "COPY_ON_WRITE"


def expire(table: lakeformat.Table) -> object:
    """Expire all partitions, whose commits are of January 2025, in October."""
    late = SteppingClock(1_761_000_000_000)
    return lakeformat.Table(table.context.storage, table.options, clock=late).expire_partitions(days=100)


def instant(table: lakeformat.Table, number: int) -> str:
    """Return the instant time of the past write with this number."""
    return sorted(entry.instant_time for entry in table.history())[number]


SERVICES = {
    "clean": Service(lambda table: table.clean(commits=1)),
    "clean of versions": Service(lambda table: table.clean(versions=1), version="6"),
    "archive": Service(lambda table: table.archive(min_commits=1, max_commits=2)),
    "archive of logs": Service(lambda table: table.archive(min_commits=1, max_commits=2), version="6"),
    "cluster": Service(lambda table: table.cluster(["v"])),
    "compact": Service(lambda table: table.compact(), table_type="MERGE_ON_READ"),
    "compact 6": Service(lambda table: table.compact(), version="6", table_type="MERGE_ON_READ"),
    "savepoint": Service(lambda table: table.savepoint()),
    "restore": Service(lambda table: table.restore(instant(table, 2)), lambda models: models[2]),
    "restore of logs": Service(
        lambda table: table.restore(instant(table, 2)), lambda models: models[2], table_type="MERGE_ON_READ"
    ),
    "rollback": Service(lambda table: table.rollback(), lambda models: models[3], version="6"),
    "repair": Service(lambda table: table.repair()),
    "expire": Service(expire, lambda models: {}),
    "upgrade": Service(lambda table: table.upgrade(8), version="6"),
    "downgrade": Service(lambda table: table.downgrade(6)),
}
KINDS = {"flock": LocalStorage, "unlocked": UnlockedStorage}
#: Each service on each storage. On storage with locks a service and a writer take turns, which rarely tells anything.
EACH = [
    pytest.param(
        name,
        kind,
        id=f"{name}-{kind}",
        marks=() if name in {"clean", "restore"} else pytest.mark.slow if kind == "unlocked" else pytest.mark.nightly,
    )
    for name in SERVICES
    for kind in KINDS
]


@dataclass(frozen=True)
class Case:
    """A table with a past, of which each run gets a copy."""

    template: Path
    models: Sequence[Model]
    kind: str
    folder: Path

    def copy(self) -> LocalStorage:
        """Copy the table. All its commits but the last are older than any late request."""
        storage = KINDS[self.kind](copy_of(self.template, self.folder).root)
        store = TimelineStore(storage)
        for instant in store.load().commits[:-1]:
            path = Path(storage.root, store.path(instant))
            past = path.stat().st_mtime - LATEST_REQUEST_MS / 1000 - 1
            os.utime(path, (past, past))
        return storage


def make_case(service: Service, kind: str, folder: Path) -> Case:
    path, _ = make_template(folder, PAST, version=service.version, table_type=service.table_type)
    models: list[Model] = []
    for write in PAST:
        models.append(write.applied(models[-1] if models else {}))
    return Case(path, models, kind, folder)


def open_by(
    storage: LocalStorage | FaultyStorage, name: str, options: Mapping[str, object] | None = None
) -> lakeformat.Table:
    return lakeformat.Table(
        storage, resolve({**AT_ONCE, **(options or {})}), clock=SteppingClock(), ids=CountingIds(name)
    )


def count_changes(case: Case, service: Service) -> int:
    """Count the changing calls of the service, which must do something."""
    recorder = FaultyStorage(case.copy())
    result = service.run(open_by(recorder, "alone"))
    assert not getattr(result, "skipped", "")
    return sum(call.changes for call in recorder.calls)


@dataclass
class Outcome:
    """What a service and the other process returned; None if they were refused."""

    service: object = None
    other: object = None


def run_beside(
    storage: LocalStorage,
    service: Service,
    number: int,
    other: Callable[[lakeformat.Table], object],
    options: Mapping[str, object] | None = None,
) -> Outcome:
    """Run a service, and the other process before the changing call of this number."""
    seen, outcome = [0], Outcome()

    def meanwhile(call: Call) -> None:
        seen[0] += call.changes
        if call.changes and seen[0] == number + 1:
            outcome.other = result_of(other, open_by(storage, "other"))

    table = open_by(FaultyStorage(storage, meanwhile=meanwhile), "service", options)
    outcome.service = result_of(service.run, table)
    return outcome


def result_of(act: Callable[[lakeformat.Table], object], table: lakeformat.Table) -> object:
    """Return the result, or None if the process was refused."""
    try:
        return act(table) or "done"
    except (WriteConflictError, LockTimeoutError, InvalidInputError):
        return None


def was_undone_by(result: object, past: frozenset[str]) -> bool:
    """Tell whether a restore or rollback has undone the commit of the other process, and says so."""
    return bool(set(getattr(result, "undone", ())) - past)


def assert_whole(storage: LocalStorage, expected: Model) -> None:
    """Check the rows, then let the next writer recover the table, and check it as a whole."""
    assert rows_of(storage) == expected
    grow_old(Path(storage.root))
    table = open_by(storage, "next")
    NEXT.run(table)
    pending = {instant.action for instant in TimelineStore(storage).load().pending}
    if Action.COMPACTION in pending:
        table.run_compaction()
    if Action.CLEAN in pending:
        table.clean(commits=3)
    assert rows_of(storage) == NEXT.applied(expected)
    assert leftovers(storage) == []
    assert str(lakeformat.Table(storage).check()) == "nothing is wrong"


def numbers(count: int, most: int) -> list[int]:
    """Return at most this many numbers below ``count``, evenly spread."""
    return sorted({at * count // most for at in range(most)}) if count > most else list(range(count))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_service_beside_a_writer_keeps_all_rows(name: str, kind: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    case = make_case(service, kind, tmp_path)
    past = frozenset(entry.instant_time for entry in lakeformat.Table(case.copy()).history())
    both = 0
    for number in numbers(count_changes(case, service), 6):
        storage = case.copy()
        outcome = run_beside(storage, service, number, THEIRS.run)
        ran, wrote = outcome.service is not None, outcome.other is not None
        if ran and wrote and (name == "expire" or was_undone_by(outcome.service, past)):
            orders = [service.leaves(case.models), THEIRS.applied(service.leaves(case.models))]
            orders = orders if name == "expire" else [case.models[-1]] if name == "rollback" else orders[:1]
            expected = next(rows for rows in orders if rows == rows_of(storage))
        else:
            expected = service.leaves(case.models) if ran else case.models[-1]
            expected = THEIRS.applied(expected) if wrote else expected
        assert_whole(storage, expected)
        both += ran and wrote
    assert both


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_writer_beside_a_service_succeeds_by_a_retry(name: str, kind: str, tmp_path: Path) -> None:
    """The service runs before each changing call of a writer, who retries. On flock it is refused at some of them."""
    service = SERVICES[name]
    case = make_case(service, kind, tmp_path)
    past = frozenset(entry.instant_time for entry in lakeformat.Table(case.copy()).history())
    recorder = FaultyStorage(case.copy())
    THEIRS.run(open_by(recorder, "alone"))
    ran = 0
    for number in numbers(sum(call.changes for call in recorder.calls), 6):
        storage = case.copy()
        outcome = run_beside(storage, Service(THEIRS.run), number, service.run, {"lakeformat.write.retries": 3})
        # A write that was planned for another table version cannot be retried by itself.
        assert outcome.service is not None or name in {"upgrade", "downgrade"}, f"refused at call {number}"
        did = outcome.other is not None and not getattr(outcome.other, "skipped", "")
        before = service.leaves(case.models) if did else case.models[-1]
        after = THEIRS.applied(before) if outcome.service is not None else before
        orders = [after, *([before] if name == "expire" else [])]
        if was_undone_by(outcome.other, past):  # Either it was acknowledged before, or its retry has written it again.
            orders = [case.models[-1], THEIRS.applied(case.models[-1])] if name == "rollback" else [before, after]
        assert_whole(storage, next((rows for rows in orders if rows == rows_of(storage)), orders[0]))
        ran += did
    assert ran


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_two_runs_of_a_service_at_once_do_its_work_once(name: str, kind: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    case = make_case(service, kind, tmp_path)
    for number in numbers(count_changes(case, service), 6):
        storage = case.copy()
        outcome = run_beside(storage, service, number, service.run)
        done = (outcome.service is not None) + (outcome.other is not None)
        assert done
        assert_whole(storage, case.models[4 - done] if name == "rollback" else service.leaves(case.models))


def test_young_commits_are_not_archived_on_storage_without_locks(tmp_path: Path) -> None:
    """A late request could create the completed file of such a commit again."""
    service = SERVICES["archive"]
    case = make_case(service, "unlocked", tmp_path)
    young = UnlockedStorage(copy_of(case.template, tmp_path).root)
    assert service.run(open_by(young, "young")).skipped == "nothing is old enough to archive"
    old = case.copy()
    assert len(service.run(open_by(old, "old")).instants) == len(PAST) - 1
    assert_whole(old, case.models[-1])


def test_archive_holds_the_instants_of_two_processes_that_publish_at_once(tmp_path: Path) -> None:
    """Both write a manifest of the same number. The second one begins again."""
    storage, folder = UnlockedStorage(str(tmp_path)), "archive"

    def of(time: str) -> InstantToArchive:
        return InstantToArchive(time, time, "commit", b"{}", b"", time)

    def other(_: Call) -> None:
        write_history(storage, folder, [of("20250101000000002")])

    meanwhile = once(lambda call: call.name == "create" and "manifest_" in call.path, other)
    write_history(FaultyStorage(storage, meanwhile=meanwhile), folder, [of("20250101000000001")])
    archived = read_lsm_history(storage, folder)
    assert sorted(archived.columns.column("time").to_pylist()) == ["20250101000000001", "20250101000000002"]
    assert storage.read(f"{folder}/_version_") == b"2"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["upgrade", "downgrade"])
def test_dead_move_to_another_version_is_run_again(name: str, tmp_path: Path) -> None:
    """Between its begin and its end no write is published. The error says what to do."""
    service = SERVICES[name]
    case = make_case(service, "unlocked", tmp_path)
    refusals: list[str] = []
    for number in range(count_changes(case, service)):
        storage, changes = case.copy(), [0]

        def dies(_: int, call: Call, changes: list[int] = changes, number: int = number) -> bool:
            changes[0] += call.changes
            return call.changes and changes[0] == number + 1

        with pytest.raises(Crash):
            service.run(open_by(FaultyStorage(storage, Fault(dies, Mode.AFTER)), "dead"))
        storage.delete(LOCK_PATH)  # Its lease has ended.
        try:
            THEIRS.run(open_by(storage, "early"))
        except WriteConflictError as error:
            refusals.append(str(error))
        wrote = rows_of(storage) != case.models[-1]
        service.run(open_by(storage, "again"))
        assert_whole(storage, THEIRS.applied(case.models[-1]) if wrote else case.models[-1])
    assert refusals
    assert all("is being moved to another table version" in each for each in refusals)
