"""The slices that a plan takes, and the time when a plan is due: each of Hudi's strategies by example."""

from __future__ import annotations

from datetime import date, timezone
from typing import Any

import pytest

from lakeformat.config.resolve import resolve
from lakeformat.errors import CorruptTableError, InvalidOptionError
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.service_plans import CompactionOperation
from lakeformat.services.after_write import Trigger, is_due
from lakeformat.services.compact.plan import CompactLimits, plan_compaction
from lakeformat.services.compact.rewrite import count_parallel
from lakeformat.services.compact.run import find_slice_to_merge
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout

T0 = "20251120080000000"
MB = 1 << 20
#: 2025-11-20 09:00:00 UTC.
NOW = 1763629200000


def a_slice(file_id: str, partition: str = "", *, base: int = 0, logs: tuple[int, ...] = ()) -> FileSlice:
    """Return a slice with a base file of ``base`` bytes and log files of ``logs`` bytes."""
    file = BaseFile(partition, BaseFileName(file_id, "0-0-0", T0), base) if base else None
    names = (LogFileName(file_id, T0, at + 1, "0-0-0") for at in range(len(logs)))
    written = tuple(LogFile(partition, name, size) for name, size in zip(names, logs, strict=True))
    return FileSlice(FileGroupId(partition, file_id), T0, file, written)


def limits(strategy: str, **options: Any) -> CompactLimits:
    """Return the limits of these options on 2025-11-20."""
    given = {"hoodie.compaction." + name.replace("_", "."): value for name, value in options.items()}
    said = resolve({"hoodie.compaction.strategy": strategy, **given})
    return CompactLimits.of_options(said, date(2025, 11, 20))


def chosen(slices: list[FileSlice], made: CompactLimits, closed: frozenset[FileGroupId] = frozenset()) -> list[str]:
    plan = plan_compaction(slices, closed, made)
    return [operation.file_id for operation in plan.operations] if plan else []


SLICES = [
    a_slice("plain", base=9 * MB),
    a_slice("small", base=10 * MB, logs=(MB,)),
    a_slice("many", base=10 * MB, logs=(MB // 2,) * 3),
    a_slice("large", base=10 * MB, logs=(40 * MB,)),
]


@pytest.mark.parametrize(
    ("strategy", "options", "wanted"),
    [
        ("LogFileSizeBasedCompactionStrategy", {}, ["large", "many", "small"]),
        ("LogFileSizeBasedCompactionStrategy", {"logfile_size_threshold": 3 * MB // 2}, ["large", "many"]),
        ("LogFileSizeBasedCompactionStrategy", {"target_io": 60}, ["large"]),
        ("LogFileSizeBasedCompactionStrategy", {"target_io": 61}, ["large", "many"]),
        ("LogFileNumBasedCompactionStrategy", {}, ["many", "small", "large"]),
        ("LogFileNumBasedCompactionStrategy", {"logfile_num_threshold": 2}, ["many"]),
        ("LogFileNumBasedCompactionStrategy", {"logfile_num_threshold": 3}, ["many"]),
        ("BoundedIOCompactionStrategy", {"target_io": 22}, ["small", "many"]),
        ("UnBoundedCompactionStrategy", {"target_io": 1}, ["small", "many", "large"]),
        ("org.apache.hudi.table.action.compact.strategy.BoundedIOCompactionStrategy", {"target_io": 0}, ["small"]),
    ],
)
def test_size_strategies_choose_hudis_slices(strategy: str, options: dict[str, Any], wanted: list[str]) -> None:
    assert chosen(SLICES, limits(strategy, **options)) == wanted


DAYS = [
    a_slice(day, partition, base=MB, logs=(1,))
    for day, partition in (
        ("20", "2025/11/20"),
        ("18", "year=2025/month=11/day=18"),
        ("none", "eu"),
        ("09", "2025-11-09/eu"),
        ("19", "2025/11/19/eu"),
    )
]


@pytest.mark.parametrize(
    ("strategy", "options", "wanted"),
    [
        ("DayBasedCompactionStrategy", {"daybased_target_partitions": 2}, ["20", "19"]),
        ("BoundedPartitionAwareCompactionStrategy", {}, ["20", "19", "18"]),
        ("BoundedPartitionAwareCompactionStrategy", {"daybased_target_partitions": 1}, ["20", "19"]),
        ("UnBoundedPartitionAwareCompactionStrategy", {}, ["09", "none"]),
        ("UnBoundedPartitionAwareCompactionStrategy", {"daybased_target_partitions": 1}, ["18", "09", "none"]),
        ("PartitionRegexBasedCompactionStrategy", {}, ["20", "18", "none", "09", "19"]),
        ("PartitionRegexBasedCompactionStrategy", {"partition_path_regex": "2025/11/.*"}, ["20", "19"]),
    ],
)
def test_partition_strategies_choose_hudis_slices(strategy: str, options: dict[str, Any], wanted: list[str]) -> None:
    assert chosen(DAYS, limits(strategy, **options)) == wanted


def test_groups_of_other_plans_are_left_alone() -> None:
    assert chosen(SLICES, limits("UnBoundedCompactionStrategy"), frozenset({FileGroupId("", "many")})) == [
        "small",
        "large",
    ]
    assert plan_compaction(SLICES[:1], frozenset(), limits("UnBoundedCompactionStrategy")) is None


def test_unsupported_strategy_is_refused_by_name() -> None:
    with pytest.raises(InvalidOptionError, match=r"com\.example\.Mine.*that class cannot run here"):
        resolve({"hoodie.compaction.strategy": "com.example.Mine"})


def test_plan_metrics_are_whole_megabytes_like_hudis() -> None:
    plan = plan_compaction(
        [a_slice("f", base=3 * MB - 1, logs=(MB, 5))], frozenset(), limits("UnBoundedCompactionStrategy")
    )
    assert plan is not None
    assert plan.operations[0].metrics == {
        "TOTAL_LOG_FILES": 2.0,
        "TOTAL_IO_READ_MB": 4.0,
        "TOTAL_IO_WRITE_MB": 2.0,
        "TOTAL_IO_MB": 6.0,
        "TOTAL_LOG_FILES_SIZE": float(MB + 5),
    }


def a_timeline(*names: str, layout: TimelineLayout = LAYOUT_1) -> Timeline:
    return Timeline.of_file_names(names, layout=layout)


DELTAS = [f"202511200800000{at}0.deltacommit" for at in range(5)]
COMPACTED = [*DELTAS[:2], "20251120080000015.commit", "20251120080000015.compaction.requested", *DELTAS[2:]]


@pytest.mark.parametrize(
    ("strategy", "commits", "seconds", "names", "wanted"),
    [
        ("NUM_COMMITS", 5, 1, DELTAS, True),
        ("NUM_COMMITS", 6, 1, DELTAS, False),
        ("NUM_COMMITS", 3, 1, COMPACTED, True),
        ("NUM_COMMITS", 4, 1, COMPACTED, False),
        ("NUM_COMMITS", 5, 1, [*DELTAS, "20251120080000035.compaction.requested"], True),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", 2, 1, [*DELTAS, "20251120080000035.compaction.requested"], False),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", 1, 1, [*DELTAS, "20251120080000035.compaction.requested"], True),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", 5, 1, DELTAS, True),
        ("TIME_ELAPSED", 1, 3600, DELTAS, True),
        ("TIME_ELAPSED", 1, 3601, DELTAS, False),
        ("TIME_ELAPSED", 1, 1, [], False),
        ("NUM_AND_TIME", 5, 3600, DELTAS, True),
        ("NUM_AND_TIME", 5, 3601, DELTAS, False),
        ("NUM_OR_TIME", 5, 3601, DELTAS, True),
        ("NUM_OR_TIME", 6, 3601, DELTAS, False),
    ],
)
def test_compaction_is_due_by_the_trigger_strategy(
    strategy: str, commits: int, seconds: int, names: list[str], wanted: bool
) -> None:
    assert is_due(Trigger(strategy, commits, seconds), a_timeline(*names), NOW, timezone.utc) is wanted


def test_in_layout_2_commits_are_counted_by_completion() -> None:
    """A deltacommit that began before the compaction was planned and completed after it is in no base file."""
    names = [
        "20251120080000010_20251120080000030.deltacommit",
        "20251120080000020.compaction.requested",
        "20251120080000020_20251120080000040.commit",
    ]
    timeline = a_timeline(*names, layout=LAYOUT_2)
    assert is_due(Trigger("NUM_COMMITS", 1, 1), timeline, NOW, timezone.utc)


PLANNED = "20251120080100000"
LATER = "20251120080200000"
GROUP = FileGroupId("", "f")
BASE = BaseFile("", BaseFileName("f", "0-0-0", T0), MB)


def a_log(version: int, instant: str = T0) -> LogFile:
    return LogFile("", LogFileName("f", instant, version, "0-0-0"), 1)


def files_to_merge(live: FileSlice | None, *, by_name: bool = True, replaced: bool = False) -> list[str] | None:
    """Return the names of the files that a plan of one log file merges, given the live slice."""
    operation = CompactionOperation("", "f", T0, str(BASE.name), (str(a_log(1).name),))
    found = find_slice_to_merge(
        operation, {GROUP: live} if live else {}, {GROUP} if replaced else (), PLANNED, by_name=by_name
    )
    return found and [str(found.base and found.base.name), *(str(log.name) for log in found.logs)]


def test_run_merges_the_planned_files() -> None:
    planned = [str(BASE.name), str(a_log(1).name)]
    beside = (a_log(1), a_log(2), a_log(1, PLANNED))
    assert files_to_merge(FileSlice(GROUP, T0, BASE, (a_log(1),))) == planned
    assert files_to_merge(FileSlice(GROUP, T0, BASE, (a_log(1), a_log(1, PLANNED)))) == planned
    # The plan does not know this file of the old slice: in layout 1 it would be lost with the slice.
    assert files_to_merge(FileSlice(GROUP, T0, BASE, beside)) == [*planned, str(a_log(2).name)]
    assert files_to_merge(FileSlice(GROUP, T0, BASE, beside), by_name=False) == planned


def test_run_leaves_out_replaced_and_compacted_groups() -> None:
    newer = BaseFile("", BaseFileName("f", "0-0-0", LATER), MB)
    assert files_to_merge(FileSlice(GROUP, LATER, newer)) is None
    assert files_to_merge(None, replaced=True) is None


@pytest.mark.parametrize(
    ("live", "named"),
    [
        (None, BASE),
        (FileSlice(GROUP, T0, None, (a_log(1),)), BASE),
        (FileSlice(GROUP, T0, BaseFile("", BaseFileName("f", "0-0-0", "20251120080050000"), 1), (a_log(1),)), BASE),
        (FileSlice(GROUP, T0, BASE, (a_log(2),)), a_log(1)),
    ],
)
def test_run_refuses_missing_files(live: FileSlice | None, named: BaseFile | LogFile) -> None:
    with pytest.raises(CorruptTableError, match=str(named.name).replace(".", "[.]")):
        files_to_merge(live)


@pytest.mark.parametrize(
    ("log_bytes", "cores", "wanted"),
    [
        ((), 4, 1),
        ((1, 1, 1), 4, 3),
        ((1,) * 9, 4, 4),
        ((99, 10, 14), 4, 1),
        ((10, 14, 1, 0), 4, 4),
        ((10, 14, 2, 0), 4, 2),
        ((12, 13), 1, 1),
    ],
)
def test_slices_side_by_side_share_a_buffer(log_bytes: tuple[int, ...], cores: int, wanted: int) -> None:
    """Log records take four times the bytes of their files in memory."""
    assert count_parallel(log_bytes, 100, cores) == wanted
