"""Which columns of a base file are worth a dictionary: pure."""

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
#: Fewer rows repeat values by chance.
_LEAST_JOINING: Final = 32
#: Parts of a file's rows that are looked at, each by itself: rows of several writes stand one behind the other.
_STRETCHES: Final = 16


def dictionary_columns(fields: Iterable[pa.Field], sample: pa.Table | None, joins: bool) -> list[str]:
    """Leaf columns for which a dictionary pays: values repeat in a sample. Nested leaves get one.

    Args:
        joins: whether rows of the sample have joined others: they were measured with their own dictionaries.
    """
    chosen: list[str] = []
    for field in fields:
        if pa.types.is_nested(field.type):
            chosen += leaf_columns(field, field.name)
        elif sample is not None and field.name not in META_COLUMNS:
            column = sample.column(field.name)
            if _repeats_in(column, [*_stretches(len(column) if joins else 0)]):
                chosen.append(field.name)
    return chosen


def _stretches(rows: int) -> Iterator[tuple[int, int]]:
    """Where parts of a sample begin, and their rows: those of one write may be any that others joined since."""
    for share in (2, 4, 8, 16):
        if _LEAST_JOINING <= rows // share <= SAMPLE_ROWS:
            yield rows - rows // share, rows // share
    parts = min(_STRETCHES, rows // _LEAST_JOINING)
    for part in range(parts):
        yield part * rows // parts, min(rows // parts, SAMPLE_ROWS // _STRETCHES)


def _repeats_in(column: pa.ChunkedArray, stretches: Sequence[tuple[int, int]]) -> bool:
    """Whether values repeat in the first rows, or in any of the stretches, each by itself."""
    if not stretches or len(column) > SAMPLE_ROWS:
        return any(_repeats(column.slice(*each)) for each in ((0, SAMPLE_ROWS), *stretches))
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    repeated = len(column) - len(encoded.dictionary)
    if repeated >= len(column) * (1 - _DICTIONARY_SHARE):
        return True
    if repeated < min(rows for _, rows in stretches) * (1 - _DICTIONARY_SHARE):
        return False
    codes = np.asarray(encoded.indices)
    order = np.argsort(codes, kind="stable")
    before = np.full(len(codes), -1)  # Where the value stood last.
    again = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    before[order[again + 1]] = order[again]
    return any(
        np.count_nonzero(before[start : start + rows] < start) <= rows * _DICTIONARY_SHARE for start, rows in stretches
    )


def _repeats(values: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(values, mode="all").as_py() <= len(values) * _DICTIONARY_SHARE)


def leaf_columns(field: pa.Field, path: str) -> Iterator[str]:
    """Paths of the leaf columns that Parquet makes of a field, which stands at a path."""
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
