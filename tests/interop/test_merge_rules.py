"""Payload classes and delete markers: the same batches, written by Apache Hudi and by us, leave the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA: Final = a_schema(
    id="string",
    ts="int64",
    n="int64",
    text="string",
    op="string",
    st=pa.struct({"x": pa.int32(), "y": pa.string()}),
    tags=pa.list_(pa.string()),
)
FLAGGED: Final = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))

PAYLOAD: Final = "hoodie.datasource.write.payload.class"
FOLD: Final = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
NON_DEFAULTS: Final = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
DEFAULT: Final = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
MARKER: Final = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}

#: With one task in Hudi, the rows of a batch are combined in their order.
ONE_TASK: Final = {"hoodie.upsert.shuffle.parallelism": "1"}


def row(key: str, ts: int, n: int | None = None, text: str | None = None, op: str | None = None) -> dict[str, Any]:
    nested = None if n is None else {"x": n, "y": text}
    return {"id": key, "ts": ts, "n": n, "text": text, "op": op, "st": nested, "tags": [text] if text else None}


#: The first batch fills the table. The second updates its rows: newer, tied, older, and several of one key.
BATCHES: Final = (
    [row(key, 5, 1, "old", "I") for key in ("newer", "tie", "older", "full", "twice", "thrice", "untouched")]
    + [row("empty", 5), row("first", 1, None, "a"), row("first", 2, 7, None)],
    [
        row("newer", 6, None, "new"),
        row("tie", 5, 2, None),
        row("older", 4, None, "new"),
        row("full", 9, 9, "all", "U"),
        row("empty", 4, 4, "filled"),
        row("twice", 7, None, "a"),
        row("twice", 6, 6, "b"),
        row("thrice", 6, 1, None),
        row("thrice", 8, None, None, "x"),
        row("thrice", 7, 5, "c"),
        row("fresh", 1, None, "only"),
    ],
)


def markers(*, flags: bool) -> tuple[list[dict[str, Any]], ...]:
    """Return stored rows and deletes: newer, tied, older, of an unknown key, and beside a row of the same key."""
    stored = [row(key, 5, 1, "old", "I") for key in ("newer", "tie", "older", "kept", "last", "before", "untouched")]
    deletes = [("newer", 6), ("tie", 5), ("older", 4), ("nobody", 4)]
    batch = [row(key, ts, 2, "gone", "D") for key, ts in deletes] + [
        row("kept", 6, 2, "new", "U"),
        row("last", 6, 2, "new", "U"),
        row("last", 7, 2, "gone", "D"),
        row("before", 6, 2, "gone", "D"),
        row("before", 7, 2, "new", "U"),
    ]
    if flags:
        stored, batch = ([{**r, "_hoodie_is_deleted": r["op"] == "D"} for r in rows] for rows in (stored, batch))
    return stored, batch


def rows_by_key(rows: pa.Table) -> dict[str, dict[str, Any]]:
    keyed = {r["id"]: {n: v for n, v in r.items() if not n.startswith("_hoodie_")} for r in rows.to_pylist()}
    assert len(keyed) == rows.num_rows
    return keyed


def new_table(folder: Path, schema: pa.Schema, payload: str) -> lakeformat.Table:
    options = {PAYLOAD: payload, "name": "t"}
    return lakeformat.create(folder, schema, record_key="id", ordering="ts", **options)


CASES: Final[Mapping[str, tuple[str, pa.Schema, tuple[list[dict[str, Any]], ...], Mapping[str, str]]]] = {
    "partial-update": (FOLD, SCHEMA, BATCHES, {}),
    "overwrite-non-defaults": (NON_DEFAULTS, SCHEMA, BATCHES, {}),
    "delete-marker": (DEFAULT, SCHEMA, markers(flags=False), MARKER),
    "flags-partial-update": (FOLD, FLAGGED, markers(flags=True), {}),
    "flags-overwrite-non-defaults": (NON_DEFAULTS, FLAGGED, markers(flags=True), {}),
    "flags-default": (DEFAULT, FLAGGED, markers(flags=True), {}),
}


@pytest.mark.parametrize("name", the_rest_by_night(CASES, {"partial-update", "flags-default"}))
def test_the_same_batches_leave_the_same_rows(name: str, hudi: Hudi, tmp_path: Path) -> None:
    payload, schema, batches, options = CASES[name]
    ours = new_table(tmp_path / "ours", schema, payload)
    new_table(tmp_path / "theirs", schema, payload)
    writer = lakeformat.open(tmp_path / "ours", **options)
    for number, rows in enumerate(batches):
        table = pa.Table.from_pylist(rows, schema)
        hudi.write(tmp_path / "theirs", table, "upsert", **{PAYLOAD: payload, **ONE_TASK, **options})
        writer.upsert(table)
        theirs = rows_by_key(hudi.read(tmp_path / "theirs"))
        assert rows_by_key(ours.to_arrow()) == theirs, f"after batch {number}"
    assert rows_by_key(hudi.read(tmp_path / "ours")) == theirs


@pytest.mark.parametrize("payload", the_rest_by_night([FOLD, NON_DEFAULTS], {FOLD}))
def test_each_writes_to_the_table_of_the_other(payload: str, hudi: Hudi, tmp_path: Path) -> None:
    first, second = (pa.Table.from_pylist(rows, SCHEMA) for rows in BATCHES)
    options = {PAYLOAD: payload, **ONE_TASK}
    table = new_table(tmp_path / "ours_first", SCHEMA, payload)
    table.upsert(first)
    hudi.write(tmp_path / "ours_first", second, "upsert", **options)
    other = new_table(tmp_path / "theirs_first", SCHEMA, payload)
    hudi.write(tmp_path / "theirs_first", first, "upsert", **options)
    other.upsert(second)
    assert rows_by_key(table.to_arrow()) == rows_by_key(other.to_arrow())
    assert rows_by_key(hudi.read(tmp_path / "theirs_first")) == rows_by_key(hudi.read(tmp_path / "ours_first"))


def test_hudi_reads_and_writes_after_our_partial_updates_and_mergers(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = new_table(path, SCHEMA, DEFAULT)
    table.upsert(pa.Table.from_pylist([row("a", 5, 1, "old"), row("b", 5, 1, "old"), row("c", 5, 1, "old")], SCHEMA))
    table.upsert(pa.table({"id": ["a", "new"], "ts": [6, 6], "text": [None, "only"]}), partial_update=True)
    table.upsert(pa.Table.from_pylist([row("b", 4, 7, "x")], SCHEMA), merger=lambda stored, incoming: incoming)
    wanted = {
        "a": {**row("a", 6, 1, "old"), "text": None},
        "b": row("b", 4, 7, "x"),
        "c": row("c", 5, 1, "old"),
        "new": {**row("new", 6), "text": "only"},
    }
    assert rows_by_key(hudi.read(path)) == wanted == rows_by_key(table.to_arrow())
    hudi.write(path, pa.Table.from_pylist([row("b", 5, 8, "hudi"), row("a", 5, 8, "older")], SCHEMA), "upsert")
    wanted["b"] = row("b", 5, 8, "hudi")
    assert rows_by_key(hudi.read(path)) == wanted == rows_by_key(table.to_arrow())


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("payload", [DEFAULT, FOLD, NON_DEFAULTS])
def test_hudi_reads_our_deletes_in_logs_as_we_do(payload: str, version: int, hudi: Hudi, tmp_path: Path) -> None:
    """Hudi agrees about late deletes, deletes with null or the int 0, and keys that come back after a delete."""
    path, schema = tmp_path / "t", FLAGGED.set(1, pa.field("ts", pa.int32()))
    options = {"table_type": "MERGE_ON_READ", "hoodie.write.table.version": version, PAYLOAD: payload, "name": "t"}
    table = lakeformat.create(path, schema, record_key="id", ordering="ts", **options)

    def rows(*some: dict[str, Any], deleted: bool = False) -> pa.Table:
        return pa.Table.from_pylist([{**each, "_hoodie_is_deleted": deleted} for each in some], schema)

    def late(key: str, ts: int | None) -> dict[str, Any]:
        return {**row(key, 0), "ts": ts}

    keys = ("null", "zero", "low", "high", "deleted", "kept")
    table.upsert(rows(*(row(key, 5, 1, "old") for key in keys)))
    table.upsert(rows(late("null", None), late("zero", 0), late("low", 3), late("high", 9), deleted=True))
    table.delete([{"id": "deleted"}])
    ours = rows_by_key(table.to_arrow())
    assert rows_by_key(hudi.read(path)) == ours
    assert ours.keys() == ({"kept", "null", "zero", "low"} if payload == DEFAULT else {"kept"})
    table.upsert(rows(row("high", 7, None, "new"), row("deleted", 3, None, "new")))
    ours = rows_by_key(table.to_arrow())
    assert rows_by_key(hudi.read(path)) == ours
    assert [(ours[key]["n"], ours[key]["text"]) for key in ("high", "deleted")] == [(None, "new")] * 2
