"""The options of Hudi's metadata table: which partitions a write makes, their file groups, and its compaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, declare, options_of, parse_flag, parse_growth, parse_positive, values_of
from lakeformat.config.read_options import METADATA_TABLE
from lakeformat.config.write_options import INDEX_COLUMNS, INDEX_COLUMNS_LIMIT

__all__ = ["COMPACT_COMMITS", "METADATA_OPTIONS", "MetadataOptions"]

#: Default number of commits after which the metadata table is compacted.
COMPACT_COMMITS: Final = 10

_M: Final = "hoodie.metadata."


def _flag(key: str, doc: str, *aliases: str) -> Any:
    return declare(Effect.WRITE, key, doc, parse_flag, False, aliases)


def _count(key: str, doc: str, default: int, *aliases: str) -> Any:
    return declare(Effect.WRITE, key, doc, parse_positive, default, aliases)


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """The typed options of the metadata table.

    Attributes:
        makes: Whether a write makes partitions that are missing.
        columns: The columns of new column statistics; None for the first `most_columns`.
    """

    makes: bool
    columns: tuple[str, ...] | None
    most_columns: int
    column_stats: bool = _flag(
        _M + "index.column.stats.enable",
        "With hoodie.metadata.enable=true: make column_stats, the statistics of each file.",
    )
    partition_stats: bool = _flag(
        _M + "index.partition.stats.enable",
        "With hoodie.metadata.enable=true: make partition_stats, the statistics of each partition; they need "
        "column_stats, a partitioned table, and table version 8 or 9.",
    )
    bloom_filters: bool = _flag(
        _M + "index.bloom.filter.enable",
        "With hoodie.metadata.enable=true: make bloom_filters, the bloom filters of all base files.",
    )
    record_index: bool = _flag(
        _M + "global.record.level.index.enable",
        "With hoodie.metadata.enable=true: make record_index, the place of each record key.",
        _M + "record.index.enable",
    )
    statistics_groups: int = _count(_M + "index.column.stats.file.group.count", "File groups of a new column_stats.", 2)
    partition_groups: int = _count(
        _M + "index.partition.stats.file.group.count", "File groups of a new partition_stats.", 1
    )
    filter_groups: int = _count(_M + "index.bloom.filter.file.group.count", "File groups of a new bloom_filters.", 4)
    least_key_groups: int = _count(
        _M + "global.record.level.index.min.filegroup.count",
        "Least file groups of a new record_index.",
        10,
        _M + "record.index.min.filegroup.count",
    )
    most_key_groups: int = _count(
        _M + "global.record.level.index.max.filegroup.count",
        "Most file groups of a new record_index.",
        10000,
        _M + "record.index.max.filegroup.count",
    )
    growth: float = declare(
        Effect.WRITE,
        _M + "record.index.growth.factor",
        "Factor by which a new record_index has room for more keys than the table has.",
        parse_growth,
        2.0,
    )
    group_bytes: int = _count(
        _M + "record.index.max.filegroup.size",
        "Bytes of a file group by which the file groups of a new record_index are counted.",
        1 << 30,
    )
    compact_commits: int = _count(
        _M + "compact.max.delta.commits", "Commits of the metadata table after which it is compacted.", COMPACT_COMMITS
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the partitions that a write makes if they are missing; empty if it makes none."""
        asked = {
            "files": True,
            "column_stats": self.column_stats or self.partition_stats,
            "partition_stats": self.partition_stats,
            "bloom_filters": self.bloom_filters,
            "record_index": self.record_index,
        }
        return tuple(name for name, is_wanted in asked.items() if self.makes and is_wanted)

    @classmethod
    def of(cls, value: Callable[[str], Any], is_set: Callable[[str], bool]) -> MetadataOptions:
        """Return the typed options.

        Args:
            value: returns the value of an option key, or its default.
            is_set: tells whether the user gave the option. Without hoodie.metadata.enable nothing is made.
        """
        columns = value(INDEX_COLUMNS)
        return cls(
            makes=is_set(METADATA_TABLE) and value(METADATA_TABLE),
            columns=None if columns is None else tuple(columns),
            most_columns=value(INDEX_COLUMNS_LIMIT),
            **values_of(cls, value),
        )


METADATA_OPTIONS: Final = options_of(MetadataOptions)
