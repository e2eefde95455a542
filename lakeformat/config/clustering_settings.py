"""What the options of clustering say of its plan, typed: parsed once, as `Options.clustering`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.clustering_options import EXECUTION_CLASS, FILTER_MODE, PLAN_CLASS, STRATEGY, TARGET_FILE_BYTES
from lakeformat.errors import InvalidOptionError

__all__ = ["UNLIMITED_BYTES", "ClusteringOptions"]

#: No file grows so large: a group becomes one file.
UNLIMITED_BYTES: Final = 1 << 62
#: Hudi's older plan classes that only choose partitions -> the filter mode that replaced each.
_MODE_OF_CLASS: Final[Mapping[str, str]] = {
    "RecentDaysClusteringPlanStrategy": "RECENT_DAYS",
    "SelectedPartitionsClusteringPlanStrategy": "SELECTED_PARTITIONS",
}
_SINGLE_FILES: Final = "SingleFileSortPlanStrategy"
_ONE_FILE_EACH: Final = "SingleFileSortExecutionStrategy"


@dataclass(frozen=True, slots=True)
class ClusteringOptions:
    """What is clustered, and in what portions.

    Attributes:
        target_file_bytes: of the files to write.
        group_bytes: of files that are rewritten together; 0: each by itself.
        groups: how many such groups at most.
        small_file_bytes: only files below are candidates.
        single: whether a group of one file is worth it.
        selected, matching: partition paths, and a pattern of whole paths.
        filter_mode: ``NONE``, ``RECENT_DAYS`` or ``SELECTED_PARTITIONS``.
        first, last: bounds of SELECTED_PARTITIONS.
        skipped, taken: how many partitions RECENT_DAYS leaves out and takes.
    """

    target_file_bytes: int
    group_bytes: int
    groups: int
    small_file_bytes: int
    single: bool
    selected: tuple[str, ...]
    matching: str | None
    filter_mode: str
    first: str | None
    last: str | None
    skipped: int
    taken: int

    @classmethod
    def of(cls, value: Callable[[str], Any], given: Callable[[str], bool]) -> ClusteringOptions:
        """From what gives the value of a key, and whether the user set it.

        Raises:
            InvalidOptionError: a class of Hudi's contradicts another option.
        """
        plan, execution, mode = value(PLAN_CLASS), value(EXECUTION_CLASS), value(FILTER_MODE)
        by_class = _MODE_OF_CLASS.get(plan)
        if by_class is not None and given(FILTER_MODE) and mode != by_class:
            raise InvalidOptionError(
                f"options {PLAN_CLASS}=Spark{plan}, which means {by_class}, and {FILTER_MODE}={mode} contradict each "
                "other; give one of them"
            )
        if execution == _ONE_FILE_EACH and plan != _SINGLE_FILES:
            raise InvalidOptionError(
                f"{EXECUTION_CLASS}=Spark{execution} makes one file of each file, so {PLAN_CLASS} must be "
                f"Spark{_SINGLE_FILES}; set it, or leave both out"
            )
        alone = plan == _SINGLE_FILES
        return cls(
            target_file_bytes=UNLIMITED_BYTES if execution == _ONE_FILE_EACH else value(TARGET_FILE_BYTES),
            group_bytes=0 if alone else value(STRATEGY + "max.bytes.per.group"),
            groups=value(STRATEGY + "max.num.groups"),
            small_file_bytes=value(STRATEGY + "small.file.limit"),
            single=alone or value(STRATEGY + "single.group.clustering.enabled"),
            selected=value(STRATEGY + "partition.selected"),
            matching=value(STRATEGY + "partition.regex.pattern"),
            filter_mode=by_class or mode,
            first=value(STRATEGY + "cluster.begin.partition"),
            last=value(STRATEGY + "cluster.end.partition"),
            skipped=value(STRATEGY + "daybased.skipfromlatest.partitions"),
            taken=value(STRATEGY + "daybased.lookback.partitions"),
        )
