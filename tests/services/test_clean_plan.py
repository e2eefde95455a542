"""The files that a clean may delete: examples of every rule, and one law over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidInputError
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import COMMIT_ACTIONS, Action, State
from lakeformat.services.clean.plan import (
    CleanedFile,
    DeleteConstraints,
    PartitionFiles,
    Policy,
    Retention,
    Slice,
    choose_files,
    choose_retention,
    find_earliest_to_retain,
)
from lakeformat.timeline.timeline import Timeline
from tests.helpers.short_timelines import ACTIONS, hour, timeline_of

#: 2026-01-01 00:00 in UTC.
DAY_MS = 1_767_225_600_000
HOUR_MS = 60 * 60 * 1000
UTC = timezone.utc


def earliest_of(
    text: str, policy: Policy, count: int, now_ms: int = DAY_MS + 10 * HOUR_MS, zone: tzinfo = UTC
) -> str | None:
    found = find_earliest_to_retain(timeline_of(text), Retention(policy, count), now_ms, zone)
    return found.time if found else None


@pytest.mark.parametrize(
    ("text", "count", "earliest"),
    [
        ("", 1, None),
        ("c1", 1, None),
        ("c1 c2 c3", 3, None),  # Nothing becomes unreadable.
        ("c1 c2 c3 c4", 3, 2),
        ("c1 d2 r3 c4", 1, 4),
        ("c1 n2 b3 s1 i4 c5 c6", 2, 5),  # Only commits count,
        ("c1 c2 c3 c4?", 3, None),  # and only completed ones.
        ("c1 c2 x3 c4", 2, 2),
        ("c1 c2 c3? c4 c5 c6", 2, 2),  # The pending write started from commit 2.
        ("c1 c2 c3? c4 c5 c6", 3, 2),
        ("c1 c2 c3? c4 c5 c6", 4, 2),
        ("c1 c2 c3 c4? c5 c6", 3, 3),
        ("c1 c2 c3 c4 c5? c6", 3, 3),  # Enough commits stay without the pending one.
        ("c1 c2? c3 c4? c5 c6", 1, 1),  # The oldest pending write counts.
        ("c1? c2 c3 c4", 2, None),  # It started from an empty table, or from a commit in the archive.
    ],
)
def test_commits_to_keep_are_counted_back_from_the_newest(text: str, count: int, earliest: int | None) -> None:
    assert earliest_of(text, Policy.COMMITS, count) == (None if earliest is None else hour(earliest))


@pytest.mark.parametrize("state", ["?", "!"])
@pytest.mark.parametrize("letter", ACTIONS)
def test_a_pending_write_or_clustering_keeps_the_commit_before_it(letter: str, state: str) -> None:
    """A pending compaction keeps only the slices that it reads."""
    text = f"c1 c2 {letter}3{state} c4 c5 c6"
    awaits = letter in {"c", "d", "r", "g"}
    for policy, count in ((Policy.COMMITS, 1), (Policy.HOURS, 4)):
        assert earliest_of(text, policy, count) == hour(2 if awaits else 6)


@pytest.mark.parametrize(
    ("text", "count", "earliest"),
    [
        ("c1 c2 c6 c7 c8", 3, 7),  # It is 10 o'clock: a commit of 7 is 3 hours old, and stays.
        ("c1 c2 c6 c8", 3, 8),
        ("c8 c9", 3, 8),
        ("c1 c2", 3, None),  # All are older, so there is no commit to keep.
        ("", 3, None),
        ("c1 c9", 24, 1),
        ("c1 c2? c8 c9", 3, 1),
        ("c1 c8 c9? c10", 3, 8),
        ("c1? c8 c9", 3, None),
    ],
)
def test_commits_of_the_last_hours_stay(text: str, count: int, earliest: int | None) -> None:
    assert earliest_of(text, Policy.HOURS, count) == (None if earliest is None else hour(earliest))


def test_hours_end_with_the_millisecond_and_are_counted_in_the_zone_of_the_timeline() -> None:
    assert earliest_of("c7 c8", Policy.HOURS, 3, DAY_MS + 10 * HOUR_MS) == hour(7)
    assert earliest_of("c7 c8", Policy.HOURS, 3, DAY_MS + 10 * HOUR_MS + 1) == hour(8)
    assert earliest_of("c7 c9 c10", Policy.HOURS, 3, DAY_MS + 10 * HOUR_MS, timezone(timedelta(hours=2))) == hour(9)


@pytest.mark.parametrize("text", ["c1 c2 c3 c4", "c1 c2? c3 c4", ""])
def test_versions_keep_no_commit(text: str) -> None:
    assert earliest_of(text, Policy.VERSIONS, 1) is None


def slice_of(group: str, number: int, names: Sequence[str] = ("base", "log")) -> Slice:
    return Slice(hour(number), tuple(CleanedFile(f"p/{group}-{number}-{name}", number) for name in names))


def chosen(
    text: str,
    retention: Retention,
    earliest: int | None,
    *,
    saved: str = "",
    compacting: int | None = None,
    replaced: int | None = None,
) -> list[int]:
    """Return the slices of one file group of which all files are deleted.

    Args:
        text: the hours of the slices, oldest first.
        saved: name of a file that a savepoint names.
        compacting: the slice that a pending compaction reads.
        replaced: the hour of the commit that replaced the group.
    """
    slices = [slice_of("g", int(number)) for number in reversed(text.split())]
    group = FileGroupId("p", "g")
    constraints = DeleteConstraints(
        {} if replaced is None else {group: hour(replaced)},
        {"p": frozenset({saved}), "q": frozenset({"g-1-base"})},  # The name in another partition is another file.
        {} if compacting is None else {group: hour(compacting)},
    )
    found = choose_files(
        PartitionFiles("p", {"g": slices}), retention, None if earliest is None else hour(earliest), constraints
    )
    numbers = sorted({file.size_bytes for file in found.files})
    whole = [file for each in slices for file in each.files if each.instant in {hour(number) for number in numbers}]
    assert sorted(found.files, key=lambda f: f.path) == sorted(whole, key=lambda f: f.path)
    return numbers


@pytest.mark.parametrize("policy", [Policy.COMMITS, Policy.HOURS])
@pytest.mark.parametrize(
    ("text", "earliest", "gone"),
    [
        ("1 3 5", 1, []),
        ("1 3 5", 2, []),  # A reader of commit 2 reads the slice of commit 1.
        ("1 3 5", 3, []),  # Hudi keeps the slice before the earliest commit.
        ("1 3 5", 4, [1]),
        ("1 3 5", 5, [1]),
        ("1 3 5", 6, [1, 3]),
        ("1 3 5", 9, [1, 3]),  # The newest slice stays, however old it is.
        ("1", 9, []),
        ("6 8", 4, []),
    ],
)
def test_slices_that_a_kept_commit_reads_stay(policy: Policy, text: str, earliest: int, gone: list[int]) -> None:
    assert chosen(text, Retention(policy, 1), earliest) == gone


@pytest.mark.parametrize(
    ("text", "count", "gone"),
    [("1 3 5", 1, [1, 3]), ("1 3 5", 2, [1]), ("1 3 5", 3, []), ("1 3 5", 4, []), ("1", 1, [])],
)
def test_newest_versions_stay(text: str, count: int, gone: list[int]) -> None:
    assert chosen(text, Retention(Policy.VERSIONS, count), None) == gone


@pytest.mark.parametrize(
    ("retention", "earliest", "compacting", "gone"),
    [
        (Retention(Policy.COMMITS, 1), 9, 7, [1, 3, 5]),
        (Retention(Policy.COMMITS, 1), 9, 5, [1, 3]),
        (Retention(Policy.COMMITS, 1), 9, 3, [1]),
        (Retention(Policy.COMMITS, 1), 9, 1, []),
        (Retention(Policy.COMMITS, 1), 6, 7, [1, 3]),  # 5 is read by a reader of the earliest commit.
        (Retention(Policy.HOURS, 1), 9, 3, [1]),
        (Retention(Policy.VERSIONS, 1), None, 7, [1, 3, 5]),
        (Retention(Policy.VERSIONS, 1), None, 3, [1]),
        (Retention(Policy.VERSIONS, 2), None, 7, [1, 3]),  # The slices under compaction count as one version.
        (Retention(Policy.VERSIONS, 2), None, 5, [1]),
        (Retention(Policy.VERSIONS, 3), None, 5, []),
        (Retention(Policy.VERSIONS, 1), None, 1, []),
    ],
)
def test_slices_under_compaction_stay(
    retention: Retention, earliest: int | None, compacting: int, gone: list[int]
) -> None:
    assert chosen("1 3 5 7", retention, earliest, compacting=compacting) == gone


@pytest.mark.parametrize(
    ("retention", "earliest", "saved", "gone"),
    [
        (Retention(Policy.COMMITS, 1), 9, "g-1-base", [3, 5]),
        (Retention(Policy.COMMITS, 1), 9, "g-3-log", [1, 5]),  # One file holds the whole slice,
        (Retention(Policy.COMMITS, 1), 9, "g-3-other", [1, 3, 5]),  # but only a file of it.
        (Retention(Policy.HOURS, 1), 9, "g-7-base", [1, 3, 5]),
        (Retention(Policy.COMMITS, 1), 6, "g-5-base", [1, 3]),
        (Retention(Policy.VERSIONS, 1), None, "g-1-base", [3, 5]),
        (Retention(Policy.VERSIONS, 2), None, "g-3-log", [1]),
        (Retention(Policy.VERSIONS, 1), None, "g-7-base", [1, 3]),  # It does not count, so 5 is the newest version.
    ],
)
def test_slices_of_savepoints_stay(retention: Retention, earliest: int | None, saved: str, gone: list[int]) -> None:
    assert chosen("1 3 5 7", retention, earliest, saved=saved) == gone


@pytest.mark.parametrize(
    ("retention", "earliest", "replaced", "gone"),
    [
        (Retention(Policy.COMMITS, 1), 5, 4, [1, 3]),
        (Retention(Policy.COMMITS, 1), 4, 4, []),  # A reader of the commit that replaced the group needs it no more;
        (Retention(Policy.COMMITS, 1), 3, 4, []),  # Hudi keeps it until that commit is not kept either.
        (Retention(Policy.HOURS, 1), 5, 4, [1, 3]),
        (Retention(Policy.VERSIONS, 9), None, 4, [1, 3]),
    ],
)
def test_replaced_groups_go_at_once_and_whole(
    retention: Retention, earliest: int | None, replaced: int, gone: list[int]
) -> None:
    assert chosen("1 3", retention, earliest, replaced=replaced) == gone
    kept = chosen("1 3", retention, earliest, replaced=replaced, saved="g-1-log")
    assert kept == [number for number in gone if number != 1]


@pytest.mark.parametrize(
    ("path", "others", "slices", "is_whole"),
    [
        ("p", 0, [[3, 1], [2]], True),
        ("p", 1, [[3, 1], [2]], False),  # A file that belongs to no slice keeps the folder.
        ("p", 0, [[3, 1], [2], [7]], False),
        ("p", 1, [[3, 1], [2], [7]], False),
        ("", 0, [[3, 1], [2]], False),  # The folder of the table itself stays.
        ("p", 0, [], False),
        ("p", 0, [[7]], False),
    ],
)
def test_a_folder_is_whole_if_all_of_its_files_go(
    path: str, others: int, slices: list[list[int]], is_whole: bool
) -> None:
    groups = {f"g{at}": [slice_of(f"g{at}", number) for number in numbers] for at, numbers in enumerate(slices)}
    replaced = {FileGroupId(path, "g0"): hour(4), FileGroupId(path, "g1"): hour(4)} if len(slices) > 1 else {}
    found = choose_files(
        PartitionFiles(path, groups, others), Retention(Policy.COMMITS, 1), hour(5), DeleteConstraints(replaced)
    )
    going = [f for id_, s in groups.items() if FileGroupId(path, id_) in replaced for each in s for f in each.files]
    assert (found.path, found.is_whole, list(found.files)) == (path, is_whole, going)


@pytest.mark.parametrize(
    ("options", "arguments", "retention"),
    [
        ({}, {}, Retention(Policy.COMMITS, 10)),
        ({"hoodie.clean.commits.retained": 7}, {}, Retention(Policy.COMMITS, 7)),
        ({"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS"}, {}, Retention(Policy.HOURS, 24)),
        ({"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}, {}, Retention(Policy.VERSIONS, 3)),
        ({"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}, {"hours": 1}, Retention(Policy.HOURS, 1)),
        ({}, {"commits": 1}, Retention(Policy.COMMITS, 1)),
        ({}, {"versions": 2}, Retention(Policy.VERSIONS, 2)),
    ],
)
def test_retention_is_that_of_the_argument_or_of_the_options(
    options: dict[str, object], arguments: dict[str, int], retention: Retention
) -> None:
    assert choose_retention(resolve(options), **arguments) == retention


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"commits": 0}, "a clean keeps at least 1, not 0; give a number from 1 up"),
        ({"hours": -1}, "a clean keeps at least 1, not -1; give a number from 1 up"),
        ({"commits": 1, "hours": 1}, "a clean keeps commits, hours or versions; give one of them"),
    ],
)
def test_retention_of_nothing_or_of_two_kinds_is_refused(arguments: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        choose_retention(resolve({}), **arguments)
    assert str(refused.value) == said


# --- the law ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A random timeline, and the slices of one partition that its commits have left."""

    timeline: Timeline
    partition: PartitionFiles
    constraints: DeleteConstraints


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 16))
    kinds = draw(st.lists(st.sampled_from("cccdddr"), min_size=count, max_size=count))
    states = draw(st.lists(st.sampled_from(["", "", "", "", "", "?", "!"]), min_size=count, max_size=count))
    plans = draw(st.lists(st.sampled_from(["", "", "", "k?", "l!", "g?", "n?"]), min_size=count, max_size=count))
    words = [f"{kind}{at}{state}" for at, (kind, state) in enumerate(zip(kinds, states, strict=True))]
    words = [f"{plan[0]}{at}{plan[1]}" if plan else words[at] for at, plan in enumerate(plans)]
    timeline = timeline_of(" ".join(words))
    written = [instant.time for instant in timeline.commits]
    compacts = [i.time for i in timeline.pending if i.action in {Action.COMPACTION, Action.LOG_COMPACTION}]
    groups, replaced, compacting, saved = {}, {}, {}, set()
    for id_ in ("g", "h"):
        times = draw(st.sets(st.sampled_from(written or [hour(0)]), min_size=1, max_size=6))
        slices = [slice_of(id_, int(time[8:10])) for time in sorted(times, reverse=True)]
        groups[id_], group = slices, FileGroupId("p", id_)
        replacing = [i.time for i in timeline.commits if i.action is Action.REPLACE_COMMIT and i.time > max(times)]
        if replacing and draw(st.booleans()):
            replaced[group] = replacing[0]
        elif compacts and draw(st.booleans()):
            older = [each.instant for each in slices if each.instant < max(compacts)]
            if older:
                compacting[group] = draw(st.sampled_from(older))
        saved |= draw(st.sets(st.sampled_from([file.name for each in slices for file in each.files]), max_size=1))
    constraints = DeleteConstraints(replaced, {"p": frozenset(saved)}, compacting)
    return Table(timeline, PartitionFiles("p", groups), constraints)


def read_at(slices: Sequence[Slice], time: str) -> Slice | None:
    """Return the slice that a reader of the commit of this time reads."""
    return max((each for each in slices if each.instant <= time), key=lambda each: each.instant, default=None)


def needed_slices(table: Table, retention: Retention, earliest: str | None) -> set[tuple[str, str]]:
    """Return the group and instant of all slices that anyone still reads, found reader by reader."""
    timeline, found = table.timeline, set()
    readers = [commit.time for commit in timeline.commits if earliest is not None and commit.time >= earliest]
    if earliest is not None:
        for pending in timeline.pending:  # It reads what the newest commit before it wrote.
            if pending.action in COMMIT_ACTIONS | {Action.CLUSTERING}:
                readers += [commit.time for commit in timeline.commits if commit.time < pending.time][-1:]
    for id_, slices in table.partition.groups.items():
        group = FileGroupId("p", id_)
        replaced = table.constraints.replaced.get(group)
        for time in readers:
            if (replaced is None or time < replaced) and (read := read_at(slices, time)):
                found.add((id_, read.instant))
        if replaced is None:
            newest = retention.count if retention.policy is Policy.VERSIONS else 1
            found |= {(id_, each.instant) for each in slices[:newest]}
            if group in table.constraints.compacting:
                found.add((id_, table.constraints.compacting[group]))
        for each in slices:
            if table.constraints.saved["p"] & {file.name for file in each.files}:
                found.add((id_, each.instant))
    return found


#: A pending clustering between the commits that wrote the slices.
CLUSTERED = Table(
    timeline_of("c1 c3 g4? c5 c6"),
    PartitionFiles("p", {"g": [slice_of("g", 6), slice_of("g", 5), slice_of("g", 3), slice_of("g", 1)]}),
    DeleteConstraints(saved={"p": frozenset()}),
)


@example(CLUSTERED, Retention(Policy.COMMITS, 1))
@example(CLUSTERED, Retention(Policy.HOURS, 5))
@given(tables(), st.builds(Retention, st.sampled_from(Policy), st.integers(1, 12)))
def test_no_file_that_a_kept_commit_a_pending_plan_or_a_savepoint_needs_is_chosen(
    table: Table, retention: Retention
) -> None:
    """Nor does much else stay: of each group one slice before the earliest commit, or the number of versions."""
    kept = find_earliest_to_retain(table.timeline, retention, DAY_MS + 16 * HOUR_MS, UTC)
    if kept is None and retention.policy is not Policy.VERSIONS:
        return  # Then a clean searches nothing.
    earliest = kept.time if kept else None
    assert kept is None or (kept.state is State.COMPLETED and kept in table.timeline.commits)
    needed = needed_slices(table, retention, earliest)
    found = choose_files(table.partition, retention, earliest, table.constraints)
    going = {
        (id_, each.instant)
        for id_, slices in table.partition.groups.items()
        for each in slices
        if set(each.files) & set(found.files)
    }
    assert not going & needed
    for id_, slices in table.partition.groups.items():
        group = FileGroupId("p", id_)
        if group in table.constraints.compacting or table.constraints.saved["p"]:
            continue
        stay = [each for each in slices if (id_, each.instant) not in going]
        if (replaced := table.constraints.replaced.get(group)) is not None:
            assert not stay or (earliest is not None and replaced >= earliest)
        elif earliest is None:
            assert len(stay) == min(retention.count, len(slices))
        else:
            assert sum(each.instant < earliest for each in stay) <= 1
