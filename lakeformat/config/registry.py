"""All options: Hudi's key, short aliases, type, default and one sentence. The README's table is made from this."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["IGNORED", "OPTIONS", "REFUSED", "Effect", "Option", "options_table"]

WRITE: Final = "hoodie.datasource.write."


#: Values of ``hoodie.index.type``, and those of Hudi's that lakeformat does not have.
INDEX_TYPES: Final = ("AUTO", "BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "BUCKET")
_UNBUILT_INDEXES: Final = frozenset({
    "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX", "HBASE", "FLINK_STATE",
})  # fmt: skip


class Effect(enum.Enum):
    """When an option counts."""

    TABLE = "table"
    WRITE = "write"
    READ = "read"


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("write true or false")
    return lowered == "true"


def _fields(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _count(text: str) -> int:
    value = int(text.strip())
    if value < 0:
        raise ValueError("write a number from 0 up")
    return value


def _positive(text: str) -> int:
    value = _count(text)
    if not value:
        raise ValueError("write a number from 1 up")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError("write a number between 0 and 1")
    return value


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"write one of {', '.join(choices)}")

    return parse


def _index(text: str) -> str:
    if text.strip().upper() in _UNBUILT_INDEXES:
        raise ValueError(f"that index is not built; write one of {', '.join(INDEX_TYPES)}")
    return _one_of(*INDEX_TYPES)(text)


def _partial(text: str) -> tuple[str, ...]:
    """``true`` is every column of the input, kept as ``*``; ``false`` is none."""
    lowered = text.strip().lower()
    if lowered in {"true", "*"}:
        return ("*",)
    names = _fields(text)
    if not names:  # Nobody who lists no columns wants all of them overwritten.
        raise ValueError("write true, false or the names of columns")
    return () if lowered == "false" else names


def _dup_policy(text: str) -> str:
    """Also by the older switch's true and false, and by SQL's name for none."""
    older = {"true": "drop", "false": "none", "insert": "none"}
    return older.get(text.strip().lower()) or _one_of("none", "drop", "fail")(text)


def _partitioner_class(text: str) -> str:
    name = text.strip().rpartition(".")[2]
    if name not in {"RowCustomColumnsSortPartitioner", "RDDCustomColumnsSortPartitioner"}:
        raise ValueError(
            "a Java class cannot run here; write RowCustomColumnsSortPartitioner, or give a Python function in "
            "lakeformat.bulkinsert.partitioner"
        )
    return name


def _function(text: str) -> str:
    module, colon, name = text.strip().partition(":")
    if not (module and colon and name):
        raise ValueError("write package.module:function")
    return text.strip()


def _codec(text: str) -> str:
    """By Arrow's name, which is another for one of them."""
    name = _one_of("zstd", "snappy", "gzip", "uncompressed")(text)
    return "none" if name == "uncompressed" else name


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. ``parse`` raises ``ValueError`` with advice; ``default`` is the parsed value."""

    key: str
    doc: str
    effect: Effect
    parse: Callable[[str], Any] = str.strip
    default: Any = None
    aliases: tuple[str, ...] = ()


_T, _W, _R = Effect.TABLE, Effect.WRITE, Effect.READ

OPTIONS: Final[tuple[Option, ...]] = (
    # Settings of the table: given at creation, kept in hoodie.properties.
    Option(
        "hoodie.table.name",
        "Name of the table; the folder's name if not given.",
        _T,
        aliases=("name", "hoodie.datasource.write.table.name"),
    ),
    Option("hoodie.database.name", "Database the table belongs to.", _T, default=""),
    Option(
        WRITE + "recordkey.field",
        "Columns that identify a row; commas between several, dots into structs; none for generated keys.",
        _T,
        _fields,
        (),
        ("recordkey", "record_key", "hoodie.table.recordkey.fields"),
    ),
    Option(
        WRITE + "partitionpath.field",
        "Columns whose values make the folders; none for one folder.",
        _T,
        _fields,
        (),
        ("partitionpath", "partition_by", "hoodie.table.partition.fields"),
    ),
    Option(
        "hoodie.table.ordering.fields",
        "Column that tells the newer of two rows with one key.",
        _T,
        aliases=("ordering", WRITE + "precombine.field", "hoodie.table.precombine.field", "precombine"),
    ),
    Option(
        WRITE + "keygenerator.class",
        "How keys and partition paths are made; inferred from the columns.",
        _T,
        aliases=("hoodie.table.keygenerator.class", "keygenerator"),
    ),
    Option(
        WRITE + "keygenerator.type", "The same by a short name: SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM.", _T
    ),
    Option(WRITE + "hive_style_partitioning", "Name folders column=value.", _T, _flag, False, ("hive_style",)),
    Option(
        WRITE + "partitionpath.urlencode",
        "Escape special characters of partition values.",
        _T,
        _flag,
        False,
        ("url_encode",),
    ),
    Option(
        WRITE + "table.type",
        "Only COPY_ON_WRITE so far.",
        _T,
        _one_of("COPY_ON_WRITE"),
        "COPY_ON_WRITE",
        ("table_type", "hoodie.datasource.write.storage.type", "hoodie.table.type"),
    ),
    Option(
        "hoodie.write.table.version", "Only table version 6 so far.", _T, _one_of("6"), "6", ("hoodie.table.version",)
    ),
    Option(
        "hoodie.write.complex.keygen.new.encoding",
        "One key field under the complex generator: true writes the "
        "bare value, false field:value. Existing tables keep the form they have.",
        _T,
        _flag,
        None,
    ),
    Option(
        WRITE + "payload.class",
        "Hudi 0.x name of the merge rule: OverwriteWithLatestAvroPayload, DefaultHoodieRecordPayload, "
        "EventTimeAvroPayload, PartialUpdateAvroPayload (the newer row, its nulls filled from the other) or "
        "OverwriteNonDefaultsWithLatestAvroPayload (nulls of the incoming row keep the stored value).",
        _T,
        aliases=("hoodie.compaction.payload.class",),
    ),
    Option(
        "hoodie.write.record.merge.mode",
        "COMMIT_TIME_ORDERING: the incoming row wins; EVENT_TIME_ORDERING (the "
        "default with an ordering column): the greater ordering value wins, the incoming row on a tie.",
        _T,
        _one_of("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
        None,
        ("merge_mode", "hoodie.record.merge.mode"),
    ),
    # How this write works.
    Option(
        WRITE + "operation",
        "upsert, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table or delete_partition.",
        _W,
        _one_of(
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
        _W,
        _fields,
        (),
        ("partitions_to_delete",),
    ),
    Option(
        "hoodie.datasource.insert.dup.policy",
        "What insert does with keys that are in the table or come twice: none looks at no key, drop leaves them out, "
        "fail refuses the write.",
        _W,
        _dup_policy,
        "none",
        ("dup_policy", WRITE + "insert.drop.duplicates"),
    ),
    Option(
        "hoodie.datasource.overwrite.mode",
        "What mode overwrite replaces: static the whole table, dynamic the partitions of the rows.",
        _W,
        _one_of("static", "dynamic"),
        "static",
    ),
    Option(
        "hoodie.combine.before.insert", "Keep one row per key of the batch on insert and bulk_insert.", _W, _flag, False
    ),
    Option(
        "hoodie.combine.before.upsert", "Keep one row per key of the batch on upsert; must stay on.", _W, _flag, True
    ),
    Option(
        "hoodie.combine.before.delete", "Keep one row per key of the batch on delete; must stay on.", _W, _flag, True
    ),
    Option(
        "lakeformat.write.partial.update",
        "Upsert only some columns of stored rows, nulls included: true for those the input has, or names with commas "
        "between; all others keep their values.",
        _W,
        _partial,
        None,
        ("partial_update",),
    ),
    Option(
        "lakeformat.write.merger",
        "Function that merges stored and incoming rows on upsert: package.module:function on two Arrow tables.",
        _W,
        _function,
        None,
        ("merger",),
    ),
    Option(
        "hoodie.payload.delete.field",
        "Column that marks deletes besides _hoodie_is_deleted; needs the marker.",
        _W,
    ),
    Option("hoodie.payload.delete.marker", "Value of the delete field, as text, in rows that are deletes.", _W),
    Option(
        "hoodie.index.type",
        "How keys are found. AUTO picks per file between BLOOM (ranges, footer filters) and SIMPLE (key columns); "
        "the GLOBAL_ ones look in every partition; INMEMORY keeps all keys in the process; BUCKET hashes them, and "
        "must be given at every write.",
        _W,
        _index,
        "AUTO",
    ),
    Option(
        "hoodie.bloom.index.update.partition.path",
        "GLOBAL_BLOOM: a row that names another partition than the stored one moves there; false keeps it in the old.",
        _W,
        _flag,
        True,
    ),
    Option(
        "hoodie.simple.index.update.partition.path",
        "The same for GLOBAL_SIMPLE.",
        _W,
        _flag,
        True,
    ),
    Option(
        "hoodie.index.bucket.engine",
        "Only SIMPLE: a partition has a fixed number of buckets.",
        _W,
        _one_of("SIMPLE"),
        "SIMPLE",
    ),
    Option(
        "hoodie.bucket.index.num.buckets",
        "Buckets, each one file group, of every partition under the index BUCKET.",
        _W,
        _positive,
        256,
    ),
    Option(
        "hoodie.bucket.index.hash.field",
        "Record key fields whose values choose the bucket; all if not given.",
        _W,
        _fields,
        (),
    ),
    Option("hoodie.index.bloom.fpp", "Share of absent keys a footer filter lets through.", _W, _share, 1e-4),
    Option(
        "hoodie.bloom.index.prune.by.ranges", "Use the files' least and greatest keys when tagging.", _W, _flag, True
    ),
    Option(
        "hoodie.bloom.index.use.treebased.filter",
        "Search the ranges among sorted keys; false compares each range with all keys.",
        _W,
        _flag,
        True,
    ),
    Option("hoodie.parquet.max.file.size", "Bytes a base file may grow to.", _W, _count, 125829120),
    Option(
        "hoodie.parquet.small.file.limit",
        "Files below this many bytes are topped up by inserts; 0 never.",
        _W,
        _count,
        104857600,
    ),
    Option(
        "hoodie.parquet.compression.codec",
        "zstd, snappy, gzip or uncompressed.",
        _W,
        _codec,
        "zstd",
    ),
    Option(
        "hoodie.copyonwrite.insert.auto.split",
        "Size new files by measured rows; false: by the number of rows below.",
        _W,
        _flag,
        True,
    ),
    Option(
        "hoodie.copyonwrite.insert.split.size", "Rows of a new file where sizes are not measured.", _W, _count, 500000
    ),
    Option(
        "hoodie.bulkinsert.sort.mode",
        "Order and files of bulk_insert: NONE as rows come; GLOBAL_SORT by partition and key; PARTITION_SORT the same "
        "within each task; PARTITION_PATH_REPARTITION as few files per partition as the size limit allows; "
        "PARTITION_PATH_REPARTITION_AND_SORT both.",
        _W,
        _one_of(
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
        _W,
        _fields,
        (),
    ),
    Option(
        "hoodie.bulkinsert.user.defined.partitioner.class",
        "Hudi's RowCustomColumnsSortPartitioner or RDDCustomColumnsSortPartitioner: sort by the columns above.",
        _W,
        _partitioner_class,
    ),
    Option(
        "lakeformat.bulkinsert.partitioner",
        "A function of your own, package.module:function: from the Arrow table of a partition's rows to the number of "
        "each row's output file.",
        _W,
        _function,
    ),
    Option(
        "hoodie.write.set.null.for.missing.columns",
        "Fill columns the input lacks with null.",
        _W,
        _flag,
        False,
    ),
    Option(
        WRITE + "reconcile.schema",
        "Keep the table's columns: those the input lacks become null, narrower types are widened.",
        _W,
        _flag,
        False,
    ),
    Option(
        "hoodie.precommit.validators",
        "Checks before a write becomes visible: SqlQuerySingleResultPreCommitValidator, "
        "SqlQueryEqualityPreCommitValidator, SqlQueryInequalityPreCommitValidator, with or without their package.",
        _W,
        _fields,
        (),
    ),
    Option(
        "hoodie.precommit.validators.single.value.sql.queries",
        "select count(*) from <TABLE_NAME> where v is null#0: the answer the table must give after the write; "
        "semicolons between several.",
        _W,
    ),
    Option(
        "hoodie.precommit.validators.equality.sql.queries",
        "Queries whose answers must be the same before and after the write.",
        _W,
    ),
    Option(
        "hoodie.precommit.validators.inequality.sql.queries",
        "Queries whose answers must differ before and after the write.",
        _W,
    ),
    Option(
        "lakeformat.write.validators",
        "Python functions package.module:function that may refuse a write before it is visible.",
        _W,
        _fields,
        (),
    ),
    Option(
        "lakeformat.write.callbacks",
        "Python functions package.module:function that are told of a write when it is visible.",
        _W,
        _fields,
        (),
    ),
    Option("hoodie.write.commit.callback.on", "POST a message when a write is visible.", _W, _flag, False),
    Option(
        "hoodie.write.commit.callback.class",
        "Only HTTP so far.",
        _W,
        default="org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback",
    ),
    Option("hoodie.write.commit.callback.http.url", "Where the message goes.", _W),
    Option("hoodie.write.commit.callback.http.timeout.seconds", "How long to wait for the server.", _W, _count, 30),
    Option(
        "hoodie.write.commit.callback.http.api.key",
        "Sent as header HUDI-CALLBACK-KEY.",
        _W,
        default="hudi_write_commit_http_callback",
    ),
    Option("hoodie.write.commit.callback.http.custom.headers", "More headers, name:value;name:value.", _W),
    Option(
        "lakeformat.batch.app",
        "Who sends the batch, a streaming query or a job; with the id below, a batch sent twice is skipped.",
        _W,
    ),
    Option("lakeformat.batch.id", "Number of the batch; only numbers above the last are written.", _W, _count),
    Option("hoodie.write.lock.wait_time_ms", "How long to wait for another writer of this table.", _W, _count, 60000),
    Option(
        "hoodie.write.num.retries.on.conflict.failures",
        "How often to run a write again after a conflict.",
        _W,
        _count,
        0,
    ),
    Option(
        WRITE + "commitmeta.key.prefix",
        "Options with this prefix go into the commit's extra metadata.",
        _W,
        default="_",
    ),
    Option("lakeformat.storage.sync", "Flush data files to the disk before they are committed.", _W, _flag, False),
    Option(
        "lakeformat.write.buffer.bytes", "Memory for rows on their way into files, per task.", _W, _count, 128 << 20
    ),
    # How this read works.
    Option(
        "as.of.instant", "Read the table as it was: an instant, a date, or a date and time in the timeline's zone.", _R
    ),
    Option(
        "hoodie.datasource.query.type",
        "Only snapshot so far.",
        _R,
        _one_of("snapshot"),
        "snapshot",
        ("hoodie.datasource.view.type",),
    ),
    Option(
        "where", "Rows wanted, as a Spark SQL condition: comparisons, in, between, like, is null, and, or, not.", _R
    ),
    Option("columns", "Columns wanted, commas between them.", _R, _fields, None),
    Option("meta_columns", "Return the five _hoodie_ columns first.", _R, _flag, True),
    Option(
        "hoodie.enable.data.skipping",
        "Leave out files and row groups whose statistics rule out a match.",
        _R,
        _flag,
        True,
    ),
    Option("lakeformat.read.split.bytes", "Bytes of Parquet one Spark task reads.", _R, _count, 128 << 20),
)

#: Accepted for old jobs' sake: they tune machinery that lakeformat does not have.
IGNORED: Final = frozenset({
    "hoodie.upsert.shuffle.parallelism", "hoodie.insert.shuffle.parallelism", "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.delete.shuffle.parallelism", "hoodie.bloom.index.parallelism", "hoodie.bloom.index.keys.per.bucket",
    "hoodie.bloom.index.bucketized.checking", "hoodie.bloom.index.use.metadata", "hoodie.bloom.index.filter.type",
    "hoodie.bloom.index.filter.dynamic.max.entries", "hoodie.index.bloom.num_entries",
    "hoodie.simple.index.parallelism", "hoodie.datasource.write.row.writer.enable", "hoodie.write.markers.type",
    "hoodie.embed.timeline.server", "hoodie.rollback.using.markers", "hoodie.parquet.block.size",
    "hoodie.parquet.page.size", "hoodie.copyonwrite.record.size.estimate",
    "hoodie.record.size.estimation.threshold", "hoodie.merge.allow.duplicate.on.inserts", "hoodie.metadata.enable",
    "hoodie.write.auto.upgrade", "hoodie.timeline.layout.version", "hoodie.table.base.file.format",
    "hoodie.datasource.write.streaming.retry.count", "hoodie.datasource.write.streaming.retry.interval.ms",
    "hoodie.table.timeline.timezone", "hoodie.clean.automatic", "hoodie.archive.automatic",
    "hoodie.cleaner.commits.retained", "hoodie.clean.commits.retained", "hoodie.keep.min.commits",
    "hoodie.keep.max.commits", "hoodie.layout.optimize.enable",
    "hoodie.cleaner.policy", "hoodie.clean.policy", "hoodie.cleaner.policy.failed.writes",
    "hoodie.clean.failed.writes.policy", "hoodie.cleaner.hours.retained", "hoodie.clean.hours.retained",
    "hoodie.cleaner.fileversions.retained", "hoodie.clean.fileversions.retained", "hoodie.clean.async",
    "hoodie.clean.async.enabled", "hoodie.cleaner.parallelism", "hoodie.clustering.inline.max.commits",
    "hoodie.clustering.plan.strategy.sort.columns", "hoodie.clustering.plan.strategy.small.file.limit",
    "hoodie.clustering.plan.strategy.target.file.max.bytes", "hoodie.clustering.plan.strategy.max.bytes.per.group",
    "hoodie.clustering.plan.strategy.max.num.groups", "hoodie.layout.optimize.strategy",
    "hoodie.layout.optimize.curve.build.method", "hoodie.layout.optimize.build.curve.sample.size",
    "hoodie.compact.inline.max.delta.commits", "hoodie.metadata.index.column.stats.enable",
    "hoodie.metadata.index.column.stats.column.list", "hoodie.metadata.record.index.enable",
    "hoodie.metadata.global.record.level.index.enable", "hoodie.metadata.record.level.index.enable",
    "hoodie.rollback.parallelism", "hoodie.finalize.write.parallelism", "hoodie.write.lock.num_retries",
    "hoodie.datasource.compaction.async.enable",
})  # fmt: skip

#: Options that promise something which is not built, and the one value each may have all the same.
REFUSED: Final[Mapping[str, str]] = {
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.clustering.schedule.inline": "false",
    "hoodie.datasource.clustering.inline.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.index.class": "",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.schema.on.read.enable": "false",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
}


def options_table() -> str:
    """The options as a Markdown table, for the README."""
    rows = ["| option | short names | default | what it does |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = option.default
        text = ",".join(default) if isinstance(default, tuple) else "" if default is None else str(default)
        text = text.lower() if isinstance(default, bool) else text
        aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
        rows.append(f"| `{option.key}` | {aliases} | {text} | {option.doc} |")
    return "\n".join(rows) + "\n"
