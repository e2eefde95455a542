"""Every merge rule through whole writes: examples as a table, and random writes against a dict of rows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat import UnsupportedTableError
from lakeformat.codec import properties
from lakeformat.config.resolve import resolve
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.merge import MergeRule
from lakeformat.model.merge_settings import PartialUpdate
from lakeformat.write.intake import plan_job
from tests.helpers.examples import examples
from tests.helpers.hudi_rs import assert_same_rows
from tests.helpers.merge_tables import COMMIT, EVENT, SCHEMA, TYPES, contents, in_memory, on_disk, rows_of

PAYLOAD = "hoodie.datasource.write.payload.class"
FOLD, NON_DEFAULTS = "PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"

STORED = {"id": "a", "ts": 5, "n": 1, "text": "old", "st": {"x": 1, "y": "y"}}

#: Rule, incoming row, row that is stored afterwards (without nulls).
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (COMMIT, {"ts": 4, "n": None, "text": "new", "st": None}, {"ts": 4, "text": "new"}),
    (EVENT, {"ts": 4, "n": None, "text": "new", "st": None}, {"ts": 5, "n": 1, "text": "old", "st": STORED["st"]}),
    (EVENT, {"ts": 5, "n": None, "text": "new", "st": None}, {"ts": 5, "text": "new"}),
    (EVENT, {"ts": None, "n": 2, "text": None, "st": None}, {"ts": 5, "n": 1, "text": "old", "st": STORED["st"]}),
    (NON_DEFAULTS, {"ts": 4, "n": None, "text": "new", "st": None},
     {"ts": 4, "n": 1, "text": "new", "st": STORED["st"]}),
    (NON_DEFAULTS, {"ts": None, "n": 2, "text": "", "st": {"x": None, "y": None}},
     {"ts": 5, "n": 2, "text": "", "st": {"x": None, "y": None}}),
    (FOLD, {"ts": 6, "n": None, "text": "new", "st": {"x": 2, "y": None}},
     {"ts": 6, "n": 1, "text": "new", "st": {"x": 2, "y": None}}),
    (FOLD, {"ts": 5, "n": 2, "text": None, "st": None}, {"ts": 5, "n": 2, "text": "old", "st": STORED["st"]}),
    (FOLD, {"ts": 4, "n": 2, "text": "new", "st": None}, {"ts": 5, "n": 1, "text": "old", "st": STORED["st"]}),
    (COMMIT + "+partial", {"ts": 4, "n": None}, {"ts": 4, "text": "old", "st": STORED["st"]}),
    (COMMIT + "+partial", {"ts": 4, "st": {"x": None, "y": "z"}},
     {"ts": 4, "n": 1, "text": "old", "st": {"x": None, "y": "z"}}),
    (EVENT + "+partial", {"ts": 4, "n": None}, {"ts": 5, "n": 1, "text": "old", "st": STORED["st"]}),
    (EVENT + "+partial", {"ts": 5, "n": None}, {"ts": 5, "text": "old", "st": STORED["st"]}),
]  # fmt: skip


def options_of(rule: str) -> dict[str, Any]:
    """Return options that make a table with the rule."""
    mode, _, partial = rule.partition("+")
    said = {"merge_mode": mode} if mode in {EVENT, COMMIT} else {PAYLOAD: mode}
    return {"ordering": "ts", **said, **({"partial_update": "true"} if partial else {})}


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_stored_row_and_incoming_row_merge_by_the_rule(case: int, tmp_path: Path) -> None:
    rule, incoming, wanted = CASES[case]
    table = on_disk(tmp_path, **options_of(rule))
    table.upsert(
        rows_of({**STORED, "_hoodie_is_deleted": None}, {**STORED, "id": "bystander", "_hoodie_is_deleted": None})
    )
    row = {"id": "a", **incoming}
    if "partial" not in rule:
        row["_hoodie_is_deleted"] = False
        wanted = wanted | ({"_hoodie_is_deleted": False} if rule != EVENT or wanted["text"] == "new" else {})
    first = table.history()[0].instant_time
    result = table.upsert(rows_of(row))
    assert contents(table)["a"] == wanted
    assert contents(table)["bystander"] == {name: value for name, value in STORED.items() if name != "id"}
    written = rule.startswith(EVENT) is False or wanted.get("ts") == incoming["ts"]
    times = {r["id"]: r["_hoodie_commit_time"] for r in assert_same_rows(table)}
    assert times == {"a": result.instant_time if written else first, "bystander": first}


def test_row_equal_to_the_stored_one_counts_as_an_update() -> None:
    for rule in (COMMIT, EVENT, FOLD, NON_DEFAULTS, COMMIT + "+partial"):
        table = in_memory(**options_of(rule))
        row = rows_of({**STORED, "_hoodie_is_deleted": False})
        table.upsert(row)
        result = table.upsert(row)
        assert result.report["rows"]["updated"] == 1
        assert table.to_arrow(meta_columns=True)["_hoodie_commit_time"].to_pylist() == [result.instant_time]


@pytest.mark.parametrize("rule", [NON_DEFAULTS, FOLD])
def test_older_delete_wins_under_filling_payloads(rule: str) -> None:
    table = in_memory(**options_of(rule))
    table.upsert(rows_of(STORED))
    table.upsert(rows_of({**STORED, "ts": 1, "_hoodie_is_deleted": True}))
    assert contents(table) == {}


@pytest.mark.parametrize("rule", [NON_DEFAULTS, FOLD, COMMIT + "+partial"])
def test_every_type_is_kept_filled_and_written(rule: str, tmp_path: Path) -> None:
    kinds = [case for case in TYPES if case[0] != pa.timestamp("us")]  # hudi-rs reads no local timestamps.
    names = [f"c{at}" for at in range(len(kinds))]
    fields = [pa.field(name, kind) for name, (kind, _, _) in zip(names, kinds, strict=True)]
    schema = pa.schema([pa.field("id", pa.string()), pa.field("ts", pa.int64()), *fields])
    ones = {name: one for name, (_, one, _) in zip(names, kinds, strict=True)}
    others = {name: other for name, (_, _, other) in zip(names, kinds, strict=True)}
    table = on_disk(tmp_path, schema, **options_of(rule))
    nothing = dict.fromkeys(names)
    table.upsert(pa.Table.from_pylist([{"id": "full", "ts": 1, **ones}, {"id": "empty", "ts": 1, **nothing}], schema))
    odd = {name: other for at, (name, other) in enumerate(others.items()) if at % 2}
    lacking = {} if "partial" in rule else nothing
    batch = [{"id": key, "ts": 2, **lacking, **odd} for key in ("full", "empty", "fresh")]
    table.upsert(pa.Table.from_pylist(batch, pa.schema([f for f in schema if f.name in batch[0]])))
    wanted = [
        {"id": key, "ts": 2, **old, **odd} for key, old in (("full", ones), ("empty", nothing), ("fresh", nothing))
    ]
    found = table.to_arrow(meta_columns=False)
    assert sorted(found.to_pylist(), key=lambda r: r["id"]) == sorted(
        pa.Table.from_pylist(wanted, schema).to_pylist(), key=lambda r: r["id"]
    )
    assert_same_rows(table)


def test_rows_meet_in_every_row_group_of_a_file() -> None:
    count = ROW_GROUP_ROWS + 5000
    ids = np.char.zfill(np.arange(count).astype(str), 7)
    schema = pa.schema([SCHEMA.field(name) for name in ("id", "ts", "n", "text")])
    base = {"ts": pa.array(np.full(count, 5)), "n": pa.array(np.arange(count)), "text": pa.array(ids)}
    hits = np.arange(0, count, 1000)
    news = pa.table(
        {"id": ids[hits], "ts": 4 + hits // 1000 % 2 * 2, "n": -hits, "text": pa.nulls(len(hits), pa.string())}
    )
    for rule in (FOLD, NON_DEFAULTS, "sum", COMMIT + "+partial"):
        table = in_memory(schema, **options_of(COMMIT if rule == "sum" else rule))
        table.bulk_insert(pa.table({"id": ids, **base}))
        assert len(table.snapshot().files) == 1
        table.upsert(
            news.drop_columns(["text"]) if "partial" in rule else news, merger=without_text if rule == "sum" else None
        )
        found = table.to_arrow(["n", "text"], meta_columns=False)
        kept = hits // 1000 % 2 == 0 if rule == FOLD else np.zeros(len(hits), bool)
        wanted = np.arange(count)
        wanted[hits] = np.where(kept, hits, -hits)
        assert np.array_equal(found["n"].to_numpy(), wanted)
        assert found["text"].to_pylist() == ids.tolist()


def without_text(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    return incoming.set_column(3, "text", stored["text"])


# --- any writes, against a dict ---------------------------------------------------------------------------

KEPT = ("ts", "n", "text", "_hoodie_is_deleted")
Row = dict[str, Any]


def rank(ts: int | None) -> tuple[bool, int]:
    return (ts is not None, ts or 0)


@dataclass
class Model:
    """Rows by key with their commit times, under one rule: one of `CASES`, or ``sum``."""

    rule: str
    rows: dict[str, tuple[Row, str]] = field(default_factory=dict)

    def filled(self, old: Row, new: Row) -> Row:
        newer, other = (old, new) if self.rule == FOLD and rank(old["ts"]) > rank(new["ts"]) else (new, old)
        return {name: other[name] if newer[name] is None else newer[name] for name in newer}

    def combined(self, rows: Sequence[Row]) -> dict[str, Row]:
        made: dict[str, Row] = {}
        for row in rows:
            old = made.get(row["id"])
            newest = row if old is None or rank(row["ts"]) >= rank(old["ts"]) else old
            if self.rule == FOLD and old is not None:
                made[row["id"]] = {**self.filled(old, row), "_hoodie_is_deleted": newest["_hoodie_is_deleted"]}
            else:
                made[row["id"]] = newest
        return made

    def upsert(self, rows: Sequence[Row], columns: Sequence[str], instant: str) -> None:
        for key, new in self.combined([{**dict.fromkeys(KEPT), **row} for row in rows]).items():
            old, time = self.rows.get(key, (None, ""))
            if old is not None and self.rule.startswith(EVENT) and rank(old["ts"]) > rank(new["ts"]):
                self.rows[key] = (old, time)
            elif new["_hoodie_is_deleted"]:
                self.rows.pop(key, None)
            elif old is None:
                self.rows[key] = (new, instant)
            elif self.rule == "sum":
                made = {**new, "n": (old["n"] or 0) + (new["n"] or 0), "text": old["text"]}
                self.rows[key] = (made, instant)
                if made["n"] > 100:
                    del self.rows[key]
            elif "partial" in self.rule:
                self.rows[key] = ({**old, **{name: new[name] for name in columns}}, instant)
            else:
                self.rows[key] = (self.filled(old, new) if self.rule in {FOLD, NON_DEFAULTS} else new, instant)


def summed(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    """Return the incoming rows with the sum of ``n``, deleted beyond a hundred, and the stored ``text``."""
    total = pc.add(pc.fill_null(stored["n"], 0), pc.fill_null(incoming["n"], 0))
    rows = incoming.set_column(incoming.schema.get_field_index("n"), "n", total)
    rows = rows.set_column(rows.schema.get_field_index("text"), "text", stored["text"])
    flags = pc.if_else(pc.greater(total, 100), True, incoming["_hoodie_is_deleted"])
    return rows.set_column(rows.schema.get_field_index("_hoodie_is_deleted"), "_hoodie_is_deleted", flags)


INPUT = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abcdef"),
        "ts": st.sampled_from([None, 0, 1, 2]),
        "n": st.none() | st.integers(0, 60),
        "text": st.none() | st.sampled_from(["", "u", "v"]),
        "_hoodie_is_deleted": st.sampled_from([False, False, None, True]),
    }
)
BATCH = st.tuples(
    st.lists(INPUT, min_size=1, max_size=8), st.sets(st.sampled_from(["n", "text", "_hoodie_is_deleted"]))
)
RULES = [COMMIT, EVENT, FOLD, NON_DEFAULTS, COMMIT + "+partial", EVENT + "+partial", "sum"]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=examples(25))
@given(st.lists(BATCH, max_size=5), st.sampled_from([0, 100_000_000]))
def test_any_upserts_follow_the_model(
    rule: str, batches: list[tuple[list[Row], set[str]]], small_file_limit: int
) -> None:
    said = options_of(COMMIT if rule == "sum" else rule)
    schema = pa.schema([SCHEMA.field(name) for name in ("id", *KEPT)])
    table = in_memory(schema, **said, **{"hoodie.parquet.small.file.limit": small_file_limit})
    model = Model(rule)
    for rows, lacking in batches:
        columns = [n for n in schema.names if "partial" not in rule or n not in lacking]
        given_rows = [{name: row[name] for name in columns} for row in rows]
        merger = summed if rule == "sum" else None
        result = table.upsert(
            pa.Table.from_pylist(given_rows, pa.schema([schema.field(n) for n in columns])), merger=merger
        )
        model.upsert(given_rows, columns, result.instant_time)
        found = {
            r["id"]: ({n: r[n] for n in KEPT}, r["_hoodie_commit_time"])
            for r in table.to_arrow(meta_columns=True).to_pylist()
        }
        wanted = {key: ({n: row[n] for n in KEPT}, time) for key, (row, time) in model.rows.items()}
        assert found == wanted


# --- the rule as a value ------------------------------------------------------------------------------------


_PACKAGE = "org.apache.hudi.common.model."
NULLS = PartialUpdate.IGNORE_DEFAULTS


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        ({"hoodie.compaction.payload.class": _PACKAGE + FOLD}, MergeRule(("ts",), True, NULLS, True)),
        ({"hoodie.compaction.payload.class": _PACKAGE + NON_DEFAULTS}, MergeRule(("ts",), False, NULLS)),
        (
            {"hoodie.compaction.payload.class": _PACKAGE + FOLD, "hoodie.record.merge.mode": "CUSTOM"},
            MergeRule(("ts",), True, NULLS, True),
        ),
        ({"hoodie.compaction.payload.class": _PACKAGE + "EventTimeAvroPayload"}, MergeRule(("ts",), True)),
        ({"hoodie.compaction.payload.class": _PACKAGE + "OverwriteWithLatestAvroPayload"}, MergeRule(("ts",))),
        ({"hoodie.record.merge.mode": "event_time_ordering"}, MergeRule(("ts",), True)),
        ({}, MergeRule(("ts",), True)),
    ],
)
def test_rule_is_read_from_properties_of_other_writers(stored: dict[str, str], rule: MergeRule) -> None:
    table = in_memory(ordering="ts")
    said = {k: v for k, v in table.config.values.items() if k != "hoodie.compaction.payload.class"}
    table.context.storage.replace(".hoodie/hoodie.properties", properties.encode({**said, **stored}, comments=[]))
    job = plan_job(table.context.store, table.snapshot(), resolve({}), SCHEMA, table.context.ids)
    assert job.rule == rule


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"hoodie.record.merge.mode": "CUSTOM"}, "hoodie.record.merge.mode=CUSTOM"),
        (
            {"hoodie.compaction.payload.class": _PACKAGE + "PartialUpdatesAvroPayload"},
            f"did you mean '{_PACKAGE}{FOLD}'?",
        ),
        (
            {"hoodie.compaction.payload.class": "com.example.Mine"},
            "com.example.Mine",
        ),
    ],
)
def test_a_rule_that_is_not_known_is_refused_by_name(stored: dict[str, str], words: str) -> None:
    table = in_memory(ordering="ts")
    said = {k: v for k, v in table.config.values.items() if k != "hoodie.compaction.payload.class"}
    table.context.storage.replace(".hoodie/hoodie.properties", properties.encode({**said, **stored}, comments=[]))
    with pytest.raises(UnsupportedTableError) as caught:
        table.upsert(rows_of(STORED))
    assert words in str(caught.value)


@pytest.mark.parametrize("rule", [r for r in RULES if r != "sum"])
def test_rule_is_pickled_with_the_job(rule: str) -> None:
    table = in_memory(**options_of(rule))
    options: Mapping[str, Any] = {"hoodie.datasource.write.operation": "upsert", "lakeformat.write.merger": None}
    job = plan_job(
        table.context.store, table.snapshot(), table.options.with_values(**options), SCHEMA, table.context.ids
    )
    assert pickle.loads(pickle.dumps(job)).rule == job.rule  # noqa: S301  Our own bytes.
