"""Positions of a stream, without Spark: late commits, cleaned commits, and the size of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InstantNotAvailableError, Table
from lakeformat.config.read_options import FULL_SCAN
from lakeformat.config.resolve import resolve
from lakeformat.model.instant import Action, Instant, State
from lakeformat.read.stream import BEGINNING, BatchEnd, BatchLimits, StreamPositions, find_batch_end
from lakeformat.spark.streams.reader import make_stream_reader
from lakeformat.spark.types import spark_schema
from tests.helpers.fixture_tables import unpack

OFFERS = [BatchEnd("1", 1, 10), BatchEnd("2", 2, 20), BatchEnd("3", 0, 0), BatchEnd("4", 5, 500), BatchEnd("5", 1, 1)]


@pytest.mark.parametrize(
    ("limits", "earliest_retained", "end"),
    [
        (BatchLimits(), "", "5"),
        (BatchLimits(commits=2), "", "2"),
        (BatchLimits(files=1), "", "1"),
        (BatchLimits(files=3), "", "3"),
        (BatchLimits(bytes=29), "", "1"),
        (BatchLimits(bytes=5), "", "1"),
        (BatchLimits(commits=4, files=3), "", "3"),
        (BatchLimits(commits=1), "3", "3"),
        (BatchLimits(commits=1), "9", "5"),
    ],
)
def test_a_batch_ends_before_its_limit_and_after_one_commit(
    limits: BatchLimits, earliest_retained: str, end: str
) -> None:
    assert find_batch_end("0", OFFERS, limits, earliest_retained) == end


def test_no_new_commit_makes_no_batch() -> None:
    assert find_batch_end("7", [], BatchLimits(commits=1)) == "7"


def positions(table: Table, **options: str) -> StreamPositions:
    return StreamPositions(table.context, resolve(options))


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": list(keys)})


def test_position_stays_before_a_pending_commit(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", rows().cast(pa.schema([("id", pa.string())])).schema, record_key="id")
    assert positions(table).newest() == positions(table).first() == BEGINNING
    first = table.upsert(rows("a")).instant_time
    late = Instant(str(int(first) + 1), Action.COMMIT, State.REQUESTED)
    last = table.upsert(rows("b")).instant_time
    table.context.store.request(late)
    assert positions(table).newest() == positions(table).next(BEGINNING, BatchLimits()) == first
    assert positions(table).next(first, BatchLimits()) == first
    table.context.store.erase(late)
    assert positions(table).next(first, BatchLimits()) == last
    assert positions(table).next(BEGINNING, BatchLimits(commits=1)) == first
    assert positions(table).next(BEGINNING, BatchLimits(), until=first) == first
    assert positions(table).next(last, BatchLimits()) == last


def test_late_commit_comes_at_its_completion(tmp_path: Path) -> None:
    """In Hudi's table the commit with the smaller instant completed last."""
    table = lakeformat.open(unpack("hudi_changes/v9_cow_late_commit", tmp_path))
    found, at = [], BEGINNING
    while (end := positions(table).next(at, BatchLimits(commits=1))) != at:
        found += [set(table.changes(at, end).to_arrow(meta_columns=True)["_hoodie_commit_time"].to_pylist())]
        at = end
    seen = [time for times in found for time in times]
    assert len(seen) == len(set(seen))
    assert seen != sorted(seen)
    assert set(table.changes("000").to_arrow(meta_columns=True)["_hoodie_commit_time"].to_pylist()) <= set(seen)


def test_first_batch_ends_after_the_oldest_commit_of_the_history(tmp_path: Path) -> None:
    table = lakeformat.open(unpack("hudi_life/v6_cow_cleaned_archived", tmp_path))
    end = positions(table).next(BEGINNING, BatchLimits(commits=1))
    rows = table.changes("000", end).to_arrow()
    assert rows.num_rows
    assert end > table.history()[-1].instant_time


def test_batch_with_cleaned_files_returns_the_rows_still_current(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    first, second = (
        table.upsert(pa.table({"id": ids, "v": [number] * 2}, schema=schema)).instant_time
        for number, ids in enumerate((["a", "b"], ["b", "c"]))
    )
    (old,) = (tmp_path / "t").glob(f"*_{first}.parquet")
    old.unlink()
    options = {"path": str(tmp_path / "t"), "meta_columns": "false"}
    reader = make_stream_reader(options, spark_schema(schema), None)

    def batch(start: str, end: str) -> list[Any]:
        parts = reader.partitions({"instant": start}, {"instant": end})
        return sorted(tuple(row.values()) for part in parts for rows in reader.read(part) for row in rows.to_pylist())

    assert batch(BEGINNING, first) == [("a", 0)]
    assert batch(first, second) == [("b", 1), ("c", 1)]
    strict = make_stream_reader({**options, FULL_SCAN: "false"}, spark_schema(schema), None)
    with pytest.raises(InstantNotAvailableError, match=f"{old.name}.*cleaned away"):
        strict.partitions({"instant": BEGINNING}, {"instant": first})
