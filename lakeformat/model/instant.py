"""Instants, the points on the timeline, and their times as text."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Final, TypeAlias

from lakeformat.errors import InvalidInputError, InvalidOptionError

__all__ = [
    "COMMIT_ACTIONS",
    "COMPLETES_AS",
    "REPLACE_ACTIONS",
    "WRITE_ACTIONS",
    "Action",
    "AsOf",
    "Instant",
    "State",
    "VisibleInstants",
    "check_instant_time",
    "format_instant_time",
    "next_instant_time",
    "parse_as_of",
]


class Action(str, enum.Enum):
    """The action of an instant (Hudi: ``HoodieTimeline`` action names)."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"


#: Action of a plan -> the action that it completes as, at the same instant time. In timeline layout 1 the plan of a
#: clustering is a replacecommit itself.
COMPLETES_AS: Final[Mapping[Action, Action]] = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
#: Actions whose completion makes rows visible.
COMMIT_ACTIONS: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
#: The commit actions, and the actions that complete as one of them.
WRITE_ACTIONS: Final = COMMIT_ACTIONS | frozenset(COMPLETES_AS)
#: Actions that may replace file groups. A pending instant of one of them may be a clustering plan.
REPLACE_ACTIONS: Final = frozenset({Action.REPLACE_COMMIT, Action.CLUSTERING})


class State(enum.IntEnum):
    """The state of an instant. If an instant has several files, the furthest state counts."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action at one time, in one state. Instants are ordered by time.

    Attributes:
        time: When the instant was requested, as text; it names the instant and its files.
        completion_time: When the instant completed; None in timeline layout 1 and while the instant is pending.
    """

    time: str
    action: Action
    state: State
    completion_time: str | None = None

    @property
    def completed_at(self) -> str:
        """Return the completion time, else the instant time; incremental queries compare this."""
        return self.completion_time or self.time

    def at(self, state: State) -> Instant:
        """Return this instant in another state; the completion time is dropped unless that state is completed."""
        return Instant(self.time, self.action, state, self.completion_time if state is State.COMPLETED else None)


@dataclass(frozen=True, slots=True)
class VisibleInstants:
    """The instants whose writes are visible in a snapshot. A small picklable value.

    Attributes:
        times: Times of completed instants on the active timeline.
        before: All instants earlier than this time are archived, and have completed.
    """

    times: frozenset[str]
    before: str

    def __call__(self, time: str) -> bool:
        """Tell whether the instant of this time is visible."""
        return time in self.times or time < self.before

    def since(self, time: str) -> VisibleInstants:
        """Return a smaller value that gives the same answers for ``time`` and later times."""
        return VisibleInstants(frozenset(each for each in self.times if each >= time), self.before)


def format_instant_time(millis: int, zone: tzinfo | None) -> str:
    """Format epoch milliseconds as ``yyyyMMddHHmmssSSS`` in a time zone; None is the zone of this process."""
    moment = datetime.fromtimestamp(millis // 1000, zone)
    return f"{moment:%Y%m%d%H%M%S}{millis % 1000:03d}"


def next_instant_time(now_ms: int, newest: str | None, zone: tzinfo | None) -> str:
    """Return the time for a new instant: now, or one millisecond after ``newest`` if the clock is behind.

    The result is strictly greater than ``newest`` as text, which is how Hudi orders instants. A 14-digit instant of
    an old table counts as the last millisecond of its second.
    """
    now = format_instant_time(now_ms, zone)
    if newest is None or now > newest.ljust(17, "9"):
        return now
    after = datetime.strptime(newest[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    after += timedelta(milliseconds=int(newest[14:] or 999) + 1)
    return f"{after:%Y%m%d%H%M%S}{after.microsecond // 1000:03d}"


def check_instant_time(value: object, verb: str) -> None:
    """Check that an argument of a method is text. The instant need not exist.

    Raises:
        InvalidInputError: The argument is not text. The message names the method and says where to find instant times.
    """
    if not isinstance(value, str):
        sql = f'; for a version number write lakeformat.sql("restore table t to version as of {value}", t=table)'
        raise InvalidInputError(
            f"{verb}({value!r}) is given {type(value).__name__}, and takes an instant time as text, such as "
            f"history()[0].instant_time{sql if verb == 'restore' and isinstance(value, int) else ''}"
        )


#: The types by which readers may name an instant.
AsOf: TypeAlias = str | date

_AS_OF: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})(?: (?P<time>\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,6}))?"
    r"(?P<zone>Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def parse_as_of(value: AsOf, zone: tzinfo | None, *, name: str = "as.of.instant") -> str:
    """Return the instant time that ``as.of.instant`` or a bound of a range means.

    ``yyyyMMddHHmmss[SSS]`` is returned unchanged (14 digits compare as text, so they exclude that second).
    ``yyyy-MM-dd HH:mm:ss`` means the end of that second, a bare date the start of that day
    (Hudi: ``HoodieSqlCommonUtils.formatQueryInstant``). A `datetime` means that moment, to the millisecond.

    Args:
        value: A text, date or datetime; it is read in ``zone`` if it has no zone of its own (``Z``, ``+hh:mm``).
        zone: The timeline's zone; None is the zone of this process.
        name: Name of the option, for messages.

    Raises:
        InvalidOptionError: The value has none of these forms.
    """
    moment: datetime | None = None
    to_the_second = False
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)
    elif isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d{14}|\d{17}", text, re.ASCII):
            return text
        if match := _AS_OF.fullmatch(text):
            with suppress(ValueError):
                fraction = (match["fraction"] or "").ljust(6, "0")
                offset = (match["zone"] or "").replace("Z", "+00:00")
                moment = datetime.fromisoformat(f"{match['day']}T{match['time'] or '00:00:00'}.{fraction}{offset}")
                to_the_second = bool(match["time"] and not match["fraction"])
    if moment is not None and moment.tzinfo is not None:
        try:
            moment = moment.astimezone(zone)
        except OverflowError:  # Beyond the years 1 to 9999 in that zone.
            moment = None
    if moment is None:
        raise InvalidOptionError(
            f"{name}={value!r} is not an instant; give a datetime, or write yyyyMMddHHmmss[SSS], "
            "yyyy-MM-dd HH:mm:ss[.SSS] or yyyy-MM-dd"
        )
    millis = 999 if to_the_second else moment.microsecond // 1000
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{millis:03d}"
