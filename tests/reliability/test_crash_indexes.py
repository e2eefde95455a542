"""A writer dies at every one of its calls under a global index, where rows move, and under the bucket index."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.index.bucket import bucket_of
from tests.helpers.crashing import failures_of
from tests.helpers.faulty import MODES, Mode
from tests.helpers.flights import MOVING, Model, Write, copy_of, make_template

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
#: Enough keys for a write that names no index to find the number of buckets.
PAST = (Write("bulk_insert", tuple(range(40)), "first"), Write("upsert", (0, 4, 8, 41), "second"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_while_rows_move(mode: Mode, template: tuple[Path, Model], tmp_path: Path) -> None:
    assert failures_of(MOVING, mode, template, tmp_path) == []


@pytest.fixture(scope="module")
def bucketed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A table of two buckets a partition, and its rows; copy it, never write to it."""
    path, model = make_template(tmp_path_factory.mktemp("bucketed"), PAST, BUCKETS)
    return path, model


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("write", [Write("upsert", (1, 3, 4, 51, 54), "upserted"), Write("insert", (60, 61), "new")])
def test_a_crash_between_buckets(write: Write, mode: Mode, bucketed: tuple[Path, Model], tmp_path: Path) -> None:
    assert failures_of(write, mode, bucketed, tmp_path) == []


def test_the_writes_that_crash_keep_one_file_a_bucket(bucketed: tuple[Path, Model], tmp_path: Path) -> None:
    storage = copy_of(bucketed[0], tmp_path)
    lakeformat.open(storage.root).upsert(Write("upsert", (1, 3, 4, 51, 54), "upserted").rows)
    files = lakeformat.Table(storage).snapshot().files
    assert sorted((file.partition_path, bucket_of(file.name.file_id)) for file in files) == [
        (f"r{part}", bucket) for part in range(3) for bucket in range(2)
    ]
