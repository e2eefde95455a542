"""Two writers at once without a lock: an error and check() name what the later one hides."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import CommitStateUnknownError, WriteConflictError
from lakeformat.services.doctor.findings import Finding, Kind
from tests.helpers.faulty import Call, FaultyStorage, UnlockedStorage, once
from tests.helpers.flights import NEXT, Model, Write, copy_of, leftovers, make_template, open_at, rows_of

KINDS = [("6", "COPY_ON_WRITE"), ("8", "COPY_ON_WRITE"), ("9", "COPY_ON_WRITE")]
LOGGED = [("6", "MERGE_ON_READ"), ("8", "MERGE_ON_READ"), ("9", "MERGE_ON_READ")]
OURS = Write("upsert", (1, 3, 4), "ours")
THEIRS = Write("upsert", (1, 7), "theirs")
_COMPLETED = re.compile(r"\d{17}(_\d{17})?\.(commit|deltacommit|replacecommit)")


def is_put(call: Call) -> bool:
    """Tell whether the call makes a commit visible."""
    return call.name == "create" and _COMPLETED.fullmatch(call.path.rpartition("/")[2]) is not None


def is_noted(call: Call) -> bool:
    return call.name == "replace" and "/publishing/" in call.path


def table_of(kind: tuple[str, str], folder: Path) -> tuple[UnlockedStorage, Model]:
    version, table_type = kind
    path, model = make_template(folder, version=version, table_type=table_type)
    return UnlockedStorage(copy_of(path, folder).root), model


def lost(storage: UnlockedStorage) -> tuple[Finding, ...]:
    return lakeformat.Table(storage).check().of(Kind.LOST_WRITE)


def newest(storage: UnlockedStorage) -> str:
    return lakeformat.Table(storage).snapshot().timeline.commits[-1].time


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_commit_before_the_last_check_is_a_conflict(kind: tuple[str, str], tmp_path: Path) -> None:
    """The timeline is read again after all other checks, directly before the completed file is put."""
    storage, before = table_of(kind, tmp_path)
    other = once(is_noted, lambda _: THEIRS.run(open_at(storage, "theirs")))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert rows_of(storage) == THEIRS.applied(before)
    assert lost(storage) == ()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_writer_whose_commit_is_hidden_gets_an_error(kind: tuple[str, str], tmp_path: Path) -> None:
    storage, before = table_of(kind, tmp_path)
    other = once(is_put, lambda _: THEIRS.run(open_at(storage, "theirs")))
    with pytest.raises(CommitStateUnknownError, match="one writer at a time") as caught:
        OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert leftovers(storage) == []
    found = lost(storage)
    hidden, kept = sorted(re.findall(r"\d{17}", str(caught.value))[:2])
    assert {(each.path[-25:-8], each.rows) for each in found} == {(hidden, found[0].rows)}
    assert all(kept in each.cure and hidden in each.cure for each in found)
    now = rows_of(storage)
    expected = OURS.applied(THEIRS.applied(before))
    missing = {id_ for id_, row in expected.items() if now.get(id_) != row} - set(THEIRS.ids)
    assert missing <= {int(key) for each in found for key in re.findall(r"'(\d+)'", each.cure)}
    assert {id_: row for id_, row in THEIRS.applied(before).items() if id_ in THEIRS.ids}.items() <= now.items()
    assert all(Path(storage.root, each.path).name.split("_")[0] in str(caught.value) for each in found)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_writer_that_hides_another_commit_reports_it(
    kind: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other commit has been acknowledged, so its rows may not vanish silently."""
    storage, before = table_of(kind, tmp_path)
    older_waits, newer_waits = threading.Event(), threading.Event()

    def let_the_newer_run(_: Call) -> None:
        older_waits.set()
        assert newer_waits.wait(60)

    older = threading.Thread(
        target=lambda: OURS.run(open_at(FaultyStorage(storage, meanwhile=once(is_put, let_the_newer_run)), "ours"))
    )

    def let_the_older_end(_: Call) -> None:
        newer_waits.set()
        older.join(60)

    older.start()
    assert older_waits.wait(60)
    with caplog.at_level(logging.ERROR, "lakeformat.write"):
        THEIRS.run(open_at(FaultyStorage(storage, meanwhile=once(is_put, let_the_older_end)), "theirs"))
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    found = lost(storage)
    assert found
    assert all(each.path[-25:-8] in said for each in found)
    now, both = rows_of(storage), THEIRS.applied(OURS.applied(before))
    missing = {id_ for id_, row in both.items() if now.get(id_) != row}
    assert missing
    assert missing <= {int(key) for each in found for key in re.findall(r"'(\d+)'", each.cure)}


@pytest.mark.parametrize("kind", LOGGED, ids=str)
def test_log_files_of_two_writers_are_both_kept(kind: tuple[str, str], tmp_path: Path) -> None:
    """Both append to the same slices. No log file is hidden, and neither writer overwrites the other's."""
    storage, before = table_of(kind, tmp_path)
    other = once(is_put, lambda _: THEIRS.run(open_at(storage, "theirs")))
    OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    now = rows_of(storage)
    both = (OURS.applied(THEIRS.applied(before)), THEIRS.applied(OURS.applied(before)))
    assert all(now[id_] in {each[id_] for each in both} for id_ in both[0])
    assert now.keys() == both[0].keys()
    assert lost(storage) == ()


@pytest.mark.parametrize("kind", LOGGED[1:], ids=str)
def test_write_overtaken_by_a_compaction_reports_its_lost_rows(kind: tuple[str, str], tmp_path: Path) -> None:
    """The write's completion time is before the plan, but the plan has not read its log files."""
    storage, before = table_of(kind, tmp_path)
    other = once(is_put, lambda _: lakeformat.Table(storage).compact())
    with pytest.raises(CommitStateUnknownError, match="one writer at a time"):
        OURS.run(open_at(FaultyStorage(storage, meanwhile=other), "ours"))
    assert rows_of(storage) == before
    assert {each.path.rpartition("/")[0] for each in lost(storage)} == {OURS.region(id_) for id_ in OURS.ids}


@pytest.mark.parametrize("kind", LOGGED, ids=str)
def test_base_file_written_beside_a_log_file_loses_no_row(
    kind: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New keys go into a base file that had no log file when the writer looked. The log file names its slice."""
    past = (Write("bulk_insert", tuple(range(9)), "first"),)
    path, before = make_template(tmp_path, past, version=kind[0], table_type=kind[1])
    storage = UnlockedStorage(copy_of(path, tmp_path).root)
    packing = {"hoodie.parquet.small.file.limit": 100_000_000}
    ours, theirs = Write("upsert", (1, 3, 4), "ours"), Write("insert", (87, 88, 90), "theirs")
    is_ready, ours_is_over = threading.Event(), threading.Event()

    def wait(_: Call) -> None:
        is_ready.set()
        assert ours_is_over.wait(60)

    packer = threading.Thread(
        target=lambda: theirs.run(open_at(FaultyStorage(storage, meanwhile=once(is_put, wait)), "theirs", packing))
    )

    def pack(_: Call) -> None:
        packer.start()
        assert is_ready.wait(60)

    with caplog.at_level(logging.ERROR, "lakeformat.write"):
        first_log = once(lambda call: call.name == "open_output", pack)
        ours.run(open_at(FaultyStorage(storage, meanwhile=first_log), "ours"))
        ours_is_over.set()
        packer.join(60)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    is_lost = rows_of(storage) != theirs.applied(ours.applied(before))
    assert is_lost == (kind[0] == "6") == bool(said)


@pytest.mark.parametrize("kind", [*KINDS, *LOGGED], ids=str)
def test_inserts_into_the_same_small_file_report_lost_rows(kind: tuple[str, str], tmp_path: Path) -> None:
    """New keys are lost like old ones: their rows went into a file that another commit hides."""
    version, table_type = kind
    path, before = make_template(tmp_path, version=version, table_type=table_type)
    storage = UnlockedStorage(copy_of(path, tmp_path).root)
    packing = {"hoodie.parquet.small.file.limit": 100_000_000}
    ours, theirs = Write("insert", (81, 84), "ours"), Write("insert", (87, 90), "theirs")
    other = once(is_put, lambda _: theirs.run(open_at(storage, "theirs", packing)))
    error = ""
    try:
        ours.run(open_at(FaultyStorage(storage, meanwhile=other), "ours", packing))
    except CommitStateUnknownError as raised:
        error = str(raised)
    now, both = rows_of(storage), ours.applied(theirs.applied(before))
    missing = both.keys() - now.keys()
    assert bool(missing) == bool(error)
    named = {int(key) for each in lost(storage) for key in re.findall(r"'(\d+)'", each.cure)}
    assert missing <= named


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


def test_unlocked_storage_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage, _ = table_of(KINDS[0], tmp_path)
    for number in range(2):
        Write("upsert", (number,), "v").run(lakeformat.Table(storage))
    said = [each.getMessage() for each in caplog.records if "from one process only" in each.getMessage()]
    assert len(said) == 1
    assert storage.root in said[0]


def calls_of(write: Callable[[lakeformat.Table], object], storage: FaultyStorage) -> list[str]:
    write(open_at(storage, "writer"))
    return [call.name for call in storage.calls if "publishing" in call.path] + [
        call.name for call in storage.calls if (call.name, call.path) == ("list", ".hoodie")
    ]


def test_locked_storage_makes_no_extra_calls(template: tuple[Path, Model], tmp_path: Path) -> None:
    """No note is written, and the timeline is listed no more often than the lock needs."""
    locked = calls_of(OURS.run, FaultyStorage(copy_of(template[0], tmp_path)))
    other = calls_of(OURS.run, FaultyStorage(UnlockedStorage(copy_of(template[0], tmp_path).root)))
    assert set(locked) == {"list"}
    assert other.count("list") == locked.count("list") + 2
