"""The bloom index step by step, as articles about Hudi's ``HoodieBloomIndex`` tell it: one test a step.

============================================  =========================================================================
step of the article                           test
============================================  =========================================================================
AbstractWriteHelper.tag                       test_tag_looks_up_the_combined_rows
createIndex: by type                          test_create_index_by_type
createIndex: INMEMORY                         test_create_index_in_memory
createIndex: BLOOM                            test_create_index_bloom
createIndex: default                          test_create_index_refuses_an_unsupported_type
createIndex: index class                      test_create_index_refuses_an_index_class
tagLocation 1: partition -> keys              test_tag_location_looks_for_a_key_in_its_own_partition
tagLocation 2 and 3                           test_tag_location_makes_updates_and_inserts
lookupIndex: records per partition            test_lookup_index_counts_the_records_of_each_partition
lookupIndex: absent keys are dropped          test_lookup_index_drops_keys_that_are_absent
loadInvolvedFiles: affected partitions        test_load_involved_files_opens_only_the_partitions_of_the_keys
loadInvolvedFiles: latest base files          test_load_involved_files_takes_the_latest_file_slices
loadInvolvedFiles: prune by ranges            test_load_involved_files_reads_the_least_and_greatest_key
loadInvolvedFiles: no range in a footer       test_load_involved_files_goes_on_without_a_range
loadInvolvedFiles: pruning off                test_load_involved_files_without_pruning_has_no_ranges
explodeRecordsWithFileComparisons             test_explode_records_with_file_comparisons_is_many_to_many
... a file without range                      test_explode_records_with_file_comparisons_keeps_files_without_ranges
... tree or list                              test_explode_records_with_file_comparisons_is_the_same_by_tree_and_by_list
IntervalTreeBasedIndexFileFilter: shuffle     test_interval_tree_does_not_depend_on_the_order_of_files
lookUpTree.insert: no root                    test_interval_tree_without_files_matches_nothing
lookUpTree.insert: equal ranges               test_interval_tree_joins_files_of_one_range
lookUpTree.insert: left and right             test_interval_tree_finds_ranges_on_either_side
lookUpTree.insert: sub-tree bounds            test_interval_tree_finds_nested_and_overlapping_ranges
ListBasedIndexFileFilter                      test_list_based_filter_compares_every_range
getMatchingFilesAndPartition: within          test_get_matching_files_takes_both_bounds_in
getMatchingFilesAndPartition: outside         test_get_matching_files_leaves_out_keys_beyond_the_range
getMatchingFilesAndPartition: no range        test_get_matching_files_always_takes_files_without_ranges
getMatchingFilesAndPartition: no files        test_get_matching_files_of_an_empty_partition
findMatchingFilesForRecordKeys                test_find_matching_files_for_record_keys_gives_file_and_instant
... a file without a match                    test_find_matching_files_for_record_keys_leaves_files_without_match_out
computeNext: one file in each go              test_compute_next_reads_a_file_once_for_all_its_keys
computeNext: next file, end of input          test_compute_next_answers_for_the_last_file_too
computeNext: an error                         test_compute_next_names_the_file_that_cannot_be_read
readBloomFilter: by type code                 test_read_bloom_filter_by_its_type_code
readBloomFilter: no type code                 test_read_bloom_filter_without_type_code_is_simple
readBloomFilter: old key                      test_read_bloom_filter_under_the_old_key
readBloomFilter: none                         test_read_bloom_filter_where_there_is_none
addKey                                        test_add_key_makes_candidates_of_keys_the_filter_lets_through
getLookupResult: candidates, fp, matches      test_get_lookup_result_counts_false_positives
checkCandidatesAgainstFile: none              test_check_candidates_against_file_reads_nothing_without_candidates
checkCandidatesAgainstFile: found keys        test_check_candidates_against_file_keeps_what_is_there
tagLocationBacktoRecords: outer join          test_tag_location_back_to_records_keeps_every_record
tagLocationBacktoRecords: current location    test_tag_location_back_to_records_updates_the_rows_in_their_files
summary: ordered keys                         test_summary_ordered_keys_are_narrowed_by_ranges
summary: random keys, switches off            test_summary_random_keys_are_tagged_alike_with_both_switches_off
summary: footers alone                        test_summary_ranges_and_filters_cost_footers_alone
summary: the product of keys and files        test_summary_pairs_of_keys_and_files_are_counted_but_never_made
============================================  =========================================================================
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import CorruptTableError, InvalidOptionError, Table
from lakeformat.codec.bloom import BloomFilter
from lakeformat.config.option import INDEX_TYPES
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, OLD_BLOOM, read_footer
from lakeformat.index.kinds import INDEXES, make_index
from lakeformat.index.memory import MemoryIndex
from lakeformat.index.narrowed import PartitionIndex
from lakeformat.index.port import IndexSettings, Tagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.files import BaseFile
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from tests.helpers import hudi_rs
from tests.helpers.base_files import FOOTERS, POOL, rewrite, write_file
from tests.helpers.faulty import FaultyStorage

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
BLOOM_ONLY = TagSettings("BLOOM", exact=True)
#: A filter that lets through nearly every key.
LEAKY = 0.99

Rows = dict[tuple[str, str], int]  # (partition, key) -> v


def rows(held: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": part, "v": v} for (part, key), v in held.items()], SCHEMA)


def new_table(folder: Path, held: Rows | None = None, **options: Any) -> Table:
    """A partitioned table that finds keys by ranges and filters, and opens a file for each insert."""
    usual = {"hoodie.index.type": "BLOOM", "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **{**usual, **options})
    if held:
        table.insert(rows(held))
    return table


def stored(table: Table) -> Rows:
    """What hudi-rs and we read; fails if a key stands twice in a partition."""
    listed = hudi_rs.assert_same_rows(table)
    found = {(row["p"], row["id"]): row["v"] for row in listed}
    assert len(found) == len(listed)
    return found


def tag_step(result: Any) -> dict[str, int]:
    """What the write's report counts under ``tag``."""
    return next(step for step in result.report["steps"] if step["step"] == "tag")


def tag(
    storage: Storage, files: Sequence[BaseFile], keys: Iterable[str], settings: TagSettings = BLOOM_ONLY
) -> tuple[dict[str, list[int]], Tagged]:
    """Key -> the files it was found in, and all that tagging tells."""
    wanted = list(keys)
    tagged = tag_files(storage, files, pa.chunked_array([wanted], pa.string()), settings, POOL)
    found: dict[str, list[int]] = {}
    for key, file in sorted(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True)):
        found.setdefault(wanted[key], []).append(file)
    return found, tagged


def after_ranges(ranges: Sequence[tuple[str, str]], key: str, *, tree: bool = True) -> int:
    """How many files are in question for a key by their ranges; each file holds just the two bounds."""
    storage = MemoryStorage()
    files = [write_file(storage, number, sorted({*bounds})) for number, bounds in enumerate(ranges)]
    return tag(storage, files, [key], TagSettings("BLOOM", use_tree=tree))[1].counts.after_ranges


# --- tag, and which index -----------------------------------------------------------------------------


def test_tag_looks_up_the_combined_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    doubled = pa.concat_tables([rows({("x", "a"): 2, ("x", "b"): 2}), rows({("x", "a"): 3, ("x", "b"): 3})])
    result = table.upsert(doubled)
    assert (result.report["rows"]["incoming"], tag_step(result)["keys"]) == (4, 2)
    assert stored(table) == {("x", "a"): 3, ("x", "b"): 3}


def test_create_index_by_type() -> None:
    assert set(INDEXES) >= set(INDEX_TYPES)
    for kind in INDEX_TYPES:
        assert isinstance(make_index(IndexSettings(kind)), INDEXES[kind])  # type: ignore[arg-type]


def test_create_index_in_memory(tmp_path: Path) -> None:
    assert isinstance(make_index(IndexSettings("INMEMORY")), MemoryIndex)
    table = new_table(tmp_path, {("x", "a"): 1}, **{"hoodie.index.type": "INMEMORY"})
    assert tag_step(table.upsert(rows({("x", "a"): 2})))["files_read"] == 1
    again = tag_step(table.upsert(rows({("x", "a"): 3, ("x", "b"): 3})))
    assert again["files_read"] <= 1  # Only the version that the last upsert made can be new to it.
    assert stored(table) == {("x", "a"): 3, ("x", "b"): 3}


def test_create_index_bloom(tmp_path: Path) -> None:
    assert isinstance(make_index(IndexSettings("BLOOM")), PartitionIndex)
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "c"): 1})
    counts = tag_step(table.upsert(rows({("x", "a"): 2, ("x", "b"): 2})))
    assert (counts["after_ranges"], counts["after_filters"]) == (2, 1)
    assert stored(table) == {("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 1}


def test_create_index_refuses_an_unsupported_type(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"hoodie\.index\.type"):
        new_table(tmp_path, **{"hoodie.index.type": "HBASE"})
    with pytest.raises(InvalidOptionError, match=r"hoodie\.index\.type"):
        new_table(tmp_path, **{"hoodie.index.type": "BLOM"})


def test_create_index_refuses_an_index_class(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"hoodie\.index\.class"):
        new_table(tmp_path, **{"hoodie.index.class": "com.example.MyIndex"})


# --- tagLocation and lookupIndex ----------------------------------------------------------------------


def test_tag_location_looks_for_a_key_in_its_own_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    result = table.upsert(rows({("y", "a"): 2}))
    assert (result.report["rows"]["updated"], result.report["rows"]["inserted"]) == (0, 1)
    assert stored(table) == {("x", "a"): 1, ("y", "b"): 1, ("y", "a"): 2}


def test_tag_location_makes_updates_and_inserts(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2, ("x", "d"): 2})).report
    assert report["rows"] == {"incoming": 3, "inserted": 2, "updated": 1, "deleted": 0}


def test_lookup_index_counts_the_records_of_each_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "a"): 1, ("z", "a"): 1})
    keys = {"x": pa.chunked_array([["a", "b"]]), "y": pa.chunked_array([["c"]])}
    found = make_index(IndexSettings("BLOOM")).locate(table.engine.storage, table.snapshot(), keys)
    assert {path: tagged.counts.keys for path, tagged in found.items()} == {"x": 2, "y": 1}


def test_lookup_index_drops_keys_that_are_absent() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, ["a", "c"])]
    found, tagged = tag(storage, files, ["a", "b", "z"])
    assert found == {"a": [0]}
    assert tagged.new.tolist() == [1, 2]


# --- loadInvolvedFiles --------------------------------------------------------------------------------


def opened(table: Table, keys: dict[str, list[str]]) -> list[str]:
    """Base files that a look-up opens, each once. Partition -> keys."""
    recording = FaultyStorage(LocalStorage(table.engine.storage.location))
    columns = {path: pa.chunked_array([own], pa.string()) for path, own in keys.items()}
    make_index(IndexSettings("BLOOM", exact=True)).locate(recording, table.snapshot(), columns)
    return sorted({call.path for call in recording.calls if call.name == "open_input"})


def test_load_involved_files_opens_only_the_partitions_of_the_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "a"): 1, ("z", "a"): 1})
    assert [path.partition("/")[0] for path in opened(table, {"x": ["a"], "z": ["b"]})] == ["x", "z"]


def test_load_involved_files_takes_the_latest_file_slices(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    table.upsert(rows({("x", "a"): 2}))
    table.delete(rows({("x", "b"): 0}))
    latest = [file.path for file in table.snapshot().files]
    assert len(list(Path(tmp_path, "t", "x").glob("*.parquet"))) == 3
    assert opened(table, {"x": ["a", "b"]}) == latest
    table.upsert(rows({("x", "b"): 3}))  # An insert, whatever older slices hold.
    assert stored(table) == {("x", "a"): 2, ("x", "b"): 3}


def test_load_involved_files_reads_the_least_and_greatest_key(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", key): 1 for key in ("m", "c", "t")})
    footer = read_footer(table.engine.storage, table.snapshot().files[0])
    assert (footer.minimum, footer.maximum) == ("c", "t")


def test_load_involved_files_goes_on_without_a_range() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["b", "d"])
    rewrite(storage, file, FOOTERS["no range"], statistics=False)
    footer = read_footer(storage, file)
    assert (footer.minimum, footer.maximum) == (None, None)
    assert tag(storage, [file], ["a", "b"])[0] == {"b": [0]}


def test_load_involved_files_without_pruning_has_no_ranges() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, [f"{number}a", f"{number}b"]) for number in range(3)]
    found, tagged = tag(storage, files, ["1a", "9"], TagSettings("BLOOM", use_ranges=False, exact=True))
    assert tagged.counts.after_ranges == 2 * 3
    assert found == {"1a": [1]}


# --- explodeRecordsWithFileComparisons ----------------------------------------------------------------


def test_explode_records_with_file_comparisons_is_many_to_many() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, ["a", "m", "z"]) for number in range(2)]
    found, tagged = tag(storage, files, ["a", "b", "m"])
    assert tagged.counts.after_ranges == 3 * 2
    assert found == {"a": [0, 1], "m": [0, 1]}


def test_explode_records_with_file_comparisons_keeps_files_without_ranges() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, keys) for number, keys in enumerate((["a", "b"], ["c", "d"]))]
    rewrite(storage, files[1], FOOTERS["no range"], statistics=False)
    found, tagged = tag(storage, files, ["b", "d", "e"])
    assert tagged.counts.after_ranges == 1 + 3
    assert found == {"b": [0], "d": [1]}


def test_explode_records_with_file_comparisons_is_the_same_by_tree_and_by_list() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, n, [f"{k:03}" for k in range(n * 7, n * 7 + 20)]) for n in range(9)]
    keys = [f"{number:03}" for number in range(0, 120, 3)]
    by_tree, by_list = (
        tag(storage, files, keys, TagSettings("BLOOM", use_tree=tree, exact=True)) for tree in (True, False)
    )
    assert by_tree[0] == by_list[0]
    assert by_tree[1].counts == by_list[1].counts


def test_interval_tree_does_not_depend_on_the_order_of_files() -> None:
    ranges = [("a", "f"), ("b", "c"), ("g", "g"), ("e", "z")]
    for key, wanted in (("b", 2), ("e", 2), ("g", 2), ("d", 1), ("zz", 0)):
        assert {after_ranges(order, key) for order in itertools.permutations(ranges)} == {wanted}


def test_interval_tree_without_files_matches_nothing() -> None:
    assert after_ranges([], "a") == 0


def test_interval_tree_joins_files_of_one_range() -> None:
    assert after_ranges([("a", "c")] * 3, "b") == 3
    assert after_ranges([("a", "c")] * 3, "d") == 0


def test_interval_tree_finds_ranges_on_either_side() -> None:
    ranges = [("m", "n"), ("c", "d"), ("t", "u"), ("a", "b"), ("e", "f"), ("y", "z")]
    for low, high in ranges:
        assert (after_ranges(ranges, low), after_ranges(ranges, high)) == (1, 1)
    assert [after_ranges(ranges, key) for key in ("", "bb", "g", "p", "zz")[1:]] == [0, 0, 0, 0]


def test_interval_tree_finds_nested_and_overlapping_ranges() -> None:
    nested = [("a", "z"), ("b", "y"), ("c", "x"), ("d", "w")]
    assert [after_ranges(nested, key) for key in "abcdwxyz"] == [1, 2, 3, 4, 4, 3, 2, 1]
    steps = [("a", "d"), ("c", "f"), ("e", "h")]
    assert [after_ranges(steps, key) for key in "abcdefgh"] == [1, 1, 2, 2, 2, 2, 1, 1]


def test_list_based_filter_compares_every_range() -> None:
    ranges = [("a", "z"), ("c", "d"), ("d", "e"), ("x", "y")]
    assert [after_ranges(ranges, key, tree=False) for key in ("a", "d", "f", "y", "zz")] == [1, 3, 1, 2, 0]


# --- getMatchingFilesAndPartition ---------------------------------------------------------------------


def test_get_matching_files_takes_both_bounds_in() -> None:
    assert [after_ranges([("b", "d")], key) for key in "bcd"] == [1, 1, 1]


def test_get_matching_files_leaves_out_keys_beyond_the_range() -> None:
    assert [after_ranges([("b", "d")], key) for key in ("a", "az", "d ", "e")] == [0, 0, 0, 0]


def test_get_matching_files_always_takes_files_without_ranges() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, ["m"]) for number in range(2)]
    for file in files:
        rewrite(storage, file, FOOTERS["no range"], statistics=False)
    for tree in (True, False):
        counts = tag(storage, files, ["a", "m", "z"], TagSettings("BLOOM", use_tree=tree))[1].counts
        assert counts.after_ranges == 3 * 2


def test_get_matching_files_of_an_empty_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    result = table.upsert(rows({("empty", "a"): 2}))
    counts = tag_step(result)
    assert (counts["keys"], counts["files"], counts["after_ranges"]) == (1, 0, 0)
    assert result.report["rows"]["inserted"] == 1


# --- findMatchingFilesForRecordKeys -------------------------------------------------------------------


def test_find_matching_files_for_record_keys_gives_file_and_instant(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    table.insert(rows({("x", "b"): 1}))
    where = {row["id"]: row["_hoodie_file_name"] for row in table.to_arrow(meta_columns=True).to_pylist()}
    keys = {"x": pa.chunked_array([["b", "a"]])}
    tagged = make_index(IndexSettings("BLOOM")).locate(table.engine.storage, table.snapshot(), keys)["x"]
    names = [tagged.searched[at].base.name for at in tagged.files]
    assert dict(zip(tagged.keys.tolist(), map(str, names), strict=True)) == {0: where["b"], 1: where["a"]}
    assert {name.instant_time for name in names} == {entry.instant_time for entry in table.history()}


def test_find_matching_files_for_record_keys_leaves_files_without_match_out() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, keys, fpp=LEAKY) for number, keys in enumerate((["a", "c"], ["b", "d"]))]
    assert tag(storage, files, ["b", "c"])[0] == {"b": [1], "c": [0]}


def test_compute_next_reads_a_file_once_for_all_its_keys() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, n, [f"{n}{k:02}" for k in range(50)], fpp=LEAKY) for n in range(3)]
    counts = tag(storage, files, [f"{n}{k:02}" for n in range(2) for k in range(50)])[1].counts
    assert counts.files_read == 2
    assert counts.checked == 100


def test_compute_next_answers_for_the_last_file_too() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, [key]) for number, key in enumerate("abc")]
    assert tag(storage, files, ["c", "a", "b"])[0] == {"a": [0], "b": [1], "c": [2]}


def test_compute_next_names_the_file_that_cannot_be_read() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, ["a", "b"]) for number in range(2)]
    storage.replace(files[1].path, b"PAR1 no footer PAR1")
    with pytest.raises(CorruptTableError, match=r"file-1_0-0-0_\d+\.parquet .*restore it from a copy"):
        tag(storage, files, ["a"])


# --- the filter of one file ---------------------------------------------------------------------------


def footer_of(storage: Storage, file: BaseFile) -> BloomFilter | None:
    return read_footer(storage, file).bloom(storage)


def test_read_bloom_filter_by_its_type_code() -> None:
    storage = MemoryStorage()
    found = footer_of(storage, write_file(storage, 0, ["a", "b"]))
    assert found is not None
    assert (found.type_code, found.used) == ("DYNAMIC_V0", 2)


def test_read_bloom_filter_without_type_code_is_simple() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a", "b"])
    rewrite(storage, file, FOOTERS["simple filter"])
    found = footer_of(storage, file)
    assert found is not None
    assert found.type_code == "SIMPLE"
    assert tag(storage, [file], ["a", "aa"])[1].counts.after_filters == 1


def test_read_bloom_filter_under_the_old_key() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a", "c"])
    rewrite(storage, file, lambda footer: {OLD_BLOOM if key == BLOOM else key: v for key, v in footer.items()})
    found = footer_of(storage, file)
    assert found is not None
    assert found.type_code == "DYNAMIC_V0"
    assert tag(storage, [file], ["a", "b"])[1].counts.after_filters == 1


def test_read_bloom_filter_where_there_is_none() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a", "c"])
    rewrite(storage, file, lambda footer: {k: v for k, v in footer.items() if k not in {BLOOM, BLOOM_TYPE}})
    assert footer_of(storage, file) is None
    found, tagged = tag(storage, [file], ["a", "b"])
    assert found == {"a": [0]}
    assert (tagged.counts.after_filters, tagged.counts.files_read) == (2, 1)  # The keys themselves are asked.


def test_add_key_makes_candidates_of_keys_the_filter_lets_through() -> None:
    storage = MemoryStorage()
    held = [f"{number:05}" for number in range(0, 20_000, 2)]
    file = write_file(storage, 0, held, fpp=0.01)
    absent = [f"{number:05}" for number in range(1, 20_000, 2)]
    wanted = [*held[:100], *absent]
    counts = tag(storage, [file], wanted)[1].counts
    assert counts.after_ranges == len(wanted) - 1  # All but the last lie in the range.
    assert 100 <= counts.after_filters < 100 + 0.03 * len(absent)


def test_get_lookup_result_counts_false_positives() -> None:
    storage = MemoryStorage()
    held = [f"k{number:04}" for number in range(0, 2_000, 2)]
    file = write_file(storage, 0, held, fpp=0.5)
    absent = [f"k{number:04}" for number in range(1, 801, 2)]
    found, tagged = tag(storage, [file], [*held[:5], *absent])
    counts = tagged.counts
    assert counts.after_filters == counts.checked == 5 + counts.false_positives
    assert 0 < counts.false_positives < len(absent)
    assert set(found) == set(held[:5])


def test_check_candidates_against_file_reads_nothing_without_candidates() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a", "z"], fpp=1e-9)
    counts = tag(storage, [file], ["b", "c"])[1].counts
    assert (counts.after_ranges, counts.after_filters) == (2, 0)
    assert (counts.files_read, counts.bytes_read) == (0, 0)


def test_check_candidates_against_file_keeps_what_is_there() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a", "c", "e"], fpp=LEAKY)
    found, tagged = tag(storage, [file], ["e", "d", "c", "b"])
    assert set(found) == {"c", "e"}
    assert tagged.counts.files_read == 1
    assert tagged.counts.bytes_read > 0


# --- tagLocationBacktoRecords -------------------------------------------------------------------------


def test_tag_location_back_to_records_keeps_every_record() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, ["b", "d"])]
    keys = ["d", "a", "b", "c"]
    tagged = tag(storage, files, keys)[1]
    assert sorted([*tagged.keys.tolist(), *tagged.new.tolist()]) == [0, 1, 2, 3]
    assert sorted(tagged.keys.tolist()) == [0, 2]


def test_tag_location_back_to_records_updates_the_rows_in_their_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    table.insert(rows({("x", "b"): 1}))
    before = {
        row["id"]: row["_hoodie_file_name"].split("_")[0] for row in table.to_arrow(meta_columns=True).to_pylist()
    }
    table.upsert(rows({("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2}))
    after = {row["id"]: row["_hoodie_file_name"].split("_")[0] for row in table.to_arrow(meta_columns=True).to_pylist()}
    assert {key: after[key] for key in before} == before
    assert after["c"] not in before.values()
    assert stored(table) == {("x", key): 2 for key in "abc"}


# --- the summary --------------------------------------------------------------------------------------


def test_summary_ordered_keys_are_narrowed_by_ranges() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, n, [f"{k:05}" for k in range(n * 100, n * 100 + 100)]) for n in range(20)]
    counts = tag(storage, files, [f"{k:05}" for k in range(1_950, 2_050)])[1].counts
    assert (counts.keys * counts.files, counts.after_ranges) == (100 * 20, 50)


def test_summary_random_keys_are_tagged_alike_with_both_switches_off(tmp_path: Path) -> None:
    switches = ("hoodie.bloom.index.use.treebased.filter", "hoodie.bloom.index.prune.by.ranges")
    held = {("x", f"{number * 7919 % 1000:03}"): number for number in range(60)}
    results, in_question = [], []
    for on in ("true", "false"):
        table = new_table(tmp_path / on, held, **dict.fromkeys(switches, on))
        table.insert(rows({("x", f"n{number}"): 0 for number in range(10)}))
        result = table.upsert(rows({("x", f"{number:03}"): -number for number in range(0, 1000, 9)}))
        results.append((result.report["rows"], stored(table)))
        counts = tag_step(result)
        in_question.append(counts["after_ranges"])
    assert results[0] == results[1]
    assert 0 < in_question[0] < in_question[1] == counts["keys"] * counts["files"]


def test_summary_ranges_and_filters_cost_footers_alone() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, n, [f"{k:05}" for k in range(n, 2_000, 4)], fpp=1e-9) for n in range(4)]
    counts = tag(storage, files, [f"{k:05}" for k in range(0, 2_000, 4)], TagSettings("BLOOM"))[1].counts
    assert counts.after_filters == 500
    assert (counts.files_read, counts.bytes_read) == (0, 0)
    assert 0 < counts.footer_bytes < sum(file.size_bytes for file in files)


def test_summary_pairs_of_keys_and_files_are_counted_but_never_made() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, number, ["00000", f"9{number}"]) for number in range(100)]
    keys = [f"{number:05}" for number in range(1, 30_001)]
    pairs = len(keys) * len(files)
    tracemalloc.start()
    try:
        counts = tag(storage, files, keys, TagSettings("BLOOM"))[1].counts
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts.after_ranges == pairs
    assert peak < pairs * 8
