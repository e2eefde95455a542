"""Examples of the merge of one record: the winner, deletes, and the comparison of values of other types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from lakeformat.errors import SchemaMismatchError
from lakeformat.merge import ReadRule, SliceMerge, fold_parts
from lakeformat.merge.order import any_within
from lakeformat.merge.versions import LogDeletes, LogPart, LogRows
from lakeformat.model.merge_settings import PartialUpdate

KEY = "_hoodie_record_key"
SCHEMA = pa.schema({KEY: pa.string(), "ts": pa.int64(), "v": pa.string()})
COMMIT, EVENT = ReadRule(), ReadRule(("ts",))
UNKNOWN = PartialUpdate.FILL_UNAVAILABLE


def row(ts: Any, v: str, **more: Any) -> LogRows:
    return LogRows("1", pa.Table.from_pylist([{KEY: "k", "ts": ts, "v": v, **more}]))


def delete(ts: int | None) -> LogDeletes:
    return LogDeletes("1", pa.array(["k"]), (pa.array([ts], pa.int64()),))


def read(parts: Sequence[LogPart], rule: ReadRule, base: pa.Table, schema: pa.Schema = SCHEMA, **more: Any) -> pa.Table:
    merge = SliceMerge(fold_parts(parts, rule, schema, **more), rule)
    changed = [pa.Table.from_batches([merge.merge_batch(batch)]) for batch in base.to_batches()]
    return pa.concat_tables([schema.empty_table(), *changed, *merge.log_only_rows(100, 1 << 20)])


#: Rule, versions written after a base row with ts 100, and the value that is read; None for no row.
HISTORIES: list[tuple[ReadRule, list[LogPart], str | None]] = [
    (COMMIT, [row(50, "late")], "late"),
    (COMMIT, [row(60, "first"), row(50, "late")], "late"),
    (COMMIT, [delete(10)], None),
    (COMMIT, [delete(10), row(5, "back")], "back"),
    (EVENT, [row(50, "late")], "base"),
    (EVENT, [row(100, "tie")], "tie"),
    (EVENT, [row(110, "new"), row(110, "tie")], "tie"),
    (EVENT, [row(None, "null")], "base"),
    (EVENT, [delete(60)], "base"),
    (EVENT, [delete(100)], None),
    (EVENT, [delete(None)], None),
    (EVENT, [delete(200), row(150, "below")], None),
    (EVENT, [delete(200), row(200, "tie")], "tie"),
    (EVENT, [row(150, "kept"), delete(120)], "kept"),
    (EVENT, [row(150, "new"), delete(None)], None),
    (EVENT, [delete(None), row(120, "back")], "back"),
    # A delete without an ordering value clears what came before, and the row of the base file is compared again.
    (EVENT, [delete(None), row(50, "back")], "base"),
    (EVENT, [delete(None), delete(60), row(50, "below")], "base"),
    (EVENT, [delete(None), delete(130), row(120, "back")], "back"),
    (EVENT, [delete(None), delete(60)], None),
    (EVENT, [row(50, "x"), delete(None), delete(60)], None),
    (EVENT, [row(None, "", _hoodie_is_deleted=True), delete(60)], None),
    (EVENT, [row(120, "whole"), LogRows("1", pa.table({KEY: ["k"], "ts": [130]}), is_partial=True)], "whole"),
    (EVENT, [row(None, "", _hoodie_is_deleted=True)], None),
    (EVENT, [row(60, "", _hoodie_is_deleted=True)], "base"),
    (EVENT, [row(120, "", _hoodie_is_deleted=True), row(110, "below")], None),
    (EVENT, [row(120, "", _hoodie_operation="D")], None),
    (EVENT, [row(120, "", _hoodie_operation="-U"), row(120, "new", _hoodie_operation="U")], "new"),
    (ReadRule((), UNKNOWN, "?"), [row(1, "?")], "base"),
    (ReadRule((), UNKNOWN, "?"), [row(1, "")], ""),
    (ReadRule((), UNKNOWN), [row(1, "")], ""),
    (ReadRule(("ts",), delete_field="op", delete_marker="1"), [row(120, "", op=1)], None),
    (ReadRule(("ts",), delete_field="op", delete_marker="1"), [row(120, "new", op=10)], "new"),
    (ReadRule(("ts",), delete_field="op", delete_marker="1"), [row(120, "new", op=None)], "new"),
]


@pytest.mark.parametrize("case", range(len(HISTORIES)))
def test_winner_of_each_history_follows_the_rule(case: int) -> None:
    rule, parts, value = HISTORIES[case]
    base = pa.table({KEY: ["k", "other"], "ts": [100, 100], "v": ["base", "other"]}, SCHEMA)
    assert read(parts, rule, base)["v"].to_pylist() == [*([] if value is None else [value]), "other"]


def test_meta_columns_are_those_of_the_version_written_last() -> None:
    time = "_hoodie_commit_time"
    schema = SCHEMA.append(pa.field(time, pa.string()))
    rule = ReadRule(("ts",), PartialUpdate.IGNORE_DEFAULTS, by_payload=True)
    base = pa.table({KEY: ["k"], "ts": [100], "v": ["base"], time: ["0"]}, schema)
    parts = [row(200, "new", **{time: "1"}), row(150, "late", **{time: "2"})]
    for blocks, wanted in (
        (parts, ("new", "2")),
        (parts[:1], ("new", "1")),
        ([row(50, "x", **{time: "1"})], ("base", "1")),
    ):
        found = read(blocks, rule, base, schema).to_pylist()
        assert [(each["v"], each[time]) for each in found] == [wanted]


def test_duplicate_key_of_a_base_file_is_changed_in_every_row() -> None:
    base = pa.table({KEY: ["k", "k"], "ts": [1, 300], "v": ["a", "b"]}, SCHEMA)
    assert read([row(200, "new")], EVENT, base)["v"].to_pylist() == ["new", "b"]
    assert read([delete(None)], EVENT, base).num_rows == 0


#: Ordering values in the wrappers of delete blocks, and the same values in the type of the table.
TYPES = [
    (pa.int32(), pa.int64(), 7, 7),
    (pa.float64(), pa.float64(), 0.5, 0.5),
    (pa.string(), pa.string(), "b", "b"),
    (pa.date32(), pa.date32(), dt.date(2024, 1, 2), dt.date(2024, 1, 2)),
    (pa.int64(), pa.timestamp("us", "UTC"), 1_000_000, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
    (pa.decimal128(30, 15), pa.decimal128(12, 3), Decimal("1.250"), Decimal("1.250")),
]


@pytest.mark.parametrize(("wrapped", "kind", "value", "own"), TYPES, ids=[str(case[1]) for case in TYPES])
def test_delete_ordering_values_compare_in_the_column_type(
    wrapped: pa.DataType, kind: pa.DataType, value: Any, own: Any
) -> None:
    schema = pa.schema({KEY: pa.string(), "ts": kind})
    base = pa.table([["k", "same", "null"], pa.array([own, own, None], kind)], schema=schema)
    deletes = LogDeletes("1", pa.array(["k", "null"]), (pa.array([value, value], wrapped),))
    assert read([deletes], EVENT, base, schema)[KEY].to_pylist() == ["same"]
    larger = LogRows("2", base.slice(1, 1).set_column(0, KEY, pa.array(["k"])))
    assert read([larger, deletes], EVENT, base.slice(1, 1), schema)[KEY].to_pylist() == ["same"]


def test_numbers_in_delete_blocks_count_in_the_unit_of_the_stored_timestamp() -> None:
    schema = pa.schema({KEY: pa.string(), "ts": pa.timestamp("us")})
    base = pa.table([["k"], pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))], schema=schema)
    stored = pa.schema({KEY: pa.string(), "ts": pa.timestamp("ms")})
    for milliseconds, left in ((1_704_067_199_999, 1), (1_704_067_200_000, 0)):
        assert read([delete(milliseconds)], EVENT, base, schema, stored=stored).num_rows == left
    moment = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ms"))  # Its type says the unit.
    same = LogDeletes("1", pa.array(["k"]), (moment,))
    assert read([same], EVENT, base, schema, stored=schema).num_rows == 0


def test_rows_of_other_schemas_are_read_in_the_table_schema() -> None:
    schema = pa.schema({KEY: pa.string(), "ts": pa.int64(), "added": pa.string(), "n": pa.float64()})
    old = LogRows("1", pa.table({KEY: ["a"], "ts": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32())}))
    new = LogRows("2", pa.table({"n": [2.5], "dropped": [1], "added": ["x"], KEY: ["b"], "ts": [2]}))
    assert read([old, new], EVENT, schema.empty_table(), schema).to_pylist() == [
        {KEY: "a", "ts": 1, "added": None, "n": 2.0},
        {KEY: "b", "ts": 2, "added": "x", "n": 2.5},
    ]
    with pytest.raises(SchemaMismatchError, match="column 'ts'"):
        read([LogRows("3", pa.table({KEY: ["a"], "ts": ["soon"]}))], EVENT, schema.empty_table(), schema)


def test_nested_ordering_field_decides() -> None:
    schema = pa.schema({KEY: pa.string(), "at": pa.struct({"ts": pa.int64()}), "v": pa.string()})
    base = pa.Table.from_pylist([{KEY: "k", "at": {"ts": 5}, "v": "base"}, {KEY: "l", "at": None, "v": "base"}], schema)
    logs = LogRows(
        "1", base.set_column(1, schema.field("at"), pa.array([{"ts": 4}, {"ts": 4}], schema.field("at").type))
    )
    logs = LogRows("1", logs.rows.set_column(2, "v", pa.array(["log", "log"])))
    assert read([logs], ReadRule(("at.ts",)), base, schema)["v"].to_pylist() == ["base", "log"]


def test_long_history_is_folded_in_steps_and_can_be_spilled(tmp_path: Path) -> None:
    keys, calls = 10_000, []
    at = np.arange(keys)

    def part(number: int) -> LogRows:
        rows = {
            KEY: pa.array(at).cast(pa.string()),
            "ts": pa.array((at * 7 + number * 13) % 101),
            "v": [str(number)] * keys,
        }
        return LogRows(str(number), pa.table(rows))

    def keep(rows: pa.Table) -> pa.Table:
        calls.append(rows.num_rows)
        path = tmp_path / f"{len(calls)}.arrow"
        with pa.ipc.new_file(path, rows.schema) as sink:
            sink.write_table(rows)
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()

    found = fold_parts(map(part, range(20)), EVENT, SCHEMA, keep=keep)
    assert len(calls) > 2
    assert max(calls) == len(found) == keys
    ranks = (at * 7 + np.arange(20)[:, None] * 13) % 101
    last_greatest = 19 - ranks[::-1].argmax(axis=0)
    wanted = dict(zip(map(str, at), map(str, last_greatest), strict=True))
    rows = pa.concat_tables(SliceMerge(found, EVENT).log_only_rows(3_000, 1 << 20)).to_pydict()
    assert dict(zip(rows[KEY], rows["v"], strict=True)) == wanted


def test_log_rows_touch_only_row_groups_whose_range_holds_a_key() -> None:
    parts = [row(1, "a"), LogDeletes("1", pa.array(["n", "\u00fc"]))]
    keys = fold_parts(parts, COMMIT, SCHEMA).keys
    ranges = [("a", "j"), ("a", "k"), ("l", "m"), ("n", "n"), ("o", "z"), ("o", "\u00fd"), ("\U0001f600", "\U0001f601")]
    assert [any_within(keys, *ends) for ends in ranges] == [False, True, False, True, False, True, False]
    assert not any_within(fold_parts([], COMMIT, SCHEMA).keys, "", "z")


def test_batches_merged_by_several_threads_give_the_same_rows() -> None:
    keys = pa.array(range(20_000)).cast(pa.string())
    base = pa.table([keys, pa.array(range(20_000)), pa.array(["base"] * 20_000)], schema=SCHEMA)
    logs = pa.table(
        [pa.array(range(0, 40_000, 3)).cast(pa.string()), [50_000] * 13_334, ["log"] * 13_334], schema=SCHEMA
    )
    merge = SliceMerge(fold_parts([LogRows("1", logs)], EVENT, SCHEMA), EVENT)
    with ThreadPoolExecutor(4) as pool:
        merged = list(pool.map(merge.merge_batch, base.to_batches(max_chunksize=100)))
    values = pa.Table.from_batches(merged)["v"].to_pylist()
    assert values == ["base" if at % 3 else "log" for at in range(20_000)]
    assert sum(rows.num_rows for rows in merge.log_only_rows(1_000, 1 << 20)) == 13_334 - 6_667
