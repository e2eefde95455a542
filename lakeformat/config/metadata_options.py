"""The options of Hudi's metadata table: which partitions a write makes, their file groups, and its compaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, Option, parse_flag, parse_growth, parse_positive
from lakeformat.config.read_options import METADATA_TABLE
from lakeformat.config.write_options import INDEX_COLUMNS, INDEX_COLUMNS_LIMIT

__all__ = ["COMPACT_COMMITS", "METADATA_OPTIONS", "MetadataOptions"]

#: Default number of commits after which the metadata table is compacted.
COMPACT_COMMITS: Final = 10

_M: Final = "hoodie.metadata."
_STATISTICS: Final = _M + "index.column.stats.enable"
_PARTITION_STATISTICS: Final = _M + "index.partition.stats.enable"
_FILTERS: Final = _M + "index.bloom.filter.enable"
_KEYS: Final = _M + "global.record.level.index.enable"
_STATISTICS_GROUPS: Final = _M + "index.column.stats.file.group.count"
_PARTITION_GROUPS: Final = _M + "index.partition.stats.file.group.count"
_FILTER_GROUPS: Final = _M + "index.bloom.filter.file.group.count"
_LEAST_KEY_GROUPS: Final = _M + "global.record.level.index.min.filegroup.count"
_MOST_KEY_GROUPS: Final = _M + "global.record.level.index.max.filegroup.count"
_GROWTH: Final = _M + "record.index.growth.factor"
_GROUP_BYTES: Final = _M + "record.index.max.filegroup.size"
_COMPACT_COMMITS: Final = _M + "compact.max.delta.commits"


def _flag(key: str, doc: str, *aliases: str) -> Option:
    return Option(key, doc, Effect.WRITE, parse_flag, False, aliases)


def _count(key: str, doc: str, default: int, *aliases: str) -> Option:
    return Option(key, doc, Effect.WRITE, parse_positive, default, aliases)


METADATA_OPTIONS: Final[tuple[Option, ...]] = (
    _flag(_STATISTICS, "With hoodie.metadata.enable=true: make column_stats, the statistics of each file."),
    _flag(
        _PARTITION_STATISTICS,
        "With hoodie.metadata.enable=true: make partition_stats, the statistics of each partition; they need "
        "column_stats, a partitioned table, and table version 8 or 9.",
    ),
    _flag(_FILTERS, "With hoodie.metadata.enable=true: make bloom_filters, the bloom filters of all base files."),
    _flag(
        _KEYS,
        "With hoodie.metadata.enable=true: make record_index, the place of each record key.",
        _M + "record.index.enable",
    ),
    _count(_STATISTICS_GROUPS, "File groups of a new column_stats.", 2),
    _count(_PARTITION_GROUPS, "File groups of a new partition_stats.", 1),
    _count(_FILTER_GROUPS, "File groups of a new bloom_filters.", 4),
    _count(_LEAST_KEY_GROUPS, "Least file groups of a new record_index.", 10, _M + "record.index.min.filegroup.count"),
    _count(_MOST_KEY_GROUPS, "Most file groups of a new record_index.", 10000, _M + "record.index.max.filegroup.count"),
    Option(
        _GROWTH,
        "Factor by which a new record_index has room for more keys than the table has.",
        Effect.WRITE,
        parse_growth,
        2.0,
    ),
    _count(_GROUP_BYTES, "Bytes of a file group by which the file groups of a new record_index are counted.", 1 << 30),
    _count(_COMPACT_COMMITS, "Commits of the metadata table after which it is compacted.", COMPACT_COMMITS),
)


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """The typed options of the metadata table.

    Attributes:
        names: Names of the partitions that a write makes if they are missing; empty if it makes none.
        columns: The columns of new column statistics; None for the first `most_columns`.
        statistics_groups, partition_groups, filter_groups: File groups of new partitions.
        least_key_groups, most_key_groups: Bounds of the number of file groups of a new record index.
        growth: How many times the present keys a new record index has room for.
        group_bytes: Bytes of a file group of a new record index.
        compact_commits: A write compacts first if a file group has more log files. Each commit adds one.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...] | None
    most_columns: int
    statistics_groups: int
    partition_groups: int
    filter_groups: int
    least_key_groups: int
    most_key_groups: int
    growth: float
    group_bytes: int
    compact_commits: int

    @classmethod
    def of(cls, value: Callable[[str], Any], is_set: Callable[[str], bool]) -> MetadataOptions:
        """Return the typed options.

        Args:
            value: returns the value of an option key, or its default.
            is_set: tells whether the user gave the option. Without hoodie.metadata.enable nothing is made.
        """
        makes = is_set(METADATA_TABLE) and value(METADATA_TABLE)
        wanted = {
            "column_stats": value(_STATISTICS) or value(_PARTITION_STATISTICS),
            "partition_stats": value(_PARTITION_STATISTICS),
            "bloom_filters": value(_FILTERS),
            "record_index": value(_KEYS),
        }
        columns = value(INDEX_COLUMNS)
        return cls(
            names=("files", *(name for name, is_wanted in wanted.items() if is_wanted)) if makes else (),
            columns=None if columns is None else tuple(columns),
            most_columns=value(INDEX_COLUMNS_LIMIT),
            statistics_groups=value(_STATISTICS_GROUPS),
            partition_groups=value(_PARTITION_GROUPS),
            filter_groups=value(_FILTER_GROUPS),
            least_key_groups=value(_LEAST_KEY_GROUPS),
            most_key_groups=value(_MOST_KEY_GROUPS),
            growth=value(_GROWTH),
            group_bytes=value(_GROUP_BYTES),
            compact_commits=value(_COMPACT_COMMITS),
        )
