"""Clustering in one process: groups in parallel, each in memory if it fits, else by way of spill files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeformat.concurrency import thread_pool
from lakeformat.display import SILENT, Progress, progress
from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.group_source import BucketTarget, GroupSource, SliceToCluster, open_group
from lakeformat.services.cluster.joined_files import join_files
from lakeformat.services.cluster.rewrite import (
    MemoryRewriter,
    SpillFile,
    TooLargeError,
    fit_ranges,
    gather_results,
    merge_range,
    write_spill_file,
)
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.rows.arrow_pool import reuse_memory

__all__ = ["Group", "GroupRewriter", "load_groups", "rewrite_in_process"]


@dataclass(frozen=True, slots=True)
class Group:
    """File slices of one partition that are rewritten together. Picklable.

    Attributes:
        target: the bucket that takes the rows, under consistent hashing; else None.
    """

    partition_path: str
    slices: tuple[SliceToCluster, ...]
    target: BucketTarget | None = None

    @property
    def size_bytes(self) -> int:
        """Return the size of the group's files in bytes."""
        return sum(piece.file_slice.size_bytes for piece in self.slices)


def load_groups(plan: ClusteringPlan, snapshot: Snapshot) -> list[Group]:
    """Return the plan's groups with file paths of the snapshot, because a plan may have paths of another machine."""
    live: Mapping[FileGroupId, FileSlice] = {piece.group: piece for piece in snapshot.each_slice()}

    def to_cluster(group: FileGroupId) -> SliceToCluster:
        piece = live[group]
        return SliceToCluster(piece, snapshot.rewriting(piece))

    groups = []
    for group in plan.groups:
        partitions = {piece.partition_path for piece in group.slices}
        if len(partitions) != 1:
            raise CorruptTableError(f"a clustering plan names {len(partitions)} partitions in one group; cancel it")
        groups.append(Group(partitions.pop(), tuple(to_cluster(piece.group) for piece in group.slices)))
    return groups


class GroupRewriter:
    """Rewrites groups, one per call of `run`; calls may run in parallel.

    Args:
        pool: threads that do the work. Callers of `run` wait for these threads. A caller must not be a thread of this
            pool: if all threads of the pool waited in `run`, no thread would do the work.
        progress: display that is advanced by the bytes of the groups' old files.
    """

    def __init__(
        self,
        storage: Storage,
        settings: RewriteSettings,
        pool: Executor,
        threads: int,
        progress: Progress = SILENT,
    ) -> None:
        self.storage, self.settings, self.pool, self.threads, self.progress = (
            storage,
            settings,
            pool,
            threads,
            progress,
        )

    def run(self, number: str, group: Group) -> list[WrittenFile]:
        """Write the group's new files to the staging folder. Return them; none if the group has no rows."""
        schema = self.settings.files.schema
        source = self.pool.submit(
            open_group, self.storage, group.partition_path, group.slices, schema, group.target
        ).result()
        ordered = bool(self.settings.ordering.columns)
        if ordered and 2 * source.memory_bytes <= self.settings.buffer_bytes:
            with suppress(TooLargeError):  # If the group does not fit into memory after all, use spill files.
                files = MemoryRewriter(self.storage, self.settings, self.pool).run(number, source)
                return self._report_progress(files, group)
        if not self.pool.submit(lambda: source.rows).result():
            return []
        if ordered:
            return self._rewrite_through_storage(number, source, group.size_bytes)
        stream = self.pool.submit(lambda: [*join_files(self.storage, self.settings, number, source)])
        return self._report_progress(stream.result(), group)

    def _report_progress(self, files: list[WrittenFile], group: Group) -> list[WrittenFile]:
        self.progress.advance(group.size_bytes, rows=sum(file.stat.num_writes for file in files), files=len(files))
        return files

    def _rewrite_through_storage(self, number: str, source: GroupSource, size_bytes: int) -> list[WrittenFile]:
        settings, tasks = self.settings, min(self.threads, len(source.slices))
        ranges = self.pool.submit(fit_ranges, source, settings).result()
        part = replace(settings, buffer_bytes=settings.buffer_bytes // tasks)

        def spill_part(task: int) -> SpillFile:
            path = f"{settings.folder}/spill-{number}-{task}-{settings.write_token}.arrow"
            runs = write_spill_file(source, source.slices[task::tasks], ranges, part, path)
            self.progress.advance(size_bytes // (2 * tasks))  # Spilling counts as half of the group's progress.
            return runs

        def merge_part(place_number: int) -> list[WrittenFile]:
            place = number, source.partition_path
            files = [*merge_range(self.storage, spills, place, place_number, ranges, settings)]
            rows = sum(file.stat.num_writes for file in files)
            self.progress.advance(size_bytes // (2 * ranges.count), rows=rows, files=len(files))
            return files

        spills = gather_results([self.pool.submit(spill_part, task) for task in range(tasks)])
        files = gather_results([self.pool.submit(merge_part, place_number) for place_number in range(ranges.count)])
        for spill in spills:
            self.storage.delete(spill.path)
        return [file for written in files for file in written]


def rewrite_in_process(context: TableContext, groups: Sequence[Group], settings: RewriteSettings) -> list[WrittenFile]:
    """Write the new files of all groups to the staging folder.

    Memory: ``settings.buffer_bytes``, however large the groups are, and one row group per thread.
    """
    threads = max(1, pa.cpu_count())
    at_once = max(1, min(threads, len(groups)))
    own = replace(settings, buffer_bytes=settings.buffer_bytes // at_once)
    # Waiting threads and working threads are in different pools, so that they cannot block each other.
    with (
        reuse_memory(),
        progress("cluster", sum(group.size_bytes for group in groups)) as shown,
        thread_pool(threads) as pool,
        thread_pool(at_once) as waiting,
    ):
        worker = GroupRewriter(context.storage, own, pool, threads, shown)
        jobs = [waiting.submit(worker.run, str(job_number), group) for job_number, group in enumerate(groups)]
        return [file for files in gather_results(jobs) for file in files]
