"""Rows that cannot be written are refused before anything is written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, LakeformatError, SchemaMismatchError, Table
from lakeformat.codec import properties
from lakeformat.codec.avro.schema import to_avro
from tests.helpers.refusal import ROWS, SCHEMA, check_message, check_refused, new_table

OPERATIONS = ("upsert", "insert", "bulk_insert", "overwrite", "delete")
WRITES = OPERATIONS[:-1]
#: The rows of upsert are gathered before a file is written; the rows of bulk insert go straight into files.
TWO_WAYS = ("upsert", "bulk_insert")


def with_column(name: str, values: Any, kind: pa.DataType | None = None) -> pa.Table:
    """Return `ROWS` with another column of this name."""
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return ROWS.set_column(ROWS.schema.get_field_index(name), name, column)


def broken_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 2, 3], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfex")])


BAD_KEYS: dict[str, tuple[pa.Table, type[LakeformatError], tuple[str, ...]]] = {
    "missing": (ROWS.drop_columns(["id"]), SchemaMismatchError, ("'id'", "add it")),
    "null": (with_column("id", ["a", None]), InvalidInputError, ("'id' is null at row 1", "give every row a key")),
    "empty": (with_column("id", ["", "b"]), InvalidInputError, ("'id' is empty at row 0", "give every row a key")),
    "struct": (with_column("id", [{"a": 1}] * 2), SchemaMismatchError, ("'id'", "struct", "convert it")),
    "binary": (with_column("id", [b"a", b"b"]), SchemaMismatchError, ("'id'", "binary", "convert it")),
    "double": (with_column("id", [1.0, 2.0]), SchemaMismatchError, ("'id'", "double", "string", "convert it")),
    "not UTF-8": (with_column("id", broken_text()), InvalidInputError, ("'id'", "Invalid UTF8", "correct")),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("case", BAD_KEYS)
def test_unusable_key_values_are_refused(case: str, operation: str, tmp_path: Path) -> None:
    rows, error, parts = BAD_KEYS[case]
    table = new_table(tmp_path)
    with check_refused(table, error, *parts):
        getattr(table, operation)(rows)


def test_missing_column_error_names_the_nearest_column(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for name, wrong in (("id", "idd"), ("p", "pp"), ("ts", "tss"), ("v", "vv")):
        rows = ROWS.rename_columns([wrong if known == name else known for known in ROWS.column_names])
        with check_refused(table, SchemaMismatchError, f"'{name}'", f"'{wrong}' may be meant"):
            table.upsert(rows)


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize(("column", "role"), [("p", "partition"), ("ts", "ordering"), ("id", "record key")])
def test_required_column_is_not_filled_with_null(operation: str, column: str, role: str, tmp_path: Path) -> None:
    new_table(tmp_path)
    table = lakeformat.open(tmp_path / "table", **{"hoodie.write.set.null.for.missing.columns": True})
    with check_refused(table, SchemaMismatchError, f"no {role} column '{column}'", "add it to the rows"):
        getattr(table, operation)(ROWS.drop_columns([column]))


UNTAKEN: dict[str, tuple[pa.DataType, pa.Array]] = {
    "date for a number": (pa.int64(), pa.array([dt.date(2024, 1, 1)] * 2)),
    "boolean for a text": (pa.string(), pa.array([True, False])),
    "binary for a long": (pa.int64(), pa.array([b"a", b"b"])),
    "boolean for an int": (pa.int32(), pa.array([True, False])),
    "date for a timestamp": (pa.timestamp("us", "UTC"), pa.array([dt.date(2024, 1, 1)] * 2)),
    "timestamp without a zone": (pa.timestamp("us", "UTC"), pa.array([0, 1], pa.timestamp("us"))),
    "timestamp with a zone": (pa.timestamp("us"), pa.array([0, 1], pa.timestamp("us", "UTC"))),
    "timestamp for a long": (pa.int64(), pa.array([0, 1], pa.timestamp("us", "UTC"))),
    "another scale": (pa.decimal128(9, 2), pa.array([Decimal("1.000")] * 2)),
    "too wide a decimal": (pa.decimal128(38, 2), pa.array([Decimal("1.000")] * 2, pa.decimal128(38, 3))),
    "a list for a value": (pa.int64(), pa.array([[1], [2]])),
    "a value for a list": (pa.list_(pa.int64()), pa.array([1, 2])),
    "a map for a struct": (
        pa.struct([("a", pa.int64())]),
        pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    ),
    "inside a struct": (pa.struct([("a", pa.int64())]), pa.array([{"a": True}, {"a": False}])),
    "inside a list": (pa.list_(pa.int64()), pa.array([[True], []])),
    "inside a map": (
        pa.map_(pa.string(), pa.int64()),
        pa.array([[("a", True)], []], pa.map_(pa.string(), pa.bool_())),
    ),
}


@pytest.mark.parametrize("operation", TWO_WAYS)
@pytest.mark.parametrize("case", UNTAKEN)
def test_type_change_that_no_write_makes_is_refused(case: str, operation: str, tmp_path: Path) -> None:
    stored, given = UNTAKEN[case]
    empty = ROWS.append_column("c", pa.nulls(2, stored))
    table = new_table(tmp_path, schema=empty.schema, rows=empty)
    with check_refused(table, SchemaMismatchError, "column 'c", "convert it", "alter().retype"):
        getattr(table, operation)(ROWS.append_column("c", given))


SPELLINGS = [
    (pa.int32(), pa.array([1.0, 2.0])),
    (pa.float64(), pa.array([1, 2], pa.int32())),
    (pa.float32(), pa.array([1.5, 2.5], pa.float64())),
    (pa.float64(), pa.array([1.5, 2.5], pa.float32())),
]


@pytest.mark.parametrize(
    "operation", ["upsert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("insert", "delete"))]
)
@pytest.mark.parametrize("role", ["record_key", "partition_by"])
@pytest.mark.parametrize(("stored", "given"), SPELLINGS, ids=lambda value: str(getattr(value, "type", value)))
def test_key_type_with_another_text_form_is_refused(
    stored: pa.DataType, given: pa.Array, role: str, operation: str, tmp_path: Path
) -> None:
    """1 and 1.0 are one number but two texts, so the row of such a key would not be found."""
    rows = ROWS.append_column("k", pa.array([1, 2], stored))
    table = new_table(tmp_path, schema=rows.schema, rows=rows, **{role: "k"})
    with check_refused(table, SchemaMismatchError, "'k'", str(stored), str(given.type), "as text", "convert it"):
        getattr(table, operation)(ROWS.append_column("k", given))


def test_wider_integer_keys_match_the_stored_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, record_key="n", partition_by=(), ordering=None)
    table.upsert(with_column("n", [2, 2**40], pa.int64()))
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 2**40]
    table.delete(pa.table({"n": pa.array([1], pa.int8())}))
    table.delete(pa.table({"n": ["2"]}))
    assert table.to_arrow()["n"].to_pylist() == [2**40]


UNSTORABLE: dict[str, pa.Array] = {
    "time": pa.array([dt.time(1)] * 2),
    "duration": pa.array([dt.timedelta(1)] * 2),
    "nulls in a list": pa.array([[None], []], pa.list_(pa.null())),
    "unsigned": pa.array([1, 2], pa.uint64()),
    "decimal256": pa.array([Decimal(1)] * 2, pa.decimal256(50, 0)),
    "map of ints": pa.array([[(1, 2)], []], pa.map_(pa.int64(), pa.int64())),
    "empty struct": pa.array([{}, {}], pa.struct([])),
    "union": pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])]),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_type_that_hudi_cannot_store_is_refused(case: str, tmp_path: Path) -> None:
    rows = ROWS.append_column("odd", UNSTORABLE[case])
    table = new_table(tmp_path)
    with check_refused(table, SchemaMismatchError, "'odd'", "cannot hold", "cast or drop"):
        table.upsert(rows)
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create(tmp_path / "other", rows.schema, record_key="id")
    check_message(caught, SchemaMismatchError, "'odd'")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["größe", "a b", "1st", "a-b", ""])
def test_column_name_that_avro_refuses_is_refused(name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, SchemaMismatchError, repr(name), "rename the column"):
        table.upsert(ROWS.append_column(name, pa.array([1, 2])))


def test_duplicate_column_names_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for twin in ("v", "V", "id"):
        rows = pa.table([*ROWS.columns, pa.array([1.0, 2.0])], names=[*ROWS.column_names, twin])
        with check_refused(table, SchemaMismatchError, f"{twin!r} have one name", "rename"):
            table.upsert(rows)
    nested = pa.StructArray.from_arrays([pa.array([1, 2])] * 2, names=["x", "x"])
    with check_refused(table, SchemaMismatchError, "'s.x' occurs 2 times", "rename"):
        table.upsert(ROWS.append_column("s", nested))
    keys = pa.table([pa.array(["a"])] * 2, names=["id", "id"])
    with check_refused(table, SchemaMismatchError, "'id' occurs more than once", "rename"):
        table.delete(keys)


def test_column_name_in_another_letter_case_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, SchemaMismatchError, "'V'", "'v' in the table", "rename"):
        table.upsert(ROWS.rename_columns([*ROWS.column_names[:-1], "V"]))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for operation in WRITES:
        with check_refused(table, InvalidInputError, "'p'", "Invalid UTF8", "correct them"):
            getattr(table, operation)(with_column("p", broken_text()))


def test_delete_flag_that_is_not_boolean_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, SchemaMismatchError, "'_hoodie_is_deleted' must be boolean, not string"):
        table.upsert(ROWS.append_column("_hoodie_is_deleted", pa.array(["true", "false"])))


def test_nanoseconds_that_would_be_truncated_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for operation in WRITES:
        with check_refused(table, SchemaMismatchError, "'at'", "would lose data", "convert it"):
            getattr(table, operation)(ROWS.append_column("at", pa.array([1, 1001], pa.timestamp("ns", "UTC"))))


def require_column(table: Table, column: str) -> Table:
    """Return the same table with a column that is never null, as Spark makes such columns."""
    storage = table.context.storage
    data = properties.decode(storage.read(".hoodie/hoodie.properties"), name="hoodie.properties")
    fields = [field.with_nullable(field.name != column) for field in SCHEMA]
    data["hoodie.table.create.schema"] = to_avro(pa.schema(fields), table_name="table")
    storage.replace(".hoodie/hoodie.properties", properties.encode(data, comments=[]))
    return table


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_null_in_a_required_column_is_refused(operation: str, tmp_path: Path) -> None:
    table = require_column(new_table(tmp_path, rows=None), "v")
    table.upsert(ROWS)
    assert not table.snapshot().schema.field("v").nullable
    with check_refused(table, InvalidInputError, "'v' may not be null"):
        getattr(table, operation)(with_column("v", [None, 1.0], pa.float64()))
    filling = lakeformat.open(tmp_path / "table", **{"hoodie.write.set.null.for.missing.columns": True})
    with check_refused(filling, SchemaMismatchError, "no column 'v'", "may not be null", "add it"):
        getattr(filling, operation)(ROWS.drop_columns(["v"]))


@pytest.mark.parametrize("value", [None, lambda rows: pa.nulls(len(rows))], ids=["literal", "function"])
def test_update_of_a_required_column_to_null_is_refused(value: Any, tmp_path: Path) -> None:
    table = require_column(new_table(tmp_path, rows=None), "v")
    table.upsert(ROWS)
    with check_refused(table, InvalidInputError, "'v' may not be null"):
        table.update({"v": value}, where="id = 'a'")
    table.update({"v": 7.5}, where="id = 'a'")
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [1.5, 7.5]


PARTITIONS: dict[str, tuple[str, ...]] = {
    "..": ("'..'", "a segment . or .."),
    "../x": ("'../x'", "a segment . or .."),
    "a/../../x": ("a segment . or ..",),
    "a\\..\\b": ("a segment . or ..",),
    ".": ("a segment . or ..",),
    "/etc": ("'/etc'", "starts or ends with /"),
    "a//b": ("//",),
    "a/": ("starts or ends with /",),
    ".hoodie": ("the table's own folder",),
    ".hoodie/x": ("the table's own folder",),
    "a\0b": ("control characters",),
    "a\nb": ("control characters",),
    "x" * 300: ("over 255 bytes",),
    "é" * 128: ("over 255 bytes",),
}


@pytest.mark.parametrize("operation", TWO_WAYS)
@pytest.mark.parametrize("value", PARTITIONS, ids=lambda value: repr(value[:10]))
def test_partition_value_that_cannot_be_a_folder_name_is_refused(value: str, operation: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, InvalidInputError, "partition path", "change the values", *PARTITIONS[value]):
        getattr(table, operation)(with_column("p", ["x", value]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table"]


def test_url_encoding_allows_most_partition_values(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"url_encode": True, "hive_style": True})
    values = ["../x", "/etc", "a//b", "a\0b", "a\nb", "..", ".hoodie"]
    rows = pa.Table.from_pylist(
        [{"id": f"k{n}", "n": n, "ts": 1, "p": value, "v": 0.0} for n, value in enumerate(values)], SCHEMA
    )
    table.upsert(rows)
    found = {row["id"]: row["p"] for row in table.to_arrow().to_pylist()}
    assert [found[f"k{n}"] for n in range(len(values))] == values
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table"]


def test_value_that_the_timestamp_generator_cannot_read_is_refused(tmp_path: Path) -> None:
    options = {
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        "keygenerator": "TimestampBasedKeyGenerator",
    }
    table = new_table(tmp_path, rows=with_column("p", ["2024-01-02", "2024-02-03"]), **options)
    with check_refused(table, InvalidInputError, "'p'", "someday"):
        table.upsert(with_column("p", ["2024-01-02", "someday"]))


def no_batches() -> Iterator[pa.RecordBatch]:
    yield from ()


NOT_ARROW: list[Callable[[], Any]] = [
    lambda: {"a", "b"},
    lambda: [["a"], ["b"]],
    lambda: None,
    lambda: 5,
    no_batches,
    lambda: pa.array([1]),
    lambda: SCHEMA,
]


@pytest.mark.parametrize("operation", TWO_WAYS)
@pytest.mark.parametrize("case", range(len(NOT_ARROW)))
def test_input_that_is_not_arrow_data_is_refused(case: int, operation: str, tmp_path: Path) -> None:
    table, rows = new_table(tmp_path), NOT_ARROW[case]()
    with check_refused(table, InvalidInputError, f"type {type(rows).__name__}", "give a pyarrow Table"):
        getattr(table, operation)(rows)


@pytest.mark.parametrize("operation", TWO_WAYS)
@pytest.mark.parametrize(("rows", "words"), [([], "an empty list"), ("a,b", "is text, not rows")])
def test_input_without_rows_is_refused(rows: object, words: str, operation: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, InvalidInputError, words):
        getattr(table, operation)(rows)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_batches_with_different_columns_are_refused(operation: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first, other = ROWS.to_batches()[0], ROWS.drop_columns(["v"]).to_batches()[0]
    for batches in ([first, other], iter([first, other]), [first, ROWS]):
        with check_refused(table, SchemaMismatchError, "batch 1", "give all the same"):
            getattr(table, operation)(batches)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_input_that_raises_midway_publishes_nothing(operation: str, tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the caller's own failure")

    table = new_table(tmp_path)
    before = table.history(), table.to_arrow()
    with pytest.raises(RuntimeError, match="the caller's own failure"):
        getattr(table, operation)(batches())
    assert (table.history(), table.to_arrow()) == before
    assert table.snapshot().timeline.pending == ()
