"""File sizes: small files are topped up, large ones are left alone, and the limit holds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.index.port import Tagged
from lakeformat.model.files import BaseFile, BaseFileName, FileSlice
from lakeformat.write.workload.buckets import (
    FileSizing,
    assign_to_files,
    derive_file_id,
    split_evenly,
    spread_inserts,
)
from lakeformat.write.workload.small_files import SmallFile
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="string", p="string", v="binary")


def new_table(**options: Any) -> Table:
    return a_table(schema=SCHEMA, partition_by="p", **options)


def rows(start: int, count: int, width: int = 64) -> pa.Table:
    """Return rows that do not compress, so that file sizes can be predicted."""
    random = np.random.default_rng(start)
    values = [random.bytes(width) for _ in range(count)]
    ids = [f"{n:08}" for n in range(start, start + count)]
    return a_batch(SCHEMA, id=ids, p="x", v=values)


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_small_commits_do_not_pile_up_files(operation: str) -> None:
    limits = {"hoodie.parquet.max.file.size": 60_000, "hoodie.parquet.small.file.limit": 40_000}
    table = new_table(**limits)
    for number in range(30):
        getattr(table, operation)(rows(number * 100, 100))
    files = table.snapshot().files
    total = sum(file.size_bytes for file in files)
    assert table.to_arrow(["id"]).num_rows == 3000
    # At most one file is small if all others have been filled at least to the small-file limit.
    assert len(files) <= total // 40_000 + 1
    assert max(file.size_bytes for file in files) < 60_000 * 1.1


def test_without_a_small_file_limit_every_insert_opens_a_file() -> None:
    table = new_table(**{"hoodie.parquet.small.file.limit": 0})
    for number in range(5):
        table.insert(rows(number * 10, 10))
    assert len(table.snapshot().files) == 5


@pytest.mark.parametrize("operation", ["insert", "upsert", "bulk_insert", "overwrite"])
def test_a_large_write_is_cut_at_the_limit(operation: str) -> None:
    table = new_table(**{"hoodie.parquet.max.file.size": 100_000, "hoodie.parquet.small.file.limit": 50_000})
    getattr(table, operation)(rows(0, 5000, width=200))
    sizes = [file.size_bytes for file in table.snapshot().files]
    assert max(sizes) < 100_000 * 1.1
    assert len(sizes) <= sum(sizes) // 50_000 + 1
    assert table.to_arrow(["id"])["id"].unique().to_pylist().__len__() == 5000


def test_upserted_inserts_keep_narrow_key_ranges() -> None:
    table = new_table(**{"hoodie.parquet.max.file.size": 50_000, "hoodie.parquet.small.file.limit": 0})
    shuffled = np.random.default_rng(0).permutation(2000)
    table.upsert(rows(0, 2000).take(pa.array(shuffled)))
    found = table.to_arrow(["id", "_hoodie_file_name"]).group_by("_hoodie_file_name")
    ranges = sorted(
        (row["id_min"], row["id_max"]) for row in found.aggregate([("id", "min"), ("id", "max")]).to_pylist()
    )
    assert len(ranges) > 2
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


# --- the plan --------------------------------------------------------------------------------------------

SIZES = st.integers(0, 2_000)
SIZING = FileSizing(row_bytes=100.0, max_file_bytes=1_000, small_file_bytes=800)


@given(st.integers(0, 10_000), st.lists(SIZES, max_size=8))
def test_every_insert_gets_exactly_one_file(count: int, sizes: list[int]) -> None:
    small = [SmallFile(at, f"f{at}", size) for at, size in enumerate(sizes)]
    shares = spread_inserts(count, small, SIZING)
    assert sum(share.rows for share in shares) == count
    assert all(share.rows > 0 for share in shares)
    topped = [share.small for share in shares if share.small]
    assert len(set(topped)) == len(topped)
    for share in shares:
        size = share.small.size_bytes if share.small else 0
        assert size + share.rows * 100 <= 1_000
    new = [share.rows for share in shares if share.small is None]
    assert not new or (max(new) - min(new) <= 1 and len(new) == -(-sum(new) // 10))


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_split_evenly_makes_even_parts(count: int, most: int) -> None:
    parts = split_evenly(count, most)
    assert sum(parts) == count
    assert all(0 < part <= most for part in parts)


def test_a_row_larger_than_a_file_gets_a_file_of_its_own() -> None:
    shares = spread_inserts(3, [SmallFile(0, "f", 0)], FileSizing(5_000.0, 1_000, 800))
    assert [(share.small, share.rows) for share in shares] == [(None, 1)] * 3


@given(
    st.lists(SIZES, min_size=1, max_size=5),
    st.lists(st.integers(0, 4), max_size=30),
    st.integers(0, 60),
)
def test_assignment_places_every_row_once(sizes: list[int], owners: list[int], new: int) -> None:
    files = [BaseFile("p", BaseFileName(f"f{at}", "0-0-0", "20240101000000000"), size) for at, size in enumerate(sizes)]
    pairs = [(row, owner % len(files)) for row, owner in enumerate(owners)]
    rows, owned_by = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    fresh = np.arange(len(owners), len(owners) + new)
    ids = iter(range(1000))
    slices = [FileSlice(file.group, file.name.instant_time, file) for file in files]
    buckets = assign_to_files("p", slices, Tagged(rows, owned_by, fresh), SIZING, lambda: f"new-{next(ids)}")
    assert len({bucket.file_id for bucket in buckets}) == len(buckets)
    looked_up, inserted = [], []
    for bucket in buckets:
        at = None if bucket.base is None else files.index(bucket.base)
        assert bucket.base is None or bucket.file_id == bucket.base.name.file_id
        looked_up += [(row, at) for row in bucket.rows[: bucket.updates].tolist()]
        inserted += bucket.rows[bucket.updates :].tolist()
    assert sorted(looked_up) == sorted(pairs)
    assert sorted(inserted) == fresh.tolist()


def test_file_ids_are_deterministic() -> None:
    ids = {derive_file_id(f"w{w}", task, index) for w in range(3) for task in range(-1, 3) for index in range(3)}
    assert len(ids) == 36
    assert derive_file_id("w1", 2, 0) in ids
    assert all(BaseFileName.match(f"{id_}_0-0-0_20240101000000000.parquet") for id_ in ids)


def test_every_partition_packs_its_own_files(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p")
    for number in range(4):
        batch = rows(number * 10, 10)
        table.insert(batch.set_column(1, "p", pa.array([f"p{n % 2}" for n in range(10)])))
    assert {p: len(files) for p, files in table.snapshot().by_partition.items()} == {"p0": 1, "p1": 1}
