"""Which commits and plans of others are conflicts of a write."""

from __future__ import annotations

import pytest

from lakeformat.errors import LakeformatError, TableNotFoundError, WriteConflictError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.transaction.order.conflict import (
    OverlapError,
    PendingActionError,
    check_conflicts,
    check_opened_slices,
    check_plans,
    conflict_of,
    is_stuck,
    list_touched_groups,
    reduce_compactions,
)
from tests.helpers.short_timelines import hour

A, B, C = (FileGroupId("p", name) for name in "abc")


def stat(group: FileGroupId, name: str = "") -> WriteStat:
    name = name or f"{group.file_id}_0-0-0_{hour(1)}.parquet"
    return WriteStat(group.file_id, f"p/{name}", group.partition_path, None, 1)


THEIRS = CommitMetadata("UPSERT", {"p": (stat(A),)}, replaced={"p": ("b",)})


def test_written_and_replaced_groups_are_touched() -> None:
    assert list_touched_groups(THEIRS) == {A, B}


@pytest.mark.parametrize(
    ("touched", "overwritten", "found"),
    [
        ({A}, None, {"a"}),
        ({B, C}, None, {"b"}),
        ({A, B}, None, {"a", "b"}),
        ({C}, None, None),
        (set(), {"p"}, {"a", "b"}),
        (set(), {"q"}, None),
        ({C}, {"q"}, None),
        (set(), set(), None),
    ],
)
def test_commit_that_touches_our_groups_or_partitions_conflicts(
    touched: set[FileGroupId], overwritten: set[str] | None, found: set[str] | None
) -> None:
    none = None if overwritten is None else frozenset(overwritten)
    other = CommitMetadata("UPSERT", {"q": (stat(FileGroupId("q", "z")),)} if overwritten is None else {})
    commits = [(hour(1), other), (hour(2), THEIRS)]
    if found is None:
        check_conflicts(hour(3), frozenset(touched), commits, none)
        return
    with pytest.raises(
        OverlapError, match=f"commit {hour(3)} overlaps commit {hour(2)} in {len(found)} file"
    ) as caught:
        check_conflicts(hour(3), frozenset(touched), commits, none)
    assert caught.value.file_ids == found
    assert f"e.g. {min(found)};" in str(caught.value)


def test_compaction_keeps_only_the_files_that_hide_ours() -> None:
    compaction = CommitMetadata(
        "COMPACT", {"p": (stat(A), stat(B)), "q": (stat(FileGroupId("q", "a")),)}, compacted=True
    )
    ours = CommitMetadata("UPSERT", {"p": (stat(A),)})
    reduced, plain = reduce_compactions(hour(1), ours, [(hour(2), compaction), (hour(3), THEIRS)], by_name=True)
    assert (reduced[0], dict(reduced[1].stats)) == (hour(2), {"p": (stat(A),)})
    assert plain == (hour(3), THEIRS)


@pytest.mark.parametrize(
    ("name", "planned", "conflicts"),
    [
        (f".a_{hour(1)}.log.1_0-0-0", {A: hour(2)}, True),
        (f".a_{hour(2)}.log.1_0-0-0", {A: hour(2)}, False),  # It belongs to the slice that the plan opens.
        (f".a_{hour(1)}.log.1_0-0-0.cdc", {A: hour(2)}, False),
        (f"a_0-0-0_{hour(1)}.parquet", {A: hour(2)}, False),
        (f".a_{hour(1)}.log.1_0-0-0", {B: hour(2)}, False),
    ],
)
def test_log_in_a_slice_that_a_plan_has_ended_conflicts(
    name: str, planned: dict[FileGroupId, str], conflicts: bool
) -> None:
    stats = [stat(C), stat(A, name)]
    if not conflicts:
        check_opened_slices(stats, planned)
        return
    with pytest.raises(WriteConflictError, match=f"compaction {hour(2)} was planned for file group a "):
        check_opened_slices(stats, planned)


def test_groups_that_a_pending_clustering_rewrites_may_not_be_written() -> None:
    check_plans(frozenset({C}), {A: hour(1)}, str)
    with pytest.raises(
        PendingActionError, match=rf"2 file group\(s\), e.g. a, .* {hour(1)} .*; ask {hour(1)}"
    ) as caught:
        check_plans(frozenset({B, A, C}), {A: hour(1), B: hour(2)}, lambda time: f"ask {time}")
    assert caught.value.file_ids == {"a", "b"}
    assert is_stuck(caught.value)


def test_disturbed_attempt_is_a_conflict_whatever_it_raised() -> None:
    for kept in (WriteConflictError("x"), TableNotFoundError("x")):
        assert conflict_of("t", kept) is kept
    ours, other = conflict_of("t", LakeformatError("text")), conflict_of("t", FileNotFoundError("name"))
    assert isinstance(ours, WriteConflictError)
    assert str(ours) == "text"
    assert isinstance(other, WriteConflictError)
    assert str(other).startswith("a file of t was deleted by another process")
    assert [is_stuck(error) for error in (ours, FileNotFoundError())] == [False, True]
