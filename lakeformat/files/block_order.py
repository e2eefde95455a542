"""Which blocks of a slice's log files count, and in which order: blocks in, blocks out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakeformat.codec.log_block import BlockKind, HeaderKey, LogBlock
from lakeformat.errors import UnsupportedTableError

__all__ = ["blocks_to_merge"]

#: ``COMMAND_BLOCK_TYPE`` of the one command there is (Hudi: ``HoodieCommandBlockTypeEnum``, by ordinal).
_ROLLBACK = "0"


def blocks_to_merge(blocks: Sequence[LogBlock], is_committed: Callable[[str], bool]) -> tuple[LogBlock, ...]:
    """The data and delete blocks that make a snapshot, the later written ones last.

    Hudi: ``BaseHoodieLogRecordReader.scanInternal``. Left out are

    - blocks of an instant that is not committed; others may follow,
    - blocks whose instant a rollback block names that stands behind them, committed or not: the instant may be so old
      that its absence from the timeline tells nothing,
    - blocks that a compacted block (log compaction) stands for. It takes the place of the newest of them,
    - change data.

    Blocks of tasks that were tried twice (``BLOCK_IDENTIFIER``) are merged twice, as 0.15.0 and 1.2.0 do.

    Args:
        blocks: of all log files of a slice, in the order of the files.
        is_committed: whether an instant is visible in the snapshot.

    Raises:
        UnsupportedTableError: a block that counts is an HFile, or a command is no rollback.
    """
    kept: list[LogBlock] = []
    for block in blocks:
        if block.kind is BlockKind.COMMAND:
            target = _rolled_back(block)
            kept = [one for one in kept if one.instant_time != target]
        elif _says_something(block) and is_committed(block.instant_time):
            kept.append(block)
    return _compacted(kept)


def _says_something(block: LogBlock) -> bool:
    if block.kind is BlockKind.HFILE_DATA:
        raise UnsupportedTableError(f"{block.name} is an HFile, which is not supported; use Apache Hudi")
    return block.kind.is_data_or_delete


def _rolled_back(block: LogBlock) -> str:
    command = block.told(HeaderKey.COMMAND_BLOCK_TYPE)
    if command != _ROLLBACK:
        raise UnsupportedTableError(f"{block.name} is the unknown command {command!r}; compact the table first")
    return block.told(HeaderKey.TARGET_INSTANT_TIME)


def _compacted(blocks: list[LogBlock]) -> tuple[LogBlock, ...]:
    """Without the blocks that others stand for, each of these others in the place of the newest of them.

    A compacted block may itself be compacted: the last one stands for all. One whose originals are not there stays
    where it is.
    """
    final = _stands_for(blocks)
    if not final:
        return tuple(blocks)
    by_instant: dict[str, list[LogBlock]] = {}
    for block in blocks:
        by_instant.setdefault(block.instant_time, []).append(block)
    compacted = {block.instant_time for block in blocks if block.compacted_times}
    place = {final[time]: time for time in by_instant if time in final and time not in compacted}
    ordered: list[LogBlock] = []
    for time in by_instant:
        stands = final.get(time, time)
        if place.get(stands, stands) == time:
            ordered += by_instant[stands]
    return tuple(ordered)


def _stands_for(blocks: list[LogBlock]) -> dict[str, str]:
    """Instant of blocks that are left out -> instant of those that stand for them in the end."""
    final: dict[str, str] = {}
    for block in reversed(blocks):
        last = final.get(block.instant_time, block.instant_time)
        for time in block.compacted_times:
            if time != last:
                final.setdefault(time, last)
    return final
