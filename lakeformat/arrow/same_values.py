"""Tests whether two arrays hold the same values: by comparing them, or because they share memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["has_same_values", "identify_memory", "is_same_memory"]


def has_same_values(one: pa.Array, other: pa.Array) -> bool:
    """Tell whether two arrays of one type are equal, bit by bit: 0.0 is not -0.0, and NaN is itself.

    Return False if it is not known: for floats inside lists, structs and maps. Dictionaries are decoded.
    """
    one, other = _decode(one), _decode(other)
    if not one.type.equals(other.type) or len(one) != len(other):
        return False
    if kind_of(one.type) is Kind.FLOAT:
        bits = pa.type_for_alias(f"int{one.type.bit_width}")
        return bool(one.view(bits).equals(other.view(bits)))
    return not _holds_floats(one.type) and bool(one.equals(other))


def _decode(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if kind_of(values.type) is Kind.DICTIONARY else values


def _holds_floats(kind: pa.DataType) -> bool:
    if kind_of(kind).is_nested:
        return any(_holds_floats(kind.field(number).type) for number in range(kind.num_fields))
    return kind_of(kind) is Kind.FLOAT


def is_same_memory(one: pa.Array, other: pa.Array) -> bool:
    """Tell whether two arrays are the same part of the same memory, so that no value can differ."""
    return bool(identify_memory(one) == identify_memory(other))


def identify_memory(values: pa.Array) -> Any:
    """Return a value that is equal for arrays of one type that are the same part of the same memory."""
    addresses = [0 if buffer is None else buffer.address for buffer in values.buffers()]
    inner = identify_memory(values.dictionary) if kind_of(values.type) is Kind.DICTIONARY else ()
    return str(values.type), values.offset, len(values), *addresses, inner
