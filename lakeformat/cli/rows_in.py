"""Rows from files: Parquet, CSV, JSON and Arrow, at any path or URL, as a stream; progress is shown on a terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidInputError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "rows_from"]

#: Format -> endings of its files.
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}


def rows_from(
    source: str, like: pa.Schema | None, *, kind: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> pa.RecordBatchReader:
    """Open the rows of a file as a stream; ``-`` is stdin.

    Memory: batches of the file's reader; JSON and stdin are read whole.

    Args:
        like: the table's columns; values of CSV and JSON are read as their types.
        kind: the format; by default from the file's ending.

    Raises:
        InvalidInputError: the file does not exist, or the format is unknown or not the file's.
        SchemaMismatchError: a value does not fit its column's type.
    """
    import pyarrow as pa

    kind = kind or _kind_of(source)
    if kind not in FORMATS:
        raise InvalidInputError(f"no format {kind!r} can be read; --format takes {', '.join(FORMATS)}")
    file = _open(source, storage_options or {})
    try:
        reader, total = _READERS[kind](file, like)
    except (pa.ArrowException, InvalidOperation, ValueError, OSError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _refusal(source, kind, error) from None
    batches = _read_shown(_translate_errors(reader, source), total, source)
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


def _refusal(source: str, kind: str, error: Exception) -> InvalidInputError:
    """Return the error for a file that cannot be read: a value, a line or the whole file is wrong."""
    text = str(error)
    if isinstance(error, InvalidOperation) or "onversion error" in text or "Failed to parse string" in text:
        reason = "a value is not a decimal number" if isinstance(error, InvalidOperation) else text
        return SchemaMismatchError(f"{source}: {reason}; correct the value")
    if kind == "csv" and "CSV parse error" in text:
        return InvalidInputError(f"{source}: {text}; correct that line, or name another format with --format")
    return InvalidInputError(f"{source} cannot be read as {kind}: {text}; name another with --format")


def _kind_of(source: str) -> str:
    for kind, endings in FORMATS.items():
        if source.lower().endswith(endings):
            return kind
    raise InvalidInputError(f"the name {source!r} does not end in a known format; give --format {', '.join(FORMATS)}")


def _open(source: str, storage_options: Mapping[str, Any]) -> Any:
    """Open a seekable file."""
    import pyarrow as pa

    from lakeformat.storage import open_storage

    if source == "-":
        return pa.BufferReader(sys.stdin.buffer.read())
    folder, _, name = source.rpartition("/")
    storage = open_storage(folder or ("/" if source.startswith("/") else "."), **storage_options)
    try:
        return storage.open_input(name)
    except FileNotFoundError:
        raise InvalidInputError(f"there is no file {source}; check the path") from None


def _read_parquet(file: Any, like: pa.Schema | None) -> tuple[pa.RecordBatchReader, int | None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file)
    batches = parquet.iter_batches()
    return pa.RecordBatchReader.from_batches(parquet.schema_arrow, batches), parquet.metadata.num_rows


def _read_csv(file: Any, like: pa.Schema | None) -> tuple[pa.RecordBatchReader, int | None]:
    import pyarrow as pa
    from pyarrow import csv

    flat = {} if like is None else {field.name: field.type for field in like if not pa.types.is_nested(field.type)}
    if file.read(2) == b"\x1f\x8b":
        file.seek(0)
        file = pa.CompressedInputStream(file, "gzip")
    else:
        file.seek(0)
    convert = csv.ConvertOptions(column_types=flat, strings_can_be_null=True, quoted_strings_can_be_null=False)
    return csv.open_csv(file, convert_options=convert), None


def _read_json(file: Any, like: pa.Schema | None) -> tuple[pa.RecordBatchReader, int | None]:
    """One object a line, or one list of objects. Rows are Python's own on the way: large loads are for Parquet."""
    from lakeformat.write.rows.python_data import python_table

    data = file.read()
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8")
    rows = json.load(text) if data.lstrip()[:1] == b"[" else [json.loads(line) for line in text if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError("a row of the JSON is not an object; give one object per row")
    names = dict.fromkeys(name for row in rows for name in row)
    known = {} if like is None else {field.name: field.type for field in like}
    columns = {name: _json_column([row.get(name) for row in rows], known.get(name)) for name in names}
    table = python_table(columns, like)
    return table.to_reader(), table.num_rows


def _json_column(values: list[Any], kind: pa.DataType | None) -> Any:
    """Convert texts and numbers to dates and decimals if the column has such a type, since JSON has neither."""
    import pyarrow as pa

    if kind is not None and pa.types.is_decimal(kind):
        return [None if value is None else Decimal(str(value)) for value in values]
    texts = all(value is None or isinstance(value, str) for value in values)
    if kind is not None and pa.types.is_temporal(kind) and texts:
        return pa.array(values, pa.string()).cast(kind)
    return values


def _read_arrow(file: Any, like: pa.Schema | None) -> tuple[pa.RecordBatchReader, int | None]:
    import pyarrow as pa

    try:
        stored = pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file), None
    batches = (stored.get_batch(at) for at in range(stored.num_record_batches))
    return pa.RecordBatchReader.from_batches(stored.schema, batches), None


_READERS: Final = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json, "arrow": _read_arrow}


def _translate_errors(reader: pa.RecordBatchReader, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches. A later value that cannot be read raises `SchemaMismatchError`."""
    import pyarrow as pa

    try:
        yield from reader
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(f"{source}: {error}; correct the value, or convert the column first") from None


def _read_shown(batches: Iterator[pa.RecordBatch], total: int | None, source: str) -> Iterator[pa.RecordBatch]:
    """The same, with a line on stderr that tells how far reading has come; silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield from batches
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {source.rpartition('/')[2]}", total=total)
        for batch in batches:
            yield batch
            progress.advance(task, batch.num_rows)
