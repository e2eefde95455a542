"""Rows as Python has them: lists of dicts and dicts of lists, typed by the table's columns where it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.errors import InvalidInputError, SchemaMismatchError

__all__ = ["is_python_data", "python_table"]


def is_python_data(rows: Any) -> bool:
    """Whether these are a dict of columns, or a list of dicts, one a row."""
    if isinstance(rows, Mapping):
        return True
    return isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and bool(rows) and _is_dict(rows[0])


def _is_dict(row: Any) -> bool:
    return isinstance(row, Mapping)


def python_table(rows: Mapping[str, Any] | Sequence[Mapping[str, Any]], like: pa.Schema | None) -> pa.Table:
    """As Arrow. A key that some dicts lack is null there. Memory: the rows twice.

    Args:
        like: the table's columns: values are read as their types; others as Arrow guesses.

    Raises:
        SchemaMismatchError: a value is none of the column's type; names the column.
        InvalidInputError: columns of different lengths, or a row that is no dict.
    """
    if isinstance(rows, Mapping):
        columns: dict[Any, Any] = dict(rows)
    else:
        if not all(map(_is_dict, rows)):
            raise InvalidInputError("a list of rows holds something that is no dict; give one dict a row")
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
    if not all(isinstance(name, str) for name in columns):
        raise InvalidInputError("a column's name is no text; give dict keys that are str")
    known = {} if like is None else {field.name: field.type for field in like}
    arrays = {name: _column(name, values, known.get(name)) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInputError(f"columns are of different lengths ({said}); give each as many values")
    return pa.table(arrays)


def _column(name: str, values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InvalidInputError(f"column {name!r} is one {type(values).__name__}; give a list of values")
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = "of one type" if kind is None else f"as {kind}"
        raise SchemaMismatchError(f"column {name!r} cannot be read {wanted}: {error}; convert it first") from None
