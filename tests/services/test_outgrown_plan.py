"""The slices that automatic compaction takes, and the commits and plans beside which it may run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeformat.config.compaction_options import OUTGROWN, AutoCompaction
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileSlice
from lakeformat.model.service_plans import CompactionPlan
from lakeformat.services.compact.plan import are_all_marked, may_run, may_show_outgrown, plan_compaction
from tests.helpers.short_timelines import instant
from tests.services.test_compaction_plan import MB, a_slice, chosen, limits


def taken(slices: list[FileSlice], *, log_files: int = 6, target_io_mb: int = 10_000) -> list[str]:
    outgrown = replace(
        limits("UnBoundedCompactionStrategy"),
        strategy=OUTGROWN,
        least_log_files=log_files,
        target_io_mb=target_io_mb,
        file_bytes=100 * MB,
    )
    return chosen(slices, outgrown)


def many(number: int, *, base: int = 10 * MB) -> FileSlice:
    return a_slice(f"{number} logs", base=base, logs=(MB,) * number)


@pytest.mark.parametrize(
    ("slices", "names"),
    [
        ([many(5), many(4)], []),  # None has the number.
        ([many(6)], ["6 logs"]),
        ([many(6), many(2), many(7)], ["7 logs", "6 logs"]),
        ([many(3), many(6), many(4), many(2)], ["6 logs", "4 logs", "3 logs"]),  # Those with half of it come along.
        ([a_slice("large", base=MB, logs=(64 * MB,)), many(2), many(3)], ["3 logs", "large"]),
        ([a_slice("nearly", base=MB, logs=(64 * MB - 1,))], []),
        ([a_slice("small for its base", base=65 * MB, logs=(64 * MB,))], []),
        ([a_slice("as its base", base=65 * MB, logs=(65 * MB,))], ["as its base"]),
        ([a_slice("no base", logs=(64 * MB,))], ["no base"]),
        ([many(6), a_slice("no base", logs=(64 * MB,))], ["6 logs", "no base"]),
        ([a_slice("small", base=MB, logs=(1,) * 6), a_slice("big", base=MB, logs=(2,) * 6)], ["big", "small"]),
    ],
)
def test_slices_with_many_or_large_log_files_are_taken(slices: list[FileSlice], names: list[str]) -> None:
    assert taken(slices) == names


def test_half_of_an_odd_number_is_rounded_up() -> None:
    assert taken([many(5), many(3), many(2)], log_files=5) == ["5 logs", "3 logs"]


def test_plan_of_outgrown_slices_is_automatic_and_ends_at_its_target() -> None:
    slices = [many(8), many(7), many(6)]  # 28, 27 and 26 MB are read and written.
    assert taken(slices, target_io_mb=28) == ["8 logs"]
    assert taken(slices, target_io_mb=29) == ["8 logs", "7 logs"]
    plain = limits("UnBoundedCompactionStrategy")
    plans = [plan_compaction(slices, (), each) for each in (plain, replace(plain, strategy=OUTGROWN))]
    assert [plan and plan.is_auto for plan in plans] == [False, True]


def test_slice_without_base_file_counts_a_whole_new_file() -> None:
    plan = plan_compaction(
        [a_slice("f", logs=(MB, MB))], (), replace(limits("UnBoundedCompactionStrategy"), file_bytes=9 * MB)
    )
    assert plan is not None
    (operation,) = plan.operations
    assert operation.base_name == ""
    metrics = operation.metrics
    assert [metrics[f"TOTAL_IO{name}_MB"] for name in ("_READ", "_WRITE", "")] == [2.0, 9.0, 11.0]


@pytest.mark.parametrize(
    ("log_files", "size_bytes", "may"),
    [(3, 1, True), (2, 1, False), (1, 4 * MB, True), (1, 4 * MB - 1, False), (0, 400 * MB, False), (0, 1, False)],
)
def test_commit_of_many_or_large_log_files_may_show_an_outgrown_slice(
    log_files: int, size_bytes: int, may: bool
) -> None:
    names = tuple(f".f_1.log.{number}_0-0-0" for number in range(log_files))
    stat = WriteStat("f", "p/f", "p", None, 1, size_bytes=size_bytes, log_names=names)
    plain = WriteStat("g", "p/g", "p", None, 1, size_bytes=1)
    assert may_show_outgrown(CommitMetadata("UPSERT", {"p": (plain, stat)}), AutoCompaction(True, 3, 1)) is may
    assert not may_show_outgrown(CommitMetadata("UPSERT", {}), AutoCompaction(True, 3, 1))


AUTO, MANUAL = CompactionPlan((), True), CompactionPlan((), False)


@pytest.mark.parametrize(
    ("pending", "may"),
    [
        ({}, True),
        ({"k1?": AUTO}, True),
        ({"k1?": AUTO, "k2?": AUTO}, True),
        ({"k1!": AUTO}, False),  # It runs already.
        ({"k1?": MANUAL}, False),
        ({"k1?": None}, False),
        ({"l1?": AUTO}, False),
        ({"k1?": AUTO, "d2?": None}, False),
    ],
)
def test_automatic_compaction_runs_beside_waiting_automatic_plans_only(
    pending: dict[str, CompactionPlan | None], may: bool
) -> None:
    assert may_run([(instant(word), plan) for word, plan in pending.items()]) is may


def test_all_commits_must_be_marked_as_ours() -> None:
    ours, theirs = CommitMetadata("UPSERT", {}, extra={"mark": ""}), CommitMetadata("UPSERT", {}, extra={"other": ""})
    assert [are_all_marked(commits, "mark") for commits in ([], [ours, ours], [ours, theirs], [theirs])] == [
        True, True, False, False,
    ]  # fmt: skip
