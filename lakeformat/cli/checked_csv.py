"""CSV whose bad values and lines are collected instead of refused.

All values are read as text. Each column of a batch is then converted by the same rules, those of Arrow's CSV reader.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from lakeformat.errors import InvalidInputError
from lakeformat.write.rows.bad_rows import BadRows, json_texts
from lakeformat.write.rows.faults import Fault, Reason, find_failing, join_faults

__all__ = ["convert_texts", "csv_options", "open_checked", "parse_texts"]

_COLUMN: Final = "c"


def open_checked(
    file: Any, types: Mapping[str, pa.DataType], bad_rows: BadRows, start: int = 0
) -> pa.RecordBatchReader:
    """Open CSV as a stream of its good rows.

    Args:
        types: the types of known columns; the types of others are inferred.
        bad_rows: collects the other rows, and lines with too many or too few values.
        start: position of the first row in the whole input.
    """
    lines: list[tuple[str, str]] = []

    def skip(row: Any) -> str:
        lines.append((row.text, f"the line has {row.actual_columns} values, not {row.expected_columns}"))
        return "skip"

    options = csv_options(dict.fromkeys(types, pa.string()))
    reader = csv.open_csv(file, parse_options=csv.ParseOptions(invalid_row_handler=skip), convert_options=options)
    schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in reader.schema])

    def read() -> Iterator[pa.RecordBatch]:
        first = start
        for batch in reader:
            rows = pa.Table.from_batches([batch])
            yield from convert_texts(rows, schema, bad_rows, first, parse_texts).to_batches()
            first += batch.num_rows
        bad_rows.add_lines(lines)

    return pa.RecordBatchReader.from_batches(schema, read())


def csv_options(types: Mapping[str, pa.DataType]) -> csv.ConvertOptions:
    """Return the rules by which texts of CSV become values. Nothing and ``NULL`` without quotes are null.

    The other words that Arrow takes for null by default, such as ``NA`` and ``NaN``, are texts and numbers here.
    """
    return csv.ConvertOptions(
        column_types=types, null_values=["", "NULL", "null"], strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def convert_texts(
    texts: pa.Table,
    schema: pa.Schema,
    bad_rows: BadRows,
    first: int,
    parse: Callable[[pa.ChunkedArray, pa.Field], pa.ChunkedArray],
) -> pa.Table:
    """Return the good rows with their types. Collect the others.

    Args:
        first: position of the first row in the input.
        parse: converts the texts of a column, or raises `InvalidInputError`.
    """
    converted = [field for field in schema if not texts.schema.field(field.name).type.equals(field.type)]
    faults: list[Fault] = []
    for field in converted:
        faults += find_failing(texts, [field.name], partial(_parse_only, parse, field), Reason.UNFIT_VALUE)
    if faults := join_faults(faults, texts.num_rows):
        bad = np.sort(np.concatenate([fault.rows for fault in faults]))
        bad_rows.take_out_unread(faults, json_texts(texts.take(pa.array(bad))), first)
        texts = texts.take(pa.array(np.delete(np.arange(texts.num_rows), bad)))
    for field in converted:
        position = schema.get_field_index(field.name)
        texts = texts.set_column(position, field, parse(texts.column(position), field))
    return texts.cast(schema)


def _parse_only(
    parse: Callable[[pa.ChunkedArray, pa.Field], pa.ChunkedArray], field: pa.Field, texts: pa.Table
) -> pa.ChunkedArray:
    return parse(texts.column(0), field)


def parse_texts(texts: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Convert texts as Arrow's CSV reader does.

    Raises:
        InvalidInputError: a text has no value of the type.
    """
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table({_COLUMN: texts}), sink)
    lines = csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True)
    try:
        source = pa.BufferReader(sink.getvalue())
        return csv.read_csv(source, parse_options=lines, convert_options=csv_options({_COLUMN: field.type})).column(0)
    except pa.ArrowInvalid as error:
        text = str(error).partition("#0: ")[2] or str(error)
        raise InvalidInputError(f"column {field.name!r}: {text}") from None
