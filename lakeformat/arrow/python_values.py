"""Conversion of Python values to Arrow values that loses no digit."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["to_array"]

_FRACTIONS: Final = (float, Decimal, np.floating)
_CONTAINERS: Final = (Mapping, list, tuple)


def to_array(values: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Convert values to an Arrow array.

    ``pyarrow.array`` cuts the fractions of floats and decimals that become integers, dates or times, at any depth. This
    function refuses them.

    Args:
        kind: the type of the array; by default it follows from the values.

    Raises:
        pyarrow.ArrowException, TypeError, ValueError, OverflowError: a value does not fit the type.
    """
    array = pa.array(values, kind)
    if kind is not None and isinstance(values, list | tuple) and _has_whole_numbers(kind):
        types = set(map(type, values))
        if any(issubclass(each, (*_FRACTIONS, *_CONTAINERS)) for each in types):
            cut = next((value for value in values if _is_cut(value, kind)), None)
            if cut is not None:
                raise pa.ArrowInvalid(f"{cut!r} would lose its fraction")
    return array


def _has_whole_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_whole_numbers(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _is_cut(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a value, or one inside it, has a fraction and becomes a whole number."""
    if pa.types.is_struct(kind):
        return isinstance(value, Mapping) and any(_is_cut(value.get(field.name), field.type) for field in kind)
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value or ()
        return any(_is_cut(key, kind.key_type) or _is_cut(item, kind.item_type) for key, item in pairs)
    if pa.types.is_nested(kind):
        return isinstance(value, list | tuple) and any(_is_cut(each, kind.field(0).type) for each in value)
    return isinstance(value, _FRACTIONS) and _has_whole_numbers(kind) and value % 1 != 0
