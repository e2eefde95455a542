"""Rows as output: a table for people, CSV, JSON lines, an Arrow stream or Parquet, batch by batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from lakeformat.cli.output import plain, remark, show_rows
from lakeformat.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OUTPUTS", "show_table", "write_rows"]

OUTPUTS: Final = ("table", "csv", "json", "arrow", "parquet")
_BINARY: Final = frozenset({"arrow", "parquet"})


def write_rows(reader: pa.RecordBatchReader, kind: str, output: str | None, storage_options: dict[str, Any]) -> None:
    """Write all rows of a stream. Memory: one batch; for ``table``, all rows.

    Args:
        kind: one of `OUTPUTS`.
        output: path or URL of a file; None for stdout.

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
        show_table(reader.read_all())
        return
    with _sink(output, storage_options) as sink:
        rows = _WRITERS[kind](reader, sink)
    if output is not None:
        remark(f"{rows:,} rows written to {output}")


def show_table(rows: pa.Table) -> None:
    """Print all rows as a table for people."""
    show_rows(rows.column_names, zip(*(_texts(column) for column in rows.columns), strict=True))


def _texts(column: pa.ChunkedArray) -> list[Any]:
    return [str(shown) if isinstance(shown := _write_shown(value), float) else shown for value in column.to_pylist()]


def _write_shown(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | dict):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(value)


@contextmanager
def _sink(output: str | None, storage_options: dict[str, Any]) -> Iterator[Any]:
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
    """What is nested is JSON text: CSV knows no such values."""
    import pyarrow as pa
    from pyarrow import csv

    nested = {field.name for field in reader.schema if pa.types.is_nested(field.type)}
    flat = pa.schema([f.with_type(pa.string()) if f.name in nested else f for f in reader.schema])
    rows = 0
    with csv.CSVWriter(sink, flat) as writer:
        for batch in reader:
            columns = [
                pa.array([None if v is None else _write_shown(v) for v in column.to_pylist()], pa.string())
                if field.name in nested
                else column
                for field, column in zip(reader.schema, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
            rows += batch.num_rows
    return rows


def _write_json(reader: pa.RecordBatchReader, sink: Any) -> int:
    """An object a line; what JSON has no form for is text."""
    rows = 0
    for batch in reader:
        lines = [json.dumps(plain(row), ensure_ascii=False) for row in batch.to_pylist(maps_as_pydicts="lossy")]
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
