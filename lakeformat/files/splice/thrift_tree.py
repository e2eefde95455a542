"""Structs of Thrift's compact protocol as trees, which keep every field, also those that this version does not know.

A struct is a dict from field id to `Field`. A list is a pair of the kind of its items and the items. The encoding is in
Thrift's ``thrift-compact-protocol.md``. The tests compare it with Apache Thrift's own Python library.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "BINARY",
    "BOOL",
    "BYTE",
    "DOUBLE",
    "I16",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "Field",
    "SpliceError",
    "Struct",
    "encode_struct",
    "parse_struct",
    "read_field",
]

# The kinds of values, as `thrift.Thrift.TType` numbers them.
BOOL: Final = 2
BYTE: Final = 3
DOUBLE: Final = 4
I16: Final = 6
I32: Final = 8
I64: Final = 10
BINARY: Final = 11
STRUCT: Final = 12
LIST: Final = 15

#: Maps the code of a type in the bytes to the kind. A boolean has two codes, because that of a field is its value.
_KINDS: Final = {1: BOOL, 2: BOOL, 3: BYTE, 4: I16, 5: I32, 6: I64, 7: DOUBLE, 8: BINARY, 9: LIST, 12: STRUCT}
_CODES: Final = {kind: code for code, kind in _KINDS.items() if code != 2}
_TRUE: Final = 1
_FALSE: Final = 2
_DOUBLE: Final = struct.Struct("<d")


class SpliceError(Exception):
    """A row group that cannot be copied. The message is the reason; the caller encodes the rows instead."""


class Field(NamedTuple):
    """The value of a struct's field, and its kind."""

    kind: int
    value: Any


Struct: TypeAlias = dict[int, Field]


class _Reader:
    """Bytes and the place up to which they are read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise IndexError
        return self.data[start : self.at]

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """Return the next whole number: seven bits a byte, the low ones first."""
        number = shift = 0
        data, offset = self.data, self.at
        while (byte := data[offset]) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            offset += 1
        self.at = offset + 1
        return number | byte << shift

    def signed(self) -> int:
        """Return the next number whose sign is its lowest bit."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)


def parse_struct(data: bytes) -> tuple[Struct, int]:
    """Parse the struct at the start of the bytes. Return it, and its length in bytes.

    Raises:
        SpliceError: the bytes are not a struct, or they have a set or a map, which Parquet does not use.
    """
    source = _Reader(data)
    try:
        return _read_struct(source), source.at
    except IndexError:
        raise SpliceError("a Thrift struct ends too early") from None
    except RecursionError:
        raise SpliceError("a Thrift struct is damaged (it is nested too deeply)") from None


def _read_struct(source: _Reader) -> Struct:
    fields: Struct = {}
    number = 0
    while head := source.byte():
        step, code = head >> 4, head & 15
        number = number + step if step else source.signed()
        kind = _find_kind(code)
        fields[number] = Field(kind, code == _TRUE if kind == BOOL else _read_value(source, kind))
    return fields


def _find_kind(code: int) -> int:
    kind = _KINDS.get(code)
    if kind is None:
        raise SpliceError(f"a Thrift struct has a value of type {code}")
    return kind


def _read_value(source: _Reader, kind: int) -> Any:
    """Read a value that is not a boolean field."""
    if kind == STRUCT:
        return _read_struct(source)
    if kind == LIST:
        head = source.byte()
        count, item = head >> 4, _find_kind(head & 15)
        count = source.varint() if count == 15 else count
        return item, [_read_value(source, item) for _ in range(count)]
    if kind == BINARY:
        return source.take(source.varint())
    if kind == DOUBLE:
        return _DOUBLE.unpack(source.take(8))[0]
    if kind == BYTE:
        return int.from_bytes(source.take(1), "little", signed=True)
    return source.byte() == _TRUE if kind == BOOL else source.signed()


_MISSING: Final = object()


def read_field(tree: Struct, number: int, kind: int, default: Any = _MISSING) -> Any:
    """Return the value of a field.

    Raises:
        SpliceError: the field is missing and there is no default, or it has another kind.
    """
    field = tree.get(number)
    if field is None and default is not _MISSING:
        return default
    if field is None or field.kind != kind:
        raise SpliceError(f"a struct of the footer lacks field {number} of kind {kind}")
    return field.value


def encode_struct(tree: Struct) -> bytes:
    """Encode a struct, its fields in ascending order."""
    out = io.BytesIO()
    _write_struct(out, tree)
    return out.getvalue()


_BYTES: Final = tuple(bytes((byte,)) for byte in range(256))


def _write_struct(out: io.BytesIO, tree: Struct) -> None:
    last = 0
    for number in sorted(tree):
        kind, value = tree[number]
        code = (_TRUE if value else _FALSE) if kind == BOOL else _CODES[kind]
        step, last = number - last, number
        if 0 < step <= 15:
            _write_byte(out, step << 4 | code)
        else:
            _write_byte(out, code)
            _write_signed(out, number)
        if kind != BOOL:
            _write_value(out, kind, value)
    _write_byte(out, 0)


def _write_byte(out: io.BytesIO, byte: int) -> None:
    out.write(_BYTES[byte])


def _write_value(out: io.BytesIO, kind: int, value: Any) -> None:
    """Write a value that is not a boolean field."""
    if kind == STRUCT:
        _write_struct(out, value)
    elif kind == LIST:
        item, items = value
        _write_byte(out, min(len(items), 15) << 4 | _CODES[item])
        if len(items) >= 15:
            _write_varint(out, len(items))
        for value_of in items:
            _write_value(out, item, value_of)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out.write(value)
    elif kind == DOUBLE:
        out.write(_DOUBLE.pack(value))
    elif kind == BYTE:
        out.write(value.to_bytes(1, "little", signed=True))
    elif kind == BOOL:
        _write_byte(out, _TRUE if value else _FALSE)
    else:
        _write_signed(out, value)


def _write_varint(out: io.BytesIO, number: int) -> None:
    while number >= 0x80:
        _write_byte(out, number & 0x7F | 0x80)
        number >>= 7
    _write_byte(out, number)


def _write_signed(out: io.BytesIO, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
