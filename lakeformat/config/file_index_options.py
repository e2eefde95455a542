"""The options of the file index, which is stored beside a table."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, parse_count, parse_flag, parse_names, parse_positive

__all__ = [
    "FILE_INDEX",
    "FILE_INDEX_OPTIONS",
    "INDEX_COLUMNS",
    "INDEX_COLUMNS_LIMIT",
    "INDEX_COMMITS",
    "INDEX_SHARD_FILES",
]

FILE_INDEX: Final = "lakeformat.file.index"
INDEX_COLUMNS: Final = "hoodie.metadata.index.column.stats.column.list"
INDEX_COLUMNS_LIMIT: Final = "hoodie.metadata.index.column.stats.max.columns.to.index"
INDEX_COMMITS: Final = "lakeformat.file.index.commits"
INDEX_SHARD_FILES: Final = "lakeformat.file.index.shard.files"

FILE_INDEX_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        FILE_INDEX,
        "Keep a file index beside the table: its live files with rows and column statistics, for planning without "
        "listing folders or opening footers; false also reads without it.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        INDEX_COLUMNS,
        "Columns, or leaves of structs, whose statistics the file index keeps; by default all columns up to a limit.",
        Effect.WRITE,
        parse_names,
    ),
    Option(
        INDEX_COLUMNS_LIMIT,
        "Number of leaf columns whose statistics the file index keeps if no columns are named.",
        Effect.WRITE,
        parse_count,
        32,
    ),
    Option(
        INDEX_COMMITS,
        "Number of commits after which the file index merges its entries for single commits into one snapshot.",
        Effect.WRITE,
        parse_positive,
        16,
    ),
    Option(
        INDEX_SHARD_FILES,
        "Most files that one file of the file index describes.",
        Effect.WRITE,
        parse_positive,
        100_000,
    ),
)
