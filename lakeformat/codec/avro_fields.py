"""Parts of Avro schemas in the form that Hudi's timeline files have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "NAMESPACE",
    "TEXT",
    "TEXTS",
    "VERSION",
    "array_of",
    "file_of",
    "list_of",
    "map_of",
    "optional",
    "record_of",
    "required",
]

NAMESPACE: Final = "org.apache.hudi.avro.model"
TEXT: Final = {"type": "string", "avro.java.string": "String"}
TEXTS: Final = {"type": "array", "items": TEXT}
VERSION: Final = {"name": "version", "type": ["int", "null"], "default": 1}


def record_of(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a record inside another record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def file_of(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the record that a file holds."""
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def required(name: str, avro: Any) -> dict[str, Any]:
    """Return a field without a default."""
    return {"name": name, "type": avro}


def optional(name: str, avro: Any) -> dict[str, Any]:
    """Return a field that may be null and is null by default."""
    return {"name": name, "type": ["null", avro], "default": None}


def list_of(name: str, items: Any) -> dict[str, Any]:
    """Return a field that is a list, empty by default."""
    return {"name": name, "type": {"type": "array", "items": items, "default": []}, "default": []}


def map_of(values: Any) -> dict[str, Any]:
    """Return the schema of a map with text keys."""
    return {"type": "map", "values": values, "avro.java.string": "String"}


def array_of(items: Any) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}
