"""The options of clustering: when it runs, which file slices it rewrites together, and in what order of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from lakeformat.config.option import (
    Effect,
    Option,
    declare,
    make_choice_parser,
    options_of,
    parse_count,
    parse_execution_strategy,
    parse_factor,
    parse_flag,
    parse_layout_strategy,
    parse_names,
    parse_pattern,
    parse_plan_strategy,
    parse_positive,
    values_of,
)
from lakeformat.errors import InvalidOptionError

__all__ = [
    "BUILD_METHOD",
    "CLUSTERING_OPTIONS",
    "CONSISTENT_PLAN",
    "EXECUTION_CLASS",
    "FILTER_MODE",
    "INLINE",
    "INLINE_COMMITS",
    "LAYOUT_STRATEGY",
    "PLAN_CLASS",
    "SAMPLE_SIZE",
    "SCHEDULE_INLINE",
    "SORT_BUFFER",
    "SORT_COLUMNS",
    "STRATEGY",
    "TARGET_FILE_BYTES",
    "UNLIMITED_BYTES",
    "ClusteringOptions",
]

#: Prefix of the options that choose the file slices to cluster. Hudi stores options with this prefix in the plan.
STRATEGY: Final = "hoodie.clustering.plan.strategy."
INLINE: Final = "hoodie.clustering.inline"
INLINE_COMMITS: Final = "hoodie.clustering.inline.max.commits"
SCHEDULE_INLINE: Final = "hoodie.clustering.schedule.inline"
SORT_COLUMNS: Final = STRATEGY + "sort.columns"
TARGET_FILE_BYTES: Final = STRATEGY + "target.file.max.bytes"
PLAN_CLASS: Final = STRATEGY + "class"
EXECUTION_CLASS: Final = "hoodie.clustering.execution.strategy.class"
FILTER_MODE: Final = "hoodie.clustering.plan.partition.filter.mode"
LAYOUT_STRATEGY: Final = "hoodie.layout.optimize.strategy"
BUILD_METHOD: Final = "hoodie.layout.optimize.curve.build.method"
SAMPLE_SIZE: Final = "hoodie.layout.optimize.build.curve.sample.size"
SORT_BUFFER: Final = "lakeformat.clustering.buffer.bytes"
_BUCKETS: Final = "hoodie.bucket.index."
#: Short name of Hudi's plan strategy for tables with consistent hashing.
CONSISTENT_PLAN: Final = "ConsistentBucketClusteringPlanStrategy"

#: Target file size that no file reaches, so that each group of file slices becomes one file.
UNLIMITED_BYTES: Final = 1 << 62
#: Maps Hudi's older plan strategies, which only choose partitions, to the filter mode that means the same.
_MODE_OF_CLASS: Final[Mapping[str, str]] = {
    "RecentDaysClusteringPlanStrategy": "RECENT_DAYS",
    "SelectedPartitionsClusteringPlanStrategy": "SELECTED_PARTITIONS",
}
_SINGLE_FILES: Final = "SingleFileSortPlanStrategy"
_ONE_FILE_EACH: Final = "SingleFileSortExecutionStrategy"
_CONSISTENT_EXECUTIONS: Final = (
    "ConsistentBucketClusteringExecutionStrategy",
    "SingleSparkJobConsistentHashingExecutionStrategy",
)


_entry: Final = partial(Option, Effect.WRITE)
_option: Final = partial(declare, Effect.WRITE)


@dataclass(frozen=True, slots=True)
class ClusteringOptions:
    """The typed options of clustering: which file slices are clustered, and in what groups."""

    small_file_bytes: int = _option(
        STRATEGY + "small.file.limit",
        "Files below this many bytes are clustered; Table.cluster with columns takes all files.",
        parse_count,
        314572800,
    )
    target_file_bytes: int = _option(
        TARGET_FILE_BYTES, "Bytes of the files that clustering writes.", parse_positive, 1073741824
    )
    group_bytes: int = _option(
        STRATEGY + "max.bytes.per.group",
        "Most bytes of files that are sorted together, as one group.",
        parse_positive,
        2147483648,
    )
    groups: int = _option(
        STRATEGY + "max.num.groups",
        "Most groups in one clustering; Table.cluster with columns takes all groups.",
        parse_positive,
        30,
    )
    rewrites_single_files: bool = _option(
        STRATEGY + "single.group.clustering.enabled",
        "Also sort a group of one file; without sort columns such a group stays unchanged.",
        parse_flag,
        True,
    )
    selected_partitions: tuple[str, ...] = _option(
        STRATEGY + "partition.selected", "Partition paths to cluster, separated by commas.", parse_names, ()
    )
    partition_pattern: str | None = _option(
        STRATEGY + "partition.regex.pattern",
        "Regular expression: if no partitions are selected, cluster those whose whole path matches.",
        parse_pattern,
    )
    plan: str = _option(
        PLAN_CLASS,
        "Hudi's classes by name: SparkSizeBasedClusteringPlanStrategy; SparkRecentDaysClusteringPlanStrategy and "
        "SparkSelectedPartitionsClusteringPlanStrategy, which choose partitions as the filter mode below does; "
        "SparkSingleFileSortPlanStrategy, which sorts each file by itself. A table with consistent hashing is always "
        "planned as by SparkConsistentBucketClusteringPlanStrategy.",
        parse_plan_strategy,
        "SizeBasedClusteringPlanStrategy",
    )
    execution: str = _option(
        EXECUTION_CLASS,
        "SparkSortAndSizeExecutionStrategy; or SparkSingleFileSortExecutionStrategy, which makes one file of each file "
        "and needs SparkSingleFileSortPlanStrategy. A table with consistent hashing is always rewritten as by "
        "SparkConsistentBucketClusteringExecutionStrategy or SingleSparkJobConsistentHashingExecutionStrategy.",
        parse_execution_strategy,
        "SortAndSizeExecutionStrategy",
    )
    filter_mode: str = _option(
        FILTER_MODE,
        "Which of these partitions are clustered: NONE all, RECENT_DAYS the greatest, SELECTED_PARTITIONS a range.",
        make_choice_parser("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS"),
        "NONE",
    )
    taken_partitions: int = _option(
        STRATEGY + "daybased.lookback.partitions", "RECENT_DAYS: number of partitions; 0 takes all.", parse_count, 2
    )
    skipped_partitions: int = _option(
        STRATEGY + "daybased.skipfromlatest.partitions",
        "RECENT_DAYS: number of the greatest partitions to leave out.",
        parse_count,
        0,
    )
    first_partition: str | None = _option(STRATEGY + "cluster.begin.partition", "SELECTED_PARTITIONS: the least path.")
    last_partition: str | None = _option(STRATEGY + "cluster.end.partition", "SELECTED_PARTITIONS: the greatest path.")
    split_threshold: float = _option(
        _BUCKETS + "split.threshold",
        "Consistent hashing: clustering splits a bucket whose file slice has more bytes than this factor times "
        "hoodie.parquet.max.file.size.",
        parse_factor,
        2.0,
    )
    merge_threshold: float = _option(
        _BUCKETS + "merge.threshold",
        "Consistent hashing: clustering merges neighbours whose file slices have at most this factor times "
        "hoodie.parquet.max.file.size bytes.",
        parse_factor,
        0.2,
    )
    most_buckets: int = _option(
        _BUCKETS + "max.num.buckets",
        "Consistent hashing: most buckets of a partition; by default hoodie.bucket.index.num.buckets, so that none is "
        "split.",
        parse_positive,
    )
    least_buckets: int = _option(
        _BUCKETS + "min.num.buckets",
        "Consistent hashing: least buckets of a partition; by default hoodie.bucket.index.num.buckets, so that none "
        "are merged.",
        parse_positive,
    )

    @property
    def is_consistent(self) -> bool:
        """Tell whether the plan or execution class is named that only tables with consistent hashing use."""
        return self.plan == CONSISTENT_PLAN or self.execution in _CONSISTENT_EXECUTIONS

    @classmethod
    def of(cls, value: Callable[[str], Any], given: Callable[[str], bool]) -> ClusteringOptions:
        """Return the typed options.

        Args:
            value: Function that returns the value of an option key, or its default.
            given: Function that tells whether the user set an option key.

        Raises:
            InvalidOptionError: The plan class contradicts the filter mode or the execution class.
        """
        said = cls(**values_of(cls, value))
        plan, execution, mode = said.plan, said.execution, said.filter_mode
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
        if said.is_consistent and given(PLAN_CLASS) and plan != CONSISTENT_PLAN:
            raise InvalidOptionError(
                f"{EXECUTION_CLASS}={execution} is for tables with consistent hashing, so {PLAN_CLASS} must be "
                f"Spark{CONSISTENT_PLAN}; set it, or leave both out"
            )
        if said.is_consistent and given(EXECUTION_CLASS) and execution not in _CONSISTENT_EXECUTIONS:
            raise InvalidOptionError(
                f"{PLAN_CLASS}=Spark{plan} is for tables with consistent hashing, so {EXECUTION_CLASS} must be "
                f"Spark{_CONSISTENT_EXECUTIONS[0]}; set it, or leave both out"
            )
        alone = plan == _SINGLE_FILES
        buckets = value(_BUCKETS + "num.buckets")
        return replace(
            said,
            target_file_bytes=UNLIMITED_BYTES if execution == _ONE_FILE_EACH else said.target_file_bytes,
            group_bytes=0 if alone else said.group_bytes,  # Each file slice is rewritten alone.
            rewrites_single_files=alone or said.rewrites_single_files,
            filter_mode=by_class or mode,
            # Hudi also replaces a maximum below, and a minimum above the number of buckets, by that number.
            most_buckets=max(said.most_buckets or buckets, buckets),
            least_buckets=min(said.least_buckets or buckets, buckets),
        )


CLUSTERING_OPTIONS: Final[tuple[Option, ...]] = (
    _entry(
        INLINE,
        "Cluster after a write if there are enough commits since the last clustering.",
        parse_flag,
        False,
        ("hoodie.datasource.clustering.inline.enable",),
    ),
    _entry(INLINE_COMMITS, "Commits from one inline clustering to the next.", parse_positive, 4),
    _entry(
        SCHEDULE_INLINE, "Plan a clustering after a write by the same count, without running it.", parse_flag, False
    ),
    _entry(
        SORT_COLUMNS,
        "Columns by which clustering sorts, separated by commas; without columns it only joins small files.",
        parse_names,
        (),
    ),
    _entry(
        LAYOUT_STRATEGY,
        "Order of clustered rows: linear, z-order or hilbert. Table.cluster uses hilbert for several columns unless "
        "this option is given.",
        parse_layout_strategy,
        "linear",
    ),
    _entry(
        BUILD_METHOD,
        "How values become steps of a curve: sample uses their ranks in a sample, direct their leading bits.",
        make_choice_parser("sample", "direct"),
        "sample",
    ),
    _entry(SAMPLE_SIZE, "Rows of the sample for the curve.", parse_positive, 200000),
    *options_of(ClusteringOptions),
    _entry(
        SORT_BUFFER,
        "Memory in bytes for sorting, shared by all groups that run at once; larger groups are sorted on storage.",
        parse_positive,
        1 << 30,
    ),
)
