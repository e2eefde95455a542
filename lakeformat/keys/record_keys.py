"""The record key of every row (Hudi: ``KeyGenUtils.getRecordKey``), and the sequence numbers of rows.

A sequence number (``_hoodie_commit_seqno``) is the text ``<instant>_<task>_<counter>``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.java import java_text
from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.model.keys import KeyGeneratorKind, KeySettings

__all__ = [
    "EMPTY_PLACEHOLDER",
    "GENERATED_KEY",
    "NULL_PLACEHOLDER",
    "GeneratedKeys",
    "field_column",
    "make_seqnos",
    "mask_missing_keys",
    "record_keys",
]

_TEXTS: Final = (pa.string(), pa.large_string())
#: Row ``n`` has the four ASCII digits of the number ``n``, for 0 to 9999.
_LAST_DIGITS: Final = (np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10 + ord("0")).astype(np.uint8)


def make_seqnos(instant_time: str, task: int, first: int, rows: int) -> pa.Array:
    """Return the sequence numbers ``<instant>_<task>_<counter>`` of ``rows`` rows, with counters from ``first`` on.

    >>> make_seqnos("20251120083000123", 0, 9, 2).to_pylist()
    ['20251120083000123_0_9', '20251120083000123_0_10']
    """
    prefix = np.frombuffer(f"{instant_time}_{task}_".encode(), np.uint8)
    parts = [pa.array([], pa.string())]
    start, end = first, first + rows
    while start < end:  # Each round writes the counters that have the same number of digits.
        digits = len(str(start))
        count = min(end, 10**digits) - start
        text = np.empty((count, len(prefix) + digits), np.uint8)
        text[:, : len(prefix)] = prefix
        last = min(digits, 4)
        # Each block has the counters that differ only in their last 4 digits, which are copied from a table.
        for head in range(start // 10_000, (start + count - 1) // 10_000 + 1):
            low, high = max(head * 10_000, start), min((head + 1) * 10_000, start + count)
            block = text[low - start : high - start, len(prefix) :]
            block[:, -last:] = _LAST_DIGITS[low - head * 10_000 : high - head * 10_000, -last:]
            if digits > last:
                block[:, :-last] = np.frombuffer(str(head).encode(), np.uint8)
        ends = np.arange(0, text.size + 1, text.shape[1]).astype(np.int32)
        parts.append(pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text)))
        start += count
    return parts[-1] if len(parts) <= 2 else pa.concat_arrays(parts)


#: The text of a null value in a key of several fields.
NULL_PLACEHOLDER: Final = "__null__"
#: The text of an empty value in a key of several fields.
EMPTY_PLACEHOLDER: Final = "__empty__"

#: Pattern of the keys that Hudi and lakeformat generate for rows without a key: ``<instant>_<task>_<row>``
#: (Hudi: ``AutoRecordGenWrapperKeyGenerator``).
GENERATED_KEY: Final = re.compile(r"\d+_\d+_\d+")


class GeneratedKeys:
    """A generator of keys for rows without keys, for one task of one write: ``<instant>_<task>_<row>``.

    The keys are unique in the table, because no other write has the instant and no other task of the write has the task
    number. A task that runs again makes the same keys, but only one of its attempts is committed.
    """

    def __init__(self, instant_time: str, task: int) -> None:
        self._instant_time, self._task, self._made = instant_time, task, 0

    def take(self, rows: int) -> pa.Array:
        """Return an array with the next ``rows`` keys. No two calls return the same key."""
        first, self._made = self._made, self._made + rows
        return make_seqnos(self._instant_time, self._task, first, rows)


def record_keys(rows: pa.Table | pa.RecordBatch, settings: KeySettings) -> pa.StringArray | pa.ChunkedArray:
    """Return the record key of every row: an array of strings for a batch, a chunked array for a table.

    If there is one key field, the key is the text that Java makes of the field's value (`java_text`); a string column
    is returned without a copy. If there are several, the key is ``f1:v1,f2:v2``. The values are not escaped; a null is
    written as ``__null__`` and an empty value as ``__empty__``. A complex key of one field is ``f1:v1`` if
    ``settings.single_key_prefixed``.

    Raises:
        InvalidInputError: a key is null or empty, or a key field has a type that a key cannot have.
        SchemaMismatchError: a key field is not among the columns.
        InvalidOptionError: the settings name no key field.
    """
    fields = settings.record_fields
    if not fields:
        raise InvalidOptionError("the table has no record key; set hoodie.datasource.write.recordkey.field")
    times = settings.logical_times
    texts = [_format_texts(field_column(rows, name, "record key"), name, logical_times=times) for name in fields]
    if len(fields) == 1:
        _refuse_missing(texts[0], fields[0])
        prefixed = settings.kind is KeyGeneratorKind.COMPLEX and settings.single_key_prefixed
        return _join_texts([f"{fields[0]}:"], texts) if prefixed else texts[0]
    has_empty = [pc.min(pc.binary_length(text)).as_py() == 0 for text in texts]
    if all(text.null_count or empty for text, empty in zip(texts, has_empty, strict=True)):
        missing = _all_missing(texts)
        if pc.any(missing).as_py():
            row = pc.index(missing, True).as_py()
            raise InvalidInputError(
                f"all record key fields ({', '.join(fields)}) are null or empty at row {row}; give each row a key"
            )
    parts = [
        pc.if_else(pc.equal(text, ""), EMPTY_PLACEHOLDER, text) if empty else text
        for text, empty in zip((pc.fill_null(text, NULL_PLACEHOLDER) for text in texts), has_empty, strict=True)
    ]
    prefixes = [f"{',' if index else ''}{name}:" for index, name in enumerate(fields)]
    return _join_texts(prefixes, parts)


def mask_missing_keys(rows: pa.Table, settings: KeySettings) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows without a key: a single key field is null or empty, or each of several fields is."""
    columns = [field_column(rows, name, "record key") for name in settings.record_fields]
    # A value that is neither null nor text has a text, even if Java has none for it.
    texts = [c if c.type in _TEXTS else _mark_values(c) for c in columns]
    mask: npt.NDArray[np.bool_] = _all_missing(texts).to_numpy()
    return mask


def _mark_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a text for each value, and null for null. Values of dictionaries keep their own text."""
    if kind_of(column.type) is Kind.DICTIONARY:
        return column.cast(column.type.value_type).cast(pa.string())
    if kind_of(column.type) is Kind.TEXT:
        return column.cast(pa.string())
    return pc.if_else(column.is_valid(), "value", pa.scalar(None, pa.string()))


def _all_missing(texts: Sequence[pa.StringArray | pa.ChunkedArray]) -> pa.BooleanArray | pa.ChunkedArray:
    """Return a mask of the rows in which each of the texts is null or empty."""
    missing = pc.fill_null(pc.equal(pc.binary_length(texts[0]), 0), True)
    for text in texts[1:]:
        missing = pc.and_(missing, pc.fill_null(pc.equal(pc.binary_length(text), 0), True))
    return missing


def field_column(rows: pa.Table | pa.RecordBatch, name: str, role: str) -> pa.Array | pa.ChunkedArray:
    """Return column ``name`` of ``rows``. If the name is nested (``a.b``), the value is null where a parent is null.

    Args:
        rows: A table or a batch. The column of a table is a chunked array, that of a batch an array.
        name: The column's name, or a path of struct fields joined by dots.
        role: What the column is used for, for error messages: ``record key`` or ``partition``.

    Raises:
        SchemaMismatchError: there is no such column, or more than one.
    """
    if name in rows.schema.names:
        if rows.schema.names.count(name) > 1:
            raise SchemaMismatchError(f"{role} column {name!r} occurs more than once; rename one of them")
        return rows.column(name)
    top, *inner = name.split(".")
    if not inner or rows.schema.names.count(top) != 1:
        raise _missing_column_error(name, role, rows.schema.names)
    column = rows.column(top)
    path = top
    for part in inner:
        children = [field.name for field in column.type] if kind_of(column.type) is Kind.STRUCT else []
        if part not in children:
            raise _missing_column_error(name, role, [f"{path}.{child}" for child in children] or rows.schema.names)
        column = pc.struct_field(column, part)
        path = f"{path}.{part}"
    return column


def _missing_column_error(name: str, role: str, names: list[str]) -> SchemaMismatchError:
    hint = nearest(name, names) or "; add it, or set another " + role
    return SchemaMismatchError(f"{role} column {name!r} is not in the input{hint}")


def _format_texts(
    column: pa.Array | pa.ChunkedArray, name: str, *, logical_times: bool
) -> pa.StringArray | pa.ChunkedArray:
    if column.type in _TEXTS:
        return column
    try:
        if isinstance(column, pa.ChunkedArray):
            chunks = [java_text(chunk, logical_times=logical_times) for chunk in column.chunks]
            return pa.chunked_array(chunks, pa.string())
        return java_text(column, logical_times=logical_times)
    except InvalidInputError as error:
        raise InvalidInputError(f"record key column {name!r}: {error}") from None


def _refuse_missing(keys: pa.StringArray | pa.ChunkedArray, name: str) -> None:
    shortest = pc.min(pc.binary_length(keys)).as_py()
    if keys.null_count:
        what, row = "null", pc.index(pc.is_null(keys), True).as_py()
    elif shortest == 0:
        what, row = "empty", pc.index(keys, pa.scalar("", keys.type)).as_py()
    else:
        return
    raise InvalidInputError(f"record key column {name!r} is {what} at row {row}; give every row a key")


def _join_texts(prefixes: list[str], texts: list[pa.Array]) -> pa.StringArray | pa.ChunkedArray:
    """Return for each row the text ``prefix0 text0 prefix1 text1 ...``, without spaces."""
    texts = [text.cast(pa.string()) for text in texts]
    pieces = [piece for pair in zip(prefixes, texts, strict=True) for piece in pair]
    return pc.binary_join_element_wise(*pieces, "")
