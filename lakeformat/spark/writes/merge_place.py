"""Where ``save`` merges the rows that tasks have staged: in this process, or in tasks on executors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakeformat.config.write_options import MERGE
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.spark.jobs import cores, has_executors
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.stage import StagedTask, rows_by_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MergePlace", "choose_merge_place", "touched_bytes"]

#: If a session has executors, they merge more than these bytes: staged rows, and the files of the rows' partitions.
_EXECUTOR_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class MergePlace:
    """The decision, and its reason in words.

    Attributes:
        option: the value of the option `lakeformat.write.merge`.
    """

    is_executors: bool
    option: str
    reason: str

    def __str__(self) -> str:
        return f"{'executors merge' if self.is_executors else 'this process merges'} the rows: {self.reason}"


def _memory_bound() -> int:
    """Return the bytes that a process of this machine merges by itself: a quarter of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def choose_merge_place(
    spark: SparkSession, job: WriteJob, staged: Sequence[StagedTask], snapshot: Snapshot
) -> MergePlace:
    """Decide where the staged rows are merged.

    If rows that the duplicate policy refuses are put aside, this process merges. Otherwise the option
    `lakeformat.write.merge` decides; ``auto`` takes the executors if the staged rows and the files that may
    hold their keys exceed a bound: by default a quarter of this machine's memory, and at most 1 GB if the session is
    not local.

    Args:
        staged: the stage files of the rows.
        snapshot: the table when the write was planned.
    """
    option = job.options.write.merge
    if job.collects_duplicates:
        return MergePlace(False, option, "only one process can find the duplicates that are put aside")
    if option != "auto":
        return MergePlace(option == "executors", option, f"{MERGE}={option}")
    remote = has_executors(spark)
    bound = job.options.write.merge_bytes
    if bound is None:
        bound = min(_memory_bound(), _EXECUTOR_BYTES) if remote else _memory_bound()
    rows, files = sum(task.size_bytes for task in staged), touched_bytes(job, staged, snapshot)
    where = f"a session of {cores(spark)} cores {'on executors' if remote else 'in this machine'}"
    above = rows + files > bound
    words = f"{_megabytes(rows)} of rows and {_megabytes(files)} of files are {'above' if above else 'within'}"
    return MergePlace(above, option, f"{words} {_megabytes(bound)}, the bound of {where}")


def touched_bytes(job: WriteJob, staged: Sequence[StagedTask], snapshot: Snapshot) -> int:
    """Return the bytes of the files in which keys are looked up: by default those of the partitions of the rows.

    Under a bucket index an insert that looks up no keys adds its rows to these files, too.
    """
    fills_buckets = job.index_settings.has_buckets and job.uses_existing_groups
    if not job.needs_tagging and not fills_buckets:
        return 0
    slices = snapshot.slices
    is_anywhere = job.prepare.searches_all_partitions or job.prepare.is_global
    partitions = slices if is_anywhere else rows_by_partition(staged)
    return sum(piece.size_bytes for path in partitions for piece in slices.get(path, ()))


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MB"
