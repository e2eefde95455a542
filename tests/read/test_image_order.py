"""The order of a commit's changes: pairs across file groups, doubled keys, and more rows than memory may hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.merge.order import pair_keys
from lakeformat.read.cdc.image_order import order_images
from tests.helpers.tables import a_schema

IMAGE = pa.struct({"id": pa.int64(), "v": pa.string()})
TEXT = pa.string()
SCHEMA = a_schema(key=TEXT, partition=TEXT, op=TEXT, ts_ms=TEXT, before=IMAGE, after=IMAGE)


def images(op: str, ids: list[int], partition: str, value: str) -> pa.RecordBatch:
    rows = [{"id": each, "v": value} for each in ids]
    side = "before" if op == "d" else "after"
    given = [
        {"key": str(each), "partition": partition, "op": op, "ts_ms": "1", side: row}
        for each, row in zip(ids, rows, strict=True)
    ]
    return pa.RecordBatch.from_pylist(given, SCHEMA)


def read_changes(batches: Iterator[pa.RecordBatch]) -> list[tuple[str, str, str | None, str | None]]:
    rows = pa.Table.from_batches(list(batches), SCHEMA).to_pylist()
    values = (tuple(row[side] and row[side]["v"] for side in ("before", "after")) for row in rows)
    return [(row["op"], row["key"], *value) for row, value in zip(rows, values, strict=True)]


def test_insert_pairs_with_the_delete_of_its_own_partition_first() -> None:
    given = [images("i", [1, 1, 2], "a", "new"), images("d", [1, 3], "b", "far"), images("d", [1, 1], "a", "near")]
    assert read_changes(order_images(given, SCHEMA)) == [
        ("d", "1", "far", None),
        ("d", "3", "far", None),
        ("u", "1", "near", "new"),
        ("u", "1", "near", "new"),
        ("i", "2", None, "new"),
    ]


def test_key_that_moves_to_another_partition_is_one_update() -> None:
    given = [images("i", [1], "a", "new"), images("u", [2], "a", "set"), images("d", [1, 3], "b", "old")]
    found = [("d", "3", "old", None), ("u", "2", None, "set"), ("u", "1", "old", "new")]
    assert read_changes(order_images(given, SCHEMA)) == found


def test_changes_beyond_the_memory_limit_are_sorted_through_files() -> None:
    count, step, value = 80_000, 10_000, "x" * 1_000

    def batches() -> Iterator[pa.RecordBatch]:
        for op, ids in (("i", range(0, 2 * count, 2)), ("d", range(count))):
            for start in range(0, count, step):
                some = np.array(ids[start : start + step])
                image = pa.StructArray.from_arrays([pa.array(some), pa.repeat(value, step)], fields=list(IMAGE))
                sides = [image, pa.nulls(step, IMAGE)]
                texts = [pa.repeat(text, step) for text in ("p", op, "1")]
                columns = [pa.array(some).cast(TEXT), *texts, *(sides if op == "d" else sides[::-1])]
                yield pa.record_batch(columns, schema=SCHEMA)

    before, most, seen = pa.total_allocated_bytes(), 0, list[pa.Table]()
    for batch in order_images(batches(), SCHEMA):
        most = max(most, pa.total_allocated_bytes() - before)
        seen.append(pa.Table.from_batches([batch]).select(["key", "op"]).combine_chunks())
    assert most < count * len(value)
    found = pa.concat_tables(seen)
    ops = {op: set(map(int, found.filter(pc.equal(found["op"], op))["key"].to_pylist())) for op in "dui"}
    assert ops == {
        "d": set(range(1, count, 2)),
        "u": set(range(0, count, 2)),
        "i": set(range(count, 2 * count, 2)),
    }
    assert found.num_rows == 3 * count // 2


def test_pairs_of_doubled_keys_are_in_order() -> None:
    at, found = pair_keys(pa.array(["b", "a", "b"]), pa.array(["a", "b", "c", "b", "b"]))
    assert (at.tolist(), found.tolist()) == ([1, 0, 2], [0, 1, 3])
