"""Tagging: which file group does each key of a partition belong to (Hudi: ``HoodieBloomIndex.tagLocation``).

Narrow step by step, never key x file pairs at any length: key ranges over sorted keys, footer filters with one
hash chain per key, then the key column of the files still in question. A key left with one candidate by its
filters needs no check: the merge of that file finds out. Files without ranges or filter stay candidates.

Memory: per block of keys the hash chain (56 bytes a key), the candidate pairs the filters leave, and the key
columns of a few files at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.bloom import hash_chain
from lakeformat.errors import CorruptTableError
from lakeformat.index.footers import KeyFooter, open_parquet, read_footer
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["TagCounts", "TagSettings", "Tagged", "tag_partition"]

Ints = npt.NDArray[np.int64]

#: Keys handled at a time: bounds the hash chain to some 60 MB.
_BLOCK_KEYS: Final = 1 << 20
#: Key-column rows compared at a time.
_BLOCK_ROWS: Final = 1 << 21
#: Testing one key against one filter costs about as much as reading this many keys of a file, measured.
_FILTER_COST_ROWS: Final = 0.4


@dataclass(frozen=True, slots=True)
class TagSettings:
    """How to narrow. ``kind`` is AUTO, BLOOM or SIMPLE; ``use_ranges`` Hudi's prune.by.ranges switch."""

    kind: str = "AUTO"
    use_ranges: bool = True


@dataclass(slots=True)
class TagCounts:
    """What each narrowing step left over, for the report."""

    keys: int = 0
    files: int = 0
    after_ranges: int = 0
    after_filters: int = 0
    files_read: int = 0
    bytes_read: int = 0
    false_positives: int = 0

    def add(self, other: TagCounts) -> None:
        """Sum up, partition by partition."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))


@dataclass(frozen=True)
class Tagged:
    """Where the keys of one partition are.

    Attributes:
        keys: positions of keys that have a file, one entry per (key, file) pair.
        files: for each entry the position of the file among the partition's files.
        new: positions of keys that no file holds, in key order.
    """

    keys: Ints
    files: Ints
    new: Ints
    counts: TagCounts = field(default_factory=TagCounts)


def tag_partition(
    storage: Storage,
    files: Sequence[BaseFile],
    keys: pa.ChunkedArray,
    settings: TagSettings,
    pool: Executor,
) -> Tagged:
    """Locate distinct keys among the live files of their partition."""
    order, footers = _sorted(keys), list(pool.map(lambda file: read_footer(storage, file), files))
    counts = TagCounts(keys=len(keys), files=len(files))
    found: list[tuple[Ints, Ints]] = []
    for start in range(0, len(order), _BLOCK_KEYS):
        block = order[start : start + _BLOCK_KEYS]
        pairs = _Block(storage, footers, keys.take(pa.array(block)), settings, counts, pool).pairs()
        found += [(block[at], np.full(len(at), file, np.int64)) for file, at in pairs.items() if len(at)]
    located = np.concatenate([at for at, _ in found]) if found else np.empty(0, np.int64)
    in_files = np.concatenate([file for _, file in found]) if found else np.empty(0, np.int64)
    is_new = np.ones(len(keys), bool)
    is_new[located] = False
    return Tagged(located, in_files, order[is_new[order]], counts)


def _sorted(keys: pa.ChunkedArray) -> Ints:
    order: Ints = np.asarray(pc.sort_indices(keys)).astype(np.int64)
    return order


class _Block:
    """A million sorted keys against all files of the partition."""

    def __init__(
        self,
        storage: Storage,
        footers: Sequence[KeyFooter],
        keys: pa.ChunkedArray,
        settings: TagSettings,
        counts: TagCounts,
        pool: Executor,
    ) -> None:
        self.pool = pool
        self.storage, self.footers, self.settings, self.counts = storage, footers, settings, counts
        self.keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys

    def pairs(self) -> Mapping[int, Ints]:
        """File -> positions of the block's keys in it."""
        low, high = self._ranges()
        spans = high - low
        self.counts.after_ranges += int(spans.sum())
        by_filter, unfiltered = self._filter(low, high)
        self.counts.after_filters += sum(map(len, by_filter.values())) + int(spans[unfiltered].sum())
        to_read = self._in_question(by_filter, unfiltered, low, high)
        exact = self._read(to_read, low, high)
        for file in to_read:
            if file in by_filter:
                self.counts.false_positives += len(np.setdiff1d(by_filter[file], exact[file], assume_unique=True))
        return {**by_filter, **exact}

    def _ranges(self) -> tuple[Ints, Ints]:
        """Per file the slice of sorted keys its range lets through; all keys where it has no range."""
        total = len(self.keys)
        low, high = np.zeros(len(self.footers), np.int64), np.full(len(self.footers), total, np.int64)
        for at, footer in enumerate(self.footers):
            if footer.rows == 0:
                high[at] = 0
        bounded = [
            at for at, f in enumerate(self.footers) if self.settings.use_ranges and f.rows and f.minimum is not None
        ]
        if not bounded:
            return low, high
        minima = pa.array([self.footers[at].minimum for at in bounded], self.keys.type)
        maxima = pa.array([self.footers[at].maximum for at in bounded], self.keys.type)
        # A stable sort puts equal minima before the keys and equal maxima behind them: bounds are inclusive.
        order = np.asarray(pc.sort_indices(pa.concat_arrays([minima, self.keys, maxima])))
        n = len(bounded)
        is_key = (order >= n) & (order < n + total)
        before = np.cumsum(is_key) - is_key
        place = np.empty(len(order), np.int64)
        place[order] = before
        low[bounded], high[bounded] = place[:n], np.maximum(place[n + total :], place[:n])
        return low, high

    def _filter(self, low: Ints, high: Ints) -> tuple[dict[int, Ints], list[int]]:
        """Candidates by filter, and the files whose keys must be read instead."""
        chosen: dict[int, Ints] = {}
        unfiltered: list[int] = []
        chain: npt.NDArray[np.uint32] | None = None
        for file in np.flatnonzero(high > low).tolist():
            footer, span = self.footers[file], int(high[file] - low[file])
            bloom = footer.bloom() if self._worth_filtering(span, footer.rows) else None
            if bloom is None:
                unfiltered.append(file)
                continue
            if chain is None or len(chain) < bloom.hashes:
                chain = hash_chain(self.keys, bloom.hashes)
            among = np.arange(low[file], high[file])
            chosen[file] = among[bloom.might_contain(chain, among)]
        return chosen, unfiltered

    def _worth_filtering(self, span: int, rows: int) -> bool:
        if self.settings.kind == "AUTO":
            return span * _FILTER_COST_ROWS <= rows
        return self.settings.kind == "BLOOM"

    def _in_question(
        self, by_filter: Mapping[int, Ints], unfiltered: Sequence[int], low: Ints, high: Ints
    ) -> list[int]:
        """Files whose key column must be read: those unfiltered, and those that share a key with another."""
        seen = np.zeros(len(self.keys) + 1, np.int32)
        for file in unfiltered:  # A range is a span: count its ends, then sum up.
            seen[low[file]] += 1
            seen[high[file]] -= 1
        candidates = np.cumsum(seen)[:-1]
        for at in by_filter.values():
            candidates[at] += 1
        shared = [file for file, at in by_filter.items() if len(at) and (candidates[at] > 1).any()]
        return sorted([*unfiltered, *shared])

    def _read(self, files: Sequence[int], low: Ints, high: Ints) -> dict[int, Ints]:
        """Exact positions of the block's keys in each of the files."""
        found: dict[int, Ints] = {file: np.empty(0, np.int64) for file in files}
        for batch in _batches(files, lambda file: self.footers[file].rows):
            start, stop = int(min(low[file] for file in batch)), int(max(high[file] for file in batch))
            wanted = self.keys.slice(start, stop - start)
            stored = self._key_columns(batch)
            matches = pc.index_in(stored, value_set=wanted)
            is_hit = np.asarray(pc.is_valid(matches))
            at = np.asarray(matches.drop_null()).astype(np.int64) + start
            owner = np.repeat(batch, [self.footers[file].rows for file in batch])[is_hit]
            for file in batch:
                found[file] = np.unique(at[owner == file])
        return found

    def _key_columns(self, files: Sequence[int]) -> pa.ChunkedArray:
        bases = [self.footers[file].file for file in files]
        chunks: list[pa.Array] = []
        read = self.pool.map(lambda base: read_keys(self.storage, base), bases)
        for file, (column, size_bytes) in zip(files, read, strict=True):
            if len(column) != self.footers[file].rows:
                raise CorruptTableError(
                    f"{self.footers[file].file.path} lost rows while it was read; restore it from a copy"
                )
            self.counts.files_read += 1
            self.counts.bytes_read += size_bytes
            chunks += column.chunks
        return pa.chunked_array(chunks, pa.string())


def read_keys(storage: Storage, file: BaseFile) -> tuple[pa.ChunkedArray, int]:
    """All record keys of a base file in row order, and the compressed bytes read for them."""
    with storage.open_input(file.path) as source, open_parquet(source, file.path) as parquet:
        names = parquet.schema_arrow.names
        if RECORD_KEY not in names:
            raise CorruptTableError(f"{file.path} has no column {RECORD_KEY}; restore it from a copy")
        at = [parquet.metadata.row_group(0).column(c).path_in_schema for c in range(parquet.metadata.num_columns)]
        size = sum(
            parquet.metadata.row_group(group).column(at.index(RECORD_KEY)).total_compressed_size
            for group in range(parquet.metadata.num_row_groups)
        )
        try:
            return parquet.read(columns=[RECORD_KEY]).column(0), size
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptTableError(
                f"{file.path} cannot be read ({str(error).splitlines()[0]}); restore it from a copy"
            ) from None


def _batches(files: Sequence[int], rows_of: Callable[[int], int]) -> Iterator[list[int]]:
    """Files in runs whose rows together stay near the bound, at least one each."""
    batch: list[int] = []
    rows = 0
    for file in files:
        if batch and rows + rows_of(file) > _BLOCK_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(file)
        rows += rows_of(file)
    if batch:
        yield batch
