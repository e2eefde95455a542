"""Log files of archived commits: their blocks still count as committed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Table
from tests.helpers.skipping_tables import Reads
from tests.helpers.tables import NO_PACKING, a_schema, a_table

SCHEMA = a_schema(id="string", ts="int64", v="int64")
ARCHIVES_SOON = {
    "hoodie.cleaner.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.compact.inline": False,
}


def table(**options: Any) -> Table:
    soon = {**NO_PACKING, **ARCHIVES_SOON, **options}
    return a_table(Reads(), schema=SCHEMA, ordering="ts", merge_on_read=True, **soon)


def rows(values: dict[str, tuple[int, int]]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "ts": ts, "v": v} for key, (ts, v) in values.items()], SCHEMA)


@pytest.mark.parametrize("version", [6, 9])
def test_tagging_opens_no_log_file(version: int) -> None:
    found = table(**{"hoodie.write.table.version": version})
    model = {f"k{at}": (0, at) for at in range(20)}
    found.upsert(rows(model))
    reads = found.context.storage
    assert isinstance(reads, Reads)
    for step in range(1, 9):
        changes = {f"k{(step * 3 + at) % 20}": (step, 100 * step + at) for at in range(5)}
        reads.opened.clear()
        found.upsert(rows(changes))
        model |= changes
        assert [path for path in reads.opened if ".log." in path and ".hoodie" not in path] == []
    assert len(found.context.snapshot().timeline.commits) < 6
    read = {row["id"]: (row["ts"], row["v"]) for row in found.to_arrow().to_pylist()}
    assert read == model


@pytest.mark.parametrize("version", [6, 9])
def test_keys_in_old_log_files_only_are_found(version: int) -> None:
    """An upsert inserts the key again while its delete is in the log, both in archived commits."""
    found = table(**{"hoodie.write.table.version": version})
    model = {f"k{at}": (0, at) for at in range(20)}
    found.upsert(rows(model))
    for step in range(1, 9):
        gone = f"k{step}"
        found.delete(pa.table({"id": [gone]}))
        model.pop(gone)
        changes = {f"k{step - 1}": (step, step), f"new{step}": (step, step), "k19": (step, step)}
        found.upsert(rows(changes))
        model |= changes
        read = found.to_arrow().to_pylist()
        assert len(read) == len(model)
        assert {row["id"]: (row["ts"], row["v"]) for row in read} == model
