"""Tables with the payload classes of AWS DMS and Debezium, and tables with several ordering columns.

`tests/interop/test_cdc_payloads.py` compares them with Apache Hudi; here their rules are written out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, SchemaMismatchError, Table, UnsupportedTableError
from lakeformat.files.log_reader import read_parts
from tests.helpers.tables import a_schema

UNAVAILABLE: Final = "__debezium_unavailable_value"
MODEL: Final = "org.apache.hudi.common.model."
POSTGRES: Final = MODEL + "debezium.PostgresDebeziumAvroPayload"
MYSQL: Final = MODEL + "debezium.MySqlDebeziumAvroPayload"
DMS: Final = MODEL + "AWSDmsAvroPayload"
PROPERTY: Final = "hoodie.record.merge.property."
MARKER: Final = {
    PROPERTY + "hoodie.payload.delete.field": "_change_operation_type",
    PROPERTY + "hoodie.payload.delete.marker": "d",
}
ROWS: Final = a_schema(id="string", _event_lsn="int64", _change_operation_type="string", text="string", data="binary")
BINLOG: Final = a_schema(
    id="string", _event_seq="string", _event_bin_file="string", _event_pos="int64", _change_operation_type="string"
)
LOADED: Final = a_schema(id="string", ts="int64", Op="string")

VERSIONS: Final = pytest.mark.parametrize("version", [6, 8, 9])
TYPES: Final = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def a_table(path: Path, schema: pa.Schema, payload: str, version: int, table_type: str, **more: Any) -> Table:
    options = {"hoodie.datasource.write.payload.class": payload, "hoodie.write.table.version": version, **more}
    return lakeformat.create(path, schema, record_key="id", table_type=table_type, **options)


def upsert(table: Table, schema: pa.Schema, *rows: tuple[Any, ...]) -> None:
    table.upsert(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))


def contents(table: Table, *columns: str) -> dict[str, Any]:
    rows = table.to_arrow(["id", *columns]).to_pylist()
    found = {row["id"]: tuple(row[name] for name in columns) for row in rows}
    assert len(found) == len(rows)
    return found


def event(key: str, file: int, position: int, operation: str = "u") -> tuple[Any, ...]:
    """Return a row of `BINLOG`."""
    return key, f"{file:06d}.{position}", f"mysql-bin.{file:06d}", position, operation


# --- what a table stores -------------------------------------------------------------------------------------

#: Payload class and version -> the properties of a table that Hudi 1.2.0 has created.
STORED: Final = {
    (POSTGRES, 9): {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
        "hoodie.table.ordering.fields": "_event_lsn",
        "hoodie.table.legacy.payload.class": POSTGRES,
        PROPERTY + "hoodie.write.partial.update.unavailable.value": UNAVAILABLE,
        **MARKER,
    },
    (MYSQL, 9): {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.ordering.fields": "_event_bin_file,_event_pos",
        "hoodie.table.legacy.payload.class": MYSQL,
        **MARKER,
    },
    (DMS, 9): {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.legacy.payload.class": DMS,
        PROPERTY + "hoodie.payload.delete.field": "Op",
        PROPERTY + "hoodie.payload.delete.marker": "D",
    },
    **{
        (payload, 8): {
            "hoodie.record.merge.mode": "CUSTOM",
            "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
            "hoodie.compaction.payload.class": payload,
            **({"hoodie.table.ordering.fields": field} if field else {}),
        }
        for payload, field in ((POSTGRES, "_event_lsn"), (MYSQL, "_event_seq"), (DMS, ""))
    },
    **{
        (payload, 6): {
            "hoodie.compaction.payload.class": payload,
            **({"hoodie.table.precombine.field": field} if field else {}),
        }
        for payload, field in ((POSTGRES, "_event_lsn"), (MYSQL, "_event_seq"), (DMS, ""))
    },
}
SCHEMAS: Final = {POSTGRES: ROWS, MYSQL: BINLOG, DMS: LOADED}


@pytest.mark.parametrize(("payload", "version"), STORED)
@pytest.mark.parametrize("is_short", [True, False])
def test_new_table_stores_what_hudi_stores(payload: str, version: int, is_short: bool, tmp_path: Path) -> None:
    name = payload.rpartition(".")[2] if is_short else payload
    table = a_table(tmp_path / "t", SCHEMAS[payload], name, version, "MERGE_ON_READ")
    words = ("merge", "payload", "ordering", "precombine", "partial")
    stored = {key: value for key, value in table.config.values.items() if any(word in key for word in words)}
    assert stored == STORED[payload, version]
    assert lakeformat.open(tmp_path / "t", **{"hoodie.compaction.payload.class": name}).count() == 0


@pytest.mark.parametrize("payload", SCHEMAS)
@pytest.mark.parametrize(("version", "to"), [(6, 9), (9, 6), (8, 9), (9, 8)])
def test_table_keeps_its_rules_in_another_version(payload: str, version: int, to: int, tmp_path: Path) -> None:
    """Hudi: ``EightToNineUpgradeHandler``."""
    table = a_table(tmp_path / "t", SCHEMAS[payload], payload, version, "MERGE_ON_READ")
    (table.upgrade if to == 9 else table.downgrade)(to)
    stored = STORED[payload, to]
    if to == 8 and "hoodie.table.ordering.fields" in stored:  # Hudi keeps the older key in a table that it downgrades.
        fields = stored["hoodie.table.ordering.fields"]
        stored = {**stored, "hoodie.table.precombine.field": fields}
        del stored["hoodie.table.ordering.fields"]
    found = lakeformat.open(tmp_path / "t").config.values
    assert {key: found.get(key) for key in stored} == stored
    assert not ({*STORED[payload, version]} - {*stored}) & {*found}


@pytest.mark.parametrize(("version", "to"), [(8, 9), (9, 8), (9, 6)])
def test_late_delete_in_a_log_file_still_loses_in_another_version(version: int, to: int, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", BINLOG, MYSQL, version, "MERGE_ON_READ")
    upsert(table, BINLOG, event("late", 9, 10, "r"), event("older", 9, 10, "r"), event("gone", 9, 10, "r"))
    upsert(table, BINLOG, event("late", 9, 9, "d"), event("older", 9, 9), event("gone", 9, 11, "d"))
    before = contents(table, "_event_pos", "_change_operation_type")
    assert before == {"late": (10, "r"), "older": (10, "r")}
    (table.upgrade if to == 9 else table.downgrade)(to)
    table = lakeformat.open(tmp_path / "t")
    assert contents(table, "_event_pos", "_change_operation_type") == before
    upsert(table, BINLOG, event("late", 9, 9), event("older", 9, 11))
    assert contents(table, "_event_pos") == {"late": (10,), "older": (11,)}


def test_version_that_orders_by_a_missing_column_is_refused(tmp_path: Path) -> None:
    schema = BINLOG.remove(BINLOG.get_field_index("_event_pos"))
    table = a_table(tmp_path / "t", schema, MYSQL, 6, "COPY_ON_WRITE")
    table.upsert(pa.Table.from_pylist([{"id": "a", "_event_seq": "1.2"}], schema))
    with pytest.raises(UnsupportedTableError, match="no column '_event_pos', by which its payload class"):
        table.upgrade(9)
    assert lakeformat.open(tmp_path / "t").config.version == 6


# --- Postgres ------------------------------------------------------------------------------------------------


@VERSIONS
@TYPES
def test_postgres_orders_by_its_log_and_keeps_unavailable_values(version: int, table_type: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", ROWS, "PostgresDebeziumAvroPayload", version, table_type)
    keys = ("newer", "tie", "older", "gone", "late", "toast", "twice", "between", "delete_first")
    upsert(table, ROWS, *((key, 5, "r", "old", b"old") for key in keys), ("unset", 5, "r", UNAVAILABLE, b"old"))
    lost = UNAVAILABLE.encode()
    upsert(
        table,
        ROWS,
        ("newer", 6, "u", "new", b"new"),
        ("tie", 5, "u", "new", b"new"),
        ("older", 4, "u", "new", b"new"),
        ("gone", 6, "d", "new", b"new"),
        ("late", 4, "d", "new", b"new"),
        ("nobody", 6, "d", "new", b"new"),
        ("toast", 6, "u", UNAVAILABLE, lost),
        ("twice", 7, "u", UNAVAILABLE, b"7"),
        ("twice", 6, "u", "six", lost),
        ("between", 6, "u", "six", b"6"),
        ("between", 8, "u", UNAVAILABLE, b"8"),
        ("between", 7, "u", "seven", b"7"),
        ("delete_first", 6, "d", "six", b"6"),
        ("delete_first", 7, "u", UNAVAILABLE, b"7"),
        ("unset", 4, "u", "late", b"late"),
    )
    wanted = {
        "newer": (6, "new", b"new"),
        "tie": (5, "new", b"new"),
        "older": (5, "old", b"old"),
        "late": (5, "old", b"old"),
        "toast": (6, "old", b"old"),
        "twice": (7, "six", b"7"),
        "between": (8, "six", b"8"),
        "delete_first": (7, "old", b"7"),
        "unset": (5, "late", b"old"),
    }
    assert contents(table, "_event_lsn", "text", "data") == wanted
    upsert(table, ROWS, ("gone", 3, "c", "back", b"back"), ("newer", 7, "u", UNAVAILABLE, b"7"))
    wanted |= {"gone": (3, "back", b"back"), "newer": (7, "new", b"7")}
    assert contents(table, "_event_lsn", "text", "data") == wanted
    if table_type == "MERGE_ON_READ":
        table.compact()
        assert contents(table, "_event_lsn", "text", "data") == wanted


@VERSIONS
def test_late_row_that_fills_nothing_leaves_the_row_and_its_commit(version: int, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", ROWS, POSTGRES, version, "COPY_ON_WRITE")
    upsert(table, ROWS, ("a", 5, "r", "old", b"old"))
    before = table.to_arrow(["_hoodie_commit_time"], meta_columns=True)
    upsert(table, ROWS, ("a", 4, "u", "new", b"new"), ("a", 3, "d", "new", b"new"))
    assert table.to_arrow(["_hoodie_commit_time"], meta_columns=True) == before


def test_columns_to_update_contradict_unavailable_values(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", ROWS, POSTGRES, 9, "COPY_ON_WRITE")
    with pytest.raises(InvalidOptionError, match="keeps some stored values instead; leave the option out"):
        table.upsert(ROWS.empty_table(), partial_update=["text"])


# --- MySQL ---------------------------------------------------------------------------------------------------


@VERSIONS
@TYPES
def test_mysql_orders_by_file_and_position_as_numbers(version: int, table_type: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", BINLOG, "MySqlDebeziumAvroPayload", version, table_type)
    keys = ("position", "file", "older", "older_file", "tie", "gone", "late", "twice")
    upsert(table, BINLOG, *(event(key, 9, 9, "r") for key in keys), event("brief", 9, 9), event("brief", 9, 10, "d"))
    upsert(
        table,
        BINLOG,
        event("position", 9, 10),
        event("file", 10, 1),
        event("older", 9, 8),
        event("older_file", 8, 100),
        event("tie", 9, 9),
        event("gone", 9, 10, "d"),
        event("late", 9, 8, "d"),
        event("twice", 9, 100),
        event("twice", 9, 99, "d"),
    )
    wanted = {
        "position": (10, "u"),
        "file": (1, "u"),
        "older": (9, "r"),
        "older_file": (9, "r"),
        "tie": (9, "u"),
        "late": (9, "r"),
        "twice": (100, "u"),
    }
    assert contents(table, "_event_pos", "_change_operation_type") == wanted
    upsert(table, BINLOG, event("gone", 9, 1, "c"))
    if table_type == "MERGE_ON_READ":
        table.compact()
    assert contents(table, "_event_pos", "_change_operation_type") == wanted | {"gone": (1, "c")}


def test_surplus_rows_of_a_key_are_older_by_file_and_position(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", BINLOG, MYSQL, 6, "COPY_ON_WRITE")
    for position in (9, 10, 8):
        table.insert(pa.Table.from_pylist([dict(zip(BINLOG.names, event("a", 9, position), strict=True))], BINLOG))
    table.dedupe()
    assert contents(table, "_event_pos") == {"a": (10,)}


@TYPES
def test_sequence_that_is_no_file_and_position_is_refused(table_type: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", BINLOG, MYSQL, 6, table_type)
    upsert(table, BINLOG, event("a", 9, 9))
    for text in ("mysql-bin.9", "9", "x.1", "99999999999999999999.1"):
        with pytest.raises(InvalidInputError, match=f"'{text}' is not the text FILE.POSITION"):
            upsert(table, BINLOG, ("a", text, "", 1, "u"), ("b", text, "", 1, "u"))
    assert contents(table, "_event_pos") == {"a": (9,)}


# --- AWS DMS -------------------------------------------------------------------------------------------------


@VERSIONS
@TYPES
def test_dms_takes_the_last_row_and_deletes_by_its_operation(version: int, table_type: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", LOADED, "AWSDmsAvroPayload", version, table_type, ordering="ts")
    upsert(table, LOADED, *((key, 5, None) for key in ("older", "gone", "late", "lower")), ("brief", 5, "D"))
    upsert(table, LOADED, ("older", 4, "U"), ("gone", 6, "D"), ("late", 4, "D"), ("nobody", 4, "D"), ("lower", 6, "d"))
    wanted = {"older": (4, "U")} | ({"lower": (6, "d")} if version == 9 else {})
    assert contents(table, "ts", "Op") == wanted
    upsert(table, LOADED, ("gone", 1, "I"), ("twice", 9, "I"), ("twice", 8, "U"))
    # Rows of one batch are ordered by the column before version 9, and by their arrival from it on.
    wanted |= {"gone": (1, "I"), "twice": (8, "U") if version == 9 else (9, "I")}
    assert contents(table, "ts", "Op") == wanted


@VERSIONS
def test_full_load_without_the_operation_column_is_written(version: int, tmp_path: Path) -> None:
    schema = LOADED.remove(2)
    table = a_table(tmp_path / "t", schema, DMS, version, "COPY_ON_WRITE")
    upsert(table, schema, ("a", 1))
    upsert(table, LOADED, ("a", 2, "D"), ("b", 2, "I"))
    assert contents(table, "ts") == {"b": (2,)}


# --- missing columns, contradictions -------------------------------------------------------------------------


@pytest.mark.parametrize(("payload", "version", "column"), [
    (POSTGRES, 6, "_event_lsn"),
    (POSTGRES, 9, "_event_lsn"),
    (MYSQL, 8, "_event_seq"),
    (MYSQL, 9, "_event_bin_file"),
    (MYSQL, 9, "_event_pos"),
])  # fmt: skip
def test_missing_ordering_column_is_refused(payload: str, version: int, column: str, tmp_path: Path) -> None:
    schema = SCHEMAS[payload]
    less = schema.remove(schema.get_field_index(column))
    with pytest.raises(SchemaMismatchError, match=f"ordering column '{column}' is not among the columns"):
        a_table(tmp_path / "t", less, payload, version, "COPY_ON_WRITE")
    assert not (tmp_path / "t").exists()
    table = a_table(tmp_path / "t", schema, payload, version, "COPY_ON_WRITE")
    with pytest.raises(SchemaMismatchError, match=f"no (ordering )?column '{column}'"):
        table.upsert(pa.Table.from_pylist([{"id": "a"}], less))
    assert table.count() == 0


def test_another_payload_class_than_the_table_s_is_refused(tmp_path: Path) -> None:
    a_table(tmp_path / "t", ROWS, POSTGRES, 9, "COPY_ON_WRITE")
    with pytest.raises(InvalidOptionError, match="contradicts 'PostgresDebeziumAvroPayload'"):
        lakeformat.open(tmp_path / "t", **{"hoodie.datasource.write.payload.class": "DefaultHoodieRecordPayload"})


# --- several ordering columns --------------------------------------------------------------------------------

SEVERAL: Final = a_schema(id="string", a="string", b="int64", v="int64", _hoodie_is_deleted="bool")


@TYPES
def test_first_ordering_column_that_differs_decides(table_type: str, tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": 9, "table_type": table_type}
    table = lakeformat.create(tmp_path / "t", SEVERAL, record_key="id", ordering=["a", "b"], **options)
    assert table.config.ordering_fields == ("a", "b")
    keys = ("first", "second", "older", "older_first", "tie", "gone", "late", "late_first", "null", "twice")
    upsert(table, SEVERAL, *((key, "m", 5, 1, False) for key in keys))
    upsert(
        table,
        SEVERAL,
        ("first", "n", 1, 2, False),
        ("second", "m", 6, 2, False),
        ("older", "m", 4, 2, False),
        ("older_first", "l", 9, 2, False),
        ("tie", "m", 5, 2, False),
        ("gone", "m", 6, 2, True),
        ("late", "m", 4, 2, True),
        ("late_first", "l", 9, 2, True),
        ("null", None, None, 2, True),
        ("twice", "n", 1, 3, False),
        ("twice", "m", 9, 2, False),
    )
    won = {"first": (2,), "second": (2,), "tie": (2,), "twice": (3,)}
    wanted = {key: won.get(key, (1,)) for key in keys if key != "gone"}
    assert contents(table, "v") == wanted
    upsert(table, SEVERAL, ("gone", "a", 1, 4, False), ("second", "m", 5, 4, False), ("first", "n", 2, 4, True))
    wanted = {key: value for key, value in wanted.items() if key != "first"} | {"gone": (4,)}
    assert contents(table, "v") == wanted
    if table_type == "MERGE_ON_READ":
        table.compact()
        assert contents(table, "v") == wanted


def test_delete_with_a_null_among_its_ordering_values_is_written_without_values(tmp_path: Path) -> None:
    """Hudi 1.2.0 cannot read a delete block with a null among several values."""
    options = {"hoodie.write.table.version": 9, "table_type": "MERGE_ON_READ"}
    table = lakeformat.create(tmp_path / "t", SEVERAL, record_key="id", ordering=["a", "b"], **options)
    upsert(table, SEVERAL, *((key, "m", 5, 1, False) for key in ("newer", "first", "second", "kept")))
    deletes = (("newer", "n", None, 2, True), ("first", None, 6, 2, True), ("second", "m", None, 2, True))
    upsert(table, SEVERAL, *deletes)
    assert contents(table, "v") == {"first": (1,), "second": (1,), "kept": (1,)}
    logs = [log for piece in table.snapshot().each_slice() for log in piece.logs]
    parts = [*read_parts(table.context.storage, logs, is_committed=lambda time: True, columns=["id"])]
    assert [(part.keys.to_pylist(), part.ordering) for part in parts] == [(["newer"], ())]


def test_rows_move_between_partitions_by_several_ordering_columns(tmp_path: Path) -> None:
    schema = a_schema(id="string", p="string", a="int64", b="int64")
    options = {"hoodie.write.table.version": 9, "hoodie.index.type": "GLOBAL_SIMPLE"}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", ordering="a, b", **options)
    upsert(table, schema, ("x", "one", 1, 5), ("y", "one", 1, 5))
    upsert(table, schema, ("x", "two", 1, 6), ("y", "two", 1, 4))
    assert contents(table, "p", "b") == {"x": ("two", 6), "y": ("one", 5)}


def test_other_ordering_columns_than_the_table_s_are_refused(tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": 9, "record_key": "id"}
    lakeformat.create(tmp_path / "t", SEVERAL, ordering=["a", "b"], **options)
    assert lakeformat.open(tmp_path / "t", precombine="a, b").count() == 0
    for other in ("a", "b,a"):
        with pytest.raises(InvalidOptionError, match="contradicts 'a,b'"):
            lakeformat.open(tmp_path / "t", precombine=other)


def test_several_ordering_columns_before_version_9_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="not supported before table version 9; name one, or set"):
        lakeformat.create(tmp_path / "t", SEVERAL, record_key="id", ordering=["a", "b"])
    table = lakeformat.create(tmp_path / "t", SEVERAL, record_key="id", ordering="a")
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text(file.read_text().replace("precombine.field=a", "precombine.field=a,b"))
    with pytest.raises(UnsupportedTableError, match="not supported before version 9"):
        table.upsert(SEVERAL.empty_table())


def test_payload_class_of_the_options_holds_where_the_table_stores_none(tmp_path: Path) -> None:
    """Copy-on-write tables of Hudi 0.x are such: their jobs name the class in each write."""
    schema = a_schema(id="string", ts="int64", Op="string")
    payload = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"}
    lakeformat.create(tmp_path / "t", schema, record_key="id", ordering="ts", **payload)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    kept = [
        line
        for line in properties.read_text(encoding="utf-8").splitlines()
        if "payload.class" not in line and "checksum" not in line
    ]
    properties.write_text("\n".join(kept), encoding="utf-8")
    table = lakeformat.open(tmp_path / "t", **payload)
    upsert(table, schema, ("a", 1, "I"), ("b", 1, "I"))
    upsert(table, schema, ("a", 2, "D"))
    assert table.to_arrow(["id"]).to_pylist() == [{"id": "b"}]
