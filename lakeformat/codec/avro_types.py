"""Avro schemas as trees that tell, of every type, how its bytes are walked and which Arrow type its values have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.avro_schema import from_avro
from lakeformat.errors import CorruptTableError

__all__ = ["AvroType", "record_type"]

#: Primitive type -> the fewest bytes a value takes.
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
        kind: Avro's name of it, without logical type: ``int``, ``record``, ``array`` ...
        arrow: the type of its values as columns; it knows the logical type.
        branch: in a union, the place of this type; all other branches are null. None if it stands alone.
        branches: how many branches the union has.
        children: fields of a record, items of an array, values of a map.
        size: bytes of a fixed.
        symbols: of an enum.
        fewest: bytes that a value takes at least.
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
        """Of a record's fields."""
        return [field.name for field in self.arrow]


def record_type(text: str, *, name: str) -> AvroType:
    """The tree of a record's schema; its ``arrow`` is the struct of what `from_avro` gives.

    Args:
        text: Avro schema, JSON.
        name: where the text was found, for messages.

    Raises:
        CorruptTableError: ``text`` is no Avro record.
        UnsupportedTableError: a field has a type that no column can hold; the message names field and type.
    """
    schema = from_avro(text, name=name)
    return _Tree(name).type_of(json.loads(text), pa.struct(list(schema)), "")


class _Tree:
    """One walk over a schema that `from_avro` has accepted; remembers named types."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, AvroType] = {}

    def type_of(self, avro: Any, arrow: pa.DataType, namespace: str) -> AvroType:
        match avro:
            case list():
                return self._union(avro, arrow, namespace)
            case str() if avro in _FEWEST:
                return AvroType(avro, arrow, fewest=_FEWEST[avro])
            case str():
                return self._named.get(_qualified(avro, namespace)) or self._named[avro]
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

    def _remember(self, avro: dict[str, Any], namespace: str, found: AvroType) -> AvroType:
        self._named[_full_name(avro, namespace)] = found
        return found


def _full_name(avro: dict[str, Any], namespace: str) -> str:
    return _qualified(avro["name"], avro.get("namespace", namespace))


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
