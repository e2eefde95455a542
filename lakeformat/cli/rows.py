"""Rows from files and to files: Parquet, CSV, JSON and Arrow, at any path or URL, and tables for people.

Rows are read and written batch by batch. Progress is shown on a terminal.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakeformat.cli.output import print_remark, show_values, show_vertical, to_plain
from lakeformat.errors import InvalidInputError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeformat.write.rows.bad_rows import BadRows

    #: The rows of a file, and their number if it is known.
    _Opened: TypeAlias = tuple[pa.RecordBatchReader, int | None]

__all__ = ["FORMATS", "OUTPUTS", "FileRows", "open_rows", "open_sink", "show_table", "write_rows"]

#: Maps a format to the endings of its file names.
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}


class FileRows:
    """The rows of a file, for a write that puts bad rows aside: it reads them with its collector.

    Args:
        source, like, kind, storage_options: as in `open_rows`.
    """

    def __init__(self, source: str, like: pa.Schema, kind: str | None, storage_options: Mapping[str, Any]) -> None:
        self._source, self._like, self._kind, self._storage_options = source, like, kind, storage_options

    def read_checked(self, bad_rows: BadRows | None) -> pa.RecordBatchReader:
        """Return the rows. The write calls this; ``bad_rows`` collects rows that cannot be read."""
        given = {"kind": self._kind, "storage_options": self._storage_options}
        return open_rows(self._source, self._like, bad_rows=bad_rows, **given)  # type: ignore[arg-type]


#: Last part of the message of an error about a value or a line.
_HINT: Final = "; -o bad_rows=aside writes the other rows and puts such rows aside"


def open_rows(
    source: str,
    like: pa.Schema | None,
    *,
    kind: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    bad_rows: BadRows | None = None,
) -> pa.RecordBatchReader:
    """Open the rows of a file as a stream; ``-`` is stdin.

    Memory: batches of the file's reader; JSON and stdin are read whole.

    Args:
        like: schema whose types the values of CSV and JSON get; None to infer the types.
        kind: a key of `FORMATS`; by default it follows from the ending of the file's name.
        bad_rows: collects the rows of CSV and JSON with values or lines that cannot be read; None refuses them.

    Raises:
        InvalidInputError: the file does not exist, or the format is unknown or not the file's.
        SchemaMismatchError: a value does not fit its column's type.
    """
    import pyarrow as pa

    kind = kind or _guess_kind(source)
    if kind not in FORMATS:
        raise InvalidInputError(f"no format {kind!r} can be read; --format takes {', '.join(FORMATS)}")
    file = _open(source, storage_options or {})
    try:
        reader, total = _READERS[kind](file, like, bad_rows)
    except (pa.ArrowException, InvalidOperation, ValueError, OSError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _refusal(source, kind, error) from None
    batches = _show_progress(_translate_errors(reader, source), total, source)
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


def _refusal(source: str, kind: str, error: Exception) -> InvalidInputError:
    """Return the error for a file that cannot be read: a value, a line or the whole file is wrong."""
    text = str(error)
    if isinstance(error, InvalidOperation) or "onversion error" in text or "Failed to parse string" in text:
        reason = "a value is not a decimal number" if isinstance(error, InvalidOperation) else text
        return SchemaMismatchError(f"{source}: {reason}; correct the value{_HINT}")
    if kind == "csv" and "CSV parse error" in text:
        return InvalidInputError(f"{source}: {text}; correct that line, or name another format with --format{_HINT}")
    return InvalidInputError(f"{source} cannot be read as {kind}: {text}; correct it, or name another with --format")


def _guess_kind(source: str) -> str:
    for kind, endings in FORMATS.items():
        if source.lower().endswith(endings):
            return kind
    raise InvalidInputError(f"the name {source!r} does not end in a known format; give --format {', '.join(FORMATS)}")


def _open(source: str, storage_options: Mapping[str, Any]) -> Any:
    """Open a file, a URL or stdin (``-``) as a seekable file."""
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


def _read_parquet(file: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> _Opened:
    import pyarrow as pa

    from lakeformat.files.batch_rows import OpenParquet

    parquet = OpenParquet(file)
    batches = parquet.iter_batches()
    return pa.RecordBatchReader.from_batches(parquet.schema_arrow, batches), parquet.metadata.num_rows


def _read_csv(file: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> _Opened:
    import pyarrow as pa
    from pyarrow import csv

    from lakeformat.cli.checked_csv import csv_options, open_checked

    flat = {} if like is None else {field.name: field.type for field in like if not pa.types.is_nested(field.type)}
    if file.read(2) == b"\x1f\x8b":
        file.seek(0)
        file = pa.CompressedInputStream(file, "gzip")
    else:
        file.seek(0)
    if bad_rows is not None:
        return open_checked(file, flat, bad_rows), None
    return csv.open_csv(file, convert_options=csv_options(flat)), None


def _read_json(file: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> _Opened:
    """Read one object per line, or one list of objects. Rows become Python objects; use Parquet for large loads."""
    from lakeformat.arrow.python_values import to_array
    from lakeformat.cli.json_values import from_json
    from lakeformat.write.rows.arrow_input import python_table, take_out_unreadable

    rows = _json_rows(file.read(), bad_rows)
    names = dict.fromkeys(name for row in rows for name in row)
    known = {} if like is None else {field.name: field.type for field in like}
    values: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    if bad_rows is not None:
        values = take_out_unreadable(values, known, lambda some, kind: to_array(from_json(some, kind), kind), bad_rows)
    table = python_table({name: from_json(values[name], known.get(name)) for name in names}, like)
    return table.to_reader(), table.num_rows


def _json_rows(data: bytes, bad_rows: BadRows | None) -> list[dict[str, Any]]:
    """Return the objects of a list, or of lines. Other lines are collected, or refused."""
    from lakeformat.cli.json_values import parse_json

    text = io.TextIOWrapper(io.BytesIO(data), "utf-8")
    is_list = data.lstrip()[:1] == b"["
    if is_list or bad_rows is None:
        rows = parse_json(text.read()) if is_list else [parse_json(line) for line in text if line.strip()]
        if not all(isinstance(row, dict) for row in rows):
            raise InvalidInputError("a row of the JSON is not an object; give one object per row")
        return list(rows)
    objects: list[dict[str, Any]] = []
    others: list[tuple[str, str]] = []
    for line in filter(str.strip, text):
        try:
            row = parse_json(line)
        except ValueError as error:
            others.append((line.rstrip("\n"), f"the line is not JSON: {error}"))
            continue
        if isinstance(row, dict):
            objects.append(row)
        else:
            others.append((line.rstrip("\n"), "the line is not a JSON object"))
    bad_rows.add_lines(others)
    return objects


def _read_arrow(file: Any, like: pa.Schema | None, bad_rows: BadRows | None) -> _Opened:
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
    """Yield the batches. Raise `SchemaMismatchError` if a value in them cannot be read."""
    import pyarrow as pa

    try:
        yield from reader
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(f"{source}: {error}; correct the value, or convert the column first{_HINT}") from None


def _show_progress(batches: Iterator[pa.RecordBatch], total: int | None, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches and show progress on stderr, if stderr is a terminal."""
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


OUTPUTS: Final = ("table", "csv", "json", "arrow", "parquet")
_BINARY: Final = frozenset({"arrow", "parquet"})


def write_rows(
    reader: pa.RecordBatchReader,
    kind: str,
    output: str | None,
    storage_options: dict[str, Any],
    *,
    vertical: bool = False,
) -> None:
    """Write all rows of a stream. Memory: one batch; for ``table``, all rows.

    Args:
        kind: one of `OUTPUTS`.
        output: path or URL of a file; None for stdout.
        vertical: whether a table has each value on a line of its own.

    Raises:
        InvalidInputError: the format is unknown, or a binary format would go to a terminal.
    """
    if kind not in OUTPUTS:
        raise InvalidInputError(f"--format {kind} does not exist; give one of {', '.join(OUTPUTS)}")
    if kind in _BINARY and output is None and sys.stdout.isatty():
        raise InvalidInputError(f"{kind} is not for a terminal; give --output FILE, or send it into a pipe")
    if kind == "table":
        if output is not None:
            raise InvalidInputError("--format table is for people to look at; give csv, json, arrow or parquet")
        show_table(reader.read_all(), vertical=vertical)
        return
    with open_sink(output, storage_options) as sink:
        rows = _WRITERS[kind](reader, sink)
    if output is not None:
        print_remark(f"{rows:,} rows written to {output}")


def show_table(rows: pa.Table, *, vertical: bool = False) -> None:
    """Print all rows as a table for people; ``vertical`` prints each value on a line of its own."""
    import pyarrow as pa

    columns = [[" ".join(_display(value).splitlines()) for value in column.to_pylist()] for column in rows.columns]
    if vertical:
        show_vertical(rows.column_names, columns)
        return
    kinds = [field.type for field in rows.schema]
    show_values(
        rows.column_names,
        columns,
        [pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of) for of in kinds],
    )


def _display(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(to_plain(value), ensure_ascii=False)
    return str(value)


@contextmanager
def open_sink(output: str | None, storage_options: dict[str, Any]) -> Iterator[Any]:
    """Open a file or URL for bytes; None is stdout."""
    from lakeformat.storage import open_storage

    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    folder, _, name = output.rpartition("/")
    storage = open_storage(folder or ("/" if output.startswith("/") else "."), **storage_options)
    with storage.open_output(name) as sink:
        yield sink


def _write_csv(reader: pa.RecordBatchReader, sink: Any) -> int:
    """Write CSV. Nested values become JSON text."""
    import pyarrow as pa
    from pyarrow import csv

    nested = {field.name for field in reader.schema if pa.types.is_nested(field.type)}
    flat = pa.schema([f.with_type(pa.string()) if f.name in nested else f for f in reader.schema])
    rows = 0
    with csv.CSVWriter(sink, flat) as writer:
        for batch in reader:
            columns = [
                pa.array([None if v is None else _display(v) for v in column.to_pylist()], pa.string())
                if field.name in nested
                else column
                for field, column in zip(reader.schema, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
            rows += batch.num_rows
    return rows


def _write_json(reader: pa.RecordBatchReader, sink: Any) -> int:
    """Write one object per line. Values that JSON has no form for become text."""
    rows = 0
    for batch in reader:
        lines = [json.dumps(to_plain(row), ensure_ascii=False) for row in batch.to_pylist(maps_as_pydicts="lossy")]
        sink.write("".join(f"{line}\n" for line in lines).encode())
        rows += batch.num_rows
    return rows


def _write_arrow(reader: pa.RecordBatchReader, sink: Any) -> int:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, reader.schema) as writer:
        return _copy(reader, writer)


def _write_parquet(reader: pa.RecordBatchReader, sink: Any) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, reader.schema) as writer:
        return _copy(reader, writer)


def _copy(reader: pa.RecordBatchReader, writer: Any) -> int:
    rows = 0
    for batch in reader:
        writer.write_batch(batch)
        rows += batch.num_rows
    return rows


_WRITERS: Final = {"csv": _write_csv, "json": _write_json, "arrow": _write_arrow, "parquet": _write_parquet}
