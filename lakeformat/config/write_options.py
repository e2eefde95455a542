"""How a write works.

What the options of writing say that several steps of a write ask, typed: parsed once, as `Options.write`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.file_index_options import FILE_INDEX
from lakeformat.config.option import (
    WRITE,
    Effect,
    Option,
    codec,
    count,
    dup_policy,
    fields,
    flag,
    function,
    index,
    one_of,
    partial,
    partitioner_class,
    positive,
    share,
)

__all__ = ["WRITE_OPTIONS", "WriteOptions"]

WRITE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        WRITE + "operation",
        "upsert, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table or delete_partition.",
        Effect.WRITE,
        one_of(
            "upsert",
            "insert",
            "bulk_insert",
            "delete",
            "insert_overwrite",
            "insert_overwrite_table",
            "delete_partition",
        ),
        None,
        ("operation",),
    ),
    Option(
        WRITE + "partitions.to.delete",
        "Partition paths for delete_partition, commas between them, `*` for any text; without it those of the rows.",
        Effect.WRITE,
        fields,
        (),
        ("partitions_to_delete",),
    ),
    Option(
        "hoodie.datasource.insert.dup.policy",
        "What insert does with keys that are in the table or come twice: none looks at no key, drop leaves them out, "
        "fail refuses the write.",
        Effect.WRITE,
        dup_policy,
        "none",
        ("dup_policy", WRITE + "insert.drop.duplicates"),
    ),
    Option(
        "hoodie.datasource.overwrite.mode",
        "What mode overwrite replaces: static the whole table, dynamic the partitions of the rows.",
        Effect.WRITE,
        one_of("static", "dynamic"),
        "static",
    ),
    Option(
        "hoodie.combine.before.insert",
        "Keep one row per key of the batch on insert and bulk_insert.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        "hoodie.combine.before.upsert",
        "Keep one row per key of the batch on upsert; must stay on.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "hoodie.combine.before.delete",
        "Keep one row per key of the batch on delete; must stay on.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "lakeformat.write.partial.update",
        "Upsert only some columns of stored rows, nulls included: true for those the input has, or names with commas "
        "between; all others keep their values.",
        Effect.WRITE,
        partial,
        None,
        ("partial_update",),
    ),
    Option(
        "lakeformat.write.merger",
        "Function that merges stored and incoming rows on upsert: package.module:function on two Arrow tables.",
        Effect.WRITE,
        function,
        None,
        ("merger",),
    ),
    Option(
        "hoodie.payload.delete.field",
        "Column that marks deletes besides _hoodie_is_deleted; needs the marker.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.payload.delete.marker", "Value of the delete field, as text, in rows that are deletes.", Effect.WRITE
    ),
    Option(
        "hoodie.index.type",
        "How keys are found. AUTO picks per file between BLOOM (ranges, footer filters) and SIMPLE (key columns); "
        "the GLOBAL_ ones look in every partition; INMEMORY keeps all keys in the process; BUCKET hashes them. In a "
        "table of buckets AUTO is BUCKET where the keys tell their number, else BUCKET must be given.",
        Effect.WRITE,
        index,
        "AUTO",
    ),
    Option(
        "hoodie.bloom.index.update.partition.path",
        "GLOBAL_BLOOM: a row that names another partition than the stored one moves there; false keeps it in the old.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "hoodie.simple.index.update.partition.path",
        "The same for GLOBAL_SIMPLE.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "hoodie.index.bucket.engine",
        "Only SIMPLE: a partition has a fixed number of buckets.",
        Effect.WRITE,
        one_of("SIMPLE"),
        "SIMPLE",
    ),
    Option(
        "hoodie.bucket.index.num.buckets",
        "Buckets, each one file group, of every partition under the index BUCKET.",
        Effect.WRITE,
        positive,
        256,
    ),
    Option(
        "hoodie.bucket.index.hash.field",
        "Record key fields whose values choose the bucket; all if not given.",
        Effect.WRITE,
        fields,
        (),
    ),
    Option("hoodie.index.bloom.fpp", "Share of absent keys a footer filter lets through.", Effect.WRITE, share, 1e-4),
    Option(
        "hoodie.bloom.index.prune.by.ranges",
        "Use the files' least and greatest keys when tagging.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "hoodie.bloom.index.use.treebased.filter",
        "Search the ranges among sorted keys; false compares each range with all keys.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option("hoodie.parquet.max.file.size", "Bytes a base file may grow to.", Effect.WRITE, count, 125829120),
    Option(
        "lakeformat.parquet.row.group.rows",
        "Rows of a row group, the least that a filtered read skips; more than the default makes no difference. Files "
        "that clustering has sorted have 16384 unless it is given.",
        Effect.WRITE,
        positive,
        131_072,
    ),
    Option(
        "hoodie.parquet.block.size",
        "Bytes of a row group's rows in memory, at most, repeated texts each time; a merge holds about as many.",
        Effect.WRITE,
        positive,
        125829120,
    ),
    Option(
        "hoodie.parquet.small.file.limit",
        "Files below this many bytes are topped up by inserts; 0 never.",
        Effect.WRITE,
        count,
        104857600,
    ),
    Option(
        "hoodie.parquet.compression.codec",
        "zstd, snappy, gzip or uncompressed; unless it is given, columns that hardly shrink stay uncompressed.",
        Effect.WRITE,
        codec,
        "zstd",
    ),
    Option(
        "hoodie.copyonwrite.insert.auto.split",
        "Size new files by measured rows; false: by the number of rows below.",
        Effect.WRITE,
        flag,
        True,
    ),
    Option(
        "hoodie.copyonwrite.insert.split.size",
        "Rows of a new file where sizes are not measured.",
        Effect.WRITE,
        count,
        500000,
    ),
    Option(
        "hoodie.bulkinsert.sort.mode",
        "Order and files of bulk_insert: NONE as rows come; GLOBAL_SORT by partition and key; PARTITION_SORT the same "
        "within each task; PARTITION_PATH_REPARTITION as few files per partition as the size limit allows; "
        "PARTITION_PATH_REPARTITION_AND_SORT both.",
        Effect.WRITE,
        one_of(
            "NONE",
            "GLOBAL_SORT",
            "PARTITION_SORT",
            "PARTITION_PATH_REPARTITION",
            "PARTITION_PATH_REPARTITION_AND_SORT",
        ),
        "NONE",
    ),
    Option(
        "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
        "Columns that bulk_insert sorts by instead of the key, commas between them; under sort mode NONE globally.",
        Effect.WRITE,
        fields,
        (),
    ),
    Option(
        "hoodie.bulkinsert.user.defined.partitioner.class",
        "Hudi's RowCustomColumnsSortPartitioner or RDDCustomColumnsSortPartitioner: sort by the columns above.",
        Effect.WRITE,
        partitioner_class,
    ),
    Option(
        "lakeformat.bulkinsert.partitioner",
        "A function of your own, package.module:function: from the Arrow table of a partition's rows to the number of "
        "each row's output file.",
        Effect.WRITE,
        function,
    ),
    Option(
        "hoodie.write.set.null.for.missing.columns",
        "Fill columns the input lacks with null.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        WRITE + "reconcile.schema",
        "Keep the table's columns: those the input lacks become null, narrower types are widened.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        "hoodie.precommit.validators",
        "Checks before a write becomes visible: SqlQuerySingleResultPreCommitValidator, "
        "SqlQueryEqualityPreCommitValidator, SqlQueryInequalityPreCommitValidator, with or without their package.",
        Effect.WRITE,
        fields,
        (),
    ),
    Option(
        "hoodie.precommit.validators.single.value.sql.queries",
        "select count(*) from <TABLE_NAME> where v is null#0: the answer the table must give after the write; "
        "semicolons between several.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.precommit.validators.equality.sql.queries",
        "Queries whose answers must be the same before and after the write.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.precommit.validators.inequality.sql.queries",
        "Queries whose answers must differ before and after the write.",
        Effect.WRITE,
    ),
    Option(
        "lakeformat.transaction.validators",
        "Python functions package.module:function that may refuse a write before it is visible.",
        Effect.WRITE,
        fields,
        (),
    ),
    Option(
        "lakeformat.transaction.callbacks",
        "Python functions package.module:function that are told of a write when it is visible.",
        Effect.WRITE,
        fields,
        (),
    ),
    Option("hoodie.write.commit.callback.on", "POST a message when a write is visible.", Effect.WRITE, flag, False),
    Option(
        "hoodie.write.commit.callback.class",
        "Only HTTP so far.",
        Effect.WRITE,
        default="org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback",
    ),
    Option("hoodie.write.commit.callback.http.url", "Where the message goes.", Effect.WRITE),
    Option(
        "hoodie.write.commit.callback.http.timeout.seconds", "How long to wait for the server.", Effect.WRITE, count, 30
    ),
    Option(
        "hoodie.write.commit.callback.http.api.key",
        "Sent as header HUDI-CALLBACK-KEY.",
        Effect.WRITE,
        default="hudi_write_commit_http_callback",
    ),
    Option("hoodie.write.commit.callback.http.custom.headers", "More headers, name:value;name:value.", Effect.WRITE),
    Option(
        "hoodie.write.lock.wait_time_ms",
        "How long to wait for another writer of this table.",
        Effect.WRITE,
        count,
        60000,
    ),
    Option(
        "hoodie.write.num.retries.on.conflict.failures",
        "How often to run a write again after a conflict.",
        Effect.WRITE,
        count,
        0,
    ),
    Option(
        WRITE + "commitmeta.key.prefix",
        "Options with this prefix go into the commit's extra metadata.",
        Effect.WRITE,
        default="_",
    ),
    Option(
        "lakeformat.storage.sync", "Flush data files to the disk before they are committed.", Effect.WRITE, flag, False
    ),
    Option(
        "lakeformat.write.buffer.bytes",
        "Memory for rows on their way into files, per task.",
        Effect.WRITE,
        count,
        128 << 20,
    ),
)


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
