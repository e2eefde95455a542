"""A table of examples: which log blocks count, and in which order."""

from __future__ import annotations

import pytest

from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.block_order import blocks_to_merge


def block(text: str, at: int) -> LogBlock:
    """Parse a block.

    ``3``: rows of instant 3. ``-3``: deletes. ``9=1,2``: rows of 9 that replace 1 and 2. ``9!3``: 9 rolls back 3.
    """
    kind, more = BlockKind.AVRO_DATA, dict[HeaderKey, str]()
    time, _, target = text.partition("!")
    if target:
        kind = BlockKind.COMMAND
        more = {HeaderKey.TARGET_INSTANT_TIME: target, HeaderKey.COMMAND_BLOCK_TYPE: "0"}
    elif time.startswith("-"):
        kind, time = BlockKind.DELETE, time[1:]
    elif time.startswith("cdc"):
        kind, time = BlockKind.CDC_DATA, time[3:]
    time, _, originals = time.partition("=")
    if originals:
        more[HeaderKey.COMPACTED_BLOCK_TIMES] = originals
    return LogBlock("f", at, 1, kind, 0, 0, {HeaderKey.INSTANT_TIME: time, **more})


@pytest.mark.parametrize(
    ("blocks", "merged"),
    [
        ("", ""),
        ("1 -1 2 -2", "1 -1 2 -2"),
        ("1 2 1", "1 2 1"),
        # u5 and u6 are not committed, and the blocks after them still count.
        ("1 u5 -u5 2 u6 3", "1 2 3"),
        ("1 cdc1 2", "1 2"),
        # A rollback removes all earlier blocks of its target: of any kind, at any distance, and even if repeated.
        ("1 2 -2 3 4!2", "1 3"),
        ("1 2 3 4!2 5!2", "1 3"),
        ("1 2 4!2 2", "1 2"),
        ("1 4!7 2", "1 2"),
        ("1 u4!1 2", "2"),
        # A compacted block takes the place of the newest of its originals.
        ("1 2 9=2,1", "9=2,1"),
        ("1 2 3 9=2,1", "9=2,1 3"),
        ("1 -1 2 3 9=2,1 -9 4", "9=2,1 -9 3 4"),
        ("1 2 3 9=3", "1 2 9=3"),
        # The blocks are compacted twice; the last compacted block replaces all.
        ("1 2 8=2,1 3 9=3,8", "9=3,8"),
        ("1 2 8=2,1 3 4 9=3,8 5", "9=3,8 4 5"),
        ("1 2 8=2,1 9=8 3", "9=8 3"),
        # If the compacted block is not committed or is rolled back, the originals count.
        ("1 2 u9=2,1 3", "1 2 3"),
        ("1 2 9=2,1 3 10!9", "1 2 3"),
        # The originals are missing or not committed.
        ("3 9=1,2 4", "3 9=1,2 4"),
        ("u1 2 3 9=1,2", "9=1,2 3"),
        # One compaction after the other.
        ("1 8=1 2 9=2 3", "8=1 9=2 3"),
        # Blocks that replace each other, which no writer makes: nothing is lost.
        ("8=9 9=8", "9=8"),
        ("9=9", "9=9"),
    ],
)
def test_which_blocks_are_merged_and_in_which_order(blocks: str, merged: str) -> None:
    texts = blocks.split()
    made = [block(text, at) for at, text in enumerate(texts)]
    found = blocks_to_merge(made, lambda time: not time.startswith("u"))
    assert " ".join(texts[one.offset] for one in found) == merged


def test_an_hfile_is_refused_by_name() -> None:
    hfile = LogBlock("p/.f_1.log.1_0-0-0", 0, 1, BlockKind.HFILE_DATA, 0, 0, {HeaderKey.INSTANT_TIME: "1"})
    with pytest.raises(UnsupportedTableError, match=r"p/\.f_1\.log\.1_0-0-0 .* is an HFile"):
        blocks_to_merge([hfile], lambda _: True)


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        ({HeaderKey.COMMAND_BLOCK_TYPE: "1", HeaderKey.TARGET_INSTANT_TIME: "1"}, UnsupportedTableError, "command '1'"),
        ({HeaderKey.COMMAND_BLOCK_TYPE: "0"}, CorruptTableError, "has no TARGET_INSTANT_TIME"),
        ({HeaderKey.TARGET_INSTANT_TIME: "1"}, CorruptTableError, "has no COMMAND_BLOCK_TYPE"),
    ],
)
def test_command_block_other_than_rollback_is_refused(
    header: dict[HeaderKey, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        blocks_to_merge([LogBlock("f", 0, 1, BlockKind.COMMAND, 0, 0, header)], lambda _: True)


def test_rows_without_an_instant_are_refused() -> None:
    with pytest.raises(CorruptTableError, match="has no INSTANT_TIME"):
        blocks_to_merge([LogBlock("f", 0, 1, BlockKind.DELETE, 0, 0, {})], lambda _: True)
