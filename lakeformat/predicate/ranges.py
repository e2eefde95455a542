"""Conditions on functions of time as ranges of the column, so that bounds can rule out files.

``year(at) = 2025`` is ``at >= '2025-01-01' and at < '2026-01-01'`` for every row, also for null. The same holds for
``to_date``, ``cast(at as date)``, ``trunc`` and ``date_trunc``. Where the clocks of a zone pass the border of a range
twice there is no such range, and the condition stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Final

import numpy as np

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate.argument_types import literal_of
from lakeformat.predicate.casts import MOMENT
from lakeformat.predicate.local_time import DAY, find_first_moment, truncate_days
from lakeformat.predicate.nodes import (
    Always,
    And,
    Call,
    ColumnValue,
    Comparison,
    IsNull,
    Not,
    Operator,
    Predicate,
    Value,
)

__all__ = ["as_range"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAYS: Final = ("year", "quarter", "month", "week", "day")
#: More days than a unit has, so that the start of the unit after next is never reached.
_LONGEST: Final[Mapping[str, int]] = {"year": 366, "quarter": 92, "month": 31, "week": 7, "day": 1}


def as_range(value: Value, op: Operator, literal: object, zone: str) -> Predicate | None:
    """Return a filter, not bound yet, that is equal to ``value op literal`` in each row; None if there is none.

    Args:
        value: A bound function of a column.
        literal: The other side, as a Python value.
        zone: The time zone.
    """
    unit_of = _find_unit(value)
    if unit_of is None:
        return None
    column, unit = unit_of
    assert isinstance(value, Call)  # noqa: S101  _find_unit checks it.
    try:
        if value.function == "year":
            if isinstance(literal, bool) or not isinstance(literal, int):
                return None
            low, exact = _day_number(date(literal, 1, 1)), True
        elif kind_of(value.of) is Kind.DATE:
            if isinstance(literal, datetime) or not isinstance(literal, date):
                return None
            low, exact = _truncate(_day_number(literal), unit), True
            exact = low == _day_number(literal)
        else:
            if not isinstance(literal, datetime) or literal.tzinfo is None:
                return None
            return _moment_range(column, op, literal, unit, zone)
        start = _border(column, low, zone)
        end = _border(column, _next(low, unit), zone)
    except (ValueError, OverflowError):
        return None
    if start is None or end is None:
        return None
    return _make_range(column.path, op, start, end, exact=exact)


def _find_unit(value: Value) -> tuple[ColumnValue, str] | None:
    """Return the column and the unit of time of a call that truncates a column; None for another value."""
    match value:
        case Call("year", (inner,)):
            unit = "year"
        case Call("to_date", (inner,)):
            unit = "day"
        case Call("cast", (ColumnValue(of=of),), pa_type) if (
            kind_of(pa_type) is Kind.DATE and kind_of(of) is Kind.TIMESTAMP
        ):
            inner, unit = value, "day"
        case Call("trunc", (inner, given)) | Call("date_trunc", (given, inner)):
            unit = str(literal_of(given))
        case _:
            return None
    while isinstance(inner, Call) and inner.function == "cast" and kind_of(inner.of).is_temporal:
        (inner,) = inner.arguments
    if not isinstance(inner, ColumnValue) or not kind_of(inner.of).is_temporal or unit not in _DAYS:
        return None
    return inner, unit


def _day_number(day: date) -> int:
    return day.toordinal() - _EPOCH.toordinal()


def _truncate(day: int, unit: str) -> int:
    return int(truncate_days(np.array([day], np.int64), unit)[0])


def _next(start: int, unit: str) -> int:
    """Return the first day after a unit of time that begins on the day ``start``."""
    return _truncate(start + _LONGEST[unit], unit)


def _border(column: ColumnValue, day: int, zone: str) -> object | None:
    """Return the least value of the column's type whose local date is the day or a later one."""
    if kind_of(column.of) is Kind.DATE:
        return date.fromordinal(_EPOCH.toordinal() + day)
    if column.of is None or column.of.tz is None:
        return (datetime(1970, 1, 1) + timedelta(days=day)).isoformat(" ")
    moment = find_first_moment(day * DAY, zone)
    return None if moment is None else _EPOCH + timedelta(microseconds=moment)


def _moment_range(column: ColumnValue, op: Operator, literal: datetime, unit: str, zone: str) -> Predicate | None:
    """Return the range for a timestamp that is truncated: the units that begin at the literal, before or after it."""
    if column.of is None or not column.of.equals(MOMENT):
        return None
    near = _truncate(_day_number(literal.date()), unit)
    starts: list[datetime] = []
    low = _truncate(near - 1, unit)
    for _ in range(4):  # The literal's day in the zone differs from that in UTC by one at most.
        border = _border(column, low, zone)
        if not isinstance(border, datetime):
            return None
        starts.append(border)
        low = _next(low, unit)
    position = max(index for index, start in enumerate(starts) if start <= literal)
    return _make_range(column.path, op, starts[position], starts[position + 1], exact=starts[position] == literal)


def _make_range(path: str, op: Operator, start: object, end: object, *, exact: bool) -> Predicate:
    """Return the filter for a unit from ``start`` to before ``end``.

    Args:
        exact: whether the literal is the start of the unit; otherwise it lies inside of the unit.
    """
    never = And((Comparison(path, ">=", start), Comparison(path, "<", start)))
    inside = And((Comparison(path, ">=", start), Comparison(path, "<", end))) if exact else never
    match op:
        case "=":
            return inside
        case "!=":
            return Not(inside)
        case "<=>":
            return And((Not(IsNull(path)), inside)) if exact else Always(False)
        case "<":
            return Comparison(path, "<", start if exact else end)
        case "<=":
            return Comparison(path, "<", end)
        case ">":
            return Comparison(path, ">=", end)
        case ">=":
            return Comparison(path, ">=", start if exact else end)
