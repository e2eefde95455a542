"""Instants: points on the timeline."""

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
    """What an instant does (Hudi: ``HoodieTimeline`` action names)."""

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


#: Plans -> what they complete as, at the same time. Of a clustering of timeline layout 1 the plan is a replacecommit.
COMPLETES_AS: Final[Mapping[Action, Action]] = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
#: The actions whose completion makes rows visible.
COMMIT_ACTIONS: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
#: The same, and what completes as one of them.
WRITE_ACTIONS: Final = COMMIT_ACTIONS | frozenset(COMPLETES_AS)
#: Those that may hide file groups; pending, one of them may be a clustering plan.
REPLACE_ACTIONS: Final = frozenset({Action.REPLACE_COMMIT, Action.CLUSTERING})


class State(enum.IntEnum):
    """How far an instant has come; of several files of one instant the furthest counts."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action at one time, in one state. Orders by time.

    Attributes:
        time: when it was requested; names the instant and its files.
        completion_time: when it completed, where the timeline's layout knows it: None in layout 1, and while pending.
    """

    time: str
    action: Action
    state: State
    completion_time: str | None = None

    @property
    def completed_at(self) -> str:
        """By what changes since a point are counted: the completion time, else the instant time."""
        return self.completion_time or self.time

    def at(self, state: State) -> Instant:
        """The same instant in another state; of one that is not completed nobody knows when it will be."""
        return Instant(self.time, self.action, state, self.completion_time if state is State.COMPLETED else None)


@dataclass(frozen=True, slots=True)
class VisibleInstants:
    """The instants whose writes count in a snapshot. A small picklable value.

    Attributes:
        times: of those that have completed.
        before: earlier ones have completed, too, and are archived.
    """

    times: frozenset[str]
    before: str

    def __call__(self, time: str) -> bool:
        """Whether it is one of them."""
        return time in self.times or time < self.before

    def since(self, time: str) -> VisibleInstants:
        """The same for those who ask of none earlier."""
        return VisibleInstants(frozenset(each for each in self.times if each >= time), self.before)


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


def check_instant_time(said: object, verb: str) -> None:
    """Refuse what is not an instant time as text; whether there is such an instant is another question.

    Raises:
        InvalidInputError: names the verb, and where instant times are listed.
    """
    if not isinstance(said, str):
        sql = f'; for a version number write lakeformat.sql("restore table t to version as of {said}", t=table)'
        raise InvalidInputError(
            f"{verb}({said!r}) is given {type(said).__name__}, and takes an instant time as text, such as "
            f"history()[0].instant_time{sql if verb == 'restore' and isinstance(said, int) else ''}"
        )


#: What readers may name an instant by.
AsOf: TypeAlias = str | date

_AS_OF: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})(?: (?P<time>\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,6}))?"
    r"(?P<zone>Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def parse_as_of(asked: AsOf, zone: tzinfo | None, *, name: str = "as.of.instant") -> str:
    """The instant time that ``as.of.instant``, or a bound of a range, means.

    ``yyyyMMddHHmmss[SSS]`` stays as it is (14 digits compare as text, so they leave out that second);
    ``yyyy-MM-dd HH:mm:ss`` means the end of that second, a bare date the start of that day
    (Hudi: ``HoodieSqlCommonUtils.formatQueryInstant``). A `datetime` is that moment, to the millisecond.

    Args:
        asked: a text, date or datetime; without a zone of its own (``Z``, ``+hh:mm``, ``tzinfo``) it is read in the
            timeline's.
        zone: the timeline's; None is that of this process.
        name: of what is asked, for messages.

    Raises:
        InvalidOptionError: for anything else.
    """
    moment: datetime | None = None
    to_the_second = False
    if isinstance(asked, datetime):
        moment = asked
    elif isinstance(asked, date):
        moment = datetime(asked.year, asked.month, asked.day)
    elif isinstance(asked, str):
        text = asked.strip()
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
            f"{name}={asked!r} is no instant; give a datetime, or write yyyyMMddHHmmss[SSS], "
            "yyyy-MM-dd HH:mm:ss[.SSS] or yyyy-MM-dd"
        )
    millis = 999 if to_the_second else moment.microsecond // 1000
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{millis:03d}"
