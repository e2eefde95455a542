"""The log files of a slice, as what they say together: blocks are found and put in order first, then decoded.

Memory: headers while planning; then one block's content and its columns at a time, as long as the caller takes one part
after the other and lets go of it. `LogBlock.content_bytes` tells beforehand how much that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.log_block import BlockKind, HeaderKey, LogBlock
from lakeformat.codec.log_envelope import blocks_of
from lakeformat.codec.roaring import decode_positions
from lakeformat.errors import CorruptTableError
from lakeformat.files.block_order import blocks_to_merge
from lakeformat.files.data_block import avro_rows, parquet_rows
from lakeformat.files.delete_block import deletes
from lakeformat.files.gone import gone
from lakeformat.merge.log_records import LogDeletes, LogPart
from lakeformat.model.files import LogFile, LogFileName
from lakeformat.storage.port import Storage

__all__ = ["decode_blocks", "may_point", "plan_blocks", "read_blocks", "read_change_data", "read_parts"]

#: ``(block, content, columns) -> part``, for the kinds that say something of records (`BlockKind.is_data_or_delete`).
_DECODERS: Final[Mapping[BlockKind, Callable[[LogBlock, Any, Collection[str] | None], LogPart]]] = {
    BlockKind.AVRO_DATA: avro_rows,
    BlockKind.PARQUET_DATA: parquet_rows,
    BlockKind.DELETE: lambda block, content, _: deletes(block, content),
}


def read_parts(
    storage: Storage,
    logs: Sequence[LogFile],
    *,
    is_committed: Callable[[str], bool],
    columns: Collection[str] | None = None,
) -> Iterator[LogPart]:
    """What the log files of a slice say, in the order in which it is to be merged; see `plan_blocks`."""
    return decode_blocks(storage, plan_blocks(storage, logs, is_committed=is_committed), columns=columns)


def plan_blocks(
    storage: Storage, logs: Sequence[LogFile], *, is_committed: Callable[[str], bool]
) -> tuple[LogBlock, ...]:
    """The data and delete blocks that count, the later written ones last. Only headers are read.

    Args:
        logs: of one slice, in order (`LogFileName.order`). Files of change data are passed by.
        is_committed: whether a block's instant is visible: committed, and not later than the snapshot's. From table
            version 8 on the file's own instant decides that, but for old files of tables that were upgraded.

    Raises:
        CorruptTableError: a file is missing or damaged; names file and block. What a failed write left is passed over.
        UnsupportedTableError: a block is of a version or kind that is not known.
    """
    blocks = [block for log in logs for block in read_blocks(storage, log)]
    return blocks_to_merge(blocks, is_committed)


def read_blocks(storage: Storage, log: LogFile) -> tuple[LogBlock, ...]:
    """All whole blocks of a file, whether they count or not; none of a file of change data.

    A file may have grown since it was listed: only its first ``size_bytes`` count.

    Raises:
        CorruptTableError: the file is missing or damaged.
        UnsupportedTableError: a block is of a version, a kind or with a header key that is not known.
    """
    if log.name.is_cdc:
        return ()
    with _opened(storage, log.path) as source:
        return tuple(blocks_of(source, log.path, min(log.size_bytes, source.size())))


def read_change_data(storage: Storage, log: LogFile) -> Iterator[pa.Table]:
    """What a file of change data holds, block by block: the columns of its mode (Hudi: ``HoodieCDCDataBlock``).

    Raises:
        CorruptTableError: the file is missing or damaged; names file and block.
        UnsupportedTableError: a block is of a version or kind that is not known.
    """
    with _opened(storage, log.path) as source:
        for block in blocks_of(source, log.path, source.size()):
            if block.kind is BlockKind.CDC_DATA:
                yield avro_rows(block, _content(source, block)).rows


def decode_blocks(
    storage: Storage,
    blocks: Sequence[LogBlock],
    *,
    columns: Collection[str] | None = None,
    base_instant: str | None = None,
) -> Iterator[LogPart]:
    """What each block says, in order, decoded as it is asked for.

    Args:
        blocks: data and delete blocks.
        columns: names of the columns to make of data blocks; those that a block does not have are passed over.
        base_instant: of the slice's base file, whose rows blocks may point to; None: nobody asks for positions.

    Raises:
        CorruptTableError: a content is damaged or the file gone; names file and block.
        UnsupportedTableError: a content is of a version or a type that is not known.
    """
    with ExitStack() as stack:
        path, source = "", None
        for block in blocks:
            if block.path != path:
                stack.close()
                path, source = block.path, stack.enter_context(_opened(storage, block.path))
            yield _decoded(source, block, columns, base_instant)  # Held by no name while the next one is decoded.


def _decoded(source: Any, block: LogBlock, columns: Collection[str] | None, base_instant: str | None) -> LogPart:
    part = _DECODERS[block.kind](block, _content(source, block), columns)
    return part if base_instant is None else _positioned(part, block, base_instant)


def may_point(block: LogBlock) -> bool:
    """Whether the header has row numbers of a base file, as far as can be told without decoding them."""
    return HeaderKey.RECORD_POSITIONS in block.header


def _positioned(part: LogPart, block: LogBlock, base_instant: str) -> LogPart:
    """With row numbers of the base file, where the block has one for each record (Hudi: ``getRecordPositions``)."""
    said = block.header.get(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    found = None if text is None or said not in {None, base_instant} else decode_positions(text)
    records = len(part.keys) if isinstance(part, LogDeletes) else part.rows.num_rows
    if found is None or len(found.rows) != records:
        return part
    if said is None:  # Up to table version 6 the file's name tells, of those who see to it.
        name = LogFileName.match(block.path.rpartition("/")[2])
        if not found.is_ours or name is None or name.instant_time != base_instant:
            return part
    return replace(part, positions=found.rows)


def _content(source: Any, block: LogBlock) -> Any:
    if source.size() < block.content_offset + block.content_bytes:
        raise CorruptTableError(f"{block.name} ended while it was read; read again")
    source.seek(block.content_offset)
    return source.read_buffer(block.content_bytes)


def _opened(storage: Storage, path: str) -> Any:
    try:
        return storage.open_input(path)
    except FileNotFoundError:
        raise gone(storage, path) from None
