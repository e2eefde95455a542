"""Texts of Parquet, Arrow and JSON that become dates, times, numbers and booleans, where the table has such a column.

The rules are those by which Arrow's CSV reader makes values of texts, so all formats agree. A value that loses
something (a fraction, a digit, a time of day) is refused. Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.cli.checked_csv import convert_texts, parse_texts
from lakeformat.cli.sources import HINT
from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.faults import CONVERSION_ERRORS, find_first_failing

__all__ = [
    "cast_texts",
    "find_bad_value",
    "is_castable",
    "name_bad_text",
    "parse_exactly",
    "unfit_error",
    "values_of_texts",
]

#: Converts the texts of a column to the type of a field, or raises `InvalidInputError`.
Parse: TypeAlias = Callable[[pa.ChunkedArray, pa.Field], pa.ChunkedArray]

#: Most digits of a text that a number of 32 and of 64 bits with a point holds.
_DIGITS: Final = {pa.float32(): 9, pa.float64(): 17}
_INFINITE: Final = "(?i)^[+-]?inf"


def _castable_types(like: pa.Schema | None) -> dict[str, pa.DataType]:
    """Return the types of the columns of a table that texts may become."""
    return {} if like is None else {field.name: field.type for field in like if is_castable(field.type)}


def is_castable(kind: pa.DataType) -> bool:
    """Tell whether texts become values of a type: a number, a boolean, a date or a time."""
    return kind_of(kind).is_number or kind_of(kind) in (Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP)


def _is_text(kind: pa.DataType) -> bool:
    if kind_of(kind) is Kind.DICTIONARY:
        return _is_text(kind.value_type)
    return kind_of(kind) is Kind.TEXT


def cast_texts(
    reader: pa.RecordBatchReader, like: pa.Schema | None, source: str, bad_rows: BadRows | None, first: int = 0
) -> pa.RecordBatchReader:
    """Return the rows with values where the table's columns have values and the rows have texts.

    Args:
        like: the table's columns.
        source: name of the file, for messages.
        bad_rows: collects the rows with other texts; None refuses them.
        first: position of the first row in the whole input.

    Raises:
        SchemaMismatchError: while it is read: a text is not a value. The message names row, column and text.
    """
    types_of = _castable_types(like)
    types = {f.name: types_of[f.name] for f in reader.schema if f.name in types_of and _is_text(f.type)}
    if not types:
        return reader
    schema = pa.schema([f.with_type(types.get(f.name, f.type)) for f in reader.schema], reader.schema.metadata)

    def read() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            rows = pa.Table.from_batches([batch])
            for name in types:
                position = rows.schema.get_field_index(name)
                rows = rows.set_column(position, name, rows.column(position).cast(pa.string()))
            if bad_rows is None:
                rows = _convert_all(rows, types, source, done)
            else:
                rows = convert_texts(rows, schema, bad_rows, first + done, parse_exactly)
            yield from rows.cast(schema).to_batches()
            done += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema, read())


def _convert_all(rows: pa.Table, types: Mapping[str, pa.DataType], source: str, done: int) -> pa.Table:
    for name, kind in types.items():
        position = rows.schema.get_field_index(name)
        texts, field = rows.column(position), pa.field(name, kind)
        try:
            values = parse_exactly(texts, field)
        except InvalidInputError:
            named = name_bad_text(texts, field, source, done, parse_exactly)
            raise named or unfit_error(source, None, field, "a text") from None
        rows = rows.set_column(position, field, values)
    return rows


def parse_exactly(texts: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Convert texts to the type of a field.

    Raises:
        InvalidInputError: a text has no value of the type, or has more digits than the type.
    """
    values = parse_texts(texts, field)
    if field.type in _DIGITS:
        is_lost = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring_regex(texts, _INFINITE)))
        most = _DIGITS[field.type]
        digits = pc.utf8_length(pc.replace_substring_regex(_mantissas(texts), "[^0-9]", ""))
        if pc.any(pc.or_(is_lost, pc.greater(digits, most))).as_py():
            raise InvalidInputError(f"column {field.name!r}: a number has more digits than {field.type} holds")
    return values


def _mantissas(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the digits of numbers that count: without an exponent, and without zeros at either end."""
    plain = pc.replace_substring_regex(texts, "[eE].*$", "")
    plain = pc.replace_substring_regex(plain, r"^[+-]?[0.]*", "")
    return pc.replace_substring_regex(plain, r"[0.]*$", "")


def name_bad_text(
    texts: pa.ChunkedArray, field: pa.Field, source: str, done: int, parse: Parse
) -> SchemaMismatchError | None:
    """Return the error for the first text that is not a value of the field's type; None if each alone is one.

    Args:
        done: number of the rows before.
    """

    def check(start: int, end: int) -> object:
        return parse(texts.slice(start, end - start), field)

    try:
        check(0, len(texts))
    except InvalidInputError:
        failing = find_first_failing(len(texts), check, (InvalidInputError,))
    else:
        return None
    return failing and unfit_error(source, done + failing[0], field, texts[failing[0]].as_py())


def unfit_error(source: str, row: int | None, field: pa.Field, value: object) -> SchemaMismatchError:
    """Return the error for a value that does not fit. Rows are counted from 1, without the line of names."""
    place = "" if row is None else f"row {row + 1}, "
    shown = repr(value) if isinstance(value, str) else str(value)
    return SchemaMismatchError(
        f"{source}: {place}column {field.name!r}: {shown} is not a value of type {field.type}, or would lose something"
        f"; correct the value{HINT}"
    )


def values_of_texts(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Return Python values with numbers and booleans in place of texts.

    Raises:
        InvalidInputError: a text has no value of the type.
    """
    numbers = [number for number, value in enumerate(values) if isinstance(value, str)]
    texts = pa.chunked_array([pa.array([values[number] for number in numbers], pa.string())])
    try:
        parsed = parse_exactly(texts, pa.field("", kind)).to_pylist()
    except InvalidInputError as error:  # The caller names the column.
        raise InvalidInputError(str(error).removeprefix("column '': ")) from None
    changed = list(values)
    for number, value in zip(numbers, parsed, strict=True):
        changed[number] = value
    return changed


def find_bad_value(values: Sequence[Any], convert: Callable[[list[Any]], object]) -> int | None:
    """Return the position of the first value that cannot be converted; None if each alone can be."""
    check = partial(_convert_range, convert, values)
    failing = find_first_failing(len(values), check, CONVERSION_ERRORS)
    return None if failing is None else failing[0]


def _convert_range(convert: Callable[[list[Any]], object], values: Sequence[Any], start: int, end: int) -> object:
    return convert(list(values[start:end]))
