"""The choice of the blocks in a slice's log files that are merged, and their order. No file is read here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock
from lakeformat.errors import UnsupportedTableError

__all__ = ["blocks_to_merge"]

#: ``COMMAND_BLOCK_TYPE`` of the only command (Hudi: ``HoodieCommandBlockTypeEnum``, by ordinal).
_ROLLBACK = "0"


def blocks_to_merge(
    blocks: Sequence[LogBlock], is_committed: Callable[[str], bool], *, has_hfiles: bool = False
) -> tuple[LogBlock, ...]:
    """Return the data and delete blocks that a snapshot merges, in the order of their writes.

    Hudi: ``BaseHoodieLogRecordReader.scanInternal``. These blocks are left out:

    - blocks of an instant that is not committed; later blocks of committed instants are merged all the same,
    - blocks whose instant is named by a later rollback block, even if ``is_committed`` is true for the instant: an
      instant that is older than the active timeline counts as committed, even if it was rolled back,
    - blocks that a compacted block (log compaction) replaces. The compacted block moves to the position of the newest
      block that it replaces,
    - blocks of CDC data.

    Blocks of retried tasks (``BLOCK_IDENTIFIER``) are merged twice, as Hudi 0.15.0 and 1.2.0 do.

    Args:
        blocks: blocks of all log files of a slice, in the order of the files.
        is_committed: whether an instant is visible in the snapshot.
        has_hfiles: whether the data blocks may be HFiles, as in a metadata table.

    Raises:
        UnsupportedTableError: a block is an HFile and must not be one, or a command is not a rollback.
    """
    merged: list[LogBlock] = []
    for block in blocks:
        if block.kind is BlockKind.COMMAND:
            target = _rollback_target(block)
            merged = [block for block in merged if block.instant_time != target]
        elif _is_merged(block, has_hfiles) and is_committed(block.instant_time):
            merged.append(block)
    return _apply_compaction(merged)


def _is_merged(block: LogBlock, has_hfiles: bool) -> bool:
    if block.kind is BlockKind.HFILE_DATA:
        if has_hfiles:
            return True
        raise UnsupportedTableError(f"{block.name} is an HFile, which is not supported; use Apache Hudi")
    return block.kind.is_data_or_delete


def _rollback_target(block: LogBlock) -> str:
    command = block.require(HeaderKey.COMMAND_BLOCK_TYPE)
    if command != _ROLLBACK:
        raise UnsupportedTableError(f"{block.name} is the unknown command {command!r}; compact the table first")
    return block.require(HeaderKey.TARGET_INSTANT_TIME)


def _apply_compaction(blocks: list[LogBlock]) -> tuple[LogBlock, ...]:
    """Drop the blocks that compacted blocks replace, and move each compacted block to its position in the merge order.

    This is the position of the newest block that it replaces. If none of these blocks exists any more, the compacted
    block keeps its own position. If a later compacted block replaces a compacted block, it also replaces the blocks
    that the earlier one replaced.
    """
    final = _map_replaced(blocks)
    if not final:
        return tuple(blocks)
    by_instant: dict[str, list[LogBlock]] = {}
    for block in blocks:
        by_instant.setdefault(block.instant_time, []).append(block)
    compacted = {block.instant_time for block in blocks if block.compacted_times}
    place = {final[time]: time for time in by_instant if time in final and time not in compacted}
    ordered: list[LogBlock] = []
    for time in by_instant:
        last_time = final.get(time, time)
        if place.get(last_time, last_time) == time:
            ordered += by_instant[last_time]
    return tuple(ordered)


def _map_replaced(blocks: list[LogBlock]) -> dict[str, str]:
    """Return a mapping of the instant of each replaced block to that of the last compacted block that replaces it."""
    final: dict[str, str] = {}
    for block in reversed(blocks):
        last = final.get(block.instant_time, block.instant_time)
        for time in block.compacted_times:
            if time != last:
                final.setdefault(time, last)
    return final
