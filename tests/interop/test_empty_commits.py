"""Void commits, by which lakeformat takes back a commit on object stores, in tables that Apache Hudi reads and writes.

The oracle is a dict from record key to row, without the rows of the commit that was taken back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import lakeformat
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.file_system_view.file_index.stored import FOLDER as INDEX
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import encode_void_commit
from tests.helpers.hudi_spark import Hudi
from tests.interop.test_versions_8_and_9 import SCHEMA, Model, assert_all_read, batch, rows_of, strip_meta

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

#: Options with which each write of Hudi cleans and archives as much as Hudi allows.
TIDY: Final = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.enable": "false",
}


def options_of(version: str) -> dict[str, str]:
    ordering = "hoodie.table.ordering.fields" if version == "9" else "hoodie.datasource.write.precombine.field"
    return {"hoodie.write.table.version": version, ordering: "ts", **TIDY}


def make_table(path: Path, version: str, kind: str) -> tuple[lakeformat.Table, str]:
    """Create a table of three commits, of which the last is replaced by an empty one. Return it and that instant."""
    table = lakeformat.create(
        path,
        SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=kind,
        **{"hoodie.write.table.version": version},
    )
    table.upsert(batch(range(8), 1))
    table.upsert(batch(range(4, 12), 2))
    table.upsert(batch(range(2, 14), 3))
    storage, store = table.context.storage, TimelineStore(table.context.storage)
    instant = store.load().commits[-1]
    store.storage.replace(store.path(instant), encode_void_commit(store, store.path(instant), store.read(instant)))
    listing = list_files(storage)
    for file in (*listing.bases, *listing.logs):
        if file.name.instant_time == instant.time:
            storage.delete(file.path)
    storage.delete_folder(INDEX)
    return lakeformat.open(path), instant.time


def changed_rows(hudi: Hudi, path: Path, begin: str) -> list[Any]:
    """Return the keys that Hudi's incremental query finds after an instant."""
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
        "hoodie.metadata.enable": "false",
    }
    return sorted(row["id"] for row in hudi.read(path, options=options).to_pylist())


def active_times(path: Path) -> set[str]:
    timeline = lakeformat.open(path).snapshot().timeline
    return {instant.time for instant in (*timeline.instants, *timeline.voids)}


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("version", ["6", "9"])
def test_hudi_goes_on_with_a_table_that_has_an_empty_commit(
    version: str, kind: str, hudi: Hudi, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table, void = make_table(path, version, kind)
    model: Model = rows_of(range(4), 1) | rows_of(range(4, 12), 2)
    assert_all_read(path, hudi, model)
    assert changed_rows(hudi, path, "000") == sorted(model)
    assert strip_meta(hudi.read(path, as_of=void).to_pylist()) == model
    before = table.snapshot().timeline.commits[-1]

    hudi.write(path, batch(range(3, 6), 4), "upsert", **options_of(version))
    model |= rows_of(range(3, 6), 4)
    assert_all_read(path, hudi, model)
    since = (before.completion_time or before.time) if version == "9" else before.time
    assert changed_rows(hudi, path, since) == [3, 4, 5]
    table.upsert(batch(range(5, 9), 5))
    model |= rows_of(range(5, 9), 5)
    assert_all_read(path, hudi, model)

    ts = 5
    while void in active_times(path):
        ts += 1
        assert ts < 20, "Hudi never archives the empty commit"
        hudi.write(path, batch(range(ts % 4, 9), ts), "upsert", **options_of(version))
        model |= rows_of(range(ts % 4, 9), ts)
    assert ts > 5
    assert_all_read(path, hudi, model)
    names = [entry.name for entry in (path / ".hoodie").rglob("*clean*")]
    assert names, "Hudi has not cleaned"
    table.upsert(batch(range(1, 3), ts + 1))
    assert_all_read(path, hudi, model | rows_of(range(1, 3), ts + 1))
