"""The options of a write and of the file index, and `WriteOptions`, a class with their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import (
    WRITE,
    Effect,
    Option,
    make_choice_parser,
    parse_bad_rows,
    parse_buckets,
    parse_codec,
    parse_count,
    parse_dup_policy,
    parse_flag,
    parse_function_name,
    parse_index,
    parse_names,
    parse_partial_columns,
    parse_partitioner,
    parse_positive,
    parse_share,
)
from lakeformat.config.read_options import METADATA_TABLE
from lakeformat.config.table_options import UNCLEAR_KEYS
from lakeformat.model.index_type import CONSISTENT, INDEX_TYPES, IndexType

__all__ = [
    "BAD_ROWS",
    "BAD_ROWS_PATH",
    "COPY_ROW_GROUPS",
    "FILE_INDEX",
    "FILE_INDEX_OPTIONS",
    "INDEX_COLUMNS",
    "INDEX_COLUMNS_LIMIT",
    "INDEX_COMMITS",
    "INDEX_SHARD_FILES",
    "MERGE",
    "MERGE_BYTES",
    "WRITE_OPTIONS",
    "WriteOptions",
]

FILE_INDEX: Final = "lakeformat.file.index"
INDEX_COLUMNS: Final = "hoodie.metadata.index.column.stats.column.list"
INDEX_COLUMNS_LIMIT: Final = "hoodie.metadata.index.column.stats.max.columns.to.index"
COPY_ROW_GROUPS: Final = "lakeformat.write.copy.row.groups"
BAD_ROWS: Final = "lakeformat.write.bad_rows"
BAD_ROWS_PATH: Final = "hoodie.errortable.base.path"
MERGE: Final = "lakeformat.write.merge"
MERGE_BYTES: Final = "lakeformat.write.merge.bytes"
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
        "Columns, or leaves of structs, whose statistics the file index and a new column_stats keep; by default all "
        "columns up to a limit.",
        Effect.WRITE,
        parse_names,
    ),
    Option(
        INDEX_COLUMNS_LIMIT,
        "Number of leaf columns whose statistics the file index and a new column_stats keep if no columns are named.",
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


WRITE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        WRITE + "operation",
        "upsert, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table or delete_partition.",
        Effect.WRITE,
        make_choice_parser(
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
        "Partition paths for delete_partition, separated by commas, `*` for any text; by default those of the rows.",
        Effect.WRITE,
        parse_names,
        (),
        ("partitions_to_delete",),
    ),
    Option(
        "hoodie.datasource.insert.dup.policy",
        "What insert does with keys that are in the table or occur twice: none does not check keys, drop leaves the "
        "rows out, fail refuses the write.",
        Effect.WRITE,
        parse_dup_policy,
        "none",
        ("dup_policy", WRITE + "insert.drop.duplicates"),
    ),
    Option(
        BAD_ROWS,
        "What a write does with rows that cannot be written: fail refuses the write, aside writes the other rows and "
        "adds these to a table of bad rows.",
        Effect.WRITE,
        parse_bad_rows,
        "fail",
        ("bad_rows", "hoodie.errortable.enable"),
    ),
    Option(
        BAD_ROWS_PATH,
        "Folder or URL of the table of bad rows; by default a folder inside the table's .hoodie.",
        Effect.WRITE,
        aliases=("bad_rows_path",),
    ),
    Option(
        "hoodie.errortable.target.table.name",
        "Name of the table of bad rows when it is made; by default the table's name and _bad_rows.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.datasource.overwrite.mode",
        "What the mode overwrite replaces: static the whole table, dynamic only the partitions of the rows.",
        Effect.WRITE,
        make_choice_parser("static", "dynamic"),
        "static",
        aliases=("partitionoverwritemode",),
    ),
    Option(
        "hoodie.combine.before.insert",
        "Keep one row per key of the batch on insert and bulk_insert.",
        Effect.WRITE,
        parse_flag,
        False,
    ),
    Option(
        "hoodie.combine.before.upsert",
        "Keep one row per key of the batch on upsert; must stay on.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.combine.before.delete",
        "Keep one row per key of the batch on delete; must stay on.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "lakeformat.write.partial.update",
        "Upsert only some columns of stored rows, nulls included: true for the input's columns, or names separated by "
        "commas; all other columns keep their values.",
        Effect.WRITE,
        parse_partial_columns,
        None,
        ("partial_update",),
    ),
    Option(
        "lakeformat.write.merger",
        "Function that merges stored and incoming rows on upsert: package.module:function on two Arrow tables.",
        Effect.WRITE,
        parse_function_name,
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
        "How keys are found. AUTO chooses per file between BLOOM (ranges, footer filters) and SIMPLE (key columns); "
        "the GLOBAL_ types search every partition; INMEMORY keeps all keys in the process; BUCKET hashes them; "
        "GLOBAL_RECORD_LEVEL_INDEX, or RECORD_INDEX, asks the record index of the metadata table, as AUTO does where "
        "that finds the same rows. In a table of buckets AUTO is BUCKET if the stored keys determine the number of "
        "buckets; else BUCKET must be given.",
        Effect.WRITE,
        parse_index,
        "AUTO",
    ),
    Option(
        "hoodie.bloom.index.update.partition.path",
        "GLOBAL_BLOOM: a row with another partition than the stored row moves there; false keeps the old partition.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.simple.index.update.partition.path",
        "The same for GLOBAL_SIMPLE.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.record.index.update.partition.path",
        "The same for GLOBAL_RECORD_LEVEL_INDEX, whose default is another one in Hudi.",
        Effect.WRITE,
        parse_flag,
        False,
    ),
    Option(
        "hoodie.index.bucket.engine",
        "SIMPLE: a partition has a fixed number of buckets. CONSISTENT_HASHING, for merge-on-read tables: clustering "
        "splits and merges buckets. An existing table keeps its engine.",
        Effect.WRITE,
        make_choice_parser("SIMPLE", CONSISTENT),
        "SIMPLE",
    ),
    Option(
        "hoodie.bucket.index.num.buckets",
        "Buckets, each one file group, of every partition under the index BUCKET; with consistent hashing, of a new "
        "partition.",
        Effect.WRITE,
        parse_buckets,
        256,
    ),
    Option(
        "hoodie.bucket.index.hash.field",
        "Record key fields whose values choose the bucket; by default all.",
        Effect.WRITE,
        parse_names,
        (),
    ),
    Option("hoodie.index.bloom.fpp", "Share of absent keys that filters let through.", Effect.WRITE, parse_share, 1e-4),
    Option(
        "hoodie.bloom.index.prune.by.ranges",
        "Use the least and greatest keys of files to find keys.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.bloom.index.use.treebased.filter",
        "Search the ranges among sorted keys; false compares each range with all keys.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option("hoodie.bloom.index.use.metadata", "Ask the metadata table's filters.", Effect.WRITE, parse_flag, False),
    Option("hoodie.parquet.max.file.size", "Most bytes of a base file.", Effect.WRITE, parse_count, 125829120),
    Option(
        "lakeformat.parquet.row.group.rows",
        "Rows of a row group, the smallest unit that a filtered read skips; values above the default have no effect. "
        "Files that clustering has sorted have 16384 unless this option is given.",
        Effect.WRITE,
        parse_positive,
        131_072,
    ),
    Option(
        "hoodie.parquet.block.size",
        "Most bytes of a row group's rows in memory, with every repetition of a text; a merge holds about as many.",
        Effect.WRITE,
        parse_positive,
        125829120,
    ),
    Option(
        "hoodie.parquet.small.file.limit",
        "Inserts add rows to files below this many bytes; 0 for never.",
        Effect.WRITE,
        parse_count,
        104857600,
    ),
    Option(
        "hoodie.parquet.compression.codec",
        "zstd, snappy, gzip or uncompressed; if this is not given, columns that hardly shrink stay uncompressed.",
        Effect.WRITE,
        parse_codec,
        "zstd",
    ),
    Option(
        "hoodie.copyonwrite.insert.auto.split",
        "Size new files by the measured size of rows; false sizes them by the number of rows below.",
        Effect.WRITE,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.copyonwrite.insert.split.size",
        "Rows of a new file if sizes are not measured.",
        Effect.WRITE,
        parse_count,
        500000,
    ),
    Option(
        "hoodie.bulkinsert.sort.mode",
        "Order and files of bulk_insert: NONE keeps the order of the rows; GLOBAL_SORT sorts by partition and key; "
        "PARTITION_SORT does so within each task; PARTITION_PATH_REPARTITION makes as few files per partition as the "
        "size limit allows; PARTITION_PATH_REPARTITION_AND_SORT does both.",
        Effect.WRITE,
        make_choice_parser(
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
        "Columns by which bulk_insert sorts instead of the key, separated by commas; with sort mode NONE, globally.",
        Effect.WRITE,
        parse_names,
        (),
    ),
    Option(
        "hoodie.bulkinsert.user.defined.partitioner.class",
        "Hudi's RowCustomColumnsSortPartitioner or RDDCustomColumnsSortPartitioner: sort by the columns above.",
        Effect.WRITE,
        parse_partitioner,
    ),
    Option(
        "lakeformat.bulkinsert.partitioner",
        "A Python function, package.module:function, that takes the Arrow table of a partition's rows and returns the "
        "number of each row's output file.",
        Effect.WRITE,
        parse_function_name,
    ),
    Option(
        "hoodie.write.set.null.for.missing.columns",
        "Fill columns that the input lacks with null.",
        Effect.WRITE,
        parse_flag,
        False,
    ),
    Option(
        WRITE + "reconcile.schema",
        "Keep the table's columns: those that the input lacks become null, narrower types widen, wider are refused.",
        Effect.WRITE,
        parse_flag,
        False,
    ),
    Option(
        "hoodie.precommit.validators",
        "Checks before a write becomes visible: SqlQuerySingleResultPreCommitValidator, "
        "SqlQueryEqualityPreCommitValidator, SqlQueryInequalityPreCommitValidator, with or without their package.",
        Effect.WRITE,
        parse_names,
        (),
    ),
    Option(
        "hoodie.precommit.validators.single.value.sql.queries",
        "Queries with the result that they must have after the write, separated by semicolons: select count(*) from "
        "<TABLE_NAME> where v is null#0.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.precommit.validators.equality.sql.queries",
        "Queries whose results must be equal before and after the write.",
        Effect.WRITE,
    ),
    Option(
        "hoodie.precommit.validators.inequality.sql.queries",
        "Queries whose results must differ before and after the write.",
        Effect.WRITE,
    ),
    Option(
        "lakeformat.transaction.validators",
        "Python functions package.module:function that may refuse a write before it is visible.",
        Effect.WRITE,
        parse_names,
        (),
    ),
    Option(
        "lakeformat.transaction.callbacks",
        "Python functions package.module:function that are called when a write is visible.",
        Effect.WRITE,
        parse_names,
        (),
    ),
    Option(
        "hoodie.write.commit.callback.on", "POST a message when a write is visible.", Effect.WRITE, parse_flag, False
    ),
    Option(
        "hoodie.write.commit.callback.class",
        "Only HTTP so far.",
        Effect.WRITE,
        default="org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback",
    ),
    Option("hoodie.write.commit.callback.http.url", "URL to which the message is sent.", Effect.WRITE),
    Option(
        "hoodie.write.commit.callback.http.timeout.seconds",
        "Seconds to wait for the server.",
        Effect.WRITE,
        parse_count,
        30,
    ),
    Option(
        "hoodie.write.commit.callback.http.api.key",
        "Sent as header HUDI-CALLBACK-KEY.",
        Effect.WRITE,
        default="hudi_write_commit_http_callback",
    ),
    Option("hoodie.write.commit.callback.http.custom.headers", "Further headers, name:value;name:value.", Effect.WRITE),
    Option(
        WRITE + "commitmeta.key.prefix",
        "Options with this prefix go into the commit's extra metadata.",
        Effect.WRITE,
        default="_",
    ),
    Option(
        "lakeformat.storage.sync",
        "Flush data files to the disk before they are committed.",
        Effect.WRITE,
        parse_flag,
        False,
    ),
    Option(
        "lakeformat.write.buffer.bytes",
        "Bytes of memory per task for rows that are being written.",
        Effect.WRITE,
        parse_count,
        128 << 20,
    ),
    Option(
        COPY_ROW_GROUPS,
        "Writes that rewrite a base file copy its row groups and columns that they do not change byte for byte; false "
        "decodes and encodes all rows.",
        Effect.WRITE,
        parse_flag,
        True,
        ("copy_row_groups",),
    ),
    Option(
        MERGE,
        "Where save() of a registered Spark session merges rows: executors, driver, or auto, which takes the executors "
        "if the rows and the files of their partitions exceed a bound (see Writing from Spark).",
        Effect.WRITE,
        make_choice_parser("auto", "executors", "driver"),
        "auto",
    ),
    Option(
        MERGE_BYTES,
        "That bound in bytes; by default a quarter of the memory of the driver's machine, at most 1 GB with executors.",
        Effect.WRITE,
        parse_count,
    ),
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The typed options of a write.

    Attributes:
        operation: Name of the operation; None for the table's default.
        partitions: Partition paths to delete, with ``*`` for any text.
        dup_policy: What an insert does with rows whose keys the table already has: ``none`` writes them without a
            check, ``drop`` leaves them out, ``fail`` raises an error.
        bad_rows: What a write does with rows that cannot be written: ``fail`` or ``aside``.
        bad_rows_path: Path of the table of bad rows; None for a folder inside the table.
        bad_rows_name: Name of the table of bad rows; None for the default.
        merges_unclear_keys: Whether rows whose keys have one text are one row, whatever their values.
        dynamic: Whether Spark's save mode overwrite replaces only the partitions of the new rows, not the whole table.
        combine: Whether insert and bulk_insert write only one row per key.
        fill_missing: Whether columns of the table that the input lacks are written as null. If not, the write fails.
        index: Type of the index that finds the file groups of existing keys. AUTO lets lakeformat choose.
        by_ranges: Whether the Bloom index skips files whose key range does not include a key.
        asks_stored_filters: Whether the bloom filters of the metadata table are asked before any file is opened.
        by_tree: Whether the Bloom index searches the key ranges in a tree.
        update_partition: Whether a global index moves a record to another partition if its new row belongs there.
        bucket_engine: How buckets are managed, with the index BUCKET: ``SIMPLE`` or ``CONSISTENT_HASHING``.
        buckets: Number of buckets of each partition, with the index BUCKET.
        hash_fields: Record key fields whose values determine the bucket; empty for the whole key.
        use_metadata_table: Whether keys may be looked up in the record index of the metadata table.
        buffer_bytes: Bytes of memory that each task uses for rows that are being written.
        file_bytes: Maximum size of a base file in bytes.
        small_bytes: Inserts add rows to base files below this size in bytes; 0 for never.
        auto_split: Whether the number of rows of a new file is computed from the measured size of rows. If not, it is
            ``split_rows``.
        split_rows: Number of rows of a new file without ``auto_split``.
        codec: Arrow's name of the codec that compresses Parquet pages.
        bloom_fpp: False-positive rate of the Bloom filters in base files, 0 to 1.
        row_group_rows: Maximum number of rows of a row group.
        row_group_bytes: Maximum number of bytes of a row group.
        copy_row_groups: Whether merges copy row groups and columns that they do not change byte for byte.
        file_index: Whether the write updates and uses the file index.
        merge: Where ``save`` of a registered Spark session merges rows: ``auto``, ``executors`` or ``driver``.
        merge_bytes: The bound of ``auto`` in bytes; None for the default.
    """

    operation: str | None
    partitions: tuple[str, ...]
    dup_policy: str
    bad_rows: str
    bad_rows_path: str | None
    bad_rows_name: str | None
    merges_unclear_keys: bool
    dynamic: bool
    combine: bool
    fill_missing: bool
    index: IndexType
    by_ranges: bool
    by_tree: bool
    asks_stored_filters: bool
    update_partition: bool
    bucket_engine: str
    buckets: int
    hash_fields: tuple[str, ...]
    use_metadata_table: bool
    buffer_bytes: int
    file_bytes: int
    small_bytes: int
    auto_split: bool
    split_rows: int
    codec: str
    bloom_fpp: float
    row_group_rows: int
    row_group_bytes: int
    copy_row_groups: bool
    file_index: bool
    merge: str
    merge_bytes: int | None

    @property
    def is_consistent(self) -> bool:
        """Tell whether the index is the bucket index with consistent hashing."""
        return self.index.has_buckets and self.bucket_engine == CONSISTENT

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> WriteOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default."""
        index = INDEX_TYPES[value("hoodie.index.type")]
        return cls(
            operation=value(WRITE + "operation"),
            partitions=value(WRITE + "partitions.to.delete"),
            dup_policy=value("hoodie.datasource.insert.dup.policy"),
            bad_rows=value(BAD_ROWS),
            bad_rows_path=value(BAD_ROWS_PATH),
            bad_rows_name=value("hoodie.errortable.target.table.name"),
            merges_unclear_keys=value(UNCLEAR_KEYS) == "merge",
            dynamic=value("hoodie.datasource.overwrite.mode") == "dynamic",
            combine=value("hoodie.combine.before.insert"),
            fill_missing=value("hoodie.write.set.null.for.missing.columns"),
            index=index,
            by_ranges=value("hoodie.bloom.index.prune.by.ranges"),
            by_tree=value("hoodie.bloom.index.use.treebased.filter"),
            asks_stored_filters=value("hoodie.bloom.index.use.metadata"),
            update_partition=value(index.update_partition),
            bucket_engine=value("hoodie.index.bucket.engine"),
            buckets=value("hoodie.bucket.index.num.buckets"),
            hash_fields=value("hoodie.bucket.index.hash.field"),
            use_metadata_table=value(METADATA_TABLE) is not False,
            buffer_bytes=value("lakeformat.write.buffer.bytes"),
            file_bytes=value("hoodie.parquet.max.file.size"),
            small_bytes=value("hoodie.parquet.small.file.limit"),
            auto_split=value("hoodie.copyonwrite.insert.auto.split"),
            split_rows=max(1, value("hoodie.copyonwrite.insert.split.size")),
            codec=value("hoodie.parquet.compression.codec"),
            bloom_fpp=value("hoodie.index.bloom.fpp"),
            row_group_rows=value("lakeformat.parquet.row.group.rows"),
            row_group_bytes=value("hoodie.parquet.block.size"),
            copy_row_groups=value(COPY_ROW_GROUPS),
            file_index=value(FILE_INDEX),
            merge=value(MERGE),
            merge_bytes=value(MERGE_BYTES),
        )
