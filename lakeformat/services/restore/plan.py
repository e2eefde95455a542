"""What going back undoes, and what must be there for it. Pure: facts are gathered by `run`."""

from __future__ import annotations

from collections.abc import Iterable

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.timeline.timeline import Timeline

__all__ = ["after", "check_not_saved", "last_commit", "target_of"]


def target_of(timeline: Timeline, asked: str, location: str, *, doing: str) -> Instant:
    """The completed commit of an instant time.

    Raises:
        InstantNotAvailableError: there is none on the active timeline.
    """
    for commit in timeline.commits:
        if commit.time == asked:
            return commit
    pending = timeline.find(asked)
    first = timeline.commits[0].time if timeline.commits else None
    if pending is not None:
        why = "has not completed"
    elif first is not None and asked < first:
        why = f"is older than {first}, the oldest commit that is not archived (hoodie.keep.min.commits)"
    else:
        why = "is no commit; history() lists them"
    raise InstantNotAvailableError(f"{location}: cannot {doing}: instant {asked} {why}")


def after(timeline: Timeline, target: Instant, plans: Iterable[str] = ()) -> tuple[Instant, ...]:
    """What a restore undoes, in its order: pending clustering first, then the newest first.

    Completed writes count by when they completed (in timeline layout 1 that is their time), pending ones by when they
    began (Hudi: ``RestorePlanActionExecutor``).

    Args:
        plans: times of pending clustering plans.
    """
    clustering = frozenset(plans)
    found = [
        instant
        for instant in timeline.instants
        if instant.action in WRITE_ACTIONS
        and (
            instant.completed_at > target.completed_at
            if instant.state is State.COMPLETED
            else instant.time > target.time
        )
    ]

    def order(instant: Instant) -> tuple[bool, bool, str, str]:
        is_done = instant.state is State.COMPLETED
        return instant.time in clustering, not is_done, instant.completed_at, instant.time

    return tuple(sorted(found, key=order, reverse=True))


def last_commit(timeline: Timeline) -> Instant | None:
    """The commit that completed last; None in an empty table."""
    return max(timeline.commits, key=lambda i: (i.completed_at, i.time), default=None)


def check_not_saved(timeline: Timeline, undone: Iterable[Instant], location: str) -> None:
    """Refuse to undo a commit that a savepoint holds. Raises `InvalidInputError`."""
    saved = {i.time for i in timeline.of_action(Action.SAVEPOINT)}
    for instant in undone:
        if instant.time in saved:
            raise InvalidInputError(
                f"{location}: commit {instant.time} is held by a savepoint and cannot be undone; call "
                f"delete_savepoint('{instant.time}') first"
            )
