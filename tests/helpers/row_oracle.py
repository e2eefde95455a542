"""An evaluator of Spark SQL's predicates, row by row in plain Python: slow, obvious, and independent of the library.

It takes filters that are *not* bound: literals are Python values. It widens them in each comparison, as Spark does,
while `lakeformat.predicate.bind` rewrites them once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, timezone
from typing import Any

from lakeformat.predicate import (
    Always,
    And,
    ColumnComparison,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)

Row = Mapping[str, Any]


def evaluate(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case Always(value):
            return value
        case Not(operand):
            inner = evaluate(operand, row)
            return None if inner is None else not inner
        case And(operands):
            answers = [evaluate(operand, row) for operand in operands]
            return False if False in answers else None if None in answers else True
        case Or(operands):
            answers = [evaluate(operand, row) for operand in operands]
            return True if True in answers else None if None in answers else False
        case IsNull(column):
            return cell(row, column) is None
        case Comparison() | ColumnComparison():
            return evaluate_comparison(predicate, row)
        case In(column, values):
            value = cell(row, column)
            if any(isinstance(other, float) for other in values) and value is not None:
                value = float(value)
            answers = [compare(value, "=", other) for other in values]
            return True if True in answers else None if None in answers else False
        case StartsWith(column, text):
            return on_text(cell(row, column), lambda value: value.startswith(text))
        case EndsWith(column, text):
            return on_text(cell(row, column), lambda value: value.endswith(text))
        case Contains(column, text):
            return on_text(cell(row, column), lambda value: text in value)
        case Like(column, pattern):
            return on_text(cell(row, column), lambda value: like(value, pattern))


def evaluate_comparison(predicate: Comparison | ColumnComparison, row: Row) -> bool | None:
    if isinstance(predicate, Comparison):
        return compare(cell(row, predicate.column), predicate.op, predicate.value)
    return compare(cell(row, predicate.left), predicate.op, cell(row, predicate.right))


def cell(row: Row, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = None if value is None else value.get(part)
    return value


def on_text(value: str | None, test: Any) -> bool | None:
    return None if value is None else test(value)


def compare(value: Any, op: str, literal: Any) -> bool | None:
    if op == "<=>" and (value is None or literal is None):
        return value is literal
    if value is None or literal is None:
        return None
    left, right = common(value, literal)
    return {
        "=": left == right,
        "<=>": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def common(value: Any, literal: Any) -> tuple[Any, Any]:
    """Return both sides in their common type, as values that Python orders like Spark."""
    if isinstance(value, str):
        return value.encode(), literal.encode()
    if isinstance(value, date):
        if not isinstance(value, datetime) and not isinstance(literal, datetime):
            return value, date.fromisoformat(literal) if isinstance(literal, str) else literal
        return instant(value), instant(literal)
    if isinstance(value, float) or isinstance(literal, float):
        left, right = float(value), float(literal)
        return (math.isnan(left), 0.0 if math.isnan(left) else left), (
            math.isnan(right),
            0.0 if math.isnan(right) else right,
        )
    return value, literal


def instant(value: str | date | datetime) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)


def like(value: str, pattern: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(like(value[i:], pattern[1:]) for i in range(len(value) + 1))
    wanted, rest = (pattern[1], pattern[2:]) if pattern[0] == "\\" else (pattern[0], pattern[1:])
    if not value or (pattern[0] != "_" and value[0] != wanted):
        return False
    return like(value[1:], rest)
