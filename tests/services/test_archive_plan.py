"""The instants that leave the timeline: at every step, the same instants count as committed."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.archive.plan import ArchiveLimits, archive_limits, choose_instants, extend_for_cleaning
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.timeline.timeline import Timeline
from tests.helpers.short_timelines import ACTIONS, hour, instant, timeline_of

WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def time_of(number: int) -> str:
    return f"20260101000000{number:03d}"


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    found, voids = [], set()
    for number in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from([*WRITES, Action.COMMIT, Action.COMMIT, Action.CLEAN, Action.ROLLBACK]))
        state = draw(st.sampled_from([State.COMPLETED] * 12 + [State.REQUESTED, State.INFLIGHT]))
        found.append(Instant(time_of(number), kind, state))
        if kind in WRITES and state is State.COMPLETED and draw(st.integers(0, 5)) == 0:
            voids.add(time_of(number))
            continue
        if kind in WRITES and state is State.COMPLETED and draw(st.integers(0, 9)) == 0:
            found.append(Instant(time_of(number), Action.SAVEPOINT, State.COMPLETED))
    timeline = Timeline(tuple(sorted(found, key=lambda i: (i.time, i.action.value))))
    return timeline.with_voids(frozenset(voids))


#: Fewer commits than the limit, and many cleans beside them.
CLEANED: Final = Timeline(
    tuple(Instant(time_of(at), Action.CLEAN if at % 3 else Action.COMMIT, State.COMPLETED) for at in range(9))
)
#: The commit before the instant 6 has a savepoint, so it does not keep that instant from counting as committed.
SAVED: Final = Timeline(
    (
        *(Instant(time_of(at), Action.COMMIT, State.COMPLETED) for at in range(6)),
        Instant(time_of(5), Action.SAVEPOINT, State.COMPLETED),
        *(Instant(time_of(at), Action.COMMIT, State.COMPLETED) for at in range(7, 10)),
    )
)


@example(CLEANED, 5, 1, False, frozenset(), frozenset())
@example(SAVED, 1, 1, False, frozenset({time_of(6)}), frozenset())
@example(SAVED, 1, 1, True, frozenset({time_of(6)}), frozenset())
@given(
    timelines(),
    st.integers(1, 6),
    st.integers(1, 4),
    st.booleans(),
    st.frozensets(st.integers(0, 24).map(time_of), max_size=2),
    st.frozensets(st.integers(0, 24).map(time_of), max_size=3),
)
def test_archive_plan_changes_no_committed_or_protected_instant(
    timeline: Timeline, least: int, more: int, beyond: bool, begun: frozenset[str], hiding: frozenset[str]
) -> None:
    begun -= {instant.time for instant in timeline.instants}
    limits = ArchiveLimits(least, least + more, beyond)
    going = choose_instants(timeline, limits, claimed=begun, has_replaced_files=lambda i: i.time in hiding, most=200)
    saved = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
    pending = {instant.time for instant in timeline.pending_writes} | begun
    for done in range(len(going) + 1):
        after = timeline.without(going[:done])
        for commit in timeline.commits:
            held_apart = beyond and commit.time in saved
            assert after.is_committed(commit.time) or held_apart
        assert not any(after.is_committed(time) for time in pending if not timeline.is_committed(time))
        assert not any(after.is_committed(void.time) for void in after.voids)
    commits = [instant for instant in going if instant.action in WRITES and instant not in timeline.voids]
    assert len(timeline.commits) - len(commits) >= min(least, len(timeline.commits))
    assert not {commit.time for commit in commits} & saved
    assert not [c for c in commits if c.action is Action.REPLACE_COMMIT and c.time in hiding]
    assert all(instant.state is State.COMPLETED for instant in going)
    cleans = [i for i in timeline.of_action(Action.CLEAN) if i.state is State.COMPLETED]
    assert not cleans or cleans[-1] not in going
    nothing_in_the_way = not (saved or pending or hiding)
    if nothing_in_the_way and len(timeline.commits) > limits.most:
        assert len(timeline.commits) - len(commits) == least


def archived(
    text: str,
    least: int,
    most: int,
    *,
    beyond: bool = False,
    before: int | None = None,
    claimed: int | None = None,
    trigger: int | None = None,
    hiding: int | None = None,
    at_once: int = 99,
) -> str:
    """Return the archived instants as words (see `short_timelines`)."""
    limits = ArchiveLimits(least, most, beyond, "~" if before is None else hour(before))
    timeline = timeline_of(text)
    going = choose_instants(
        timeline,
        limits,
        claimed=frozenset() if claimed is None else frozenset({hour(claimed)}),
        trigger_start="~" if trigger is None else hour(trigger),
        has_replaced_files=lambda each: hiding is not None and each.time == hour(hiding),
        most=at_once,
    )
    letters = {action: letter for letter, action in ACTIONS.items()}
    voids = set(timeline.voids)
    return " ".join(f"{'x' if i in voids else letters[i.action]}{int(i.time[8:10])}" for i in going)


@pytest.mark.parametrize(
    ("text", "least", "most", "gone"),
    [
        ("c1 c2 c3 c4", 2, 4, ""),  # Not too long,
        ("c1 c2 c3 c4 c5", 2, 4, "c1 c2 c3"),  # and too long: only the fewest stay.
        ("c1 d2 r3 c4 c5", 4, 4, "c1"),
        ("c1 c2", 4, 1, ""),
        ("c1 c2 c3 n4 b5", 2, 4, "c1"),  # Cleans and rollbacks make it longer,
        ("c1 c2 c3 n4? b5? i6 e7", 2, 4, ""),  # but pending ones and other actions do not.
        ("n1 n2 n3 c4", 1, 4, ""),
        ("n1 n2 n3 c4 c5", 1, 4, "n1 n2 c4"),  # The last clean stays.
        ("c1 n2 c3 n4 c5 n6", 1, 4, "c1 n2 c3 n4"),
        ("n1 n2 n3 n4 c5", 1, 4, "n1 n2 n3"),
        ("b1 c2 b3 c4 b5 c6", 1, 5, "b1 c2 b3 c4 b5"),  # Rollbacks go with the commits.
        ("b1 c2 b3 c4 b5 c6", 2, 5, "b1 c2 b3"),
        ("b1 b2 b3 c4", 2, 2, "b1"),  # Many rollbacks go alone.
        ("b1 b2 b3 b4 c5", 2, 3, "b1 b2"),
        ("b1 b2 b3 c4", 2, 3, ""),
        ("n0 n1 c2? n3 n4 c5 c6", 1, 2, "n0"),  # Nothing after a pending instant goes,
        ("n0 n1 n2? n3 n4 n5? c6 c7 c8", 1, 2, "n0 c6 c7"),
        ("b1 n2? b3 b4 c5 c6 c7 c8", 1, 2, "b1 c5 c6 c7"),
        ("c1 c2 c3! c4 c5", 1, 2, "c1"),  # and the commit before a pending write stays.
        ("c1 c2 c4 k5? c6", 1, 2, "c1 c2"),
        ("c1? c2 c3 c4", 1, 2, ""),
        ("c1 s1 c2 c3 c4", 1, 2, ""),  # Savepoints and all later commits stay.
        ("c1 c2 s2 c3 c4", 1, 2, "c1"),
        ("c1 s1 c2 c3 s3 c4 c5", 1, 2, ""),
        ("c1 x2 c3 x4 c5 c6", 1, 2, "c1 x2 c3 x4 c5"),  # Void commits go with the commits after them.
        ("c1 x2 c3 c4", 2, 2, "c1"),
    ],
)
def test_oldest_instants_of_a_long_timeline_are_archived(text: str, least: int, most: int, gone: str) -> None:
    assert archived(text, least, most) == gone


LONG = "c1 c2 r3 c4 c5 c6"


@pytest.mark.parametrize(
    ("how", "gone"),
    [
        ({"before": 3}, "c1 c2"),
        ({"trigger": 2}, "c1"),
        ({"hiding": 3}, "c1 c2"),
        ({"hiding": 2}, "c1 c2 r3 c4 c5"),  # Only a replacecommit replaces file groups.
        ({"at_once": 2}, "c1 c2"),
        ({"claimed": 5}, "c1 c2 r3"),
        ({"claimed": 4, "before": 2}, "c1"),
    ],
)
def test_other_reasons_keep_commits_on_the_timeline(how: dict[str, int], gone: str) -> None:
    assert archived(LONG, 1, 2, **how) == gone


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("c1 s1 c2 c3 c4", "c2 c3"),
        ("c1 c2 s2 c3 c4 s4 c5 s5", "c1"),  # A commit without a savepoint stays.
        ("c1 s1 c2 s2 c3 s3", ""),
        ("c1 s1 c2 s2 c3? c4 c5", ""),  # The commits before the pending one have savepoints.
        ("c1 c2 s2 c3? c4 c5", ""),
    ],
)
def test_beyond_savepoints_only_their_own_commits_stay(text: str, gone: str) -> None:
    assert archived(text, 1, 2, beyond=True) == gone


@pytest.mark.parametrize(
    ("options", "requested", "limits"),
    [
        ({}, (None, None), (20, 30)),
        ({"min": 5}, (None, None), (5, 30)),
        ({"min": 40}, (None, None), (40, 41)),  # One option alone moves the other.
        ({"max": 10}, (None, None), (9, 10)),
        ({"max": 25}, (None, None), (20, 25)),
        ({"min": 5, "max": 7}, (None, None), (5, 7)),
        ({"min": 5, "max": 7}, (8, None), (8, 9)),
        ({"min": 5, "max": 7}, (3, None), (3, 4)),
        ({}, (3, None), (3, 4)),
        ({"min": 5, "max": 7}, (None, 6), (5, 6)),
        ({"min": 5, "max": 7}, (1, 2), (1, 2)),
    ],
)
def test_limits_are_those_of_the_call_or_of_the_options(
    options: dict[str, int], requested: tuple[int | None, int | None], limits: tuple[int, int]
) -> None:
    said = resolve({f"hoodie.keep.{name}.commits": count for name, count in options.items()})
    assert archive_limits(said, requested) == ArchiveLimits(*limits)


def test_limits_may_stop_at_the_last_clean_and_go_beyond_savepoints() -> None:
    said = resolve({"hoodie.archive.beyond.savepoint": True, "hoodie.archive.block.on.latest.clean.ectr": True})
    assert archive_limits(said, cleaned_to=hour(3)) == ArchiveLimits(20, 30, True, hour(3))
    assert archive_limits(resolve({}), cleaned_to=hour(3)) == ArchiveLimits(20, 30, False, "~")


@pytest.mark.parametrize(
    ("options", "requested", "kind"),
    [
        ({"min": 7, "max": 7}, (None, None), InvalidOptionError),
        ({"max": 1}, (None, None), InvalidOptionError),
        ({}, (2, 2), InvalidInputError),
        ({}, (3, 2), InvalidInputError),
        ({}, (0, 2), InvalidInputError),
        ({}, (None, 20), InvalidInputError),
    ],
)
def test_limits_that_leave_nothing_to_archive_are_refused(
    options: dict[str, int], requested: tuple[int | None, int | None], kind: type[Exception]
) -> None:
    said = resolve({f"hoodie.keep.{name}.commits": count for name, count in options.items()})
    with pytest.raises(kind, match=r"hoodie\.keep\.max\.commits=\d+ is not more than hoodie\.keep\.min\.commits=\d+"):
        archive_limits(said, requested)


@pytest.mark.parametrize(
    ("retention", "earliest", "limits"),
    [
        (Retention(Policy.COMMITS, 2), None, (3, 5)),
        (Retention(Policy.COMMITS, 3), None, (4, 6)),  # The commits that stay readable, and the one before them.
        (Retention(Policy.COMMITS, 5), None, (6, 8)),
        (Retention(Policy.HOURS, 99), None, (3, 5)),
        (Retention(Policy.VERSIONS, 99), None, (3, 5)),
        (Retention(Policy.HOURS, 1), 3, (4, 6)),  # 3, 4 and 5, and 2 before them.
        (Retention(Policy.HOURS, 1), 5, (3, 5)),
        (Retention(Policy.COMMITS, 4), 3, (5, 7)),
        (Retention(Policy.COMMITS, 2), 1, (6, 8)),
    ],
)
def test_commits_that_cleaning_keeps_readable_stay(
    retention: Retention, earliest: int | None, limits: tuple[int, int]
) -> None:
    kept = None if earliest is None else instant(f"c{earliest}")
    found = extend_for_cleaning(ArchiveLimits(3, 5), timeline_of("c1 c2 c3 c4 c5"), retention, kept)
    assert found == ArchiveLimits(*limits)
