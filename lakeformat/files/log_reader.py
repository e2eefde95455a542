"""The reader of the log files of one slice: first it finds and orders their blocks, then it decodes them.

Memory: headers during planning; then the content and columns of one block at a time, if the caller frees the
decoded content of a block before it requests the next. `LogBlock.content_bytes` gives the size of a block before it is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock, decode_positions, parse_blocks
from lakeformat.errors import CorruptTableError
from lakeformat.files.block_content import decode_avro_rows, decode_deletes, decode_parquet_rows
from lakeformat.files.block_order import blocks_to_merge
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.native_logs import decode_native_deletes, read_native_block, read_native_changes
from lakeformat.files.stored_shape import AS_STORED, StoredShape
from lakeformat.merge.versions import LogDeletes, LogPart
from lakeformat.model.files import LogFile, LogFileName
from lakeformat.storage.port import Storage

__all__ = [
    "decode_blocks",
    "has_row_numbers",
    "plan_blocks",
    "read_blocks",
    "read_change_data",
    "read_contents",
    "read_parts",
    "read_shaped_parts",
]

#: The function that decodes the content of each kind of block with records or deletes (`BlockKind.is_data_or_delete`).
_DECODERS: Final[Mapping[BlockKind, Callable[[LogBlock, Any, Collection[str] | None], LogPart]]] = {
    BlockKind.AVRO_DATA: decode_avro_rows,
    BlockKind.PARQUET_DATA: decode_parquet_rows,
    BlockKind.DELETE: lambda block, content, _: _decode_deletes(block, content),
}


def _decode_deletes(block: LogBlock, content: Any) -> LogDeletes:
    """Decode a delete block, or a native file of deletes."""
    name = LogFileName.match(block.path.rpartition("/")[2])
    is_native = name is not None and bool(name.native)
    return decode_native_deletes(block, content) if is_native else decode_deletes(block, content)


def read_parts(
    storage: Storage,
    logs: Sequence[LogFile],
    *,
    is_committed: Callable[[str], bool],
    columns: Collection[str] | None = None,
) -> Iterator[LogPart]:
    """Read the records and deletes of a slice's log files, block by block, in the order in which they are merged."""
    return decode_blocks(storage, plan_blocks(storage, logs, is_committed=is_committed), columns=columns)


def read_shaped_parts(
    storage: Storage,
    logs: Sequence[LogFile],
    is_committed: Callable[[str], bool],
    columns: Collection[str],
    shape: StoredShape | None,
) -> Iterator[LogPart]:
    """Read columns of a slice's log files as `read_parts` does, converted from the files' shape to the table's."""
    if shape is None or shape is AS_STORED:
        return read_parts(storage, logs, is_committed=is_committed, columns=columns)
    stored = read_parts(storage, logs, is_committed=is_committed, columns=shape.possible_names(columns))
    return (shape.restore_part(part, columns) for part in stored)


def plan_blocks(
    storage: Storage, logs: Sequence[LogFile], *, is_committed: Callable[[str], bool]
) -> tuple[LogBlock, ...]:
    """Plan the data and delete blocks to merge, in the order of their writes. Only headers are read.

    Args:
        logs: log files of one slice, in order (`LogFileName.order`). CDC log files are skipped.
        is_committed: whether a block's instant is visible: committed, and not later than the snapshot's. From table
            version 8 on, all blocks of a log file have the instant in its name. Older files, even in upgraded tables,
            may have blocks of several instants.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names file and block. Remains of a failed write are
            skipped.
        UnsupportedTableError: a block has an unknown version or kind.
    """
    blocks = [block for log in logs for block in read_blocks(storage, log)]
    return blocks_to_merge(blocks, is_committed)


def read_blocks(storage: Storage, log: LogFile) -> tuple[LogBlock, ...]:
    """Return all complete blocks of a log file, visible or not; none if it is a CDC log file.

    A file may have grown since it was listed: only its first ``size_bytes`` are read.

    Raises:
        CorruptTableError: the file is missing or damaged.
        UnsupportedTableError: a block has an unknown version, kind or header key.
    """
    if log.name.is_cdc:
        return ()
    with _open(storage, log.path) as source:
        if source.size() < log.size_bytes:  # A listing of the metadata table does not show this.
            raise CorruptTableError(
                f"{log.path} has {source.size():,} bytes of the {log.size_bytes:,} written; restore it from a copy; "
                "lakeformat check says what else helps"
            )
        if log.name.native:
            return (read_native_block(source, log),)
        return tuple(parse_blocks(source, log.path, log.size_bytes))


def read_change_data(storage: Storage, log: LogFile) -> Iterator[pa.Table]:
    """Yield the rows of a CDC log file block by block (Hudi: ``HoodieCDCDataBlock``).

    The columns depend on the logging mode of the table when the file was written.

    Raises:
        CorruptTableError: the file is missing or damaged; the message names file and block.
        UnsupportedTableError: a block has an unknown version or kind.
    """
    with _open(storage, log.path) as source:
        if log.name.native:
            yield from read_native_changes(source, log)
            return
        for block in parse_blocks(source, log.path, source.size()):
            if block.kind is BlockKind.CDC_DATA:
                yield decode_avro_rows(block, _read_content(source, block)).rows


def decode_blocks(
    storage: Storage,
    blocks: Sequence[LogBlock],
    *,
    columns: Collection[str] | None = None,
    base_instant: str | None = None,
) -> Iterator[LogPart]:
    """Decode the blocks in order, each one when the caller requests it.

    Args:
        blocks: data and delete blocks.
        columns: names of the columns to decode from data blocks; names that a block does not have are skipped.
        base_instant: instant of the slice's base file, to which record positions refer. If None, positions are not
            decoded.

    Raises:
        CorruptTableError: a content is damaged or the file is missing; the message names file and block.
        UnsupportedTableError: a content has an unknown version or type.
    """
    for source, block in _open_each(storage, blocks):
        yield _decode_block(
            source, block, columns, base_instant
        )  # A variable would keep the rows in memory while the next block is decoded, so none is used.


def read_contents(storage: Storage, blocks: Sequence[LogBlock]) -> Iterator[tuple[LogBlock, Any]]:
    """Read the contents of the blocks in order, each one when the caller requests it, as a ``pyarrow.Buffer``.

    Raises:
        CorruptTableError: the file is missing, or ended while it was read.
    """
    for source, block in _open_each(storage, blocks):
        yield block, _read_content(source, block)


def _open_each(storage: Storage, blocks: Sequence[LogBlock]) -> Iterator[tuple[Any, LogBlock]]:
    """Yield each block with the open file that it is in."""
    with ExitStack() as stack:
        path, source = "", None
        for block in blocks:
            if block.path != path:
                stack.close()
                path, source = block.path, stack.enter_context(_open(storage, block.path))
            yield source, block


def _decode_block(source: Any, block: LogBlock, columns: Collection[str] | None, base_instant: str | None) -> LogPart:
    part = _DECODERS[block.kind](block, _read_content(source, block), columns)
    return part if base_instant is None else _add_positions(part, block, base_instant)


def has_row_numbers(block: LogBlock) -> bool:
    """Tell whether the block's header has record positions, without decoding them."""
    return HeaderKey.RECORD_POSITIONS in block.header


def _add_positions(part: LogPart, block: LogBlock, base_instant: str) -> LogPart:
    """Add the base-file row numbers of the records from the block's header (Hudi: ``getRecordPositions``).

    Add nothing in these cases: the header has no row numbers, fewer than there are records, or they
    are not known to be those of the base file of instant ``base_instant``.

    Raises:
        CorruptTableError: the header has more row numbers than the block has records.
    """
    base_of_positions = block.header.get(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    records = len(part.keys) if isinstance(part, LogDeletes) else part.rows.num_rows
    if text is None or base_of_positions not in {None, base_instant}:
        return part
    positions = decode_positions(text, most=records, name=block.name)
    if positions is None or len(positions.rows) != records:
        return part
    if (
        base_of_positions is None
    ):  # The header does not name the base file. Up to table version 6, lakeformat's log files have it in their name.
        name = LogFileName.match(block.path.rpartition("/")[2])
        if not positions.by_lakeformat or name is None or name.instant_time != base_instant:
            return part
    return replace(part, positions=positions.rows)


def _read_content(source: Any, block: LogBlock) -> Any:
    if source.size() < block.content_offset + block.content_bytes:
        raise CorruptTableError(f"{block.name} ended while it was read; read again")
    source.seek(block.content_offset)
    return source.read_buffer(block.content_bytes)


def _open(storage: Storage, path: str) -> Any:
    try:
        return storage.open_input(path)
    except FileNotFoundError:
        raise missing_file_error(storage, path) from None
