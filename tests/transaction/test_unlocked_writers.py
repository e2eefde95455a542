"""Two writers at once on storage without locks: each step of one may fall between two steps of the other."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.model.instant import Action
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.services.clean.run import CleanSession
from lakeformat.storage.port import OWN
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import HEARTBEATS, PROCESS, Claim, claim_instant
from lakeformat.transaction.order.decisions import STATE_PATH, read_state
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, UnlockedStorage, is_decided, once
from tests.helpers.flights import NEXT, Model, Write, assert_whole, copy_of, leftovers, make_template, open_at, rows_of
from tests.helpers.tables import a_batch, a_schema

KINDS = [("6", "COPY_ON_WRITE"), ("8", "COPY_ON_WRITE"), ("9", "COPY_ON_WRITE")]
LOGGED = [("6", "MERGE_ON_READ"), ("8", "MERGE_ON_READ"), ("9", "MERGE_ON_READ")]
ONCE = {"lakeformat.write.retries": 0}
OURS = Write("upsert", (1, 3, 4), "ours")
THEIRS = Write("upsert", (1, 7), "theirs")
_COMPLETED = re.compile(r"\d{17}(_\d{17})?\.(commit|deltacommit|replacecommit)")


def is_put(call: Call) -> bool:
    """Tell whether the call makes a commit visible."""
    return call.name == "create" and _COMPLETED.fullmatch(call.path.rpartition("/")[2]) is not None


def table_of(kind: tuple[str, str], folder: Path) -> tuple[UnlockedStorage, Model]:
    version, table_type = kind
    path, model = make_template(folder, version=version, table_type=table_type)
    return UnlockedStorage(copy_of(path, folder).root), model


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_commit_before_the_decision_is_a_conflict(kind: tuple[str, str], tmp_path: Path) -> None:
    """The other commit changes the state file after our last check, so we check again."""
    storage, before = table_of(kind, tmp_path)
    other = once(is_decided, lambda _: THEIRS.run(open_at(storage, "theirs")))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours", ONCE))
    assert_whole(storage, THEIRS.applied(before))


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_conflict_is_resolved_by_a_retry(kind: tuple[str, str], tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    other = once(is_decided, lambda _: THEIRS.run(open_at(storage, "theirs")))
    OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert_whole(storage, OURS.applied(THEIRS.applied(before)))


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_commit_after_the_decision_starts_from_ours(kind: tuple[str, str], tmp_path: Path) -> None:
    """Our completed file does not exist yet, so the other writer creates it."""
    storage, before = table_of(kind, tmp_path)
    other = once(is_put, lambda _: THEIRS.run(open_at(storage, "theirs")))
    OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert_whole(storage, THEIRS.applied(OURS.applied(before)))


@pytest.mark.parametrize("kind", LOGGED, ids=str)
def test_compaction_after_the_decision_reads_our_log_files(kind: tuple[str, str], tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    other = once(is_put, lambda _: lakeformat.Table(storage).compact())
    OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert_whole(storage, OURS.applied(before))


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_inserts_into_the_same_small_file_are_both_kept(kind: tuple[str, str], tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    packing = {"hoodie.parquet.small.file.limit": 100_000_000}
    ours, theirs = Write("insert", (81, 84), "ours"), Write("insert", (87, 90), "theirs")
    other = once(is_decided, lambda _: theirs.run(open_at(storage, "theirs", packing)))
    ours.run(open_at(FaultyStorage(storage, meanwhile=other), "ours", packing))
    assert_whole(storage, ours.applied(theirs.applied(before)))


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_writer_that_was_undone_cannot_publish(kind: tuple[str, str], tmp_path: Path) -> None:
    """Our heartbeat looks old, because our process slept. The next writer undoes our write, then we go on."""
    storage, before = table_of(kind, tmp_path)

    def undo(_: Call) -> None:
        age_heartbeats(storage)
        THEIRS.run(open_at(storage, "theirs"))

    with pytest.raises(WriteConflictError, match="rolled back by another writer"):
        OURS.run(open_at(FaultyStorage(storage, meanwhile=once(is_decided, undo)), "ours", ONCE))
    assert_whole(storage, THEIRS.applied(before))


def age_heartbeats(storage: UnlockedStorage) -> None:
    """Make every writer look dead: set its heartbeat to the year 2000."""
    for heartbeat in Path(storage.root, ".hoodie", ".heartbeat").iterdir():
        age(heartbeat)


@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_plan_of_a_clustering_that_was_undone_does_not_come_back(version: str, tmp_path: Path) -> None:
    """The process sleeps after its plan is decided. The next writer undoes the clustering, then the process goes on."""
    storage, before = table_of((version, "COPY_ON_WRITE"), tmp_path)

    def undo(_: Call) -> None:
        age_heartbeats(storage)
        THEIRS.run(open_at(storage, "theirs"))

    sleeping = once(lambda call: call.name == "create" and call.path.endswith(".requested"), undo)
    with pytest.raises(WriteConflictError, match="undone by another writer"):
        open_at(FaultyStorage(storage, meanwhile=sleeping), "ours", ONCE).cluster()
    NEXT.run(open_at(storage, "next", ONCE))
    assert_whole(storage, NEXT.applied(THEIRS.applied(before)))


def test_staged_files_are_gone_before_the_claim_that_names_them(tmp_path: Path) -> None:
    """A clustering dies, then the writer that undoes it dies as soon as the claim is removed."""
    storage, before = table_of(KINDS[0], tmp_path)
    is_staged = Fault(lambda _, call: call.path.startswith(f"{OWN}/stage/"), Mode.AFTER)
    with pytest.raises(Crash):
        open_at(FaultyStorage(storage, is_staged), "ours").cluster()
    (claim,) = (entry.path for entry in storage.list(f"{OWN}/pending"))
    age_heartbeats(storage)
    is_released = Fault(lambda _, call: call.name == "delete" and call.path == claim, Mode.AFTER)
    with pytest.raises(Crash):
        THEIRS.run(open_at(FaultyStorage(storage, is_released), "theirs"))
    age_heartbeats(storage)
    NEXT.run(open_at(storage, "next"))
    assert_whole(storage, NEXT.applied(before))


def age(file: Path) -> None:
    """Set a file's modification time to the year 2000."""
    os.utime(file, (946_684_800, 946_684_800))


def test_late_file_of_an_undone_write_stays_hidden_after_an_archiving(tmp_path: Path) -> None:
    """Readers take a file for committed if its instant is older than the oldest commit of the timeline."""
    path = tmp_path / "t"
    table = lakeformat.create(path, a_schema(id="int64", p="string"), record_key="id", partition_by="p")
    for number in range(5):
        table.upsert(a_batch(id=[number], p=["b"]))
    for file in Path(path, ".hoodie").glob("*.commit"):
        age(file)
    late: dict[Path, bytes] = {}

    def undo(_: Call) -> None:
        late.update((file, file.read_bytes()) for file in Path(path, "a").glob("*.parquet"))
        for heartbeat in Path(path, ".hoodie", ".heartbeat").iterdir():
            age(heartbeat)
        lakeformat.Table(UnlockedStorage(path)).upsert(a_batch(id=[5], p=["b"]))

    storage = FaultyStorage(UnlockedStorage(path), meanwhile=once(is_decided, undo))
    with pytest.raises(WriteConflictError, match="rolled back by another writer"):
        lakeformat.Table(storage, resolve(ONCE)).upsert(a_batch(id=[6], p=["a"]))
    assert late
    last = lakeformat.Table(UnlockedStorage(path), resolve({"hoodie.clean.automatic": False}))
    assert len(last.archive(min_commits=1, max_commits=2).instants) == 4
    for file, data in late.items():
        file.write_bytes(data)
    assert sorted(last.to_arrow()["id"].to_pylist()) == list(range(6))


@pytest.mark.slow
def test_commit_that_is_too_large_for_the_state_file_is_carried_out_by_the_next_writer(tmp_path: Path) -> None:
    """The metadata of 900 partitions with long names has more than a megabyte. The writer dies when it has decided."""
    path = tmp_path / "t"
    lakeformat.create(path, a_schema(id="int64", p="string"), record_key="id", partition_by="p")
    long = "x" * 230
    rows = a_batch(id=range(900), p=[f"{number}{long}" for number in range(900)])
    faults = FaultyStorage(UnlockedStorage(path), Fault(lambda _, call: is_put(call), Mode.BEFORE))
    with pytest.raises(Crash):
        lakeformat.Table(faults).upsert(rows)
    decided = Path(path, ".hoodie", ".lakeformat", "tmp")
    assert [file.name.partition("-")[0] for file in decided.iterdir()] == ["decided"]
    table = lakeformat.Table(UnlockedStorage(path))
    for number in range(2):
        table.upsert(a_batch(id=[number], p=[f"{number}{long}"]))
    assert table.to_arrow().num_rows == 900
    assert not list(decided.iterdir())


def test_lost_file_of_a_decision_is_an_error(tmp_path: Path) -> None:
    storage, _ = table_of(KINDS[0], tmp_path)
    OURS.run(open_at(storage, "ours"))
    head = json.loads(storage.read(STATE_PATH).partition(b"\n")[0])
    del head["checksum"]
    head["last"]["aside"] = "gone"
    storage.replace(STATE_PATH, json.dumps(head).encode() + b"\n")
    with pytest.raises(CorruptTableError, match=r"the file of the last decision in .* is missing"):
        THEIRS.run(open_at(storage, "theirs"))


def test_state_counts_the_decisions(tmp_path: Path) -> None:
    storage, _ = table_of(KINDS[0], tmp_path)
    before = read_state(storage)[0].number
    OURS.run(open_at(storage, "ours"))
    state, _ = read_state(storage)
    assert state.number == before + 1
    assert state.last is not None
    assert state.last.instant_time == lakeformat.Table(storage).history()[0].instant_time


def legitimate(table: lakeformat.Table) -> None:
    """Make a history in which files are replaced, undone and archived, and nothing is lost."""
    few = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 2}
    for number in range(7):
        Write("upsert", (number, number + 1, number + 40), f"v{number}").run(
            open_at(table.context.storage, f"u{number}", few)
        )
    NEXT.run(table)
    table.rollback()
    Write("upsert", (2, 3), "again").run(table)
    table.savepoint(table.history()[0].instant_time)
    Write("insert_overwrite", (3, 6), "over").run(table)
    table.restore(table.history()[1].instant_time)
    NEXT.run(table)
    table.cluster(["v"])
    Write("delete", (2, 41), "gone").run(table)
    table.delete_partitions(["r1"])
    NEXT.run(table)


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_history_without_races_reports_nothing(kind: tuple[str, str], tmp_path: Path) -> None:
    storage, _ = table_of(kind, tmp_path)
    table = lakeformat.Table(storage)
    legitimate(table)
    if kind[1] == "MERGE_ON_READ":
        table.compact()
        NEXT.run(table)
        table.schedule_compaction()
        Write("upsert", (2, 3), "beside").run(table)
        table.run_compaction()
    assert str(lakeformat.Table(storage).check()) == "nothing is wrong"


class SingleWriterStorage(UnlockedStorage):
    """A storage whose conditional writes are not exclusive."""

    has_versions = False


def test_storage_without_conditional_writes_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = SingleWriterStorage(table_of(KINDS[0], tmp_path)[0].root)
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        for number in range(2):
            Write("upsert", (number,), "v").run(lakeformat.Table(storage))
    said = [each.getMessage() for each in caplog.records if "from one process only" in each.getMessage()]
    assert len(said) == 1
    assert storage.root in said[0]


def test_locked_storage_has_no_state_file(template: tuple[Path, Model], tmp_path: Path) -> None:
    storage = FaultyStorage(copy_of(template[0], tmp_path))
    OURS.run(open_at(storage, "writer"))
    assert {call.name for call in storage.calls if call.path == STATE_PATH} == set()


def test_cleaning_is_left_to_the_next_write_if_another_has_cleaned(tmp_path: Path) -> None:
    """With many writers, each commit would otherwise search the partitions that the others have just cleaned."""
    storage, before = table_of(("9", "COPY_ON_WRITE"), tmp_path)
    options = {"hoodie.clean.commits.retained": 1}

    def is_over(call: Call) -> bool:
        return call.name == "delete" and f"{OWN}/pending/" in call.path

    def count_cleans() -> int:
        return len(TimelineStore(storage).load().of_action(Action.CLEAN))

    other = once(is_over, lambda _: THEIRS.run(open_at(storage, "theirs", options)))
    OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours", options))
    assert count_cleans() == 1
    NEXT.run(open_at(storage, "next", options))
    assert count_cleans() == 2
    assert_whole(storage, NEXT.applied(THEIRS.applied(OURS.applied(before))))


def test_cleaning_is_planned_again_if_a_commit_is_archived_meanwhile(tmp_path: Path) -> None:
    """The commit is archived after the cleaning has read the timeline, and before it gets the lock of services."""
    path = tmp_path / "t"
    table = lakeformat.create(path, a_schema(id="int64"), record_key="id")
    for number in range(8):
        table.upsert(a_batch(id=[number]))
    for file in Path(path, ".hoodie").glob("*.commit"):
        age(file)
    other = lakeformat.Table(UnlockedStorage(path), resolve({"hoodie.clean.automatic": False}))

    def archive(_: Call) -> None:
        assert other.archive(min_commits=4, max_commits=5).instants

    meanwhile = once(lambda call: call.path.endswith("/table_lock.json"), archive)
    cleaning = lakeformat.Table(FaultyStorage(UnlockedStorage(str(path)), meanwhile=meanwhile))
    assert cleaning.clean(commits=2).files
    assert sorted(other.to_arrow()["id"].to_pylist()) == list(range(8))
    assert leftovers(UnlockedStorage(str(path))) == []


def test_write_beside_live_writers_reads_no_claims(tmp_path: Path) -> None:
    """One listing of the heartbeats shows that they are alive."""
    storage, before = table_of(("9", "COPY_ON_WRITE"), tmp_path)
    calls: list[Call] = []

    def write_between(_: Call) -> None:
        recorder = FaultyStorage(storage, meanwhile=calls.append)
        Write("insert", (90,), "new").run(open_at(recorder, "between"))

    OURS.run(open_at(FaultyStorage(storage, meanwhile=once(is_decided, write_between)), "ours"))
    assert rows_of(storage) == OURS.applied(Write("insert", (90,), "new").applied(before))
    assert [call.name for call in calls if call.path == HEARTBEATS] == ["list"]
    looks = [call for call in calls if call.name in {"read", "info"}]
    assert not [call for call in looks if call.path.startswith((HEARTBEATS, f"{OWN}/pending/"))]


def test_cleaning_waits_for_as_many_commits_as_writes_are_running(tmp_path: Path) -> None:
    storage, _ = table_of(("9", "COPY_ON_WRITE"), tmp_path)
    table = open_at(storage, "ours", {"hoodie.clean.commits.retained": 1})
    session, retention = CleanSession(table.context, table.options), Retention(Policy.COMMITS, 1)
    store, others = TimelineStore(storage), open_at(storage, "theirs", {"hoodie.clean.automatic": False})
    OURS.run(table)
    assert len(store.load().of_action(Action.CLEAN)) == 1
    for name in "01":
        claim_instant(store, table.config, table.context.clock, Action.COMMIT, Claim(PROCESS, name * 32))
    NEXT.run(others)
    assert not session.may_be_due(retention, store.load())
    THEIRS.run(others)
    assert session.may_be_due(retention, store.load())
