"""Avro schemas as trees of types; each type knows the form of its bytes and the Arrow type of its values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.avro_schema import from_avro
from lakeformat.errors import CorruptTableError

__all__ = ["AvroType", "record_type"]

#: Primitive type -> least number of bytes of a value.
_FEWEST: Final[Mapping[str, int]] = {
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


@dataclass(frozen=True, slots=True)
class AvroType:
    """One type of a schema.

    Attributes:
        kind: Avro's name without the logical type: ``int``, ``record``, ``array`` ...
        arrow: Arrow type of the values, which includes the logical type.
        branch: Position of this type in its union, whose other branches are null; None if the type is not in a union.
        branches: Number of branches of the union.
        children: Fields of a record, items of an array, values of a map.
        size: Number of bytes of a fixed.
        symbols: Symbols of an enum.
        fewest: Least number of bytes of a value.
    """

    kind: str
    arrow: pa.DataType
    branch: int | None = None
    branches: int = 0
    children: tuple[AvroType, ...] = ()
    size: int = 0
    symbols: tuple[str, ...] = ()
    fewest: int = 0

    @property
    def names(self) -> list[str]:
        """Return the names of a record's fields."""
        return [field.name for field in self.arrow]


def record_type(text: str, *, name: str) -> AvroType:
    """Return the tree of a record's schema. Its ``arrow`` is a struct of the fields that `from_avro` returns.

    Args:
        text: Avro schema, JSON.
        name: Path of the file that holds the text, for messages.

    Raises:
        CorruptTableError: ``text`` is not an Avro record.
        UnsupportedTableError: A field has a type that no column can hold; the message names field and type.
    """
    schema = from_avro(text, name=name)
    return _Tree(name).type_of(json.loads(text), pa.struct(list(schema)), "")


class _Tree:
    """A builder of the tree of one schema that `from_avro` has accepted. It remembers named types."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, AvroType] = {}

    def type_of(self, avro: Any, arrow: pa.DataType, namespace: str) -> AvroType:
        """Return the type of a part of the schema, whose values are of type ``arrow``."""
        match avro:
            case list():
                return self._union(avro, arrow, namespace)
            case str() if avro in _FEWEST:
                return AvroType(avro, arrow, fewest=_FEWEST[avro])
            case str():
                return self._named.get(_qualify(avro, namespace)) or self._named[avro]
            case {"type": "record"}:
                return self._remember(avro, namespace, self._record(avro, arrow, _full_name(avro, namespace)))
            case {"type": "array", "items": items}:
                return self._collection("array", self.type_of(items, arrow.value_type, namespace), arrow)
            case {"type": "map", "values": values}:
                return self._collection("map", self.type_of(values, arrow.item_type, namespace), arrow)
            case {"type": "enum", "symbols": [*symbols]} if all(isinstance(symbol, str) for symbol in symbols):
                return self._remember(avro, namespace, AvroType("enum", arrow, symbols=(*symbols,), fewest=1))
            case {"type": "fixed", "size": int(size)} if 0 <= size < 2**31:
                return self._remember(avro, namespace, AvroType("fixed", arrow, size=size, fewest=size))
            case {"type": str() | dict() as inner} if inner not in ("enum", "fixed"):
                return self.type_of(inner, arrow, namespace)
        raise CorruptTableError(f"the Avro schema in {self._source} has a type that is not whole; restore the file")

    def _union(self, avro: list[Any], arrow: pa.DataType, namespace: str) -> AvroType:
        (at,) = (n for n, branch in enumerate(avro) if branch not in ("null", {"type": "null"}))
        one = self.type_of(avro[at], arrow, namespace)
        fewest = 1 if len(avro) > 1 else 1 + one.fewest
        return AvroType(one.kind, one.arrow, at, len(avro), one.children, one.size, one.symbols, fewest)

    def _record(self, avro: dict[str, Any], arrow: pa.StructType, full: str) -> AvroType:
        inner = full.rpartition(".")[0]
        children = tuple(self._fields(avro["fields"], arrow, inner))
        return AvroType("record", arrow, children=children, fewest=sum(child.fewest for child in children))

    def _fields(self, fields: list[Any], arrow: pa.StructType, namespace: str) -> Iterator[AvroType]:
        for field, column in zip(fields, arrow, strict=True):
            yield self.type_of(field["type"], column.type, namespace)

    def _collection(self, kind: str, item: AvroType, arrow: pa.DataType) -> AvroType:
        if kind == "array" and not item.fewest:
            raise CorruptTableError(
                f"the Avro schema in {self._source} has an array whose items take no bytes; restore the file"
            )
        return AvroType(kind, arrow, children=(item,), fewest=1)

    def _remember(self, avro: dict[str, Any], namespace: str, one: AvroType) -> AvroType:
        self._named[_full_name(avro, namespace)] = one
        return one


def _full_name(avro: dict[str, Any], namespace: str) -> str:
    return _qualify(avro["name"], avro.get("namespace", namespace))


def _qualify(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
