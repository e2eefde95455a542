"""Conditions whose meaning depends on a time zone that is not known yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.predicate.bind import bind
from lakeformat.predicate.nodes import Always, And, Comparison, Predicate, bound_literal
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
    return east if east == west else None


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
            low, high = sorted((bound_literal(one), bound_literal(other)), key=lambda scalar: int(scalar.value))
            if op in ("<", "<="):
                return Comparison(column, op, high)
            if op in (">", ">="):
                return Comparison(column, op, low)
            if op == "=":
                return And((Comparison(column, ">=", low), Comparison(column, "<=", high)))
    return Always(True)
