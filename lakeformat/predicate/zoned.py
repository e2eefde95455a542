"""Conditions whose meaning depends on a time zone that is not known yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from lakeformat.predicate.bind import bind, resolve
from lakeformat.predicate.nodes import Always, And, Comparison, In, Leaf, Predicate, bound_literal, leaves
from lakeformat.predicate.sql import parse_where

__all__ = ["ZonedCondition", "zoned_condition"]

#: A clock of every zone shows a time between these two.
_ENDS: Final = ("+18:00", "-18:00")


@dataclass(frozen=True)
class ZonedCondition:
    """A condition that compares timestamps with times of a zone that is known later.

    Attributes:
        predicate: Not bound.
        schema: The columns of the rows.
        wide: Bound; true of every row of which the condition is true in any zone.
    """

    predicate: Predicate
    schema: pa.Schema
    wide: Predicate

    def bound(self, zone: str) -> Predicate:
        """Bind it, now that the zone is known; errors as of `bind`."""
        return bind(self.predicate, self.schema, zone=zone)


def zoned_condition(where: str, schema: pa.Schema) -> ZonedCondition | None:
    """Read a condition; return None if it means the same in all zones. Errors as of `parse_where` and `bind`."""
    predicate = parse_where(where)
    if _bound(predicate, schema) is not None:
        return None
    return ZonedCondition(predicate, schema, And(tuple(_widened(part, schema) for part in _parts(predicate))))


def _bound(predicate: Predicate, schema: pa.Schema) -> Predicate | None:
    """Bind the condition if all zones agree on it."""
    east, west = (bind(predicate, schema, zone=zone) for zone in _ENDS)
    return east if east == west and not any(_is_of_days(leaf, schema) for leaf in leaves(predicate)) else None


def _is_of_days(leaf: Leaf, schema: pa.Schema) -> bool:
    """Whether dates are compared with moments, so that it matters when a day begins."""
    values = leaf.values if isinstance(leaf, In) else (leaf.value,) if isinstance(leaf, Comparison) else ()
    has_moment = any(isinstance(value, datetime) for value in values)
    return has_moment and bool(pa.types.is_date32(resolve(leaf.column, schema)[1]))


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Take a conjunction apart."""
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for operand in predicate.operands for part in _parts(operand))


def _widened(part: Predicate, schema: pa.Schema) -> Predicate:
    if (agreed := _bound(part, schema)) is not None:
        return agreed
    match tuple(bind(part, schema, zone=zone) for zone in _ENDS):
        case (Comparison(column, op, one), Comparison(_, same, other)) if op == same:
            low, high = _around(bound_literal(one), bound_literal(other))
            if op in ("<", "<="):
                return Comparison(column, op, high)
            if op in (">", ">="):
                return Comparison(column, op, low)
            if op == "=":
                return And((Comparison(column, ">=", low), Comparison(column, "<=", high)))
    return Always(True)


def _around(one: pa.Scalar, other: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """Order two literals. Dates are put a day apart from what they were: clocks may have left a day out."""
    low, high = sorted((int(one.value), int(other.value)))
    spare = 1 if pa.types.is_date32(one.type) else 0
    return pa.scalar(low - spare, one.type), pa.scalar(high + spare, one.type)
