"""Conversion between moments and the local times of a zone, on whole columns, as Java's ``ZonedDateTime`` does it.

If the clocks show a time twice, the earlier moment is used. A time that the clocks skip is moved forward by the length
of the skipped period. The rules of the zones are those of `lakeformat.model.zones`, as for literals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from lakeformat.model.zones import time_zone

__all__ = ["DAY", "Ints", "find_first_moment", "to_local", "to_moment", "truncate_days", "truncate_moments"]

Ints = npt.NDArray[np.int64]

DAY: Final = 86_400_000_000
_DECADE: Final = 3_652 * DAY
#: The calendar repeats after 400 years, which are a whole number of weeks.
_CYCLE: Final = 146_097 * DAY
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_YEAR, _LAST_YEAR = 1800, 2500
_UNIT_MICROS: Final = {
    "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1_000, "microsecond": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Offsets:
    """The offsets of a zone from UTC in microseconds: ``before[i]`` until the moment ``at[i]``, then ``after[i]``."""

    at: Ints
    before: Ints
    after: Ints
    first: int


def _micros(delta: timedelta) -> int:
    return delta // timedelta(microseconds=1)


def _offset(moment: datetime, info: tzinfo) -> int:
    return _micros(moment.astimezone(info).utcoffset() or timedelta())


@lru_cache(maxsize=1024)
def _changes(zone: str, decade: int) -> tuple[tuple[int, int, int], ...]:
    """Find the changes of a zone's offset in ten years: look at each day, then search the second within the day."""
    info = time_zone(zone)
    start = datetime(decade * 10, 1, 1, tzinfo=timezone.utc)
    changes: list[tuple[int, int, int]] = []
    offset = _offset(start, info)
    for day in range((start.replace(year=decade * 10 + 10) - start).days):
        low, end = start + timedelta(days=day), start + timedelta(days=day + 1)
        while _offset(end, info) != offset:
            seconds = range(1, int((end - low).total_seconds()) + 1)
            moment = low + timedelta(seconds=seconds[bisect_left(seconds, True, key=_differs(low, info, offset))])
            changes.append((_micros(moment - _EPOCH), offset, _offset(moment, info)))
            low, offset = moment, _offset(moment, info)
    return tuple(changes)


def _differs(low: datetime, info: tzinfo, offset: int) -> Callable[[int], bool]:
    return lambda seconds: _offset(low + timedelta(seconds=seconds), info) != offset


def _offsets(zone: str, near: Ints) -> _Offsets:
    """Return the changes of a zone's offset in the decades of these times, and in the ones beside them."""
    low, high = (int(limit) // _DECADE for limit in (near.min(initial=0), near.max(initial=0)))
    decades = range(max(196 + low, _FIRST_YEAR // 10), min(198 + high, _LAST_YEAR // 10) + 1)
    start = datetime(decades.start * 10, 1, 1, tzinfo=timezone.utc)
    changes = [change for decade in decades for change in _changes(zone, decade)]
    columns = np.array(changes, np.int64).reshape(-1, 3).T
    return _Offsets(columns[0], columns[1], columns[2], _offset(start, time_zone(zone)))


def _within_cycle(micros: Ints) -> tuple[Ints, Ints]:
    """Move times after the last known year back by whole cycles of the calendar. Return them and the shifts."""
    last = _micros(datetime(_LAST_YEAR - 1, 1, 1, tzinfo=timezone.utc) - _EPOCH)
    shift = np.where(micros >= last, (micros - last) // _CYCLE + 1, 0) * _CYCLE
    return micros - shift, shift


def _offset_at(moments: Ints, zone: str) -> Ints:
    near, _ = _within_cycle(moments)
    offsets = _offsets(zone, near)
    after = np.concatenate([[offsets.first], offsets.after])
    offset: Ints = after[np.searchsorted(offsets.at, near, side="right")]
    return offset


def to_local(moments: Ints, zone: str) -> Ints:
    """Return the local time of each moment. All times are microseconds since 1970."""
    return moments + _offset_at(moments, zone)


def to_moment(local: Ints, zone: str) -> Ints:
    """Return the moment of each local time."""
    near, _ = _within_cycle(local)
    offsets = _offsets(zone, near)
    edges = offsets.at + np.maximum(offsets.before, offsets.after)
    after = np.concatenate([[offsets.first], offsets.after])
    moment: Ints = local - after[np.searchsorted(edges, near, side="right")]
    return moment


def find_first_moment(local: int, zone: str) -> int | None:
    """Return the moment from which on all local times of the zone are at or after ``local``, and before it none is.

    Return None if there is no such moment, because the clocks pass the time twice.
    """
    moved, shifts = _within_cycle(np.array([local], np.int64))
    offsets, near, shift = _offsets(zone, moved), int(moved[0]), int(shifts[0])
    crossed = (offsets.at + offsets.after < near) & (near < offsets.at + offsets.before)
    if crossed.any():
        return None
    skipped = np.flatnonzero((offsets.at + offsets.before <= near) & (near < offsets.at + offsets.after))
    if len(skipped):
        return int(offsets.at[skipped[0]]) + shift
    return int(to_moment(np.array([local], np.int64), zone)[0])


def truncate_days(days: Ints, unit: str) -> Ints:
    """Return the first day of the year, quarter, month or week of each day. Days count from 1970-01-01."""
    if unit == "day":
        return days
    if unit == "week":
        return days - (days + 3) % 7
    if unit == "year":
        return _month_starts(days, lambda months: months // 12 * 12)
    return _month_starts(days, (lambda months: months // 3 * 3) if unit == "quarter" else (lambda months: months))


def _month_starts(days: Ints, floor: Callable[[Ints], Ints]) -> Ints:
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return floor(months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def truncate_moments(moments: Ints, unit: str, zone: str) -> Ints:
    """Return the start of the unit of time that holds each moment, in the zone (Spark: ``truncTimestamp``)."""
    if unit in ("second", "millisecond", "microsecond"):
        return moments - moments % _UNIT_MICROS[unit]
    offset = _offset_at(moments, zone)
    local = moments + offset
    if unit not in ("day", *_UNIT_MICROS):
        return to_moment(truncate_days(local // DAY, unit) * DAY, zone)
    start = local - local % _UNIT_MICROS.get(unit, DAY)
    # As in Java, the offset stays if the start may have it, else the rules of `to_moment` hold.
    same = start - offset
    return np.where(_offset_at(same, zone) == offset, same, to_moment(start, zone))
