"""Structs of Thrift's compact protocol as trees, which keep every field, also those that this version does not know.

A struct is a dict from field id to `Field`. A list is a pair of the kind of its items and the items. The primitives of
the protocol are those of Apache Thrift's own Python library. It has no dependency, and wheels for every platform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "BINARY",
    "BOOL",
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
I16: Final = 6
I32: Final = 8
I64: Final = 10
BINARY: Final = 11
STRUCT: Final = 12
LIST: Final = 15

_PRIMITIVES: Final[Mapping[int, str]] = {
    BOOL: "Bool",
    3: "Byte",
    4: "Double",
    I16: "I16",
    I32: "I32",
    I64: "I64",
    BINARY: "Binary",
}


class SpliceError(Exception):
    """A row group that cannot be copied. The message is the reason; the caller encodes the rows instead."""


class Field(NamedTuple):
    """The value of a struct's field, and its kind."""

    kind: int
    value: Any


Struct: TypeAlias = dict[int, Field]


@lru_cache(1)
def _protocol() -> Any:
    """Import Apache Thrift's compact protocol when it is first needed."""
    try:
        from thrift.protocol.TCompactProtocol import TCompactProtocol
    except ImportError:
        raise SpliceError("the package thrift is not installed") from None
    return TCompactProtocol


class _Bytes:
    """The transport of a protocol: bytes that are read, or written."""

    def __init__(self, data: bytes = b"") -> None:
        self.data, self.at = data, 0
        self.written: list[bytes] = []

    def readAll(self, size: int) -> bytes:  # noqa: N802  The name is Thrift's.
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise SpliceError("a Thrift struct ends too early")
        return self.data[start : self.at]

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def parse_struct(data: bytes) -> tuple[Struct, int]:
    """Parse the struct at the start of the bytes. Return it, and its length in bytes.

    Raises:
        SpliceError: the bytes are not a struct, or they have a set or a map, which Parquet does not use.
    """
    source = _Bytes(data)
    protocol = _protocol()(source, string_length_limit=None)
    readers = {kind: getattr(protocol, f"read{name}") for kind, name in _PRIMITIVES.items()}
    try:
        return _read_struct(protocol, readers), source.at
    except SpliceError:
        raise
    except Exception as error:  # The library raises many kinds of errors for damaged bytes, AssertionError among them.
        raise SpliceError(f"a Thrift struct is damaged ({error})") from None


def _read_struct(protocol: Any, readers: Mapping[int, Callable[[], Any]]) -> Struct:
    protocol.readStructBegin()
    found: Struct = {}
    while True:
        _, kind, number = protocol.readFieldBegin()
        if not kind:
            break
        found[number] = Field(kind, _read_value(protocol, readers, kind))
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return found


def _read_value(protocol: Any, readers: Mapping[int, Callable[[], Any]], kind: int) -> Any:
    if kind == STRUCT:
        return _read_struct(protocol, readers)
    if kind == LIST:
        item, count = protocol.readListBegin()
        items = [_read_value(protocol, readers, item) for _ in range(count)]
        protocol.readListEnd()
        return item, items
    if kind not in readers:
        raise SpliceError(f"a Thrift struct has a value of kind {kind}")
    return readers[kind]()


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
    sink = _Bytes()
    protocol = _protocol()(sink)
    writers = {kind: getattr(protocol, f"write{name}") for kind, name in _PRIMITIVES.items()}
    _write_struct(protocol, writers, tree)
    return b"".join(sink.written)


def _write_struct(protocol: Any, writers: Mapping[int, Callable[[Any], None]], tree: Struct) -> None:
    protocol.writeStructBegin("")
    for number in sorted(tree):
        kind, value = tree[number]
        protocol.writeFieldBegin("", kind, number)
        _write_value(protocol, writers, kind, value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _write_value(protocol: Any, writers: Mapping[int, Callable[[Any], None]], kind: int, value: Any) -> None:
    if kind == STRUCT:
        _write_struct(protocol, writers, value)
    elif kind == LIST:
        item, items = value
        protocol.writeListBegin(item, len(items))
        for each in items:
            _write_value(protocol, writers, item, each)
        protocol.writeListEnd()
    else:
        writers[kind](value)
