"""The choice of columns of a base file that get a dictionary. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.record import META_COLUMNS

__all__ = ["SAMPLE_ROWS", "dictionary_columns", "leaf_columns"]

#: Rows of a sample, at most.
SAMPLE_ROWS: Final = 8192
_DICTIONARY_SHARE: Final = 0.5
#: In fewer rows values repeat by chance.
_LEAST_JOINING: Final = 32
#: Parts of a file's rows that are checked separately: the rows of several writes follow one another.
_STRETCHES: Final = 16


def dictionary_columns(fields: Iterable[pa.Field], sample: pa.Table | None, joins: bool) -> list[str]:
    """Choose the leaf columns that get a dictionary: those whose values repeat in a sample, and all nested leaves.

    Args:
        joins: whether rows of the sample were added to existing rows. The added rows are then also checked alone.
    """
    chosen: list[str] = []
    for field in fields:
        if pa.types.is_nested(field.type):
            chosen += leaf_columns(field, field.name)
        elif sample is not None and field.name not in META_COLUMNS:
            column = sample.column(field.name)
            if _repeat_in_any(column, [*_split_sample(len(column) if joins else 0)]):
                chosen.append(field.name)
    return chosen


def _split_sample(rows: int) -> Iterator[tuple[int, int]]:
    """Yield start and length of parts of a sample: the last rows in several lengths, then equal parts of all rows."""
    for share in (2, 4, 8, 16):
        if _LEAST_JOINING <= rows // share <= SAMPLE_ROWS:
            yield rows - rows // share, rows // share
    parts = min(_STRETCHES, rows // _LEAST_JOINING)
    for part in range(parts):
        yield part * rows // parts, min(rows // parts, SAMPLE_ROWS // _STRETCHES)


def _repeat_in_any(column: pa.ChunkedArray, stretches: Sequence[tuple[int, int]]) -> bool:
    """Tell whether values repeat in the first rows, or in any of the stretches taken alone."""
    if not stretches or len(column) > SAMPLE_ROWS:
        return any(_repeat(column.slice(*each)) for each in ((0, SAMPLE_ROWS), *stretches))
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    repeated = len(column) - len(encoded.dictionary)
    if repeated >= len(column) * (1 - _DICTIONARY_SHARE):
        return True
    if repeated < min(rows for _, rows in stretches) * (1 - _DICTIONARY_SHARE):
        return False
    codes = np.asarray(encoded.indices)
    order = np.argsort(codes, kind="stable")
    previous = np.full(len(codes), -1)  # The previous position of the same value.
    repeats = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    previous[order[repeats + 1]] = order[repeats]
    return any(
        np.count_nonzero(previous[start : start + rows] < start) <= rows * _DICTIONARY_SHARE
        for start, rows in stretches
    )


def _repeat(values: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(values, mode="all").as_py() <= len(values) * _DICTIONARY_SHARE)


def leaf_columns(field: pa.Field, path: str) -> Iterator[str]:
    """Yield the paths of the leaf columns that Parquet makes of a field at the given path."""
    kind = field.type
    children: Sequence[tuple[str, pa.Field]]
    if pa.types.is_struct(kind):
        children = [(f"{path}.{child.name}", child) for child in kind]
    elif pa.types.is_map(kind):
        children = [(f"{path}.key_value.key", kind.key_field), (f"{path}.key_value.value", kind.item_field)]
    elif pa.types.is_list(kind):
        children = [(f"{path}.list.element", kind.value_field)]
    else:
        yield path
        return
    for below, child in children:
        yield from leaf_columns(child, below)
