"""Instants: points on the timeline, and the names their files have in table version 6."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from lakeformat.errors import InvalidOptionError

__all__ = [
    "COMMIT_ACTIONS",
    "Action",
    "Instant",
    "State",
    "format_instant_time",
    "next_instant_time",
    "parse_as_of",
]


class Action(str, enum.Enum):
    """What an instant does (Hudi: ``HoodieTimeline`` action names)."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"


#: The actions whose completion makes rows visible.
COMMIT_ACTIONS: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


class State(enum.IntEnum):
    """How far an instant has come; of several files of one instant the furthest counts."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


_NAME = re.compile(
    r"(?P<time>\d{14}|\d{17})\.(?:(?P<bare>inflight)|(?P<action>[a-z]+)(?:\.(?P<state>requested|inflight))?)"
)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action at one time, in one state. Orders by time.

    >>> Instant.parse("20251120083000123.commit.requested").file_name
    '20251120083000123.commit.requested'
    >>> Instant.parse("20251120083000123.inflight").action.value
    'commit'
    """

    time: str
    action: Action
    state: State

    @classmethod
    @lru_cache(maxsize=1 << 16)  # A write lists the timeline several times, and all but its own names stay the same.
    def parse(cls, name: str) -> Instant | None:
        """The instant a file of the ``.hoodie`` folder stands for; None for every other file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        if match["bare"]:
            return cls(match["time"], Action.COMMIT, State.INFLIGHT)
        try:
            action = Action(match["action"])
        except ValueError:
            return None
        state = State[match["state"].upper()] if match["state"] else State.COMPLETED
        return cls(match["time"], action, state)

    @property
    def file_name(self) -> str:
        """The name of this state's file (timeline layout version 1)."""
        if self.state is State.COMPLETED:
            return f"{self.time}.{self.action.value}"
        if self.action is Action.COMMIT and self.state is State.INFLIGHT:
            return f"{self.time}.inflight"
        return f"{self.time}.{self.action.value}.{self.state.name.lower()}"

    def at(self, state: State) -> Instant:
        """The same instant in another state."""
        return Instant(self.time, self.action, state)


def format_instant_time(millis: int, zone: tzinfo | None) -> str:
    """Epoch milliseconds as ``yyyyMMddHHmmssSSS`` in the timeline's zone; None is that of this process."""
    moment = datetime.fromtimestamp(millis // 1000, zone)
    return f"{moment:%Y%m%d%H%M%S}{millis % 1000:03d}"


def next_instant_time(now_ms: int, newest: str | None, zone: tzinfo | None) -> str:
    """The time for a new instant: now, or one millisecond past the newest one if the clock is behind.

    Strictly greater than ``newest`` as text, which is how Hudi orders instants; a 14-digit instant of an
    old table counts as its last millisecond.
    """
    now = format_instant_time(now_ms, zone)
    if newest is None or now > newest.ljust(17, "9"):
        return now
    after = datetime.strptime(newest[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    after += timedelta(milliseconds=int(newest[14:] or 999) + 1)
    return f"{after:%Y%m%d%H%M%S}{after.microsecond // 1000:03d}"


_AS_OF_FORMS: Final = (
    (re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3}"), "%Y-%m-%d %H:%M:%S.%f"),
    (re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"\d{4}-\d{2}-\d{2}"), "%Y-%m-%d"),
)


def parse_as_of(text: str) -> str:
    """The instant time an ``as.of.instant`` option means, read in the timeline's zone.

    ``yyyyMMddHHmmss[SSS]`` stays as it is (14 digits compare as text, so they leave out that second);
    ``yyyy-MM-dd HH:mm:ss`` means the end of that second, a bare date the start of that day
    (Hudi: ``HoodieSqlCommonUtils.formatQueryInstant``).

    Raises:
        InvalidOptionError: for any other form.
    """
    text = text.strip()
    if re.fullmatch(r"\d{14}|\d{17}", text):
        return text
    for pattern, form in _AS_OF_FORMS:
        if pattern.fullmatch(text):
            try:
                moment = datetime.strptime(text, form)
            except ValueError:
                break
            millis = 999 if form.endswith("%S") else moment.microsecond // 1000
            return f"{moment:%Y%m%d%H%M%S}{millis:03d}"
    raise InvalidOptionError(
        f"as.of.instant={text!r} is no instant; write yyyyMMddHHmmss[SSS], yyyy-MM-dd HH:mm:ss[.SSS] or yyyy-MM-dd"
    )
