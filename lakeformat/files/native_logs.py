"""Native log files of table version 10: a Parquet file of rows, deletes or changes, whose footer is the block's header.

Each file is read as a log file of one block (Hudi 1.3: ``NativeLogFooterMetadata``). No released Hudi writes them yet;
docs/design/table-version-10.md says which of the sources this module follows where they differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from lakeformat.arrow.kinds import kind_of
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.merge.versions import LogDeletes
from lakeformat.model.files import LogFile
from lakeformat.model.record import RECORD_KEY

__all__ = ["decode_native_deletes", "read_native_block", "read_native_changes"]

_PREFIX: Final = "hudi.log.format."
#: The one entry of files that Hudi wrote before it had an entry for each header.
_JOINED: Final = _PREFIX + "metadata"
_NEWEST_VERSION: Final = 2
#: The keys of a header that a reader needs. Positions are a hint, and are left out.
_KEPT: Final = (HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA, HeaderKey.COMPACTED_BLOCK_TIMES, HeaderKey.IS_PARTIAL)
_KINDS: Final = {"log": BlockKind.PARQUET_DATA, "deletes": BlockKind.DELETE}


def read_native_block(source: Any, log: LogFile) -> LogBlock:
    """Return the one block of a native file of rows or deletes. Only the footer is read.

    Args:
        source: the open file.

    Raises:
        CorruptTableError: the file has no footer, or its footer lacks the schema of the rows.
        UnsupportedTableError: the file's format or the version of its footer is not supported.
    """
    kind, header = _KINDS[log.name.native_kind], _read_header(_open(source, log), log.path)
    header = {HeaderKey.INSTANT_TIME: log.name.instant_time, **header}
    if kind is BlockKind.PARQUET_DATA and HeaderKey.SCHEMA not in header:
        raise CorruptTableError(f"{log.path} has no {_PREFIX}SCHEMA in its footer; restore it from a copy")
    return LogBlock(log.path, 0, log.size_bytes, kind, 0, log.size_bytes, header)


def read_native_changes(source: Any, log: LogFile) -> Iterator[pa.Table]:
    """Yield the rows of a native file of changes, row group by row group. It has no entries in its footer."""
    parquet = _open(source, log)
    for group in range(parquet.num_row_groups):
        yield parquet.read_row_group(group, use_threads=False)


def decode_native_deletes(block: LogBlock, content: Any) -> LogDeletes:
    """Decode the keys of a native file of deletes, and its columns of ordering values, if one has a value.

    Raises:
        CorruptTableError: the file is damaged, or has a row without a key.
        UnsupportedTableError: the columns are not a key and values of ordering columns.
    """
    try:
        with OpenParquet(pa.BufferReader(content)) as parquet:
            rows = parquet.read(use_threads=False).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise CorruptTableError(f"{block.path} cannot be read: {str(error)[:300]}; restore the file") from None
    names = [name for name in rows.schema.names if name != RECORD_KEY]
    odd = [name for name in names if name.startswith("_hoodie_") or kind_of(rows.schema.field(name).type).is_nested]
    if odd or RECORD_KEY not in rows.schema.names:
        raise UnsupportedTableError(
            f"{block.path} has the columns {', '.join(rows.schema.names)}, and deletes have a {RECORD_KEY} and "
            "ordering columns; compact the table with Apache Hudi"
        )
    keys = rows.column(RECORD_KEY).cast(pa.string()).combine_chunks()
    if keys.null_count:
        raise CorruptTableError(f"{block.path} deletes a row without a key; restore the file")
    ordering = [rows.column(name).combine_chunks() for name in names]
    if all(column.null_count == len(column) for column in ordering):
        return LogDeletes(block.instant_time, _one(keys))
    return LogDeletes(block.instant_time, _one(keys), tuple(map(_one, ordering)), names=tuple(names))


def _one(column: Any) -> pa.Array:
    """Return a column as one array."""
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _open(source: Any, log: LogFile) -> OpenParquet:
    if log.name.native_format != "parquet":
        raise UnsupportedTableError(
            f"{log.path} is a log file in the format {log.name.native_format}, only parquet is supported; compact the "
            "table with Apache Hudi"
        )
    try:
        return OpenParquet(source)
    except (pa.ArrowException, OSError) as error:
        raise CorruptTableError(f"{log.path} cannot be read: {str(error)[:300]}; restore the file") from None


def _read_header(parquet: OpenParquet, path: str) -> Mapping[HeaderKey, str]:
    """Return the entries of the footer that a reader needs, from single entries or from the one joined entry."""
    entries = {key.decode(): text.decode() for key, text in (parquet.metadata.metadata or {}).items()}
    if _JOINED in entries:
        entries = {**_split(entries[_JOINED], path), **entries}
    version = entries.get(_PREFIX + "VERSION", str(_NEWEST_VERSION))
    if not version.isdigit() or int(version) > _NEWEST_VERSION:
        raise UnsupportedTableError(
            f"{path} is a log file of version {version[:20]}, only {_NEWEST_VERSION} is supported; compact the table "
            "with Apache Hudi"
        )
    return {key: entries[_PREFIX + key.name] for key in _KEPT if _PREFIX + key.name in entries}


def _split(text: str, path: str) -> Mapping[str, str]:
    try:
        return {_PREFIX + str(name): str(value) for name, value in dict(json.loads(text)).items()}
    except (ValueError, TypeError):
        raise CorruptTableError(f"{path} has a damaged {_JOINED} in its footer; restore the file") from None
