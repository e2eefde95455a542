"""The JSON form of schemas with column ids, which Hudi's schema on read stores (Hudi: ``SerDeHelper``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lakeformat.codec.stored_types import MAX_NESTING
from lakeformat.codec.timeline_files.commit import decode_json
from lakeformat.errors import CorruptTableError
from lakeformat.model.internal_schema import ARRAY, MAP, RECORD, InternalSchema, SchemaField, SchemaType

__all__ = [
    "LATEST_SCHEMA",
    "decode_history",
    "decode_internal_schema",
    "encode_history",
    "encode_internal_schema",
]

#: Key of ``extraMetadata`` for the table's columns with their ids after the commit.
LATEST_SCHEMA: Final = "latest_schema"


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
    return tuple(schema for schema_json in schemas if (schema := _schema(schema_json, name)) is not None)


def encode_internal_schema(schema: InternalSchema) -> str:
    """Encode one schema as JSON."""
    return json.dumps(_document(schema), separators=(",", ":"))


def encode_history(schemas: Iterable[InternalSchema]) -> bytes:
    """Encode schemas as the content of a ``.schemacommit`` file: the newest first."""
    newest_first = sorted(schemas, key=lambda schema: -schema.version)
    return json.dumps({"schemas": [*map(_document, newest_first)]}, separators=(",", ":")).encode()


def _schema(document: Any, name: str) -> InternalSchema | None:
    try:
        if not document.get("fields"):
            return None
        fields = tuple(map(_field, document["fields"]))
        last = max((field.id for field in _each_field(fields)), default=0)
        return InternalSchema(int(document["version_id"]), fields, max(last, int(document.get("max_column_id", last))))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupt(name, repr(error)[:300]) from None


def _each_field(fields: Iterable[SchemaField]) -> Iterator[SchemaField]:
    for field in fields:
        yield field
        yield from _each_field(field.type.fields)


def _field(document: Mapping[str, Any], depth: int = 0) -> SchemaField:
    kind, optional = _type(document["type"], depth + 1), bool(document.get("optional", True))
    return SchemaField(int(document["id"]), str(document["name"]), kind, optional, document.get("doc"))


def _type(document: Any, depth: int) -> SchemaType:
    if not isinstance(document, dict):
        return SchemaType(str(document))
    if depth > MAX_NESTING:
        raise ValueError(f"a column is nested over {MAX_NESTING} levels")
    match document["type"]:
        case "record":
            return SchemaType(RECORD, tuple(_field(field, depth) for field in document["fields"]))
        case "array":
            return SchemaType(ARRAY, (_inner(document, "element", depth),))
        case "map":
            return SchemaType(MAP, (_inner(document, "key", depth), _inner(document, "value", depth)))
        case other:
            return SchemaType(str(other))


def _inner(document: Mapping[str, Any], name: str, depth: int) -> SchemaField:
    """Decode the element of an array, or the key or value of a map."""
    optional = bool(document.get(f"{name}_optional", name != "key"))
    return SchemaField(int(document[f"{name}_id"]), name, _type(document[name], depth + 1), optional)


def _document(schema: InternalSchema) -> dict[str, Any]:
    fields = [*map(_field_document, schema.fields)]
    return {"max_column_id": schema.last_id, "version_id": schema.version, "type": RECORD, "fields": fields}


def _field_document(field: SchemaField) -> dict[str, Any]:
    document = {"id": field.id, "name": field.name, "optional": field.optional, "type": _type_document(field.type)}
    return document if field.doc is None else {**document, "doc": field.doc}


def _type_document(kind: SchemaType) -> Any:
    if kind.name == RECORD:
        return {"type": RECORD, "fields": [*map(_field_document, kind.fields)]}
    if kind.name not in {ARRAY, MAP}:
        return kind.name
    document: dict[str, Any] = {"type": kind.name}
    for inner in kind.fields:
        document |= {f"{inner.name}_id": inner.id, inner.name: _type_document(inner.type)}
    return document | {f"{kind.fields[-1].name}_optional": kind.fields[-1].optional}


def _corrupt(name: str, why: str) -> CorruptTableError:
    return CorruptTableError(f"{name} holds no schema with column ids ({why}); restore it from a copy")
