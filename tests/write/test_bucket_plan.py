"""The plan of buckets, by examples: file sizes, places of log files, and which file group takes which rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.codec.key_fields import FieldRule
from lakeformat.config.resolve import resolve
from lakeformat.files.base_file import FileSettings
from lakeformat.index.bucket import FIXED_FILE_ID, BucketHash
from lakeformat.index.port import Tagged
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage import MemoryStorage
from lakeformat.write.intake import plan_job
from lakeformat.write.workload.buckets import (
    AppendRules,
    Bucket,
    FileSizing,
    InsertShare,
    LogPlace,
    SmallFile,
    assign_to_buckets,
    assign_to_files,
    derive_file_id,
    encoded_bytes,
    file_sizing,
    log_name,
    make_bucket_id,
    make_buckets,
    max_encoded_bytes,
    may_append_beside,
    measure_row_bytes,
    spread_inserts,
)
from tests.helpers.base_files import SCHEMA as FILE_SCHEMA
from tests.helpers.base_files import write_file
from tests.helpers.tables import a_schema, a_table

T1, T2, T3 = "20240101000000000", "20240102000000000", "20240103000000000"
SIZING = FileSizing(row_bytes=100.0, max_file_bytes=1_000, small_file_bytes=800)
MIB = 1 << 20
HASH = BucketHash(("id",), 4, FieldRule.HUDI_1)


def a_slice(file_id: str, size: int | None = 100, logs: Sequence[tuple[str, int]] = (), opened: str = T1) -> FileSlice:
    """Return a slice. Each log file is named by an instant and a version, and has 10 bytes."""
    base = None if size is None else BaseFile("p", BaseFileName(file_id, "0-0-0", opened), size)
    files = tuple(LogFile("p", LogFileName(file_id, time, version, "0-0-0"), 10) for time, version in logs)
    return FileSlice(FileGroupId("p", file_id), opened, base, files)


def groups(*ids: str) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId("p", each) for each in ids)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def shown(buckets: Sequence[Bucket]) -> list[tuple[str, list[int], int]]:
    return [(bucket.file_id, bucket.rows.tolist(), bucket.updates) for bucket in buckets]


# --- sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "rows"), [(0, 10), (1, 9), (900, 1), (901, 0), (1_000, 0), (5_000, 0)])
def test_rows_that_fit_fill_a_file_up_to_its_maximum(size: int, rows: int) -> None:
    assert SIZING.rows_that_fit(size) == rows


@pytest.mark.parametrize(
    ("sizing", "rows"),
    [
        (SIZING, 10),
        (replace(SIZING, empty_bytes=250), 7),
        (replace(SIZING, row_bytes=5_000.0), 1),
        (replace(SIZING, rows_per_new_file=3), 3),
    ],
)
def test_a_new_file_takes_the_rows_beside_its_footer_and_at_least_one(sizing: FileSizing, rows: int) -> None:
    assert sizing.rows_of_new_file == rows


def test_the_smallest_files_are_filled_first_and_of_equal_ones_the_first_by_id() -> None:
    small = [SmallFile(0, "b", 700), SmallFile(1, "a", 700), SmallFile(2, "c", 600), SmallFile(3, "d", 950)]
    filled = (InsertShare(small[2], 4), InsertShare(small[1], 3), InsertShare(small[0], 3))
    assert spread_inserts(9, small, SIZING) == (*filled[:2], InsertShare(small[0], 2))
    assert spread_inserts(21, small, SIZING) == (*filled, InsertShare(None, 6), InsertShare(None, 5))
    assert spread_inserts(4, small, SIZING) == filled[:1]
    assert spread_inserts(0, small, SIZING) == ()


@pytest.mark.parametrize(("split", "rows"), [(True, None), (False, 9)])
def test_target_sizes_come_from_the_options(split: bool, rows: int | None) -> None:
    sizes = {"hoodie.parquet.max.file.size": 900, "hoodie.parquet.small.file.limit": 400}
    splits = {"hoodie.copyonwrite.insert.auto.split": split, "hoodie.copyonwrite.insert.split.size": 9}
    options = resolve({**sizes, **splits})
    assert file_sizing(options, 7.0, 5) == FileSizing(7.0, 900, 400, 5, rows)
    assert file_sizing(options, 7.0) == FileSizing(7.0, 900, 400, 0, rows)


def test_file_ids_begin_with_a_letter() -> None:
    ids = [derive_file_id("w", 0, number) for number in range(64)]
    assert {each[0] for each in ids} == set("abef")
    assert {(each[-2:], len(each)) for each in ids} == {("-0", 38)}


SETTINGS = FileSettings(FILE_SCHEMA, "{}")


def prepared(values: Sequence[bytes | None], kind: str = "v") -> pa.Table:
    keys = [f"k{number:06}" for number in range(len(values))]
    return pa.table({RECORD_KEY: keys, kind: pa.array(values, pa.binary())})


def test_encoded_rows_have_the_size_of_the_file_that_holds_them() -> None:
    keys = [f"k{number:06}" for number in range(500)]
    file = write_file(MemoryStorage(), 0, keys, fpp=SETTINGS.fpp, file_id="00000000-0000-0000-0000-000000000000-0")
    rows = pa.table({RECORD_KEY: keys, "v": pa.array(range(500), pa.int64())})
    assert encoded_bytes(rows, SETTINGS) == pytest.approx(file.size_bytes, rel=0.05)
    assert 0 < encoded_bytes(rows.slice(0, 0), SETTINGS) < encoded_bytes(rows.slice(0, 1), SETTINGS)


def test_columns_that_the_rows_lack_are_encoded_as_nulls_though_they_are_required() -> None:
    required = replace(SETTINGS, schema=pa.schema([pa.field("v", pa.binary()), pa.field("w", pa.int64(), False)]))
    optional = replace(SETTINGS, schema=a_schema(v="binary", w="int64"))
    rows = prepared([b"x", b"y"])
    assert encoded_bytes(rows, required) == encoded_bytes(rows, optional)


@pytest.mark.parametrize(
    ("count", "columns", "extra"), [(4, 1, 4 * 128 + 1024), (8, 3, 8 * 128 + 3 * 1024), (0, 2, 2048)]
)
def test_the_maximum_size_is_twice_the_memory_and_what_comes_with_rows_and_columns(
    count: int, columns: int, extra: int
) -> None:
    rows = pa.table({"v": pa.array(range(4), pa.int64())})
    assert max_encoded_bytes(rows, count, columns) == 2 * 8 * count + extra
    assert max_encoded_bytes(rows.slice(0, 0), count, columns) == extra


WIDE = replace(SETTINGS, schema=a_schema(v="binary"))


def values_of(widths: Sequence[int]) -> list[bytes]:
    random = np.random.default_rng(0)
    return [random.bytes(width) for width in widths]


def size_of(rows: pa.Table, first: int, count: int, files: FileSettings) -> float:
    """Return the bytes per row of a file with these rows, without the bytes of a file without rows."""
    return (encoded_bytes(rows.slice(first, count), files) - encoded_bytes(rows.slice(0, 0), files)) / count


def test_all_rows_are_measured_if_they_fit_into_a_file() -> None:
    rows = prepared(values_of(range(200)))
    assert measure_row_bytes(rows, np.arange(200), WIDE) == size_of(rows, 0, 200, WIDE)


def test_only_the_rows_to_insert_are_measured() -> None:
    rows = prepared(values_of([10] * 100 + [500] * 100))
    assert measure_row_bytes(rows, np.arange(100), WIDE) == size_of(rows, 0, 100, WIDE)
    assert measure_row_bytes(rows, np.arange(100, 200), WIDE) == size_of(rows, 100, 100, WIDE)


def test_a_sample_of_half_a_row_group_is_taken_from_the_middle() -> None:
    rows = prepared(values_of([10] * 400 + [20] * 400 + [30] * 400))
    half = replace(WIDE, row_group_bytes=2 * rows.nbytes // 10)
    run = int(half.row_group_bytes // 2 * 1_200 // rows.nbytes)
    assert measure_row_bytes(rows, np.arange(1_200), half) == size_of(rows, (1_200 - run) // 2, run, half)


@pytest.mark.parametrize("first", [0, 300, 600])
def test_a_shorter_file_is_measured_at_three_places_and_the_largest_counts(first: int) -> None:
    rows = prepared(values_of([50] * first + [100] * 300 + [50] * (600 - first)))
    found = measure_row_bytes(rows, np.arange(900), replace(WIDE, max_file_bytes=20_000))
    run = round(20_000 / found)
    assert run < 200
    assert found == pytest.approx(size_of(rows, first + 150 - run // 2, run, WIDE), rel=0.01)
    least = measure_row_bytes(rows, np.arange(900), replace(WIDE, max_file_bytes=100))
    assert least == max(size_of(rows, at, 64, WIDE) for at in (0, (900 - 64) // 2, 900 - 64))


def test_a_row_counts_at_least_one_byte() -> None:
    rows = pa.table({RECORD_KEY: ["k"] * 5_000, "v": pa.nulls(5_000, pa.int64())})
    assert measure_row_bytes(rows, np.arange(5_000), replace(SETTINGS, fpp=0.99)) >= 1.0


# --- rows of one partition to file groups ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        ((), [("a", [5, 9, 11, 12, 13], 2), ("b", [7, 3], 2), ("c", [14], 0)]),
        (("a",), [("a", [5, 9], 2), ("b", [7, 3], 2), ("c", [11, 12], 0), ("new-0", [13, 14], 0)]),
    ],
)
def test_updates_go_to_their_files_and_new_rows_fill_small_ones(
    closed: Sequence[str], expected: list[tuple[str, list[int], int]]
) -> None:
    slices = [a_slice("a", 700), a_slice("b", 800), a_slice("c", 799), a_slice("d", 5_000)]
    names = iter(["new-0"])
    buckets = assign_to_files(
        "p",
        slices,
        Tagged(ints(7, 5, 3, 9), ints(1, 0, 1, 0), ints(11, 12, 13, 14), base_rows=ints(70, 50, 30, -1)),
        SIZING,
        lambda: next(names),
        closed_groups=groups(*closed),
    )
    assert shown(buckets) == expected
    assert [each.base for each in buckets] == [each.base for each in slices[:3]] + [None] * (len(expected) - 3)
    positions = [None if each.base_rows is None else each.base_rows.tolist() for each in buckets]
    assert positions == [[50, -1], [70, 30], [], []][: len(expected)]
    assert {each.moved_rows for each in buckets} == {0}


def test_rows_that_leave_come_first_in_their_files() -> None:
    is_leaving = np.array([False, False, True, True, False])
    tagged = Tagged(ints(1, 2, 3, 4, 5), ints(2, 0, 0, 2, 0), ints(), is_leaving=is_leaving)
    buckets = assign_to_files("p", [a_slice("a"), a_slice("b"), a_slice("c")], tagged, SIZING, str)
    assert shown(buckets) == [("a", [3, 2, 5], 3), ("c", [4, 1], 2)]
    assert [(each.moved_rows, each.base_rows) for each in buckets] == [(1, None), (1, None)]


def test_rows_of_a_bucket_index_go_to_the_file_group_of_their_bucket() -> None:
    ids = [f"0000000{bucket}-x" for bucket in (2, 0, 3)]
    slices = [a_slice(each) for each in ids]
    tagged = Tagged(ints(4, 5, 6), ints(1, 0, 1), ints(7, 8, 9, 10), new_buckets=ints(1, 2, 1, 3))
    buckets = assign_to_buckets("p", slices, tagged, HASH, "new-{}".format)
    assert shown(buckets) == [(ids[1], [4, 6], 2), ("new-1", [7, 9], 0), (ids[0], [5, 8], 1), (ids[2], [10], 0)]
    assert [each.base for each in buckets] == [slices[1].base, None, slices[0].base, slices[2].base]


def test_a_slice_without_rows_and_a_slice_of_no_bucket_take_none() -> None:
    slices = [a_slice("f"), a_slice("00000001-x")]
    nothing = Tagged(ints(), ints(), ints(), new_buckets=ints())
    assert assign_to_buckets("p", slices, nothing, HASH, "new-{}".format) == ()
    tagged = Tagged(ints(3), ints(1), ints(4), new_buckets=ints(2))
    found = assign_to_buckets("p", slices, tagged, HASH, "new-{}".format)
    assert shown(found) == [("00000001-x", [3], 1), ("new-2", [4], 0)]


@pytest.mark.parametrize(
    ("version", "options", "merge_on_read", "beside", "fixed"),
    [
        (8, {"index": "BUCKET"}, True, True, False),
        (8, {"index": "BUCKET", "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}, True, True, True),
        (8, {}, True, False, False),
        (8, {"index": "BUCKET"}, False, False, False),
        (6, {"index": "BUCKET"}, True, False, False),
    ],
)
def test_writers_append_beside_each_other_to_the_buckets_of_layout_2(
    version: int, options: Mapping[str, Any], merge_on_read: bool, beside: bool, fixed: bool
) -> None:
    schema = a_schema(id="int64", v="string")
    mode = {name: value for name, value in options.items() if name != "index"}
    table = a_table(schema=schema, version=version, merge_on_read=merge_on_read, index=options.get("index"))
    given = resolve({**table.options.values, **mode})
    job = plan_job(table.context.store, table.snapshot(), given, schema, table.context.ids)
    assert may_append_beside(job) == beside
    made = make_bucket_id(job, HASH, 3, "abcdefgh-0")
    assert made == ("00000003" + FIXED_FILE_ID[8:] if fixed else "00000003-0")


# --- log files --------------------------------------------------------------------------------------------------

APPENDS = AppendRules(takes_logs=True)


def test_the_names_of_a_place_are_those_of_its_slice() -> None:
    place = LogPlace(T2, 3, T1, a_slice("f", logs=[(T1, 1), (T1, 2)]))
    assert place.base_name == f"f_0-0-0_{T1}.parquet"
    assert place.log_names == (f".f_{T1}.log.1_0-0-0", f".f_{T1}.log.2_0-0-0")
    assert (LogPlace().base_name, LogPlace().log_names) == ("", ())
    assert replace(place, file_slice=a_slice("f", None)).base_name == ""
    assert str(log_name(place, "f", T3, "1-2-3")) == f".f_{T2}.log.3_1-2-3"
    assert str(log_name(LogPlace(), "f", T3, "1-2-3")) == f".f_{T3}.log.1_1-2-3"


def test_a_bucket_counts_its_rows_and_knows_what_opened_its_slice() -> None:
    base = a_slice("f").base
    bucket = Bucket("p", "f", base, 7, 9).with_rows(ints(3, 1), ints(2), moved_rows=1, base_rows=ints(5, 6))
    assert (bucket.rows.tolist(), bucket.moved_rows) == ([3, 1, 2], 1)
    assert bucket.base_rows is not None
    assert bucket.base_rows.tolist() == [5, 6]
    assert (bucket.updates, bucket.inserts, bucket.opened_at) == (2, 1, T1)
    assert bucket.file_name == f"f_0-0-0_{T1}.parquet"
    assert replace(bucket, log_place=LogPlace(opened_at=T2)).opened_at == T2
    assert replace(bucket, log_place=LogPlace()).opened_at is None
    fresh = replace(bucket, base=None)
    assert (fresh.opened_at, fresh.file_name) == (None, "f")


@pytest.mark.parametrize(
    ("rules", "closed"),
    [
        (APPENDS, "bf"),
        (replace(APPENDS, compaction_instants=dict.fromkeys(groups("a", "c"), T2)), "abcf"),
        (replace(APPENDS, has_buckets=True), ""),
        (AppendRules(), ""),
    ],
)
def test_slices_without_log_files_take_new_rows(rules: AppendRules, closed: str) -> None:
    slices = [a_slice("b", 50, [(T1, 1)]), a_slice("c"), a_slice("a"), a_slice("d", 2 * MIB), a_slice("f", None)]
    assert rules.closed_groups(slices) == groups(*closed)


@pytest.mark.parametrize(
    ("rules", "logs", "inserts", "appends"),
    [
        (AppendRules(), [(T1, 1)], 0, False),
        (APPENDS, [], 0, True),
        (APPENDS, [], 1, False),
        (APPENDS, [(T1, 1)], 1, True),
        (replace(APPENDS, has_buckets=True), [], 1, True),
    ],
)
def test_rows_are_appended_unless_new_ones_need_a_base_file(
    rules: AppendRules, logs: list[tuple[str, int]], inserts: int, appends: bool
) -> None:
    assert rules.appends_to(a_slice("a", logs=logs), inserts=inserts) == appends


@pytest.mark.parametrize(
    ("logs", "compacting", "expected"),
    [
        ([], {}, LogPlace(T1, 1, T1)),
        ([(T1, 1), (T1, 4), (T2, 9)], {}, LogPlace(T1, 5, T1)),
        ([(T1, 1), (T2, 9)], {"a": T2}, LogPlace(T2, 10, T2, is_compacting=True)),
        ([(T1, 1)], {"a": T3}, LogPlace(T3, 1, T3, is_compacting=True)),
        ([(T1, 1)], {"z": T3}, LogPlace(T1, 2, T1)),
    ],
)
def test_up_to_version_6_a_log_file_is_named_after_its_slice(
    logs: list[tuple[str, int]], compacting: Mapping[str, str], expected: LogPlace
) -> None:
    instants = {FileGroupId("p", each): time for each, time in compacting.items()}
    piece = a_slice("a", logs=logs)
    rules = replace(APPENDS, compaction_instants=instants)
    assert rules.place(piece) == replace(expected, file_slice=piece)
    later = LogPlace(None, 1, T1, piece, is_compacting=expected.is_compacting)
    assert replace(rules, by_commit=True).place(piece) == later
    assert rules.place(None) == LogPlace()


@pytest.mark.parametrize(
    ("rules", "deleting", "merges"),
    [
        ({}, [], False),
        ({"reads_stored": True}, [], True),
        ({"orders_versions": True}, [1, 2], True),
        ({"fills_nulls": True}, [1, 2], True),
        ({"fills_nulls": True, "upserting": [1]}, [2], True),
        ({"orders_versions": True, "upserting": [1, 2]}, [], False),
        ({"reads_stored": True, "merging_of": None}, [], False),
    ],
)
@pytest.mark.parametrize("by_commit", [True, False])
def test_a_place_names_the_logs_that_may_delete_and_how_they_are_merged(
    rules: dict[str, Any], deleting: list[int], merges: bool, by_commit: bool
) -> None:
    piece = a_slice("a", logs=[(T1, 1), (T1, 2)])
    upserting = frozenset(piece.logs[version - 1].path for version in rules.get("upserting", ()))
    given: dict[str, Any] = {"merging_of": lambda of: ("rules of", of), **rules, "upserting": upserting}
    place: Any = replace(APPENDS, by_commit=by_commit, **given).place(piece)
    assert [log.name.version for log in place.deleting_logs] == deleting
    assert place.merging == (("rules of", piece) if merges else None)


@pytest.mark.parametrize(
    ("rules", "logged"),
    [
        (AppendRules(), []),
        (APPENDS, ["b"]),
        (replace(APPENDS, has_buckets=True), ["a", "b"]),
        (replace(APPENDS, has_buckets=True, opens_logs=True), ["a", "b", "new-7"]),
    ],
)
def test_buckets_get_the_places_of_their_slices(rules: AppendRules, logged: list[str]) -> None:
    slices = {5: a_slice("b"), 2: a_slice("a")}
    buckets = make_buckets("p", slices, {5: 1}, {2: 1, 7: 3}, rules, "new-{}".format)
    assert [(at, each.file_id, each.base, each.updates, each.inserts) for at, each in buckets.items()] == [
        (2, "a", slices[2].base, 0, 1),
        (5, "b", slices[5].base, 1, 0),
        (7, "new-7", None, 0, 3),
    ]
    places = {"a": LogPlace(T1, 1, T1, slices[2]), "b": LogPlace(T1, 1, T1, slices[5]), "new-7": LogPlace()}
    found = {each.file_id: each.log_place for each in buckets.values() if each.log_place is not None}
    assert found == {file_id: places[file_id] for file_id in logged}


def test_the_weight_of_a_bucket_is_its_base_file_and_its_rows() -> None:
    base = a_slice("f", 700).base
    assert base is not None
    assert [Bucket("p", "f", base, 2, 3).weight, Bucket("p", "f", None, 2).weight] == [base.size_bytes + 5_120, 2_048]
