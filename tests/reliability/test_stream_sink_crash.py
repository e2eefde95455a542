"""The process that writes a stream's batch dies at every one of its calls to storage, and Spark repeats the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.context import TableContext
from lakeformat.spark.streams.writer import STREAM_KEY, LakehouseStreamWriter
from lakeformat.storage import RandomIds, Storage, SystemClock
from tests.helpers.crashing import calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import UPSERT_FIRST, Model, Write, copy_of, grow_old, leftovers, rows_of

SCHEMA = StructType().add("id", LongType()).add("region", StringType()).add("v", StringType())
OPERATIONS = {"overwrite": "insert_overwrite_table"}
BY_STREAM = [case for case in UPSERT_FIRST if case.values[0].operation in {"upsert", "insert", "delete", "overwrite"}]


def send(write: Write, storage: Any, batch: int) -> None:
    """Attempt a batch as Spark does: one writer for the tasks, another for the commit."""
    options = resolve({"hoodie.datasource.write.operation": OPERATIONS.get(write.operation, write.operation)})
    context = TableContext(storage, SystemClock(), RandomIds(), True)
    half = len(write.ids) // 2
    tasks = [write.rows.slice(0, half), write.rows.slice(half)]
    staging = LakehouseStreamWriter(context, options, SCHEMA, False, "feed")
    messages = [staging.stage(iter(rows.to_batches()), "query", at, at) for at, rows in enumerate(tasks)]
    LakehouseStreamWriter(context, options, SCHEMA, False, "feed").commit(messages, batch)


def batches_in(storage: Storage) -> int:
    store = lakeformat.Table(storage).context.store
    return sum(STREAM_KEY in store.read_commit(instant).extra for instant in store.load().commits)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode is Mode.AFTER else pytest.mark.slow) for mode in Mode]
)
@pytest.mark.parametrize("write", BY_STREAM)
def test_stream_batch_counts_once_after_a_crash_at_any_call(
    write: Write, mode: Mode, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    after = write.applied(before)
    recording = FaultyStorage(copy_of(path, tmp_path))
    send(write, recording, 7)
    assert rows_of(recording.inner) == after
    assert leftovers(recording.inner) == []
    for number in (n for n in calls_to_fail(recording.calls, mode) if recording.calls[n].changes or n % 5 == 0):
        storage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            send(write, FaultyStorage(storage, Fault(at(number), mode)), 7)
        assert rows_of(storage) in (before, after), recording.calls[number]
        grow_old(Path(storage.root))
        for _ in range(2):
            send(write, storage, 7)
            assert (rows_of(storage), batches_in(storage)) == (after, 1), recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]
