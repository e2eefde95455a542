"""Positions of a stream, without Spark: late commits, what was cleaned away, and how large a batch is."""

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
from lakeformat.read.stream import BEGINNING, Limits, Offer, StreamPositions, last_of_batch
from lakeformat.spark.streams.reader import make_stream_reader
from lakeformat.spark.types import spark_schema
from tests.helpers.fixture_tables import unpack

OFFERS = [Offer("1", 1, 10), Offer("2", 2, 20), Offer("3", 0, 0), Offer("4", 5, 500), Offer("5", 1, 1)]


@pytest.mark.parametrize(
    ("limits", "kept_from", "end"),
    [
        (Limits(), "", "5"),
        (Limits(commits=2), "", "2"),
        (Limits(files=1), "", "1"),
        (Limits(files=3), "", "3"),
        (Limits(bytes=29), "", "1"),
        (Limits(bytes=5), "", "1"),
        (Limits(commits=4, files=3), "", "3"),
        (Limits(commits=1), "3", "3"),
        (Limits(commits=1), "9", "5"),
    ],
)
def test_a_batch_ends_before_its_limit_and_after_one_commit(limits: Limits, kept_from: str, end: str) -> None:
    assert last_of_batch("0", OFFERS, limits, kept_from) == end


def test_no_offers_are_no_batch() -> None:
    assert last_of_batch("7", [], Limits(commits=1)) == "7"


def positions(table: Table, **options: str) -> StreamPositions:
    return StreamPositions(table.engine, resolve(options))


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": list(keys)})


def test_a_position_never_lies_behind_a_commit_that_may_still_complete(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", rows().cast(pa.schema([("id", pa.string())])).schema, record_key="id")
    assert positions(table).newest() == positions(table).first() == BEGINNING
    first = table.upsert(rows("a")).instant_time
    late = Instant(str(int(first) + 1), Action.COMMIT, State.REQUESTED)
    last = table.upsert(rows("b")).instant_time
    table.engine.store.request(late)
    assert positions(table).newest() == positions(table).next(BEGINNING, Limits()) == first
    assert positions(table).next(first, Limits()) == first
    table.engine.store.erase(late)
    assert positions(table).next(first, Limits()) == last
    assert positions(table).next(BEGINNING, Limits(commits=1)) == first
    assert positions(table).next(BEGINNING, Limits(), until=first) == first
    assert positions(table).next(last, Limits()) == last


def test_commits_that_completed_late_come_when_they_completed(tmp_path: Path) -> None:
    """In Hudi's table the commit with the smaller instant completed last."""
    table = lakeformat.open(unpack("hudi_changes/v9_cow_late_commit", tmp_path))
    found, at = [], BEGINNING
    while (end := positions(table).next(at, Limits(commits=1))) != at:
        found += [set(table.changes(at, end).to_arrow(meta_columns=True)["_hoodie_commit_time"].to_pylist())]
        at = end
    seen = [time for times in found for time in times]
    assert len(seen) == len(set(seen))
    assert seen != sorted(seen)
    assert set(table.changes("000").to_arrow(meta_columns=True)["_hoodie_commit_time"].to_pylist()) <= set(seen)


def test_no_batch_ends_before_what_the_cleaner_has_kept(tmp_path: Path) -> None:
    table = lakeformat.open(unpack("hudi_life/v6_cow_cleaned_archived", tmp_path))
    end = positions(table).next(BEGINNING, Limits(commits=1))
    rows = table.changes("000", end).to_arrow()
    assert rows.num_rows
    assert end > table.history()[-1].instant_time


def test_a_batch_whose_files_were_cleaned_away_gives_what_has_not_changed_since(tmp_path: Path) -> None:
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
