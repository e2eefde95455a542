"""Which filters are tested and which key columns are read: the choices of a look-up, seen in its counts.

The costs are those that `lakeformat.index.tagging` states: in rows of a key column, 0.4 for hashing a key, 0.4 for
testing it in a filter, and one for 64 bytes of a filter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.files.footers import read_key_footer
from lakeformat.index.port import Tagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.index.tagging import test_for_any as make_test_for_any
from lakeformat.model.files import BaseFile
from lakeformat.storage import MemoryStorage
from tests.helpers.base_files import FOOTERS, POOL, Inline, rewrite, write_file

ALL = TagSettings("AUTO", use_ranges=False)


def stored(file: int, count: int) -> list[str]:
    """Return keys that are in one file."""
    return [f"file-{file}-{number:06}" for number in range(count)]


def absent(count: int) -> list[str]:
    """Return keys that are in no file, and in the middle of the keys of file 0."""
    return [f"file-0-000000-{number:06}" for number in range(count)]


def tag(
    storage: MemoryStorage, files: Sequence[BaseFile], keys: Sequence[str], settings: TagSettings, pool: Any = POOL
) -> Tagged:
    return tag_files(storage, files, pa.chunked_array([pa.array(keys, pa.string())]), settings, pool)


def is_filtered(storage: MemoryStorage, files: Sequence[BaseFile], keys: Sequence[str], settings: TagSettings) -> bool:
    counts = tag(storage, files, keys, settings).counts
    return counts.after_filters < counts.after_ranges / 2


# --- which filters are tested -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "cost"), [(1, 0.4 + 0.4), (2, 0.4 + 0.2), (4, 0.4 + 0.1)])
@pytest.mark.parametrize("rate", [0.01, 1e-12])
def test_filters_are_tested_while_that_costs_less_than_reading_keys(files: int, cost: float, rate: float) -> None:
    """Each file tests every key, and all files together hash it once."""
    storage = MemoryStorage()
    written = [write_file(storage, at, stored(at, 1_000), rate) for at in range(files)]
    rows = 1_000 - read_key_footer(storage, written[0]).filter_bytes / 64
    most = math.ceil(rows / cost) - 1
    assert is_filtered(storage, written, absent(most), ALL)
    assert not is_filtered(storage, written, absent(most + 2), ALL)


def test_only_keys_in_the_range_of_a_file_count() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 300))
    keys = [*absent(100), *(f"z{number}" for number in range(5_000))]
    assert is_filtered(storage, [file], keys, TagSettings("AUTO"))
    assert not is_filtered(storage, [file], absent(500), TagSettings("AUTO"))


def test_a_file_whose_filter_costs_more_than_it_saves_is_read() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, stored(0, 2_000), 1e-9), write_file(storage, 1, stored(1, 10), 1e-9)]
    counts = tag(storage, files, absent(500), ALL).counts
    assert (counts.after_ranges, counts.after_filters, counts.checked) == (1_000, 500, 500)


def test_a_file_without_a_filter_pays_for_no_hashes() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, stored(0, 5_000)), write_file(storage, 1, stored(1, 400))]
    rewrite(storage, files[0], FOOTERS["no filter"])
    # The filter of 400 rows saves less than the hashes of 600 keys cost.
    counts = tag(storage, files, absent(600), ALL).counts
    assert counts.after_filters == counts.after_ranges == 1_200


@pytest.mark.parametrize(("kind", "left"), [("BLOOM", 0), ("SIMPLE", 5_000), ("AUTO", 5_000)])
def test_the_kind_of_the_index_decides_before_the_costs(kind: str, left: int) -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 500), 1e-12)
    counts = tag(storage, [file], absent(5_000), TagSettings(kind)).counts
    assert (counts.after_ranges, counts.after_filters, counts.files_read) == (5_000, left, int(left > 0))


@pytest.mark.parametrize("rates", [(0.5, 1e-9), (1e-9, 0.5)])
@pytest.mark.parametrize("block", [1 << 20, 70])
def test_each_filter_tests_with_its_own_number_of_hashes(rates: tuple[float, float], block: int) -> None:
    storage = MemoryStorage()
    files = [write_file(storage, at, stored(at, 200), rate) for at, rate in enumerate(rates)]
    settings = TagSettings("BLOOM", use_ranges=False, block_keys=block)
    alone = [tag(storage, [file], absent(200), settings).counts.after_filters for file in files]
    assert min(alone) < 3 < max(alone)
    assert tag(storage, files, absent(200), settings).counts.after_filters == sum(alone)


@pytest.mark.parametrize("tree", [True, False])
def test_a_filter_that_lets_more_keys_through_than_its_file_has_rows_is_left(tree: bool) -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 20), 0.9999)
    keys = [*stored(0, 10), *absent(90)]
    tagged = tag(storage, [file], keys, TagSettings("BLOOM", use_tree=tree, block_keys=30))
    # The first 30 keys pass, which is more than 20 rows; the others are not tested.
    counts = tagged.counts
    assert (counts.after_ranges, counts.after_filters, counts.checked) == (100, 100, 100)
    assert (counts.false_positives, counts.files_read) == (90, 1)
    assert sorted(tagged.keys.tolist()) == list(range(10))
    few = tag(storage, [file], keys[:20], TagSettings("BLOOM", use_tree=tree, exact=True)).counts
    assert (few.after_filters, few.false_positives) == (20, 10)


# --- which key columns are read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.05, 0.1, 0.3])
def test_candidates_that_may_all_be_mistakes_are_checked(rate: float) -> None:
    """They may be if they are no more than the usual number of mistakes, four deviations and two."""
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 300), rate)
    bloom = read_key_footer(storage, file).bloom(storage)
    assert bloom is not None
    for count in range(1, 25):
        usual = bloom.expected_rate(300) * count
        doubted = count <= usual + 4 * math.sqrt(usual) + 2 and usual >= 1 / 8
        counts = tag(storage, [file], stored(0, count), TagSettings("BLOOM")).counts
        assert (count, counts.files_read, counts.checked) == (count, int(doubted), count * doubted)


@pytest.mark.parametrize(
    ("hits", "keys", "read"), [(2, 17, 1), (2, 16, 0), (1, 9, 1), (1, 8, 0), (3, 100, 0), (2, 100, 1)]
)
def test_few_candidates_among_many_new_keys_are_checked(hits: int, keys: int, read: int) -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 300), 1e-9)
    counts = tag(storage, [file], [*stored(0, hits), *absent(keys - hits)], TagSettings("BLOOM")).counts
    assert (counts.after_filters, counts.files_read, counts.false_positives) == (hits, read, 0)


@pytest.mark.parametrize(("ranges", "read"), [(True, 1), (False, 2)])
def test_a_key_that_may_be_in_two_files_is_looked_up_in_both(ranges: bool, read: int) -> None:
    storage = MemoryStorage()
    files = [write_file(storage, at, stored(at, 50), 1e-9) for at in range(2)]
    rewrite(storage, files[1], FOOTERS["no filter"])
    keys = [*stored(0, 30), *stored(1, 30)]
    tagged = tag(storage, files, keys, TagSettings("BLOOM", use_ranges=ranges))
    assert tagged.counts.files_read == read
    assert sorted(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True)) == [(at, at // 30) for at in range(60)]


@pytest.mark.parametrize(("exact", "read"), [(True, 1), (False, 0)])
def test_an_exact_look_up_reads_each_file_with_candidates(exact: bool, read: int) -> None:
    storage = MemoryStorage()
    files = [write_file(storage, at, stored(at, 50), 1e-9) for at in range(2)]
    tagged = tag(storage, files, stored(0, 30), TagSettings("BLOOM", use_ranges=False, exact=exact))
    assert (tagged.counts.files_read, tagged.counts.checked) == (read, 30 * read)
    assert tagged.base_rows is not None
    assert tagged.base_rows.tolist() == (list(range(30)) if exact else [-1] * 30)


def test_an_exact_look_up_reads_no_file_whose_filter_rules_all_keys_out() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 50), 1e-9)
    counts = tag(storage, [file], absent(30), TagSettings("BLOOM", exact=True)).counts
    assert (counts.after_ranges, counts.after_filters, counts.files_read) == (30, 0, 0)


@pytest.mark.parametrize("kind", ["AUTO", "BLOOM", "SIMPLE"])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_without_rows_counts_no_candidates(kind: str, ranges: bool) -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, []), write_file(storage, 1, stored(1, 5))]
    counts = tag(storage, files, stored(1, 5), TagSettings(kind, use_ranges=ranges)).counts
    assert (counts.files, counts.after_ranges) == (2, 5)


def test_a_file_of_which_no_row_group_is_read_is_not_counted() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, stored(0, 20))
    counts = tag(storage, [file], ["z1", "z2"], TagSettings("SIMPLE", use_ranges=False)).counts
    assert (counts.checked, counts.files_read, counts.bytes_read) == (2, 0, 0)


class Batches(Inline):
    """An executor that notes how many items each call of `map` gets."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        items = [*zip(*iterables, strict=True)]
        self.sizes.append(len(items))
        return iter([fn(*each) for each in items])


@pytest.mark.parametrize(
    ("rows", "block", "keys", "sizes"),
    [
        ([10, 10, 10], 20, 5, [2, 1]),
        ([10, 10, 10], 19, 5, [1, 1, 1]),
        ([10, 11, 9, 50, 1], 20, 5, [1, 2, 1, 1]),
        ([50, 1], 20, 5, [1, 1]),
        ([10, 10, 10], 1, 15, [3]),
        ([10, 10, 10], 1, 14, [2, 1]),
        ([10, 10, 10], 1, 10, [2, 1]),
    ],
)
def test_key_columns_are_read_in_batches_of_rows(rows: list[int], block: int, keys: int, sizes: list[int]) -> None:
    storage, pool = MemoryStorage(), Batches()
    files = [write_file(storage, at, stored(at, count)) for at, count in enumerate(rows)]
    settings = TagSettings("SIMPLE", use_ranges=False, block_rows=block)
    tagged = tag(storage, files, absent(keys), settings, pool)
    assert pool.sizes == [len(rows), *sizes], "all footers, and then the key columns"
    assert len(tagged.new) == keys


@pytest.mark.parametrize(
    ("files", "keys", "tree", "sorts"),
    [(16, 40, True, False), (17, 40, True, True), (16, 39, True, True), (17, 40, False, False), (1, 41, True, False)],
)
def test_many_keys_over_few_files_are_not_sorted(files: int, keys: int, tree: bool, sorts: bool) -> None:
    """Sorted keys show that no key lies between the first and the last, so that the row groups between are not read."""
    storage = MemoryStorage()
    written = [write_file(storage, 0, stored(0, 300), row_group_rows=100)]
    written += [write_file(storage, at, stored(at, 1)) for at in range(1, files)]
    own = stored(0, 300)
    settings = TagSettings("SIMPLE", use_tree=tree, many_keys=40)
    found = {}
    for name, middle in (("gap", own[-1:]), ("middle", own[150:151])):
        chosen = [own[0], *own[-keys // 2 :], *own[1 : keys // 2]][: keys - 1]
        found[name] = tag(storage, written, [*chosen, *middle] if name == "middle" else [*chosen, own[60]], settings)
    assert (found["gap"].counts.bytes_read < found["middle"].counts.bytes_read) == sorts
    assert {len(each.keys) for each in found.values()} == {keys}


@pytest.mark.parametrize(
    ("keys", "low", "high", "holds"),
    [
        ("bd", "a", "a", False),
        ("bd", "a", "b", True),
        ("bd", "b", "b", True),
        ("bd", "c", "c", False),
        ("db", "c", "d", True),
        ("bd", "d", "e", True),
        ("bd", "e", "z", False),
        ("", "a", "z", False),
    ],
)
def test_bounds_hold_a_key_if_it_is_not_outside(keys: str, low: str, high: str, holds: bool) -> None:
    test = make_test_for_any(pa.chunked_array([pa.array([*keys], pa.string())]))
    assert test(low.encode(), high.encode()) == holds


@pytest.mark.parametrize("settings", [TagSettings("SIMPLE"), TagSettings("SIMPLE", use_tree=False)])
def test_new_keys_come_in_their_order_and_stored_ones_keep_their_positions(settings: TagSettings) -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, ["b", "d"]), write_file(storage, 1, ["f"])]
    tagged = tag(storage, files, [*"gfedcba"], settings)
    assert dict(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True)) == {5: 0, 3: 0, 1: 1}
    assert tagged.new.tolist() == [6, 4, 2, 0]
    assert isinstance(tagged.base_rows, np.ndarray)
    assert dict(zip(tagged.keys.tolist(), tagged.base_rows.tolist(), strict=True)) == {5: 0, 3: 1, 1: 0}
