"""The limits of the cost of tagging: bytes read and memory held are counted, never time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage import MemoryStorage
from tests.helpers.base_files import POOL, write_file
from tests.helpers.counting import CountingStorage

FILES, ROWS, KEYS = 1_000, 1_000, 100_000


def key_column_bytes(storage: MemoryStorage, files: Sequence[BaseFile]) -> tuple[int, int]:
    """Return the compressed bytes of all key columns, and the bytes of all footers."""
    columns = footers = 0
    for file in files:
        metadata = pq.read_metadata(pa.BufferReader(storage.read(file.path)))
        at = metadata.schema.names.index(RECORD_KEY)
        footers += metadata.serialized_size
        columns += sum(metadata.row_group(g).column(at).total_compressed_size for g in range(metadata.num_row_groups))
    return columns, footers


def keys_of(numbers: Any) -> list[str]:
    return [f"{number:016x}" for number in numbers.tolist()]


@pytest.fixture(scope="module")
def overlapping() -> tuple[CountingStorage, list[BaseFile], list[str]]:
    """Return files whose ranges all overlap, and keys: half of them stored, half of them not."""
    storage, random = CountingStorage(), np.random.default_rng(1)
    numbers = random.permutation(np.unique(random.integers(0, 2**62, FILES * ROWS + 1000)))[: FILES * ROWS]
    held = numbers.reshape(FILES, ROWS)
    files = [write_file(storage, at, keys_of(part)) for at, part in enumerate(held)]
    absent = np.setdiff1d(random.integers(0, 2**62, KEYS // 2), numbers)
    return storage, files, keys_of(random.permutation(np.concatenate([numbers[: KEYS // 2], absent])))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AUTO", "SIMPLE"])
def test_random_keys_over_a_thousand_files_stay_within_memory_and_bytes(
    kind: str, overlapping: tuple[CountingStorage, list[BaseFile], list[str]]
) -> None:
    storage, files, wanted = overlapping
    keys = pa.chunked_array([wanted])
    columns, footers = key_column_bytes(storage, files)
    storage.bytes_read = 0
    usual = pa.default_memory_pool()
    arrow = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(arrow)
    tracemalloc.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            tagged = tag_files(storage, files, keys, TagSettings(kind), pool)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert len(tagged.keys) == KEYS // 2
    assert tagged.files.tolist() == [int(file) for file in tagged.files]
    assert (tagged.keys < len(wanted)).all()
    counts = tagged.counts
    assert counts.after_ranges > 0.9 * KEYS * FILES, "the ranges overlap"
    assert counts.bytes_read <= columns
    assert counts.files_read == FILES
    # Arrow reads up to 64 KB to find a footer, here a whole file: each footer twice, each key column once.
    sizes = sum(min(file.size_bytes, 64 << 10) for file in files)
    assert storage.bytes_read <= columns + footers + 2 * sizes
    # Keys of 16 letters and 4 bytes of offsets; a flag and a position for each stored key. Python's count includes
    # numpy.
    assert arrow.max_memory() < FILES * ROWS * (16 + 4 + 8) + 3 * KEYS * (16 + 4) + 2 * footers
    assert python_peak < FILES * ROWS * 16 + 64 * KEYS + 2 * footers


def test_time_ordered_keys_read_no_file_but_their_own() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, at, keys_of(np.arange(at * 100, at * 100 + 100))) for at in range(50)]
    keys = pa.chunked_array([keys_of(np.arange(4_850, 5_050))])
    for kind in ("AUTO", "BLOOM", "SIMPLE"):
        counts = tag_files(storage, files, keys, TagSettings(kind), POOL).counts
        assert (counts.keys, counts.files, counts.after_ranges) == (200, 50, 150)
        assert counts.files_read <= 2


def test_only_row_groups_with_a_wanted_key_are_read() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, keys_of(np.arange(1_000)), row_group_rows=100)
    metadata = pq.read_metadata(pa.BufferReader(storage.read(file.path)))
    at = metadata.schema.names.index(RECORD_KEY)
    sizes = [metadata.row_group(group).column(at).total_compressed_size for group in range(metadata.num_row_groups)]
    assert len(sizes) == 10
    keys = pa.chunked_array([keys_of(np.array([5, 250, 251, 2_000]))])
    for tree, groups in ((True, [0, 2]), (False, [0, 1, 2])):
        tagged = tag_files(storage, [file], keys, TagSettings("SIMPLE", use_tree=tree), POOL)
        assert sorted(tagged.keys.tolist()) == [0, 1, 2]
        assert tagged.counts.bytes_read == sum(sizes[group] for group in groups)


@pytest.mark.parametrize("tree", [True, False])
def test_row_groups_before_and_behind_all_wanted_keys_are_not_read(tree: bool) -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, keys_of(np.arange(300)), row_group_rows=100)
    metadata = pq.read_metadata(pa.BufferReader(storage.read(file.path)))
    at = metadata.schema.names.index(RECORD_KEY)
    keys = pa.chunked_array([keys_of(np.array([150, 120]))])
    counts = tag_files(storage, [file], keys, TagSettings("SIMPLE", use_tree=tree), POOL).counts
    assert counts.bytes_read == metadata.row_group(1).column(at).total_compressed_size


def test_filter_that_lets_everything_through_is_checked_against_keys() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, at, keys_of(np.arange(at, 2_000, 20)), fpp=0.9999) for at in range(20)]
    keys = pa.chunked_array([keys_of(np.arange(5_000))])
    tagged = tag_files(storage, files, keys, TagSettings("BLOOM", use_ranges=False), POOL)
    assert sorted(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True)) == [(n, n % 20) for n in range(2_000)]
    assert tagged.counts.files_read == 20
