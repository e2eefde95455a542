"""What the options of writing say that several steps of a write ask, typed: parsed once, as `Options.write`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.file_index_options import FILE_INDEX
from lakeformat.config.option import WRITE

__all__ = ["WriteOptions"]

_UPDATE: Final = "hoodie.{}.index.update.partition.path"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write works.

    Attributes:
        operation: by name; None for the table's usual one.
        partitions: those to delete, with ``*`` for any text.
        dup_policy: what an insert does with keys that are there: ``none`` looks for none, else ``drop`` or ``fail``.
        dynamic: whether mode overwrite replaces the partitions of the rows alone.
        combine: whether inserts keep one row per key.
        fill_missing: whether columns that the input lacks become null.
        index: its kind; AUTO chooses.
        by_ranges, by_tree: whether ranges of keys leave out files, and as a tree.
        update_partition: whether a global index moves rows between partitions.
        buckets: of each partition under the index BUCKET.
        hash_fields: whose values choose the bucket; empty for the whole key.
        buffer_bytes: what a step holds in memory.
        file_bytes: what a base file may grow to.
        small_bytes: below it a file takes more rows.
        auto_split: whether sizes of stored files tell how many rows a new one gets; else ``split_rows`` do.
        split_rows: rows of a new file.
        codec: of Parquet pages.
        bloom_fpp: share of absent keys that a file's filter lets through.
        row_group_rows, row_group_bytes: the most of a row group.
        file_index: whether a file index is kept and used.
    """

    operation: str | None
    partitions: tuple[str, ...]
    dup_policy: str
    dynamic: bool
    combine: bool
    fill_missing: bool
    index: str
    by_ranges: bool
    by_tree: bool
    update_partition: bool
    buckets: int
    hash_fields: tuple[str, ...]
    buffer_bytes: int
    file_bytes: int
    small_bytes: int
    auto_split: bool
    split_rows: int
    codec: str
    bloom_fpp: float
    row_group_rows: int
    row_group_bytes: int
    file_index: bool

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> WriteOptions:
        """From what gives the value of a key, or its default."""
        index = value("hoodie.index.type")
        return cls(
            operation=value(WRITE + "operation"),
            partitions=value(WRITE + "partitions.to.delete"),
            dup_policy=value("hoodie.datasource.insert.dup.policy"),
            dynamic=value("hoodie.datasource.overwrite.mode") == "dynamic",
            combine=value("hoodie.combine.before.insert"),
            fill_missing=value("hoodie.write.set.null.for.missing.columns"),
            index=index,
            by_ranges=value("hoodie.bloom.index.prune.by.ranges"),
            by_tree=value("hoodie.bloom.index.use.treebased.filter"),
            update_partition=value(_UPDATE.format("bloom" if index == "GLOBAL_BLOOM" else "simple")),
            buckets=value("hoodie.bucket.index.num.buckets"),
            hash_fields=value("hoodie.bucket.index.hash.field"),
            buffer_bytes=value("lakeformat.write.buffer.bytes"),
            file_bytes=value("hoodie.parquet.max.file.size"),
            small_bytes=value("hoodie.parquet.small.file.limit"),
            auto_split=value("hoodie.copyonwrite.insert.auto.split"),
            split_rows=max(1, value("hoodie.copyonwrite.insert.split.size")),
            codec=value("hoodie.parquet.compression.codec"),
            bloom_fpp=value("hoodie.index.bloom.fpp"),
            row_group_rows=value("lakeformat.parquet.row.group.rows"),
            row_group_bytes=value("hoodie.parquet.block.size"),
            file_index=value(FILE_INDEX),
        )
