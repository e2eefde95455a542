"""The archive of layout 1: the names of its log files, their merging, and how far back they are read.

The oracle is what was archived. Merging copies blocks without reading them, so some files here are not archives.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeformat.codec.timeline_files.archive import InstantToArchive
from lakeformat.codec.timeline_files.clean import CleanMetadata, encode_clean
from lakeformat.codec.timeline_files.commit import encode_commit_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from lakeformat.timeline.archive import ArchivedTimeline, read_archive_logs
from lakeformat.timeline.archive_writer import merge_archive_logs, write_archive_log
from tests.helpers.faulty import Call, FaultyStorage, UnlockedStorage, once
from tests.helpers.short_timelines import hour

FOLDER = "archived"
SMALL_BYTES = 4 << 20


def archived(*hours: int) -> list[InstantToArchive]:
    """Return a commit for each hour. Its metadata is the hour."""
    return [
        InstantToArchive(
            hour(each),
            hour(each + 1),
            "commit",
            encode_commit_json(CommitMetadata("INSERT", {}, {"hour": str(each)})),
            b"",
            "",
        )
        for each in hours
    ]


def write(storage: Storage, *hours: int) -> None:
    write_archive_log(storage, FOLDER, archived(*hours), per_block=10)


def log(number: int) -> str:
    return f".commits_.archive.{number}_1-0-1"


def names(storage: Storage) -> set[str]:
    return {entry.name for entry in storage.list(FOLDER)}


def data_of(archive: ArchivedTimeline, *hours: int) -> dict[str, str | None]:
    """Return what the metadata of these commits holds, by time; of all commits by default."""
    commits = archive.completed_in("")
    chosen = [each for each in commits if not hours or each.time in map(hour, hours)]
    return {each.time: metadata.extra.get("hour") for each, metadata in archive.commits(chosen)}


def wanted(*hours: int) -> dict[str, str | None]:
    return {hour(each): str(each) for each in hours}


@pytest.mark.parametrize(
    ("there", "number"),
    [
        ([], 1),
        ([log(1)], 2),
        ([log(2), log(9), log(10)], 11),
        ([".commits_.archive.3"], 4),
        ([log(2), "commits_.archive.7_1-0-1", ".commits_.archive.x"], 3),
    ],
)
def test_log_has_the_next_number(there: list[str], number: int) -> None:
    """Numbers have gaps where files were merged."""
    storage = MemoryStorage()
    for each in there:
        storage.create(f"{FOLDER}/{each}", b"")
    write(storage, 1)
    assert names(storage) == {*there, log(number)}


def test_log_has_a_greater_number_than_those_of_other_processes(tmp_path: Path) -> None:
    storage = UnlockedStorage(str(tmp_path))
    write(storage, 1)
    meanwhile = once(lambda call: call.name == "create", lambda _: [write(storage, each) for each in (2, 3, 4)])
    write(FaultyStorage(storage, meanwhile=meanwhile), 5)
    assert names(storage) == {log(number) for number in range(1, 6)}
    assert data_of(read_archive_logs(storage, FOLDER)) == wanted(*range(1, 6))


def test_ten_small_logs_become_one() -> None:
    storage = MemoryStorage()
    for number in range(1, 10):
        write(storage, number)
    assert not merge_archive_logs(storage, FOLDER)
    assert names(storage) == {log(number) for number in range(1, 10)}
    write(storage, 10)
    contents = [storage.read(f"{FOLDER}/{log(number)}") for number in range(1, 11)]
    assert merge_archive_logs(storage, FOLDER)
    assert names(storage) == {log(11)}
    assert storage.read(f"{FOLDER}/{log(11)}") == b"".join(contents)
    assert data_of(read_archive_logs(storage, FOLDER)) == wanted(*range(1, 11))


def test_big_logs_and_other_files_stay() -> None:
    storage = MemoryStorage()
    sizes = {3: SMALL_BYTES, 4: SMALL_BYTES - 1, **dict.fromkeys(range(5, 14), 1)}
    for number, size in sizes.items():
        storage.create(f"{FOLDER}/{log(number)}", bytes(size))
    storage.create(f"{FOLDER}/notes.txt", b"")
    assert merge_archive_logs(storage, FOLDER)
    assert names(storage) == {log(3), log(14), "notes.txt"}
    assert len(storage.read(f"{FOLDER}/{log(14)}")) == SMALL_BYTES - 1 + 9
    assert not merge_archive_logs(storage, FOLDER)


@pytest.mark.parametrize("call", ["read", "create"])
def test_merge_gives_way_to_another_process(call: str, tmp_path: Path) -> None:
    """It has merged the files, or has written one of the same number."""
    storage = UnlockedStorage(str(tmp_path))
    for number in range(1, 11):
        write(storage, number)

    def other(_: Call) -> None:
        if call == "read":
            assert merge_archive_logs(storage, FOLDER)
        else:
            write(storage, 11)

    there = range(1, 11 if call == "read" else 12)
    beside = FaultyStorage(storage, meanwhile=once(lambda each: each.name == call, other))
    assert not merge_archive_logs(beside, FOLDER)
    assert data_of(read_archive_logs(storage, FOLDER)) == wanted(*there)


def test_commit_in_two_logs_is_one() -> None:
    """A run died before it deleted the merged files, or the instants of the timeline."""
    storage = MemoryStorage()
    for hours in ((1, 2), (2, 3), (3, 3)):
        write(storage, *hours)
    archive = read_archive_logs(storage, FOLDER)
    assert archive.columns["time"].to_pylist() == [hour(1), hour(2), hour(3)]
    assert data_of(archive) == wanted(1, 2, 3)


#: The clean of hour 8, which does not tell how old the commits of a file are.
CLEAN = InstantToArchive(
    hour(8), hour(8), "clean", encode_clean(CleanMetadata(hour(8), hour(8), policy="KEEP_LATEST_COMMITS")), b"", ""
)


def numbered_logs(storage: Storage) -> None:
    """Write logs 9 to 13, whose numbers are not in the order of text."""
    storage.create(f"{FOLDER}/{log(8)}", b"")
    for instants in (archived(1, 2), archived(4, 3), [*archived(5), CLEAN], [CLEAN], archived(7, 6)):
        write_archive_log(storage, FOLDER, instants, per_block=1)
    storage.delete(f"{FOLDER}/{log(8)}")
    storage.create(f"{FOLDER}/notes.txt", b"not an archive")


@pytest.mark.parametrize(("since", "oldest"), [(8, 13), (7, 11), (6, 11), (5, 10), (4, 9), (3, 9), (1, 9), (0, 9)])
def test_logs_are_read_back_to_one_that_is_older(since: int, oldest: int) -> None:
    """Commits are archived oldest first."""
    storage = MemoryStorage()
    numbered_logs(storage)
    archive = read_archive_logs(storage, FOLDER, hour(since) if since else "")
    assert archive.files == tuple(f"{FOLDER}/{log(number)}" for number in range(oldest, 14))
    first = {13: 6, 11: 5, 10: 3, 9: 1}[oldest]
    assert data_of(archive) == wanted(*range(first, 8))
    assert data_of(archive, 7) == wanted(7)
    cleans = [Instant(hour(8), Action.CLEAN, State.COMPLETED)] if oldest < 13 else []
    assert archive.of_actions([Action.CLEAN, Action.ROLLBACK]) == cleans
    assert archive.columns["completion_time"].null_count == archive.columns.num_rows


def test_clean_of_the_time_of_a_commit_is_not_taken_for_it() -> None:
    storage = MemoryStorage()
    write_archive_log(storage, FOLDER, [CLEAN, *archived(8, 9)], per_block=10)
    archive = read_archive_logs(storage, FOLDER)
    assert archive.columns["action"].to_pylist() == ["clean", "commit", "commit"]
    assert data_of(archive) == wanted(8, 9)


def test_commit_that_is_not_archived_is_named() -> None:
    storage = MemoryStorage()
    write(storage, 1)
    missing = Instant(hour(2), Action.COMMIT, State.COMPLETED)
    with pytest.raises(CorruptTableError, match=f"has no commit {hour(2)}; restore it"):
        list(read_archive_logs(storage, FOLDER).commits([missing]))


def test_reader_survives_a_merge_after_its_listing(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for number in range(1, 11):
        write(storage, number)
    merge = once(lambda call: call.name == "open_input", lambda _: merge_archive_logs(storage, FOLDER))
    beside = FaultyStorage(storage, meanwhile=merge)
    assert data_of(read_archive_logs(beside, FOLDER)) == wanted(*range(1, 11))
