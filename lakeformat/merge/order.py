"""The order of rows with the same key, computed on whole columns: which row wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.bloom import hash_chain
from lakeformat.errors import InvalidInputError

__all__ = [
    "KeyHashes",
    "any_within",
    "field_values",
    "flag_deleted_rows",
    "have_repeats",
    "key_codes",
    "key_hashes",
    "last_of_each",
    "latest_rows",
    "ordering_columns",
    "ordering_ranks",
    "pair_keys",
    "pair_rows",
    "sequence_texts",
    "stored_wins",
    "top_columns",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
KeyHashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def any_within(keys: pa.Array | pa.ChunkedArray, lowest: Any, highest: Any) -> bool:
    """Tell whether any key lies in a range, bounds included, such as the key range of a row group."""
    inside = pc.and_(pc.greater_equal(keys, lowest), pc.less_equal(keys, highest))
    return bool(pc.any(inside, min_count=0).as_py())


def field_values(rows: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
    """Return the values of a column, or of a struct's field given by its path (``a.b``)."""
    if name in rows.schema.names:
        return rows.column(name)
    top, *inner = name.split(".")
    return pc.struct_field(rows.column(top), inner)


def top_columns(fields: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the columns that hold the fields: a field's own name, or that of its struct.

    Args:
        names: the names of all columns.
    """
    return list(dict.fromkeys(name if name in names else name.partition(".")[0] for name in fields))


def ordering_columns(
    rows: pa.Table | pa.RecordBatch, names: Sequence[str], *, is_sequence: bool = False
) -> list[pa.ChunkedArray] | list[pa.Array]:
    """Return the values of the ordering fields, in a form in which the greater value is that of the newer row.

    Args:
        names: the ordering fields: columns, or fields of structs (``a.b``).
        is_sequence: whether they hold the texts of `sequence_texts`.
    """
    columns = [field_values(rows, name) for name in names]
    return [sequence_texts(column) for column in columns] if is_sequence else columns


#: Digits of the greatest number in a text of `sequence_texts` (Java: ``Long.MAX_VALUE``).
_DIGITS: Final = 19


def sequence_texts(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return texts ``file.position`` in a form in which they compare as the two numbers do: 9.10 is less than 10.9.

    Hudi: ``MySqlDebeziumAvroPayload.isCurrentSeqLatest``.

    Raises:
        InvalidInputError: a text does not begin with two such numbers.
    """
    parts = pc.extract_regex(column, r"^0*(?P<file>\d{1,19})\.0*(?P<position>\d{1,19})(?:\..*)?$")
    unknown = pc.and_(pc.is_valid(column), pc.is_null(parts))
    if pc.any(unknown, min_count=0).as_py():
        text = column.filter(unknown)[0].as_py()
        raise InvalidInputError(
            f"the ordering value {text!r} is not the text FILE.POSITION of two numbers, by which the table's "
            "MySqlDebeziumAvroPayload orders rows; correct it"
        )
    file, position = (pc.struct_field(parts, [name]) for name in ("file", "position"))
    return pc.binary_join_element_wise(
        pc.utf8_lpad(file, _DIGITS, "0"), pc.utf8_lpad(position, _DIGITS, "0"), ".", null_handling="emit_null"
    )


def latest_rows(keys: pa.ChunkedArray, ordering: Sequence[pa.ChunkedArray]) -> Ints | None:
    """Return the ascending positions of the winning row of each key; None if every key occurs once.

    The greatest ordering value wins, nulls lose; on a tie, and without ordering, the later row wins (Hudi:
    ``preCombine`` of the payload classes).

    Args:
        ordering: a column for each ordering field; the first that differs decides.
    """
    if not have_repeats([key_hashes(keys)]):  # Codes cost three times as much as hashes.
        return None
    codes = key_codes(keys)
    if codes is None:
        return None
    ranks = ordering_ranks(ordering) if ordering else None
    winners = last_of_each(codes, np.arange(len(codes)), ranks)
    return np.sort(winners[winners >= 0])


def key_hashes(keys: pa.ChunkedArray) -> KeyHashes:
    """Return a hash of 62 bits for each key. Equal keys have equal hashes."""
    first, second = hash_chain(keys, 2)
    hashes: KeyHashes = (first.astype(np.uint64) << np.uint64(32)) | second
    return hashes


def have_repeats(hashes: Sequence[KeyHashes]) -> bool:
    """Tell whether a hash occurs twice. Memory: a copy of the hashes."""
    ordered = np.sort(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
    return bool((ordered[1:] == ordered[:-1]).any())


def key_codes(keys: pa.ChunkedArray) -> Codes | None:
    """Return a code for each row, from 0, equal for equal keys; None if every key occurs once."""
    encoded = pc.dictionary_encode(keys)
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if sum(len(chunk) for chunk in chunks) == (len(chunks[-1].dictionary) if chunks else 0):
        return None
    codes: Codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks])
    return codes


def last_of_each(codes: Codes | Ints, at: Ints, ranks: Ints | None) -> Ints:
    """Return for each code its position with the greatest rank; if ranks are equal, the last of these positions.

    A code that has no position in ``at`` gets -1.

    Args:
        codes: the code of each row, from 0.
        at: ascending positions of the rows to consider.
        ranks: the rank of each row, from 0; None if all are equal.
    """
    last_positions: Ints = np.full(int(codes.max(initial=-1)) + 1, -1)
    if ranks is None:
        last_positions[codes[at]] = at  # numpy assigns in order, so the last position of each code remains.
        return last_positions
    np.maximum.at(last_positions, codes[at], ranks[at] * len(codes) + at)
    return np.where(last_positions < 0, -1, last_positions % max(len(codes), 1))


def ordering_ranks(ordering: Sequence[pa.ChunkedArray]) -> Ints:
    """Return the rank of each row by its ordering values, from 0. Rows with equal values have equal ranks.

    The first field that differs decides. Null is less than everything, NaN greater than everything.
    """
    first, *others = map(_ranks, ordering)
    for ranks in others:
        first = np.unique(first * (len(ranks) + 1) + ranks, return_inverse=True)[1]
    return first


def _ranks(column: pa.ChunkedArray) -> Ints:
    ranks: Ints = np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
    ranks[np.asarray(pc.is_null(column))] = 0
    return ranks


def stored_wins(stored: pa.Array | Sequence[pa.Array], incoming: pa.Array | Sequence[pa.Array]) -> Mask:
    """Tell row by row whether the stored row wins by the event-time rule: only if its ordering value is greater.

    Null is less than everything, NaN greater than everything (Hudi: ``DefaultHoodieRecordPayload``). If there are
    several ordering fields, the first that differs decides.

    Args:
        stored: the ordering values of the stored rows: a column, or a list with a column for each ordering field.
        incoming: those of the incoming rows, with the same types and lengths.
    """
    pairs = list(zip(stored, incoming, strict=True)) if isinstance(stored, Sequence) else [(stored, incoming)]
    wins = _greater(*pairs[-1])
    for own, other in reversed(pairs[:-1]):
        wins = _greater(own, other) | (wins & ~_greater(other, own))
    return wins


def _greater(left: pa.Array, right: pa.Array) -> Mask:
    greater = pc.greater(left, right)
    if kind_of(left.type) is Kind.FLOAT:
        greater = pc.or_(greater, pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right))))
    is_greater = pc.fill_null(greater, False)
    return np.asarray(pc.or_(is_greater, pc.and_(pc.is_valid(left), pc.is_null(right))))


def flag_deleted_rows(flags: Any | None, rows: int) -> Mask:
    """Return a flag per row: whether the ``_hoodie_is_deleted`` column marks it as deleted.

    Args:
        flags: the column; None if there is none, so that no row is deleted.
        rows: number of rows.
    """
    if flags is None:
        return np.zeros(rows, bool)
    return np.asarray(pc.fill_null(flags, False)).astype(bool)


def pair_keys(left: pa.Array, right: pa.Array) -> tuple[Ints, Ints]:
    """Pair equal texts of two columns, as `pair_rows` does with codes. Return the positions on both sides."""
    codes = np.asarray(pa.concat_arrays([left, right]).dictionary_encode().indices).astype(np.int64)
    return pair_rows(codes[: len(left)], codes[len(left) :])


def pair_rows(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Pair equal codes of two arrays, and return the positions of each pair on the left and on the right.

    The first occurrence of a code on the left is paired with its first on the right, the second with the second, and so
    on. Occurrences that are left over have no pair. Positions on the right ascend.

    >>> pair_rows(np.array([7, 5, 7]), np.array([5, 7, 7, 7]))
    (array([1, 0, 2]), array([0, 1, 2]))
    """
    most = max(len(left), len(right), 1)
    first, other = (codes * most + _count_earlier_equals(codes) for codes in (left, right))
    _, positions, matches = np.intersect1d(first, other, assume_unique=True, return_indices=True)
    order = np.argsort(matches, kind="stable")
    return positions[order], matches[order]


def _count_earlier_equals(codes: Ints) -> Ints:
    """Return for each element the number of equal codes before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1) != 0)
    counts = np.diff(np.append(starts, len(codes)))
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(starts, counts)
    return numbers
