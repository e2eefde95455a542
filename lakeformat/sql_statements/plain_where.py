"""Conditions that mean the same to every engine, read from the text of a ``delete``. Pure.

Taken are comparisons of a column of whole numbers, texts or truth values with a literal of that type, and nulls, joined
by ``and``. No time, no float, no cast and no function is among them: what those mean is the host's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.sql_statements.read_changes import Change
from lakeformat.sql_statements.tokens import Kind, Token

__all__ = ["plain_where"]

_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": lambda column, value: column == value,
    "<>": lambda column, value: column != value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def plain_where(change: Change, schema: pa.Schema) -> pc.Expression | None:
    """Return the condition of a ``delete`` that any engine answers alike; None for every other statement.

    Args:
        schema: the table's columns.
    """
    rest = list(change.tokens[change.after :])
    if change.does != "delete" or change.verb:
        return None
    if not rest:
        return pc.scalar(value=True)
    named = change.target.called.lower()
    if rest[0].lower == "as":
        rest = rest[1:]
    if rest and rest[0].is_name and rest[0].lower != "where":
        named, rest = rest[0].value.lower(), rest[1:]
    if not rest:
        return pc.scalar(value=True)
    if rest[0].lower != "where" or any(field.name.lower() == named for field in schema):
        return None
    found = None
    for part in _parts(rest[1:]):
        condition = _compared(change.text, part, named, schema)
        if condition is None:
            return None
        found = condition if found is None else found & condition
    return found


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.lower == "and":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _compared(text: str, tokens: list[Token], named: str, schema: pa.Schema) -> pc.Expression | None:
    if len(tokens) > 2 and tokens[1].value == "." and tokens[0].is_name and tokens[0].value.lower() == named:
        tokens = tokens[2:]
    if len(tokens) < 3 or not tokens[0].is_name:
        return None
    found = [field for field in schema if field.name.lower() == tokens[0].value.lower()]
    if len(found) != 1:
        return None
    column, words = pc.field(found[0].name), [token.lower for token in tokens[1:]]
    if words in (["is", "null"], ["is", "not", "null"]):
        return column.is_null() if len(words) == 2 else column.is_valid()
    value = _literal(text, tokens[2:], found[0].type)
    if value is None or words[0] not in _OPERATIONS:
        return None
    return _OPERATIONS[words[0]](column, value)


def _literal(text: str, tokens: Sequence[Token], kind: pa.DataType) -> pa.Scalar | None:
    """Make the value of a literal of the column's own type."""
    is_negative = len(tokens) == 2 and tokens[0].value == "-"
    token = tokens[-1]
    if len(tokens) != 1 + is_negative:
        return None
    if (
        pa.types.is_signed_integer(kind)
        and token.kind is Kind.NUMBER
        and token.value.isascii()
        and token.value.isdigit()
    ):
        value = -int(token.value) if is_negative else int(token.value)
        most = 2 ** (kind.bit_width - 1)
        return pa.scalar(value, kind) if -most < value < most else None
    if is_negative:
        return None
    if pa.types.is_string(kind) and token.kind is Kind.TEXT and _is_simple(text[token.at : token.end]):
        return pa.scalar(token.value, kind)
    if pa.types.is_boolean(kind) and token.lower in {"true", "false"}:
        return pa.scalar(token.lower == "true", kind)
    return None


def _is_simple(quoted: str) -> bool:
    """Tell whether every host reads the text as the same characters."""
    inner = quoted[1:-1]
    return quoted[0] == quoted[-1] == "'" and "\\" not in inner and "'" not in inner
