"""Spark's pushed filters as predicates. Those we do not know are left to Spark, which applies all again anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lakeformat.predicate import (
    And,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Not,
    Predicate,
    StartsWith,
    column_path,
)

__all__ = ["to_predicate"]


def _compare(op: Any) -> Callable[[Any], Predicate]:
    return lambda f: Comparison(column_path(f.attribute), op, f.value)


_BUILDERS: Final[Mapping[str, Callable[[Any], Predicate | None]]] = {
    "EqualTo": _compare("="),
    "EqualNullSafe": _compare("<=>"),
    "GreaterThan": _compare(">"),
    "GreaterThanOrEqual": _compare(">="),
    "LessThan": _compare("<"),
    "LessThanOrEqual": _compare("<="),
    "In": lambda f: In(column_path(f.attribute), tuple(f.value)),
    "IsNull": lambda f: IsNull(column_path(f.attribute)),
    "IsNotNull": lambda f: Not(IsNull(column_path(f.attribute))),
    "StringStartsWith": lambda f: StartsWith(column_path(f.attribute), f.value),
    "StringEndsWith": lambda f: EndsWith(column_path(f.attribute), f.value),
    "StringContains": lambda f: Contains(column_path(f.attribute), f.value),
    "Not": lambda f: None if (inner := _one(f.child)) is None else Not(inner),
}


def _one(pushed: Any) -> Predicate | None:
    builder = _BUILDERS.get(type(pushed).__name__)
    return None if builder is None else builder(pushed)


def to_predicate(pushed: Iterable[Any]) -> Predicate:
    """The conjunction of all filters that can be told; never narrower than Spark's."""
    known = [predicate for predicate in map(_one, pushed) if predicate is not None]
    return And(tuple(known))
