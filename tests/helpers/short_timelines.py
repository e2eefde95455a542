"""Timelines written as a line of text, for tests of plans that read nothing but the timeline."""

from __future__ import annotations

from typing import Final

from lakeformat.model.instant import Action, Instant, State
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, TimelineLayout

__all__ = ["ACTIONS", "hour", "instant", "timeline_of"]

#: The letter of each action.
ACTIONS: Final = {
    "c": Action.COMMIT,
    "d": Action.DELTA_COMMIT,
    "r": Action.REPLACE_COMMIT,
    "k": Action.COMPACTION,
    "l": Action.LOG_COMPACTION,
    "g": Action.CLUSTERING,
    "n": Action.CLEAN,
    "b": Action.ROLLBACK,
    "s": Action.SAVEPOINT,
    "e": Action.RESTORE,
    "i": Action.INDEXING,
    "m": Action.SCHEMA_COMMIT,
}
_STATES: Final = {"?": State.REQUESTED, "!": State.INFLIGHT}


def hour(number: int) -> str:
    """Return the instant time of this hour of the first of January 2026."""
    return f"20260101{number:02d}0000000"


def instant(word: str) -> Instant:
    """Return the instant of a word such as ``c3``: the letter of the action, the hour, and ``?`` or ``!`` if pending.

    ``?`` is requested, ``!`` is inflight. ``c3-5`` is a commit of hour 3 that completed in hour 5.
    """
    state = _STATES.get(word[-1], State.COMPLETED)
    begun, _, ended = word[1:].rstrip("?!").partition("-")
    return Instant(hour(int(begun)), ACTIONS[word[0]], state, hour(int(ended)) if ended else None)


def timeline_of(text: str, layout: TimelineLayout = LAYOUT_1) -> Timeline:
    """Return the timeline of some words, oldest first. ``x3`` is a void commit of hour 3."""
    words = text.split()
    instants = [instant(f"c{word[1:]}" if word[0] == "x" else word) for word in words]
    voids = frozenset(each.time for word, each in zip(words, instants, strict=True) if word[0] == "x")
    return Timeline(tuple(sorted(instants, key=lambda i: (i.time, i.action.value))), layout=layout).with_voids(voids)
