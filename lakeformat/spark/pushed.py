"""Which rows a relation's scans have asked for so far, where Spark keeps one plan of files for all of them.

Spark 4.1 to 4.3 (``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``) store the plan of the last
pushdown on the relation, and every scan of it that starts later, of whatever query, reads by that plan. So a plan
must hold the rows of all scans that pushed before it, kept here in a file of the planner's disk, under a lock:

- `ask` adds a scan's filter. Then plans that lack it and were made a moment ago by other processes are given time to
  be stored: Spark must store them before this scan's plan, not after it.
- `settle` comes last in planning: a plan that lacks what another scan has asked for meanwhile is made anew.

Whatever goes wrong (no file, a torn one, no locks on this system), the plan is of everything.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lakeformat.predicate import Always, And, Or, Predicate
from lakeformat.storage import change_scratch, new_scratch

__all__ = ["EVERYTHING", "Asked", "ask", "new_log", "settle"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: So many different filters, then one frame reads everything: each costs planning, and together they skip little.
_MOST: Final = 32
#: Within these seconds Spark has stored a plan that it is sent, plus some for each of its partitions.
_STORED_WITHIN_S: Final = 2.0
_STORED_WITHIN_S_EACH: Final = 0.001

_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked:
    """What a plan must hold.

    Attributes:
        predicate: the rows of all scans so far; None for all rows.
        count: how many different filters that is.
    """

    predicate: Predicate | None
    count: int


EVERYTHING: Final = Asked(None, 0)


@dataclass
class _State:
    """The file's content.

    Attributes:
        asked: filters in the order in which they came, None for everything.
        sent: process id -> when its last plan is stored at the latest (monotonic seconds), and how many filters
            that plan held.
    """

    asked: list[Predicate | None] = field(default_factory=list)
    sent: dict[int, tuple[float, int]] = field(default_factory=dict)

    def all(self) -> Asked:
        """What a plan made now must hold."""
        known = [predicate for predicate in self.asked if predicate is not None]
        return Asked(None if None in self.asked else Or(tuple(known)), len(self.asked))

    def place(self, wanted: Predicate | None) -> int:
        """Where the filter stands, or one for everything; added if neither does."""
        for at, known in enumerate(self.asked):
            if known is None or repr(known) == repr(wanted):
                return at
        self.asked.append(wanted if len(self.asked) < _MOST else None)
        return len(self.asked) - 1

    def stored_by(self, place: int) -> float:
        """When all plans of other processes are stored that lack a filter.

        Spark gives a process its next work after it has read what came of the last: our own is stored.
        """
        return max((t for pid, (t, count) in self.sent.items() if pid != os.getpid() and count <= place), default=0.0)

    def send(self, asked: Asked, partitions: int) -> None:
        """Note this process's plan."""
        now = time.monotonic()
        self.sent = {pid: sent for pid, sent in self.sent.items() if sent[0] > now}
        self.sent[os.getpid()] = (now + _STORED_WITHIN_S + _STORED_WITHIN_S_EACH * partitions, asked.count)


def new_log() -> str | None:
    """Where a new relation's filters are kept, None if they cannot be."""
    try:
        return new_scratch()
    except OSError as error:
        _LOG.warning("files are not skipped by ordinary filters: %s", error)
        return None


def ask(log: str, wanted: Predicate) -> Asked:
    """Say which rows a scan needs, by a bound filter; returns what its plan must hold."""

    def add(state: _State) -> tuple[Asked, float]:
        place = state.place(_narrowing(wanted))
        return state.all(), state.stored_by(place)

    try:
        asked, until = _changed(log, add)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING
    if (wait := until - time.monotonic()) > 0:
        time.sleep(wait)
    return asked


def settle(log: str, asked: Asked, partitions: int) -> Asked:
    """Say that a plan is about to be sent; returns what it must hold: more than asked, and it must be made anew."""

    def send(state: _State) -> Asked:
        now = state.all()
        if now.count == asked.count:
            state.send(asked, partitions)
        return now

    try:
        return _changed(log, send)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING


def _narrowing(wanted: Predicate) -> Predicate | None:
    """The filter without what is always true; None if nothing is left."""
    parts = wanted.operands if isinstance(wanted, And) else (wanted,)
    kept = tuple(part for part in parts if part != Always(True))
    return And(kept) if kept else None


def _changed(log: str, change: Callable[[_State], _T]) -> _T:
    answers: list[_T] = []

    def run(before: bytes) -> bytes:
        state = _read(before)
        answers.append(change(state))
        return pickle.dumps(state)

    change_scratch(log, run)
    return answers[0]


def _read(data: bytes) -> _State:
    """A process that died while it wrote leaves a torn file: nobody knows what was asked, so everything is."""
    try:
        state = pickle.loads(data) if data else _State()  # noqa: S301  Only this user can write there.
    except Exception:
        return _State([None], {0: (time.monotonic() + _STORED_WITHIN_S, 0)})
    assert isinstance(state, _State)  # noqa: S101  What `_changed` writes.
    return state
