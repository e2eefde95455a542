"""Typed bounds of one column, from and to the wrappers in which statistics store them. Pure.

Version 9 stores the type of the column beside its bounds, and dates and decimals differently from versions 6 and 8.
All forms are read here. A bound that has another form than the column's type allows is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.avro.encode import decimal_bytes

__all__ = ["typed_bounds", "wrapped_bounds"]

#: Scale of decimals in versions 6 and 8.
_WIDE_SCALE = 15
_WIDE = pa.decimal128(38, _WIDE_SCALE)
#: ``typeOrdinal`` of a decimal whose bounds are the bytes of its unscaled value.
_DECIMAL = 10


def typed_bounds(statistics: pa.Table, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the minimum and the maximum of each row, as values of the column's type.

    A null means that the bound is not known, or that the column has no value: then ``nulls`` is equal to ``values``.
    In that case a boolean may have bounds although it has no value.

    Args:
        statistics: Rows of `MetadataTable.column_stats` or `MetadataTable.partition_stats`, all of one column.
        data_type: The column's type in the table.
    """
    return _bounds(statistics, "min", data_type), _bounds(statistics, "max", data_type)


def _bounds(statistics: pa.Table, which: str, data_type: pa.DataType) -> pa.Array:
    values_so_far = pa.nulls(len(statistics), data_type)
    columns = {name.partition(".")[2]: name for name in statistics.column_names if name.startswith(f"{which}.")}
    for wrapper, name in columns.items():
        for values in _values(statistics, statistics[name].combine_chunks(), wrapper, data_type):
            values_so_far = pc.coalesce(values_so_far, values)
    return values_so_far


def _values(statistics: pa.Table, stored: pa.Array, wrapper: str, data_type: pa.DataType) -> Iterator[pa.Array]:
    """Yield the values of one wrapper as the column's type; nothing if the wrapper does not fit the type."""
    match wrapper:
        case "BooleanWrapper" if kind_of(data_type) is Kind.BOOLEAN:
            yield stored
        case "IntWrapper" | "LongWrapper" if kind_of(data_type) is Kind.INTEGER:
            narrow = stored.cast(data_type, safe=False)
            is_same = pc.equal(narrow.cast(pa.int64(), safe=False), stored.cast(pa.int64()))
            yield pc.if_else(is_same, narrow, pa.scalar(None, data_type))
        case "IntWrapper" | "DateWrapper" | "LocalDateWrapper" if kind_of(data_type) is Kind.DATE:
            yield stored.view(data_type)
        case "LongWrapper" | "TimestampMicrosWrapper" if (
            kind_of(data_type) is Kind.TIMESTAMP and data_type.unit == "us"
        ):
            yield stored.view(data_type)
        case "FloatWrapper" if data_type == pa.float32():
            yield stored
        case "DoubleWrapper" if kind_of(data_type) is Kind.FLOAT:
            yield stored.cast(data_type)
        case "StringWrapper" if kind_of(data_type) is Kind.TEXT:
            yield stored
        case "BytesWrapper" if data_type == pa.binary():
            yield stored
        case "DecimalWrapper" if kind_of(data_type) is Kind.DECIMAL:
            yield _to_decimal(stored, data_type)
        case "BytesWrapper" if kind_of(data_type) is Kind.DECIMAL:
            yield from _decimals_of_bytes(statistics, stored, data_type)


def _decimals_of_bytes(statistics: pa.Table, stored: pa.Array, data_type: pa.DataType) -> Iterator[pa.Array]:
    """Yield decimals from the bytes of their unscaled values.

    In version 9 they have the scale of the column. Version 6 writes such bytes by mistake, with its own scale, where a
    compaction has merged the records.
    """
    if "value_type" in statistics.column_names:
        kinds = statistics["value_type"].combine_chunks()
        is_own = np.asarray(pc.fill_null(pc.equal(kinds, _DECIMAL), False))
        info = statistics["value_info"].combine_chunks()
        expected = f"{data_type.precision},{data_type.scale}"
        is_same = np.asarray(pc.fill_null(pc.equal(pc.replace_substring(info, " ", ""), expected), False))
        is_wide = np.asarray(kinds.is_null())
    else:
        is_own = is_same = np.zeros(len(stored), bool)
        is_wide = ~is_own
    yield _from_bytes(stored, is_own & is_same, data_type)
    yield _to_decimal(_from_bytes(stored, is_wide, _WIDE), data_type)


def _to_decimal(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return decimals with another scale; null where digits would be lost."""
    wide = values.cast(_WIDE)
    if data_type.scale > _WIDE_SCALE:
        return pa.nulls(len(values), data_type)
    rounded = pc.round(wide, data_type.scale)
    most = pa.scalar(10 ** min(data_type.precision - data_type.scale, 22), pa.decimal128(38, 0)).cast(_WIDE)
    fits = pc.and_(pc.equal(rounded, wide), pc.less(pc.abs(wide), most))
    return pc.if_else(fits, rounded, pa.scalar(None, _WIDE)).cast(data_type)


def _from_bytes(stored: pa.Array, chosen: npt.NDArray[np.bool_], data_type: pa.DataType) -> pa.Array:
    """Return decimals from big-endian bytes of their unscaled values, for the chosen rows that have such bytes."""
    sizes = np.asarray(pc.binary_length(stored).fill_null(0))
    positions = np.flatnonzero(chosen & (sizes > 0) & (sizes <= 16))
    little = np.zeros((len(stored), 16), np.uint8)
    for row, raw in zip(positions.tolist(), stored.take(pa.array(positions)).to_pylist(), strict=True):
        number = int.from_bytes(raw, "big", signed=True)
        little[row] = np.frombuffer(number.to_bytes(16, "little", signed=True), np.uint8)
    valid = np.zeros(len(stored), bool)
    valid[positions] = True
    bits = pa.array(valid).buffers()[1]
    decimals = pa.Array.from_buffers(data_type, len(stored), [bits, pa.py_buffer(little)])
    decimals.validate(full=True)
    return decimals


#: Maps types to the wrapper of their bounds, and to ``typeOrdinal``. Timestamps and decimals are not among them.
_WRAPPERS: Final[Mapping[pa.DataType, tuple[str, int]]] = {
    pa.bool_(): ("BooleanWrapper", 2),
    pa.int32(): ("IntWrapper", 3),
    pa.int64(): ("LongWrapper", 4),
    pa.float32(): ("FloatWrapper", 5),
    pa.float64(): ("DoubleWrapper", 6),
    pa.string(): ("StringWrapper", 7),
    pa.binary(): ("BytesWrapper", 8),
}
_DATE: Final = 12
_INSTANT, _LOCAL = 16, 19


def wrapped_bounds(low: pa.Array, high: pa.Array, *, stores_types: bool) -> dict[str, pa.Array] | None:
    """Return the columns in which statistics store bounds. Return None for a type that is not indexed.

    Args:
        low: The minimum of each row; null if it is not known.
        high: The maximum of each row.
        stores_types: Whether the type of the column is stored, too, as in table version 9.
    """
    form = _form_of(low.type, stores_types=stores_types)
    if form is None:
        return None
    wrapper, ordinal, info = form
    columns = {f"min.{wrapper}": _wrap(low, wrapper), f"max.{wrapper}": _wrap(high, wrapper)}
    if stores_types:
        columns["value_type"] = pa.repeat(pa.scalar(ordinal, pa.int32()), len(low))
        columns["value_info"] = pa.repeat(pa.scalar(info, pa.string()), len(low))
    return columns


def _form_of(data_type: pa.DataType, *, stores_types: bool) -> tuple[str, int, str | None] | None:
    """Return the wrapper, ``typeOrdinal`` and ``additionalInfo`` of a type; None if it is not indexed."""
    if kind_of(data_type) is Kind.DECIMAL:
        digits, scale = data_type.precision, data_type.scale
        if stores_types:
            return "BytesWrapper", _DECIMAL, f"{digits},{scale}"
        return ("DecimalWrapper", 0, None) if scale <= _WIDE_SCALE and digits - scale <= _WIDE_SCALE else None
    if kind_of(data_type) is Kind.DATE:
        return "IntWrapper" if stores_types else "DateWrapper", _DATE, None
    if kind_of(data_type) is Kind.TIMESTAMP:
        ordinal = _LOCAL if data_type.tz is None else _INSTANT
        return ("LongWrapper", ordinal, None) if data_type.unit == "us" else None
    wrapper = _WRAPPERS.get(data_type)
    return wrapper and (*wrapper, None)


def _wrap(values: pa.Array, wrapper: str) -> pa.Array:
    if kind_of(values.type) is Kind.DECIMAL:
        return decimal_bytes(values) if wrapper == "BytesWrapper" else values.cast(pa.decimal128(30, _WIDE_SCALE))
    if kind_of(values.type) is Kind.DATE:
        return values.view(pa.int32())
    return values.view(pa.int64()) if kind_of(values.type) is Kind.TIMESTAMP else values
