"""The options of a write and of the file index, and `WriteOptions`, a class with their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from lakeformat.config.option import (
    WRITE,
    Effect,
    Option,
    declare,
    make_choice_parser,
    options_of,
    parse_bad_rows,
    parse_bucket_expressions,
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
    values_of,
)
from lakeformat.config.read_options import METADATA_TABLE
from lakeformat.config.table_options import UNCLEAR_KEYS
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.index_type import CONSISTENT, INDEX_TYPES, IndexType

__all__ = [
    "BAD_ROWS",
    "BAD_ROWS_PATH",
    "FILE_INDEX",
    "FILE_INDEX_OPTIONS",
    "INDEX_COLUMNS",
    "INDEX_COLUMNS_LIMIT",
    "INDEX_COMMITS",
    "INDEX_SHARD_FILES",
    "MERGE",
    "SMALL_FILE_CANDIDATES",
    "SMALL_FILE_LIMIT",
    "WRITE_OPTIONS",
    "WriteOptions",
]

FILE_INDEX: Final = "lakeformat.file.index"
INDEX_COLUMNS: Final = "hoodie.metadata.index.column.stats.column.list"
INDEX_COLUMNS_LIMIT: Final = "hoodie.metadata.index.column.stats.max.columns.to.index"
BAD_ROWS: Final = "lakeformat.write.bad_rows"
BAD_ROWS_PATH: Final = "hoodie.errortable.base.path"
MERGE: Final = "lakeformat.write.merge"
SMALL_FILE_LIMIT: Final = "hoodie.parquet.small.file.limit"
SMALL_FILE_CANDIDATES: Final = "hoodie.merge.small.file.group.candidates.limit"
INDEX_COMMITS: Final = "lakeformat.file.index.commits"
INDEX_SHARD_FILES: Final = "lakeformat.file.index.shard.files"

_entry: Final = partial(Option, Effect.WRITE)
FILE_INDEX_OPTIONS: Final[tuple[Option, ...]] = (
    _entry(
        FILE_INDEX,
        "Keep a file index beside the table: its live files with rows and column statistics, for planning without "
        "listing folders or opening footers; false also reads without it.",
        parse_flag,
        True,
    ),
    _entry(
        INDEX_COLUMNS,
        "Columns, or leaves of structs, whose statistics the file index and a new column_stats keep; by default all "
        "columns up to a limit.",
        parse_names,
    ),
    _entry(
        INDEX_COLUMNS_LIMIT,
        "Number of leaf columns whose statistics the file index and a new column_stats keep if no columns are named.",
        parse_count,
        32,
    ),
    _entry(
        INDEX_COMMITS,
        "Number of commits after which the file index merges its entries for single commits into one snapshot.",
        parse_positive,
        16,
    ),
    _entry(INDEX_SHARD_FILES, "Most files that one file of the file index describes.", parse_positive, 100_000),
)


_option: Final = partial(declare, Effect.WRITE)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The typed options of a write. An option that one module alone reads, by its key, is a class variable.

    Attributes:
        merges_unclear_keys: Whether rows whose keys have one text are one row, whatever their values.
        update_partition: Whether a global index moves a record to another partition if its new row belongs there.
        use_metadata_table: Whether keys may be looked up in the record index of the metadata table.
        file_index: Whether the write updates and uses the file index.
    """

    merges_unclear_keys: bool
    update_partition: bool
    use_metadata_table: bool
    file_index: bool
    operation: str | None = _option(
        WRITE + "operation",
        "upsert, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table or delete_partition.",
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
    )
    partitions: tuple[str, ...] = _option(
        WRITE + "partitions.to.delete",
        "Partition paths for delete_partition, separated by commas, `*` for any text; by default those of the rows.",
        parse_names,
        (),
        ("partitions_to_delete",),
    )
    runs_services: bool = _option(
        "hoodie.table.services.enabled",
        "Run and schedule table services after a write, as their own options say; false runs none of them.",
        parse_flag,
        True,
    )
    bulk_overwrite: str | None = _option(
        "hoodie.bulkinsert.overwrite.operation.type",
        "What bulk_insert replaces: insert_overwrite in mode append the partitions of its rows, "
        "insert_overwrite_table in mode overwrite all rows; by default nothing.",
        make_choice_parser("insert_overwrite", "insert_overwrite_table"),
        None,
    )
    overwritten: tuple[str, ...] = _option(
        "hoodie.static.overwrite.partition.paths",
        "Partition paths that insert_overwrite replaces, separated by commas; by default those of its rows.",
        parse_names,
        (),
    )
    dup_policy: str = _option(
        "hoodie.datasource.insert.dup.policy",
        "What insert does with keys that are in the table or occur twice: none does not check keys, drop leaves the "
        "rows out, fail refuses the write.",
        parse_dup_policy,
        "none",
        ("dup_policy", WRITE + "insert.drop.duplicates"),
    )
    doubles_inserts: bool = _option(
        "hoodie.merge.allow.duplicate.on.inserts",
        "Whether insert adds a row to a small file that holds its key; false merges both as an upsert does. Rows of "
        "new files are not compared.",
        parse_flag,
        True,
    )
    bad_rows: str = _option(
        BAD_ROWS,
        "What a write does with rows that cannot be written: fail refuses the write, aside writes the other rows and "
        "adds these to a table of bad rows.",
        parse_bad_rows,
        "fail",
        ("bad_rows", "hoodie.errortable.enable"),
    )
    bad_rows_path: str | None = _option(
        BAD_ROWS_PATH,
        "Folder or URL of the table of bad rows; by default a folder inside the table's .hoodie.",
        aliases=("bad_rows_path",),
    )
    bad_rows_name: str | None = _option(
        "hoodie.errortable.target.table.name",
        "Name of the table of bad rows when it is made; by default the table's name and _bad_rows.",
    )
    dynamic: bool = _option(
        "hoodie.datasource.overwrite.mode",
        "What the mode overwrite replaces: static the whole table, dynamic only the partitions of the rows.",
        make_choice_parser("static", "dynamic"),
        "static",
        aliases=("partitionoverwritemode",),
        convert=lambda value: value == "dynamic",
    )
    combine: bool = _option(
        "hoodie.combine.before.insert",
        "Keep one row per key of the batch on insert and bulk_insert.",
        parse_flag,
        False,
    )
    COMBINE_UPSERT: ClassVar = _entry(
        "hoodie.combine.before.upsert", "Keep one row per key of the batch on upsert; must stay on.", parse_flag, True
    )
    COMBINE_DELETE: ClassVar = _entry(
        "hoodie.combine.before.delete", "Keep one row per key of the batch on delete; must stay on.", parse_flag, True
    )
    PARTIAL_UPDATE: ClassVar = _entry(
        "lakeformat.write.partial.update",
        "Upsert only some columns of stored rows, nulls included: true for the input's columns, or names separated by "
        "commas; all other columns keep their values.",
        parse_partial_columns,
        None,
        ("partial_update",),
    )
    MERGER: ClassVar = _entry(
        "lakeformat.write.merger",
        "Function that merges stored and incoming rows on upsert: package.module:function on two Arrow tables.",
        parse_function_name,
        None,
        ("merger",),
    )
    DELETE_FIELD: ClassVar = _entry(
        "hoodie.payload.delete.field", "Column that marks deletes besides _hoodie_is_deleted; needs the marker."
    )
    DELETE_MARKER: ClassVar = _entry(
        "hoodie.payload.delete.marker", "Value of the delete field, as text, in rows that are deletes."
    )
    index: IndexType = _option(  # noqa: RUF009  # It declares a field.
        "hoodie.index.type",
        "How keys are found. AUTO chooses per file between BLOOM (ranges, footer filters) and SIMPLE (key columns); "
        "the GLOBAL_ types search every partition; INMEMORY keeps all keys in the process; BUCKET hashes them; "
        "GLOBAL_RECORD_LEVEL_INDEX, or RECORD_INDEX, asks the record index of the metadata table, as AUTO does where "
        "that finds the same rows. In a table of buckets AUTO is BUCKET if the stored keys determine the number of "
        "buckets; else BUCKET must be given.",
        parse_index,
        "AUTO",
        convert=INDEX_TYPES.__getitem__,
    )
    BLOOM_MOVES: ClassVar = _entry(
        "hoodie.bloom.index.update.partition.path",
        "GLOBAL_BLOOM: a row with another partition than the stored row moves there; false keeps the old partition.",
        parse_flag,
        True,
    )
    SIMPLE_MOVES: ClassVar = _entry(
        "hoodie.simple.index.update.partition.path", "The same for GLOBAL_SIMPLE.", parse_flag, True
    )
    RECORD_MOVES: ClassVar = _entry(
        "hoodie.record.index.update.partition.path",
        "The same for GLOBAL_RECORD_LEVEL_INDEX, whose default is another one in Hudi.",
        parse_flag,
        False,
    )
    bucket_engine: str = _option(
        "hoodie.index.bucket.engine",
        "SIMPLE: a partition has a fixed number of buckets. CONSISTENT_HASHING, for merge-on-read tables: clustering "
        "splits and merges buckets. An existing table keeps its engine.",
        make_choice_parser("SIMPLE", CONSISTENT),
        "SIMPLE",
    )
    buckets: int = _option(
        "hoodie.bucket.index.num.buckets",
        "Buckets, each one file group, of every partition under the index BUCKET; with consistent hashing, of a new "
        "partition.",
        parse_buckets,
        256,
    )
    bucket_expressions: tuple[tuple[str, int], ...] = _option(
        "hoodie.bucket.index.partition.expressions",
        "Buckets of single partitions under the index BUCKET, `<regular expression>,<buckets>;...`: the first that is "
        "found in a partition path decides. Name it for each write, unless partition_bucket_index_manager stored it.",
        parse_bucket_expressions,
        "",
        convert=lambda text: BucketRule.parse(text, 1).expressions,
    )
    RULE_TYPE: ClassVar = _entry(
        "hoodie.bucket.index.partition.rule.type",
        "How these expressions are read.",
        make_choice_parser("regex"),
        "regex",
    )
    hash_fields: tuple[str, ...] = _option(
        "hoodie.bucket.index.hash.field",
        "Record key fields whose values choose the bucket; by default all.",
        parse_names,
        (),
    )
    bloom_fpp: float = _option(
        "hoodie.index.bloom.fpp", "Share of absent keys that filters let through.", parse_share, 1e-4
    )
    by_ranges: bool = _option(
        "hoodie.bloom.index.prune.by.ranges", "Use the least and greatest keys of files to find keys.", parse_flag, True
    )
    by_tree: bool = _option(
        "hoodie.bloom.index.use.treebased.filter",
        "Search the ranges among sorted keys; false compares each range with all keys.",
        parse_flag,
        True,
    )
    asks_stored_filters: bool = _option(
        "hoodie.bloom.index.use.metadata", "Ask the metadata table's filters.", parse_flag, False
    )
    file_bytes: int = _option("hoodie.parquet.max.file.size", "Most bytes of a base file.", parse_count, 125829120)
    row_group_rows: int = _option(
        "lakeformat.parquet.row.group.rows",
        "Rows of a row group, the smallest unit that a filtered read skips; values above the default have no effect. "
        "Files that clustering has sorted have 16384 unless this option is given.",
        parse_positive,
        131_072,
    )
    row_group_bytes: int = _option(
        "hoodie.parquet.block.size",
        "Most bytes of a row group's rows in memory, with every repetition of a text; a merge holds about as many.",
        parse_positive,
        125829120,
    )
    small_bytes: int = _option(
        SMALL_FILE_LIMIT,
        "Inserts add rows to files below this many bytes; 0 for never. If this is not given, they add none to files "
        "whose rewrite would cost more than it saves.",
        parse_count,
        104857600,
    )
    most_filled: int = _option(
        SMALL_FILE_CANDIDATES,
        "In merge-on-read tables, most files of a partition to which the inserts of one write are added.",
        parse_count,
        1,
    )
    codec: str = _option(
        "hoodie.parquet.compression.codec",
        "zstd, snappy, gzip or uncompressed; if this is not given, columns that hardly shrink stay uncompressed.",
        parse_codec,
        "zstd",
    )
    auto_split: bool = _option(
        "hoodie.copyonwrite.insert.auto.split",
        "Size new files by the measured size of rows; false sizes them by the number of rows below.",
        parse_flag,
        True,
    )
    split_rows: int = _option(
        "hoodie.copyonwrite.insert.split.size",
        "Rows of a new file if sizes are not measured.",
        parse_count,
        500000,
        convert=lambda value: max(1, value),
    )
    SORT_MODE: ClassVar = _entry(
        "hoodie.bulkinsert.sort.mode",
        "Order and files of bulk_insert: NONE keeps the order of the rows; GLOBAL_SORT sorts by partition and key; "
        "PARTITION_SORT does so within each task; PARTITION_PATH_REPARTITION makes as few files per partition as the "
        "size limit allows; PARTITION_PATH_REPARTITION_AND_SORT does both.",
        make_choice_parser(
            "NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"
        ),
        "NONE",
    )
    SORT_COLUMNS: ClassVar = _entry(
        "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
        "Columns by which bulk_insert sorts instead of the key, separated by commas; with sort mode NONE, globally.",
        parse_names,
        (),
    )
    PARTITIONER_CLASS: ClassVar = _entry(
        "hoodie.bulkinsert.user.defined.partitioner.class",
        "Hudi's RowCustomColumnsSortPartitioner or RDDCustomColumnsSortPartitioner: sort by the columns above.",
        parse_partitioner,
    )
    PARTITIONER: ClassVar = _entry(
        "lakeformat.bulkinsert.partitioner",
        "A Python function, package.module:function, that takes the Arrow table of a partition's rows and returns the "
        "number of each row's output file.",
        parse_function_name,
    )
    fill_missing: bool = _option(
        "hoodie.write.set.null.for.missing.columns", "Fill columns that the input lacks with null.", parse_flag, False
    )
    schema_text: str | None = _option(
        "hoodie.write.schema",
        "Avro schema that the rows must have: rows with other columns or types are refused, and none is cast.",
    )
    drops_columns: bool = _option(
        WRITE + "schema.allow.auto.evolution.column.drop",
        "Drop columns that the input lacks from the table. A column that comes back later has its old values in files "
        "that were not written again meanwhile, as in Hudi.",
        parse_flag,
        False,
    )
    RECONCILE: ClassVar = _entry(
        WRITE + "reconcile.schema",
        "Keep the table's columns: those that the input lacks become null, narrower types widen, wider are refused.",
        parse_flag,
        False,
    )
    VALIDATORS: ClassVar = _entry(
        "hoodie.precommit.validators",
        "Checks before a write becomes visible: SqlQuerySingleResultPreCommitValidator, "
        "SqlQueryEqualityPreCommitValidator, SqlQueryInequalityPreCommitValidator, with or without their package.",
        parse_names,
        (),
    )
    SINGLE_QUERIES: ClassVar = _entry(
        "hoodie.precommit.validators.single.value.sql.queries",
        "Queries with the result that they must have after the write, separated by semicolons: select count(*) from "
        "<TABLE_NAME> where v is null#0.",
    )
    EQUAL_QUERIES: ClassVar = _entry(
        "hoodie.precommit.validators.equality.sql.queries",
        "Queries whose results must be equal before and after the write.",
    )
    UNEQUAL_QUERIES: ClassVar = _entry(
        "hoodie.precommit.validators.inequality.sql.queries",
        "Queries whose results must differ before and after the write.",
    )
    FUNCTIONS: ClassVar = _entry(
        "lakeformat.transaction.validators",
        "Python functions package.module:function that may refuse a write before it is visible.",
        parse_names,
        (),
    )
    failure_policy: str = _option(
        "hoodie.precommit.validators.failure.policy",
        "FAIL: a validator that is not satisfied refuses the write. WARN_LOG: it only logs a warning.",
        make_choice_parser("FAIL", "WARN_LOG"),
        "FAIL",
    )
    CALLBACKS: ClassVar = _entry(
        "lakeformat.transaction.callbacks",
        "Python functions package.module:function that are called when a write is visible.",
        parse_names,
        (),
    )
    CALLBACK: ClassVar = _entry(
        "hoodie.write.commit.callback.on", "POST a message when a write is visible.", parse_flag, False
    )
    CALLBACK_CLASS: ClassVar = _entry(
        "hoodie.write.commit.callback.class",
        "Only HTTP so far.",
        default="org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback",
    )
    CALLBACK_URL: ClassVar = _entry("hoodie.write.commit.callback.http.url", "URL to which the message is sent.")
    CALLBACK_SECONDS: ClassVar = _entry(
        "hoodie.write.commit.callback.http.timeout.seconds", "Seconds to wait for the server.", parse_count, 30
    )
    CALLBACK_KEY: ClassVar = _entry(
        "hoodie.write.commit.callback.http.api.key",
        "Sent as header HUDI-CALLBACK-KEY.",
        default="hudi_write_commit_http_callback",
    )
    CALLBACK_HEADERS: ClassVar = _entry(
        "hoodie.write.commit.callback.http.custom.headers", "Further headers, name:value;name:value."
    )
    METADATA_PREFIX: ClassVar = _entry(
        WRITE + "commitmeta.key.prefix", "Options with this prefix go into the commit's extra metadata.", default="_"
    )
    SYNC: ClassVar = _entry(
        "lakeformat.storage.sync", "Flush data files to the disk before they are committed.", parse_flag, False
    )
    stores_operation: bool = _option(
        "hoodie.allow.operation.metadata.field",
        "Add the column _hoodie_operation to new files, null in all rows. Tables that have it keep it.",
        parse_flag,
        False,
    )
    buffer_bytes: int = _option(
        "lakeformat.write.buffer.bytes",
        "Bytes of memory per task for rows that are being written.",
        parse_count,
        128 << 20,
    )
    copy_row_groups: bool = _option(
        "lakeformat.write.copy.row.groups",
        "Writes that rewrite a base file copy its row groups and columns that they do not change byte for byte; false "
        "decodes and encodes all rows.",
        parse_flag,
        True,
        ("copy_row_groups",),
    )
    merge: str = _option(
        MERGE,
        "Where save() of a registered Spark session merges rows: executors, driver, or auto, which takes the executors "
        "if the rows and the files of their partitions exceed a bound (see Writing from Spark).",
        make_choice_parser("auto", "executors", "driver"),
        "auto",
    )
    merge_bytes: int | None = _option(
        "lakeformat.write.merge.bytes",
        "That bound in bytes; by default a quarter of the memory of the driver's machine, at most 1 GB with executors.",
        parse_count,
    )

    @property
    def bucket_rule(self) -> BucketRule | None:
        """Return the numbers of buckets of single partitions; None if all have the same number."""
        return BucketRule(self.bucket_expressions, self.buckets) if self.bucket_expressions else None

    @property
    def is_consistent(self) -> bool:
        """Tell whether the index is the bucket index with consistent hashing."""
        return self.index.has_buckets and self.bucket_engine == CONSISTENT

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> WriteOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default."""
        values = values_of(cls, value)
        return cls(
            merges_unclear_keys=value(UNCLEAR_KEYS) == "merge",
            update_partition=value(values["index"].update_partition),
            use_metadata_table=value(METADATA_TABLE) is not False,
            file_index=value(FILE_INDEX),
            **values,
        )


WRITE_OPTIONS: Final = options_of(WriteOptions)
