"""Search for the rows that a write refuses: which rows they are, and why.

It runs only after a write's check of all rows has failed. Whole columns are checked by Arrow's kernels. Where only a
failing call shows that a value is bad, the distinct values are halved until each bad value is alone. So the cost grows
with the number of distinct bad values, not with that of rows.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_table, gather
from lakeformat.arrow.python_values import PYTHON_ERRORS
from lakeformat.config.write_options import BAD_ROWS
from lakeformat.errors import InvalidInputError
from lakeformat.keys.partition_paths import partition_paths
from lakeformat.keys.record_keys import mask_missing_keys, record_keys
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.write.rows.key_texts import find_unclear_keys

__all__ = [
    "ASIDE_HINT",
    "CONVERSION_ERRORS",
    "Fault",
    "Reason",
    "find_failing",
    "find_faults",
    "find_first_failing",
    "find_unfit_values",
    "halve",
    "join_faults",
]

#: Last part of the message of an error about single rows.
ASIDE_HINT: Final = f"; {BAD_ROWS}=aside writes the other rows and puts such rows aside"

#: Errors by which a check refuses rows.
_REFUSALS: Final = (InvalidInputError, pa.ArrowInvalid)
#: Errors by which a conversion refuses a Python value.
CONVERSION_ERRORS: Final = (InvalidInputError, ArithmeticError, *PYTHON_ERRORS)

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


class Reason(enum.Enum):
    """Why a row is bad; the values are stored in tables of bad rows."""

    NO_KEY = "no_key"
    UNUSABLE_KEY = "unusable_key"
    UNUSABLE_PARTITION = "unusable_partition"
    UNFIT_VALUE = "unfit_value"
    NULL_VALUE = "null_value"
    DAMAGED_TEXT = "damaged_text"
    DAMAGED_LINE = "damaged_line"
    REPEATED_KEY = "repeated_key"
    STORED_KEY = "stored_key"


@dataclass(frozen=True)
class Fault:
    """Rows that are bad for one reason.

    Attributes:
        column: the column whose values are bad; names of several key columns are joined by commas.
        rows: positions of the rows, in ascending order.
        messages: one message for each of them.
    """

    reason: Reason
    column: str
    rows: Ints
    messages: pa.Array

    @classmethod
    def same(cls, reason: Reason, column: str, rows: Ints, message: str) -> Fault:
        """Return the fault of rows that have the same message."""
        return cls(reason, column, rows, pa.repeat(message, len(rows)))

    def slice(self, start: int, end: int) -> Fault:
        """Return the fault of some of its rows."""
        return Fault(self.reason, self.column, self.rows[start:end], self.messages.slice(start, end - start))

    def at(self, rows: Ints) -> Fault:
        """Return the fault with the positions that its rows have in a larger table, where row ``n`` is ``rows[n]``."""
        return Fault(self.reason, self.column, rows[self.rows], self.messages)


def join_faults(faults: Sequence[Fault], count: int) -> list[Fault]:
    """Return the faults such that no row is in two of them: a row stays in the first.

    Args:
        count: number of rows that were checked.
    """
    is_known, joined = np.zeros(count, bool), list[Fault]()
    for fault in faults:
        kept = np.flatnonzero(~is_known[fault.rows])
        is_known[fault.rows] = True
        if len(kept):
            joined.append(Fault(fault.reason, fault.column, fault.rows[kept], fault.messages.take(pa.array(kept))))
    return joined


def find_faults(rows: pa.Table, schema: pa.Schema, keys: KeySettings, *, has_partitions: bool) -> list[Fault]:
    """Find the rows that the preparation of a write refuses.

    Args:
        rows: input rows that have all key and partition columns.
        schema: the columns to store.
        keys: settings by which record keys and partition paths are made.
        has_partitions: whether the rows have the partition columns.

    Raises:
        InvalidInputError: a column as a whole cannot be written, whatever its rows.
    """
    damaged = list(_find_damaged_texts(rows))
    if damaged:  # Arrow's kernels must not see damaged text.
        is_whole = np.ones(rows.num_rows, bool)
        is_whole[np.concatenate([fault.rows for fault in damaged])] = False
        whole = np.flatnonzero(is_whole)
        others = _find_bad_values(gather(combine_table(rows), whole), schema, keys, has_partitions)
        return join_faults([*damaged, *(fault.at(whole) for fault in others)], rows.num_rows)
    return join_faults(list(_find_bad_values(rows, schema, keys, has_partitions)), rows.num_rows)


def _find_damaged_texts(rows: pa.Table) -> Iterator[Fault]:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
            continue
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):  # Its offsets are broken, so no single row can be read.
                raise InvalidInputError(f"column {name!r} holds damaged values ({error}); correct them") from None
        failing = halve(len(column), partial(_validate, column))
        rows_hit = np.array(sorted(failing), np.int64)
        yield Fault.same(Reason.DAMAGED_TEXT, name, rows_hit, f"column {name!r} holds text that is not UTF-8")


def _validate(column: pa.ChunkedArray, start: int, end: int) -> None:
    column.slice(start, end - start).validate(full=True)


def _find_bad_values(rows: pa.Table, schema: pa.Schema, keys: KeySettings, has_partitions: bool) -> Iterator[Fault]:
    if keys.record_fields:
        yield from _find_bad_keys(rows, keys)
    if has_partitions and keys.kind is not KeyGeneratorKind.NON_PARTITIONED and keys.partition_fields:
        names = [field.name for field in keys.partition_fields]
        yield from find_failing(rows, names, lambda part: partition_paths(part, keys), Reason.UNUSABLE_PARTITION)
    given = set(rows.schema.names)
    for field in schema:
        if field.name in given:
            yield from find_unfit_values(rows.column(field.name), field)


def _find_bad_keys(rows: pa.Table, keys: KeySettings) -> Iterator[Fault]:
    is_missing = mask_missing_keys(rows, keys)
    missing = np.flatnonzero(is_missing)
    column = ",".join(keys.record_fields)
    if len(missing):
        yield Fault.same(Reason.NO_KEY, column, missing, f"record key column {column!r} is null or empty")
    keyed = np.flatnonzero(~is_missing)
    kept = rows.select(_top_columns(rows, keys.record_fields)).take(pa.array(keyed)) if len(missing) else rows
    for fault in find_failing(kept, keys.record_fields, lambda part: record_keys(part, keys), Reason.UNUSABLE_KEY):
        yield fault.at(keyed)
        return  # Only keys of one field can fail, and these are clear.
    for unclear in find_unclear_keys(kept, record_keys(kept, keys), keys):
        message = (
            f"the key field {unclear.field!r} holds {unclear.text!r}, so other values have the same key text in Hudi"
        )
        yield Fault.same(Reason.UNUSABLE_KEY, unclear.field, unclear.rows, message).at(keyed)


def find_unfit_values(column: pa.ChunkedArray, field: pa.Field) -> Iterator[Fault]:
    """Find the values that the column of a table cannot hold.

    Raises:
        SchemaMismatchError: no value of the type fits the column's type.
    """
    name = field.name
    if not field.nullable and column.null_count:
        nulls = np.flatnonzero(column.is_null().to_numpy())
        yield Fault.same(Reason.NULL_VALUE, name, nulls, f"column {name!r} may not be null in this table")
    schema = pa.schema([field.with_nullable(True)])
    rows = pa.table([column], names=[name])
    if _passes(rows, schema):
        return
    changed = _find_changed(column, field.type)
    if (
        changed is not None
        and len(changed)
        and _passes(rows.filter(pa.array(_mask_others(changed, len(column)))), schema)
    ):
        text = f"column {name!r} of type {column.type} does not fit the table's {field.type}"
        yield Fault.same(Reason.UNFIT_VALUE, name, changed, text)
        return
    yield from find_failing(rows, [name], lambda part: conform(part, schema, exact=True), Reason.UNFIT_VALUE)


def _passes(rows: pa.Table, schema: pa.Schema) -> bool:
    try:
        conform(rows, schema, exact=True)
    except InvalidInputError:
        return False
    return True


def _mask_others(positions: Ints, count: int) -> Bools:
    mask = np.ones(count, bool)
    mask[positions] = False
    return mask


def _find_changed(column: pa.ChunkedArray, kind: pa.DataType) -> Ints | None:
    """Return the positions of the values that a cast and a cast back change; None if the types have no such casts."""
    try:
        back = column.cast(kind, safe=False).cast(column.type, safe=False)
        same = pc.fill_null(pc.equal(back, column), True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return np.flatnonzero(~same.to_numpy())


def _top_columns(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """Return the columns that hold these columns or fields of structs, each once."""
    given = set(rows.schema.names)
    return list(dict.fromkeys(name if name in given else name.partition(".")[0] for name in names))


def find_failing(
    rows: pa.Table, names: Sequence[str], check: Callable[[pa.Table], object], reason: Reason
) -> Iterator[Fault]:
    """Find the rows that a check of some columns refuses. Distinct values are checked once.

    Raises:
        InvalidInputError: the check refuses the columns even without rows.
    """
    part = rows.select(_top_columns(rows, names))
    try:
        check(part)
    except _REFUSALS:
        check(part.schema.empty_table())
    else:
        return
    first, owners = _distinct(part)
    chosen = combine_table(part.take(pa.array(first)))

    def check_some(start: int, end: int) -> None:
        # A copy, because a slice of a nested column still has all values of its children.
        check(chosen.take(pa.array(np.arange(start, end))))

    failing = halve(len(first), check_some)
    numbers = np.full(len(first), -1)
    numbers[[*failing]] = np.arange(len(failing))
    of_rows = numbers[owners]
    positions = np.flatnonzero(of_rows >= 0)
    messages = pa.array([*failing.values()], pa.string()).take(pa.array(of_rows[positions]))
    yield Fault(reason, ",".join(names), positions, messages)


def _distinct(rows: pa.Table) -> tuple[Ints, Ints]:
    """Return the positions of the first rows with different values, and for each row the number of the row like it."""
    codes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        try:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Nested values count as different.
            every = np.arange(rows.num_rows)
            return every, every
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1]
    return np.unique(codes, return_index=True, return_inverse=True)[1:]


def halve(
    count: int, check: Callable[[int, int], object], refusals: tuple[type[Exception], ...] = _REFUSALS
) -> dict[int, str]:
    """Call a check with ranges ``start, end`` of ``count`` values. Return the values that it refuses, with messages.

    Args:
        refusals: the errors by which the check refuses a range.
    """
    failing: dict[int, str] = {}
    ranges = [(0, count)] if count else []
    while ranges:
        start, end = ranges.pop()
        try:
            check(start, end)
        except refusals as error:
            if end - start == 1:
                failing[start] = str(error)
            else:
                middle = (start + end) // 2
                ranges += [(start, middle), (middle, end)]
    return dict(sorted(failing.items()))


def find_first_failing(
    count: int, check: Callable[[int, int], object], refusals: tuple[type[Exception], ...]
) -> tuple[int, str] | None:
    """Return the first value that a check refuses, and its message; None if the check refuses only several together.

    Args:
        count, check, refusals: as in `halve`; the check refuses all values together.
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        if _message_of(check, start, middle, refusals) is None:
            start = middle
        else:
            end = middle
    message = _message_of(check, start, end, refusals)
    return None if message is None else (start, message)


def _message_of(
    check: Callable[[int, int], object], start: int, end: int, refusals: tuple[type[Exception], ...]
) -> str | None:
    try:
        check(start, end)
    except refusals as error:
        return str(error)
    return None
