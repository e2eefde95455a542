"""The log files and the base file of a slice become rows: random histories against a model, and examples as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.merge import ReadRule, SliceMerge, fold_parts
from lakeformat.merge.fold import fold_versions
from lakeformat.merge.slice_merge import MergeCounts
from lakeformat.merge.versions import LogDeletes, LogPart, LogRows, Versions, make_versions
from lakeformat.model.merge_settings import PartialUpdate
from tests.helpers.examples import examples
from tests.helpers.log_model import UNAVAILABLE, Block, Row, merge_slice

KEY = "_hoodie_record_key"
TYPES = {
    "_hoodie_commit_time": pa.string(),
    KEY: pa.string(),
    "ts": pa.float64(),
    "n": pa.int64(),
    "x": pa.int64(),
    "text": pa.string(),
    "tags": pa.list_(pa.string()),
    "op": pa.string(),
    "_hoodie_is_deleted": pa.bool_(),
    "_hoodie_operation": pa.string(),
}
SCHEMA = pa.schema(TYPES)
NONE, DEFAULTS, UNKNOWN = None, *PartialUpdate

RULES = [
    ReadRule(),
    ReadRule(("ts",)),
    ReadRule(("ts", "n")),
    ReadRule(partial=DEFAULTS),
    ReadRule(("ts",), DEFAULTS),
    ReadRule(("ts",), DEFAULTS, by_payload=True),
    ReadRule(partial=UNKNOWN, unavailable=UNAVAILABLE),
    ReadRule(("n", "ts"), UNKNOWN, UNAVAILABLE),
    ReadRule(("n",), delete_field="op", delete_marker="d"),
]


def arrow(rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema({name: TYPES[name] for name in columns}))


def part(block: Block, rule: ReadRule) -> LogPart:
    if block.deletes is not None:
        keys = pa.array([key for key, _ in block.deletes], pa.string())
        ordering = [
            pa.array([values[at] for _, values in block.deletes], TYPES[name]) for at, name in enumerate(rule.ordering)
        ]
        return LogDeletes("1", keys, tuple(ordering))
    names = [name for name in TYPES if not block.is_partial or any(name in row for row in block.rows)]
    return LogRows("1", arrow(block.rows, names), block.is_partial)


def read(base: Sequence[Row], parts: Sequence[LogPart], rule: ReadRule, batch_rows: int = 2) -> list[dict[str, Any]]:
    """Return the merged rows, in order, of a base file that comes in batches, the last ones first."""
    merge = SliceMerge(fold_parts(iter(parts), rule, SCHEMA), rule)
    batches = arrow(base, SCHEMA.names).to_batches(max_chunksize=batch_rows)
    found = [*merge.merge(reversed(batches[2:])), *map(merge.merge_batch, reversed(batches[:2]))]
    assert all(batch.schema == SCHEMA for batch in found)
    rest = list(merge.log_only_rows(2, 1 << 20))
    assert all(rows.num_rows <= 2 and rows.schema == SCHEMA for rows in rest)
    return [row for batch in [*reversed(found), *rest] for row in batch.to_pylist()]


KEYS = st.sampled_from("abc")
TS = st.sampled_from([None, -1.0, 0.0, 1.0, 2.0, math.nan])
N = st.sampled_from([None, -1, 0, 1, 2])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "ts": TS,
    "n": N,
    "x": st.none() | st.integers(0, 99),
    "text": st.sampled_from([None, UNAVAILABLE, "u", "v"]),
    "tags": st.none() | st.lists(st.sampled_from("uv"), max_size=2),
    "op": st.sampled_from([None, "d", "c"]),
}
META = {KEY: KEYS, "_hoodie_commit_time": st.uuids().map(str)}
FLAGS = {
    "_hoodie_is_deleted": st.sampled_from([None, False, False, True]),
    "_hoodie_operation": st.sampled_from([None, "I", "U", "-U", "D"]),
}


def rows_with(names: Sequence[str]) -> st.SearchStrategy[list[Row]]:
    fields = {**META, **{name: FIELDS[name] for name in names}}
    return st.lists(st.fixed_dictionaries(fields), max_size=4)


#: Blocks of rows with all columns, with an older schema's, of deletes, and of partial updates.
WHOLE = st.lists(st.fixed_dictionaries({**META, **FIELDS, **FLAGS}), max_size=4).map(Block)
OLDER = rows_with(["ts", "n", "text"]).map(Block)
DELETES = st.lists(st.tuples(KEYS, st.tuples(TS, N)), max_size=3)
PARTIAL = st.sets(st.sampled_from(["x", "text", "tags"])).flatmap(lambda names: rows_with(["ts", "n", *sorted(names)]))
BASE = st.lists(st.fixed_dictionaries({**META, **FIELDS}), max_size=5)


def deletes_for(rule: ReadRule) -> st.SearchStrategy[Block]:
    """Return a strategy for delete blocks whose values are in the rule's order."""
    at = {"ts": 0, "n": 1}

    def block(given: list[tuple[str, tuple[Any, ...]]]) -> Block:
        return Block(deletes=[(key, tuple(values[at[name]] for name in rule.ordering)) for key, values in given])

    return DELETES.map(block)


def comparable(rows: Sequence[Row]) -> list[str]:
    return [repr(sorted(row.items())) for row in rows]


@settings(max_examples=examples(300))
@given(st.data(), st.sampled_from(RULES), BASE)
def test_any_history_merges_like_the_model(data: st.DataObject, rule: ReadRule, base: list[Row]) -> None:
    partial = [PARTIAL.map(lambda rows: Block(rows, is_partial=bool(rows)))] if rule.partial is NONE else []
    blocks = data.draw(st.lists(st.one_of(WHOLE, OLDER, deletes_for(rule), *partial), max_size=6))
    base = [{**dict.fromkeys(TYPES), **row} for row in base]
    expected = merge_slice(base, blocks, rule, SCHEMA.names)
    assert comparable(read(base, [part(block, rule) for block in blocks], rule)) == comparable(expected)


@given(st.data(), st.sampled_from(RULES))
def test_history_folded_in_parts_gives_the_same_rows(data: st.DataObject, rule: ReadRule) -> None:
    partial = [PARTIAL.map(lambda rows: Block(rows, is_partial=bool(rows)))] if rule.partial is NONE else []
    blocks = data.draw(st.lists(st.one_of(WHOLE, deletes_for(rule), *partial), min_size=2, max_size=6))
    versions = [make_versions(part(block, rule), rule, SCHEMA) for block in blocks]
    cut = data.draw(st.integers(1, len(versions) - 1))
    whole = fold_versions(Versions.join(versions), rule)
    state = fold_versions(Versions.join(versions[:cut]), rule)
    twice = fold_versions(Versions.join([state, *versions[cut:]]), rule)
    assert comparable(rows_by_key(whole)) == comparable(rows_by_key(twice))


#: Row numbers in a base file of nine rows. A number that is too large makes the reader use keys.
AT = {"a": 7, "b": 0, "c": 8}


@given(st.data(), st.sampled_from(RULES), st.sampled_from([0, 8, 9]))
def test_merge_by_row_position_equals_merge_by_key(data: st.DataObject, rule: ReadRule, base_rows: int) -> None:
    partial = [PARTIAL.map(lambda rows: Block(rows, is_partial=bool(rows)))] if rule.partial is NONE else []
    blocks = data.draw(st.lists(st.one_of(WHOLE, deletes_for(rule), *partial), min_size=1, max_size=6))
    parts = [part(block, rule) for block in blocks]
    wanted = fold_parts(parts, rule, SCHEMA)
    found = fold_parts(map(with_positions, parts), rule, SCHEMA, base_rows=base_rows)
    assert comparable(rows_by_key(found)) == comparable(rows_by_key(wanted))
    assert [AT[key] for key in found.keys.to_pylist()] == found.position.tolist()


ROWS_OF_NINE = st.lists(st.fixed_dictionaries({**META, **FIELDS}), min_size=9, max_size=9)


@given(st.data(), st.sampled_from(RULES), ROWS_OF_NINE)
def test_slice_merged_by_row_number_equals_the_slice_merged_by_key(
    data: st.DataObject, rule: ReadRule, rows: list[Row]
) -> None:
    partial = [PARTIAL.map(lambda rows: Block(rows, is_partial=bool(rows)))] if rule.partial is NONE else []
    blocks = data.draw(st.lists(st.one_of(WHOLE, deletes_for(rule), *partial), max_size=4))
    parts = [part(block, rule) for block in blocks]
    keys = {at: key for key, at in AT.items()}
    base = [{**dict.fromkeys(TYPES), **row, KEY: keys.get(at, f"k{at}")} for at, row in enumerate(rows)]
    batches = arrow(base, SCHEMA.names).to_batches(max_chunksize=4)
    by_key = SliceMerge(fold_parts(parts, rule, SCHEMA), rule)
    by_number = SliceMerge(fold_parts(map(with_positions, parts), rule, SCHEMA, base_rows=9), rule)
    wanted = pa.Table.from_batches([*by_key.merge(batches)], SCHEMA)
    found = pa.Table.from_batches([*by_number.merge_rows(zip((0, 4, 8), batches, strict=True))], SCHEMA)
    assert comparable(found.to_pylist()) == comparable(wanted.to_pylist())
    assert (by_number.counts, by_number.rule) == (by_key.counts, rule)
    assert not [*by_number.log_only_rows(9, 1 << 20)]


def test_merge_of_large_log_rows_comes_in_parts_with_the_same_rows() -> None:
    names = [KEY, "text", "_hoodie_is_deleted"]
    schema = pa.schema([(name, TYPES[name]) for name in names])
    keys = [f"{number:02}" for number in range(60)]
    base = pa.table({KEY: keys, "text": ["old"] * 60, "_hoodie_is_deleted": [False] * 60}, schema)
    changed = [{KEY: key, "text": key[1] * 700_000, "_hoodie_is_deleted": key == "31"} for key in keys[2:58]]
    merge = SliceMerge(
        fold_parts([LogRows("1", pa.Table.from_pylist(changed, schema))], ReadRule(), schema), ReadRule()
    )
    parts = [*merge.merge(base.to_batches())]
    wanted = dict.fromkeys(keys, "old") | {row[KEY]: row["text"] for row in changed}
    del wanted["31"]
    found = [(row[KEY], row["text"]) for batch in parts for row in batch.select([KEY, "text"]).to_pylist()]
    assert found == list(wanted.items())
    assert len(parts) == 3
    assert all(batch.nbytes < 20 << 20 for batch in parts)
    assert merge.counts == MergeCounts(records=56, updated=55, deleted=1, added=0)


def with_positions(one: LogPart) -> LogPart:
    """Return the part with the row number in the base file for each record."""
    keys = one.keys if isinstance(one, LogDeletes) else one.rows[KEY]
    return replace(one, positions=np.array([AT[key] for key in keys.to_pylist()], np.int64))


def rows_by_key(versions: Versions) -> list[dict[str, Any]]:
    rows = versions.rows.to_pylist()
    found = []
    for at, key in enumerate(versions.keys.to_pylist()):
        row = rows[versions.row[at]] if versions.row[at] >= 0 else {}
        unknown = sorted(name for name, mask in versions.known.items() if row and not mask[versions.row[at]])
        ordering = [column[at].as_py() for column in versions.ordering]
        state = {"deleted": bool(versions.deleted[at]), "forced": bool(versions.unconditional[at])}
        found.append({"_": key, **state, "ordering": ordering, "unknown": unknown, **row})
    return sorted(found, key=lambda row: row["_"])
