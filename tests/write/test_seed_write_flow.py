"""Hudi's write flow, step by step, in the order and the words of the article "Apache Hudi from zero to one: write
flow and operations" (part 3).

A write passes eight steps. Each section below is one of them, and each test is one sentence of the article:

1. **Create the write client**: the options of the caller and the properties of the table become one configuration.
2. **Transform input**: rows become records. A record has a key (record key and partition path), a current location
   and a new location (file group and instant), and data with a rule that merges old and new data.
3. **Start commit**: failed writes are rolled back, then a *requested* action is put on the timeline.
4. **Prepare records**: records of one key are combined, and the index finds the current locations.
5. **Partition records**: each record goes to an update bucket or to an insert bucket; a bucket is the work of one task.
6. **Write to storage**: a marker announces each data file, then a file write handle writes the file.
7. **Update index**: the index knows the new records when readers see them.
8. **Commit changes**: validators and the conflict check decide; then the metadata on the timeline publishes the files.

The last section goes through the article's chapter on upsert, which runs through these steps once more in detail.
The other operations are in test_seed_write_operations.py, the index in tests/index/test_seed_bloom_index.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, ValidationFailedError, WriteConflictError
from lakeformat.config.resolve import resolve
from lakeformat.files.footers import read_key_footer
from lakeformat.storage import LocalStorage
from lakeformat.transaction.hooks import ProposedWrite
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, UnlockedStorage
from tests.helpers.flights import leftovers
from tests.helpers.flow_table import (
    NO_PACKING,
    SCHEMA,
    base_files,
    die,
    new_table,
    places,
    position,
    rows,
    step_of,
    stored,
    timeline_files,
    timeline_json,
    traced,
    write_stats,
    written,
)
from tests.helpers.tables import a_batch, a_table

# --- 1. create the write client -----------------------------------------------------------------------


def test_write_client_reconciles_options_with_table_properties(tmp_path: Path) -> None:
    """Key and partition fields come from the table; an option that contradicts the table is refused."""
    new_table(tmp_path, hive_style=True)
    table = lakeformat.open(tmp_path / "t")
    table.upsert(rows({("x", "a"): 1}))
    assert table.to_arrow(meta_columns=True)["_hoodie_partition_path"].to_pylist() == ["p=x"]
    for option, value in {"recordkey": "v", "partitionpath": "v", "hive_style": False}.items():
        with pytest.raises(InvalidOptionError):
            lakeformat.open(tmp_path / "t", **{option: value})


# --- 2. transform input -------------------------------------------------------------------------------


def test_transform_input_reconciles_the_schema(tmp_path: Path) -> None:
    """Columns are matched by name, narrow types are widened, and a new column is added to the table."""
    table = new_table(tmp_path, {("x", "a"): 1})
    table.upsert(a_batch(new=[0.5], v=pa.array([2], pa.int32()), p="x", id="b"))
    assert table.schema.names == ["id", "p", "v", "new"]
    assert table.schema.field("v").type == pa.int64()
    found = {row["id"]: (row["v"], row["new"]) for row in hudi_rs.assert_same_rows(table)}
    assert found == {"a": (1, None), "b": (2, 0.5)}


def test_transform_input_generates_record_key_and_partition_path(tmp_path: Path) -> None:
    """HoodieKey: the key generator makes both from columns of the row."""
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=["id", "v"], partition_by=["p"])
    table.upsert(rows({("x", "a"): 1}))
    (row,) = hudi_rs.assert_same_rows(table)
    assert (row["_hoodie_record_key"], row["_hoodie_partition_path"]) == ("id:a,v:1", "x")


def test_transform_input_locations_are_a_file_group_and_an_instant(tmp_path: Path) -> None:
    """An update keeps its file group and gets the new instant; an insert gets a file group of its own."""
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    (current,) = places(table).values()
    result = table.upsert(rows({("x", "a"): 2, ("x", "b"): 2}))
    new = places(table)
    assert new["a"] == (current[0], result.instant_time)
    assert new["b"][1] == result.instant_time
    assert new["b"][0] != current[0]


def test_transform_input_carries_the_rule_that_merges_old_and_new_data(tmp_path: Path) -> None:
    """With an ordering field the row with the greater value stays; without one the later commit wins."""
    by_event = a_table(tmp_path / "event", schema=SCHEMA, partition_by="p", ordering="v")
    by_commit = a_table(tmp_path / "commit", schema=SCHEMA, partition_by="p")
    for table, winner in ((by_event, 9), (by_commit, 1)):
        table.upsert(rows({("x", "a"): 9}))
        table.upsert(rows({("x", "a"): 1}))
        assert stored(table) == [("x", "a", winner)]


# --- 3. start commit ----------------------------------------------------------------------------------


def test_start_commit_rolls_back_failed_writes_first(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    before = base_files(table)
    die(table, lambda call: call.name == "open_output", lambda dead: dead.upsert(rows({("x", "a"): 2})))
    (failed,) = {name.split(".")[0] for name in timeline_files(table)} - {table.history()[0].instant_time}
    (torn,) = base_files(table) - before

    live, calls = traced(table)
    result = live.upsert(rows({("x", "a"): 3}))
    paths = written(calls)
    assert position(paths, ".rollback.requested") < position(paths, f"{result.instant_time}.commit.requested")
    (rollback,) = [name for name in timeline_files(table) if name.endswith(".rollback")]
    assert failed < rollback < f"{result.instant_time}.commit"
    assert not [name for name in timeline_files(table) if name.startswith(failed)]
    assert torn not in base_files(table)
    assert stored(table) == [("x", "a", 3)]


def test_start_commit_puts_the_requested_action_on_the_timeline_before_any_file(tmp_path: Path) -> None:
    for operation in ("insert", "upsert", "bulk_insert", "delete", "overwrite"):
        table = new_table(tmp_path / operation, {("x", "a"): 1}, **NO_PACKING)
        live, calls = traced(table)
        result = getattr(live, operation)(rows({("x", "a"): 2}))
        paths = written(calls)
        requested = next(at for at, path in enumerate(paths) if path.endswith("commit.requested"))
        assert result.instant_time in paths[requested]
        assert requested < position(paths, ".parquet")


# --- 4. prepare records -------------------------------------------------------------------------------


def test_prepare_records_merges_records_of_one_key_into_one(tmp_path: Path) -> None:
    """The key is record key and partition path: the same record key in two partitions is two records."""
    table = new_table(tmp_path)
    parts = [rows({("x", "a"): v, ("y", "a"): v}) for v in (1, 3, 2)]
    report = table.upsert(pa.concat_tables(parts)).report
    assert (report["rows"]["incoming"], report["rows"]["inserted"]) == (6, 2)
    assert stored(table) == [("x", "a", 2), ("y", "a", 2)]


def test_prepare_records_deduplicates_inserts_only_if_configured(tmp_path: Path) -> None:
    twice = pa.concat_tables([rows({("x", "a"): 1}), rows({("x", "a"): 2})])
    for combine, values in ((False, [1, 2]), (True, [2])):
        table = new_table(tmp_path / str(combine), **{"hoodie.combine.before.insert": combine})
        table.insert(twice)
        assert [v for _, _, v in stored(table)] == values


def test_prepare_records_finds_current_locations_through_the_index(tmp_path: Path) -> None:
    """Two keys of partition x: one file is there, and its key range rules out the key that is new."""
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    tag = step_of(table.upsert(rows({("x", "a"): 2, ("x", "c"): 2})), "tag")
    assert (tag["keys"], tag["files"], tag["after_ranges"]) == (2, 1, 1)


# --- 5. partition records -----------------------------------------------------------------------------


def test_partition_records_puts_updates_and_inserts_into_buckets_of_their_own(tmp_path: Path) -> None:
    """Two update buckets and two insert buckets. A bucket is the work of one task, whose number is in the file name."""
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, **NO_PACKING)
    report = table.upsert(rows({("x", "a"): 2, ("x", "new"): 2, ("y", "b"): 2, ("z", "new"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"]) == (2, 2)
    tokens = {row["_hoodie_file_name"].split("_")[1] for row in table.to_arrow(meta_columns=True).to_pylist()}
    assert len(tokens) == 4


# --- 6. write to storage ------------------------------------------------------------------------------


def test_write_to_storage_announces_each_file_by_a_marker_of_its_kind(tmp_path: Path) -> None:
    """Markers are in .hoodie/.temp/<instant>/, named after the file and CREATE or MERGE. The commit removes them."""
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    live, calls = traced(table, **NO_PACKING)
    result = live.upsert(rows({("x", "a"): 2, ("x", "b"): 2}))
    paths = written(calls)
    markers = {path for path in paths if path.startswith(f".hoodie/.temp/{result.instant_time}/")}
    assert sorted(path.rpartition(".")[2] for path in markers) == ["CREATE", "MERGE"]
    for marker in markers:
        file = marker.removeprefix(f".hoodie/.temp/{result.instant_time}/").rpartition(".marker.")[0]
        assert paths.index(marker) < paths.index(file)
    assert not Path(tmp_path, "t/.hoodie/.temp", result.instant_time).exists()


def test_write_to_storage_markers_of_a_dead_write_serve_its_rollback(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    die(table, lambda call: call.name == "open_output", lambda dead: dead.upsert(rows({("x", "a"): 2})))
    assert len(list(Path(tmp_path, "t/.hoodie/.temp").rglob("*.marker.MERGE"))) == 1
    table.upsert(rows({("x", "a"): 3}))
    assert leftovers(LocalStorage(str(tmp_path / "t"))) == []
    assert stored(table) == [("x", "a", 3)]


# --- 7. update index ----------------------------------------------------------------------------------


def test_update_index_knows_every_key_when_the_commit_is_visible(tmp_path: Path) -> None:
    """The bloom index is in the footers of the base files, so it is written with the data: key range and filter."""
    table = new_table(tmp_path)
    for numbers in (range(3), range(2, 6)):
        table.upsert(rows({("x", f"k{number}"): 1 for number in numbers}))
        (file,) = table.snapshot().files
        footer = read_key_footer(table.context.storage, file)
        bloom = footer.bloom(table.context.storage)
        assert bloom is not None
        assert (footer.minimum, footer.maximum, bloom.used) == ("k0", f"k{numbers[-1]}", numbers[-1] + 1)


# --- 8. commit changes --------------------------------------------------------------------------------


def test_commit_changes_runs_pre_commit_validators_before_readers_see_the_write(tmp_path: Path) -> None:
    """A validator sees the files of the write; readers do not. If it refuses, the files are deleted."""
    table = new_table(tmp_path, {("x", "a"): 1})
    files, timeline = base_files(table), timeline_files(table)
    seen = []

    def no_more_than_two(write: ProposedWrite) -> bool:
        new = base_files(table) - files
        seen.append((len(new), [stat.path for stat in write.stats] == sorted(new), stored(table)))
        return write.after.count() <= 2

    with pytest.raises(ValidationFailedError, match="no_more_than_two refused the write: it returned False"):
        table.upsert(rows({("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2}), validators=[no_more_than_two])
    assert seen == [(1, True, [("x", "a", 1)])]
    assert base_files(table) == files
    assert [name for name in timeline_files(table) if ".rollback" not in name] == timeline
    assert stored(table) == [("x", "a", 1)]
    table.upsert(rows({("x", "a"): 2, ("x", "b"): 2}), validators=[no_more_than_two])
    assert stored(table) == [("x", "a", 2), ("x", "b", 2)]


def test_commit_changes_checks_for_conflicts_with_concurrent_writers(tmp_path: Path) -> None:
    """Another writer changes the same file group during our write, on a storage without locks."""

    table = new_table(tmp_path, {("x", "a"): 1})
    theirs = iter([rows({("x", "a"): 2})])

    def another_writer(call: Call) -> None:
        if call.name == "open_output" and (batch := next(theirs, None)) is not None:
            Table(UnlockedStorage(str(tmp_path / "t"))).upsert(batch)

    once = resolve({"lakeformat.write.retries": 0})
    live = Table(FaultyStorage(UnlockedStorage(str(tmp_path / "t")), meanwhile=another_writer), once)
    with pytest.raises(WriteConflictError, match=r"overlaps commit \d+ in 1 file group"):
        live.upsert(rows({("x", "a"): 3}))
    assert stored(table) == [("x", "a", 2)]


def test_commit_changes_saves_commit_metadata_on_the_timeline(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    instant = table.upsert(rows({("x", "a"): 2})).instant_time
    metadata = timeline_json(table, instant, ".commit")
    assert metadata["operationType"] == "UPSERT"
    assert [field["name"] for field in json.loads(metadata["extraMetadata"]["schema"])["fields"]] == SCHEMA.names
    ((partition, (stat,)),) = metadata["partitionToWriteStats"].items()
    (file,) = table.snapshot().by_partition["x"]
    assert (partition, stat["path"], stat["fileSizeInBytes"]) == ("x", file.path, file.size_bytes)
    assert table.history()[0].instant_time == instant


def test_commit_changes_reconciles_files_with_the_write_statuses(tmp_path: Path) -> None:
    """A file of the same instant that no write status names, as a lost task attempt leaves it, is not read."""
    table = new_table(tmp_path, {("x", "a"): 1})
    (file,) = table.snapshot().files
    lost = file.path.replace(file.name.file_id, "10000000-0000-0000-0000-000000000000-0")
    Path(tmp_path, "t", lost).write_bytes(Path(tmp_path, "t", file.path).read_bytes())
    assert [one.path for one in table.snapshot().files] == [file.path]
    table.upsert(rows({("x", "b"): 2}))
    assert table.to_arrow(columns=["id"])["id"].to_pylist() == ["a", "b"]


# --- upsert into a copy-on-write table ----------------------------------------------------------------
#
# 1. The write client starts the commit: a requested action.


def test_upsert_action_is_requested_then_inflight_then_completed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    live, calls = traced(table)
    instant = live.upsert(rows({("x", "a"): 1})).instant_time
    paths = written(calls)
    states = [path for path in paths if path.startswith(f".hoodie/{instant}")]
    assert states == [f".hoodie/{instant}{suffix}" for suffix in (".commit.requested", ".inflight", ".commit")]
    assert paths.index(states[1]) < position(paths, ".parquet") < paths.index(states[2])


# 2. The records are prepared. Now it is known which records are in the table.


def test_upsert_knows_which_records_are_in_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2, ("y", "a"): 2})).report
    assert report["rows"] == {"incoming": 3, "inserted": 2, "updated": 1, "deleted": 0}


# 3. The workload profile counts updates and inserts in each partition, and is saved in the inflight action. From it,
#    update buckets and insert buckets are made. Inserts fill small files first.


def test_upsert_saves_the_workload_profile_in_the_inflight_action(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, **NO_PACKING)
    first = table.history()[0].instant_time
    (group,) = {file_id for file_id, _ in places(table).values()}
    changes = {("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2, ("y", "d"): 2, ("y", "e"): 2}
    instant = table.upsert(rows(changes)).instant_time
    profile = timeline_json(table, instant, ".inflight")
    counts = {
        (path, stat["fileId"]): (stat["prevCommit"], stat["numUpdateWrites"], stat["numInserts"])
        for path, stats in profile["partitionToWriteStats"].items()
        for stat in stats
    }
    assert counts == {("x", group): (first, 2, 0), ("x", ""): ("null", 0, 1), ("y", ""): ("null", 0, 2)}
    assert profile["operationType"] == "UPSERT"


def test_upsert_makes_one_update_bucket_for_each_updated_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path, **NO_PACKING)
    for start in (0, 10, 20):
        table.insert(rows({("x", f"k{number:02}"): 1 for number in range(start, start + 10)}))
    before = places(table)
    instant = table.upsert(rows({("x", f"k{number:02}"): 2 for number in (1, 2, 21)})).instant_time
    (stats,) = timeline_json(table, instant, ".commit")["partitionToWriteStats"].values()
    assert {stat["fileId"]: stat["numUpdateWrites"] for stat in stats} == {before["k01"][0]: 2, before["k21"][0]: 1}


def test_upsert_file_group_of_a_small_file_becomes_an_update_bucket_for_inserts(tmp_path: Path) -> None:
    """By default a base file below 100 MB is small."""
    table = new_table(tmp_path, {("x", "a"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"], report["rows"]["inserted"]) == (1, 0, 2)
    assert len({file_id for file_id, _ in places(table).values()}) == 1
    assert stored(table) == [("x", "a", 1), ("x", "b", 2), ("x", "c", 2)]


def test_upsert_without_a_small_file_puts_inserts_into_a_new_file_group(tmp_path: Path) -> None:
    """A file is small if its size is below hoodie.parquet.small.file.limit."""
    table = new_table(tmp_path, {("x", "a"): 1})
    size = table.snapshot().files[0].size_bytes
    for limit, created in ((size, 1), (size + 1, 0)):
        writer = lakeformat.open(tmp_path / "t", **{"hoodie.parquet.small.file.limit": limit})
        report = writer.upsert(rows({("x", f"limit-{limit}"): 2})).report
        assert report["files"]["created"] == created


# 4. File write handles write the buckets: the merge handle for an update bucket, the create handle for an insert
#    bucket. An executor reads and writes as producer and consumer.


def test_upsert_merge_handle_writes_a_new_file_slice_of_the_same_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    (old,) = base_files(table)
    instant = table.upsert(rows({("x", "b"): 2})).instant_time
    (new,) = base_files(table) - {old}
    assert new.split("_")[0] == old.split("_")[0]
    assert new.endswith(f"_{instant}.parquet")
    assert pq.read_table(tmp_path / "t" / new, columns=["id", "v"]).to_pylist() == [
        {"id": "a", "v": 1},
        {"id": "b", "v": 2},
    ]
    assert stored(table) == [("x", "a", 1), ("x", "b", 2)]


def test_upsert_create_handle_writes_a_new_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    (old,) = base_files(table)
    instant = table.upsert(rows({("x", "b"): 2})).instant_time
    (new,) = base_files(table) - {old}
    assert new.split("_")[0] != old.split("_")[0]
    (stats,) = timeline_json(table, instant, ".commit")["partitionToWriteStats"].values()
    assert [(stat["path"], stat["prevCommit"], stat["numInserts"]) for stat in stats] == [(new, "null", 1)]


def test_upsert_executor_passes_on_every_batch_in_order(tmp_path: Path) -> None:
    """Another thread reads row groups ahead. No row group is lost, and they keep their order."""
    small_row_groups = {"lakeformat.parquet.row.group.rows": 7}
    table = new_table(tmp_path, {("x", f"k{number:03}"): 1 for number in range(100)}, **small_row_groups)
    (file,) = table.snapshot().files
    assert pq.read_metadata(tmp_path / "t" / file.path).num_row_groups == 15
    table.upsert(rows({("x", f"k{number:03}"): 2 for number in (0, 50, 99, 100)}))
    wanted = [(f"k{number:03}", 2 if number in (0, 50, 99, 100) else 1) for number in range(101)]
    assert [(row["id"], row["v"]) for row in table.to_arrow(columns=["id", "v"]).to_pylist()] == wanted


# 5. The handles return write statuses. The driver sums them up; without errors it completes the action.


def test_upsert_sums_up_the_write_statuses(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, **NO_PACKING)
    result = table.upsert(rows({("x", "a"): 2, ("x", "c"): 2, ("y", "d"): 2}))
    stats = write_stats(table, result.instant_time)
    sums = {name: sum(stat[name] for stat in stats) for name in ("numInserts", "numUpdateWrites", "totalWriteErrors")}
    assert sums == {"numInserts": 2, "numUpdateWrites": 1, "totalWriteErrors": 0}
    sizes = sum(Path(tmp_path, "t", stat["path"]).stat().st_size for stat in stats)
    assert sum(stat["totalWriteBytes"] for stat in stats) == sizes == result.report["files"]["bytes"]
    assert (result.report["rows"]["inserted"], result.report["rows"]["updated"]) == (2, 1)


def test_upsert_with_a_write_error_completes_no_action(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    timeline, files = timeline_files(table), base_files(table)
    fault = Fault(lambda _, call: call.name == "open_output", Mode.TORN, kills=False)
    with pytest.raises(lakeformat.StorageError):
        traced(table, fault)[0].upsert(rows({("x", "a"): 2}))
    completed = {name for name in timeline_files(table) if name.endswith(".commit")}
    assert completed == {name for name in timeline if name.endswith(".commit")}
    assert base_files(table) == files
    assert stored(table) == [("x", "a", 1)]


# --- upsert into a merge-on-read table ----------------------------------------------------------------


def test_upsert_into_a_merge_on_read_table_appends_to_log_files(tmp_path: Path) -> None:
    """The flow is the same, but other handles write: updates are appended to log files."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, merge_on_read=True)
    files = base_files(table)
    table.upsert(rows({("x", "a"): 2}))
    assert base_files(table) == files
    assert stored(table) == [("x", "a", 2), ("x", "b", 1)]
