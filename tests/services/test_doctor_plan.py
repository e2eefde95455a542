"""What `check` says of files, commits and savepoints: the plan behind it, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from lakeformat.file_system_view.file_groups import Listing
from lakeformat.file_system_view.slices import build_slices
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, LogFile, LogFileName
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.services.doctor.plan import (
    Facts,
    find_gaps,
    find_incomplete,
    find_lost_saved_files,
    find_miscounts,
    find_orphans,
    find_row_mismatches,
    find_unarchived,
)
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout
from tests.helpers.short_timelines import hour, instant, timeline_of


def base(at: int, file_id: str = "a", size: int = 10) -> BaseFile:
    return BaseFile("p", BaseFileName(file_id, "0-0-0", hour(at)), size)


def log(at: int, file_id: str = "a", size: int = 10, *, cdc: bool = False) -> LogFile:
    return LogFile("p", LogFileName(file_id, hour(at), 1, "0-0-0", cdc), size)


def wrote(file: BaseFile | LogFile, before: int | None = None, rows: int = 1, **counts: Any) -> WriteStat:
    prev = None if before is None else hour(before)
    counts = {"size_bytes": file.size_bytes, **counts}
    return WriteStat(file.name.file_id, file.path, "p", prev, rows, **counts)


def facts(
    text: str,
    commits: dict[str, Sequence[WriteStat]],
    files: Iterable[BaseFile | LogFile] = (),
    layout: TimelineLayout = LAYOUT_1,
    **parts: Any,
) -> Facts:
    listed = list(files)
    bases = tuple(each for each in listed if isinstance(each, BaseFile))
    logs = tuple(each for each in listed if isinstance(each, LogFile))
    newest = {each.group: each for each in sorted(bases, key=lambda each: each.name.instant_time)}
    values: dict[str, Any] = {
        "timeline": timeline_of(text, layout),
        "commits": [(instant(word), CommitMetadata("UPSERT", {"p": tuple(stats)})) for word, stats in commits.items()],
        "listing": Listing(bases, logs),
        "slices": build_slices(newest.values(), logs, (), lambda each: each.name.instant_time),
        "replaced": frozenset(),
        "saved": frozenset(),
        "archived": frozenset(),
        "archive": "old",
        "is_copy_on_write": True,
    }
    return Facts(**{"can_restore": lambda _: True, **values, **parts})


def told(findings: Iterable[Finding]) -> list[tuple[Kind, str, int]]:
    return [(each.kind, each.path, each.size_bytes) for each in findings]


def test_file_that_no_commit_wrote_is_an_orphan() -> None:
    named, unnamed, archived, pending, later, rolled_back = base(2), base(2, "b"), base(1), base(3), base(9), base(4)
    saved = base(2, "s")
    files = [named, unnamed, archived, pending, later, rolled_back, saved, log(4)]
    found = facts("c2 c3? c5", {"c2": [wrote(named)]}, files, saved=frozenset({saved.path}))
    assert told(find_orphans(found)) == [(Kind.ORPHAN, file.path, 10) for file in (unnamed, rolled_back)]
    assert all(each.mends for each in find_orphans(found))
    assert not list(find_orphans(facts("", {}, files)))
    newest = facts("c1 c2", {"c1": [wrote(archived)], "c2": [wrote(named)]}, [archived, named, unnamed])
    assert told(find_orphans(newest)) == [(Kind.ORPHAN, unnamed.path, 10)]


def test_log_without_a_commit_is_an_orphan_only_where_its_name_says_its_writer() -> None:
    files = [log(4), log(2, "b"), log(1, "c")]
    assert not list(find_orphans(facts("d2 d5", {}, files)))
    found = facts("d2-2 d5-5", {}, files, LAYOUT_2)
    assert told(find_orphans(found)) == [(Kind.ORPHAN, files[0].path, 10)]


def test_base_file_of_the_newest_commit_must_be_there_with_its_size() -> None:
    stats = {"c1": [wrote(base(1))], "c2": [wrote(base(2), 1)], "c3": [wrote(base(3, "b"))]}
    missing = [(Kind.MISSING, base(2).path, 10)]
    assert told(find_incomplete(facts("c1 c2 c3", stats, [base(1), base(3, "b")]), lambda _: False)) == missing
    whole = [base(2), base(3, "b")]
    assert not list(find_incomplete(facts("c1 c2 c3", stats, whole), lambda _: False))
    assert not list(find_incomplete(facts("c1 c2 c3", stats, [base(4), base(3, "b", 10)]), lambda _: False))
    short = facts("c1 c2 c3", stats, [base(2, size=9), base(3, "b")])
    assert told(find_incomplete(short, lambda _: False)) == [(Kind.OTHER_SIZE, base(2).path, 9)]
    unknown = {"c2": [wrote(base(2), size_bytes=0)]}
    assert not list(find_incomplete(facts("c2", unknown, [base(2, size=9)]), lambda _: False))
    replaced = facts("c1 c2 c3", stats, [base(3, "b")], replaced=frozenset({FileGroupId("p", "a")}))
    assert not list(find_incomplete(replaced, lambda _: False))


def test_files_in_a_folder_without_a_marker_are_not_missing() -> None:
    found = facts("c1", {"c1": [wrote(base(1)), wrote(base(1, "b"))]})
    unmarked = [(Kind.NO_PARTITION_FILE, "p", 0)]
    assert told(find_incomplete(found, lambda _: True)) == unmarked
    assert all(each.mends for each in find_incomplete(found, lambda _: True))
    some = find_incomplete(found, lambda path: path == base(1).path)
    assert told(some) == [(Kind.MISSING, base(1, "b").path, 10), *unmarked]


def test_log_of_a_live_slice_must_be_there_with_its_size() -> None:
    stats = {"d2": [wrote(log(1), 1), wrote(log(2), 1), wrote(log(1, "x")), wrote(log(1, cdc=True))]}
    whole, lost, short = [base(1), log(1), log(2)], [base(1), log(2)], [base(1), log(1, size=9), log(2)]
    assert not list(find_incomplete(facts("c1 d2", stats, whole), lambda _: False))
    assert told(find_incomplete(facts("c1 d2", stats, lost), lambda _: False)) == [(Kind.MISSING, log(1).path, 10)]
    assert told(find_incomplete(facts("c1 d2", stats, short), lambda _: False)) == [(Kind.OTHER_SIZE, log(1).path, 9)]
    # A later base file has merged it. Without the base of its slice, its own name says the slice.
    assert not list(find_incomplete(facts("c1 d2", stats, [base(3)]), lambda _: False))
    unnamed = {"d2": [wrote(log(1)), wrote(log(3))]}
    later = find_incomplete(facts("c1 d2", unnamed, [base(2)]), lambda _: False)
    assert told(later) == [(Kind.MISSING, log(3).path, 10)]


@pytest.mark.parametrize(
    ("rows", "counts", "before", "copy_on_write", "is_right"),
    [
        (3, (3, 0, 0), None, True, True),
        (3, (2, 1, 0), None, True, True),
        (4, (3, 0, 0), None, True, False),  # A new file has only the rows that were written.
        (2, (3, 0, 0), None, True, False),
        (3, (4, -1, 0), None, True, False),
        (3, (-1, 4, 0), None, True, False),
        (3, (3, 0, -1), None, True, False),
        (7, (2, 1, 0), 5, True, True),
        (8, (2, 1, 0), 5, True, False),
        (6, (2, 1, 0), 5, True, False),
        (6, (2, 1, 1), 5, True, True),
        (5, (2, 1, 1), 5, True, False),
        (7, (2, 1, 1), 5, True, True),  # The deleted key was not there.
        (3, (0, 4, 9), 5, True, False),  # Fewer rows than were updated.
        (8, (2, 1, 0), 5, False, True),  # Rows of log files came in.
        (2, (2, 1, 0), 5, False, False),
    ],
)
def test_counts_of_a_commit_must_agree(
    rows: int, counts: tuple[int, int, int], before: int | None, copy_on_write: bool, is_right: bool
) -> None:
    inserts, updates, deletes = counts
    after = 2 if before is not None else None
    stat = wrote(base(3), after, rows, num_inserts=inserts, num_updates=updates, num_deletes=deletes)
    first = [wrote(base(2), None, before, num_inserts=before)] if before else []
    found = facts("c2 c3", {"c2": first, "c3": [stat]}, is_copy_on_write=copy_on_write)
    assert told(find_miscounts(found)) == ([] if is_right else [(Kind.OTHER_COUNTS, base(3).path, 0)])


def test_counts_of_files_whose_past_is_unknown_and_of_logs_have_a_lower_limit_only() -> None:
    for file in (base(3), log(3)):
        for rows, is_right in ((3, True), (9, True), (2, False)):
            found = facts("c3", {"c3": [wrote(file, 2, rows, num_inserts=2, num_updates=1)]})
            assert bool(list(find_miscounts(found))) is not is_right
    text = next(find_miscounts(found)).cure
    assert "(2 rows, 2 inserted, 1 updated, 0 deleted)" in text


def test_previous_commit_must_be_on_the_timeline_or_archived() -> None:
    stats = {"c5": [wrote(base(5), 4), wrote(base(5, "b"), 4), wrote(base(5, "c"), 3), wrote(log(5, "d"), 2)]}
    found = facts("c3 c5", stats)
    assert told(find_gaps(found)) == [(Kind.TIMELINE_GAP, f".hoodie/{hour(4)}", 0)]
    assert not list(find_gaps(facts("c3 c4? c5", stats)))
    assert not list(find_gaps(facts("c5", stats)))  # Older than the timeline: archived.
    named = WriteStat("a", base(5).path, "p", "bootstrap", 1)
    assert not list(find_gaps(facts("c5", {"c5": [named, wrote(base(5, "n"))]})))


def test_archived_commits_of_files_must_be_in_the_archive() -> None:
    stats = {"c5": [wrote(base(5), 1), wrote(log(5, "l"), 2), wrote(base(5, "n"))]}
    files = [base(3), base(4, "b"), base(5, "c"), base(7, "d")]
    found = facts("c5", stats, files, archived=frozenset({hour(4)}))
    assert told(find_unarchived(found)) == [(Kind.TIMELINE_GAP, f"old/{hour(number)}", 0) for number in (1, 3)]
    assert not list(find_unarchived(facts("", {}, files)))
    assert not list(find_unarchived(facts("c3? c5", {}, [base(3)])))  # Its writer may be running.
    null = WriteStat("a", base(5).path, "p", "-", 1)  # Less than every instant time.
    assert not list(find_unarchived(facts("c5", {"c5": [null]})))


def test_base_files_that_a_savepoint_names_must_exist() -> None:
    saved = {hour(1): [base(1).path, base(1, "b").path, log(1).path]}
    (found,) = find_lost_saved_files(saved, Listing((base(1),), ()), ())
    assert (found.kind, found.path) == (Kind.SAVEPOINT, base(1, "b").path)


def test_rows_of_footers_are_those_of_the_commits() -> None:
    found = facts("c1", {"c1": [wrote(base(1), rows=3), wrote(base(1, "b"), rows=3), wrote(base(1, "c"), rows=3)]})
    (finding,) = find_row_mismatches(found, {base(1).path: 3, base(1, "b").path: 5})
    assert (finding.kind, finding.path, finding.rows) == (Kind.OTHER_ROWS, base(1, "b").path, 2)
