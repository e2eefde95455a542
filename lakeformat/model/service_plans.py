"""The plans of clusterings and compactions: the file slices to rewrite, and the log files to merge.

Hudi: ``HoodieClusteringPlan``, ``HoodieCompactionPlan``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId

__all__ = ["ClusteringGroup", "ClusteringPlan", "CompactionOperation", "CompactionPlan", "SliceInfo"]


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One file slice of a clustering plan.

    Attributes:
        path: Absolute path of the base file on the machine that made the plan; "" if the slice has no base file.
        delta_paths: Absolute paths of the log files.
        source: URI of the file with the other columns, if the base file holds the meta columns only; else "".
    """

    partition_path: str
    file_id: str
    path: str
    delta_paths: tuple[str, ...] = ()
    source: str = ""

    @property
    def group(self) -> FileGroupId:
        """Return the slice's file group."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def name(self) -> str:
        """Return the bare name of the base file; "" if the slice has none."""
        return self.path.rpartition("/")[2]

    @property
    def log_names(self) -> tuple[str, ...]:
        """Return the bare names of the log files."""
        return tuple(path.rpartition("/")[2] for path in self.delta_paths)


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices of one partition whose rows a clustering rewrites together.

    Attributes:
        metrics: Sizes in megabytes under Hudi's names, for display only.
        output_file_groups: Number of new file groups that the planner expects.
        extra: The ``extraMetadata`` map of the group. Under consistent hashing it has the nodes of the new buckets.
    """

    slices: tuple[SliceInfo, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    output_file_groups: int = 1
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The groups of file slices that a clustering rewrites, and its settings.

    Attributes:
        strategy_class: Name of the Java class by which Hudi would run the plan.
        params: Parameters of the strategy under Hudi's names, such as the sort columns.
        extra: The ``extraMetadata`` map of the plan.
        keeps_meta: Whether rewritten rows keep their commit time and sequence number.
    """

    groups: tuple[ClusteringGroup, ...]
    strategy_class: str
    params: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    keeps_meta: bool = True

    @property
    def file_groups(self) -> tuple[FileGroupId, ...]:
        """Return the file groups that the plan replaces."""
        return tuple(file_slice.group for group in self.groups for file_slice in group.slices)


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice of a compaction plan.

    Attributes:
        base_instant: Base instant of the slice.
        base_name: Bare name of the slice's base file; "" if it has none.
        log_names: Bare names of the log files to merge, in the order of merging.
        metrics: Expected cost of the merge (sizes and counts), under Hudi's names.
        source: URI of the file with the other columns, if the base file holds the meta columns only; else "".
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_name: str = ""
    log_names: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    @property
    def group(self) -> FileGroupId:
        """Return the slice's file group."""
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The file slices that a compaction or a log compaction merges.

    Attributes:
        operations: One entry for each file slice.
        is_auto: Whether the plan is of automatic compaction, which chooses slices whose log files are large compared
            with their base file.
    """

    operations: tuple[CompactionOperation, ...] = ()
    is_auto: bool = False
