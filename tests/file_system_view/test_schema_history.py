"""Columns by their ids: today's columns in files of an earlier schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakeformat.codec.internal_schema import decode_internal_schema
from lakeformat.file_system_view.schema_history import compare_schemas
from lakeformat.model.internal_schema import InternalSchema

Field = tuple[int, str, Any]


def record(*fields: Field) -> dict[str, Any]:
    written = [{"id": number, "name": name, "optional": True, "type": kind} for number, name, kind in fields]
    return {"type": "record", "fields": written}


def a_list(number: int, of: Any) -> dict[str, Any]:
    return {"type": "array", "element_id": number, "element_optional": True, "element": of}


def schema(version: int, *fields: Field) -> InternalSchema:
    document = {"max_column_id": 99, "version_id": version, **record((0, "_hoodie_commit_time", "string"), *fields)}
    found = decode_internal_schema(json.dumps(document).encode(), name="here")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("then", "now", "stored", "refused"),
    [
        ([(1, "a", "int")], [(1, "a", "int")], {}, set()),
        ([(1, "a", "int"), (2, "b", "int")], [(2, "b", "int"), (1, "a", "int")], {}, set()),
        ([(1, "a", "int")], [(1, "b", "int")], {"b": "a"}, set()),
        ([(1, "a", "int")], [(2, "a", "string")], {"a": None}, set()),
        ([(1, "a", "int")], [(1, "a", "int"), (2, "b", "int")], {}, set()),
        ([(1, "a", "int"), (2, "b", "int")], [(1, "b", "int"), (2, "a", "int")], {"a": "b", "b": "a"}, set()),
        ([(1, "a", "int")], [(1, "a", "long")], {}, set()),
        ([(1, "a", "double")], [(1, "a", "string")], {}, set()),
        ([(1, "a", "long")], [(1, "a", "float")], {}, set()),
        ([(1, "a", "string")], [(1, "a", "double")], {}, {"a"}),
        ([(1, "a", "decimal(10, 2)")], [(1, "a", "decimal(12, 2)")], {}, set()),
        ([(1, "a", "decimal(10, 2)")], [(1, "a", "decimal(12, 3)")], {}, set()),
        ([(1, "a", "decimal(10, 2)")], [(1, "a", "decimal(12, 5)")], {}, {"a"}),
        ([(1, "s", record((2, "x", "int")))], [(1, "t", record((2, "x", "int"), (3, "y", "int")))], {"t": "s"}, set()),
        ([(1, "s", record((2, "x", "int")))], [(1, "s", record((2, "y", "int")))], {}, set()),
        ([(1, "s", record((2, "x", "int")))], [(1, "s", record((3, "x", "string")))], {}, set()),
        ([(1, "s", record((2, "x", "string")))], [(1, "s", record((2, "x", "double")))], {}, {"s"}),
        ([(1, "l", a_list(2, "int"))], [(1, "l", a_list(2, "long"))], {}, set()),
        ([(1, "l", a_list(2, record((3, "x", "int"))))], [(1, "l", a_list(2, record((3, "y", "int"))))], {}, set()),
    ],
)
def test_columns_are_matched_by_id(
    then: list[Field], now: list[Field], stored: dict[str, str | None], refused: set[str]
) -> None:
    found = compare_schemas(schema(1, *then), schema(2, *now))
    assert (dict(found.stored), set(found.refused), found.version) == (stored, refused, 1)


X_IS_Y: dict[str, Any] = {"x": ("y", {})}
IN_LIST = {"element": ("element", X_IS_Y)}
IN_STRUCT = {"t": ("t", X_IS_Y)}


@pytest.mark.parametrize(
    ("then", "now", "nested"),
    [
        (record((2, "x", "int")), record((2, "x", "int"), (3, "y", "int")), {}),
        (record((2, "x", "int"), (3, "y", "int")), record((3, "y", "int"), (2, "x", "int")), {}),
        (record((2, "x", "int")), record((2, "y", "long")), {"c": X_IS_Y}),
        (record((2, "x", "int")), record((3, "x", "string")), {"c": {}}),
        (
            a_list(2, record((3, "x", "int"))),
            a_list(2, record((3, "y", "int"))),
            {"c": {"element": ("element", X_IS_Y)}},
        ),
        (
            record((2, "t", record((3, "x", "int")))),
            record((2, "t", record((3, "y", "int")))),
            {"c": {"t": ("t", X_IS_Y)}},
        ),
    ],
)
def test_inner_fields_are_matched_by_id(then: Any, now: Any, nested: dict[str, Any]) -> None:
    found = compare_schemas(schema(1, (1, "c", then)), schema(2, (1, "c", now)))
    assert (dict(found.nested), dict(found.refused)) == (nested, {})
