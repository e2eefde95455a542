"""A clustering plan: which file slices are going to be rewritten together, and how (Hudi: ``HoodieClusteringPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId

__all__ = ["ClusteringGroup", "ClusteringPlan", "SliceInfo"]


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One file slice of a plan.

    Attributes:
        path: of the base file, absolute as the planner saw it; "" where the slice has none.
        delta_paths: log files, absolute like it.
    """

    partition_path: str
    file_id: str
    path: str
    delta_paths: tuple[str, ...] = ()

    @property
    def group(self) -> FileGroupId:
        """The file group the slice is of."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def name(self) -> str:
        """The base file's name."""
        return self.path.rpartition("/")[2]

    @property
    def log_names(self) -> tuple[str, ...]:
        """Names of the log files."""
        return tuple(path.rpartition("/")[2] for path in self.delta_paths)


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices of one partition that are rewritten together.

    Attributes:
        metrics: sizes in megabytes, for people.
        output_file_groups: how many file groups the planner expects.
    """

    slices: tuple[SliceInfo, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    output_file_groups: int = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """What a clustering is going to do.

    Attributes:
        strategy_class: Java class that Hudi would run.
        params: options that belong to the plan, under Hudi's names.
        keeps_meta: rows keep commit time and sequence number.
    """

    groups: tuple[ClusteringGroup, ...]
    strategy_class: str
    params: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    keeps_meta: bool = True

    @property
    def file_groups(self) -> tuple[FileGroupId, ...]:
        """The file groups it replaces."""
        return tuple(file_slice.group for group in self.groups for file_slice in group.slices)
