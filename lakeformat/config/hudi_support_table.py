"""Tables of the options of Hudi that lakeformat does not support. They are ignored, warned about, or refused.

A name in a table may contain ``*`` for any text. If an option matches several names, the longest name applies. An
unsupported option is refused if it changes rows, or files on which later writes rely. An option that changes only
speed or resources is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["IGNORED", "OPEN", "REFUSED", "WARNED"]

#: Patterns of known names that are not in the list of Hudi's options, because they belong to other bundles of Hudi, or
#: to releases between the listed ones. A name that matches one of them is looked up in the tables like a listed option.
OPEN: Final = """
    hoodie.archive.* hoodie.aws.* hoodie.clean.* hoodie.cleaner.* hoodie.client.heartbeat.* hoodie.commits.archival.*
    hoodie.common.* hoodie.compact.* hoodie.compaction.* hoodie.datasource.hive_sync.* hoodie.datasource.meta.sync.*
    hoodie.deltastreamer.* hoodie.embed.* hoodie.filesystem.* hoodie.gcp.* hoodie.index.hbase.* hoodie.log.*
    hoodie.logfile.* hoodie.markers.* hoodie.memory.* hoodie.meta.sync.* hoodie.metadata.* hoodie.metrics.*
    hoodie.parquet.encryption.* hoodie.spark.sql.* hoodie.sql.* hoodie.streamer.*
    hoodie.write.concurrency.early.conflict.* hoodie.write.lock.*
    hoodie.bulkinsert.are.partitioner.records.sorted hoodie.clustering.preserve.commit.metadata
    classname connectionname
"""

#: Maps the text of a warning to the options that are ignored with this warning. The text says what lakeformat does
#: instead. If the value switches the option off, there is no warning.
WARNED: Final[Mapping[str, str]] = {
    "they name the connector of an AWS Glue job, and this table is read and written by lakeformat": (
        "classname connectionname"
    ),
    "cleaning and archiving run after the commit, in the writer": """
        hoodie.archive.async hoodie.clean.async.enabled hoodie.clean.async hoodie.prewrite.cleaner.policy
    """,
    "column comments, bucketing, tags and partition indexes are not registered": """
        hoodie.datasource.hive_sync.sync_comment hoodie.datasource.hive_sync.bucket_sync
        hoodie.datasource.meta.sync.glue.partition_index_fields.enable hoodie.datasource.meta.sync.glue.resource_tags
    """,
    "SQL's insert into adds rows, and other writes follow hoodie.datasource.write.operation": """
        hoodie.spark.sql.insert.into.operation hoodie.sql.bulk.insert.enable hoodie.sql.insert.mode
    """,
    "log files are compacted into base files, never into log files": """
        hoodie.log.compaction.enable hoodie.log.compaction.inline
    """,
    "metrics go to OpenTelemetry, if the process uses it": "hoodie.metrics.executor.enable hoodie.metrics.on",
    "extra metadata is stored only in its own commit": "hoodie.write.rolling.metadata.keys",
    "a Java class cannot run here": "hoodie.client.init.callback.classes",
    "Hudi 1.2 returns all rows of the range, too; give the condition as where": "hoodie.datasource.read.incr.filters",
    "the rows of a merge are not counted a second time": "hoodie.merge.data.validation.enabled",
    "partition values are read from the rows' columns, also where folders show the text of a time": (
        "hoodie.datasource.read.extract.partition.values.from.path"
    ),
    "no clustering runs in the background; set hoodie.clustering.inline, or call cluster()": (
        "hoodie.clustering.async.enabled"
    ),
    "streams have positions in the table's unit: instants in version 6, completion times from version 8 on": (
        "hoodie.datasource.read.streaming.table.version"
    ),
    "instants that are rolled back are not kept": "hoodie.rollback.instant.backup.enabled",
    "table services run in the writer, or when they are called": """
        hoodie.metadata.table.service.manager.enabled hoodie.table.service.manager.enabled
    """,
}

#: Maps the reason why options have no effect in lakeformat to the options that are ignored without a warning.
IGNORED: Final[Mapping[str, str]] = {
    "the number of cores, or Spark, decides the parallelism": "hoodie.*parallelism",
    "columns get ids when they are altered, and are then read and written by them": "hoodie.schema.on.read.enable",
    "nothing is cached in Spark's storage": "hoodie.*.storage.level hoodie.*.index.use.caching",
    "the metadata table is kept by Hudi's defaults; the obeyed options say what is made of it": """
        hoodie.metadata.* hoodie.expression.index.* hoodie.index.name hoodie.datasource.write.secondarykey.column
        hoodie.hfile.* hoodie.table.index.defs.path hoodie.table.metadata.* hoodie.table.secondary.indexes.metadata
    """,
    "compaction always merges log files in the same way, after writes (hoodie.compact.inline) or when it is called": """
        hoodie.compact.* hoodie.compaction.* hoodie.log.compaction.* hoodie.datasource.compaction.async.enable
        hoodie.datasource.write.streaming.disable.compaction
    """,
    "a write adds a log file of Parquet blocks to a file slice, and all log files are merged in the same way": """
        hoodie.log.* hoodie.logfile.* hoodie.merge.use.record.positions hoodie.optimized.log.blocks.scan.enable
        hoodie.table.log.file.format hoodie.write.record.positions
    """,
    "cleaning and archiving work differently; the obeyed options control them": """
        hoodie.archive.* hoodie.clean.* hoodie.cleaner.* hoodie.commits.archival.*
        hoodie.write.empty.clean.interval.hours
    """,
    "it is for HiveServer2 or Spark's catalog, which are never called": """
        hoodie.datasource.hive_sync.username hoodie.datasource.hive_sync.password hoodie.datasource.hive_sync.jdbcurl
        hoodie.datasource.hive_sync.use_jdbc hoodie.datasource.hive_sync.use_spark_catalog
        hoodie.spark.polaris.catalog.class
    """,
    "the registration in a catalog always reads and sends what it needs, in the same way": """
        hoodie.datasource.hive_sync.* hoodie.datasource.meta.sync.* hoodie.datasource.meta_sync.* hoodie.meta.sync.*
        hoodie.meta_sync.*
    """,
    "partition values are read from the rows' columns": """
        hoodie.datasource.partition_extractor_class hoodie.table.partition_extractor_class
        hoodie.datasource.read.partition.value.extractor.enabled
    """,
    "clustered rows keep their commit times, as since Hudi 0.15 with any value": (
        "hoodie.clustering.preserve.commit.metadata"
    ),
    "it matters only with hoodie.metrics.on": "hoodie.metrics.* hoodie.metricscompaction.*",
    "failed writes are rolled back by the next writer, when they are no longer alive": """
        hoodie.clean.failed.writes.policy hoodie.rollback.* hoodie.client.heartbeat.* hoodie.write.ignore.failed
        hoodie.datasource.write.streaming.ignore.failed.batch hoodie.write.markers.type hoodie.markers.*
        hoodie.block.writes.on.speculative.execution hoodie.fail.job.on.duplicate.data.file.detection
        hoodie.consistency.check.* hoodie.optimistic.consistency.guard.* hoodie.fs.atomic_creation.support
    """,
    "a lock is asked for about once a second until the whole time of waiting is over": """
        hoodie.write.lock.* hoodie.auto.adjust.lock.configs hoodie.write.application.id
    """,
    "conflicts are looked for once, when a write is published; writes to the same file group conflict": """
        hoodie.write.concurrency.* hoodie.write.lock.conflict.resolution.strategy
    """,
    "the storage's own lock replaces that lock provider": "hoodie.write.lock.filesystem.*",
    "it matters only with a lock provider that is refused": "hoodie.write.lock.hivemetastore.*",
    "lakeformat's own options limit the memory": """
        hoodie.memory.* hoodie.write.buffer.* hoodie.write.executor.* hoodie.cdc.file.group.iterator.memory.spill.bytes
        hoodie.file.index.cache.* hoodie.common.*
    """,
    "there is no timeline server, and no file system view is kept between writes": """
        hoodie.embed.* hoodie.filesystem.* hoodie.time.generator.* hoodie.release.resource.on.completion.enable
    """,
    "a table keeps its version until upgrade() or downgrade() is called": """
        hoodie.write.auto.upgrade hoodie.table.initial.version
    """,
    "new tables have their timeline in UTC and in the usual folders": """
        hoodie.timeline.* hoodie.table.timeline.timezone hoodie.archivelog.folder
    """,
    "the table's properties are derived from its other settings": """
        hoodie.table.checksum hoodie.table.create.schema hoodie.table.legacy.payload.class
        hoodie.table.multiple.base.file.formats.enable hoodie.partition.metafile.use.base.format
        hoodie.assume.date.partitioning hoodie.skip.default.partition.validation
    """,
    "a write makes one commit, without event times": """
        hoodie.auto.commit hoodie.allow.empty.commit hoodie.fail.on.timeline.archiving hoodie.payload.event.time.field
        hoodie.write.track.event.time.watermark
    """,
    "the path is the one given to save, load or open": "hoodie.base.path",
    "timestamps are written in the unit of their column, as Hudi 1.2 does with any value": (
        "hoodie.parquet.outputtimestamptype"
    ),
    "the writer measures rows and chooses pages, row groups, dictionaries and filters": """
        hoodie.parquet.* hoodie.orc.* hoodie.lance.* hoodie.copyonwrite.record.size.estimate
        hoodie.record.size.estimat* hoodie.index.bloom.num_entries
        hoodie.bloom.index.filter.* hoodie.datasource.write.row.writer.enable hoodie.fileid.prefix.provider.class
        hoodie.write.merge.handle.fallback hoodie.storage.layout.*
    """,
    "tagging distributes its work automatically": """
        hoodie.bloom.index.bucketized.checking* hoodie.bloom.index.fileid.key.sorting.enable
        hoodie.bloom.index.keys.per.bucket hoodie.bulkinsert.are.partitioner.records.sorted
        hoodie.bulkinsert.sort.suffix.record_key hoodie.bucket.index.remote.partitioner.enable
        hoodie.bucket.index.query.pruning
    """,
    "it matters only with an index that hoodie.index.type refuses": "hoodie.hbase.index.* hoodie.index.hbase.*",
    "clustering always plans, runs and commits in the same way": """
        hoodie.clustering.async.max.commits hoodie.clustering.enable.expirations hoodie.clustering.expiration.*
        hoodie.clustering.fail.on.* hoodie.clustering.plan.generation.*
        hoodie.clustering.plan.strategy.* hoodie.clustering.rollback.* hoodie.clustering.updates.strategy
        hoodie.layout.optimize.*
    """,
    "services run after the write, and their failure never fails the write": """
        hoodie.fail.writes.on.inline.table.service.exception hoodie.table.services.*
    """,
    "it matters only with hoodie.table.service.manager.enabled": "hoodie.table.service.manager.*",
    "the rows' own schema is written, after a check against the table's schema": """
        hoodie.avro.schema hoodie.avro.schema.external.transformation hoodie.avro.schema.validate
        hoodie.bulkinsert.schema.ddl hoodie.internal.* hoodie.schema.cache.enable
        hoodie.write.complex.keygen.validation.enable
    """,
    "it matters only with an option that is refused unless it is off": """
        hoodie.bootstrap.* hoodie.metaserver.*
        hoodie.precommit.validators.streaming.*
    """,
    "every write that puts bad rows aside looks for them in the same way": "hoodie.errortable.*",
    "it matters only with hoodie.datasource.read.table.valued.function.timeline.relation, which is refused": """
        hoodie.datasource.read.table.valued.function.*
    """,
    "it changes only the cost of an incremental query, which opens few files": """
        hoodie.datasource.read.incr.skip_compact hoodie.datasource.read.incr.skip_cluster
    """,
    "reads always list and plan in the same way": """
        hoodie.datasource.read.file.index.* hoodie.datasource.read.use.new.parquet.file.format
        hoodie.file.group.reader.enabled hoodie.file.index.enable hoodie.read.blob.inline.mode
    """,
    "Spark sends a failed batch again, and it is written only once": "hoodie.datasource.write.streaming.*",
    "SQL statements always run in the same way": "hoodie.spark.sql.* hoodie.sql.*",
    "it matters only with hoodie.write.rolling.metadata.keys": "hoodie.write.rolling.metadata.timeline.*",
    "it goes into the commit's extra metadata, as in Hudi": "_hoodie.* _.hoodie.*",
    "it is for Hudi's tools, not for a writer": """
        hoodie.streamer.* hoodie.deltastreamer.* hoodie.aws.* hoodie.gcp.* hoodie.sensitive.config.keys
        hoodie.write.can.ignore.post.commit.failures hoodie.writestatus.class
    """,
}

_JAVA: Final = "a Java class cannot run here"
_UNIT: Final = "positions have the table's own unit: instants in version 6, completion times from version 8 on"
_SET_MODE: Final = "set the rule by hoodie.write.record.merge.mode or hoodie.datasource.write.payload.class"

#: Maps each refused option to three texts: why it is refused, what the user can do besides leaving it out, and the
#: values (separated by spaces) that are accepted in addition to Hudi's default.
REFUSED: Final[Mapping[str, tuple[str, str, str]]] = {
    # Options that change which row of a key wins, or which rows a table has.
    "hoodie.write.merge.handle.class": (_JAVA, _SET_MODE, "org.apache.hudi.io.HoodieWriteMergeHandle"),
    "hoodie.write.concat.handle.class": (_JAVA, _SET_MODE, ""),
    "hoodie.table.partial.update.mode": (
        "partial updates have another option", "set lakeformat.write.partial.update", ""),
    "hoodie.write.partial.update.schema": (
        "partial updates have another option", "set lakeformat.write.partial.update", ""),
    "hoodie.errortable.write.class": (_JAVA, "bad rows go to a Hudi table (lakeformat.write.bad_rows)", ""),
    "hoodie.errortable.write.failure.strategy": ("a write fails if its bad rows cannot be put aside", "", ""),
    "hoodie.bootstrap.base.path": ("a write does not bootstrap", "adopt the folder, or write its rows", ""),
    "hoodie.prewrite.validators": (_JAVA, "give Python functions in lakeformat.transaction.validators", ""),
    # Options that change columns or their values.
    # Options that change keys, folders or files on which later writes rely.
    "hoodie.keygen.datetime.parser.class": (_JAVA, "give the formats in hoodie.keygen.timebased.input.dateformat", ""),
    "hoodie.index.class": (_JAVA, "set hoodie.index.type", ""),
    "hoodie.*base.file.format": ("base files are Parquet", "", ""),
    "hoodie.table.format": ("tables have Hudi's own timeline", "", ""),
    "hoodie.metaserver.enabled": ("the timeline is in the table's folder, not in a server", "", ""),
    "hoodie.parquet.encryption.*": ("files are written in plain text", "", ""),
    "hoodie.avro.write.support.class": (_JAVA, "", ""),
    "hoodie.parquet.*.support.class": (_JAVA, "", ""),
    "hoodie.parquet.write.config.injector.class": (_JAVA, "", ""),
    "hoodie.io.factory.class": (_JAVA, "", "org.apache.hudi.io.hadoop.HoodieHadoopIOFactory"),
    "hoodie.storage.class": (_JAVA, "give a URL, and its storage_options", ""),
    # Options of concurrent writers, locks and table services.
    # Options that change the rows that a read returns.
    "hoodie.datasource.read.incr.table.version": (_UNIT, "give the range in it, from history() of the table", ""),
    "hoodie.datasource.read.paths": (
        "a read takes one table, as in Hudi 1.2", "set where for some of its partitions, or join several reads", ""),
    "hoodie.datasource.read.create.filesystem.relation": (
        "the table's files are not read as rows", "call files() of the table", ""),
    "hoodie.datasource.read.table.valued.function.timeline.relation": (
        "its timeline is not read as rows", "call history() of the table", ""),
}  # fmt: skip
