"""Deletes follow one rule in both kinds of tables and all versions, for every state of the log files.

A delete loses only to a stored row whose ordering value is greater. A null is less than every value. A deleted row is
forgotten: a key that comes back gets no value of the earlier row, and may be older than its delete.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from tests.helpers import hudi_rs
from tests.helpers.examples import examples

PAYLOAD = "hoodie.datasource.write.payload.class"
NON_DEFAULTS, FOLDING = "OverwriteNonDefaultsWithLatestAvroPayload", "PartialUpdateAvroPayload"
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
RULES: dict[str, dict[str, Any]] = {
    "event": {"ordering": "ts"},
    "commit": {},
    "non-defaults": {PAYLOAD: NON_DEFAULTS},
    "folding": {PAYLOAD: FOLDING, "ordering": "ts"},
}
TABLES = [("COPY_ON_WRITE", 6), ("MERGE_ON_READ", 6), ("MERGE_ON_READ", 8), ("MERGE_ON_READ", 9), ("COPY_ON_WRITE", 9)]
Row = dict[str, Any]


def schema_of(ordering: pa.DataType) -> pa.Schema:
    columns = {"id": pa.string(), "ts": ordering, "v": pa.string(), "w": pa.string(), "_hoodie_is_deleted": pa.bool_()}
    return pa.schema(columns)


TS = st.sampled_from([None, -1, 0, 1, 2, 3])
ROW = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "ts": TS,
        "v": st.sampled_from([None, "x", "y"]),
        "w": st.sampled_from([None, "z"]),
        "_hoodie_is_deleted": st.sampled_from([False, False, True]),
    }
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upsert", "upsert", "upsert", "delete", "delete_where", "update", "some", "insert", "compact"]
        ),
        st.lists(ROW, max_size=4),
    ),
    min_size=2,
    max_size=8,
)


class Model:
    """Key -> row, by the rules of a copy-on-write table."""

    def __init__(self, rule: str) -> None:
        self.rule, self.rows = rule, dict[str, Row]()

    def wins(self, stored: Row, incoming: Row) -> bool:
        old, new = stored["ts"], incoming["ts"]
        return "ordering" not in RULES[self.rule] or old is None or (new is not None and new >= old)

    def combined(self, rows: list[Row]) -> list[Row]:
        """Return one row for each key: the newest, or the later one on a tie. Rules that fold get the first row."""
        kept: dict[str, Row] = {}
        for row in rows:
            stored = kept.get(row["id"])
            if self.rule == "folding":
                kept.setdefault(row["id"], row)
            elif stored is None or self.wins(stored, row):
                kept[row["id"]] = row
        return list(kept.values())

    def upsert(self, rows: list[Row]) -> None:
        fills = self.rule in {"non-defaults", "folding"}
        for row in rows:
            stored = self.rows.get(row["id"])
            newer = stored is None or self.wins(stored, row)
            if row["_hoodie_is_deleted"]:
                if newer or fills:
                    self.rows.pop(row["id"], None)
            elif stored is None or (newer and not fills):
                self.rows[row["id"]] = row
            elif fills:
                high, low = (row, stored) if newer else (stored, row)
                self.rows[row["id"]] = {name: low[name] if high[name] is None else high[name] for name in row}


def step(table: Table, model: Model, verb: str, rows: list[Row], schema: pa.Schema) -> None:
    combined = model.combined(rows)
    arrow = pa.Table.from_pylist(combined if model.rule == "folding" else rows, schema)
    if verb == "upsert":
        table.upsert(arrow)
        model.upsert(combined)
    elif verb == "delete":
        table.delete(arrow.select(["id"]))
        model.rows = {key: row for key, row in model.rows.items() if key not in {row["id"] for row in rows}}
    elif verb == "delete_where":
        table.delete(where="v = 'x'")
        model.rows = {key: row for key, row in model.rows.items() if row["v"] != "x"}
    elif verb == "update":
        table.update({"v": "u", "ts": 1}, where="ts > 1")
        changed = {**dict.fromkeys(model.rows)}
        for key, row in model.rows.items():
            changed[key] = {**row, "v": "u", "ts": 1} if row["ts"] is not None and row["ts"] > 1 else row
        model.rows = changed
    elif verb == "some" and model.rule in {"event", "commit"}:
        table.upsert(arrow.select(["id", "ts", "w", "_hoodie_is_deleted"]), partial_update=["w", "_hoodie_is_deleted"])
        for row in combined:
            stored = model.rows.get(row["id"], {**dict.fromkeys(schema.names), "id": row["id"]})
            written = ["w", "_hoodie_is_deleted", *(["ts"] if model.rule == "event" else [])]
            base = stored if row["id"] in model.rows else {**stored, "ts": row["ts"]}
            model.upsert([{**base, **{name: row[name] for name in written}}])
    elif verb == "insert":
        new = [row for row in combined if row["id"] not in model.rows and not row["_hoodie_is_deleted"]]
        table.insert(pa.Table.from_pylist(new, schema))
        model.rows |= {row["id"]: row for row in new}
    elif verb == "compact" and table.config.takes_logs:
        table.compact()


def rows_of(table: Table) -> dict[str, Row]:
    rows = table.to_arrow(meta_columns=False).to_pylist()
    keyed = {row["id"]: row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


@settings(max_examples=examples(10))
@given(
    STEPS,
    st.sampled_from(list(RULES)),
    st.sampled_from([pa.int32(), pa.int64()]),
    st.sampled_from([{}, BUCKETS]),
)
def test_deletes_in_every_kind_of_table_follow_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    rule: str,
    ordering: pa.DataType,
    index: dict[str, Any],
) -> None:
    schema, folder = schema_of(ordering), tmp_path_factory.mktemp("deletes")
    for kind, version in TABLES:
        options = {"table_type": kind, "hoodie.write.table.version": version, **RULES[rule], **index}
        table = lakeformat.create(folder / f"{kind}-{version}", schema, record_key="id", **options)
        model = Model(rule)
        for verb, rows in steps:
            step(table, model, verb, rows, schema)
            assert rows_of(table) == model.rows, (kind, version, verb)
        if rule == "commit" and (read := hudi_rs.read(table.context.storage.location)) is not None:
            theirs = {row["id"]: {name: row[name] for name in schema.names} for row in read.to_pylist()}
            assert theirs == model.rows, (kind, version)


STORED_AND_LATE = {
    "int32 0": (pa.int32(), 5, 0),
    "int32 null": (pa.int32(), 5, None),
    "int64 0": (pa.int64(), 5, 0),
    "int64 null": (pa.int64(), 5, None),
    "day 0": (pa.date32(), date(2020, 1, 1), date(1970, 1, 1)),
    "text": (pa.string(), "b", ""),
}


@pytest.mark.parametrize("of", STORED_AND_LATE)
@pytest.mark.parametrize(("kind", "version"), [("COPY_ON_WRITE", 9), ("MERGE_ON_READ", 6), ("MERGE_ON_READ", 9)])
def test_a_newer_row_survives_a_late_delete(kind: str, version: int, of: str, tmp_path: Path) -> None:
    ordering, stored, late = STORED_AND_LATE[of]
    schema, options = schema_of(ordering), {"table_type": kind, "hoodie.write.table.version": version}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", ordering="ts", **options)
    table.upsert(pa.Table.from_pylist([{"id": "a", "ts": stored}, {"id": "b", "ts": late}], schema))
    deletes = [{"id": key, "ts": late, "_hoodie_is_deleted": True} for key in "ab"]
    table.upsert(pa.Table.from_pylist(deletes, schema))
    assert table.to_arrow(["id"])["id"].to_pylist() == ["a"]


def test_hudi_rs_reads_deletes_with_and_without_an_ordering_value(tmp_path: Path) -> None:
    """The delete of a row that moves away has no ordering value. It is written beside one that has."""
    schema = pa.schema({"id": pa.string(), "p": pa.string(), "ts": pa.int64(), "_hoodie_is_deleted": pa.bool_()})
    options = {"table_type": "MERGE_ON_READ", "hoodie.index.type": "GLOBAL_SIMPLE"}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", ordering="ts", **options)
    rows = [{"id": key, "p": "a", "ts": 1, "_hoodie_is_deleted": False} for key in "klm"]
    table.upsert(rows)
    table.upsert([{**rows[0], "p": "b", "ts": 2}, {**rows[1], "ts": 2, "_hoodie_is_deleted": True}])
    left = hudi_rs.assert_same_rows(table)
    assert sorted((row["id"], row["p"]) for row in left) == [("k", "b"), ("m", "a")]
