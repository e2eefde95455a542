"""The data and the harness of the benchmark.

Samples hold the promised rows, and engines end with the computed content.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.engines import ENGINES
from benchmarks.runner import Runner, contradictions
from benchmarks.steps import FIRST_FIVE, LAST_FIVE, LIVE_FILES, select
from benchmarks.workload import KEYS, SAMPLES, Variant, prepare

ROWS = 20_000
STEPS = select({"load", "u1", "d1", "keys", "agg", "u5all", "u50", "inserts50"})


@pytest.mark.nightly
@pytest.mark.parametrize("keys", KEYS)
def test_every_engine_ends_with_the_expected_rows(tmp_path: Path, keys: str) -> None:
    dataset = prepare(tmp_path, Variant(ROWS, keys))
    runner = Runner(dataset, tmp_path / "engines", warm_bytes=0)
    found = {name: runner.run(ENGINES[name], STEPS) for name in ("floor", "lakeformat")}
    assert [result.failure for result in found.values()] == ["", ""]
    assert contradictions(dataset, found) == []
    inserts = found["lakeformat"].steps["inserts50"]
    assert inserts.answers == [dataset.variant.sample_rows["new"]]
    assert inserts.figures[0].keys() == {FIRST_FIVE, LAST_FIVE, LIVE_FILES}


def test_mixed_keys_are_half_recent_and_half_random(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, Variant(ROWS, "mixed"), ["u1-1"])
    keys = pq.read_table(dataset.sample("u1-1"), columns=["id"])["id"].to_pylist()
    numbers = np.array([int(key[:16], 16) for key in keys])  # Time-ordered keys begin with the row's number.
    near_end = ROWS - 4 * len(dataset.touched("u1-1"))
    assert np.count_nonzero(numbers >= near_end) == pytest.approx(len(numbers) / 2, rel=0.1)
    assert numbers.min() < ROWS / 10


def test_ordering_values_of_a_sample_exceed_all_earlier_values(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, Variant(ROWS))
    before = max(pq.read_table(path, columns=["ts"])["ts"].to_numpy().max() for path in dataset.base_files())
    for sample in SAMPLES:
        ts = pq.read_table(dataset.sample(sample), columns=["ts"])["ts"].to_numpy()
        assert ts.min() > before, sample
        before = ts.max()


def test_prepared_files_are_not_made_twice(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, Variant(ROWS), ["u1-1"])
    made = {path: path.stat().st_mtime_ns for path in dataset.root.glob("*.parquet")}
    prepare(tmp_path, Variant(ROWS), ["u1-1", "d1-1"])
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert dataset.sample("d1-1").exists()
