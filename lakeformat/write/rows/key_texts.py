"""Keys of several fields whose text can also be that of other values.

The text of a key is ``f1:v1,f2:v2``, without escapes; null is written ``__null__`` and an empty text ``__empty__``.
So the values ``x,b:y`` and ``z`` have the same text as ``x`` and ``y,b:z``, and Hudi takes their rows for one. Two keys
can have the same text only if a separator comes in it twice, for which a text of a field has a comma, or if a text is
one of the two words. If no field holds such a text, the keys are not searched: other values have no commas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.table_options import UNCLEAR_KEYS
from lakeformat.errors import InvalidInputError
from lakeformat.keys.record_keys import EMPTY_PLACEHOLDER, NULL_PLACEHOLDER, field_column
from lakeformat.model.keys import KeySettings

__all__ = ["UnclearKeys", "find_unclear_keys", "refuse_unclear_keys"]

Ints: TypeAlias = npt.NDArray[np.int64]
_WORDS = (NULL_PLACEHOLDER, EMPTY_PLACEHOLDER)


@dataclass(frozen=True)
class UnclearKeys:
    """Rows whose keys are unclear because of one field.

    Attributes:
        rows: positions of the rows, in ascending order.
        text: what the field's values hold: a separator, or the word for null or empty.
    """

    field: str
    rows: Ints
    text: str

    def describe(self, values: pa.Table, keys: pa.ChunkedArray, at: int) -> str:
        """Return why the key of row ``at`` is unclear, and which other row of the input has the same text."""
        key = keys[at].as_py()
        same = np.flatnonzero(pc.equal(keys, key).to_numpy())
        fields = range(values.num_columns)
        others = (row for row in same.tolist() if any(values[i][row] != values[i][at] for i in fields))
        other = next(others, None)
        of_other = "" if other is None else f", as those of row {other} do"
        return (
            f"the record key of row {at} is unclear: its field {self.field!r} holds {self.text!r}, so other values "
            f"have the same text {key!r} in Hudi{of_other}"
        )


def find_unclear_keys(rows: pa.Table, keys: pa.ChunkedArray, settings: KeySettings) -> list[UnclearKeys]:
    """Return the rows whose key text other values may have, too. Return none if the settings take such keys.

    Args:
        rows: rows with the key fields.
        keys: the texts of their keys.
    """
    fields = settings.record_fields
    if len(fields) == 1 or settings.takes_unclear:
        return []
    texts = [_text_column(rows, name) for name in fields]
    given = [text for text in texts if text is not None]
    unclear: list[UnclearKeys] = []
    has_commas = any(_is_true_of_any(pc.match_substring(text, ",")) for text in given)
    for before, name in pairwise(fields) if has_commas else ():
        separator = f",{name}:"
        is_twice = pc.greater(pc.count_substring(keys, separator), 1)
        if pc.any(is_twice).as_py():
            unclear += _of_separator(rows, is_twice, separator, fields, before)
    for word in _WORDS:
        if any(_is_true_of_any(pc.equal(text, word)) for text in given):
            unclear += _of_word(rows, pc.match_substring(keys, f":{word}"), word, fields)
    return unclear


def _of_separator(
    rows: pa.Table, is_twice: pa.ChunkedArray, separator: str, fields: Sequence[str], before: str
) -> list[UnclearKeys]:
    """Return the rows by the field that holds the separator; ``before`` if it lies across two values."""
    rows_left, unclear = np.flatnonzero(is_twice.to_numpy()), []
    for field in fields:
        holds = pc.fill_null(pc.match_substring(_texts(rows, field, rows_left), separator), False).to_numpy()
        unclear.append(UnclearKeys(field, rows_left[holds], separator))
        rows_left = rows_left[~holds]
    return [part for part in (*unclear, UnclearKeys(before, rows_left, separator)) if len(part.rows)]


def _of_word(rows: pa.Table, holds: pa.ChunkedArray, word: str, fields: Sequence[str]) -> list[UnclearKeys]:
    rows_left, unclear = np.flatnonzero(holds.to_numpy()), []
    for field in fields:
        is_word = pc.fill_null(pc.equal(_texts(rows, field, rows_left), word), False).to_numpy()
        unclear.append(UnclearKeys(field, rows_left[is_word], word))
    return [part for part in unclear if len(part.rows)]


def _texts(rows: pa.Table, field: str, positions: Ints) -> pa.ChunkedArray:
    """Return the field's values in these rows as text; null if they are not text."""
    column = _text_column(rows, field)
    return (
        pa.chunked_array([pa.nulls(len(positions), pa.string())])
        if column is None
        else column.take(pa.array(positions))
    )


def _text_column(rows: pa.Table, field: str) -> pa.ChunkedArray | None:
    """Return the field's values as text; None if they are not text."""
    column = field_column(rows, field, "record key")
    kind = column.type.value_type if kind_of(column.type) is Kind.DICTIONARY else column.type
    if kind_of(kind) is not Kind.TEXT:
        return None
    return column if column.type in {pa.string(), pa.large_string()} else column.cast(pa.string())


def _is_true_of_any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask).as_py())


def refuse_unclear_keys(rows: pa.Table, keys: pa.ChunkedArray, settings: KeySettings) -> None:
    """Refuse rows whose key text other values may have, too.

    Raises:
        InvalidInputError: the message names the first such row, the field and what it holds.
    """
    unclear = find_unclear_keys(rows, keys, settings)
    if unclear:
        first = min(unclear, key=lambda part: int(part.rows[0]))
        fields = settings.record_fields
        values = pa.table([field_column(rows, name, "record key") for name in fields], list(fields))
        why = first.describe(values, keys, int(first.rows[0]))
        raise InvalidInputError(
            f"{why}; change the value, or set {UNCLEAR_KEYS}=merge to take rows with one text for one row, as Hudi does"
        )
