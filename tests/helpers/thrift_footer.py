"""Parquet footers with changed statistics: Thrift's compact protocol is read and written back.

A struct is a dict from field id to ``(type, value)``, a list is ``(type of its items, items)``. Fields that are not
edited survive, even unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Struct = dict[int, tuple[int, Any]]
#: Fields of Parquet's ``Statistics``.
MAX, MIN, NULL_COUNT, DISTINCT_COUNT, MAX_VALUE, MIN_VALUE = 1, 2, 3, 4, 5, 6
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def with_footer(data: bytes, edit: Callable[[Struct], None]) -> bytes:
    """Return the Parquet file after ``edit(footer)``. The file keeps its length, so the footer must not grow."""
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    footer, end = _read_struct(data, start)
    assert end == len(data) - 8
    edit(footer)
    written = _struct(footer)
    assert len(written) <= length
    return data[:start] + bytes(length - len(written)) + written + len(written).to_bytes(4, "little") + data[-4:]


def with_statistics(data: bytes, edit: Callable[[str, Struct], None]) -> bytes:
    """Return the Parquet file after ``edit(dotted column path, statistics)`` of every column chunk.

    The file keeps its length, so statistics must not grow.
    """

    def edit_all(footer: Struct) -> None:
        for group in footer[4][1][1]:
            for chunk in group[1][1][1]:
                metadata: Struct = chunk[3][1]
                statistics: Struct = dict(metadata.pop(12, (_STRUCT, {}))[1])
                edit(".".join(part.decode() for part in metadata[3][1][1]), statistics)
                if statistics:
                    metadata[12] = (_STRUCT, statistics)

    return with_footer(data, edit_all)


def put_bytes(statistics: Struct, field: int, value: bytes) -> None:
    """Set one bound, in Parquet's PLAIN encoding."""
    statistics[field] = (_BINARY, value)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = {}
    field = 0
    while header := data[at]:
        at += 1
        kind, delta = header & 0x0F, header >> 4
        if delta:
            field += delta
        else:
            raw, at = _read_varint(data, at)
            field = raw >> 1 ^ -(raw & 1)
        if kind in (_TRUE, _FALSE):
            found[field] = (kind, None)
        else:
            value, at = _read_value(data, at, kind)
            found[field] = (kind, value)
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_I16, _I32, _I64):
        return _read_varint(data, at)  # The bytes stay as they were encoded.
    if kind == _BINARY:
        length, at = _read_varint(data, at)
        return data[at : at + length], at + length
    if kind in (_LIST, _SET):
        count, inner = data[at] >> 4, data[at] & 0x0F
        at += 1
        if count == 15:
            count, at = _read_varint(data, at)
        items = []
        for _ in range(count):
            item, at = _read_value(data, at, inner)
            items.append(item)
        return (inner, items), at
    if kind == _STRUCT:
        return _read_struct(data, at)
    length = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}[kind]
    return data[at : at + length], at + length


def _varint(value: int) -> bytes:
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*coded, value])


def _struct(fields: Struct) -> bytes:
    written = bytearray()
    before = 0
    for field, (kind, value) in sorted(fields.items()):
        assert 0 < field - before <= 15
        written.append((field - before) << 4 | kind)
        written += b"" if kind in (_TRUE, _FALSE) else _value(kind, value)
        before = field
    return bytes([*written, 0])


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I16, _I32, _I64):
        return _varint(value)
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    if kind in (_LIST, _SET):
        inner, items = value
        short = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
        return short + b"".join(_value(inner, item) for item in items)
    return _struct(value) if kind == _STRUCT else bytes(value)
