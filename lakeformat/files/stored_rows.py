"""The rows of base files on their way into other base files, batch by batch; repeated text stays in dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.errors import CorruptTableError
from lakeformat.files.base_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from lakeformat.files.footers import row_batches
from lakeformat.model.record import FILE_NAME, PARTITION_PATH, RECORD_KEY

__all__ = ["repeating_text", "stored_batches", "stored_shape"]

#: A dictionary index takes at most this many bytes. Columns with more bytes a value hold plain texts.
_INDEX_BYTES: Final = 4


def repeating_text(footers: Sequence[Any], texts: Collection[str]) -> frozenset[str]:
    """Return those of the text columns that all the files store in dictionaries."""
    chunks: dict[str, list[Any]] = {}
    for metadata in footers:
        for group in range(metadata.num_row_groups):
            for at in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(at)
                if chunk.path_in_schema in texts:
                    chunks.setdefault(chunk.path_in_schema, []).append(chunk)
    groups = sum(metadata.num_row_groups for metadata in footers)
    return frozenset(name for name, found in chunks.items() if len(found) == groups and all(map(_is_repeating, found)))


def _is_repeating(chunk: Any) -> bool:
    """Tell whether a column chunk is dictionary encoded and small.

    A writer that gave up the dictionary has stored plain texts, which are larger.
    """
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _INDEX_BYTES * chunk.num_values


def stored_shape(shape: pa.Schema) -> pa.Schema:
    """Return the columns of a base file that are copied into another file."""
    return pa.schema([field for field in shape if field.name not in {PARTITION_PATH, FILE_NAME}])


def stored_batches(
    parquet: Any,
    path: str,
    shape: pa.Schema,
    *,
    threads: bool,
    rows: int = ROW_GROUP_ROWS,
    most_bytes: int = ROW_GROUP_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Read a base file in this shape, without the columns that differ for every file. Missing columns are null.

    Args:
        shape: as `lakeformat.files.base_file.stored_schema` makes it.
        rows: most rows of a batch; a batch never crosses the end of a row group.
        most_bytes: bytes of a batch, about; columns that stay dictionaries do not count.
    """
    wanted = stored_shape(shape)
    present = set(parquet.schema_arrow.names)
    if RECORD_KEY not in present:
        raise CorruptTableError(f"{path} has no column {RECORD_KEY}; restore it from a copy")
    columns = [name for name in wanted.names if name in present]
    for batch in row_batches(parquet, path, rows, columns=columns, threads=threads, most_bytes=most_bytes):
        yield conform(batch, wanted)
