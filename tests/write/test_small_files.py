"""The rule by which small files take inserts: its examples, and what it leaves and costs over the life of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakeformat.config.resolve import resolve
from lakeformat.write.workload.buckets import AppendRules, FileSizing, file_sizing, files_to_fill, spread_inserts
from lakeformat.write.workload.small_files import SmallFile, choose_files_to_fill
from tests.write.test_bucket_plan import T1, T2, a_slice, groups

MIB = 1 << 20
MOST, SMALL = 120 * MIB, 100 * MIB


def small_files(sizes: Sequence[int]) -> list[SmallFile]:
    return [SmallFile(at, f"f{at}", size) for at, size in enumerate(sizes) if size < SMALL]


@pytest.mark.parametrize(
    ("sizes", "added", "rewritten", "chosen"),
    [
        ([], 1, [], []),
        # What is cheap to rewrite is rewritten.
        ([MIB], 0, [], [0]),
        ([MIB + 1], 0, [], []),
        ([5 * MIB], 5 * MIB, [], [0]),
        ([5 * MIB, 5 * MIB + 1, MIB], 5 * MIB, [], [0, 2]),
        # A file that updates rewrite costs nothing more.
        ([50 * MIB, 60 * MIB], 0, [1], [1]),
        # One more file than the bytes fill may be there, and then the smallest takes the rows.
        ([50 * MIB], 0, [], []),
        ([50 * MIB, 2 * MIB], 0, [], [1]),
        ([2 * MIB, 2 * MIB], 0, [], [0]),
        # Larger partitions have more of them.
        ([120 * MIB, 119 * MIB, 2 * MIB, 3 * MIB], 0, [], []),
        ([120 * MIB, 119 * MIB, *[2 * MIB] * 4], 0, [], [2]),
        ([120 * MIB] * 10, 0, [], []),
        ([101 * MIB] * 9, 0, [], []),
    ],
)
def test_files_are_filled_if_it_pays(sizes: list[int], added: float, rewritten: list[int], chosen: list[int]) -> None:
    found = choose_files_to_fill(sizes, small_files(sizes), added, MOST, rewritten)
    assert [file.at for file in found] == chosen


def live(sizes: list[int], added: int, times: int, *, fills_all: bool) -> tuple[list[int], int]:
    """Return the numbers of a partition's files after each append, and the stored bytes that were written again."""
    sizes, counts, copied = [*sizes], [], 0
    sizing = FileSizing(1.0, MOST, SMALL, fills_all=fills_all)
    for _ in range(times):
        small: Sequence[SmallFile] = small_files(sizes)
        if not fills_all:
            small = choose_files_to_fill(sizes, small, added, MOST)
        for share in spread_inserts(added, small, sizing):
            if share.small is None:
                sizes.append(share.rows)
            else:
                copied += share.small.size_bytes
                sizes[share.small.at] += share.rows
        counts.append(len(sizes))
    return counts, copied


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.5])
@pytest.mark.parametrize("loaded", [[MIB // 2], [15 * MIB], [60 * MIB], [MOST], [MOST, 30 * MIB], [MOST] * 10])
def test_a_life_of_appends_leaves_at_most_twice_the_files_and_copies_less(loaded: list[int], share: float) -> None:
    added = int(sum(loaded) * share)
    counts, copied = live(loaded, added, 100, fills_all=False)
    hudi, hudi_copied = live(loaded, added, 100, fills_all=True)
    assert all(one <= 2 * other for one, other in zip(counts, hudi, strict=True))
    assert copied <= hudi_copied


def test_twenty_appends_of_one_percent_copy_a_tenth() -> None:
    copied, hudi = (live([15 * MIB], 15 * MIB // 100, 20, fills_all=each)[1] for each in (False, True))
    assert copied < hudi / 10


@pytest.mark.parametrize(
    ("options", "fills_all", "limit", "most"),
    [
        ({}, False, SMALL, 1),
        ({"hoodie.parquet.small.file.limit": 7}, True, 7, 1),
        ({"hoodie.parquet.small.file.limit": SMALL}, True, SMALL, 1),
        ({"hoodie.merge.small.file.group.candidates.limit": 3}, True, SMALL, 3),
    ],
)
def test_options_of_hudi_switch_to_its_rule(options: dict[str, Any], fills_all: bool, limit: int, most: int) -> None:
    sizing = file_sizing(resolve(options), 1.0)
    assert (sizing.fills_all, sizing.small_file_bytes, sizing.most_filled) == (fills_all, limit, most)


OWN = FileSizing(1.0, MOST, SMALL, fills_all=False)
HUDI = replace(OWN, fills_all=True)
APPENDS = AppendRules(takes_logs=True)


@pytest.mark.parametrize(
    ("sizing", "rules", "updated", "filled"),
    [
        (HUDI, AppendRules(), [], "abc"),
        (OWN, AppendRules(), [], "c"),
        (OWN, AppendRules(), [0], "ac"),
        # With log files, the smallest slice without any; its updates are appended, so they do not rewrite it.
        (HUDI, APPENDS, [], "b"),
        (OWN, APPENDS, [], "b"),
        (OWN, APPENDS, [0], "b"),
        (replace(HUDI, most_filled=2), APPENDS, [], "ba"),
        (HUDI, replace(APPENDS, compaction_instants=dict.fromkeys(groups("b"), T2)), [], "a"),
    ],
)
def test_slices_that_are_filled(sizing: FileSizing, rules: AppendRules, updated: list[int], filled: str) -> None:
    slices = [a_slice("a", 50 * MIB), a_slice("b", 9 * MIB), a_slice("c", 10, [(T1, 1)]), a_slice("d", SMALL)]
    found = files_to_fill(slices, 1, sizing, frozenset(), rules, updated)
    assert "".join(file.file_id for file in found) == filled
    assert not files_to_fill(slices, 1, sizing, groups("a", "b", "c"), rules, updated)
