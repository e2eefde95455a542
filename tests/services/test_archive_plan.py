"""The instants that leave the timeline: at every step, the same instants count as committed."""

from __future__ import annotations

from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.archive.plan import ArchiveLimits, choose_instants
from lakeformat.timeline.timeline import Timeline

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
