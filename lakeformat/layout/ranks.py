"""Ranks: the share of rows below a value, estimated from a sample. Words: values as sortable integers.

A curve over ranks divides the rows evenly for any distribution of the values. The sample's distinct values are the
boundaries of intervals, and all values in an interval have the same rank: the share of sampled rows below the interval,
plus half the share of the rows in it. So the distance to the next ranks grows with the number of rows in an interval.

Words are unsigned 64-bit integers in the order of the values: null, numbers, NaN. A value is one word or several, most
significant first. Comparing words compares values, and equal values have equal words (-0.0 is 0.0). Texts and binaries
are compared by their first 64 bytes (`TEXT_BYTES`), eight per word. If texts begin with the same 64 bytes, the text of
exactly 64 bytes comes first, and all longer texts count as equal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import OFFSETS, VIEWS, Kind, kind_of
from lakeformat.errors import SchemaMismatchError, nearest

__all__ = [
    "MAXIMUM_BOUNDARIES",
    "TEXT_BYTES",
    "Boundaries",
    "Cells",
    "Ranks",
    "Rows",
    "Word",
    "Words",
    "fit_boundaries",
    "fit_ranks",
    "leaf_column",
    "leaf_type",
    "words_of",
]

Word: TypeAlias = npt.NDArray[np.uint64]
Rows: TypeAlias = npt.NDArray[np.int64]

#: Number of bytes by which texts are compared. If texts begin with the same 64 bytes, the text of exactly 64 bytes
#: comes first, and all longer texts count as equal.
TEXT_BYTES: Final = 64
_TEXT_WORDS: Final = TEXT_BYTES // 8 + 1
_SIGN: Final = np.uint64(1 << 63)
_SAME_BITS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


class Words:
    """The values of one Arrow array as sortable integers, computed on demand.

    A word is an unsigned 64-bit integer. Each value of the array becomes ``count`` words, most significant first:
    values are compared by their first words; if these are equal, by their second words, and so on. A number of up to 64
    bits is one word. A text is nine words: eight with eight bytes of the text each, then its length, capped at 65.

    Attributes:
        count: number of words of each value.
        cut: whether values may be longer than their words. If so, the last word shows which values are.
        valid: a flag for each row that is not null; None if all rows are valid. Words of null rows are undefined.
    """

    def __init__(self, column: pa.Array) -> None:
        column = _decode_column(column)
        self._rows = len(column)
        self.valid: npt.NDArray[np.bool_] | None = np.asarray(pc.is_valid(column)) if column.null_count else None
        self.count, self._make = _make_words(column)
        self.cut = self.count == _TEXT_WORDS

    def __len__(self) -> int:
        return self._rows

    def word(self, at: int, rows: Rows | None = None) -> Word:
        """Return one word of each value: an array with an integer per row.

        Args:
            at: index of the word within each value, from 0 (most significant) to ``count - 1``.
            rows: row numbers of the values; None for all rows.
        """
        return self._make(at, rows)

    def complete(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return a flag for each of these rows: whether the sortable integers contain the whole value."""
        whole: npt.NDArray[np.bool_] = self.word(self.count - 1, rows) <= TEXT_BYTES
        return whole if self.cut else np.ones(len(rows), bool)


def words_of(column: pa.Array | pa.ChunkedArray) -> Words:
    """Return the values of a column as sortable integers. Raise `SchemaMismatchError` if its type has no order."""
    return Words(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def leaf_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column or of a struct's field (``a.b``).

    Raises:
        SchemaMismatchError: there is no such column, or its type has no order.
    """
    of = schema.empty_table()
    kind = leaf_column(of, name).type
    words_of(pa.array([], kind))
    return kind


def leaf_column(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column by name, or a struct's field by its path (``a.b``); null if a parent is null.

    Raises:
        SchemaMismatchError: there is no such column.
    """
    if name in rows.schema.names:
        return rows.column(name)
    top, *inner = name.split(".")
    if not inner or top not in rows.schema.names:
        raise _missing_column(name, rows.schema.names)
    column = rows.column(top)
    for part in inner:
        children = [field.name for field in column.type] if kind_of(column.type) is Kind.STRUCT else []
        if part not in children:
            raise _missing_column(name, children)
        column = pc.struct_field(column, part)
    return column


def _missing_column(name: str, names: list[str]) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"the layout column {name!r} is not among the columns{nearest(name, names)}; name another"
    )


def _decode_column(column: pa.Array) -> pa.Array:
    of = column.type
    if isinstance(of, pa.BaseExtensionType):
        column, of = column.storage, of.storage_type
    if kind_of(of) is Kind.DICTIONARY:
        return _decode_column(column.dictionary_decode())
    if of in VIEWS:
        return column.cast(pa.large_string() if kind_of(of) is Kind.TEXT else pa.large_binary())
    return column


def _make_words(column: pa.Array) -> tuple[int, Callable[[int, Rows | None], Word]]:
    """Return the number of sortable integers (words) per value, and a function that computes one word of some rows."""
    of = column.type
    if kind_of(of) is Kind.NULL:
        return 1, _one_word(np.zeros(len(column), np.uint64))
    if kind_of(of) is Kind.BOOLEAN:
        return 1, _one_word(np.asarray(pc.fill_null(column, False)).astype(np.uint64))
    if kind_of(of) is Kind.FLOAT:
        return 1, _one_word(_floats_to_words(_read_values(column, f"f{of.bit_width // 8}").astype(np.float64)))
    if pa.types.is_unsigned_integer(of):
        return 1, _one_word(_read_values(column, f"u{of.bit_width // 8}").astype(np.uint64))
    if kind_of(of) is Kind.DECIMAL:
        return _decimals_to_words(column)
    if isinstance(of, pa.FixedSizeBinaryType):
        return _texts_to_words(column, np.arange(len(column) + 1, dtype=np.int64) + column.offset, of.byte_width)
    if of in OFFSETS:
        return _texts_to_words(column, _read_offsets(column, OFFSETS[of]), 1)
    if pa.types.is_primitive(of) and of.bit_width in _SAME_BITS:
        return 1, _one_word(_ints_to_words(_read_values(column, _SAME_BITS[of.bit_width])))
    raise SchemaMismatchError(f"a column of type {of} has no order to lay rows out by; name another column")


def _one_word(word: Word) -> Callable[[int, Rows | None], Word]:
    return lambda _, rows: word if rows is None else word[rows]


def _read_values(column: pa.Array, of: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values as stored in memory. Values of null rows are undefined."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), of)
    return np.frombuffer(buffer, of, len(column), column.offset * np.dtype(of).itemsize)


def _ints_to_words(values: npt.NDArray[Any]) -> Word:
    words: Word = values.astype(np.int64).view(np.uint64) ^ _SIGN
    return words


def _floats_to_words(values: npt.NDArray[np.float64]) -> Word:
    clean = values + 0.0  # -0.0 becomes 0.0, so that the two zeros get equal sortable integers.
    clean[np.isnan(values)] = np.nan
    bits = clean.view(np.uint64)
    words: Word = np.where(bits >> np.uint64(63) == 1, ~bits, bits | _SIGN)
    return words


def _decimals_to_words(column: pa.Array) -> tuple[int, Callable[[int, Rows | None], Word]]:
    parts = max(1, column.type.bit_width // 64)
    if column.type.bit_width < 64:
        return 1, _one_word(_ints_to_words(_read_values(column, np.int32)))
    raw = _read_values(column, "<u8") if parts == 1 else _read_decimals(column, parts)
    if parts == 1 or column.type.precision <= 18:  # The low 64 bits contain the whole number.
        return 1, _one_word((raw if parts == 1 else raw[:, 0]).astype(np.uint64) ^ _SIGN)

    def make(number: int, rows: Rows | None) -> Word:
        word = raw[:, parts - 1 - number] if rows is None else raw[rows, parts - 1 - number]
        return (word ^ _SIGN if number == 0 else word).astype(np.uint64)

    return parts, make


def _read_decimals(column: pa.Array, parts: int) -> npt.NDArray[np.uint64]:
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros((len(column), parts), np.uint64)
    raw = np.frombuffer(buffer, "<u8", len(column) * parts, column.offset * parts * 8)
    return raw.reshape(len(column), parts)


def _read_offsets(column: pa.Array, of: type[np.int32] | type[np.int64]) -> npt.NDArray[np.int64]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int64)
    offsets = np.frombuffer(buffer, of, len(column) + 1, column.offset * np.dtype(of).itemsize)
    return offsets.astype(np.int64)


def _texts_to_words(
    column: pa.Array, offsets: npt.NDArray[np.int64], width: int
) -> tuple[int, Callable[[int, Rows | None], Word]]:
    """Return the number of sortable integers (words) per text, and a function that computes one word of some rows.

    Each word is eight bytes of the text, padded with zeros. The last word is the number of bytes, capped at 65.

    Args:
        offsets: start of each text in the data buffer, and the end of the last text, in units of ``width`` bytes.
    """
    starts, lengths = offsets[:-1] * width, (offsets[1:] - offsets[:-1]) * width
    data = column.buffers()[-1]
    first, end = (int(starts.min()), int((starts + lengths).max())) if len(starts) else (0, 0)
    padded = np.zeros(end - first + 8, np.uint8)
    if data is not None and end > first:
        padded[: end - first] = np.frombuffer(data, np.uint8, end - first, first)
    # A view with the eight-byte integer that starts at each byte, so that a word is one look-up.
    runs = np.ndarray((end - first + 1,), ">u8", padded, strides=(1,))

    def make(number: int, rows: Rows | None) -> Word:
        start, length = (starts, lengths) if rows is None else (starts[rows], lengths[rows])
        if number == _TEXT_WORDS - 1:
            word: Word = np.minimum(length, TEXT_BYTES + 1).astype(np.uint64)
            return word
        length_left = np.clip(length - 8 * number, 0, 8)
        letters = runs[np.where(length_left > 0, start - first + 8 * number, 0)].astype(np.uint64)
        blank = ((8 - length_left) * 8).astype(np.uint64)
        # numpy ignores a shift by 64 bits, so shift twice by half of it.
        half = blank >> np.uint64(1)
        rest = blank - half
        masked: Word = letters >> half >> rest << rest << half
        return masked

    return _TEXT_WORDS, make


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("lakeformat.layout reads Arrow's decimals as little-endian words")


#: Maximum number of boundaries of a column. That many fit into a core's cache.
MAXIMUM_BOUNDARIES: Final = 1 << 14

_CELL_BITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Sorted 64-bit integers, whose range is divided into even cells to make searches faster than ``np.searchsorted``.

    Attributes:
        words: the distinct integers, sorted; at most `MAXIMUM_BOUNDARIES`.
        shift: binary logarithm of a cell's width.
        starts: for each cell, the number of integers before it.
        strides: step widths of the binary search within a cell: descending powers of two, whose sum is at least the
            number of integers in the fullest cell.
    """

    words: Word
    shift: np.uint64
    starts: npt.NDArray[np.uint16]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, words: Word) -> Cells:
        """Divide the range of these sorted integers into cells."""
        shift = np.uint64(max(0, int(words[-1] - words[0]).bit_length() - _CELL_BITS))
        counts = np.bincount(((words - words[0]) >> shift).astype(np.int64))
        halves = reversed(range(int(counts.max()).bit_length()))
        return cls(words, shift, (np.cumsum(counts) - counts).astype(np.uint16), tuple(1 << half for half in halves))

    def search(self, wanted: Word) -> Rows:
        """Return for each integer in ``wanted`` the number of integers in ``words`` that are less or equal."""
        words = self.words
        cell = (np.clip(wanted, words[0], words[-1]) - words[0]) >> self.shift
        places = self.starts[cell.astype(np.int64)].astype(np.int64)
        padded = np.append(words, np.full(sum(self.strides), np.iinfo(np.uint64).max, np.uint64))
        for stride in self.strides:  # The search cannot pass the cell's end: what follows is greater than ``wanted``.
            places += (padded[places + (stride - 1)] <= wanted) * np.int64(stride)
        below: Rows = np.minimum(places, len(words))
        return below


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """Distinct values, sorted, as a trie: level ``n`` has the first ``n + 1`` sortable integers (words) of each.

    Attributes:
        first: the keys of the first level, divided into cells for searches.
        levels: for each level the sorted distinct keys. On the first level, a key is the first word. On each further
            level, a key is ``2**32 * p + 2 * w + 1``: ``p`` is the position of the key on the level before, ``w`` the
            position of the word in the level's ``letters``.
        letters: for each level the sorted distinct words.
        starts: for each level and key the number of boundaries that are less than all boundaries with this key. The
            last entry of a level is the number of boundaries.
    """

    first: Cells
    levels: tuple[Word, ...]
    letters: tuple[Word, ...]
    starts: tuple[Rows, ...]

    @property
    def count(self) -> int:
        """Return the number of boundaries."""
        return int(self.starts[0][-1])

    def find(self, words: Words) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Return for each row the number of boundaries that are less or equal, and whether one of them is equal.

        The trie may have only the leading words of the boundaries. A boundary counts as equal if these are equal.
        """
        word = words.word(0)
        below = self.first.search(word)
        equal = self._hits(0, below - 1, word)
        if len(self.levels) == 1:
            return below, equal
        groups = below - equal
        codes = self.starts[0][groups]
        rows, group = np.flatnonzero(equal), groups[equal]
        for level in range(1, len(self.levels)):
            word = words.word(level, rows)
            letter = np.searchsorted(self.letters[level], word)
            is_same = _take_clipped(self.letters[level], letter) == word
            key = (group.astype(np.uint64) << np.uint64(32)) + (2 * letter + is_same).astype(np.uint64)
            groups = np.searchsorted(self.levels[level], key)
            hit = self._hits(level, groups, key)
            codes[rows] = self.starts[level][groups]
            equal[rows] = hit
            rows, group = rows[hit], groups[hit]
        codes[rows] += 1
        return codes, equal

    def _hits(self, level: int, places: Rows, key: Word) -> npt.NDArray[np.bool_]:
        hits: npt.NDArray[np.bool_] = (places >= 0) & (_take_clipped(self.levels[level], places) == key)
        return hits


def _take_clipped(values: Word, positions: Rows) -> Word:
    """Return the values at these positions. A position before the start or after the end gives the nearest value."""
    return values[np.clip(positions, 0, len(values) - 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks of one column's values, estimated from a sample.

    Attributes:
        boundaries: the boundaries of the intervals; None if the sample has no value except nulls.
        codes: the rank of each interval, from 0 to ``2**bits - 1``; the first interval is below all boundaries.
        null_code: the rank of null, below all others.
    """

    boundaries: Boundaries | None
    codes: Word
    null_code: int

    def of(self, words: Words) -> Word:
        """Return the rank of each row's value."""
        if self.boundaries is None:
            codes = np.full(len(words), self.codes[0])
        else:
            codes = self.codes[self.boundaries.find(words)[0]]
        if words.valid is not None:
            codes[~words.valid] = self.null_code
        return codes


def fit_ranks(sample: pa.Array, bits: int) -> Ranks:
    """Return ranks of ``bits`` bits, estimated from the sampled values, nulls included."""
    words = Words(sample)
    rows = _valid_rows(words)
    nulls, total = len(sample) - len(rows), max(1, len(sample))
    if not len(rows):
        return Ranks(None, np.array([(1 << bits) - 1 if nulls else 0], np.uint64), 0)
    columns, counts = _distinct(words, rows)
    chosen, counts = _thin_out(counts)
    boundaries = _build_trie(_drop_equal_words([column[chosen] for column in columns]))
    mass = np.concatenate(([0], counts))  # The interval below the first boundary has no sampled rows.
    middles = (nulls + np.cumsum(mass) - mass / 2) / total
    codes = np.minimum((middles * (1 << bits)).astype(np.uint64), np.uint64((1 << bits) - 1))
    null_code = int(nulls / total / 2 * (1 << bits))
    return Ranks(boundaries, codes, null_code)


def fit_boundaries(sample: pa.Array) -> Boundaries | None:
    """Return a sample's boundaries with all their sortable integers, so that `Boundaries.find` tests equality exactly.

    Return None if the sample has no value except nulls.
    """
    words = Words(sample)
    rows = _valid_rows(words)
    if not len(rows):
        return None
    columns, counts = _distinct(words, rows)
    chosen, _ = _thin_out(counts)
    return _build_trie([column[chosen] for column in columns])


def _valid_rows(words: Words) -> Rows:
    return np.arange(len(words)) if words.valid is None else np.flatnonzero(words.valid)


def _build_trie(columns: Sequence[Word]) -> Boundaries:
    """Build the trie of boundaries.

    Args:
        columns: the words of distinct, sorted values: one array per level.
    """
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
    """Return these rows' distinct values, sorted, as one array per word, and the number of rows of each value."""
    columns = [words.word(number, rows) for number in range(words.count)]
    if len(columns) == 1:
        distinct, counts = np.unique(columns[0], return_counts=True)
        return [distinct], counts
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    changes = np.append(True, np.any([column[1:] != column[:-1] for column in columns], axis=0))
    first = np.flatnonzero(changes)
    return [column[first] for column in columns], np.diff(np.append(first, len(order)))


def _thin_out(counts: Rows) -> tuple[Rows, Rows]:
    """Choose at most `MAXIMUM_BOUNDARIES` of the distinct values as boundaries of intervals.

    If there are more values, choose those that give all intervals about the same number of sampled rows.
    Return the positions of the chosen values, and the number of rows of each interval.
    """
    if len(counts) <= MAXIMUM_BOUNDARIES:
        return np.arange(len(counts)), counts
    before = np.cumsum(counts) - counts
    stripe = before * MAXIMUM_BOUNDARIES // counts.sum()
    chosen = np.flatnonzero(np.append(True, stripe[1:] != stripe[:-1]))
    return chosen, np.add.reduceat(counts, chosen)


def _drop_equal_words(columns: Sequence[Word]) -> list[Word]:
    """Return as many leading words (arrays of integers) as are needed to distinguish all boundaries."""
    same = np.ones(max(0, len(columns[0]) - 1), bool)
    needed = []
    for column in columns:
        needed.append(column)
        same &= column[1:] == column[:-1]
        if not same.any():
            break
    return needed
