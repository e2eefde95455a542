"""Which instants a restore undoes, and in which order; which target it refuses."""

from __future__ import annotations

import pytest

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.services.restore.plan import check_not_saved, find_last_commit, find_target, list_instants_after
from lakeformat.timeline.timeline_layout import LAYOUT_2
from tests.helpers.short_timelines import hour, instant, timeline_of


def test_target_is_a_completed_commit() -> None:
    timeline = timeline_of("c2 d3 c4? n5")
    assert find_target(timeline, hour(3), "t", activity="restore") == instant("d3")
    for number, why in ((4, "has not completed"), (1, f"is older than {hour(2)}"), (5, "is not a commit")):
        with pytest.raises(InstantNotAvailableError, match=f"t: cannot restore: instant {hour(number)} {why}"):
            find_target(timeline, hour(number), "t", activity="restore")
    with pytest.raises(InstantNotAvailableError, match="is not a commit"):
        find_target(timeline_of(""), hour(1), "t", activity="restore")
    with pytest.raises(InstantNotAvailableError, match="is not a commit"):
        find_target(timeline_of("c1 n2 c3"), hour(2), "t", activity="restore")


def test_undone_are_clusterings_then_pending_writes_then_completed_ones_each_newest_first() -> None:
    timeline = timeline_of("c1 c2 c3! r4? d5 c6? r7! c8 n9 b9")
    undone = list_instants_after(timeline, instant("c2"), [hour(4), hour(7)])
    assert [each.time for each in undone] == [hour(number) for number in (7, 4, 6, 3, 8, 5)]
    assert list_instants_after(timeline, instant("c8")) == ()


def test_completed_writes_are_undone_by_their_end() -> None:
    timeline = timeline_of("c1-6 c2-3 c4-5 c7-9 d8-8", LAYOUT_2)
    undone = list_instants_after(timeline, instant("c4-5"))
    assert [each.time for each in undone] == [hour(number) for number in (7, 8, 1)]
    assert find_last_commit(timeline) == instant("c7-9")
    assert find_last_commit(timeline_of("c1? n2")) is None


def test_commit_with_a_savepoint_is_not_undone() -> None:
    timeline = timeline_of("c1 c2 s2 c3")
    check_not_saved(timeline, [instant("c1"), instant("c3")], "t")
    with pytest.raises(InvalidInputError, match=f"t: commit {hour(2)} is held by a savepoint"):
        check_not_saved(timeline, [instant("c3"), instant("c2")], "t")
