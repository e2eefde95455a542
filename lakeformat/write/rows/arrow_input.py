"""Input rows: conversion of frames, Arrow data and Python data to streams of Arrow batches."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from queue import Queue
from threading import Event
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakeformat.arrow.conform import conform, is_any_list
from lakeformat.arrow.kinds import VIEWS, Kind, kind_of
from lakeformat.arrow.python_values import PYTHON_ERRORS, to_array, to_list
from lakeformat.codec.stored_types import ROOT, Place, refuse_deep, unstorable_type_error
from lakeformat.concurrency import thread_pool
from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.public import public
from lakeformat.timeline.store import TimelineStore
from lakeformat.write.rows.bad_rows import BadRows, json_text
from lakeformat.write.rows.faults import (
    ASIDE_HINT,
    CONVERSION_ERRORS,
    Fault,
    Reason,
    find_first_failing,
    halve,
    join_faults,
)

__all__ = [
    "ArrowDataset",
    "ArrowStream",
    "LazyRows",
    "Rows",
    "arrow_reader",
    "can_be_read_again",
    "check_insert_allowed",
    "drop_index_columns",
    "fit_to_table",
    "has_only_failed_writes",
    "is_python_data",
    "is_schema",
    "python_table",
    "schema_of",
    "take_out_unreadable",
    "warn_of_ignored_rows",
]


def is_python_data(rows: Any) -> bool:
    """Tell whether the rows are a dict of columns, or a list of dicts (one per row)."""
    if isinstance(rows, Mapping):
        return True
    return isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and bool(rows) and _is_dict(rows[0])


def _is_dict(row: Any) -> bool:
    return isinstance(row, Mapping)


def python_table(
    rows: Mapping[str, Any] | Sequence[Mapping[str, Any]], like: pa.Schema | None, bad_rows: BadRows | None = None
) -> pa.Table:
    """Return the rows as an Arrow table. A key that a dict lacks is null in its row. Memory: the rows twice.

    Args:
        like: the table's columns; None if there is no table. Values of these columns are converted to the columns'
            types; Arrow infers the types of other columns. A field of a dict that the column's struct lacks is added to
            the struct.
        bad_rows: collects the rows with values that do not fit these columns; None refuses them.

    Raises:
        SchemaMismatchError: if a value does not fit the column's type; the message names the column, and the row if one
            value alone does not fit.
        InvalidInputError: if columns have different lengths, or a row is not a dict.
    """
    if isinstance(rows, Mapping):
        columns: dict[Any, Any] = dict(rows)
    else:
        if not all(map(_is_dict, rows)):
            raise InvalidInputError("a list of rows holds something that is not a dict; give one dict per row")
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
    if not all(isinstance(name, str) for name in columns):
        raise InvalidInputError("a column's name is not text; give dict keys that are str")
    types = {} if like is None else {field.name: field.type for field in like}
    try:
        arrays = {name: _column(name, values, types.get(name)) for name, values in columns.items()}
    except SchemaMismatchError:
        if bad_rows is None:
            raise
        columns = take_out_unreadable(columns, types, to_array, bad_rows)
        arrays = {name: _column(name, values, types.get(name)) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInputError(f"columns are of different lengths ({counts}); give all the same number of values")
    return pa.table(arrays)


def take_out_unreadable(
    columns: Mapping[str, Any],
    known: Mapping[str, pa.DataType],
    convert: Callable[[Any, pa.DataType], object],
    bad_rows: BadRows,
    first: int = 0,
) -> dict[str, Any]:
    """Collect the rows with values that cannot be converted to the types of their columns. Return the other rows.

    Args:
        columns: the values of each column.
        known: the types of the columns whose types are known; other columns are not looked at.
        convert: converts values to a type, or raises an error of Arrow, ``TypeError``, ``ValueError`` or
            ``ArithmeticError``.
        first: position of the first row in the whole input.
    """
    plain: dict[str, Any] = {name: values if _is_arrow(values) else to_list(values) for name, values in columns.items()}
    count = max(map(len, plain.values()), default=0)
    if any(len(values) != count for values in plain.values()):
        return plain  # The caller refuses columns of different lengths.
    faults: list[Fault] = []
    for name, values in plain.items():
        if name in known and not _is_arrow(values):
            kind = known[name]
            failing = halve(count, partial(_convert_range, convert, values, kind), CONVERSION_ERRORS)
            positions, texts = np.array([*failing], np.int64), [f"column {name!r}: {text}" for text in failing.values()]
            faults.append(Fault(Reason.UNFIT_VALUE, name, positions, pa.array(texts, pa.string())))
    if not (faults := join_faults(faults, count)):
        return plain
    bad = np.sort(np.concatenate([fault.rows for fault in faults]))
    rows = ({name: _value(values[position]) for name, values in plain.items()} for position in bad.tolist())
    bad_rows.take_out_unread(faults, [json_text(row) for row in rows], first)
    kept = np.delete(np.arange(count), bad)
    return {
        name: values.take(pa.array(kept)) if _is_arrow(values) else [values[position] for position in kept.tolist()]
        for name, values in plain.items()
    }


def _convert_range(
    convert: Callable[[Any, Any], object], values: Any, kind: pa.DataType | None, start: int, end: int
) -> object:
    return convert(values[start:end], kind)


def _is_arrow(values: Any) -> bool:
    return isinstance(values, pa.Array | pa.ChunkedArray)


def _value(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _column(name: str, values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InvalidInputError(f"column {name!r} is one {type(values).__name__}; give a list of values")
    try:
        return to_array(values, kind)
    except PYTHON_ERRORS as error:
        form, hint = ("of one type", "") if kind is None else (f"as {kind}", ASIDE_HINT)
        reason = _name_row(values, kind) or str(error)
        raise SchemaMismatchError(f"column {name!r} cannot be read {form}: {reason}; convert it first{hint}") from None


def _name_row(values: Any, kind: pa.DataType | None) -> str | None:
    """Return the first row whose value cannot be converted, and why; None if each value alone can be converted."""
    plain = to_list(values)
    failing = find_first_failing(len(plain), partial(_convert_range, to_array, plain, kind), PYTHON_ERRORS)
    return failing and f"row {failing[0]}: {failing[1]}"


_LOG: Final = logging.getLogger("lakeformat.write")


@public
class ArrowStream(Protocol):
    """An object that exports an Arrow stream by the PyCapsule protocol: a pandas, polars or duckdb frame, a table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a PyCapsule named ``arrow_array_stream``."""


@public
class LazyRows(Protocol):
    """A lazy frame of polars, whose rows are computed by `collect`."""

    def collect(self) -> ArrowStream:
        """Compute the rows, and return them as a frame."""


@public
class ArrowDataset(Protocol):
    """A dataset or scanner of pyarrow."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, one batch at a time."""


#: The rows that plain Python writes: Arrow tables, batches and readers (all are streams), frames, an Arrow dataset or
#: scanner, an iterable of Arrow batches, a list of dicts (one per row), or a dict of columns.
Rows: TypeAlias = (
    ArrowStream | LazyRows | ArrowDataset | Iterable[pa.RecordBatch] | Sequence[Mapping[str, Any]] | Mapping[str, Any]
)


def arrow_reader(rows: Rows, like: pa.Schema | None = None, bad_rows: BadRows | None = None) -> pa.RecordBatchReader:
    """Return the rows as a stream of batches.

    Memory: one batch; lists and dicts are converted whole, and lazy frames of polars without ``sink_batches``.

    Args:
        like: the table's columns. Values in lists and dicts are converted to their types; None infers the types.
        bad_rows: collects the rows with values that cannot be converted; None refuses them.

    Raises:
        InvalidInputError: if the rows are not Arrow data.
        SchemaMismatchError: if a frame's column has values of several types, or is of an extension type; while
            reading, if a batch has other columns than the first.
    """
    reader = _reader(rows, like, bad_rows)
    _refuse_extensions(_fields(reader.schema), ROOT)
    schema = pa.schema([_plain_field(field) for field in reader.schema], reader.schema.metadata)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (conform(batch, schema) for batch in reader))


def can_be_read_again(rows: Any) -> bool:
    """Tell whether `arrow_reader` can read the rows twice: they are in memory, or say so by ``is_repeatable``."""
    if getattr(rows, "is_repeatable", False):
        return True
    if is_python_data(rows) or isinstance(rows, (pa.Table, pa.RecordBatch, list, tuple)):
        return True
    return type(rows).__name__ == "DataFrame" and type(rows).__module__.partition(".")[0] in {"pandas", "polars"}


def schema_of(columns: Any) -> pa.Schema:
    """Return the columns of a new table as an Arrow schema.

    Args:
        columns: a schema, a list of fields or (name, type) pairs, a dict of names and types, or rows.

    Raises:
        InvalidInputError: if the argument is none of these.
    """
    if isinstance(columns, pa.Schema):
        _refuse_extensions(_fields(columns), ROOT)
        return columns
    if is_schema(columns):
        return _schema(dict(columns) if isinstance(columns, Mapping) else columns)
    return arrow_reader(columns).schema


def is_schema(columns: Any) -> bool:
    """Tell whether the argument is a schema (columns and their types), not rows."""
    if isinstance(columns, pa.Schema):
        return True
    if isinstance(columns, Mapping):
        return bool(columns) and all(isinstance(kind, str | pa.DataType) for kind in columns.values())
    if not isinstance(columns, list | tuple):
        return False
    is_types = bool(columns) and all(isinstance(kind, str | pa.DataType) for kind in columns)
    return is_types or all(isinstance(field, pa.Field | tuple) for field in columns)


def _row_count(rows: Any) -> int | None:
    """Return the number of rows; None if the rows would have to be read to count them."""
    if isinstance(rows, Mapping):
        return max((len(column) for column in rows.values()), default=0)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return int(rows.num_rows)
    try:
        return len(rows)
    except TypeError:
        return None


def check_insert_allowed(store: TimelineStore, *, has_rows: bool) -> None:
    """Refuse ``insert=True`` without rows, or for a table with commits: a second run would insert the rows again.

    Raises:
        InvalidInputError: if there are no rows, or the table has commits.
    """
    if not has_rows:
        raise InvalidInputError("insert=True needs rows, and a schema has none; give rows, or leave insert out")
    if store.exists() and store.load().commits:
        raise InvalidInputError(
            f"{store.storage.location} is a table with commits already, and insert=True fills a new one; open it and "
            "call insert(rows), upsert(rows) or overwrite(rows)"
        )


def has_only_failed_writes(store: TimelineStore) -> bool:
    """Tell whether a table exists that has no commit, completed or pending, as after a first write that failed."""
    return store.exists() and not store.load().has_writes


def warn_of_ignored_rows(location: str, rows: Any) -> None:
    """If there are rows, warn that the new table has taken only their columns, and that no row was written."""
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


def fit_to_table(rows: pa.RecordBatchReader, table: pa.Schema | None) -> pa.RecordBatchReader:
    """Return the rows. Columns of Arrow's null type (all values null) are converted to the type of the table's column.

    A column of the null type that the table does not have is dropped with a warning. The index of a pandas frame is
    dropped silently, unless the table has a column of its name; ``reset_index()`` makes it a column.

    Args:
        table: the table's columns; None for a new table.
    """
    table = table if table is not None else pa.schema([])
    fields: list[pa.Field] = []
    table_names = set(table.names)
    for field in drop_index_columns(rows.schema, table_names):
        kind = table.field(field.name).type if field.name in table_names else None
        if kind_of(field.type) is Kind.NULL and kind is None:
            _LOG.warning("column %r is null in all rows and not in the table; it is left out", field.name)
        else:
            fields.append(field.with_type(_fill_null_types(field.type, kind)))
    schema = pa.schema(fields, rows.schema.metadata)
    if schema.equals(rows.schema):
        return rows
    return pa.RecordBatchReader.from_batches(schema, (conform(batch, schema) for batch in rows))


def drop_index_columns(schema: pa.Schema, wanted: Collection[str]) -> pa.Schema:
    """Return the schema without the columns that pandas made of a frame's index.

    Args:
        wanted: names of index columns to keep.
    """
    try:
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return schema
    names = {name for name in index if isinstance(name, str)}.difference(wanted)
    return pa.schema([field for field in schema if field.name not in names], schema.metadata)


def _fill_null_types(kind: pa.DataType, table: pa.DataType | None) -> pa.DataType:
    """Return the type ``kind`` with each null type in it replaced by the type at the same position of ``table``."""
    if table is None:
        return kind
    if kind_of(kind) is Kind.NULL:
        return table
    if kind_of(kind) is kind_of(table) is Kind.STRUCT:
        types = {field.name: field.type for field in table}
        inner = [f.with_type(_fill_null_types(f.type, types.get(f.name))) for f in kind]
        return pa.struct([f for f in inner if f.name in types or kind_of(f.type) is not Kind.NULL] or inner)
    if kind_of(kind) is kind_of(table) is Kind.MAP:
        return pa.map_(
            _fill_null_types(kind.key_type, table.key_type), _fill_null_types(kind.item_type, table.item_type)
        )
    if is_any_list(kind) and kind_of(table) is Kind.LIST:
        element = _fill_null_types(kind.value_type, table.value_type)
        return kind if element.equals(kind.value_type) else pa.list_(pa.field("element", element))
    return kind


def _fields(schema: pa.Schema) -> Iterator[pa.Field]:
    for number, name in enumerate(schema.names):
        try:
            yield schema.field(number)
        except TypeError:  # An extension type of Python that nothing refers to any more.
            raise unstorable_type_error("extension, whose class is gone", ROOT.field(name)) from None


def _refuse_extensions(fields: Iterable[pa.Field], place: Place) -> None:
    """Raise `SchemaMismatchError` for an extension type that this process does not know: only its storage is here."""
    for field in fields:
        within = place.field(field.name)
        if (name := (field.metadata or {}).get(b"ARROW:extension:name")) is not None:
            raise unstorable_type_error(f"extension<{name.decode(errors='replace')}>", within)
        refuse_deep(within)
        _refuse_extensions((field.type.field(number) for number in range(field.type.num_fields)), within)


def _plain_field(field: pa.Field) -> pa.Field:
    """Return the field. A dictionary type of string views, as polars' categories have, is replaced by plain strings."""
    plain = VIEWS.get(field.type.value_type) if kind_of(field.type) is Kind.DICTIONARY else None
    return field if plain is None else field.with_type(plain)


def _reader(rows: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if hasattr(rows, "read_checked"):
        reader: pa.RecordBatchReader = rows.read_checked(bad_rows)
        return reader
    if getattr(rows, "is_repeatable", False):
        return rows.to_reader()
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return table.to_reader()
    if type(rows).__module__.startswith("polars.lazyframe"):
        return _lazy_reader(rows)
    if type(rows).__name__ == "Series":
        raise InvalidInputError("a Series is one column, or one row; give a frame, such as df[['id']] or df.iloc[[0]]")
    if hasattr(rows, "__arrow_c_stream__"):
        is_pandas = type(rows).__name__ == "DataFrame" and type(rows).__module__.startswith("pandas")
        return _pandas_reader(rows, like, bad_rows) if is_pandas else _stream_reader(rows)
    if type(rows).__module__.startswith("pyarrow._dataset"):
        return (rows.scanner() if hasattr(rows, "scanner") else rows).to_reader()
    if is_python_data(rows):
        return python_table(rows, like, bad_rows).to_reader()
    if isinstance(rows, Iterator) or (isinstance(rows, Sequence) and rows):
        batches = iter(rows)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
    raise _not_rows(rows)


def _not_rows(rows: object) -> InvalidInputError:
    """Return the error for an object that holds no rows."""
    if isinstance(rows, list) and not rows:
        return InvalidInputError("an empty list names no columns; give rows, or an Arrow table of no rows")
    if isinstance(rows, str | os.PathLike):
        return InvalidInputError(
            f"rows={str(rows)!r} is text, not rows; read the file first, as pyarrow.parquet.read_table(path) does, or "
            "give a frame, a list of dicts or a dict of lists"
        )
    return InvalidInputError(
        f"rows of type {type(rows).__name__} are not Arrow data; give a pyarrow Table or RecordBatchReader, a frame of "
        "pandas, polars or duckdb, a list of dicts, or a dict of lists"
    )


def _lazy_reader(rows: Any) -> pa.RecordBatchReader:
    """Return the rows of a lazy frame as its streaming engine computes them. Memory: what polars buffers."""
    if not hasattr(rows, "sink_batches"):
        return _stream_reader(rows.collect())
    schema = _stream_reader(rows.collect_schema().to_frame()).schema
    return pa.RecordBatchReader.from_batches(schema, _lazy_batches(rows))


def _lazy_batches(rows: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a lazy frame. A thread computes them; ``collect_batches`` would end early if polars panics.

    Raises:
        InvalidInputError: polars panicked.
    """
    from polars.exceptions import PanicException

    frames: Queue[Any] = Queue(2)
    closed = Event()

    def hand_over(frame: Any) -> bool:
        if not closed.is_set():
            frames.put(frame)
        return closed.is_set()

    with thread_pool(1) as pool:
        computed = pool.submit(rows.sink_batches, hand_over)
        computed.add_done_callback(lambda _: frames.put(None))
        frame = None
        try:
            while (frame := frames.get()) is not None:
                yield from _stream_reader(frame)
            computed.result()
        except PanicException as error:
            raise InvalidInputError(f"polars cannot compute the lazy frame: {error}; collect it first") from None
        finally:
            closed.set()
            while frame is not None:
                frame = frames.get()


def _pandas_reader(frame: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> pa.RecordBatchReader:
    """Return the rows of a frame. Columns of Python objects are converted as those of a dict of columns."""
    frame = _with_index_values(frame)
    is_object = [str(dtype) == "object" for dtype in frame.dtypes]
    names = [str(name) for name in frame.columns]
    if not any(is_object) or len(set(names)) < len(names):
        return _stream_reader(frame)
    others = _stream_reader(frame.iloc[:, [number for number, flag in enumerate(is_object) if not flag]]).read_all()
    plain = dict(zip(others.schema.names, others.columns, strict=True))  # The frame's index is at the end.
    columns = {
        name: frame.iloc[:, number] if is_object[number] else plain.pop(name) for number, name in enumerate(names)
    } | plain
    return python_table(columns, like, bad_rows).replace_schema_metadata(others.schema.metadata).to_reader()


def _with_index_values(frame: Any) -> Any:
    """Return the frame with the values of its index if that is a range with a name.

    Arrow leaves a range out. pandas 3 makes one of any index whose numbers are evenly spaced.
    """
    index = frame.index
    if type(index).__name__ != "RangeIndex" or index.name is None:
        return frame
    from pandas import Index

    return frame.set_axis(Index(index.to_numpy(), name=index.name))


#: Errors of frames with columns that Arrow cannot hold.
_NOT_ARROW: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError)


def _stream_reader(rows: Any) -> pa.RecordBatchReader:
    kinds = getattr(rows, "schema", None) if type(rows).__module__.startswith("polars") else None
    for name, kind in (kinds or {}).items():
        if str(kind) == "Object":  # polars exports the addresses of the objects.
            raise unstorable_type_error("Object of polars", ROOT.field(name))
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except _NOT_ARROW as error:
        reason = "; ".join(map(str, reversed(error.args)))
        column = _find_not_arrow(rows)
        raise SchemaMismatchError(f"the frame is not Arrow data: {column}{reason}; convert the column first") from None


def _find_not_arrow(frame: Any) -> str:
    """Return the first column of a frame that Arrow cannot hold, as the beginning of a message; empty if none is."""
    for name in getattr(frame, "columns", ()):
        try:
            pa.RecordBatchReader.from_stream(frame[[name]])
        except _NOT_ARROW:
            return f"column {name!r}: "
    return ""


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(rest, start=1):
        if not (isinstance(batch, pa.RecordBatch) and batch.schema.equals(first.schema)):
            raise SchemaMismatchError(
                f"batch {number} of the input has other columns than the first; give all the same"
            )
        yield batch
