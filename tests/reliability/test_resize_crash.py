"""The process that splits or merges buckets dies at every one of its calls. It is done or undone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from lakeformat.file_system_view.hashing_rings import list_stored_rings, load_rings
from lakeformat.storage import LocalStorage, Storage
from tests.helpers import hudi_rs
from tests.helpers.crashing import assert_well, calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, Model, Write, copy_of, leftovers, make_template, open_at, rows_of

INDEX: Final = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.bucket.index.max.num.buckets": 4,
    "hoodie.bucket.index.min.num.buckets": 1,
}
SPLITS: Final = {**INDEX, "hoodie.parquet.max.file.size": 100}
MERGES: Final = {**INDEX, "hoodie.parquet.max.file.size": 1 << 30}
PAST: Final = (Write("upsert", tuple(range(40)), "first"), Write("upsert", (0, 4, 8, 41), "second"))
HUDI_RS_EVERY: Final = 7


def resize(storage: Storage, options: dict[str, object]) -> None:
    assert not open_at(storage, "clusterer", options).cluster().skipped


def buckets_of(storage: LocalStorage) -> dict[str, int]:
    """Return the number of buckets of each partition. Check that each live file group belongs to one."""
    snapshot = open_at(storage, "reader").snapshot()
    rings = load_rings(storage, snapshot, snapshot.slices)
    for path, pieces in snapshot.slices.items():
        assert {piece.group.file_id for piece in pieces} <= {*rings[path].file_ids}
    return {path: len(ring.nodes) for path, ring in rings.items()}


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param("6", marks=pytest.mark.nightly), "9"])
@pytest.mark.parametrize("options", [SPLITS, MERGES], ids=["splits", "merges"])
@pytest.mark.parametrize("mode", Mode)
def test_resizing_that_dies_is_done_or_undone(
    mode: Mode, options: dict[str, object], version: str, tmp_path: Path
) -> None:
    """The next writer writes to the buckets in force, and nothing of the dead process is left."""
    path, before = make_template(tmp_path, PAST, INDEX, version, "MERGE_ON_READ")
    recording = FaultyStorage(copy_of(path, tmp_path))
    resize(recording, options)
    assert rows_of(recording.inner) == before
    counts = buckets_of(LocalStorage(str(path))), buckets_of(recording.inner)
    assert counts[0] != counts[1]
    for number in calls_to_fail(recording.calls, mode)[:: 4 if mode is Mode.BEFORE else 1]:
        storage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            resize(FaultyStorage(storage, Fault(at(number), mode)), options)
        assert rows_of(storage) == before, recording.calls[number]
        seen = buckets_of(storage)
        assert seen in counts
        NEXT.run(open_at(storage, "next"))
        assert_next(storage, before)
        assert buckets_of(storage) == seen
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(open_at(storage, "reader"))


def assert_next(storage: LocalStorage, before: Model) -> None:
    """Check the table after the next writer: its rows, no leftovers, and only rings of completed commits."""
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []
    assert_well(storage)
    snapshot = open_at(storage, "reader").snapshot()
    for path in snapshot.slices:
        stored = list_stored_rings(storage, path)
        assert stored.times == tuple(reversed(stored.valid_times(snapshot.timeline)))


@pytest.mark.budget(60)
@pytest.mark.slow
def test_plan_whose_run_dies_is_run_again_with_the_same_buckets(tmp_path: Path) -> None:
    path, before = make_template(tmp_path, PAST, INDEX, "9", "MERGE_ON_READ")
    planned = open_at(LocalStorage(str(path)), "planner", SPLITS).schedule_clustering()
    recording = FaultyStorage(copy_of(path, tmp_path))
    open_at(recording, "clusterer").run_clustering()
    done = buckets_of(recording.inner)
    for number in calls_to_fail(recording.calls, Mode.AFTER):
        storage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            open_at(FaultyStorage(storage, Fault(at(number), Mode.AFTER)), "clusterer").run_clustering()
        assert rows_of(storage) == before, recording.calls[number]
        table = open_at(storage, "again")
        table.run_clustering()
        assert table.history()[0].instant_time == planned
        assert rows_of(storage) == before, recording.calls[number]
        assert buckets_of(storage) == done
        NEXT.run(open_at(storage, "next"))
        assert_next(storage, before)
