"""Instants of the timeline, and conversion between instant times as text and points in time."""

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
    "Moment",
    "State",
    "VisibleInstants",
    "check_instant_time",
    "format_instant_time",
    "instant_time_before",
    "next_instant_time",
    "parse_as_of",
    "parse_instant_time",
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


#: Maps the action of a planned table service to the action of its completed file, which has the same instant time.
#: The action CLUSTERING occurs only in timeline layout 2: in layout 1 the plan of a clustering is a replacecommit too.
COMPLETES_AS: Final[Mapping[Action, Action]] = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
#: Actions whose completion makes the written files visible to readers.
COMMIT_ACTIONS: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
#: `COMMIT_ACTIONS`, and the actions of plans that complete as a commit action.
WRITE_ACTIONS: Final = COMMIT_ACTIONS | frozenset(COMPLETES_AS)
#: Actions that may replace file groups. A pending instant of one of them may be a clustering plan.
REPLACE_ACTIONS: Final = frozenset({Action.REPLACE_COMMIT, Action.CLUSTERING})


class State(enum.IntEnum):
    """The state of an instant. If the timeline has files of several states, the highest state counts."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """An instant: one action on the timeline, at one time and in one state. Instants are ordered by time.

    Attributes:
        time: The time at which the instant was requested, as text. The names of its files begin with it.
        completion_time: The time at which the instant completed, as text; None in timeline layout 1, and while the
            instant is pending.
    """

    time: str
    action: Action
    state: State
    completion_time: str | None = None

    @property
    def completed_at(self) -> str:
        """Return the completion time, or the instant time if there is none. Incremental queries filter by this."""
        return self.completion_time or self.time

    def at(self, state: State) -> Instant:
        """Return a copy in state ``state``. The completion time is kept only if ``state`` is `State.COMPLETED`."""
        return Instant(self.time, self.action, state, self.completion_time if state is State.COMPLETED else None)


@dataclass(frozen=True, slots=True)
class VisibleInstants:
    """The instants whose writes are visible in a snapshot. The value is small and picklable, to be sent to tasks.

    Attributes:
        times: Times of completed instants on the active timeline.
        before: Instants before this time are archived and count as completed, so all of them are visible.
    """

    times: frozenset[str]
    before: str

    def __call__(self, time: str) -> bool:
        """Tell whether writes of the instant with this instant time are visible."""
        return time in self.times or time < self.before

    def since(self, time: str) -> VisibleInstants:
        """Return a copy without the instants before ``time``, to send less data to a task that has only later instants.

        The copy is correct for ``time`` and later instant times only.
        """
        return VisibleInstants(
            frozenset(instant_time for instant_time in self.times if instant_time >= time), self.before
        )


def format_instant_time(millis: int, zone: tzinfo | None) -> str:
    """Format milliseconds since the epoch as ``yyyyMMddHHmmssSSS`` in ``zone``. None is the zone of this process."""
    moment = datetime.fromtimestamp(millis // 1000, zone)
    return f"{moment:%Y%m%d%H%M%S}{millis % 1000:03d}"


def parse_instant_time(instant_time: str, zone: tzinfo | None) -> int:
    """Return an instant time of 17 digits in ``zone`` as milliseconds since the epoch. None is this process's zone."""
    moment = datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    return int(moment.timestamp()) * 1000 + int(instant_time[14:])


def next_instant_time(now_ms: int, newest: str | None, zone: tzinfo | None) -> str:
    """Return the time for a new instant: now, or one millisecond after ``newest`` if ``newest`` is not before now.

    The result is greater than ``newest`` in the order of texts, by which Hudi orders instants. A 14-digit ``newest``,
    from an old table, counts as the last millisecond of its second.
    """
    now = format_instant_time(now_ms, zone)
    if newest is None or now > newest.ljust(17, "9"):
        return now
    after = datetime.strptime(newest[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    after += timedelta(milliseconds=int(newest[14:] or 999) + 1)
    return f"{after:%Y%m%d%H%M%S}{after.microsecond // 1000:03d}"


def instant_time_before(instant_time: str) -> str:
    """Return the time one millisecond before an instant time of 17 digits."""
    moment = datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    moment += timedelta(milliseconds=int(instant_time[14:]) - 1)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def check_instant_time(value: object, verb: str) -> None:
    """Check that an instant time, given as an argument, is text. The instant need not exist.

    Args:
        value: The argument.
        verb: Name of the method that has the argument, for the message.

    Raises:
        InvalidInputError: The argument is not text. The message says where to find instant times.
    """
    if not isinstance(value, str):
        raise InvalidInputError(
            f"{verb}({value!r}) is given {type(value).__name__}, and takes an instant time as text, such as "
            "history()[0].instant_time"
        )


#: The types of the bounds of an incremental query; `parse_as_of` lists the text forms.
Moment: TypeAlias = str | date
#: The types of ``as.of.instant``: a moment, or the number of a version (`lakeformat.timeline.versions`).
AsOf: TypeAlias = Moment | int

_AS_OF_OPTION: Final = "as.of.instant"
_AS_OF: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})(?: (?P<time>\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,6}))?"
    r"(?P<zone>Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def parse_as_of(value: Moment, zone: tzinfo | None, *, name: str = _AS_OF_OPTION) -> str:
    """Return the instant time for a value of ``as.of.instant`` or of a bound of an incremental query.

    - ``yyyyMMddHHmmss[SSS]`` is returned unchanged. Instant times are compared as text, so 14 digits come before all
      17-digit instants of their second.
    - ``yyyy-MM-dd HH:mm:ss`` means the last millisecond of that second, and ``yyyy-MM-dd`` the start of that day
      (Hudi: ``HoodieSqlCommonUtils.formatQueryInstant``).
    - A `datetime` means that moment, cut to the millisecond.

    Args:
        value: A text, date or datetime. If it has no zone of its own (``Z``, ``+hh:mm``), it is a time in ``zone``.
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
        except OverflowError:  # In `zone` it lies outside the years 1 to 9999, so it is refused.
            moment = None
    if moment is None:
        version = ", or a version number of history()" if name == _AS_OF_OPTION else ""
        raise InvalidOptionError(
            f"{name}={value!r} is not an instant; give a datetime, or write yyyyMMddHHmmss[SSS], "
            f"yyyy-MM-dd HH:mm:ss[.SSS] or yyyy-MM-dd{version}"
        )
    millis = 999 if to_the_second else moment.microsecond // 1000
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{millis:03d}"
