"""The process that runs an exchanged write dies at every one of its calls to storage, including those of its tasks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage, Storage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, Model, Write, copy_of, leftovers, open_at, rows_of
from tests.helpers.local_shuffle import write_shuffled

HUDI_RS_EVERY = 7
WRITES = (Write("upsert", (1, 3, 4, 21, 24), "upserted"), Write("overwrite", (1, 50, 51), "overwritten"))
OPERATIONS = {"upsert": Operation.UPSERT, "overwrite": Operation.INSERT_OVERWRITE_TABLE}


def run(write: Write, storage: Storage) -> None:
    half = len(write.ids) // 2
    write_shuffled(
        open_at(storage, "writer"), [write.rows.slice(0, half), write.rows.slice(half)], OPERATIONS[write.operation]
    )


def grow_old(root: Path) -> None:
    """Make all files old: heartbeats no longer count, and the stage of a dead job can be deleted."""
    patterns = ("*.requested", "*.inflight", ".heartbeat/*", ".lakeformat/**/*")
    for path in [path for pattern in patterns for path in (root / ".hoodie").glob(pattern)]:
        os.utime(path, (1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.operation)
def test_shuffled_write_that_dies_at_any_call_leaves_the_table_before_or_after_it(
    write: Write, mode: Mode, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    after = write.applied(before)
    recording = FaultyStorage(copy_of(path, tmp_path))
    run(write, recording)
    assert rows_of(recording.inner) == after
    assert leftovers(recording.inner) == []
    calls = recording.calls
    for number in (n for n, call in enumerate(calls) if call.changes or (mode is Mode.BEFORE and n % 5 == 0)):
        storage: LocalStorage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            run(write, FaultyStorage(storage, Fault(at(number), mode)))
        seen = rows_of(storage)
        assert seen in (before, after), calls[number]
        grow_old(Path(storage.root))
        NEXT.run(open_at(storage, "next"))
        assert rows_of(storage) == NEXT.applied(seen), calls[number]
        assert leftovers(storage) == [], calls[number]
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(open_at(storage, "reader"))
