"""Ranks: how much of the rows lies below a value, learned from a sample.

A curve over ranks divides the rows evenly whatever the distribution of the values. The sample's distinct values
are the boundaries of intervals; the rank of an interval is the share of sampled rows below its middle. So a value
that many rows have takes as much of the range as it has rows, and lies apart from its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.layout.words import Rows, Word, Words

__all__ = ["MAXIMUM_BOUNDARIES", "Boundaries", "Cells", "Ranks", "fit_boundaries", "fit_ranks"]

#: Boundaries kept of a sample. So many are searched in a core's cache and tell 16,384 stripes of a table apart.
MAXIMUM_BOUNDARIES: Final = 1 << 14

_CELL_BITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Sorted words with their range in even cells, searched several times faster than by numpy's halving.

    Attributes:
        words: distinct, at most `MAXIMUM_BOUNDARIES`.
        shift: log2 of a cell's width.
        starts: for each cell, how many words lie before it.
        strides: how far to look on from there: halves that add up to the words of the fullest cell, or more.
    """

    words: Word
    shift: np.uint64
    starts: npt.NDArray[np.uint16]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, words: Word) -> Cells:
        """Cells of these words."""
        shift = np.uint64(max(0, int(words[-1] - words[0]).bit_length() - _CELL_BITS))
        counts = np.bincount(((words - words[0]) >> shift).astype(np.int64))
        halves = reversed(range(int(counts.max()).bit_length()))
        return cls(words, shift, (np.cumsum(counts) - counts).astype(np.uint16), tuple(1 << half for half in halves))

    def search(self, wanted: Word) -> Rows:
        """As ``np.searchsorted(words, wanted, "right")``."""
        words = self.words
        cell = (np.clip(wanted, words[0], words[-1]) - words[0]) >> self.shift
        found = self.starts[cell.astype(np.int64)].astype(np.int64)
        padded = np.append(words, np.full(sum(self.strides), np.iinfo(np.uint64).max, np.uint64))
        for stride in self.strides:  # Words of later cells are greater: no need to know where this one ends.
            found += (padded[found + (stride - 1)] <= wanted) * np.int64(stride)
        below: Rows = np.minimum(found, len(words))
        return below


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """Distinct values in order, as a trie of words.

    Attributes:
        first: the first level, to be searched.
        levels: per level the sorted distinct keys. On the first they are first words; on each further one a key is
            the position of the key before (times 2**32) and twice the position of its word among ``letters`` plus one.
        letters: per level the sorted distinct words.
        starts: per level, for each key, how many boundaries are less than all that begin like it; then their count.
    """

    first: Cells
    levels: tuple[Word, ...]
    letters: tuple[Word, ...]
    starts: tuple[Rows, ...]

    @property
    def count(self) -> int:
        """How many."""
        return int(self.starts[0][-1])

    def find(self, words: Words) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """For each row how many boundaries are not greater, and whether one of them is equal, as far as levels go."""
        word = words.word(0)
        below = self.first.search(word)
        equal = self._hits(0, below - 1, word)
        if len(self.levels) == 1:
            return below, equal
        at = below - equal
        found = self.starts[0][at]
        rows, group = np.flatnonzero(equal), at[equal]
        for level in range(1, len(self.levels)):
            word = words.word(level, rows)
            letter = np.searchsorted(self.letters[level], word)
            known = _at(self.letters[level], letter) == word
            key = (group.astype(np.uint64) << np.uint64(32)) + (2 * letter + known).astype(np.uint64)
            at = np.searchsorted(self.levels[level], key)
            hit = self._hits(level, at, key)
            found[rows] = self.starts[level][at]
            equal[rows] = hit
            rows, group = rows[hit], at[hit]
        found[rows] += 1
        return found, equal

    def _hits(self, level: int, at: Rows, key: Word) -> npt.NDArray[np.bool_]:
        hits: npt.NDArray[np.bool_] = (at >= 0) & (_at(self.levels[level], at) == key)
        return hits


def _at(values: Word, at: Rows) -> Word:
    """Values at positions that may lie one beyond either end."""
    return values[np.clip(at, 0, len(values) - 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """What a sample tells about one column.

    Attributes:
        boundaries: None if the sample has no value.
        codes: for each interval, from that below all boundaries, its rank: 0 up to ``2**bits - 1``.
        null_code: the rank of null, below all others.
    """

    boundaries: Boundaries | None
    codes: Word
    null_code: int

    def of(self, words: Words) -> Word:
        """The rank of each row."""
        if self.boundaries is None:
            found = np.full(len(words), self.codes[0])
        else:
            found = self.codes[self.boundaries.find(words)[0]]
        if words.valid is not None:
            found[~words.valid] = self.null_code
        return found


def fit_ranks(sample: pa.Array, bits: int) -> Ranks:
    """Ranks of ``bits`` bits from the sampled values, nulls included."""
    words = Words(sample)
    rows = _valid_rows(words)
    nulls, total = len(sample) - len(rows), max(1, len(sample))
    if not len(rows):
        return Ranks(None, np.array([(1 << bits) - 1 if nulls else 0], np.uint64), 0)
    columns, counts = _distinct(words, rows)
    kept, counts = _thinned(counts)
    boundaries = _trie(_needed([column[kept] for column in columns]))
    mass = np.concatenate(([0], counts))  # Nothing sampled lies below the first boundary.
    middles = (nulls + np.cumsum(mass) - mass / 2) / total
    codes = np.minimum((middles * (1 << bits)).astype(np.uint64), np.uint64((1 << bits) - 1))
    null_code = int(nulls / total / 2 * (1 << bits))
    return Ranks(boundaries, codes, null_code)


def fit_boundaries(sample: pa.Array) -> Boundaries | None:
    """Boundaries with all their words, so that equal is equal; None if the sample has no value."""
    words = Words(sample)
    rows = _valid_rows(words)
    if not len(rows):
        return None
    columns, counts = _distinct(words, rows)
    kept, _ = _thinned(counts)
    return _trie([column[kept] for column in columns])


def _valid_rows(words: Words) -> Rows:
    return np.arange(len(words)) if words.valid is None else np.flatnonzero(words.valid)


def _trie(columns: Sequence[Word]) -> Boundaries:
    """Boundaries from their words, which are distinct and in order."""
    size = len(columns[0])
    group = np.zeros(size, np.uint64)
    levels, letters, starts = [], [], []
    for level, column in enumerate(columns):
        letter, place = np.unique(column, return_inverse=True)
        key = column if level == 0 else (group << np.uint64(32)) + (2 * place + 1).astype(np.uint64)
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        levels.append(key[first])
        letters.append(letter)
        starts.append(np.append(first, size))
        group = (np.cumsum(np.append(True, key[1:] != key[:-1])) - 1).astype(np.uint64)
    return Boundaries(Cells.of(levels[0]), tuple(levels), tuple(letters), tuple(starts))


def _distinct(words: Words, rows: Rows) -> tuple[list[Word], Rows]:
    """Distinct values in order, as columns of words, and how many rows have each."""
    columns = [words.word(at, rows) for at in range(words.count)]
    if len(columns) == 1:
        found, counts = np.unique(columns[0], return_counts=True)
        return [found], counts
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    changes = np.append(True, np.any([column[1:] != column[:-1] for column in columns], axis=0))
    first = np.flatnonzero(changes)
    return [column[first] for column in columns], np.diff(np.append(first, len(order)))


def _thinned(counts: Rows) -> tuple[Rows, Rows]:
    """Which distinct values stay boundaries, of about equally many rows each, and the rows of each interval."""
    if len(counts) <= MAXIMUM_BOUNDARIES:
        return np.arange(len(counts)), counts
    before = np.cumsum(counts) - counts
    stripe = before * MAXIMUM_BOUNDARIES // counts.sum()
    kept = np.flatnonzero(np.append(True, stripe[1:] != stripe[:-1]))
    return kept, np.add.reduceat(counts, kept)


def _needed(columns: Sequence[Word]) -> list[Word]:
    """The first words that tell the boundaries apart."""
    same = np.ones(max(0, len(columns[0]) - 1), bool)
    needed = []
    for column in columns:
        needed.append(column)
        same &= column[1:] == column[:-1]
        if not same.any():
            break
    return needed
