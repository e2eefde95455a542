"""A range that begins at a commit which was undone since: nobody's changes tell what undoing it brought back."""

from __future__ import annotations

import logging
from typing import Final
from collections.abc import Iterator

from lakeformat.model.instant import Action
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["tell_undone"]

_LOG: Final = logging.getLogger("lakeformat.read")


def tell_undone(store: TimelineStore, whole: Timeline, since: str) -> None:
    """Log a warning if whoever has read up to ``since`` has seen a commit that a rollback or restore took away.

    Nothing is read where ``since`` is a commit that stands. In layout 2 an undone commit has no completion time any
    more: there it is the last one begun before ``since``, if none that stands completed in between.

    Args:
        since: where the range begins; "" for everything.
    """
    if not since or any(commit.completed_at == since for commit in whole.commits):
        return
    for time, by in _undone(store, whole, since):
        if time == since or (whole.layout.tells_completion and not whole.completed_in(time, since)):
            _LOG.warning(
                "the changes of %s begin at %s, where commit %s stood, which %s has undone since: what that brought "
                "back is not among them; read the table anew",
                store.storage.location, since, time, by,
            )  # fmt: skip
            return


def _undone(store: TimelineStore, whole: Timeline, since: str) -> Iterator[tuple[str, str]]:
    """Instants begun up to a time and undone after it, newest first, and by what."""
    found: dict[str, str] = {}
    for each in whole.of_action(Action.ROLLBACK):
        plan = store.rollback_plan(each) if each.time > since else None
        if plan is not None:
            found[plan.instant_time] = store.path(each)
    for each in whole.of_action(Action.RESTORE):
        restored = store.restore_plan(each) if each.time > since else None
        for time, _ in restored.instants if restored is not None else ():
            found[time] = store.path(each)
    yield from sorted(((time, by) for time, by in found.items() if time <= since), reverse=True)[:1]
