"""Rows from files and to files: Parquet, CSV, JSON and Arrow, at any path or URL, and tables for people.

Rows are read and written batch by batch. Progress is shown on a terminal.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakeformat.cli.output import ValuePrinter, print_remark, show_vertical, to_plain
from lakeformat.cli.sources import HINT, STDIN, find_files, open_parent
from lakeformat.cli.waiting import show_reading
from lakeformat.errors import InvalidInputError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeformat.write.rows.bad_rows import BadRows

    #: The rows of a file, and their number if it is known.
    _Opened: TypeAlias = tuple[pa.RecordBatchReader, int | None]

__all__ = [
    "FORMATS",
    "OUTPUTS",
    "FileRows",
    "kind_of_output",
    "open_rows",
    "open_sink",
    "show_table",
    "value_text",
    "write_rows",
]

#: Maps a format to the endings of its file names.
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}


class FileRows:
    """The rows of files, for a write that puts bad rows aside: it reads them with its collector.

    Args:
        sources, like, kind, storage_options, fills: as in `open_rows`.
    """

    def __init__(
        self,
        sources: Sequence[str],
        like: pa.Schema,
        kind: str | None,
        storage_options: Mapping[str, Any],
        *,
        fills: bool,
    ) -> None:
        self._sources, self._like = sources, like
        self._given: dict[str, Any] = {"kind": kind, "storage_options": storage_options, "fills": fills}

    def read_checked(self, bad_rows: BadRows | None) -> pa.RecordBatchReader:
        """Return the rows. The write calls this; ``bad_rows`` collects rows that cannot be read."""
        return open_rows(self._sources, self._like, bad_rows=bad_rows, **self._given)


def open_rows(
    sources: Sequence[str],
    like: pa.Schema | None,
    *,
    kind: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    bad_rows: BadRows | None = None,
    fills: bool = False,
) -> pa.RecordBatchReader:
    """Open the rows of files as one stream: of one file after the other, with the columns of all.

    Texts become values where the table's column has dates, times, numbers or booleans.

    Memory: batches of the files' readers; JSON and stdin are read whole.

    Args:
        sources: files, folders and patterns; ``-`` is stdin.
        like: schema whose types the values get; None to infer the types.
        kind: a key of `FORMATS`; by default it follows from the ending of each file's name.
        bad_rows: collects the rows with values or lines that cannot be read; None refuses them.
        fills: whether a column that a file lacks, and another has, is null in its rows. In files of JSON it always is.

    Raises:
        InvalidInputError: a file does not exist, or the format is unknown or not the file's.
        SchemaMismatchError: a value does not fit its column's type, or columns of the files contradict.
    """
    import pyarrow as pa

    if kind is not None and kind not in FORMATS:
        raise InvalidInputError(f"no format {kind!r} can be read; --format takes {', '.join(FORMATS)}")
    options = storage_options or {}
    files = find_files(sources, lambda name: kind is not None or _ending_kind(name) is not None, options)
    opened = [_File(name, kind or _guess_kind(name), like, options) for name in files]
    if len(opened) == 1:
        reader, total = opened[0].open(bad_rows)
        batches: Iterator[pa.RecordBatch] = iter(reader)
        schema = reader.schema
    else:
        schema, total = _join_columns(opened, has_bad_rows=bad_rows is not None, fills=fills)
        batches = _read_all(opened, schema, bad_rows)
    name = files[0] if len(files) == 1 else f"{len(files):,} files"
    return pa.RecordBatchReader.from_batches(schema, _show_progress(batches, total, name))


def _join_columns(files: Sequence[_File], *, has_bad_rows: bool, fills: bool) -> tuple[pa.Schema, int | None]:
    """Return the columns of all files, and the number of their rows if it is known."""
    import pyarrow as pa

    fields: dict[str, pa.Field] = {}
    counts: list[int | None] = []
    names: dict[str, frozenset[str]] = {}
    for file in files:
        reader, count = file.open(_forget() if has_bad_rows else None)
        counts.append(count)
        if file.kind != "json" and not fills:
            names[file.source] = frozenset(reader.schema.names)
        for field in reader.schema:
            earlier = fields.get(field.name)
            if earlier is None or earlier.type.equals(pa.null()):
                fields[field.name] = field
            elif not field.type.equals(pa.null()) and not earlier.type.equals(field.type):
                raise SchemaMismatchError(
                    f"{file.source}: column {field.name!r} is {field.type}, and {earlier.type} in the files before; "
                    "convert one of them"
                )
    for source, own in names.items():
        if lacking := [name for name in fields if name not in own]:
            raise InvalidInputError(
                f"{source} has no column {lacking[0]!r}, which other files have; add it, or set "
                "hoodie.write.set.null.for.missing.columns=true"
            )
    return pa.schema(fields.values()), None if None in counts else sum(filter(None, counts))


def _forget() -> BadRows:
    """Return a collector whose rows nothing reads."""
    from lakeformat.storage import open_storage
    from lakeformat.write.rows.bad_rows import BadRows

    return BadRows(open_storage("."))


def _read_all(files: Sequence[_File], schema: pa.Schema, bad_rows: BadRows | None) -> Iterator[pa.RecordBatch]:
    from lakeformat.arrow.conform import conform

    good = 0
    for file in files:
        for batch in file.open(bad_rows, good + (bad_rows.unread if bad_rows is not None else 0))[0]:
            good += batch.num_rows
            yield conform(batch, schema)


#: Bytes of a file in which its line of names is sought; maps other separators of values to their names.
_FIRST_BYTES: Final = 1 << 16
_OTHER_MARKS: Final[Mapping[bytes, str]] = {b";": "';'", b"\t": "tabs", b"|": "'|'"}


@dataclass(frozen=True)
class _File:
    """One file of rows; the attributes are as in `open_rows`."""

    source: str
    kind: str
    like: pa.Schema | None
    storage_options: Mapping[str, Any]

    def open(self, bad_rows: BadRows | None, first: int = 0) -> _Opened:
        """Return the rows, and their number if it is known.

        Args:
            first: position of the first row in the whole input.
        """
        import pyarrow as pa

        file = _open(self.source, self.storage_options)
        try:
            reader, total = _READERS[self.kind](file, self, bad_rows, first)
        except (pa.ArrowException, InvalidOperation, ValueError, OSError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise self._refusal(error) from None
        return pa.RecordBatchReader.from_batches(reader.schema, self._translate_errors(reader)), total

    def _translate_errors(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Raise `SchemaMismatchError` if a value in them cannot be read."""
        import pyarrow as pa

        try:
            yield from reader
        except pa.ArrowInvalid as error:
            raise (
                self._refusal(error)
                if self.kind == "csv"
                else SchemaMismatchError(
                    f"{self.source}: {error}; correct the value, or convert the column first{HINT}"
                )
            ) from None

    def _refusal(self, error: Exception) -> Exception:
        """Return the error for a file that cannot be read: a value, a line or the whole file is wrong."""
        text = str(error)
        if self.kind == "csv" and (wrong := self._find_wrong_form(text)):
            return InvalidInputError(f"{self.source}{wrong}")
        named = self._find_bad_value() if self.kind == "csv" and "In CSV column" in text else None
        if named is not None:
            return named
        if isinstance(error, InvalidOperation) or "onversion error" in text or "Failed to parse string" in text:
            reason = "a value is not a decimal number" if isinstance(error, InvalidOperation) else text
            return SchemaMismatchError(f"{self.source}: {reason}; correct the value{HINT}")
        if self.kind == "csv" and "CSV parse error" in text:
            return InvalidInputError(
                f"{self.source}: {text}; correct that line, or name another format with --format{HINT}"
            )
        return InvalidInputError(
            f"{self.source} cannot be read as {self.kind}: {text}; correct it, or name another with --format"
        )

    def _find_wrong_form(self, text: str) -> str | None:
        """Return what is wrong with the whole CSV file: its encoding, or separators other than commas."""
        if "invalid UTF8" in text:
            return " is not UTF-8; convert it first, for example by iconv -f latin1 -t utf-8"
        if "CSV parse error: Expected 1 columns" not in text or self.source == STDIN:
            return None
        names = _plain_csv(_open(self.source, self.storage_options)).read(_FIRST_BYTES).partition(b"\n")[0]
        used = next((said for mark, said in _OTHER_MARKS.items() if mark in names), None)
        return used and f": its values are separated by {used}, not by commas; convert it first"

    def _find_bad_value(self) -> SchemaMismatchError | None:
        """Read CSV again as texts, and return the error for the first value of the table's columns that is none."""
        import pyarrow as pa
        from pyarrow import csv

        from lakeformat.cli.checked_csv import csv_options, parse_texts
        from lakeformat.cli.text_casts import name_bad_text

        types = _flat_types(self.like)
        if self.source == STDIN:
            return None
        done = 0
        file, as_texts = _open(self.source, self.storage_options), csv_options(dict.fromkeys(types, pa.string()))
        for batch in csv.open_csv(_plain_csv(file), convert_options=as_texts):
            rows = pa.Table.from_batches([batch])
            fields = [field.with_type(types[field.name]) for field in rows.schema if field.name in types]
            problems = [name_bad_text(rows.column(f.name), f, self.source, done, parse_texts) for f in fields]
            if errors := [error for error in problems if error is not None]:
                return errors[0]
            done += batch.num_rows
        return None


def _ending_kind(source: str) -> str | None:
    return next((kind for kind, endings in FORMATS.items() if source.lower().endswith(endings)), None)


def _guess_kind(source: str) -> str:
    if (kind := _ending_kind(source)) is None:
        raise InvalidInputError(
            f"the name {source!r} does not end in a known format; give --format {', '.join(FORMATS)}"
        )
    return kind


def _open(source: str, storage_options: Mapping[str, Any]) -> Any:
    """Open a file, a URL or stdin (``-``) as a seekable file."""
    import pyarrow as pa

    if source == STDIN:
        return pa.BufferReader(sys.stdin.buffer.read())
    storage, name = open_parent(source, storage_options)
    try:
        return storage.open_input(name)
    except FileNotFoundError:
        raise InvalidInputError(f"there is no file {source}; check the path") from None


def _read_parquet(file: Any, said: _File, bad_rows: BadRows | None, first: int) -> _Opened:
    import pyarrow as pa

    from lakeformat.cli.text_casts import cast_texts
    from lakeformat.files.batch_rows import OpenParquet

    parquet = OpenParquet(file)
    reader = pa.RecordBatchReader.from_batches(parquet.schema_arrow, parquet.iter_batches())
    return cast_texts(reader, said.like, said.source, bad_rows, first), parquet.metadata.num_rows


def _read_csv(file: Any, said: _File, bad_rows: BadRows | None, first: int) -> _Opened:
    import pyarrow as pa
    from pyarrow import csv

    from lakeformat.cli.checked_csv import csv_options, open_checked

    flat, plain = _flat_types(said.like), _plain_csv(file)
    if bad_rows is not None:
        return open_checked(plain, flat, bad_rows, first), None
    reader = csv.open_csv(plain, convert_options=csv_options(flat))
    if any(field.type == pa.binary() and field.name not in flat for field in reader.schema):
        raise pa.ArrowInvalid("invalid UTF8 data")  # Arrow takes a text in another encoding for bytes.
    return reader, None


def _flat_types(like: pa.Schema | None) -> dict[str, pa.DataType]:
    from lakeformat.arrow.kinds import kind_of

    return {} if like is None else {field.name: field.type for field in like if not kind_of(field.type).is_nested}


def _plain_csv(file: Any) -> Any:
    """Return the file, decompressed if it is compressed."""
    import pyarrow as pa

    is_compressed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return pa.CompressedInputStream(file, "gzip") if is_compressed else file


def _read_json(file: Any, said: _File, bad_rows: BadRows | None, first: int) -> _Opened:
    """Read one object per line, or one list of objects. Rows become Python objects; use Parquet for large loads."""
    from lakeformat.arrow.python_values import to_array
    from lakeformat.cli.json_values import from_json
    from lakeformat.write.rows.arrow_input import python_table, take_out_unreadable

    rows = _json_rows(file.read(), bad_rows)
    names = dict.fromkeys(name for row in rows for name in row)
    types = {} if said.like is None else {field.name: field.type for field in said.like}
    values: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    if bad_rows is not None:
        convert = lambda some, kind: to_array(from_json(some, kind), kind)  # noqa: E731
        values = take_out_unreadable(values, types, convert, bad_rows, first)
    read = {name: _json_values(name, values[name], types.get(name), said.source) for name in names}
    table = python_table(read, said.like)
    return table.to_reader(), table.num_rows


def _json_values(name: str, values: list[Any], kind: pa.DataType | None, source: str) -> list[Any]:
    """Return the values of a column. Refuse the first that does not fit by its row."""
    import pyarrow as pa

    from lakeformat.cli.json_values import from_json
    from lakeformat.cli.text_casts import find_bad_value, unfit_error
    from lakeformat.write.rows.faults import CONVERSION_ERRORS

    try:
        return from_json(values, kind)
    except CONVERSION_ERRORS:
        bad_row = find_bad_value(values, lambda some: from_json(some, kind))
        if bad_row is None:
            raise
        raise unfit_error(source, bad_row, pa.field(name, kind), values[bad_row]) from None


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


def _read_arrow(file: Any, said: _File, bad_rows: BadRows | None, first: int) -> _Opened:
    import pyarrow as pa

    from lakeformat.cli.text_casts import cast_texts

    try:
        stored = pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return cast_texts(pa.ipc.open_stream(file), said.like, said.source, bad_rows, first), None
    batches = (stored.get_batch(number) for number in range(stored.num_record_batches))
    reader = pa.RecordBatchReader.from_batches(stored.schema, batches)
    return cast_texts(reader, said.like, said.source, bad_rows, first), None


_READERS: Final = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json, "arrow": _read_arrow}


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


def kind_of_output(output: str) -> str:
    """Return the format that the name of an output says."""
    if (kind := _ending_kind(output)) is None:
        raise InvalidInputError(
            f"the name {output!r} does not end in a known format; give --format csv, json, arrow or parquet"
        )
    return kind


def write_rows(
    reader: pa.RecordBatchReader,
    kind: str,
    output: str | None,
    storage_options: dict[str, Any],
    *,
    vertical: bool = False,
) -> None:
    """Write all rows of a stream, as they come. After one second stderr shows how many were read. Memory: one batch.

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
        show_table(show_reading(reader, hides=sys.stdout.isatty()), vertical=vertical)
        return
    reader = show_reading(reader, hides=output is None and sys.stdout.isatty())
    with open_sink(output, storage_options) as sink:
        rows = _WRITERS[kind](reader, sink)
    if output is not None:
        print_remark(f"{rows:,} rows written to {output}")


#: Number of rows that a table for people shows at once.
_BLOCK_ROWS: Final = 500


def show_table(rows: pa.RecordBatchReader, *, vertical: bool = False) -> None:
    """Print all rows as a table for people, as they come; ``vertical`` prints each value on a line of its own."""
    from lakeformat.arrow.kinds import kind_of

    names, kinds = rows.schema.names, [field.type for field in rows.schema]
    printer = ValuePrinter(names, [kind_of(of).is_number for of in kinds])
    shown = 0
    for batch in rows:
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            columns = _texts(batch.slice(start, _BLOCK_ROWS))
            show_vertical(names, columns, shown) if vertical else printer.show(columns)
            shown += min(_BLOCK_ROWS, batch.num_rows - start)
    if vertical:
        return
    if not shown:
        printer.show([[] for _ in names])
    printer.finish()


#: Maps tabs and other control characters, which would break the columns, to blanks.
_BLANKS: Final = dict.fromkeys((*range(32), 127), " ")


def _texts(rows: pa.RecordBatch) -> list[list[str]]:
    return [
        [" ".join(value_text(value).splitlines()).translate(_BLANKS) for value in column.to_pylist()]
        for column in rows.columns
    ]


def value_text(value: Any) -> str:
    """Return a value as people read it; nested values as JSON."""
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

    from lakeformat.arrow.kinds import kind_of

    nested = {field.name for field in reader.schema if kind_of(field.type).is_nested}
    flat = pa.schema([f.with_type(pa.string()) if f.name in nested else f for f in reader.schema])
    rows = 0
    with csv.CSVWriter(sink, flat) as writer:
        for batch in reader:
            columns = [
                pa.array([None if v is None else value_text(v) for v in column.to_pylist()], pa.string())
                if field.name in nested
                else column
                for field, column in zip(reader.schema, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
            rows += batch.num_rows
    return rows


def _write_json(reader: pa.RecordBatchReader, sink: Any) -> int:
    """Write one object per line. Values that JSON has no form for become text."""
    from lakeformat.cli.json_lines import json_lines

    rows = 0
    for batch in reader:
        for lines in json_lines(batch):
            sink.write(lines)
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
