"""Options of Hudi's that lakeformat does not have: passed over, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["FAMILIES", "IGNORED", "REFUSED"]

#: Accepted for old jobs' sake: they tune machinery that lakeformat does not have.
IGNORED: Final = frozenset({
    "hoodie.allow.empty.commit", "hoodie.auto.commit", "hoodie.avro.schema.validate", "hoodie.base.path",
    "hoodie.bloom.index.bucketized.checking", "hoodie.bloom.index.filter.dynamic.max.entries",
    "hoodie.bloom.index.filter.type", "hoodie.bloom.index.input.storage.level", "hoodie.bloom.index.keys.per.bucket",
    "hoodie.bloom.index.parallelism", "hoodie.bloom.index.use.caching", "hoodie.bloom.index.use.metadata",
    "hoodie.bulkinsert.are.partitioner.records.sorted", "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.clustering.async.max.commits", "hoodie.clustering.execution.strategy.class",
    "hoodie.clustering.group.read.parallelism", "hoodie.clustering.max.parallelism",
    "hoodie.clustering.plan.strategy.class", "hoodie.clustering.updates.strategy", "hoodie.consistency.check.enabled",
    "hoodie.copyonwrite.record.size.estimate", "hoodie.datasource.compaction.async.enable",
    "hoodie.datasource.read.use.new.parquet.file.format", "hoodie.datasource.write.row.writer.enable",
    "hoodie.datasource.write.streaming.ignore.failed.batch", "hoodie.datasource.write.streaming.retry.count",
    "hoodie.datasource.write.streaming.retry.interval.ms", "hoodie.delete.shuffle.parallelism",
    "hoodie.fail.on.timeline.archiving", "hoodie.file.index.enable", "hoodie.finalize.write.parallelism",
    "hoodie.global.simple.index.parallelism", "hoodie.index.bloom.num_entries", "hoodie.insert.shuffle.parallelism",
    "hoodie.keep.max.commits", "hoodie.keep.min.commits", "hoodie.layout.optimize.enable",
    "hoodie.merge.allow.duplicate.on.inserts", "hoodie.merge.small.file.group.candidates.limit",
    "hoodie.optimized.log.blocks.scan.enable", "hoodie.parquet.compression.ratio",
    "hoodie.parquet.dictionary.enabled", "hoodie.parquet.outputtimestamptype", "hoodie.parquet.page.size",
    "hoodie.parquet.writelegacyformat.enabled", "hoodie.payload.event.time.field",
    "hoodie.record.size.estimation.threshold", "hoodie.rollback.parallelism", "hoodie.rollback.using.markers",
    "hoodie.simple.index.parallelism", "hoodie.simple.index.use.caching", "hoodie.table.base.file.format",
    "hoodie.table.timeline.timezone", "hoodie.timeline.layout.version", "hoodie.upsert.shuffle.parallelism",
    "hoodie.write.auto.upgrade", "hoodie.write.buffer.limit.bytes", "hoodie.write.executor.type",
    "hoodie.write.lock.num_retries", "hoodie.write.markers.type", "hoodie.write.status.storage.level",
    "hoodie.write.track.event.time.watermark",
})  # fmt: skip

#: What the names of whole families of such options begin with.
FAMILIES: Final = (
    "hoodie.archive.", "hoodie.aws.", "hoodie.clean.", "hoodie.cleaner.", "hoodie.client.heartbeat.",
    "hoodie.commits.archival.", "hoodie.common.", "hoodie.compact.", "hoodie.compaction.",
    "hoodie.datasource.hive_sync.", "hoodie.datasource.meta.sync.", "hoodie.deltastreamer.", "hoodie.embed.",
    "hoodie.filesystem.", "hoodie.log.", "hoodie.logfile.", "hoodie.markers.", "hoodie.memory.", "hoodie.meta.sync.",
    "hoodie.metadata.", "hoodie.metrics.", "hoodie.spark.sql.", "hoodie.sql.", "hoodie.streamer.",
    "hoodie.write.concurrency.early.conflict.",
)  # fmt: skip

#: Options that promise something which is not built, and the one value each may have all the same.
REFUSED: Final[Mapping[str, str]] = {
    "hoodie.allow.operation.metadata.field": "false",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.clustering.preserve.commit.metadata": "true",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "false",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "false",
    "hoodie.index.class": "",
    "hoodie.populate.meta.fields": "true",
    "hoodie.schema.on.read.enable": "false",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
}
