"""The winner when a key comes again: examples as tables, and writes of all kinds against a list of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat import Table
from lakeformat.merge import flag_deleted_rows, latest_rows, stored_wins
from lakeformat.merge.order import sequence_texts
from lakeformat.model.operation import Operation
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema, a_table

NAN = math.nan
SCHEMA = a_schema(id="string", ts="float64", v="int64", _hoodie_is_deleted="bool", tags=pa.list_(pa.string()))
EVENT, COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"


def new_table(**options: Any) -> Table:
    return a_table(schema=SCHEMA, **options)


@dataclass(frozen=True)
class Row:
    """One row of input. ``v`` distinguishes it from all others."""

    id: str
    ts: float | None
    v: int
    deleted: bool | None = False


def batch(rows: Sequence[Row]) -> pa.Table:
    listed = [
        {"id": r.id, "ts": r.ts, "v": r.v, "_hoodie_is_deleted": r.deleted, "tags": [r.id] * (r.v % 3)} for r in rows
    ]
    return pa.Table.from_pylist(listed, SCHEMA)


# --- the rules themselves ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ordering", "kept"),
    [
        (None, 3),
        ([1.0, 3.0, 2.0, 0.0], 1),
        ([1.0, 3.0, 3.0, 0.0], 2),
        ([None, None, None, None], 3),
        ([None, -math.inf, None, None], 1),
        ([NAN, math.inf, 1.0, None], 0),
        ([NAN, math.inf, NAN, None], 2),
        ([0.0, -0.0, None, None], 1),
    ],
)
def test_newest_of_four_duplicates_is_stored(ordering: list[float | None] | None, kept: int) -> None:
    keys = pa.chunked_array([["k", "k"], ["other"], [], ["k", "k"]])
    values = None
    if ordering is not None:
        values = pa.chunked_array([[*ordering[:2], 99.0], ordering[2:]], pa.float64())
    winners = latest_rows(keys, () if values is None else [values])
    assert winners is not None
    at = [0, 1, 3, 4][kept]
    assert winners.tolist() == sorted([at, 2])


@pytest.mark.parametrize("keys", [[], [[]], [["a"]], [["a", "b"], ["c"]]])
def test_distinct_keys_are_all_kept(keys: list[list[str]]) -> None:
    assert latest_rows(pa.chunked_array(keys, pa.string()), ()) is None


@pytest.mark.parametrize(
    ("stored", "incoming", "stays"),
    [
        (2.0, 1.0, True),
        (1.0, 1.0, False),
        (1.0, 2.0, False),
        (1.0, None, True),
        (None, 1.0, False),
        (None, None, False),
        (NAN, 1.0, True),
        (NAN, math.inf, True),
        (NAN, NAN, False),
        (NAN, None, True),
        (1.0, NAN, False),
        (None, NAN, False),
        (0.0, -0.0, False),
    ],
)
def test_the_stored_row_stays_only_if_it_is_newer(stored: float | None, incoming: float | None, stays: bool) -> None:
    found = stored_wins(pa.array([stored], pa.float64()), pa.array([incoming], pa.float64()))
    assert found.tolist() == [stays]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b"]),
        pa.array([b"\x00", b"\xff"]),
        pa.array([False, True]),
        pa.array([1, 2], pa.int32()),
        pa.array([1, 2], pa.date32()),
        pa.array([1, 2], pa.timestamp("us", "UTC")),
        pa.array([1, 2]).cast(pa.decimal128(21, 2)),
        pa.array([1, 2], pa.float32()),
    ],
    ids=lambda values: str(values.type),
)
def test_every_orderable_type_decides_the_newer_row(values: pa.Array) -> None:
    assert stored_wins(values, values.take([1, 0])).tolist() == [False, True]
    keys = pa.chunked_array([["k", "k"]])
    winners = latest_rows(keys, [pa.chunked_array([values.take([1, 0])])])
    assert winners is not None
    assert winners.tolist() == [0]


def test_deletes_are_marked_by_true_alone() -> None:
    assert flag_deleted_rows(pa.chunked_array([[True, False, None]]), 3).tolist() == [True, False, False]
    assert np.array_equal(flag_deleted_rows(None, 2), np.zeros(2, bool))


# --- against a list of rows ------------------------------------------------------------------------------


def rank(ts: float | None) -> tuple[int, float]:
    """Return a sort key: null comes before all numbers, NaN after them."""
    if ts is None:
        return (0, 0.0)
    return (2, 0.0) if math.isnan(ts) else (1, ts)


@dataclass
class Model:
    """The expected rows of the table: ``(row, commit time)`` in any order. Inserts may repeat a key."""

    mode: str
    rows: list[tuple[Row, str]] = field(default_factory=list)

    def combined(self, rows: Sequence[Row]) -> dict[str, Row]:
        best: dict[str, Row] = {}
        for row in rows:
            if row.id not in best or rank(row.ts) >= rank(best[row.id].ts):
                best[row.id] = row
        return best

    def write(self, operation: Operation, rows: Sequence[Row], instant: str) -> None:
        if operation is Operation.DELETE:
            self.rows = [(row, at) for row, at in self.rows if row.id not in {gone.id for gone in rows}]
        elif operation is Operation.UPSERT:
            self._upsert(self.combined(rows), instant)
        else:
            self.rows += [(row, instant) for row in rows if not row.deleted]

    def _upsert(self, incoming: dict[str, Row], instant: str) -> None:
        present = {row.id for row, _ in self.rows}
        merged = []
        for stored, at in self.rows:
            new = incoming.get(stored.id)
            if new is None or (self.mode == EVENT and rank(stored.ts) > rank(new.ts)):
                merged.append((stored, at))
            elif not new.deleted:
                merged.append((new, instant))
        fresh = [(row, instant) for key, row in incoming.items() if key not in present and not row.deleted]
        self.rows = merged + fresh

    def contents(self) -> Counter[tuple[Any, ...]]:
        return Counter((row.id, repr(row.ts), row.v, at) for row, at in self.rows)


def contents(rows: Sequence[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], repr(row["ts"]), row["v"], row["_hoodie_commit_time"]) for row in rows)


def but_file(row: dict[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name != "_hoodie_file_name"))


ROWS = st.lists(
    st.tuples(
        st.sampled_from("abcdefg"),
        st.sampled_from([None, NAN, -1.0, 0.0, 1.0, 2.0]),
        st.sampled_from([False, False, False, None, True]),
    ),
    max_size=8,
)
OPERATIONS = st.sampled_from(
    [Operation.UPSERT, Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT, Operation.DELETE]
)


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(OPERATIONS, ROWS), max_size=6),
    st.sampled_from([EVENT, COMMIT]),
    st.sampled_from([0, 100_000_000]),
)
def test_any_writes_follow_the_model(writes: list[tuple[Operation, Any]], mode: str, small_file_limit: int) -> None:
    table = new_table(ordering="ts", merge_mode=mode, **{"hoodie.parquet.small.file.limit": small_file_limit})
    model, numbers = Model(mode), iter(range(10_000))
    before: list[dict[str, Any]] = []
    for operation, values in writes:
        rows = [Row(key, ts, next(numbers), deleted) for key, ts, deleted in values]
        result = table.write(batch(rows), operation)
        model.write(operation, rows, result.instant_time)
        after = table.to_arrow(meta_columns=True).to_pylist()
        assert contents(after) == model.contents()
        assert all(row["tags"] == [row["id"]] * (row["v"] % 3) for row in after)
        sequence = [row["_hoodie_commit_seqno"] for row in after]
        assert len(set(sequence)) == len(sequence)
        assert all(row["_hoodie_commit_seqno"].startswith(row["_hoodie_commit_time"]) for row in after)
        live = {str(file.name) for file in table.snapshot().files}
        assert {row["_hoodie_file_name"] for row in after} <= live
        # Rows of older commits were only copied: only the file name may change.
        copied = Counter(but_file(r) for r in after if r["_hoodie_commit_time"] != result.instant_time)
        assert not copied - Counter(map(but_file, before))
        before = after


# --- cases outside the model ------------------------------------------------------------------------------


def test_an_updated_row_keeps_its_place_and_new_rows_follow() -> None:
    table = new_table()
    table.insert(batch([Row(key, None, 1) for key in "cab"]))
    order = table.to_arrow()["id"].to_pylist()
    table.upsert(batch([Row("x", None, 2), Row("a", None, 2), Row("y", None, 2), Row("c", None, 2)]))
    assert table.to_arrow()["id"].to_pylist()[:3] == order
    assert sorted(table.to_arrow()["id"].to_pylist()[3:]) == ["x", "y"]


def test_delete_needs_no_ordering_value() -> None:
    table = new_table(ordering="ts")
    table.upsert(batch([Row("a", NAN, 1), Row("b", 1.0, 1)]))
    table.delete(pa.table({"id": ["a", "a", "nobody"], "other": [1, 2, 3]}))
    assert table.to_arrow()["id"].to_pylist() == ["b"]


def test_upsert_of_older_rows_only_writes_no_file() -> None:
    table = new_table(ordering="ts")
    table.upsert(batch([Row("a", 2.0, 1)]))
    files = table.snapshot().files
    table.upsert(batch([Row("a", 1.0, 2), Row("nobody", 1.0, 3, deleted=True)]))
    assert table.snapshot().files == files
    assert table.history()[0].files_written == 0


@pytest.mark.parametrize(
    ("operation", "combine", "left"),
    [("insert", False, 4), ("bulk_insert", False, 4), ("insert", True, 2), ("bulk_insert", True, 2)],
)
def test_combine_before_insert_deduplicates_by_ordering_value(operation: str, combine: bool, left: int) -> None:
    table = new_table(ordering="ts", **{"hoodie.combine.before.insert": combine})
    getattr(table, operation)(batch([Row("a", 1.0, 1), Row("a", 2.0, 2), Row("a", 1.0, 3), Row("b", 1.0, 4)]))
    rows = table.to_arrow().to_pylist()
    assert len(rows) == left
    assert {2, 4} <= {row["v"] for row in rows}


def test_one_key_in_two_partitions_is_two_rows() -> None:
    table = new_table(partitionpath="v")
    table.upsert(batch([Row("a", 1.0, 1), Row("a", 1.0, 2)]))
    table.upsert(batch([Row("a", 9.0, 1)]))
    table.delete(pa.table({"id": ["a"], "v": [2]}))
    assert [(r["id"], r["v"], r["ts"]) for r in table.to_arrow().to_pylist()] == [("a", 1, 9.0)]


def test_first_column_that_differs_decides_among_duplicates() -> None:
    keys = pa.chunked_array([["a", "a", "a", "b", "b", "c"]])
    first = pa.chunked_array([[1, 1, 0, None, None, 1]], pa.int64())
    second = pa.chunked_array([["x", "w", "z", None, "", "x"]])
    winners = latest_rows(keys, [first, second])
    assert winners is not None
    assert winners.tolist() == [0, 4, 5]


def test_sequences_compare_as_two_numbers() -> None:
    """Hudi: ``MySqlDebeziumAvroPayload.isCurrentSeqLatest``."""
    ascending = ["0.0", "1.9", "1.10", "001.11", "9.99999", "10.1", "010.2.7", "9223372036854775807.0"]
    texts = sequence_texts(pa.array([None, *ascending]))
    assert texts[0].as_py() is None
    assert texts[1:].to_pylist() == sorted(texts[1:].to_pylist())
    assert len({*texts[1:].to_pylist()}) == len(ascending)
    assert len(sequence_texts(pa.chunked_array([["07.010"], ["7.10"]])).unique()) == 1
