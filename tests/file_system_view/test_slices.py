"""Slices from base files and log files: which log belongs to which base file, and which lost log is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.file_system_view.slices import build_slices, check_logs, find_absent_logs
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, LogFile, LogFileName


def time(number: int) -> str:
    return f"202511201200000{number:02}"


def base(file_id: str, at: int, partition: str = "p") -> BaseFile:
    return BaseFile(partition, BaseFileName(file_id, "0-0-0", time(at)), 10)


def log(file_id: str, at: int, version: int = 1, size: int = 10, *, cdc: bool = False) -> LogFile:
    return LogFile("p", LogFileName(file_id, time(at), version, "0-0-0", cdc), size)


def own_time(found: LogFile) -> str | None:
    return found.name.instant_time


def hidden(_: LogFile) -> str | None:
    return None


def commit(*logs: LogFile, other: str = "") -> tuple[str, CommitMetadata]:
    stats = [WriteStat(each.name.file_id, each.path, "p", None, 1, size_bytes=each.size_bytes) for each in logs]
    stats += [WriteStat("f", other, "p", None, 1, size_bytes=99)] if other else []
    return time(9), CommitMetadata("UPSERT", {"p": tuple(stats)})


def test_log_belongs_to_the_base_file_of_its_instant_or_an_earlier_one() -> None:
    bases = [base("a", 2), base("b", 3), base("z", 1, "o")]
    logs = [log("a", 2, 2), log("a", 2, 1), log("a", 3, 1), log("b", 2)]
    slices = build_slices(bases, logs, (), own_time)
    assert [(each.group, each.base_instant, each.base) for each in slices] == [
        (FileGroupId("o", "z"), time(1), bases[2]),
        (FileGroupId("p", "a"), time(2), bases[0]),
        (FileGroupId("p", "b"), time(3), bases[1]),
    ]
    assert [each.logs for each in slices] == [(), (logs[1], logs[0], logs[2]), ()]


def test_group_of_logs_alone_begins_at_the_first_and_hidden_logs_make_no_slice() -> None:
    logs = [log("a", 5), log("a", 4), log("b", 4)]
    (found,) = build_slices([], logs, {FileGroupId("p", "b")}, own_time)
    assert (found.base_instant, found.base, found.logs) == (time(4), None, (logs[1], logs[0]))
    assert build_slices([], logs, (), hidden) == ()


def test_absent_logs_are_those_of_commits_that_the_listing_lacks() -> None:
    gone, there, changes = log("a", 2, size=7), log("a", 2, 2), log("a", 2, 3, cdc=True)
    commits = [commit(gone, there, changes, other="p/a_0-0-0_20251120120000002.parquet"), commit(other="p/x.log.y")]
    assert find_absent_logs(commits, [there]) == [gone]


PROMISED = log("a", 3, size=10)


@pytest.mark.parametrize(
    ("listed", "counts", "error"),
    [
        ([log("a", 3, size=10)], own_time, None),
        ([log("a", 3, size=11)], own_time, None),
        ([log("a", 3, size=9)], own_time, "has 9 bytes of the 10 written"),
        ([], own_time, "is missing"),
        ([], hidden, None),
        ([], lambda _: time(1), None),
        ([], lambda _: time(2), "is missing"),
    ],
)
def test_log_of_a_live_slice_must_be_whole(
    listed: list[LogFile], counts: Callable[[LogFile], str | None], error: str | None
) -> None:
    slices = build_slices([base("a", 2)], listed, (), own_time)

    def check(*commits: tuple[str, CommitMetadata], replaced: set[FileGroupId], time_travel: bool = False) -> None:
        check_logs(slices, commits, counts, replaced, location="mem://t", is_time_travel=time_travel)

    # Neither a base file, nor change data, nor a file of a replaced group or of a group without files is missed.
    check(commit(log("a", 3, 4, cdc=True), log("b", 3), other="p/a_0-0-0_20251120120000002.parquet"), replaced=set())
    check(commit(PROMISED), replaced={FileGroupId("p", "a")})
    missed = commit(log("a", 3, 4, cdc=True), log("b", 3), PROMISED)
    if error is None:
        check(missed, replaced=set())
        return
    with pytest.raises(CorruptTableError, match=f"mem://t/p/.a_{time(3)}.log.1_0-0-0 of instant {time(9)} {error}"):
        check(missed, replaced=set())


def test_time_travel_says_that_a_lost_log_was_cleaned() -> None:
    for slices in ([], build_slices([base("a", 2)], [], (), own_time)):
        with pytest.raises(InstantNotAvailableError, match="has been cleaned away"):
            check_logs(slices, [commit(PROMISED)], own_time, (), location="t", is_time_travel=True)
    short = build_slices([base("a", 2)], [log("a", 3, size=9)], (), own_time)
    with pytest.raises(CorruptTableError, match="has 9 bytes"):
        check_logs(short, [commit(PROMISED)], own_time, (), location="t", is_time_travel=True)
