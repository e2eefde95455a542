"""A block of a log file: what its header tells, and where its content lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from lakeformat.errors import CorruptTableError

__all__ = ["AVRO_CONTENT_VERSION", "LOG_FORMAT_VERSION", "MAGIC", "BlockKind", "HeaderKey", "LogBlock"]

MAGIC: Final = b"#HUDI#"
#: Of the envelope (Hudi: ``HoodieLogFormatVersion``); contents have versions of their own.
LOG_FORMAT_VERSION: Final = 1
#: Of the contents of Avro data blocks and delete blocks (Hudi: ``HoodieLogBlock.version``).
AVRO_CONTENT_VERSION: Final = 3


class BlockKind(IntEnum):
    """What a block holds (Hudi: ``HoodieLogBlock.HoodieLogBlockType``, by ordinal)."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6

    @property
    def is_data_or_delete(self) -> bool:
        """Whether the block says something of records in a snapshot."""
        return self in {BlockKind.DELETE, BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA}


class HeaderKey(IntEnum):
    """What a header tells (Hudi: ``HoodieLogBlock.HeaderMetadataType``, by ordinal)."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One whole block.

    Attributes:
        path: of its file, relative to the table.
        offset: where the block starts in it; the next one starts ``size_bytes`` later.
        content_offset: where its content starts in the file.
        content_bytes: how long the content is.
        header: texts as they stand there.
    """

    path: str
    offset: int
    size_bytes: int
    kind: BlockKind
    content_offset: int
    content_bytes: int
    header: Mapping[HeaderKey, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.path} (block at byte {self.offset})"

    @property
    def instant_time(self) -> str:
        """Of the action that wrote the block."""
        return self.told(HeaderKey.INSTANT_TIME)

    @property
    def is_partial(self) -> bool:
        """Whether its rows hold some of the table's columns only."""
        return self.header.get(HeaderKey.IS_PARTIAL, "false").lower() == "true"

    @property
    def compacted_times(self) -> tuple[str, ...]:
        """The instants whose blocks this one stands for; empty but for blocks of a log compaction."""
        times = self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(time.strip() for time in times.split(",") if time.strip())

    def told(self, key: HeaderKey) -> str:
        """What the header says. Raises `CorruptTableError` where it says nothing."""
        found = self.header.get(key)
        if found is None:
            raise CorruptTableError(f"{self.name} has no {key.name}; restore the file")
        return found
