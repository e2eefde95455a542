"""The Avro schema of a metadata table's records, as a tree for the column decoder.

Each record is a ``HoodieMetadataRecord``, in which one of several parts is filled, by the kind of the record. The
bounds in statistics are unions of ten and more types, which no column of a table can have. So the tree is made here,
and not by `lakeformat.codec.avro.schema`. Releases of Hudi differ in the fields of the parts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.avro.schema import PRIMITIVES, AvroType
from lakeformat.codec.json_text import parse_json
from lakeformat.errors import CorruptTableError, UnsupportedTableError

__all__ = ["KIND", "new_schema", "part_type", "without_meta_columns"]

#: Field with the kind of a record, a number.
KIND: Final = "type"
_META_COLUMNS: Final = 5
_MAX_SCHEMA: Final = 1 << 20
_NOTHING: Final = AvroType("null", pa.null())
_DECIMAL: Final = pa.decimal128(30, 15)


@lru_cache(maxsize=64)
def part_type(text: str, part: str) -> AvroType:
    """Return the tree of a record, to decode its kind and one part.

    All other parts must be null. A decoder of this tree refuses a record in which they are not.

    Args:
        text: The schema as JSON.
        part: Name of the field to decode.

    Raises:
        CorruptTableError: The text is not the schema of a record with this part.
        UnsupportedTableError: A type in the schema is not supported.
    """
    try:
        schema = parse_json(text) if len(text) <= _MAX_SCHEMA else None
        return _Tree().root(schema, part)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptTableError(
            f"the schema of a file of the metadata table cannot be read ({reason}); run repair(), which drops that "
            "table"
        ) from None


@cache
def new_schema(form: int) -> str:
    """Return the schema, as JSON, with which Hudi makes a new metadata table of a form: 0.15 of 6, 1.x of 8."""
    return files(__package__).joinpath(f"records_{form}.avsc").read_text(encoding="utf-8").strip()


def without_meta_columns(text: str) -> str:
    """Return the schema, as JSON, without the five meta columns. Commits of the metadata table name it."""
    schema = parse_json(text)
    return json.dumps(schema | {"fields": schema["fields"][_META_COLUMNS:]}, separators=(",", ":"))


class _Tree:
    """A builder of the tree of one schema. It stores named types for later references."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def root(self, schema: Any, part: str) -> AvroType:
        """Return the tree of the whole record, with the other parts left out."""
        names, children = [], []
        for field in schema["fields"]:
            child = self.type_of(field["type"])
            is_part = child.branch is not None and child.kind in {"record", "map"}
            if is_part and field["name"] != part:
                child = AvroType("record", pa.struct([]), child.branch, child.branches)
            names.append(field["name"])
            children.append(child)
        if not {KIND, part} <= set(names):
            raise ValueError(f"it has no field {part}")
        return _record(names, children)

    def type_of(self, avro: Any) -> AvroType:
        """Return the tree of one type."""
        match avro:
            case list():
                return self._union(avro)
            case str() if avro in PRIMITIVES:
                return AvroType(avro, PRIMITIVES[avro])
            case str():
                return self._named[avro.rpartition(".")[2]]
            case {"type": "record", "name": name, "fields": fields}:
                own = _record([field["name"] for field in fields], [self.type_of(field["type"]) for field in fields])
                self._named[name.rpartition(".")[2]] = own
                return own
            case {"type": "map", "values": values}:
                item = self.type_of(values)
                return AvroType("map", pa.map_(pa.string(), item.arrow), children=(item,))
            case {"type": "array", "items": list() as items}:
                item = self.type_of(items)
                return AvroType("array", pa.list_(item.arrow), children=(item,))
            case {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}:
                return AvroType("bytes", _DECIMAL)
            case {"type": str() as inner} if inner in PRIMITIVES:
                return AvroType(inner, PRIMITIVES[inner])
        raise UnsupportedTableError(
            f"the metadata table has records of type {json.dumps(avro)[:100]}, which is not supported; run repair(), "
            "which drops that table"
        )

    def _union(self, avro: list[Any]) -> AvroType:
        """Return the tree of a union. The fields of its struct have the names of the branches."""
        branches = [self.type_of(branch) if branch != "null" else _NOTHING for branch in avro]
        others = [number for number, branch in enumerate(branches) if branch.kind != "null"]
        if len(others) == 1:
            return replace(branches[others[0]], branch=others[0], branches=len(branches))
        names = [
            (avro[number]["name"] if isinstance(avro[number], dict) else avro[number]).rpartition(".")[2]
            for number in others
        ]
        values = [_unwrap(branch) for branch in branches]
        fields = [pa.field(name, values[number].arrow) for name, number in zip(names, others, strict=True)]
        return AvroType("union", pa.struct(fields), branches=len(branches), children=tuple(values))


def _unwrap(avro_type: AvroType) -> AvroType:
    """Return the type of the one field of a wrapper, since both have the same bytes."""
    if avro_type.kind == "record" and avro_type.names == ["value"]:
        return avro_type.children[0]
    return avro_type


def _record(names: list[str], children: list[AvroType]) -> AvroType:
    fields = [pa.field(name, child.arrow) for name, child in zip(names, children, strict=True)]
    return AvroType("record", pa.struct(fields), children=tuple(children))
