"""Rows as users have them: Arrow tables, batches, readers, and frames that hand out Arrow streams."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from lakeformat.codec.conform import VIEWS, conform, is_any_list
from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.timeline.store import TimelineStore
from lakeformat.write.rows.python_data import is_python_data, python_table

__all__ = [
    "ArrowDataset",
    "ArrowStream",
    "LazyRows",
    "Rows",
    "arrow_reader",
    "check_fillable",
    "fitted",
    "is_schema",
    "schema_of",
    "warn_of_rows",
    "without_index",
]

_LOG: Final = logging.getLogger("lakeformat.write")


class ArrowStream(Protocol):
    """Anything that gives an Arrow stream by the PyCapsule protocol: frames of pandas, polars and duckdb, tables."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a PyCapsule named ``arrow_array_stream``."""


class LazyRows(Protocol):
    """A lazy frame of polars: `collect` gives its rows."""

    def collect(self) -> ArrowStream:
        """Return the rows."""


class ArrowDataset(Protocol):
    """A dataset or scanner of pyarrow."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, a batch at a time."""


#: The rows that plain Python writes: Arrow tables, batches and readers (all are streams), frames, an Arrow dataset or
#: scanner, an iterable of Arrow batches, a list of dicts (one a row), or a dict of columns.
Rows: TypeAlias = (
    ArrowStream | LazyRows | ArrowDataset | Iterable[pa.RecordBatch] | Sequence[Mapping[str, Any]] | Mapping[str, Any]
)


def arrow_reader(rows: Rows, like: pa.Schema | None = None) -> pa.RecordBatchReader:
    """The rows as a stream of batches. Memory: as they come; Python's own data and lazy frames are gathered whole.

    Args:
        like: the table's columns, by which values of lists and dicts are read.

    Raises:
        InvalidInputError: they are no Arrow data.
        SchemaMismatchError: a frame's column has values of several types; on reading, a batch has other columns than
            the first.
    """
    reader = _reader(rows, like)
    schema = pa.schema([_without_views(field) for field in reader.schema], reader.schema.metadata)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (conform(batch, schema) for batch in reader))


def schema_of(columns: Any) -> pa.Schema:
    """The columns of a new table: a schema, fields or pairs of name and type, a dict of them, or rows that have them.

    Raises:
        InvalidInputError: it is none of these.
    """
    if isinstance(columns, pa.Schema):
        return columns
    if is_schema(columns):
        return _schema(dict(columns) if isinstance(columns, Mapping) else columns)
    return arrow_reader(columns).schema


def is_schema(columns: Any) -> bool:
    """Whether this names columns and their types, and is not rows."""
    if isinstance(columns, pa.Schema):
        return True
    if isinstance(columns, Mapping):
        return bool(columns) and all(isinstance(kind, str | pa.DataType) for kind in columns.values())
    if not isinstance(columns, list | tuple):
        return False
    is_types = bool(columns) and all(isinstance(kind, str | pa.DataType) for kind in columns)
    return is_types or all(isinstance(field, pa.Field | tuple) for field in columns)


def _row_count(rows: Any) -> int | None:
    """How many rows these are; None if only reading them would tell."""
    if isinstance(rows, Mapping):
        return max((len(column) for column in rows.values()), default=0)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return int(rows.num_rows)
    try:
        return len(rows)
    except TypeError:
        return None


def check_fillable(store: TimelineStore, *, has_rows: bool) -> None:
    """Refuse ``insert=True`` without rows, and for a table that has commits: run twice, it would double the rows.

    Raises:
        InvalidInputError: it is so.
    """
    if not has_rows:
        raise InvalidInputError("insert=True needs rows, and a schema has none; give rows, or leave insert out")
    if store.exists() and store.load().commits:
        raise InvalidInputError(
            f"{store.storage.location} is a table with commits already, and insert=True fills a new one; open it and "
            "call insert(rows), upsert(rows) or overwrite(rows)"
        )


def warn_of_rows(location: str, rows: Any) -> None:
    """Warn that a new table does not hold the rows that were given for their columns, if there are any."""
    count = _row_count(rows)
    if count != 0:
        given = "the rows" if count is None else f"{count:,} row{'s' * (count != 1)}"
        _LOG.warning(
            "table %s: create() took the columns of %s and inserted none; give insert=True, or call insert(rows)",
            location,
            given,
        )


def _schema(columns: Any) -> pa.Schema:
    try:
        return pa.schema(columns)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(f"no columns for a table: {error}; give names and Arrow types") from None


def fitted(rows: pa.RecordBatchReader, table: pa.Schema | None) -> pa.RecordBatchReader:
    """The rows with the table's types where a frame has none: of a column without a value it knows no type.

    Such a column that the table does not have is left out, with a warning, and so is the index of a pandas frame, in
    silence: whoever wants it as a column says so by ``reset_index()``, or has it in the table.

    Args:
        table: the table's columns; None if there are none yet.
    """
    table = table if table is not None else pa.schema([])
    fields: list[pa.Field] = []
    known = set(table.names)
    for field in without_index(rows.schema, known):
        kind = table.field(field.name).type if field.name in known else None
        if pa.types.is_null(field.type) and kind is None:
            _LOG.warning("column %r is null in all rows and not in the table; it is left out", field.name)
        else:
            fields.append(field.with_type(_typed(field.type, kind)))
    schema = pa.schema(fields, rows.schema.metadata)
    if schema.equals(rows.schema):
        return rows
    return pa.RecordBatchReader.from_batches(schema, (conform(batch, schema) for batch in rows))


def without_index(schema: pa.Schema, wanted: Collection[str]) -> pa.Schema:
    """Without the columns that pandas made of a frame's index, but for those of these names."""
    try:
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return schema
    names = {name for name in index if isinstance(name, str)}.difference(wanted)
    return pa.schema([field for field in schema if field.name not in names], schema.metadata)


def _typed(kind: pa.DataType, table: pa.DataType | None) -> pa.DataType:
    """The type, with the table's wherever it is null."""
    if table is None:
        return kind
    if pa.types.is_null(kind):
        return table
    if pa.types.is_struct(kind) and pa.types.is_struct(table):
        known = {field.name: field.type for field in table}
        inner = [f.with_type(_typed(f.type, known.get(f.name))) for f in kind]
        return pa.struct([f for f in inner if f.name in known or not pa.types.is_null(f.type)] or inner)
    if pa.types.is_map(kind) and pa.types.is_map(table):
        return pa.map_(_typed(kind.key_type, table.key_type), _typed(kind.item_type, table.item_type))
    if is_any_list(kind) and pa.types.is_list(table):
        element = _typed(kind.value_type, table.value_type)
        return kind if element.equals(kind.value_type) else pa.list_(pa.field("element", element))
    return kind


def _without_views(field: pa.Field) -> pa.Field:
    """Categories of polars are dictionaries of views: plain columns."""
    plain = VIEWS.get(field.type.value_type) if pa.types.is_dictionary(field.type) else None
    return field if plain is None else field.with_type(plain)


def _reader(rows: Any, like: pa.Schema | None) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return table.to_reader()
    if type(rows).__module__.startswith("polars.lazyframe"):
        rows = rows.collect()
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            reason = "; ".join(map(str, reversed(error.args)))
            raise SchemaMismatchError(f"the frame is no Arrow data: {reason}; convert the column first") from None
    if type(rows).__module__.startswith("pyarrow._dataset"):
        return (rows.scanner() if hasattr(rows, "scanner") else rows).to_reader()
    if is_python_data(rows):
        return python_table(rows, like).to_reader()
    if isinstance(rows, Iterator) or (isinstance(rows, Sequence) and rows):
        batches = iter(rows)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
    if isinstance(rows, list) and not rows:
        raise InvalidInputError("an empty list tells no columns; give rows, or an Arrow table of no rows")
    if isinstance(rows, str | os.PathLike):
        raise InvalidInputError(
            f"rows={str(rows)!r} is text, no rows; read the file first, as pyarrow.parquet.read_table(path) does, or "
            "give a frame, a list of dicts or a dict of lists"
        )
    raise InvalidInputError(
        f"rows of type {type(rows).__name__} are no Arrow data; give a pyarrow Table or RecordBatchReader, a frame of "
        "pandas, polars or duckdb, a list of dicts, or a dict of lists"
    )


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(rest, start=1):
        if not (isinstance(batch, pa.RecordBatch) and batch.schema.equals(first.schema)):
            raise SchemaMismatchError(
                f"batch {number} of the input has other columns than the first; give all the same"
            )
        yield batch
