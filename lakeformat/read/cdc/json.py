"""Conversion of columns to JSON strings, the form in which Hudi's CDC queries return rows.

The JSON forms of the types are:

- Numbers, strings and nested values have their usual forms. Null fields are written as ``null``.
- Dates are numbers of days since 1970. Timestamps are numbers of microseconds since 1970.
- NaN and infinite floats are strings.
- Binary values are strings in base64.
- Decimals are numbers. This differs from Hudi: its queries return no decimals from base files, and return those of CDC
  log files as bytes.

Only binary values and strings with control characters need a Python loop over rows.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["to_json_text"]

_ESCAPED: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_RARE: Final = r"[\x00-\x1f\x7f]"


def to_json_text(values: pa.Array) -> pa.Array:
    """Return each value as JSON text; null for null."""
    return pc.if_else(pc.is_valid(values), _to_text(values), None)


def _to_text(values: pa.Array) -> pa.Array:
    """Return each value as JSON text; the text ``null`` for null."""
    kind = values.type
    match kind_of(kind):
        case Kind.DICTIONARY:
            return _to_text(values.cast(kind.value_type))
        case Kind.STRUCT:
            texts = _struct_text(values)
        case Kind.MAP:
            texts = _map_text(values)
        case Kind.LIST:
            texts = _list_text(values)
        case _:
            texts = _scalar_text(values)
    return pc.if_else(pc.is_valid(values), texts, "null").fill_null("null")


def _scalar_text(values: pa.Array) -> pa.Array:
    kind = values.type
    match kind_of(kind):
        case Kind.TEXT:
            return _quote(values.cast(pa.string()))
        case Kind.FLOAT:
            text = values.cast(pa.string())
            infinite = pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"')
            return pc.if_else(pc.is_finite(values), text, pc.if_else(pc.is_nan(values), '"NaN"', infinite))
        case Kind.DATE:
            return values.cast(pa.int32()).cast(pa.string())
        case Kind.TIMESTAMP:
            return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
        case Kind.TIME:
            return values.cast(pa.time64("us")).cast(pa.int64()).cast(pa.string())
        case Kind.BYTES:
            texts = (None if value is None else base64.b64encode(value).decode() for value in values.to_pylist())
            return _quote(pa.array(texts, pa.string()))
        case _:
            return values.cast(pa.string())  # Integers, decimals and booleans are valid JSON as they are.


def _quote(texts: pa.Array) -> pa.Array:
    plain = texts
    for character, escaped in _ESCAPED:
        texts = pc.replace_substring(texts, character, escaped)
    rare = pc.match_substring_regex(texts, _RARE)
    if pc.any(rare).as_py():
        whole = pa.array([None if text is None else json.dumps(text)[1:-1] for text in plain.to_pylist()], pa.string())
        texts = pc.if_else(rare, whole, texts)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _struct_text(values: pa.Array) -> pa.Array:
    fields = values.flatten()
    if not fields:
        return pa.array(["{}"] * len(values), pa.string())
    parts: list[Any] = []
    for number, (field, column) in enumerate(zip(values.type, fields, strict=True)):
        parts += [f"{',' if number else '{'}{json.dumps(field.name)}:", _to_text(column)]
    return pc.binary_join_element_wise(*parts, "}", "")


def _join_elements(lists: pa.Array, texts: pa.Array, first: str, last: str) -> pa.Array:
    """Join the texts of each list's elements by commas, between ``first`` and ``last``."""
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    of_each = pa.ListArray.from_arrays(pa.array(offsets), texts)
    return pc.binary_join_element_wise(first, pc.binary_join(of_each, ","), last, "")


def _list_text(values: pa.Array) -> pa.Array:
    return _join_elements(values, _to_text(values.flatten()), "[", "]")


def _map_text(values: pa.Array) -> pa.Array:
    entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
    lists = values.cast(pa.list_(pa.field("entries", entry)))
    keys, items = lists.flatten().flatten()
    texts = keys if kind_of(keys.type) is Kind.TEXT else _scalar_text(keys)
    return _join_elements(lists, pc.binary_join_element_wise(_quote(texts), _to_text(items), ":"), "{", "}")
