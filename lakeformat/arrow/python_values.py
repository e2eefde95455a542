"""Conversion of Python values to Arrow values that loses nothing.

``pyarrow.array`` drops the fields of dicts that a struct type lacks, the fractions of numbers that become integers, the
time of day of datetimes that become dates, and nanoseconds. Here a field that the type lacks is added to the type, and
a value that would be cut is refused, at any depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakeformat.arrow.conform import is_any_list
from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["PYTHON_ERRORS", "to_array", "to_list"]

#: Errors by which `to_array` refuses values.
PYTHON_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)
_FRACTIONS: Final = (float, Decimal, np.floating)
_MIDNIGHT: Final = time()
_MAX_FLOAT: Final = float(np.finfo(np.float32).max)


def to_array(values: Any, kind: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    """Convert values to an Arrow array.

    Args:
        values: a sequence of Python values, an array of numpy, or a column of a frame.
        kind: the type of the array; by default it follows from the values. Fields of dicts that a struct in it lacks
            are added to it, with the types of their values.

    Raises:
        PYTHON_ERRORS: a value does not fit the type.
    """
    if not isinstance(values, list | tuple):
        plain = _convert_column(values, kind)
        if plain is not None:
            return plain
        values = to_list(values)
    if kind is not None:
        return pa.array(values, _widen(values, kind, ""))
    array = pa.array(values)
    _widen(values, array.type, "")  # The first values decide the type, and later ones may be cut.
    return array


def _convert_column(values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray | None:
    """Convert an array or a column without its Python values; return None if that may lose values."""
    dtype = getattr(values, "dtype", None)
    if type(values).__module__.startswith("polars"):
        column = pa.chunked_array(values) if str(dtype) != "Object" else None
        return column if column is not None and (kind is None or column.type.equals(kind)) else None
    is_plain = dtype is not None and str(dtype) != "object"
    if kind is None:
        column = pa.array(values)
        return column if is_plain or not _may_lose(column.type) else None
    letter = dtype.kind if isinstance(dtype, np.dtype) else ""
    is_safe = letter in set("iub") or (letter == "M" and kind_of(kind) is not Kind.DATE) or not _may_lose(kind)
    return pa.array(values, kind) if is_safe else None


def _may_lose(kind: pa.DataType) -> bool:
    if kind_of(kind).is_nested:
        return kind_of(kind) is Kind.STRUCT or any(
            _may_lose(kind.field(number).type) for number in range(kind.num_fields)
        )
    return bool(kind_of(kind) is Kind.INTEGER or kind_of(kind).is_temporal or kind == pa.float32())


def to_list(values: Any) -> list[Any]:
    """Return the values of a sequence, an array or a column as Python values. A missing value of pandas is None."""
    if isinstance(values, np.ndarray) and values.dtype.names:
        return [dict(zip(values.dtype.names, row, strict=True)) for row in values.tolist()]
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return list(values.astype("M8[us]").tolist())
    if hasattr(values, "isna"):
        return [None if missing else value for value, missing in zip(values, values.isna(), strict=True)]
    return list(values)


def _widen(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.DataType:
    """Return the type with the fields that values have and the type lacks. Refuse values that would be cut.

    Values of another form than the type are left to ``pyarrow.array``, which refuses them.

    Args:
        path: the names of the enclosing fields, joined by dots, for messages.
    """
    if not _may_lose(kind):
        return kind
    if kind_of(kind) is Kind.STRUCT:
        names = [field.name for field in kind]
        return _widen_struct([row for value in values if (row := _fields(value, names)) is not None], kind, path)
    if kind_of(kind) is Kind.MAP:
        entries = list(chain.from_iterable(_entries(value, path) for value in values))
        _widen([key for key, _ in entries], kind.key_type, path)
        inner = _widen([item for _, item in entries], kind.item_type, path)
        return kind if inner.equals(kind.item_type) else pa.map_(kind.key_type, inner)
    if is_any_list(kind):
        inner = _widen(list(chain.from_iterable(filter(_is_collection, values))), kind.value_type, path)
        return kind if inner.equals(kind.value_type) else pa.list_(pa.field(kind.value_field.name, inner))
    _refuse_cut(values, kind, path)
    return kind


def _widen_struct(rows: Sequence[Mapping[Any, Any]], kind: pa.StructType, path: str) -> pa.DataType:
    fields: list[pa.Field] = []
    for field in kind:
        place = f"{path}.{field.name}" if path else field.name
        inner = field.type
        if _may_lose(inner):
            inner = _widen([row.get(field.name) for row in rows], inner, place)
        fields.append(field.with_type(inner))
    names = {field.name for field in kind}
    spelled = {name.lower(): name for name in names}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        if name in names:
            continue
        place = f"{path}.{name}" if path else name
        if not isinstance(name, str):
            raise pa.ArrowInvalid(f"the field name {name!r}{_inside(path)} is not text")
        given = [value for row in rows if (value := row.get(name)) is not None]
        if given and name.lower() in spelled:
            raise pa.ArrowInvalid(f"the field {name!r}{_inside(path)} is {spelled[name.lower()]!r} in the table")
        if given:
            fields.append(pa.field(name, _infer(given, place)))
            spelled[name.lower()] = name
    return kind if fields == list(kind) else pa.struct(fields)


def _infer(values: list[Any], path: str) -> pa.DataType:
    try:
        return to_array(values).type
    except PYTHON_ERRORS as error:
        raise pa.ArrowInvalid(f"the new field {path!r} cannot be read of one type: {error}") from None


def _inside(path: str) -> str:
    return f" of {path!r}" if path else ""


def _is_collection(value: Any) -> bool:
    return hasattr(value, "__len__") and hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping)


def _fields(value: Any, names: Sequence[str]) -> Mapping[Any, Any] | None:
    """Return the fields of a value of a struct: a dict, a tuple of values in order, or a list of pairs; else None."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(zip(names, value, strict=False))
    if not isinstance(value, list):
        return None
    pairs = [pair for pair in value if _is_pair(pair)]
    if len({name for name, _ in pairs}) != len(value):
        raise pa.ArrowInvalid(f"{value!r} is not one value for each field")
    return dict(pairs)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _entries(value: Any, path: str) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a value of a map: a dict, or a list of pairs or of dicts with key and value."""
    if isinstance(value, Mapping):
        return value.items()
    if not _is_collection(value):
        return ()
    for entry in value:
        if isinstance(entry, Mapping) and not {*entry} <= {"key", "value"}:
            extra = next(name for name in entry if name not in {"key", "value"})
            raise pa.ArrowInvalid(f"an entry of the map{_inside(path)} has {extra!r} beside its key and its value")
    pairs = ((entry.get("key"), entry.get("value")) if isinstance(entry, Mapping) else entry for entry in value)
    return [(pair[0], pair[1]) for pair in pairs if _is_pair(pair)]


def _refuse_cut(values: Sequence[Any], kind: pa.DataType, path: str) -> None:
    suspects = tuple(kind for kind in set(map(type, values)) if issubclass(kind, (*_FRACTIONS, datetime)))
    if not suspects:
        return
    is_date, is_float32, unit = kind_of(kind) is Kind.DATE, kind == pa.float32(), getattr(kind, "unit", "ns")
    for value in values:
        if type(value) in suspects and (lost := _lost_part(value, is_date, is_float32, unit)):
            raise pa.ArrowInvalid(f"{value!r}{_inside(path)} would lose its {lost}")


def _lost_part(value: Any, is_date: bool, is_float32: bool, unit: str) -> str:
    """Return what the value would lose in a column of such a type; an empty text if it fits, or is not a number."""
    if value != value:  # noqa: PLR0124  # Not a number, or not a time.
        return ""
    if isinstance(value, datetime):
        if is_date and value.time() != _MIDNIGHT:
            return "time of day"
        return "nanoseconds" if getattr(value, "nanosecond", 0) and unit != "ns" else ""
    if is_float32:
        return "size" if _MAX_FLOAT < abs(value) < math.inf else ""
    return "fraction" if value % 1 != 0 else ""
