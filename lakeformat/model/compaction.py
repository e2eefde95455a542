"""A compaction plan: which file slices are going to become base files (Hudi: ``HoodieCompactionPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId

__all__ = ["CompactionOperation", "CompactionPlan"]


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice of a plan.

    Attributes:
        base_instant: of the slice.
        base_name: bare name of its base file; "" where it has none.
        log_names: bare names of the log files that are to be merged, in order.
        metrics: what it costs, under Hudi's names.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_name: str = ""
    log_names: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def group(self) -> FileGroupId:
        """The file group the slice is of."""
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction, or a log compaction, is going to do.

    Attributes:
        is_auto: slices that had outgrown their base files made the plan by themselves.
    """

    operations: tuple[CompactionOperation, ...] = ()
    is_auto: bool = False
