"""Which step may follow which, as a table (Hudi: ``HoodieActiveTimeline.transitionState``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.errors import CorruptTableError
from lakeformat.model.instant import COMMIT_ACTIONS, COMPLETES_AS, Action, Instant, State

__all__ = ["STEPS", "check_step"]

#: From a state to the states it may lead to. Nothing is ever skipped.
STEPS: Final[Mapping[Action, Mapping[State, frozenset[State]]]] = {
    action: {
        State.REQUESTED: frozenset({State.INFLIGHT}),
        State.INFLIGHT: frozenset({State.COMPLETED}),
        State.COMPLETED: frozenset(),
    }
    for action in (
        *COMMIT_ACTIONS,
        Action.COMPACTION,
        Action.CLUSTERING,
        Action.ROLLBACK,
        Action.CLEAN,
        Action.SAVEPOINT,
        Action.RESTORE,
    )
}


def check_step(instant: Instant, to: State) -> Instant:
    """The instant in its next state; a plan completes as what it stands for.

    Raises:
        CorruptTableError: the step is not in `STEPS`: somebody changed the timeline under us.
    """
    if to not in STEPS.get(instant.action, {}).get(instant.state, frozenset()):
        raise CorruptTableError(
            f"instant {instant.time}, a {instant.action.value} {instant.state.name.lower()}, cannot become "
            f"{to.name.lower()}; look at the .hoodie folder"
        )
    action = COMPLETES_AS.get(instant.action, instant.action) if to is State.COMPLETED else instant.action
    return Instant(instant.time, action, to)
