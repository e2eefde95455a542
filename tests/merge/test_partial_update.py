"""Partial updates: a missing column keeps the stored value, a null in the input is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, SchemaMismatchError, Table
from lakeformat.codec import properties
from lakeformat.codec.avro.schema import to_avro
from lakeformat.errors import LakeformatError
from tests.helpers.hudi_rs import assert_same_rows
from tests.helpers.merge_tables import EVENT, SCHEMA, contents, in_memory, on_disk, rows_of

STORED = {"ts": 5, "n": 1, "text": "old", "st": {"x": 1, "y": "y"}}


def filled_table(table: Table) -> Table:
    table.upsert(rows_of({"id": "a", **STORED}, {"id": "b", **STORED}, schema=SCHEMA), partial_update=True)
    return table


def test_new_keys_have_null_in_missing_columns(tmp_path: Path) -> None:
    table = filled_table(on_disk(tmp_path, ordering="ts"))
    table.upsert(rows_of({"id": "a", "ts": 6, "text": None}, {"id": "c", "ts": 1, "text": "c"}), partial_update=True)
    assert contents(table) == {
        "a": {"ts": 6, "n": 1, "st": STORED["st"]},
        "b": STORED,
        "c": {"ts": 1, "text": "c"},
    }
    assert_same_rows(table)


@pytest.mark.parametrize("columns", ["text", "text, n", ["text"], ("n", "text")])
def test_only_named_columns_are_written_into_stored_rows(columns: Any) -> None:
    table = filled_table(in_memory(ordering="ts"))
    row = {"ts": 6, "n": 9, "text": "new", "st": None}
    table.upsert(rows_of({"id": "a", **row}, {"id": "c", **row}), partial_update=columns)
    assert contents(table) == {
        "a": {**STORED, "ts": 6, "text": "new", **({"n": 9} if "n" in "".join(columns) else {})},
        "b": STORED,
        "c": {"ts": 6, "n": 9, "text": "new"},
    }


def test_partial_update_writes_the_ordering_value_so_that_older_rows_lose() -> None:
    table = filled_table(in_memory(ordering="ts", merge_mode=EVENT))
    table.upsert(rows_of({"id": "a", "ts": 9, "n": 9}), partial_update="n")
    table.upsert(rows_of({"id": "a", "ts": 8, "n": 8}), partial_update="n")
    assert contents(table)["a"] == {**STORED, "ts": 9, "n": 9}


def test_an_ordering_value_within_a_struct_is_written_with_its_struct() -> None:
    schema = pa.schema({"id": pa.string(), "at": pa.struct({"ts": pa.int64(), "zone": pa.string()}), "n": pa.int64()})
    table = in_memory(schema, ordering="at.ts")
    for ts, n in ((5, 1), (9, 9), (8, 8)):
        row = {"id": "a", "at": {"ts": ts, "zone": str(ts)}, "n": n}
        table.upsert(pa.Table.from_pylist([row], schema), partial_update="n")
    assert contents(table)["a"] == {"at": {"ts": 9, "zone": "9"}, "n": 9}


def test_duplicates_are_combined_before_they_meet_the_stored_row() -> None:
    table = filled_table(in_memory(ordering="ts"))
    batch = rows_of({"id": "a", "ts": 7, "n": None}, {"id": "a", "ts": 6, "n": 6}, {"id": "a", "ts": 7, "n": 7})
    table.upsert(batch, partial_update=True)
    assert contents(table)["a"] == {**STORED, "ts": 7, "n": 7}


def test_partial_update_option_of_a_table_can_be_overridden_by_a_call(tmp_path: Path) -> None:
    filled_table(on_disk(tmp_path, ordering="ts"))
    table = lakeformat.open(tmp_path / "t", partial_update="true")
    table.upsert(rows_of({"id": "a", "ts": 6, "n": None}))
    assert contents(table)["a"] == {"ts": 6, "text": "old", "st": STORED["st"]}
    with pytest.raises(SchemaMismatchError, match="no column 'n'"):
        table.upsert(rows_of({"id": "a", "ts": 7, "text": "x"}), partial_update=False)
    with pytest.raises(SchemaMismatchError, match="no column 'n'"):
        table.insert(rows_of({"id": "d", "ts": 7, "text": "x"}))
    table.delete(pa.table({"id": ["a"]}))
    assert contents(table) == {"b": STORED}


def test_partial_update_without_columns_is_refused() -> None:
    table = filled_table(in_memory(ordering="ts"))
    with pytest.raises(InvalidOptionError, match="names of columns"):
        table.upsert(rows_of({"id": "a", **STORED}), partial_update=[])


def test_a_new_column_is_null_in_rows_that_were_not_touched(tmp_path: Path) -> None:
    table = filled_table(on_disk(tmp_path, ordering="ts"))
    table.upsert(pa.table({"id": ["a"], "ts": [6], "extra": [1.5]}), partial_update=True)
    assert contents(table) == {"a": {**STORED, "ts": 6, "extra": 1.5}, "b": STORED}
    table.upsert(pa.table({"id": ["b"], "ts": [6], "more": ["m"], "n": [9]}), partial_update=["more"])
    assert contents(table)["b"] == {**STORED, "ts": 6, "more": "m"}
    assert_same_rows(table)


def test_a_widened_column_is_widened_in_untouched_rows_too() -> None:
    table = in_memory(pa.schema({"id": pa.string(), "i": pa.int32(), "j": pa.int32()}))
    table.upsert(pa.table({"id": ["a", "b"], "i": pa.array([1, 2], pa.int32()), "j": pa.array([1, 2], pa.int32())}))
    table.upsert(pa.table({"id": ["a"], "i": [2**40]}), partial_update=True)
    assert contents(table) == {"a": {"i": 2**40, "j": 1}, "b": {"i": 2, "j": 2}}
    assert table.schema.field("i").type == pa.int64()


def test_every_copy_of_a_key_keeps_its_own_values() -> None:
    table = in_memory(ordering="ts", **{"hoodie.parquet.small.file.limit": 0})
    whole = rows_of(*({"id": "a", **STORED, "n": n, "_hoodie_is_deleted": False} for n in (1, 2)))
    table.insert(whole)
    table.upsert(rows_of({"id": "a", "ts": 6, "text": "new"}), partial_update=True)
    rows = table.to_arrow(meta_columns=True).to_pylist()
    assert [(row["n"], row["text"]) for row in rows] == [(1, "new"), (2, "new")]
    assert len({row["_hoodie_commit_seqno"] for row in rows}) == 2


def test_deletes_of_a_partial_batch_delete() -> None:
    table = filled_table(in_memory(ordering="ts"))
    batch = rows_of({"id": "a", "ts": 6, "_hoodie_is_deleted": True}, {"id": "b", "ts": 6, "_hoodie_is_deleted": False})
    table.upsert(batch, partial_update=True)
    assert contents(table) == {"b": {**STORED, "ts": 6, "_hoodie_is_deleted": False}}


# --- refusals ---------------------------------------------------------------------------------------------


def require_column(table: Table, column: str) -> Table:
    """Return the same empty table with a column that is never null."""
    storage = table.context.storage
    data = dict(table.config.values)
    fields = [field.with_nullable(field.name != column) for field in SCHEMA]
    data["hoodie.table.create.schema"] = to_avro(pa.schema(fields), table_name="t")
    storage.replace(".hoodie/hoodie.properties", properties.encode(data, comments=[]))
    return table


@pytest.mark.parametrize("small_file_limit", [0, 1 << 20])
def test_required_column_can_be_missing_for_stored_keys_only(small_file_limit: int) -> None:
    options = {"ordering": "ts", "hoodie.parquet.small.file.limit": small_file_limit}
    table = filled_table(require_column(in_memory(**options), "n"))
    assert not table.snapshot().schema.field("n").nullable
    table.upsert(rows_of({"id": "a", "ts": 6, "text": "new"}), partial_update=True)
    wanted = {"a": {**STORED, "ts": 6, "text": "new"}, "b": STORED}
    for batch in (
        rows_of({"id": "a", "ts": 7, "text": "x"}, {"id": "c", "ts": 7, "text": "x"}),
        rows_of({"id": "c", "ts": 7, "text": "x"}),
    ):
        with pytest.raises(SchemaMismatchError, match=r"no column 'n', which may not be null.* 1 of its rows have new"):
            table.upsert(batch, partial_update=True)
        assert contents(table) == wanted
    gone = rows_of({"id": "c", "ts": 7, "_hoodie_is_deleted": True})
    table.upsert(gone, partial_update=True)
    assert contents(table) == wanted
    assert not table.snapshot().schema.field("n").nullable


@pytest.mark.parametrize(
    ("rows", "partial", "options", "error", "words"),
    [
        ({"ts": 6, "n": 1}, True, {}, SchemaMismatchError, "no record key column 'id'"),
        ({"id": "a", "n": 1}, True, {}, SchemaMismatchError, "no ordering column 'ts'"),
        ({"id": "a", "ts": 6, "n": 1}, True, {"partitionpath": "text"}, SchemaMismatchError, "partition column 'text'"),
        ({"id": "a", "ts": 6, "n": 1}, "nn", {}, SchemaMismatchError, "no column 'nn'; 'n' may be meant"),
        ({"id": "a", "ts": 6, "n": 1}, "text", {}, SchemaMismatchError, "no column 'text'"),
        ({"id": "a", "ts": 6, "N": 1}, True, {}, SchemaMismatchError, "is 'n' in the table; rename it"),
        ({"id": "a", "ts": 6, "n": True}, True, {}, SchemaMismatchError, "column 'n' is bool in the input"),
        ({"id": "a", "ts": 6, "n": 1}, True, {"hoodie.datasource.write.payload.class": "PartialUpdateAvroPayload"},
         InvalidOptionError, "leave the option out"),
    ],
)  # fmt: skip
def test_bad_partial_update_is_refused(
    rows: dict[str, Any], partial: Any, options: dict[str, str], error: type[LakeformatError], words: str
) -> None:
    table = in_memory(ordering="ts", **options)
    whole = {"id": "a", **STORED, "_hoodie_is_deleted": False}
    table.upsert(rows_of(whole))
    before = table.to_arrow(meta_columns=True)
    with pytest.raises(LakeformatError) as caught:
        table.upsert(pa.Table.from_pylist([rows]), partial_update=partial)
    assert type(caught.value) is error
    assert words in str(caught.value)
    assert table.to_arrow(meta_columns=True).equals(before)
