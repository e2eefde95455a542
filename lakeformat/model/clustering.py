"""A clustering plan: which file slices are rewritten together, and how (Hudi: ``HoodieClusteringPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId

__all__ = ["ClusteringGroup", "ClusteringPlan", "SliceInfo"]


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One file slice of a plan.

    Attributes:
        path: Absolute path of the base file, as the planner saw it; "" if the slice has no base file.
        delta_paths: Absolute paths of the log files.
    """

    partition_path: str
    file_id: str
    path: str
    delta_paths: tuple[str, ...] = ()

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
    """File slices of one partition that are rewritten together.

    Attributes:
        metrics: Sizes in megabytes, for display only.
        output_file_groups: Number of file groups that the planner expects to be written.
    """

    slices: tuple[SliceInfo, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    output_file_groups: int = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The groups of file slices that a clustering rewrites, and its settings.

    Attributes:
        strategy_class: Java class that Hudi would run.
        params: Options of the plan, under Hudi's names.
        keeps_meta: Whether rows keep their commit time and sequence number.
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
