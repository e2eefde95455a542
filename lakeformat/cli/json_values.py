"""Values of JSON that lose nothing: decimals keep their digits, and an object with one name twice is refused.

JSON has neither dates nor decimals. In columns of such types, at any depth, texts are read as dates and times, and
numbers and texts as decimals. In columns of numbers and booleans texts are read as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.cli.text_casts import is_castable, values_of_texts

__all__ = ["from_json", "parse_json"]


class _Number(float):
    """A number with a fraction or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!r} twice")
    return fields


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raise ``ValueError`` if it is not JSON, or if an object has one name twice."""
    return json.loads(text, parse_float=_Number, object_pairs_hook=_object)


def from_json(values: list[Any], kind: pa.DataType | None) -> list[Any]:
    """Return the values. Where the type has dates, times or decimals, texts and numbers are replaced by such values.

    Raises:
        InvalidInputError, pyarrow.ArrowInvalid, decimal.InvalidOperation: a text is not a value of the type.
    """
    if kind is not None and is_castable(kind) and any(isinstance(value, str) for value in values):
        values = values_of_texts(values, kind)
    if kind is not None and kind_of(kind).is_temporal and all(isinstance(text, str | None) for text in values):
        return list(pa.array(values, pa.string()).cast(kind).to_pylist())
    convert = None if kind is None else _conversion(kind)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _conversion(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts values of JSON, other than null, for a type; None if none needs a conversion."""
    if kind_of(kind) is Kind.DECIMAL:
        return _decimal
    if kind_of(kind).is_temporal:
        return lambda value: pa.scalar(value, pa.string()).cast(kind).as_py() if isinstance(value, str) else value
    if kind_of(kind) is Kind.STRUCT:
        fields = {field.name: convert for field in kind if (convert := _conversion(field.type))}
        return (lambda value: _convert_fields(value, fields)) if fields else None
    if kind_of(kind) is Kind.MAP:
        item = _conversion(kind.item_type)
        return item and (lambda value: _convert_items(value, item))
    element = _conversion(kind.value_type) if kind_of(kind) is Kind.LIST else None
    return element and (lambda value: _convert_elements(value, element))


def _decimal(value: Any) -> Decimal:
    return Decimal(value.text if isinstance(value, _Number) else str(value))


def _convert_fields(value: Any, fields: Mapping[str, Callable[[Any], Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    converted = {name: convert(value[name]) for name, convert in fields.items() if value.get(name) is not None}
    return {**value, **converted}


def _convert_items(value: Any, convert: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: None if item is None else convert(item) for name, item in value.items()}


def _convert_elements(value: Any, convert: Callable[[Any], Any]) -> Any:
    if not isinstance(value, list):
        return value
    return [None if element is None else convert(element) for element in value]
