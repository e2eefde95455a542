"""All options: Hudi's key, short aliases, type, default and one sentence. The README's table is made from this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.config.clustering_options import CLUSTERING_OPTIONS
from lakeformat.config.option import Option
from lakeformat.config.read_options import READ_OPTIONS
from lakeformat.config.table_options import TABLE_OPTIONS
from lakeformat.config.write_options import WRITE_OPTIONS

__all__ = ["IGNORED", "OPTIONS", "REFUSED", "options_table"]

OPTIONS: Final[tuple[Option, ...]] = (*TABLE_OPTIONS, *WRITE_OPTIONS, *CLUSTERING_OPTIONS, *READ_OPTIONS)

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
    "hoodie.keep.max.commits", "hoodie.layout.optimize.enable", "hoodie.clustering.max.parallelism",
    "hoodie.clustering.group.read.parallelism", "hoodie.clustering.plan.strategy.class",
    "hoodie.clustering.execution.strategy.class",
    "hoodie.cleaner.policy", "hoodie.clean.policy", "hoodie.cleaner.policy.failed.writes",
    "hoodie.clean.failed.writes.policy", "hoodie.cleaner.hours.retained", "hoodie.clean.hours.retained",
    "hoodie.cleaner.fileversions.retained", "hoodie.clean.fileversions.retained", "hoodie.clean.async",
    "hoodie.clean.async.enabled", "hoodie.cleaner.parallelism",
    "hoodie.compact.inline.max.delta.commits", "hoodie.metadata.index.column.stats.enable",
    "hoodie.metadata.record.index.enable",
    "hoodie.metadata.global.record.level.index.enable", "hoodie.metadata.record.level.index.enable",
    "hoodie.rollback.parallelism", "hoodie.finalize.write.parallelism", "hoodie.write.lock.num_retries",
    "hoodie.datasource.compaction.async.enable",
})  # fmt: skip

#: Options that promise something which is not built, and the one value each may have all the same.
REFUSED: Final[Mapping[str, str]] = {
    "hoodie.clustering.async.enabled": "false",
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
