"""Deletes marked by a value in one of the user's columns (Hudi: ``DefaultHoodieRecordPayload``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, SchemaMismatchError
from tests.helpers.hudi_rs import assert_same_rows
from tests.helpers.merge_tables import COMMIT, EVENT, contents, in_memory, on_disk, rows_of
from tests.helpers.tables import a_schema

FIELD, MARKER = "hoodie.payload.delete.field", "hoodie.payload.delete.marker"
SCHEMA = a_schema(id="string", ts="int64", op="string")
FLAGGED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


def rows(*listed: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return rows_of(*(dict(zip(schema.names, values, strict=True)) for values in listed), schema=schema)


@pytest.mark.parametrize(("mode", "left"), [(COMMIT, {"d"}), (EVENT, {"c", "d"})])
def test_a_row_with_the_marker_is_a_delete_under_the_tables_rule(mode: str, left: set[str], tmp_path: Path) -> None:
    on_disk(tmp_path, SCHEMA, ordering="ts", merge_mode=mode)
    table = lakeformat.open(tmp_path / "t", **{FIELD: "op", MARKER: "D"})
    table.upsert(rows(("a", 5, "I"), ("b", 5, "I"), ("c", 5, "I"), ("d", 5, None), ("x", 5, "D")))
    assert set(contents(table)) == {"a", "b", "c", "d"}
    result = table.upsert(rows(("a", 6, "D"), ("b", 5, "D"), ("c", 4, "D"), ("d", 6, "d"), ("nobody", 1, "D")))
    assert set(contents(table)) == left
    assert result.report["rows"]["deleted"] == 4 - len(left)
    assert table.schema.names == SCHEMA.names
    assert_same_rows(table)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "overwrite"])
def test_marked_rows_are_not_inserted(operation: str) -> None:
    table = in_memory(SCHEMA, **{FIELD: "op", MARKER: "D"})
    getattr(table, operation)(rows(("a", 1, "I"), ("b", 1, "D"), ("c", 1, None)))
    assert set(contents(table)) == {"a", "c"}


def test_delete_flag_works_beside_the_marker_and_is_stored_unchanged() -> None:
    table = in_memory(FLAGGED, **{FIELD: "op", MARKER: "D"})
    table.upsert(rows(*((key, 1, "I", None) for key in "abcd"), schema=FLAGGED))
    changes = rows(("a", 2, "D", False), ("b", 2, "U", True), ("c", 2, "U", None), ("d", 2, "U", False), schema=FLAGGED)
    table.upsert(changes)
    assert contents(table) == {"c": {"ts": 2, "op": "U"}, "d": {"ts": 2, "op": "U", "_hoodie_is_deleted": False}}
    table.upsert(rows(("c", 3, "U")))
    assert contents(table)["c"] == {"ts": 3, "op": "U"}
    table.upsert(rows(("d", 3, "D")))
    assert set(contents(table)) == {"c"}


@pytest.mark.parametrize(
    ("kind", "marked", "other", "marker"),
    [
        (pa.bool_(), True, False, "true"),
        (pa.int32(), 1, 0, "1"),
        (pa.int64(), -1, 1, "-1"),
        (pa.string(), "D", "D ", "D"),
        (pa.float64(), 0.5, -0.5, "0.5"),
        (pa.dictionary(pa.int32(), pa.string()), "D", "d", "D"),
    ],
)
def test_marker_of_every_type_is_compared_as_javas_text(
    kind: pa.DataType, marked: Any, other: Any, marker: str
) -> None:
    schema = pa.schema({"id": pa.string(), "op": kind})
    table = in_memory(pa.schema({"id": pa.string(), "op": pa.string() if pa.types.is_dictionary(kind) else kind}))
    table.options = table.options.with_values(**{FIELD: "op", MARKER: marker})
    table.upsert(pa.table({"id": ["a", "b", "c"], "op": pa.array([marked, other, None]).cast(kind)}, schema=schema))
    assert set(contents(table)) == {"b", "c"}


def test_input_without_the_marker_column_deletes_nothing() -> None:
    table = in_memory(SCHEMA, ordering="ts", **{FIELD: "op", MARKER: "D"})
    table.upsert(rows(("a", 1, "I")))
    table.upsert(pa.table({"id": ["a"], "ts": [2]}), partial_update=True)
    table.delete(pa.table({"id": ["b"]}))
    assert contents(table) == {"a": {"ts": 2, "op": "I"}}


def test_duplicates_are_combined_before_the_marker_is_applied() -> None:
    table = in_memory(SCHEMA, ordering="ts", **{FIELD: "op", MARKER: "D"})
    table.upsert(rows(("a", 2, "D"), ("a", 1, "I"), ("b", 1, "D"), ("b", 2, "I")))
    assert set(contents(table)) == {"b"}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({FIELD: "op"}, InvalidOptionError, f"option {FIELD} is given without {MARKER}; give both or neither"),
        ({MARKER: "D"}, InvalidOptionError, f"option {MARKER} is given without {FIELD}; give both or neither"),
        ({FIELD: "opp", MARKER: "D"}, SchemaMismatchError, "'opp' of option hoodie.payload.delete.field is in neither"),
        ({FIELD: "tags", MARKER: "D"}, SchemaMismatchError, "'tags' of option hoodie.payload.delete.field is list"),
        (
            {FIELD: "day", MARKER: "D"},
            SchemaMismatchError,
            "is date32[day]; name a column of text, numbers or booleans",
        ),
    ],
)
def test_bad_marker_settings_are_refused(options: dict[str, str], error: type[Exception], words: str) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string()))).append(pa.field("day", pa.date32()))
    table = in_memory(schema)
    table.options = table.options.with_values(**options)
    with pytest.raises(error) as caught:
        table.upsert(pa.Table.from_pylist([{"id": "a", "ts": 1, "op": "I", "tags": []}], schema))
    assert words in str(caught.value)
    assert table.history() == []
