"""Decoding of the schemas with column ids that Hudi's schema on read stores (``SerDeHelper``, ``InternalSchema``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.timeline_files.commit import decode_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.record import META_COLUMNS

__all__ = ["LATEST_SCHEMA", "InternalSchema", "SchemaColumn", "decode_history", "decode_internal_schema"]

#: Key of ``extraMetadata`` for the table's columns with their ids after the commit.
LATEST_SCHEMA: Final = "latest_schema"


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A column of the table.

    Attributes:
        id: Number that identifies the column. It does not change if the column is renamed.
        type: Stored name of the type. For a nested type it is only ``record``, ``array`` or ``map``.
        inner: Maps the path of each nested field (``.a.b``, ``.element``, ``.value``) to its id and type.
    """

    id: int
    name: str
    type: str
    inner: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """The columns that a table has after a commit, without the meta columns.

    Attributes:
        version: Instant time of the commit, as a number.
    """

    version: int
    columns: tuple[SchemaColumn, ...]


def decode_internal_schema(data: bytes, *, name: str) -> InternalSchema | None:
    """Decode one schema with column ids from JSON. Return None if the JSON has no fields.

    Raises:
        CorruptTableError: The text is not a schema; the message names its file.
    """
    return _schema(decode_json(data, name=name), name)


def decode_history(data: bytes, *, name: str) -> tuple[InternalSchema, ...]:
    """Decode all schemas of a ``.schemacommit`` file, in its order. Raise the errors of `decode_internal_schema`."""
    schemas = decode_json(data, name=name).get("schemas")
    if not isinstance(schemas, list):
        raise _corrupt(name, "no list of schemas")
    return tuple(schema for each in schemas if (schema := _schema(each, name)) is not None)


def _schema(document: Any, name: str) -> InternalSchema | None:
    try:
        if not document.get("fields"):
            return None
        columns = tuple(_column(field) for field in document["fields"] if field["name"] not in META_COLUMNS)
        return InternalSchema(int(document["version_id"]), columns)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupt(name, repr(error)) from None


def _column(field: Mapping[str, Any]) -> SchemaColumn:
    kind = field["type"]
    return SchemaColumn(int(field["id"]), str(field["name"]), _type_name(kind), dict(_inner(kind, "")))


def _inner(kind: Any, path: str) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield ``(path, (id, type))`` of all nested fields: fields of records, elements of lists, values of maps."""
    if not isinstance(kind, dict):
        return
    match kind["type"]:
        case "record":
            for field in kind["fields"]:
                below = f"{path}.{field['name']}"
                yield below, (int(field["id"]), _type_name(field["type"]))
                yield from _inner(field["type"], below)
        case "array":
            yield f"{path}.element", (int(kind["element_id"]), _type_name(kind["element"]))
            yield from _inner(kind["element"], f"{path}.element")
        case "map":
            yield f"{path}.value", (int(kind["value_id"]), _type_name(kind["value"]))
            yield from _inner(kind["value"], f"{path}.value")


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _corrupt(name: str, why: str) -> CorruptTableError:
    return CorruptTableError(f"{name} holds no schema with column ids ({why}); restore it from a copy")
