"""A compaction plan: which file slices become base files (Hudi: ``HoodieCompactionPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId

__all__ = ["CompactionOperation", "CompactionPlan"]


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice of a plan.

    Attributes:
        base_instant: Base instant of the slice.
        base_name: Bare name of the slice's base file; "" if it has none.
        log_names: Bare names of the log files to merge, in order.
        metrics: Expected cost, under Hudi's names.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_name: str = ""
    log_names: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def group(self) -> FileGroupId:
        """Return the slice's file group."""
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The file slices that a compaction or a log compaction merges.

    Attributes:
        is_auto: Whether lakeformat made the plan itself because log files had outgrown their base files.
    """

    operations: tuple[CompactionOperation, ...] = ()
    is_auto: bool = False
