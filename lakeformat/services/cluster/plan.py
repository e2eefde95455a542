"""The choice of files to rewrite together (Hudi: ``PartitionAwareClusteringPlanStrategy``). Pure."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from lakeformat.config.clustering_options import STRATEGY
from lakeformat.config.resolve import Options
from lakeformat.keys.partition_paths import match_partitions
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.service_plans import ClusteringGroup, ClusteringPlan, SliceInfo

__all__ = ["EXECUTION_CLASS", "ClusterLimits", "PartitionChoice", "clustering_group", "plan_clustering"]

_LOG: Final = logging.getLogger("lakeformat.services")
#: Hudi's execution class that lakeformat's clustering plans name, so that Hudi can run them.
EXECUTION_CLASS: Final = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """Limits of a clustering plan.

    Attributes:
        target_file_bytes: target size of the new files.
        group_bytes: maximum bytes of the files in one group; a larger file is a group of its own.
        groups: maximum number of groups; None means no limit.
        small_file_bytes: only smaller files are candidates; None means files of any size.
        includes_single_files: whether a group of only one file is rewritten too.
        reclusters: whether to rewrite files that a clustering with the same parameters has written.
    """

    target_file_bytes: int
    group_bytes: int
    groups: int | None
    small_file_bytes: int | None
    includes_single_files: bool
    reclusters: bool = False

    @classmethod
    def of_options(cls, options: Options, *, everything: bool, sorts: bool) -> ClusterLimits:
        """Return the limits that the options set.

        Args:
            everything: whether the caller requested all files. If so, the defaults for the number of groups and for
                small files do not apply, only explicit values.
            sorts: whether rows are sorted, so that rewriting a single file is useful.
        """
        settings = options.clustering

        def limit(name: str, value: int) -> int | None:
            return None if everything and not options.is_set(STRATEGY + name) else value

        return cls(
            settings.target_file_bytes,
            settings.group_bytes,
            limit("max.num.groups", settings.groups),
            limit("small.file.limit", settings.small_file_bytes),
            includes_single_files=sorts and settings.rewrites_single_files,
            reclusters=everything,
        )


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The choice of partitions (Hudi: ``ClusteringPlanPartitionFilter``).

    Attributes:
        named: requested paths, ``*`` for any text; if set, all other fields are ignored.
        selected: paths that an option lists; paths that do not exist are ignored. Empty means all.
        matching: regular expression for whole paths, used if ``selected`` is empty; None matches all.
        mode: ``NONE``, ``RECENT_DAYS`` or ``SELECTED_PARTITIONS``, applied to the paths chosen so far.
        first, last: bounds of SELECTED_PARTITIONS, inclusive; None is unbounded.
        skipped: number of partitions that RECENT_DAYS leaves out: those with the greatest paths.
        taken: number of partitions that RECENT_DAYS chooses: those with the greatest remaining paths; 0 chooses all.
    """

    named: tuple[str, ...] | None = None
    selected: tuple[str, ...] = ()
    matching: str | None = None
    mode: str = "NONE"
    first: str | None = None
    last: str | None = None
    skipped: int = 0
    taken: int = 2

    @classmethod
    def of_options(cls, options: Options) -> PartitionChoice:
        """Return the choice of partitions that the options set."""
        settings = options.clustering
        return cls(
            selected=settings.selected_partitions,
            matching=settings.partition_pattern,
            mode=settings.filter_mode,
            first=settings.first_partition,
            last=settings.last_partition,
            skipped=settings.skipped_partitions,
            taken=settings.taken_partitions,
        )

    def choose(self, paths: Collection[str]) -> list[str]:
        """Choose from a table's partition paths. Return the chosen paths, ascending.

        Logs a warning for named paths that match no partition.

        Raises:
            InvalidInputError: none of the named paths matches.
        """
        if self.named is not None:
            chosen, unmatched = match_partitions(self.named, paths) if paths else (frozenset[str](), ())
            if unmatched:
                _LOG.warning("no partition matches %s", ", ".join(unmatched))
            return sorted(chosen)
        candidates: Iterable[str] = paths
        if self.selected:
            candidates = set(self.selected).intersection(paths)
        elif self.matching is not None:
            whole = re.compile(self.matching)
            candidates = (path for path in paths if whole.fullmatch(path))
        if self.mode == "SELECTED_PARTITIONS":
            candidates = (path for path in candidates if self._in_bounds(path))
        ordered = sorted(candidates)
        if self.mode == "RECENT_DAYS":
            recent = ordered[::-1][self.skipped :]
            return sorted(recent[: self.taken] if self.taken else recent)
        return ordered

    def _in_bounds(self, path: str) -> bool:
        return (self.first is None or path >= self.first) and (self.last is None or path <= self.last)


def plan_clustering(
    slices: Mapping[str, Sequence[FileSlice]],
    closed_groups: Collection[FileGroupId],
    choice: PartitionChoice,
    limits: ClusterLimits,
    params: Mapping[str, str],
    location: str,
    params_of: Callable[[str], Mapping[str, str] | None] = lambda _: None,
) -> ClusteringPlan | None:
    """Plan a clustering. Return None if no group is worth rewriting.

    Args:
        slices: maps partition path to live file slices.
        closed_groups: file groups of pending clusterings and compactions, which are left out.
        params: parameters to store in the plan, by Hudi's option names.
        location: the table's folder, since paths in a plan are absolute.
        params_of: returns the parameters of the clustering that committed at an instant time; None if that commit was
            not a clustering. Files that a clustering with equal parameters wrote are not rewritten again.
    """

    def is_done(group: Sequence[FileSlice]) -> bool:
        times = {piece.base.name.instant_time if piece.base and not piece.logs else "" for piece in group}
        return not limits.reclusters and len(times) == 1 and params_of(times.pop()) == params

    groups = chain.from_iterable(
        _group_slices([piece for piece in slices[path] if _is_candidate(piece, closed_groups, limits)], limits)
        for path in choice.choose(slices)
    )
    worth = (clustering_group(group, limits, location) for group in groups if not is_done(group))
    chosen = tuple(islice(worth, limits.groups))
    return ClusteringPlan(chosen, EXECUTION_CLASS, params) if chosen else None


def _is_candidate(piece: FileSlice, closed_groups: Collection[FileGroupId], limits: ClusterLimits) -> bool:
    base_bytes = piece.base.size_bytes if piece.base else 0
    small = limits.small_file_bytes is None or base_bytes < limits.small_file_bytes
    return small and piece.group not in closed_groups


def _group_slices(slices: Sequence[FileSlice], limits: ClusterLimits) -> Iterator[Sequence[FileSlice]]:
    """Yield one partition's slices in groups of limited size, largest slices first."""
    waiting: list[FileSlice] = []
    size, least = 0, 1 if limits.includes_single_files else 2
    for piece in sorted(slices, key=lambda piece: (-piece.size_bytes, piece.group.file_id)):
        if waiting and size + piece.size_bytes > limits.group_bytes:
            if len(waiting) >= least:
                yield waiting
            waiting, size = [], 0
        waiting.append(piece)
        size += piece.size_bytes
    if len(waiting) >= least:
        yield waiting


def clustering_group(slices: Sequence[FileSlice], limits: ClusterLimits, location: str) -> ClusteringGroup:
    """Return the entry of a clustering plan for one group of slices, with Hudi's metrics of the group."""
    logs = [log.size_bytes for piece in slices for log in piece.logs]
    size = sum(piece.size_bytes for piece in slices)
    read, written = size / _MEGABYTE, (size - sum(logs)) / _MEGABYTE
    metrics = {
        "TOTAL_IO_READ_MB": read,
        "TOTAL_IO_WRITE_MB": written,
        "TOTAL_IO_MB": read + written,
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(logs)),
    }
    infos = tuple(_slice_info(piece, location) for piece in slices)
    return ClusteringGroup(infos, metrics, -(-size // limits.target_file_bytes))


def _slice_info(piece: FileSlice, location: str) -> SliceInfo:
    base = f"{location}/{piece.base.path}" if piece.base else ""
    logs = tuple(f"{location}/{log.path}" for log in piece.logs)
    return SliceInfo(piece.group.partition_path, piece.group.file_id, base, logs)
