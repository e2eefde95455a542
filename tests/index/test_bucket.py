"""The bucket index against a table of Hudi, against itself, and against files that contradict the settings."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.codec.key_fields import FieldRule
from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidOptionError, UnsupportedTableError, WriteConflictError
from lakeformat.index.bucket import bucket_ids, bucket_of, find_bucket_count, has_bucket_files
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage import LocalStorage, MemoryStorage
from lakeformat.write.intake import create_table
from lakeformat.write.workload.buckets import derive_file_id
from tests.helpers import hudi_rs
from tests.helpers.commit_files import edit_commit
from tests.helpers.examples import examples
from tests.helpers.faulty import Call, FaultyStorage, UnlockedStorage
from tests.helpers.fixture_tables import unpack
from tests.helpers.flights import open_at
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", part="string", v="int64")
Rows = dict[tuple[str, str], int]


def bucketed(path: Path | str, buckets: int = 4, **options: Any) -> Table:
    asked = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": buckets, **options}
    if (Path(path) / ".hoodie").exists():
        return lakeformat.open(path, **asked)
    return lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", **asked)


def rows(held: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "part": p, "v": v} for (p, i), v in held.items()], SCHEMA)


def read_rows(table: Table) -> Rows:
    listed = hudi_rs.assert_same_rows(table)
    found = {(row["part"], row["id"]): row["v"] for row in listed}
    assert len(found) == len(listed), "a record key is doubled"
    return found


def assert_one_file_a_bucket(table: Table, buckets: int, rule: FieldRule = FieldRule.HUDI_1) -> None:
    for files in table.snapshot().by_partition.values():
        numbers = [bucket_of(file.name.file_id) for file in files]
        assert len(set(numbers)) == len(numbers)
        for file, number in zip(files, numbers, strict=True):
            with table.context.storage.open_input(file.path) as source:
                keys = pq.read_table(source, columns=[RECORD_KEY])[RECORD_KEY]
            assert set(bucket_ids(keys, ["id"], buckets, rule).tolist()) <= {number}


def test_hudi_bucket_files_hold_the_keys_of_their_bucket(tmp_path: Path) -> None:
    files = sorted(unpack("hudi_mor_v6/mor6_bucket_index", tmp_path).glob("*.parquet"))
    assert len(files) == 2
    for file in files:
        keys = pq.read_table(file, columns=[RECORD_KEY])[RECORD_KEY]
        assert set(bucket_ids(keys, ["id"], 2, FieldRule.HUDI_1).tolist()) == {bucket_of(file.name.split("_")[0])}


IDS = st.text(st.sampled_from("ab:,ü1"), min_size=1, max_size=4)
BATCHES = st.dictionaries(st.tuples(st.sampled_from("pq"), IDS), st.integers(0, 9), max_size=8)
STEPS = st.lists(st.tuples(st.sampled_from(["upsert", "delete", "insert", "bulk_insert", "overwrite"]), BATCHES))


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, buckets=st.integers(1, 5))
def test_any_writes_keep_every_key_in_its_bucket(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Rows]], buckets: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "bucketed"
    table, model = bucketed(path, buckets), Rows()
    for operation, given_rows in steps:
        only_new = operation in {"insert", "bulk_insert"}
        batch = {key: value for key, value in given_rows.items() if not (only_new and key in model)}
        getattr(table, operation)(rows(batch))
        if operation == "overwrite":
            model = batch
        elif operation == "delete":
            model = {key: value for key, value in model.items() if key not in batch}
        else:
            model = model | batch
        table = bucketed(path, buckets)
        assert_one_file_a_bucket(table, buckets)
    assert read_rows(table) == model


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_insert_goes_to_the_file_of_its_bucket_without_look_up(operation: str, tmp_path: Path) -> None:
    table = bucketed(tmp_path / "t")
    numbers = range(100)
    table.upsert(rows({("p", f"k{n}"): 0 for n in numbers}))
    before = {file.name.file_id for file in table.snapshot().files}
    getattr(table, operation)(rows({("p", f"k{n}"): 1 for n in numbers}))
    assert {file.name.file_id for file in table.snapshot().files} == before
    assert table.to_arrow().num_rows == 200
    assert_one_file_a_bucket(table, 4)
    assert table.upsert(rows({("p", f"k{n}"): 2 for n in numbers})).report["rows"]["updated"] == 200


def test_hash_field_can_be_one_of_the_key_fields(tmp_path: Path) -> None:
    asked = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 8,
        "hoodie.bucket.index.hash.field": "part",
    }
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key=["id", "part"], **asked)
    table.upsert(rows({(p, f"k{n}"): n for p in "pq" for n in range(50)}))
    by_file = defaultdict(set)
    for row in hudi_rs.assert_same_rows(table):
        by_file[row["_hoodie_file_name"]].add(row["part"])
    assert sorted(map(sorted, by_file.values())) == [["p"], ["q"]]
    table.upsert(rows({(p, f"k{n}"): -n for p in "pq" for n in range(50)}))
    assert sorted(table.to_arrow()["v"].to_pylist()) == sorted([-n for n in range(50)] * 2)


def test_different_number_of_buckets_is_refused(tmp_path: Path) -> None:
    table = bucketed(tmp_path / "t", 4)
    batch = rows({("p", f"k{n}"): 0 for n in range(100)})
    table.upsert(batch)
    for buckets, said in (
        (2, r"belongs to bucket [23], but hoodie.bucket.index.num.buckets is 2"),
        (8, "other buckets"),
    ):
        for operation in ("upsert", "insert", "bulk_insert"):
            with pytest.raises(InvalidOptionError, match=said):
                getattr(bucketed(tmp_path / "t", buckets), operation)(batch)
    assert len(table.history()) == 1


def test_bucket_index_on_other_file_names_or_a_doubled_bucket_is_refused(tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "plain", SCHEMA, record_key="id", partition_by="part")
    open_at(LocalStorage(str(tmp_path / "plain")), "ids").upsert(rows({("p", "a"): 1}))
    with pytest.raises(UnsupportedTableError, match=r"belongs to no bucket: the table was not written with"):
        bucketed(tmp_path / "plain").upsert(rows({("p", "a"): 1}))

    table = bucketed(tmp_path / "t", 1)
    table.upsert(rows({("p", "a"): 1}))
    (file,) = table.snapshot().files
    odd = file.name.file_id.replace("0" * 8, "c" * 8, 1)
    (commit,) = (tmp_path / "t/.hoodie").glob("*.commit")
    edit_commit(commit, lambda text: text.replace(file.name.file_id, odd))
    path = tmp_path / "t" / file.path
    path.rename(path.with_name(path.name.replace(file.name.file_id, odd)))
    shutil.rmtree(tmp_path / "t/.hoodie/.lakeformat/index")
    for operation, batch in [("upsert", {("p", "a"): 2}), ("insert", {("p", "b"): 2})]:
        with pytest.raises(UnsupportedTableError, match="belongs to no bucket"):
            getattr(table, operation)(rows(batch))


MANY: Rows = {("p", f"k{n}"): 0 for n in range(60)} | {("q", f"k{n}"): 0 for n in range(5)}
MORE: Rows = {("p", f"k{n}"): 1 for n in range(50, 70)} | {("r", "new"): 1}


def run_merge(table: Table, batch: pa.Table) -> None:
    table.merge(batch).when_matched_update().when_not_matched_insert().execute()


WAYS = {
    "upsert": Table.upsert,
    "insert": Table.insert,
    "bulk_insert": Table.bulk_insert,
    "insert_overwrite": Table.insert_overwrite,
    "merge": run_merge,
}


@pytest.mark.parametrize("way", WAYS)
def test_write_without_index_option_keeps_recognisable_buckets(way: str, tmp_path: Path) -> None:
    bucketed(tmp_path / "t", 6).upsert(rows(MANY))
    forgetful = lakeformat.open(tmp_path / "t")
    WAYS[way](forgetful, rows(MORE))
    assert_one_file_a_bucket(forgetful, 6)
    assert bucketed(tmp_path / "t", 6).upsert(rows(MORE)).report["files"]["created"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_write_of_other_files_among_buckets_is_refused(way: str, tmp_path: Path) -> None:
    said = r"are buckets, and new ones must be, too; set hoodie\.index\.type=BUCKET with the hoodie\.bucket"
    of_one = bucketed(tmp_path / "one", 1)  # Any number of buckets would fit.
    of_one.upsert(rows(MANY))
    of_six = bucketed(tmp_path / "six", 6)
    of_six.upsert(rows(MANY))
    few = bucketed(tmp_path / "few", 6)
    few.upsert(rows({("p", "a"): 1, ("p", "b"): 1}))
    for table, options in (
        (of_one, {}),
        (few, {}),
        (of_six, {"hoodie.index.type": "SIMPLE"}),
        (of_six, {"hoodie.index.type": "GLOBAL_BLOOM"}),
        (of_six, {"hoodie.bucket.index.num.buckets": 12}),
    ):
        before = read_rows(table)
        with pytest.raises(InvalidOptionError, match=said):
            WAYS[way](lakeformat.open(table.context.storage.location, **options), rows(MORE))
        assert read_rows(table) == before
        assert len(table.history()) == 1


def test_file_ids_of_other_indexes_never_look_like_buckets() -> None:
    ids = [derive_file_id("w", task, index) for task in range(100) for index in range(100)]
    assert {bucket_of(each) for each in ids} == {None}
    assert len(set(ids)) == len(ids)


def test_write_without_new_file_groups_needs_no_index_option(tmp_path: Path) -> None:
    table = bucketed(tmp_path / "t", 1)
    table.upsert(rows(MANY))
    plain = lakeformat.open(tmp_path / "t")
    plain.delete(rows({("p", "k1"): 0}))
    plain.delete(where="id = 'k2'")
    plain.update({"v": 7}, where="id = 'k3'")
    plain.merge(rows({("p", "k4"): 8})).when_matched_update().execute()
    assert len(table.to_arrow()) == len(MANY) - 3  # k2 was in both partitions.
    assert_one_file_a_bucket(table, 1)
    plain.overwrite(rows(MORE))
    assert {bucket_of(file.name.file_id) for file in plain.snapshot().files} == {None}
    plain.upsert(rows(MANY))
    assert read_rows(plain) == MORE | MANY


@settings(max_examples=examples(25))
@given(
    buckets=st.integers(2, 40),
    ids=st.lists(st.text(max_size=6), min_size=1, max_size=120, unique=True),
)
def test_inferred_number_of_buckets_is_right(buckets: int, ids: list[str]) -> None:
    keys = {"recordkey": "id", "partitionpath": "part", "name": "t"}
    asked = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": buckets}
    table = Table(MemoryStorage(), resolve({**keys, **asked}))
    create_table(table.context.store, table.options, SCHEMA, table.context.clock)
    table.upsert(rows({("p", f"k{id_}"): 0 for id_ in ids}))
    assert find_bucket_count(table.context.storage, table.snapshot(), ["id"]) in {buckets, None}


def test_hash_field_outside_the_key_is_refused(tmp_path: Path) -> None:
    table = bucketed(tmp_path / "t", **{"hoodie.bucket.index.hash.field": "v"})
    with pytest.raises(InvalidOptionError, match="names 'v', which is not a record key field; use id"):
        table.upsert(rows({("p", "a"): 1}))


def test_a_merge_keeps_every_key_in_its_bucket(tmp_path: Path) -> None:
    table = bucketed(tmp_path / "t", 2)
    table.upsert(rows({("p", f"k{n}"): 0 for n in range(20)}))
    source = rows({("p", f"k{n}"): 1 for n in range(10, 30)} | {("q", f"k{n}"): 1 for n in range(5)})
    table.merge(source).when_matched_update().when_not_matched_insert().execute()
    wanted = {("p", f"k{n}"): int(n >= 10) for n in range(30)} | {("q", f"k{n}"): 1 for n in range(5)}
    assert read_rows(table) == wanted
    assert_one_file_a_bucket(table, 2)


def test_two_writers_do_not_open_one_bucket_twice(tmp_path: Path) -> None:
    bucketed(tmp_path / "t", 1)
    asked = resolve(
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1, "lakeformat.write.retries": 0}
    )
    theirs, waiting = {("p", "theirs"): 1}, [True]

    def another(call: Call) -> None:
        if waiting and call.name == "open_output":
            waiting.clear()
            Table(UnlockedStorage(str(tmp_path / "t")), asked).insert(rows(theirs))

    ours = Table(FaultyStorage(UnlockedStorage(str(tmp_path / "t")), meanwhile=another), asked)
    with pytest.raises(WriteConflictError, match=r"opened the same bucket.*run the write again"):
        ours.upsert(rows({("p", "ours"): 1}))
    assert not waiting
    assert read_rows(lakeformat.open(tmp_path / "t")) == theirs


@pytest.mark.parametrize(
    ("ids", "are_buckets"),
    [
        ([f"86783146-62b7-434b-bc96-064e49830754-{number}" for number in range(6)], False),
        ([f"86783146-62b7-434b-bc96-{number:012}-0" for number in range(6)], True),
        ([f"0000000{number}-62b7-434b-bc96-064e49830754-0" for number in range(2)], True),
    ],
)
def test_files_of_one_random_id_are_no_buckets(ids: list[str], are_buckets: bool) -> None:
    """Hudi gives all files of one task the same random id, with a number after it. It may begin with eight digits."""
    names = [BaseFileName.parse(f"{file_id}_0-1-0_20260101000000000.parquet") for file_id in ids]
    slices = [FileSlice(FileGroupId("", name.file_id), name.instant_time, BaseFile("", name, 1)) for name in names]
    assert has_bucket_files(slices) == are_buckets
