"""Tagging: find the base files that contain given keys, in steps (Hudi: ``HoodieBloomIndex.tagLocation``).

A candidate is a pair of a key and a file that may contain it. Each step leaves fewer candidates: first the files' key
ranges, then the bloom filters in the footers, then the key columns, of which only the row groups whose key range
overlaps are read. The list of all pairs of key and file is never built.

If a file is the only candidate left for its keys, its key column is usually not read: if the file lacks some of the
keys, the merge that rewrites the file detects that and inserts their rows. The column is read if all these keys may be
false positives of the filter, because a file that contains none of the keys would be rewritten for nothing. If a file
has no key range, all keys stay candidates. If a file is not filtered, its key column is always read.

Cost: every footer is read once or twice; every key column at most once, for any number of keys.

Memory, in addition to the keys:

- A sorted copy of the keys; if there are few files, a flag per key and file instead.
- The filter hashes of a million keys, 56 MB.
- Parsed footers, 64 MB.
- 8 bytes per candidate that the filters leave. There are at most as many of these candidates as rows in the files.
- The key columns of two million rows, or of twice as many rows as there are keys if that is more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.bloom import hash_chain
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import KeyFooter, read_key_footers
from lakeformat.files.stored_shape import AS_STORED, StoredShape
from lakeformat.index.port import IndexSettings, Ints, TagCounts, Tagged
from lakeformat.index.stored_filters import StoredFilters, open_stored_filters
from lakeformat.index.stored_keys import KeyColumn, SortedKeys, Wanted, locate_keys, read_keys
from lakeformat.model.files import BaseFile
from lakeformat.storage.port import Storage

__all__ = ["TagSettings", "tag_files", "test_for_any"]

Bools = npt.NDArray[np.bool_]
#: The keys that may be in a file. If the keys are sorted, this is a range of positions (a Python ``slice``), else a
#: flag for each key.
Candidates = slice | Bools

#: If there are at most this many files and at least `TagSettings.many_keys` keys, comparing all keys with each key
#: range is faster than sorting the keys.
_FEW_FILES: Final = 16
#: Measured cost of testing one key in one filter. The unit is the cost of reading one row of a key column.
_TEST_ROWS: Final = 0.4
#: Measured cost of hashing one key, once for all filters. The unit is the cost of reading one row of a key column.
_HASH_ROWS: Final = 0.4
#: Number of bytes of a filter whose decoding costs as much as reading one row of a key column.
_DECODED_BYTES: Final = 64
#: If a file has more candidates than the sum of the expected number of false positives, this many standard deviations
#: of that number, and `_FEW_MISTAKES`, the file is assumed to contain a candidate (wrong for one file in 30,000).
_DEVIATIONS: Final = 4
#: Part of the limit at `_DEVIATIONS`. If hardly any false positives are expected, the rest of the limit is below 1, and
#: a single false positive would exceed it.
_FEW_MISTAKES: Final = 2
#: The cost of reading a key column, as a fraction of the cost of rewriting its file, measured with few columns.
_CHECK_SHARE: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class TagSettings:
    """The settings of `tag_files`.

    Attributes:
        kind: BLOOM uses filters, SIMPLE does not, AUTO uses them if they cost less than reading the key columns.
        use_ranges: whether files are skipped by their key ranges.
        use_tree: whether the keys are sorted and searched for each range. If False, every key is compared with every
            range.
        exact: whether to look up every candidate in the key column.
        many_keys: if there are at least this many keys, and at most `_FEW_FILES` files, the keys are not sorted.
        block_keys: maximum number of keys whose filter hashes are in memory at a time.
        block_rows: number of rows of key columns that are in memory at a time; at least twice the number of keys.
        filters: the filters of the metadata table, which leave files out before any is opened; None to ask none.
        shape: how the keys are made if no file holds them.
    """

    kind: str = "AUTO"
    use_ranges: bool = True
    use_tree: bool = True
    exact: bool = False
    many_keys: int = 1 << 16
    block_keys: int = 1 << 20
    block_rows: int = 1 << 21
    filters: StoredFilters | None = None
    shape: StoredShape = AS_STORED

    @classmethod
    def of(cls, storage: Storage, snapshot: Snapshot, settings: IndexSettings) -> TagSettings:
        """Return the settings of a look-up in files of a snapshot."""
        filters = open_stored_filters(storage, snapshot, settings)
        return cls(
            settings.file_search,
            settings.use_ranges,
            settings.use_tree,
            settings.exact,
            filters=filters,
            shape=snapshot.key_shape,
        )


def tag_files(
    storage: Storage, files: Sequence[BaseFile], keys: pa.ChunkedArray, settings: TagSettings, pool: Executor
) -> Tagged:
    """Find the files that contain distinct keys. ``Tagged.files`` of the result has positions in ``files``.

    Args:
        pool: reads files in parallel; must not be the pool in which this call runs, or it may deadlock.
    """
    if settings.filters is not None:
        near = settings.filters.find_possible_files(files, keys)
        tagged = tag_files(
            storage, [files[number] for number in near.tolist()], keys, replace(settings, filters=None), pool
        )
        counts, left_out = tagged.counts, len(files) - len(near)
        counts = replace(counts, files=len(files), after_ranges=counts.after_ranges + left_out * len(keys))
        return replace(tagged, files=near[tagged.files], counts=counts)
    footers = read_key_footers(storage, files, pool)
    by_list = not settings.use_tree or (len(files) <= _FEW_FILES and len(keys) >= settings.many_keys)
    order = None if by_list else sort_texts(keys)
    narrowing = _Narrowing(storage, footers, keys if order is None else keys.take(pa.array(order)), settings, pool)
    pairs = narrowing.pairs(by_list=by_list)
    empty = [np.empty(0, np.int64)]
    positions = np.concatenate([*pairs.values(), *empty])
    rows = [narrowing.base_rows.get(file, np.full(len(keys_in), -1)) for file, keys_in in pairs.items()]
    base_rows = np.concatenate([*rows, *empty])
    in_files = np.repeat(np.array([*pairs], np.int64), [len(found_in_file) for found_in_file in pairs.values()])
    is_new = np.ones(len(keys), bool)
    is_new[positions] = False
    if order is None:
        new = np.flatnonzero(is_new)
        new = new[sort_texts(keys.take(pa.array(new)))]
    else:
        positions, new = order[positions], order[is_new]
    return Tagged(positions, in_files, new, narrowing.counts, base_rows=base_rows)


class _Narrowing:
    """The steps by which one call of `tag_files` narrows the candidates: pairs of a key and a file that may contain it.

    The position of a key is its index in the constructor's ``keys``. `tag_files` passes them sorted, unless it compares
    all keys with each key range. The number of a file is its index in ``footers``.
    """

    def __init__(
        self,
        storage: Storage,
        footers: Sequence[KeyFooter],
        keys: pa.ChunkedArray,
        settings: TagSettings,
        pool: Executor,
    ) -> None:
        self.storage, self.footers, self.keys, self.settings, self.pool = storage, footers, keys, settings, pool
        footer_bytes = sum(footer.footer_bytes for footer in footers)
        self.counts = TagCounts(keys=len(keys), files=len(footers), footer_bytes=footer_bytes)
        self._sorted: SortedKeys | None = None
        self._candidates: Mapping[int, Candidates] = {}
        self._doubted: Mapping[int, Ints] = {}
        self._mistakes: dict[int, float] = {}
        #: Maps the number of a file whose filter lets too many keys through to the number of those left: they have
        #: passed, or were not tested any more.
        self._too_many: dict[int, int] = {}
        #: Maps a file's number to the row numbers of its keys, in the keys' order; only for files whose keys were read.
        self.base_rows: dict[int, Ints] = {}

    def pairs(self, *, by_list: bool) -> Mapping[int, Ints]:
        """Return a mapping of file number to the positions of the keys that the file contains, by all steps.

        Args:
            by_list: True if the keys are not sorted, so that all keys are compared with each key range.
        """
        self._sorted = None if by_list else SortedKeys(self.keys)
        self._candidates = {
            number: self._find_in_range(footer) for number, footer in enumerate(self.footers) if footer.rows
        }
        spans = {file: _count_candidates(candidates) for file, candidates in self._candidates.items()}
        spans = {file: span for file, span in spans.items() if span}
        self.counts.after_ranges = sum(spans.values())
        chosen, unfiltered = self._filter(spans)
        unexamined = {**{file: spans[file] for file in unfiltered}, **self._too_many}
        self.counts.after_filters = sum(map(len, chosen.values())) + sum(unexamined.values())
        to_read = self._choose_files_to_read(chosen, unfiltered)
        self.counts.checked = sum(len(chosen[file]) if file in chosen else spans[file] for file in to_read)
        exact = self._read(to_read)
        for file in to_read:
            if file in chosen:
                self.counts.false_positives += len(np.setdiff1d(chosen[file], exact[file], assume_unique=True))
            elif file in self._too_many:
                self.counts.false_positives += self._too_many[file] - len(exact[file])
        return {**chosen, **exact}

    def _find_in_range(self, footer: KeyFooter) -> Candidates:
        """Return which keys are in the file's key range; all keys if the file has no range or ranges are not used."""
        low, high = footer.minimum, footer.maximum
        if low is None or high is None or not self.settings.use_ranges:
            return slice(0, len(self.keys))
        if self._sorted is not None:
            return self._sorted.between(low.encode(), high.encode())
        inside = pc.and_(pc.greater_equal(self.keys, low), pc.less_equal(self.keys, high))
        return np.asarray(inside).astype(bool)

    def _filter(self, spans: Mapping[int, int]) -> tuple[dict[int, Ints], list[int]]:
        """Test candidates with the footer filters.

        Return a mapping of file number to the positions of the keys that pass, and the numbers of the files that were
        not filtered.
        """
        worth = self._choose_filtered(spans)
        parts: dict[int, list[Ints]] = {file: [] for file in worth}
        block = self.settings.block_keys
        for start in range(0, len(self.keys) if worth else 0, block):
            keys = self.keys.slice(start, block)
            chain: npt.NDArray[np.uint32] | None = None
            for file in list(parts):
                among = _slice_candidates(self._candidates[file], start, len(keys))
                bloom = self.footers[file].bloom(self.storage) if len(among) else None
                if bloom is None:
                    if len(among):
                        del parts[file]
                    continue
                if chain is None or len(chain) < bloom.hashes:
                    chain = hash_chain(keys, bloom.hashes)
                parts[file].append(among[bloom.might_contain(chain, among)] + start)
                rate = bloom.expected_rate(self.footers[file].rows)
                self._mistakes[file] = self._mistakes.get(file, 0.0) + rate * len(among)
                passed = sum(map(len, parts[file]))
                if passed > self.footers[file].rows:  # Read its key column instead.
                    end = start + len(keys)
                    untested = _slice_candidates(self._candidates[file], end, len(self.keys) - end)
                    self._too_many[file] = passed + len(untested)
                    del parts[file]
        chosen = {file: np.concatenate([np.empty(0, np.int64), *matches]) for file, matches in parts.items()}
        return chosen, [file for file in spans if file not in chosen]

    def _choose_filtered(self, spans: Mapping[int, int]) -> list[int]:
        """Return the ascending numbers of the files whose filter is used, because it saves more than it costs."""
        having = [file for file in spans if self.footers[file].filter_bytes]
        if self.settings.kind != "AUTO":
            return having if self.settings.kind == "BLOOM" else []
        saved = {}
        for file in having:
            footer = self.footers[file]
            saved[file] = footer.rows - _TEST_ROWS * spans[file] - footer.filter_bytes / _DECODED_BYTES
        worth = [file for file in having if saved[file] > 0]
        hashed = min(len(self.keys), sum(spans[file] for file in worth))
        return worth if sum(saved[file] for file in worth) > _HASH_ROWS * hashed else []

    def _choose_files_to_read(self, chosen: Mapping[int, Ints], unfiltered: Sequence[int]) -> list[int]:
        """Return the numbers of the files whose key column must be read.

        If the settings are exact, these are all files with candidates. Otherwise they are:

        - The files that were not filtered.
        - The files with a key that is a candidate of another file as well.
        - The files that `_find_doubtful` returns: all their candidates may be false positives.
        """
        if self.settings.exact:
            return sorted([*unfiltered, *(file for file, own in chosen.items() if len(own))])
        claims = np.zeros(len(self.keys), np.int32)
        for file in unfiltered:
            claims[self._candidates[file]] += 1
        for positions in chosen.values():
            claims[positions] += 1
        shared = {file for file, own in chosen.items() if len(own) and (claims[own] > 1).any()}
        self._doubted = self._find_doubtful(
            {file: own for file, own in chosen.items() if len(own) and file not in shared}
        )
        return sorted([*unfiltered, *shared, *self._doubted])

    def _find_doubtful(self, chosen: Mapping[int, Ints]) -> Mapping[int, Ints]:
        """Return the files whose candidates may all be false positives, with these candidates, if a check is worth it.

        Reading the key column of such a file avoids a rewrite if the file contains none of its candidates. If it
        contains any, the file is rewritten anyway and the reading is wasted. The result is empty except in two cases:

        - At least one false positive is expected for every eight of these files (`_CHECK_SHARE`).
        - There are fewer candidates than an eighth of the keys. Then most keys are new, and the few candidates are
          probably false positives.
        """
        doubted = {}
        for file, positions in chosen.items():
            usual = self._mistakes[file]
            if len(positions) <= usual + _DEVIATIONS * math.sqrt(usual) + _FEW_MISTAKES:
                doubted[file] = positions
        candidates = sum(map(len, chosen.values()))
        expected = sum(self._mistakes.values()) >= _CHECK_SHARE * len(doubted)
        return doubted if expected or candidates < _CHECK_SHARE * len(self.keys) else {}

    def _read(self, files: Sequence[int]) -> dict[int, Ints]:
        """Read the key columns of the files. Return for each file the positions of the keys that it contains."""
        matches: dict[int, Ints] = {}
        # Each batch builds a hash table of all keys and looks up its stored keys there. If a batch has twice as many
        # stored keys as there are keys, building the table costs less than the look-ups.
        most = max(self.settings.block_rows, 2 * len(self.keys))
        for batch in _batch_files(files, lambda file: self.footers[file].rows, most):
            columns = list(self.pool.map(self._read_one, batch))
            self.counts.files_read += sum(column.size_bytes > 0 for column in columns)
            self.counts.bytes_read += sum(column.size_bytes for column in columns)
            for file, (positions, rows) in zip(batch, locate_keys(columns, self.keys), strict=True):
                matches[file], self.base_rows[file] = positions, rows
        return matches

    def _read_one(self, file: int) -> KeyColumn:
        footer = self.footers[file]
        few = self._doubted.get(file)
        may_hold = (
            self._make_candidate_test(self._candidates[file])
            if few is None
            else test_for_any(self.keys.take(pa.array(few)))
        )
        return read_keys(self.storage, footer.file, footer.metadata, may_hold, self.settings.shape)

    def _make_candidate_test(self, candidates: Candidates) -> Wanted:
        """Return a function that tells whether any candidate may lie between two bounds.

        For unsorted keys it compares only the smallest and the greatest candidate.
        """
        if self._sorted is not None and isinstance(candidates, slice):
            keys, first, last = self._sorted, candidates.start, candidates.stop

            def test_sorted(low: bytes, high: bytes) -> bool:
                places = keys.between(low, high, first, last)
                return bool(places.stop > places.start)

            return test_sorted
        selected = self.keys if isinstance(candidates, slice) else self.keys.filter(pa.array(candidates))
        ends = pc.min_max(selected)
        least, greatest = ends["min"].as_py().encode(), ends["max"].as_py().encode()
        return lambda low, high: bool(low <= greatest and least <= high)


def test_for_any(keys: pa.ChunkedArray) -> Wanted:
    """Return a function that tells whether any of these keys lies between two bounds."""
    ordered = sorted(key.encode() for key in keys.to_pylist())

    def holds(low: bytes, high: bytes) -> bool:
        position = bisect_left(ordered, low)
        return position < len(ordered) and ordered[position] <= high

    return holds


def _count_candidates(candidates: Candidates) -> int:
    return candidates.stop - candidates.start if isinstance(candidates, slice) else int(candidates.sum())


def _slice_candidates(candidates: Candidates, start: int, length: int) -> Ints:
    """Return the candidates among the ``length`` keys from ``start`` on, as positions relative to ``start``."""
    if isinstance(candidates, slice):
        return np.arange(max(candidates.start - start, 0), min(candidates.stop - start, length))
    return np.flatnonzero(candidates[start : start + length])


def _batch_files(files: Sequence[int], rows_of: Callable[[int], int], most: int) -> Iterator[list[int]]:
    """Group files into batches of at most ``most`` rows together. A file with more rows is a batch of its own."""
    batch: list[int] = []
    rows = 0
    for file in files:
        if batch and rows + rows_of(file) > most:
            yield batch
            batch, rows = [], 0
        batch.append(file)
        rows += rows_of(file)
    if batch:
        yield batch
