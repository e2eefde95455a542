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
from lakeformat.index.footers import KeyFooter, open_parquet, read_footer, row_batches
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["TagCounts", "TagSettings", "Tagged", "tag_partition"]

Ints = npt.NDArray[np.int64]
#: Positions of keys: a run of sorted keys, or any.
Candidates = slice | Ints

#: Keys handled at a time: bounds the hash chain to some 60 MB.
_BLOCK_KEYS: Final = 1 << 20
#: Key-column rows compared at a time.
_BLOCK_ROWS: Final = 1 << 21
#: For up to this many files comparing all keys with each range beats sorting the keys.
_FEW_FILES: Final = 16
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
    footers = list(pool.map(lambda file: read_footer(storage, file), files))
    counts = TagCounts(keys=len(keys), files=len(files))
    few = len(files) <= _FEW_FILES
    order = np.arange(len(keys)) if few else _sorted(keys)
    found: list[tuple[Ints, Ints]] = []
    for start in range(0, len(order), _BLOCK_KEYS):
        block = order[start : start + _BLOCK_KEYS]
        some = _one_array(keys.slice(start, len(block)) if few else keys.take(pa.array(block)))
        candidates = (_few_candidates if few else _many_candidates)(some, footers, settings.use_ranges)
        pairs = _Block(storage, footers, some, candidates, settings, counts, pool).pairs()
        found += [(block[at], np.full(len(at), file, np.int64)) for file, at in pairs.items() if len(at)]
    located = np.concatenate([at for at, _ in found]) if found else np.empty(0, np.int64)
    in_files = np.concatenate([file for _, file in found]) if found else np.empty(0, np.int64)
    is_new = np.ones(len(keys), bool)
    is_new[located] = False
    new = np.flatnonzero(is_new)
    return Tagged(located, in_files, new[_sorted(keys.take(pa.array(new)))] if few else order[is_new[order]], counts)


def _sorted(keys: pa.ChunkedArray) -> Ints:
    order: Ints = np.asarray(pc.sort_indices(keys)).astype(np.int64)
    return order


def _one_array(keys: pa.ChunkedArray) -> pa.Array:
    return keys.chunk(0) if keys.num_chunks == 1 else keys.combine_chunks()


def _few_candidates(keys: pa.Array, footers: Sequence[KeyFooter], use_ranges: bool) -> list[Candidates]:
    """Per file the positions of keys its range lets through: two comparisons of all keys a file."""
    found: list[Candidates] = []
    for footer in footers:
        if not footer.rows:
            found.append(slice(0, 0))
        elif footer.minimum is None or not use_ranges:
            found.append(slice(0, len(keys)))
        else:
            inside = pc.and_(pc.greater_equal(keys, footer.minimum), pc.less_equal(keys, footer.maximum))
            found.append(np.flatnonzero(np.asarray(inside)))
    return found


def _many_candidates(keys: pa.Array, footers: Sequence[KeyFooter], use_ranges: bool) -> list[Candidates]:
    """Per file the slice of sorted keys its range lets through, by one sort of all keys and ends of ranges."""
    total = len(keys)
    found: list[Candidates] = [slice(0, total if footer.rows else 0) for footer in footers]
    bounded = [at for at, f in enumerate(footers) if use_ranges and f.rows and f.minimum is not None]
    minima = pa.array([footers[at].minimum for at in bounded], keys.type)
    maxima = pa.array([footers[at].maximum for at in bounded], keys.type)
    # A stable sort puts equal minima before the keys and equal maxima behind them: bounds are inclusive.
    order = np.asarray(pc.sort_indices(pa.concat_arrays([minima, keys, maxima])))
    n = len(bounded)
    is_key = (order >= n) & (order < n + total)
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(is_key) - is_key
    for at, low, high in zip(bounded, place[:n].tolist(), place[n + total :].tolist(), strict=True):
        found[at] = slice(low, max(low, high))
    return found


def _count(candidates: Candidates) -> int:
    return candidates.stop - candidates.start if isinstance(candidates, slice) else len(candidates)


class _Block:
    """A million keys at most against all files of the partition."""

    def __init__(
        self,
        storage: Storage,
        footers: Sequence[KeyFooter],
        keys: pa.Array,
        candidates: Sequence[Candidates],
        settings: TagSettings,
        counts: TagCounts,
        pool: Executor,
    ) -> None:
        self.storage, self.footers, self.keys, self.candidates = storage, footers, keys, candidates
        self.settings, self.counts, self.pool = settings, counts, pool

    def pairs(self) -> Mapping[int, Ints]:
        """File -> positions of the block's keys in it."""
        self.counts.after_ranges += sum(map(_count, self.candidates))
        by_filter, unfiltered = self._filter()
        self.counts.after_filters += sum(map(len, by_filter.values()))
        self.counts.after_filters += sum(_count(self.candidates[file]) for file in unfiltered)
        to_read = self._in_question(by_filter, unfiltered)
        exact = self._read(to_read)
        for file in to_read:
            if file in by_filter:
                self.counts.false_positives += len(np.setdiff1d(by_filter[file], exact[file], assume_unique=True))
        return {**by_filter, **exact}

    def _filter(self) -> tuple[dict[int, Ints], list[int]]:
        """Candidates by filter, and the files whose keys must be read instead."""
        chosen: dict[int, Ints] = {}
        unfiltered: list[int] = []
        chain: npt.NDArray[np.uint32] | None = None
        for file, candidates in enumerate(self.candidates):
            if not _count(candidates):
                continue
            footer = self.footers[file]
            bloom = footer.bloom() if self._worth_filtering(_count(candidates), footer.rows) else None
            if bloom is None:
                unfiltered.append(file)
                continue
            if chain is None or len(chain) < bloom.hashes:
                chain = hash_chain(self.keys, bloom.hashes)
            among = np.arange(candidates.start, candidates.stop) if isinstance(candidates, slice) else candidates
            chosen[file] = among[bloom.might_contain(chain, among)]
        return chosen, unfiltered

    def _worth_filtering(self, span: int, rows: int) -> bool:
        if self.settings.kind == "AUTO":
            return span * _FILTER_COST_ROWS <= rows
        return self.settings.kind == "BLOOM"

    def _in_question(self, by_filter: Mapping[int, Ints], unfiltered: Sequence[int]) -> list[int]:
        """Files whose key column must be read: those unfiltered, and those that share a key with another."""
        claims = np.zeros(len(self.keys), np.int32)
        for file in unfiltered:
            claims[self.candidates[file]] += 1
        for at in by_filter.values():
            claims[at] += 1
        shared = [file for file, at in by_filter.items() if len(at) and (claims[at] > 1).any()]
        return sorted([*unfiltered, *shared])

    def _read(self, files: Sequence[int]) -> dict[int, Ints]:
        """Exact positions of the block's keys in each of the files."""
        found: dict[int, Ints] = {file: np.empty(0, np.int64) for file in files}
        for batch in _batches(files, lambda file: self.footers[file].rows):
            matches = pc.index_in(self._key_columns(batch), value_set=self.keys)
            is_hit = np.asarray(pc.is_valid(matches))
            at = np.asarray(matches.drop_null()).astype(np.int64)
            owner = np.repeat(batch, [self.footers[file].rows for file in batch])[is_hit]
            for file in batch:
                found[file] = np.unique(at[owner == file])
        return found

    def _key_columns(self, files: Sequence[int]) -> pa.ChunkedArray:
        bases = [self.footers[file].file for file in files]
        chunks: list[pa.Array] = []
        for column, size_bytes in self.pool.map(lambda base: read_keys(self.storage, base), bases):
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
        batches = row_batches(parquet, file.path, _BLOCK_ROWS, columns=[RECORD_KEY])
        return pa.chunked_array([batch.column(0) for batch in batches], pa.string()), size


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
