"""Hudi's bloom index, step by step, in the order and the words of the article "tag and tagLocation".

Read tests/write/test_seed_write_flow.py first: it explains the words and the table of this page.

An upsert must know which of its records are in the table already, and in which file group. Tagging finds out, and sets
the current location of each such record. `HoodieBloomIndex` needs no store of its own: each base file has the least
and the greatest record key and a bloom filter of its keys in its footer, the end of the file. A bloom filter says of a
key "certainly not here" or "perhaps here". Each step below leaves fewer candidates:

1. **tag** gives the deduplicated records to the index of the table; **createIndex** chooses the index by its type.
2. **tagLocation** reduces the records to a map of partition path -> record keys and calls
3. **lookupIndex**, which returns key -> location for the keys that are in the table:

   a. **loadInvolvedFiles**: the latest base files of the affected partitions, with the key range of each footer;
   b. **explodeRecordsWithFileComparisons**: the (file, key) pairs in which the range of the file holds the key,
      found by an interval tree (**getMatchingFilesAndPartition**);
   c. **findMatchingFilesForRecordKeys**: file by file, the bloom filter of the footer leaves candidates (**addKey**),
      and the key column of the file decides which candidates are there (**getLookupResult**,
      **checkCandidatesAgainstFile**).

4. **tagLocationBacktoRecords** joins the locations to the records: a record with a location is an update, a record
   without one is an insert.

lakeformat does the same without making the pairs of step b one by one. It counts the pairs that each step leaves, and
the tests look at these counts:

=================  ========================================================================
count              what it counts
=================  ========================================================================
keys, files        what there is to compare: each key with each file of its partition
after_ranges       pairs in which the range of the file holds the key (step b)
after_filters      pairs of these in which the filter may hold the key (addKey)
checked            pairs that are looked up in the key column of the file
false_positives    pairs of these in which the file does not hold the key
files_read         files whose key column is read; bytes_read are the bytes of these columns
=================  ========================================================================

``step_of(result, "tag")`` are the counts of an upsert into a table, ``new_table(folder, {("x", "a"): 1})``. A test of
one step needs no table: ``Partition(["a", "c"], ["b"])`` makes two base files with these keys in memory.
"""

from __future__ import annotations

import functools
import itertools
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import CorruptTableError, InvalidOptionError, Table
from lakeformat.codec.bloom import BloomFilter, hash_chain
from lakeformat.config.option import INDEX_TYPES
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, OLD_BLOOM, read_key_footer
from lakeformat.index.bloom import PartitionIndex
from lakeformat.index.factory import INDEXES, make_index
from lakeformat.index.memory import MemoryIndex
from lakeformat.index.port import IndexSettings, TagCounts, Tagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.storage import LocalStorage, MemoryStorage
from tests.helpers import flow_table
from tests.helpers.base_files import FOOTERS, POOL, Change, rewrite, write_file
from tests.helpers.faulty import FaultyStorage
from tests.helpers.flow_table import NO_PACKING, Held, as_list, places, rows, short, step_of, stored

#: Ranges, then filters, then the key column of every candidate. Without `exact`, lakeformat leaves the last look to the
#: merge where it can: a key whose only candidate is a false positive is noticed when that file is rewritten.
BLOOM_ONLY = TagSettings("BLOOM", exact=True)
#: The rate of false positives of a filter that lets nearly every key through.
LEAKY = 0.99


def new_table(folder: Path, held: Held | None = None, **options: Any) -> Table:
    """Create a table with the bloom index. With NO_PACKING each insert makes a file group of its own."""
    return flow_table.new_table(folder, held, **{"hoodie.index.type": "BLOOM", **NO_PACKING, **options})


class Partition:
    """The base files of one partition, in memory. Each file holds the given keys and has their range and filter.

    Args:
        keys: the keys of each file.
        fpp: the rate of false positives of the filters.
    """

    def __init__(self, *keys: Sequence[str], fpp: float = 0.01) -> None:
        self.storage = MemoryStorage()
        self.files = [write_file(self.storage, number, held, fpp=fpp) for number, held in enumerate(keys)]

    def rewrite(self, number: int, change: Change, *, statistics: bool = True) -> Partition:
        """Give a file another footer."""
        rewrite(self.storage, self.files[number], change, statistics=statistics)
        return self

    def without_range(self, number: int) -> Partition:
        """Take the key range out of the footer of a file."""
        return self.rewrite(number, FOOTERS["no range"], statistics=False)

    def bloom_filter(self, number: int) -> BloomFilter | None:
        """Read the filter of a file."""
        return read_key_footer(self.storage, self.files[number]).bloom(self.storage)

    def tag(self, keys: Iterable[str], settings: TagSettings = BLOOM_ONLY) -> Tagged:
        """Tag the keys: their positions with a file each, the positions of new keys, and counts."""
        return tag_files(self.storage, self.files, pa.chunked_array([list(keys)], pa.string()), settings, POOL)

    def files_of(self, keys: Iterable[str], settings: TagSettings = BLOOM_ONLY) -> dict[str, list[int]]:
        """Tag the keys. Return key -> the numbers of the files that hold it, for the keys that are in a file."""
        wanted = list(keys)
        tagged = self.tag(wanted, settings)
        found: dict[str, list[int]] = {}
        for key, file in sorted(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True)):
            found.setdefault(wanted[key], []).append(file)
        return found

    def counts(self, keys: Iterable[str], settings: TagSettings = BLOOM_ONLY) -> TagCounts:
        """Tag the keys. Return how many pairs of key and file each step left."""
        return self.tag(keys, settings).counts


@functools.cache
def files_of_ranges(*ranges: tuple[str, str]) -> Partition:
    """Make files with these ranges. Each file holds the two bounds of its range."""
    return Partition(*(sorted({*bounds}) for bounds in ranges))


def files_in_range(ranges: Sequence[tuple[str, str]], key: str, *, tree: bool = True) -> int:
    """Return how many files have a range that holds the key."""
    return files_of_ranges(*ranges).counts([key], TagSettings("BLOOM", use_tree=tree)).after_ranges


# --- the footer of a base file ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8, 9])
def test_footer_of_a_base_file_holds_the_key_range_and_the_bloom_filter(tmp_path: Path, version: int) -> None:
    """The names of file and footer entries are the same in all table versions: G is the file group, T the instant."""
    table = new_table(tmp_path, {("x", "m"): 1, ("x", "c"): 1, ("x", "t"): 1}, version=version)
    (file,) = table.snapshot().files
    assert short(file.path, T=table.history()[0].instant_time) == "x/G_W_T.parquet"
    footer = pq.read_metadata(tmp_path / "t" / file.path).metadata
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (b"c", b"t")
    assert footer[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    assert BloomFilter.decode(footer[b"org.apache.hudi.bloomfilter"], "DYNAMIC_V0").used == 3


#: The bits of some keys in a filter of 11 bits. Three hashes of a key choose them; two hashes may choose the same bit.
BITS = {"apple": {2, 4, 6}, "fig": {6}, "kiwi": {4, 6, 8}, "plum": {5, 8}, "potato": {2, 4, 8}}


@pytest.mark.parametrize("key", BITS)
def test_bloom_filter_may_hold_a_key_if_all_bits_of_the_key_are_set(key: str) -> None:
    """Apple, fig and kiwi are added. Plum is certainly absent: bit 5 is not set. Potato is a false positive."""
    bloom = BloomFilter.with_capacity(entries=3, fpp=0.2)
    bloom.add(pa.array(["apple", "fig", "kiwi"]))
    bits = {bit for bit in range(bloom.bits) if bloom.rows[0][bit // 8] >> bit % 8 & 1}
    assert (bloom.bits, bloom.hashes, bits) == (11, 3, {2, 4, 6, 8})
    hashes = hash_chain(pa.array([key]), rounds=3)
    assert {*np.unique(hashes % 11).tolist()} == BITS[key]
    assert bloom.might_contain(hashes).tolist() == [BITS[key] <= bits]


# --- tag ----------------------------------------------------------------------------------------------


def test_tag_looks_up_the_deduplicated_records(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    twice = pa.concat_tables([rows({("x", "a"): 2, ("x", "b"): 2}), rows({("x", "a"): 3, ("x", "b"): 3})])
    result = table.upsert(twice)
    assert (result.report["rows"]["incoming"], step_of(result, "tag")["keys"]) == (4, 2)
    assert stored(table) == as_list({("x", "a"): 3, ("x", "b"): 3})


# --- createIndex: the index type decides --------------------------------------------------------------


@pytest.mark.parametrize("kind", INDEX_TYPES)
def test_create_index_makes_the_index_of_each_type(kind: str) -> None:
    assert isinstance(make_index(IndexSettings(kind)), INDEXES[kind])  # type: ignore[arg-type]


def test_create_index_inmemory_remembers_the_keys_that_it_has_read(tmp_path: Path) -> None:
    """The second upsert reads at most the one file version that the first upsert made."""
    assert isinstance(make_index(IndexSettings("INMEMORY")), MemoryIndex)
    table = new_table(tmp_path, {("x", "a"): 1}, **{"hoodie.index.type": "INMEMORY"})
    assert step_of(table.upsert(rows({("x", "a"): 2})), "tag")["files_read"] == 1
    second = step_of(table.upsert(rows({("x", "a"): 3, ("x", "b"): 3})), "tag")
    assert second["files_read"] <= 1
    assert stored(table) == as_list({("x", "a"): 3, ("x", "b"): 3})


def test_create_index_bloom_uses_ranges_and_filters(tmp_path: Path) -> None:
    """The range of the file, a to c, holds both keys; the filter rules b out."""
    assert isinstance(make_index(IndexSettings("BLOOM")), PartitionIndex)
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "c"): 1})
    counts = step_of(table.upsert(rows({("x", "a"): 2, ("x", "b"): 2})), "tag")
    assert (counts["after_ranges"], counts["after_filters"]) == (2, 1)
    assert stored(table) == as_list({("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 1})


@pytest.mark.parametrize("kind", ["HBASE", "BLOM"])
def test_create_index_refuses_an_unsupported_type(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"hoodie\.index\.type"):
        new_table(tmp_path, **{"hoodie.index.type": kind})


def test_create_index_refuses_an_index_class(tmp_path: Path) -> None:
    """Hudi would load the class; lakeformat runs no Java."""
    with pytest.raises(InvalidOptionError, match=r"hoodie\.index\.class"):
        new_table(tmp_path, **{"hoodie.index.class": "com.example.MyIndex"})


# --- tagLocation: partition path -> record keys -> locations -> updates and inserts -------------------


def test_tag_location_looks_for_a_key_in_its_own_partition(tmp_path: Path) -> None:
    """The bloom index is not global: key a of partition x says nothing about key a of partition y."""
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    result = table.upsert(rows({("y", "a"): 2}))
    assert (result.report["rows"]["updated"], result.report["rows"]["inserted"]) == (0, 1)
    assert stored(table) == as_list({("x", "a"): 1, ("y", "b"): 1, ("y", "a"): 2})


def test_tag_location_splits_records_into_updates_and_inserts(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2, ("x", "d"): 2})).report
    assert report["rows"] == {"incoming": 3, "inserted": 2, "updated": 1, "deleted": 0}


# --- lookupIndex: the location of each key that is in the table ---------------------------------------


def test_lookup_index_counts_the_records_of_each_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "a"): 1, ("z", "a"): 1})
    keys = {"x": pa.chunked_array([["a", "b"]]), "y": pa.chunked_array([["c"]])}
    found = make_index(IndexSettings("BLOOM")).locate(table.context.storage, table.snapshot(), keys)
    assert {path: tagged.counts.keys for path, tagged in found.items()} == {"x": 2, "y": 1}


def test_lookup_index_drops_the_keys_that_are_absent() -> None:
    partition = Partition(["a", "c"])
    keys = ["a", "b", "z"]
    assert partition.files_of(keys) == {"a": [0]}
    assert partition.tag(keys).new.tolist() == [1, 2]


# --- a. loadInvolvedFiles: the latest base files and their key ranges ---------------------------------


def files_opened(table: Table, keys: dict[str, list[str]]) -> list[str]:
    """Look up keys, partition path -> record keys. Return the base files that the look-up opens, each once."""
    recording = FaultyStorage(LocalStorage(table.context.storage.location))
    columns = {path: pa.chunked_array([own], pa.string()) for path, own in keys.items()}
    make_index(IndexSettings("BLOOM", exact=True)).locate(recording, table.snapshot(), columns)
    return sorted({call.path for call in recording.calls if call.name == "open_input"})


def test_load_involved_files_opens_the_affected_partitions_only(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "a"): 1, ("z", "a"): 1})
    assert [path.partition("/")[0] for path in files_opened(table, {"x": ["a"], "z": ["b"]})] == ["x", "z"]


def test_load_involved_files_takes_the_latest_base_file_of_each_file_group(tmp_path: Path) -> None:
    """Three files of one file group lie in x, and only the last counts: its delete has removed b. So b is inserted."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    table.upsert(rows({("x", "a"): 2}))
    table.delete(rows({("x", "b"): 0}))
    latest = [file.path for file in table.snapshot().files]
    assert len(list(Path(tmp_path, "t", "x").glob("*.parquet"))) == 3
    assert files_opened(table, {"x": ["a", "b"]}) == latest
    table.upsert(rows({("x", "b"): 3}))
    assert stored(table) == as_list({("x", "a"): 2, ("x", "b"): 3})


def test_load_involved_files_reads_the_least_and_the_greatest_key(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", key): 1 for key in ("m", "c", "t")})
    footer = read_key_footer(table.context.storage, table.snapshot().files[0])
    assert (footer.minimum, footer.maximum) == ("c", "t")


def test_load_involved_files_goes_on_with_a_footer_that_has_no_range() -> None:
    partition = Partition(["b", "d"]).without_range(0)
    footer = read_key_footer(partition.storage, partition.files[0])
    assert (footer.minimum, footer.maximum) == (None, None)
    assert partition.files_of(["a", "b"]) == {"b": [0]}


def test_load_involved_files_ignores_ranges_if_range_pruning_is_off() -> None:
    """hoodie.bloom.index.prune.by.ranges=false: every file is compared with every key of its partition."""
    partition = Partition(*([f"{number}a", f"{number}b"] for number in range(3)))
    pruning_off = TagSettings("BLOOM", use_ranges=False, exact=True)
    assert partition.counts(["1a", "9"], pruning_off).after_ranges == 2 * 3
    assert partition.files_of(["1a", "9"], pruning_off) == {"1a": [1]}


# --- b. explodeRecordsWithFileComparisons: (file, key) pairs, many to many ----------------------------


def test_explode_compares_a_key_with_many_files_and_a_file_with_many_keys() -> None:
    partition = Partition(["a", "m", "z"], ["a", "m", "z"])
    assert partition.counts(["a", "b", "m"]).after_ranges == 3 * 2
    assert partition.files_of(["a", "b", "m"]) == {"a": [0, 1], "m": [0, 1]}


def test_explode_compares_a_file_without_range_with_every_key() -> None:
    """The first file, a to b, takes one of the three keys; the second, without range, takes all three."""
    partition = Partition(["a", "b"], ["c", "d"]).without_range(1)
    assert partition.counts(["b", "d", "e"]).after_ranges == 1 + 3
    assert partition.files_of(["b", "d", "e"]) == {"b": [0], "d": [1]}


def test_explode_finds_the_same_pairs_by_interval_tree_and_by_list() -> None:
    """hoodie.bloom.index.use.treebased.filter changes the cost, not the result."""
    partition = Partition(*([f"{key:03}" for key in range(n * 7, n * 7 + 20)] for n in range(9)))
    keys = [f"{number:03}" for number in range(0, 120, 3)]
    by_tree, by_list = (TagSettings("BLOOM", use_tree=tree, exact=True) for tree in (True, False))
    assert partition.files_of(keys, by_tree) == partition.files_of(keys, by_list)
    assert partition.counts(keys, by_tree) == partition.counts(keys, by_list)


# The interval tree: KeyRangeLookupTree, a node for each range, with the bounds of its left and its right sub-tree.


@pytest.mark.parametrize(("key", "count"), [("b", 2), ("e", 2), ("g", 2), ("d", 1), ("zz", 0)])
def test_interval_tree_gives_the_same_files_for_any_order_of_insertion(key: str, count: int) -> None:
    """Hudi shuffles the files, so that the tree is balanced."""
    partition = Partition(["a", "f"], ["b", "c"], ["g"], ["e", "z"])
    found = []
    for order in itertools.permutations(partition.files):
        partition.files = list(order)
        found.append(partition.counts([key]).after_ranges)
    assert found == [count] * 24


def test_interval_tree_without_files_matches_no_key() -> None:
    assert files_in_range([], "a") == 0


def test_interval_tree_joins_the_files_of_one_range_in_one_node() -> None:
    assert files_in_range([("a", "c")] * 3, "b") == 3
    assert files_in_range([("a", "c")] * 3, "d") == 0


def test_interval_tree_finds_ranges_in_the_left_and_in_the_right_sub_tree() -> None:
    ranges = [("m", "n"), ("c", "d"), ("t", "u"), ("a", "b"), ("e", "f"), ("y", "z")]
    assert [files_in_range(ranges, key) for key in "mncdtuabefyz"] == [1] * 12
    assert [files_in_range(ranges, key) for key in ("bb", "g", "p", "zz")] == [0, 0, 0, 0]


def test_interval_tree_finds_nested_and_overlapping_ranges() -> None:
    nested = [("a", "z"), ("b", "y"), ("c", "x"), ("d", "w")]
    assert [files_in_range(nested, key) for key in "abcdwxyz"] == [1, 2, 3, 4, 4, 3, 2, 1]
    steps = [("a", "d"), ("c", "f"), ("e", "h")]
    assert [files_in_range(steps, key) for key in "abcdefgh"] == [1, 1, 2, 2, 2, 2, 1, 1]


def test_list_based_filter_compares_the_key_with_every_range() -> None:
    ranges = [("a", "z"), ("c", "d"), ("d", "e"), ("x", "y")]
    assert [files_in_range(ranges, key, tree=False) for key in ("a", "d", "f", "y", "zz")] == [1, 3, 1, 2, 0]


# getMatchingFilesAndPartition: the files that may hold one key.


def test_get_matching_files_includes_both_bounds_of_a_range() -> None:
    assert [files_in_range([("b", "d")], key) for key in "bcd"] == [1, 1, 1]


def test_get_matching_files_leaves_out_files_whose_range_lacks_the_key() -> None:
    assert [files_in_range([("b", "d")], key) for key in ("a", "az", "d ", "e")] == [0, 0, 0, 0]


@pytest.mark.parametrize("tree", [True, False])
def test_get_matching_files_always_includes_files_without_range(tree: bool) -> None:
    partition = Partition(["m"], ["m"]).without_range(0).without_range(1)
    assert partition.counts(["a", "m", "z"], TagSettings("BLOOM", use_tree=tree)).after_ranges == 3 * 2


def test_get_matching_files_finds_no_file_in_a_new_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    result = table.upsert(rows({("new", "a"): 2}))
    counts = step_of(result, "tag")
    assert (counts["keys"], counts["files"], counts["after_ranges"]) == (1, 0, 0)
    assert result.report["rows"]["inserted"] == 1


# --- c. findMatchingFilesForRecordKeys: filters, then key columns, file by file -----------------------


def test_find_matching_files_returns_file_and_instant_of_each_key(tmp_path: Path) -> None:
    """HoodieRecordLocation: the instant of the base file and the id of its file group."""
    table = new_table(tmp_path, {("x", "a"): 1})
    table.insert(rows({("x", "b"): 1}))
    where = {row["id"]: row["_hoodie_file_name"] for row in table.to_arrow(meta_columns=True).to_pylist()}
    keys = {"x": pa.chunked_array([["b", "a"]])}
    tagged = make_index(IndexSettings("BLOOM")).locate(table.context.storage, table.snapshot(), keys)["x"]
    names = [tagged.searched[at].base.name for at in tagged.files]
    assert dict(zip(tagged.keys.tolist(), map(str, names), strict=True)) == {0: where["b"], 1: where["a"]}
    assert {name.instant_time for name in names} == {entry.instant_time for entry in table.history()}


def test_find_matching_files_leaves_out_files_without_a_matching_key() -> None:
    """Ranges and leaky filters leave both files for both keys; only the key columns tell the files apart."""
    partition = Partition(["a", "c"], ["b", "d"], fpp=LEAKY)
    assert partition.files_of(["b", "c"]) == {"b": [1], "c": [0]}


# LazyKeyCheckIterator.computeNext: one file in each go.


def test_compute_next_reads_a_file_once_for_all_its_keys() -> None:
    partition = Partition(*([f"{n}{key:02}" for key in range(50)] for n in range(3)), fpp=LEAKY)
    counts = partition.counts([f"{n}{key:02}" for n in range(2) for key in range(50)])
    assert counts.files_read == 2
    assert counts.checked == 100


def test_compute_next_returns_the_result_of_the_last_file_too() -> None:
    assert Partition("a", "b", "c").files_of(["c", "a", "b"]) == {"a": [0], "b": [1], "c": [2]}


def test_compute_next_names_the_file_that_cannot_be_read() -> None:
    partition = Partition(["a", "b"], ["a", "b"])
    partition.storage.replace(partition.files[1].path, b"PAR1 no footer PAR1")
    with pytest.raises(CorruptTableError, match=r"file-1_0-0-0_\d+\.parquet .*restore it from a copy"):
        partition.tag(["a"])


# readBloomFilter: the filter in the footer of a base file.


def test_read_bloom_filter_decodes_by_the_type_code() -> None:
    found = Partition(["a", "b"]).bloom_filter(0)
    assert found is not None
    assert (found.type_code, found.used) == ("DYNAMIC_V0", 2)


def test_read_bloom_filter_without_type_code_is_a_simple_filter() -> None:
    partition = Partition(["a", "b"]).rewrite(0, FOOTERS["simple filter"])
    found = partition.bloom_filter(0)
    assert found is not None
    assert found.type_code == "SIMPLE"
    assert partition.counts(["a", "aa"]).after_filters == 1


def test_read_bloom_filter_finds_the_filter_under_the_old_key() -> None:
    """com.uber.hoodie.bloomfilter."""
    partition = Partition(["a", "c"])
    partition.rewrite(0, lambda footer: {OLD_BLOOM if key == BLOOM else key: v for key, v in footer.items()})
    found = partition.bloom_filter(0)
    assert found is not None
    assert found.type_code == "DYNAMIC_V0"
    assert partition.counts(["a", "b"]).after_filters == 1


def test_read_bloom_filter_of_a_footer_without_filter_leaves_every_key_a_candidate() -> None:
    partition = Partition(["a", "c"])
    partition.rewrite(0, lambda footer: {k: v for k, v in footer.items() if k not in {BLOOM, BLOOM_TYPE}})
    assert partition.bloom_filter(0) is None
    assert partition.files_of(["a", "b"]) == {"a": [0]}
    counts = partition.counts(["a", "b"])
    assert (counts.after_filters, counts.files_read) == (2, 1)


# addKey: a key that the filter may contain becomes a candidate.


def test_add_key_makes_a_candidate_of_each_key_that_the_filter_may_contain() -> None:
    """All keys that are there, and few of the others. All keys except the last lie in the range."""
    held = [f"{number:05}" for number in range(0, 20_000, 2)]
    absent = [f"{number:05}" for number in range(1, 20_000, 2)]
    wanted = [*held[:100], *absent]
    counts = Partition(held, fpp=0.01).counts(wanted)
    assert counts.after_ranges == len(wanted) - 1
    assert 100 <= counts.after_filters < 100 + 0.03 * len(absent)


# getLookupResult and checkCandidatesAgainstFile: which candidates are in the file.


def test_get_lookup_result_counts_candidates_false_positives_and_matches() -> None:
    held = [f"k{number:04}" for number in range(0, 2_000, 2)]
    absent = [f"k{number:04}" for number in range(1, 801, 2)]
    partition = Partition(held, fpp=0.5)
    counts = partition.counts([*held[:5], *absent])
    assert counts.after_filters == counts.checked == 5 + counts.false_positives
    assert 0 < counts.false_positives < len(absent)
    assert set(partition.files_of([*held[:5], *absent])) == set(held[:5])


def test_check_candidates_against_file_reads_nothing_if_there_are_no_candidates() -> None:
    counts = Partition(["a", "z"], fpp=1e-9).counts(["b", "c"])
    assert (counts.after_ranges, counts.after_filters) == (2, 0)
    assert (counts.files_read, counts.bytes_read) == (0, 0)


def test_check_candidates_against_file_keeps_the_keys_that_are_in_the_file() -> None:
    partition = Partition(["a", "c", "e"], fpp=LEAKY)
    keys = ["e", "d", "c", "b"]
    assert set(partition.files_of(keys)) == {"c", "e"}
    assert partition.counts(keys).files_read == 1
    assert partition.counts(keys).bytes_read > 0


# --- tagLocationBacktoRecords: a left outer join of records and locations -----------------------------


def test_tag_location_back_to_records_keeps_every_record() -> None:
    """Positions of the keys d, a, b, c: d and b have a location, a and c have none."""
    tagged = Partition(["b", "d"]).tag(["d", "a", "b", "c"])
    assert sorted([*tagged.keys.tolist(), *tagged.new.tolist()]) == [0, 1, 2, 3]
    assert sorted(tagged.keys.tolist()) == [0, 2]


def test_tag_location_back_to_records_sends_updates_to_their_file_groups(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    table.insert(rows({("x", "b"): 1}))
    before = {key: file_id for key, (file_id, _) in places(table).items()}
    table.upsert(rows({("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2}))
    after = {key: file_id for key, (file_id, _) in places(table).items()}
    assert {key: after[key] for key in before} == before
    assert after["c"] not in before.values()
    assert stored(table) == as_list({("x", key): 2 for key in "abc"})


# --- the summary of the article -----------------------------------------------------------------------


def test_summary_range_pruning_leaves_few_files_if_keys_are_ordered() -> None:
    """Keys with a timestamp in front: of 100 keys x 20 files, 50 pairs are left."""
    partition = Partition(*([f"{key:05}" for key in range(n * 100, n * 100 + 100)] for n in range(20)))
    counts = partition.counts([f"{key:05}" for key in range(1_950, 2_050)])
    assert (counts.keys * counts.files, counts.after_ranges) == (100 * 20, 50)


def test_summary_random_keys_are_tagged_alike_with_range_pruning_off(tmp_path: Path) -> None:
    """Random keys fill every range, so both switches may be off; then every pair is compared."""

    def upsert(on: str) -> tuple[Any, dict[str, Any]]:
        switches = ("hoodie.bloom.index.use.treebased.filter", "hoodie.bloom.index.prune.by.ranges")
        held: Held = {("x", f"{number * 7919 % 1000:03}"): number for number in range(60)}
        table = new_table(tmp_path / on, held, **dict.fromkeys(switches, on))
        table.insert(rows({("x", f"n{number}"): 0 for number in range(10)}))
        result = table.upsert(rows({("x", f"{number:03}"): -number for number in range(0, 1000, 9)}))
        return (result.report["rows"], stored(table)), step_of(result, "tag")

    pruned, counts = upsert("true")
    compared, all_counts = upsert("false")
    assert pruned == compared
    assert 0 < counts["after_ranges"] < all_counts["after_ranges"] == counts["keys"] * counts["files"]


def test_summary_ranges_and_filters_read_footers_only() -> None:
    partition = Partition(*([f"{key:05}" for key in range(n, 2_000, 4)] for n in range(4)), fpp=1e-9)
    counts = partition.counts([f"{key:05}" for key in range(0, 2_000, 4)], TagSettings("BLOOM"))
    assert counts.after_filters == 500
    assert (counts.files_read, counts.bytes_read) == (0, 0)
    assert 0 < counts.footer_bytes < sum(file.size_bytes for file in partition.files)


def test_summary_memory_does_not_grow_with_keys_times_files() -> None:
    """The article warns of 100,000 keys x 1,000 files. Here 1,200,000 pairs are counted, and none is made."""
    partition = Partition(*(["00000", f"9{number}"] for number in range(40)))
    keys = [f"{number:05}" for number in range(1, 30_001)]
    pairs = len(keys) * len(partition.files)
    tracemalloc.start()
    try:
        counts = partition.counts(keys, TagSettings("BLOOM"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts.after_ranges == pairs
    assert peak < pairs * 8


def test_summary_write_without_tagging_doubles_a_key(tmp_path: Path) -> None:
    """An insert looks no key up, so it adds a second row with the same key."""
    table = new_table(tmp_path, {("x", "a"): 1})
    table.insert(rows({("x", "a"): 2}))
    assert lakeformat.open(tmp_path / "t").count() == 2
    assert stored(table) == [("x", "a", 1), ("x", "a", 2)]
