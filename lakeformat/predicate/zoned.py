"""Conditions whose time zone is not known yet, because only the tasks of a read know it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate.bind import bind, depends_on_zone, resolve_column
from lakeformat.predicate.nodes import (
    Always,
    And,
    Comparison,
    In,
    Leaf,
    Or,
    Predicate,
    bound_literal,
    leaves,
)
from lakeformat.predicate.sql import parse_where

__all__ = ["ZonedCondition", "zoned_condition"]

#: The zones with the latest and the earliest local time. The local times of all other zones lie between them.
_ENDS: Final = ("+18:00", "-18:00")


@dataclass(frozen=True)
class ZonedCondition:
    """A condition that compares timestamps with literals without a zone, whose zone is not known yet.

    Attributes:
        predicate: The condition, not bound.
        schema: The columns of the rows.
        wide: A bound filter that is true for every row for which the condition is true in any zone.
    """

    predicate: Predicate
    schema: pa.Schema
    wide: Predicate

    def bind_zone(self, zone: str) -> Predicate:
        """Bind the condition to a zone. Raise the errors of `bind`."""
        return bind(self.predicate, self.schema, zone=zone)


def zoned_condition(where: str, schema: pa.Schema) -> ZonedCondition | None:
    """Parse a condition that depends on the time zone. Return None if it has the same result in all zones.

    Raise the errors of `parse_where` and `bind`.
    """
    predicate = parse_where(where)
    if _bind_if_same(predicate, schema) is not None:
        return None
    return ZonedCondition(predicate, schema, And(tuple(_widen(part, schema) for part in _split_conjunction(predicate))))


def _bind_if_same(predicate: Predicate, schema: pa.Schema) -> Predicate | None:
    """Return the bound condition if it has the same result in all zones, else None."""
    east, west = (bind(predicate, schema, zone=zone) for zone in _ENDS)
    if east != west or depends_on_zone(predicate):
        return None
    return None if any(_compares_days(leaf, schema) for leaf in leaves(predicate)) else east


def _compares_days(leaf: Leaf, schema: pa.Schema) -> bool:
    """Tell whether the leaf compares dates with datetimes, so that the zone's start of a day matters."""
    values = leaf.values if isinstance(leaf, In) else (leaf.value,) if isinstance(leaf, Comparison) else ()
    has_moment = any(isinstance(value, datetime) for value in values)
    return has_moment and kind_of(resolve_column(leaf.column, schema)[1]) is Kind.DATE


def _split_conjunction(predicate: Predicate) -> tuple[Predicate, ...]:
    """Split a conjunction into its parts."""
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for operand in predicate.operands for part in _split_conjunction(operand))


def _widen(part: Predicate, schema: pa.Schema) -> Predicate:
    if (agreed := _bind_if_same(part, schema)) is not None:
        return agreed
    east, west = (bind(part, schema, zone=zone) for zone in _ENDS)
    return _widen_pair(east, west)


def _widen_pair(first: Predicate, other: Predicate) -> Predicate:
    """Return a filter that is true for every row for which a filter is true in a zone between those of the two."""
    match first, other:
        case (And(left) | Or(left), And(right) | Or(right)) if type(first) is type(other) and len(left) == len(right):
            return type(first)(tuple(map(_widen_pair, left, right)))
        case (Comparison(column, op, one_value), Comparison(_, same, other_value)) if op == same and _is_time(
            one_value
        ):
            low, high = _order_literals(bound_literal(one_value), bound_literal(other_value))
            if op in ("<", "<="):
                return Comparison(column, op, high)
            if op in (">", ">="):
                return Comparison(column, op, low)
            if op == "=":
                return And((Comparison(column, ">=", low), Comparison(column, "<=", high)))
    return Always(True)


def _is_time(literal: object) -> bool:
    return isinstance(literal, pa.Date32Scalar | pa.TimestampScalar) and literal.is_valid


def _order_literals(first: pa.Scalar, other: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """Return two literals in ascending order. Dates are moved outwards by a day: clocks may have skipped a day."""
    low, high = sorted((int(first.value), int(other.value)))
    spare = 1 if kind_of(first.type) is Kind.DATE else 0
    return pa.scalar(low - spare, first.type), pa.scalar(high + spare, first.type)
