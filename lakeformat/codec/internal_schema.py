"""Schemas whose columns have ids, as Hudi's schema on read stores them (Hudi: ``SerDeHelper``, ``InternalSchema``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.commit_json import decode_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.record import META_COLUMNS

__all__ = ["LATEST_SCHEMA", "InternalSchema", "SchemaColumn", "decode_history", "decode_internal_schema"]

#: Key of ``extraMetadata``: the table's columns with their ids.
LATEST_SCHEMA: Final = "latest_schema"


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A column of the table.

    Attributes:
        id: stays, whatever the column is named.
        type: as it is written there; of a record, list or map that word.
        inner: path of a field below, to its id and type.
    """

    id: int
    name: str
    type: str
    inner: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """The columns as a commit left them, without meta columns.

    Attributes:
        version: instant of the commit, as a number.
    """

    version: int
    columns: tuple[SchemaColumn, ...]


def decode_internal_schema(data: bytes, *, name: str) -> InternalSchema | None:
    """One schema; None where the text holds none.

    Raises:
        CorruptTableError: it cannot be a schema; names where it was found.
    """
    return _schema(decode_json(data, name=name), name)


def decode_history(data: bytes, *, name: str) -> tuple[InternalSchema, ...]:
    """All schemas of a ``.schemacommit`` file; raises as `decode_internal_schema`."""
    schemas = decode_json(data, name=name).get("schemas")
    if not isinstance(schemas, list):
        raise _damaged(name, "no list of schemas")
    return tuple(found for each in schemas if (found := _schema(each, name)) is not None)


def _schema(document: Any, name: str) -> InternalSchema | None:
    try:
        if not document.get("fields"):
            return None
        columns = tuple(_column(field) for field in document["fields"] if field["name"] not in META_COLUMNS)
        return InternalSchema(int(document["version_id"]), columns)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(name, repr(error)) from None


def _column(field: Mapping[str, Any]) -> SchemaColumn:
    return SchemaColumn(int(field["id"]), str(field["name"]), _bare(field["type"]), dict(_inner(field["type"], "")))


def _inner(kind: Any, path: str) -> Iterator[tuple[str, tuple[int, str]]]:
    """Ids and types below a type: of a record's fields, of a list's elements, of a map's values."""
    if not isinstance(kind, dict):
        return
    match kind["type"]:
        case "record":
            for field in kind["fields"]:
                below = f"{path}.{field['name']}"
                yield below, (int(field["id"]), _bare(field["type"]))
                yield from _inner(field["type"], below)
        case "array":
            yield f"{path}.element", (int(kind["element_id"]), _bare(kind["element"]))
            yield from _inner(kind["element"], f"{path}.element")
        case "map":
            yield f"{path}.value", (int(kind["value_id"]), _bare(kind["value"]))
            yield from _inner(kind["value"], f"{path}.value")


def _bare(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _damaged(name: str, why: str) -> CorruptTableError:
    return CorruptTableError(f"{name} holds no schema with column ids ({why}); restore it from a copy")
