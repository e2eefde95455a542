"""The choice of files that are clustered together: a rule on sizes and paths that needs no table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.config.clustering_options import EXECUTION_CLASS, FILTER_MODE, PLAN_CLASS, STRATEGY
from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.plan import ClusterLimits, PartitionChoice, plan_clustering
from lakeformat.services.cluster.run import make_cluster_request

PLANS = "org.apache.hudi.client.clustering.plan.strategy."
DAYS = ("d=01", "d=02", "d=03", "d=04")


FIRST = "20250101000000000"


def table(sizes: Mapping[str, Sequence[int]], time: str = FIRST) -> dict[str, tuple[FileSlice, ...]]:
    return {path: tuple(piece(path, at, size, time) for at, size in enumerate(ones)) for path, ones in sizes.items()}


def piece(path: str, at: int, size: int, time: str = FIRST, logs: Sequence[int] = ()) -> FileSlice:
    """Return a slice with log files of these sizes and, unless the size is 0, a base file."""
    id_ = f"{path.replace('=', '')}f{at}"
    base = BaseFile(path, BaseFileName(id_, "0-0-0", time), size) if size else None
    written = tuple(LogFile(path, LogFileName(id_, time, n + 1, "0-0-0"), bytes_) for n, bytes_ in enumerate(logs))
    return FileSlice(FileGroupId(path, id_), time, base, written)


def plan(
    sizes: Mapping[str, Sequence[int]], limits: ClusterLimits, closed: frozenset[FileGroupId] = frozenset()
) -> ClusteringPlan | None:
    return plan_clustering(table(sizes), closed, PartitionChoice(), limits, {"a": "b"}, "/data/t")


def limits(
    target: int = 100, group: int = 100, groups: int | None = None, small: int | None = None, single: bool = True
) -> ClusterLimits:
    return ClusterLimits(target, group, groups, small, includes_single_files=single)


SIZES = st.dictionaries(st.sampled_from(DAYS), st.lists(st.integers(1, 150), max_size=8), max_size=4)


@given(SIZES, st.integers(1, 200), st.integers(1, 120), st.booleans())
def test_every_candidate_is_in_one_group_of_its_partition(
    sizes: dict[str, list[int]], group_bytes: int, small: int, single: bool
) -> None:
    found = plan(sizes, limits(target=30, group=group_bytes, small=small, single=single))
    size_of = {file.group: file.size_bytes for files in table(sizes).values() for file in files}
    groups = found.groups if found else ()
    taken = [one.group for group in groups for one in group.slices]
    assert len(set(taken)) == len(taken)
    assert all(size_of[one] < small for one in taken)
    for group in groups:
        total = sum(size_of[one.group] for one in group.slices)
        assert len({one.partition_path for one in group.slices}) == 1
        assert total <= group_bytes or len(group.slices) == 1
        assert (group.output_file_groups - 1) * 30 < total <= group.output_file_groups * 30
        assert single or len(group.slices) > 1
    if single:
        assert sorted(taken) == sorted(one for one, size in size_of.items() if size < small)


def test_paths_in_a_plan_are_absolute() -> None:
    found = plan({"": [5, 7]}, limits())
    assert found is not None
    names = [str(piece.base.name) for piece in table({"": [5, 7]})[""] if piece.base]
    assert sorted(one.path for one in found.groups[0].slices) == [f"/data/t/{name}" for name in names]
    assert found.params == {"a": "b"}


def test_plan_leaves_out_files_of_other_plans_and_excess_groups() -> None:
    files = table({day: [60, 60] for day in DAYS})
    closed = frozenset({files["d=01"][0].group})
    found = plan({day: [60, 60] for day in DAYS}, limits(groups=4), closed)
    assert found is not None
    assert [one.group for group in found.groups for one in group.slices] == [
        files["d=01"][1].group,
        *(file.group for day in ("d=02",) for file in files[day]),
        files["d=03"][0].group,
    ]


def test_plan_without_worthwhile_groups_is_none() -> None:
    assert plan({}, limits()) is None
    assert plan({"a": [5], "b": [5]}, limits(single=False)) is None
    assert plan({"a": [500, 600]}, limits(small=500)) is None


def test_partition_already_clustered_is_left_alone() -> None:
    files = table({"a": [60], "b": [30, 30], "c": [60]})
    files |= table({"c": [60]}, "20250102000000000")
    made = {"20250101000000000": {"a": "b"}, "20250102000000000": {"a": "c"}}

    def partitions(limits: ClusterLimits, params: Mapping[str, str]) -> set[str]:
        found = plan_clustering(files, frozenset(), PartitionChoice(), limits, params, "/data/t", made.get)
        return {one.partition_path for one in found.file_groups} if found else set()

    assert partitions(limits(), {"a": "b"}) == {"c"}
    assert partitions(limits(), {"a": "c"}) == {"a", "b"}
    assert partitions(limits(), {}) == {"a", "b", "c"}
    assert partitions(replace(limits(), reclusters=True), {"a": "b"}) == {"a", "b", "c"}
    files["a"] = (piece("a", 0, 60, logs=[1]),)
    assert partitions(limits(), {"a": "b"}) == {"a", "c"}


def test_slice_size_counts_base_and_log_files() -> None:
    """A slice is small if its base file is small, as in Hudi, or if it has no base file."""
    slices = {
        "a": (piece("a", 0, 30, logs=[50, 40]), piece("a", 1, 0, logs=[20]), piece("a", 2, 60), piece("a", 3, 90))
    }
    found = plan_clustering(slices, frozenset(), PartitionChoice(), limits(group=140, small=80), {}, "/data/t")
    assert found is not None
    first, second = found.groups
    assert [one.file_id for one in first.slices] == ["af0"]
    assert [one.file_id for one in second.slices] == ["af2", "af1"]
    with_base, (_, log_only) = first.slices[0], second.slices
    assert with_base.path == f"/data/t/a/af0_0-0-0_{FIRST}.parquet"
    assert with_base.delta_paths == tuple(f"/data/t/a/.af0_{FIRST}.log.{n}_0-0-0" for n in (1, 2))
    assert (log_only.path, log_only.log_names) == ("", (f".af1_{FIRST}.log.1_0-0-0",))
    assert first.output_file_groups == 2
    assert first.metrics["TOTAL_LOG_FILES"] == 2
    assert first.metrics["TOTAL_LOG_FILES_SIZE"] == 90


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, DAYS),
        ({"partition.selected": "d=02, d=09,d=01"}, DAYS[:2]),
        ({"partition.regex.pattern": "d=0[34]"}, DAYS[2:]),
        ({"partition.regex.pattern": "0[34]"}, ()),
        ({"partition.filter.mode": "RECENT_DAYS"}, DAYS[2:]),
        ({"partition.filter.mode": "recent_days", "daybased.skipfromlatest.partitions": 1}, DAYS[1:3]),
        ({"partition.filter.mode": "RECENT_DAYS", "daybased.lookback.partitions": 9}, DAYS),
        ({"partition.filter.mode": "RECENT_DAYS", "daybased.lookback.partitions": 0}, DAYS),
        ({"partition.filter.mode": "SELECTED_PARTITIONS", "cluster.begin.partition": "d=02"}, DAYS[1:]),
        ({"class": f"{PLANS}SparkSizeBasedClusteringPlanStrategy"}, DAYS),
        ({"class": f"{PLANS}SparkRecentDaysClusteringPlanStrategy"}, DAYS[2:]),
        ({"class": "JavaRecentDaysClusteringPlanStrategy", "daybased.lookback.partitions": 1}, DAYS[3:]),
        (
            {"class": f"{PLANS}SparkSelectedPartitionsClusteringPlanStrategy", "cluster.end.partition": "d=02"},
            DAYS[:2],
        ),
        (
            {
                "partition.filter.mode": "SELECTED_PARTITIONS",
                "cluster.begin.partition": "d=02",
                "cluster.end.partition": "d=03",
            },
            DAYS[1:3],
        ),
    ],
)
def test_partitions_are_chosen_by_option(options: dict[str, object], chosen: tuple[str, ...]) -> None:
    prefix = {True: "hoodie.clustering.plan.", False: STRATEGY}
    given_options = {prefix[name == "partition.filter.mode"] + name: value for name, value in options.items()}
    assert PartitionChoice.of_options(resolve(given_options)).choose(DAYS) == list(chosen)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({PLAN_CLASS: f"{PLANS}SparkStreamCopyClusteringPlanStrategy"}, "that plan strategy is not built"),
        (
            {
                PLAN_CLASS: "SparkConsistentBucketClusteringPlanStrategy",
                EXECUTION_CLASS: "SparkSortAndSizeExecutionStrategy",
            },
            f"{EXECUTION_CLASS} must be SparkConsistentBucket",
        ),
        ({PLAN_CLASS: "org.example.SparkSizeBasedClusteringPlanStrategy"}, "write one of SparkSizeBased"),
        ({PLAN_CLASS: "SparkStreamCopyClusteringPlanStrategy"}, "leave it out"),
        ({EXECUTION_CLASS: "SparkBinaryCopyClusteringExecutionStrategy"}, "that execution strategy is not built"),
        ({EXECUTION_CLASS: "SparkSingleFileSortExecutionStrategy"}, f"{PLAN_CLASS} must be SparkSingleFileSort"),
        (
            {PLAN_CLASS: "SparkRecentDaysClusteringPlanStrategy", FILTER_MODE: "NONE"},
            "which means RECENT_DAYS, and .*=NONE contradict",
        ),
    ],
)
def test_classes_whose_rule_is_not_built_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        make_cluster_request(resolve(options))


def test_files_are_sorted_one_by_one_under_the_class_for_that() -> None:
    options = {
        PLAN_CLASS: f"{PLANS}SparkSingleFileSortPlanStrategy",
        EXECUTION_CLASS: "org.apache.hudi.client.clustering.run.strategy.SparkSingleFileSortExecutionStrategy",
        STRATEGY + "sort.columns": "v",
        STRATEGY + "small.file.limit": 35,
    }
    request = make_cluster_request(resolve(options))
    found = plan_clustering(table({"d=01": [10, 20, 30, 40]}), frozenset(), request.choice, request.limits, {}, "/t")
    assert found is not None
    assert [len(group.slices) for group in found.groups] == [1, 1, 1]
    assert [group.output_file_groups for group in found.groups] == [1, 1, 1]


def test_partitions_are_chosen_by_name() -> None:
    assert PartitionChoice(named=("d=0*",)).choose(DAYS) == list(DAYS)
    assert PartitionChoice(named=("d=03", "d=01")).choose(DAYS) == ["d=01", "d=03"]
    with pytest.raises(InvalidInputError, match="no partition 'd=09'"):
        PartitionChoice(named=("d=09",)).choose(DAYS)


def test_limits_are_read_from_options() -> None:
    defaults = ClusterLimits.of_options(resolve({}), everything=False, sorts=True)
    assert defaults == ClusterLimits(1 << 30, 2 << 30, 30, 300 << 20, includes_single_files=True)
    assert ClusterLimits.of_options(resolve({}), everything=False, sorts=False).includes_single_files is False
    never = resolve({STRATEGY + "single.group.clustering.enabled": False})
    assert ClusterLimits.of_options(never, everything=False, sorts=True).includes_single_files is False
    everything = ClusterLimits.of_options(resolve({STRATEGY + "max.num.groups": 3}), everything=True, sorts=True)
    assert everything == ClusterLimits(1 << 30, 2 << 30, 3, None, includes_single_files=True, reclusters=True)


@pytest.mark.parametrize(
    ("sizes", "single", "groups"),
    [
        ([60, 40], True, [[60, 40]]),  # As large as a group may be,
        ([60, 41], True, [[60], [41]]),  # and larger.
        ([60, 50, 40, 10, 1], True, [[60], [50, 40, 10], [1]]),
        ([60, 60, 40], False, [[60, 40]]),
        ([60, 60, 41], False, []),
        ([5, 5], False, [[5, 5]]),
        ([150, 5], True, [[150], [5]]),
    ],
)
def test_groups_are_filled_from_the_largest_file_on(sizes: list[int], single: bool, groups: list[list[int]]) -> None:
    found = plan({"a": sizes}, limits(single=single))
    size_of = {each.group: each.size_bytes for each in table({"a": sizes})["a"]}
    assert [[size_of[one.group] for one in group.slices] for group in (found.groups if found else ())] == groups


def test_metrics_of_a_group_are_hudis() -> None:
    """Sizes in MB are fractions. What is written is as large as the base files."""
    megabyte = 1 << 20
    slices = {"a": (piece("a", 0, 3 * megabyte, logs=[megabyte, megabyte // 2]), piece("a", 1, 0, logs=[megabyte]))}
    wide = limits(target=2 * megabyte, group=99 * megabyte, small=1 << 30)
    found = plan_clustering(slices, frozenset(), PartitionChoice(), wide, {}, "/t")
    assert found is not None
    assert found.groups[0].metrics == {
        "TOTAL_IO_READ_MB": 5.5,
        "TOTAL_IO_WRITE_MB": 3.0,
        "TOTAL_IO_MB": 8.5,
        "TOTAL_LOG_FILES": 3.0,
        "TOTAL_LOG_FILES_SIZE": 2.5 * megabyte,
    }
    assert found.groups[0].output_file_groups == 3


def test_slice_without_base_file_is_small_under_every_limit() -> None:
    slices = {"a": (piece("a", 0, 1), piece("a", 1, 0, logs=[20]))}
    found = plan_clustering(slices, frozenset(), PartitionChoice(), limits(small=1), {}, "/t")
    assert found is not None
    assert [one.group for one in found.groups[0].slices] == [slices["a"][1].group]


def test_named_partitions_that_are_missing_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert PartitionChoice(named=("d=01", "x", "y*")).choose(DAYS) == ["d=01"]
    assert PartitionChoice(named=("d=0*",)).choose(DAYS) == list(DAYS)
    assert caplog.messages == ["no partition matches x, y*"]
