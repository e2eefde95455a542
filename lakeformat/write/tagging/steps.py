"""Steps 4 and 5 of a write in one function: tag the rows, then assign them to buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.commit.nested_partitions import check_new_folders
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.tagging.global_index import GlobalTagger
from lakeformat.write.tagging.tagger import InsertFilter, PartitionTagger
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.profile import BucketPlan, assign_buckets, make_append_rules

__all__ = ["check_new_partitions", "make_tagger", "plan_buckets"]


def make_tagger(
    storage: Storage, job: WriteJob, snapshot: Snapshot, schema: pa.Schema, insert_filter: InsertFilter | None
) -> PartitionTagger:
    """Return the tagger for the job's index, which finds the file groups of the rows' keys.

    Args:
        snapshot: the table's present state.
        schema: the table's columns after this write.
        insert_filter: function that returns a mask of the rows that may be inserted; None allows all rows.
    """
    if job.prepare.is_global:
        return GlobalTagger(storage, job, snapshot, insert_filter, schema)
    return PartitionTagger(storage, job, snapshot, insert_filter)


def plan_buckets(
    storage: Storage,
    job: WriteJob,
    rows: Mapping[str, pa.Table],
    snapshot: Snapshot,
    schema: pa.Schema,
    report: Report,
    *,
    insert_filter: InsertFilter | None = None,
    duplicates: BadRows | None = None,
) -> BucketPlan:
    """Look up the keys of the rows, and decide which file group each row goes to.

    Args:
        rows: for each partition path, its prepared rows; a key may occur several times.
        snapshot: the table's present state.
        schema: the table's columns after this write.
        report: the report to which the counts and seconds of each step are added.
        insert_filter: function that returns a mask of the rows that may be inserted; None allows all rows.
        duplicates: collects the rows that the job's duplicate policy refuses; None refuses the write.

    Raises:
        DuplicateKeyError: if the job's duplicate policy refuses a key.
        InvalidInputError: if the folder of a new partition lies in another partition's folder.
    """
    tagger = make_tagger(storage, job, snapshot, schema, insert_filter)
    tagged_rows = replace(tagger, duplicates=duplicates).tag(rows, report)
    store = TimelineStore(storage)
    plan = assign_buckets(
        job,
        tagged_rows.rows,
        tagged_rows.tagged,
        snapshot,
        schema,
        report,
        append_rules=make_append_rules(
            job, snapshot, store.read_compaction_groups(snapshot.timeline), reads_stored=insert_filter is not None
        ),
        closed_groups=frozenset(store.read_clustering_groups(snapshot.timeline)),
    )
    check_new_partitions(storage, snapshot, plan.buckets)
    return plan


def check_new_partitions(
    storage: Storage, snapshot: Snapshot, buckets: Iterable[Bucket], written: Iterable[WrittenFile] = ()
) -> None:
    """Refuse new partitions whose folders lie in another partition's folder, or contain one.

    Args:
        written: files that tasks have already written.

    Raises:
        InvalidInputError: if there is such a partition; the message names the two folders.
    """
    opened = {bucket.partition_path for bucket in buckets if bucket.opened_at is None}
    check_new_folders(storage, snapshot, opened.union(file.stat.partition_path for file in written))
