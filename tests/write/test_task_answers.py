"""The report of a task that appends to buckets to the driver: a line for each log file, for any number of rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import lakeformat
from lakeformat.write.append_session import find_bucket_places
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import append_in_task
from lakeformat.write.intake import plan_job
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", text="string")
BUCKETS = {
    "table_type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 3,
}


def answer_bytes(folder: Path, batches: int) -> int:
    table = lakeformat.create(folder, SCHEMA, record_key="id", **BUCKETS)
    table.insert(batch(0))
    context, snapshot = table.context, table.snapshot()
    options = lakeformat.open(folder, **BUCKETS).options.with_values(**{"hoodie.datasource.write.operation": "upsert"})
    job = plan_job(context.store, snapshot, options, SCHEMA, context.ids)
    places = find_bucket_places(context.storage, job, snapshot)
    assert places is not None
    handles = replace(HandleSettings.of(job, "20990101000000000", SCHEMA), folder="staged")

    def incoming() -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            yield from batch(number).to_batches()

    rows, written = append_in_task(context.storage, job, handles, places, incoming(), 0, 0)
    assert rows == batches * 1000
    assert sum(file.stat.num_writes for file in written) == rows
    assert len(written) == 3
    return len(pickle.dumps(written))


def batch(number: int) -> pa.Table:
    ids = range(number * 1000, (number + 1) * 1000)
    return pa.table([list(ids), [f"text {number} of some length" for _ in ids]], schema=SCHEMA)


def test_task_results_do_not_grow_with_rows(tmp_path: Path) -> None:
    few, many = answer_bytes(tmp_path / "few", 1), answer_bytes(tmp_path / "many", 40)
    assert many < few + 200
    assert many < 8000
