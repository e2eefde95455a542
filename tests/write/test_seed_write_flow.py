"""The write flow step by step, as the article "Apache Hudi from zero to one: write flow and operations" tells it.

Its other operations stand in test_seed_write_operations.py.

============================================  =========================================================================
step of the article                           test
============================================  =========================================================================
create the write client                       test_write_client_reconciles_options_with_the_table_s_properties
transform input: schema                       test_transform_input_reconciles_the_schema
transform input: key generator                test_transform_input_makes_record_key_and_partition_path
transform input: locations                    test_transform_input_keeps_the_current_location_and_gives_a_new_one
transform input: payload, merger              test_transform_input_carries_the_rule_that_merges_old_and_new
start commit: failed writes                   test_start_commit_rolls_back_failed_writes_first
start commit: requested                       test_start_commit_puts_the_requested_action_before_any_file
prepare records: deduplication                test_prepare_records_combines_rows_of_one_key
prepare records: as configured                test_prepare_records_combines_inserts_only_if_asked
prepare records: index                        test_prepare_records_finds_current_locations_through_the_index
partition records: buckets                    test_partition_records_gives_updates_and_inserts_buckets_of_their_own
write to storage: markers                     test_write_storage_announces_files_by_markers_of_their_kind
write to storage: rollback by markers         test_write_storage_leaves_markers_of_a_dead_write_to_the_rollback
update index                                  test_update_index_is_done_when_the_commit_shows
commit changes: pre-commit validators         test_commit_changes_asks_the_validators_before_anything_shows
commit changes: conflicts                     test_commit_changes_checks_for_concurrent_writers
commit changes: metadata                      test_commit_changes_saves_the_metadata_on_the_timeline
commit changes: write statuses and markers    test_commit_changes_reconciles_files_with_the_write_statuses
upsert 1: requested                           test_upsert_goes_requested_inflight_completed
upsert 2: records to write                    test_upsert_knows_which_records_are_in_the_table
upsert 3: workload profile                    test_upsert_saves_the_workload_profile_inflight
upsert 3: update buckets                      test_upsert_makes_each_updated_file_group_one_update_bucket
upsert 3: small files                         test_partition_records_small_files_become_update_buckets
upsert 3: no small file                       test_partition_records_without_small_files_open_a_new_file_group
upsert 4: merge handle                        test_upsert_merge_handle_makes_a_new_file_slice_of_the_group
upsert 4: create handle                       test_upsert_create_handle_makes_a_new_file_group
upsert 4: producer and consumer               test_upsert_executor_passes_every_batch_on_in_order
upsert 5: write statuses                      test_upsert_sums_the_write_statuses_up
upsert 5: errors                              test_upsert_with_an_error_completes_nothing
upsert on merge-on-read                       test_upsert_to_a_merge_on_read_table_appends_to_log_files
============================================  =========================================================================
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, ValidationFailedError, WriteConflictError
from lakeformat.files.footers import read_footer
from lakeformat.storage import LocalStorage
from lakeformat.transaction.validators import ProposedWrite
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode
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
    stored,
    timeline_files,
    timeline_json,
    traced,
    written,
)

# --- create the write client --------------------------------------------------------------------------


def test_write_client_reconciles_options_with_the_table_s_properties(tmp_path: Path) -> None:
    new_table(tmp_path, hive_style=True)
    table = lakeformat.open(tmp_path / "t")  # Key and partition fields come from the table.
    table.upsert(rows({("x", "a"): 1}))
    assert table.to_arrow(meta_columns=True)["_hoodie_partition_path"].to_pylist() == ["p=x"]
    for option, value in {"recordkey": "v", "partitionpath": "v", "hive_style": False}.items():
        with pytest.raises(InvalidOptionError):
            lakeformat.open(tmp_path / "t", **{option: value})


# --- transform input ----------------------------------------------------------------------------------


def test_transform_input_reconciles_the_schema(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    table.upsert(pa.table({"new": [0.5], "v": pa.array([2], pa.int32()), "p": ["x"], "id": ["b"]}))
    assert table.schema.names == ["id", "p", "v", "new"]
    assert table.schema.field("v").type == pa.int64()
    found = {row["id"]: (row["v"], row["new"]) for row in hudi_rs.assert_same_rows(table)}
    assert found == {"a": (1, None), "b": (2, 0.5)}


def test_transform_input_makes_record_key_and_partition_path(tmp_path: Path) -> None:
    keys = {"record_key": ["id", "v"], "partition_by": ["p"]}
    table = lakeformat.create(tmp_path / "t", SCHEMA, **keys)
    table.upsert(rows({("x", "a"): 1}))
    (row,) = hudi_rs.assert_same_rows(table)
    assert (row["_hoodie_record_key"], row["_hoodie_partition_path"]) == ("id:a,v:1", "x")


def test_transform_input_keeps_the_current_location_and_gives_a_new_one(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    (first,) = places(table).values()
    result = table.upsert(rows({("x", "a"): 2, ("x", "b"): 2}))
    after = places(table)
    assert after["a"] == (first[0], result.instant_time)
    assert after["b"][1] == result.instant_time
    assert after["b"][0] != first[0]


def test_transform_input_carries_the_rule_that_merges_old_and_new(tmp_path: Path) -> None:
    by_event = lakeformat.create(tmp_path / "event", SCHEMA, record_key="id", partition_by="p", ordering="v")
    by_commit = lakeformat.create(tmp_path / "commit", SCHEMA, record_key="id", partition_by="p")
    for table, kept in ((by_event, 9), (by_commit, 1)):
        table.upsert(rows({("x", "a"): 9}))
        table.upsert(rows({("x", "a"): 1}))
        assert stored(table) == [("x", "a", kept)]


# --- start commit -------------------------------------------------------------------------------------


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


def test_start_commit_puts_the_requested_action_before_any_file(tmp_path: Path) -> None:
    for operation in ("insert", "upsert", "bulk_insert", "delete", "overwrite"):
        table = new_table(tmp_path / operation, {("x", "a"): 1}, **NO_PACKING)
        live, calls = traced(table)
        result = getattr(live, operation)(rows({("x", "a"): 2}))
        paths = written(calls)
        requested = next(at for at, path in enumerate(paths) if path.endswith("commit.requested"))
        assert result.instant_time in paths[requested]
        assert requested < position(paths, ".parquet")


# --- prepare records ----------------------------------------------------------------------------------


def test_prepare_records_combines_rows_of_one_key(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    parts = [rows({("x", "a"): v, ("y", "a"): v}) for v in (1, 3, 2)]
    report = table.upsert(pa.concat_tables(parts)).report
    assert (report["rows"]["incoming"], report["rows"]["inserted"]) == (6, 2)
    assert stored(table) == [("x", "a", 2), ("y", "a", 2)]


def test_prepare_records_combines_inserts_only_if_asked(tmp_path: Path) -> None:
    doubled = pa.concat_tables([rows({("x", "a"): 1}), rows({("x", "a"): 2})])
    for asked, kept in ((False, [1, 2]), (True, [2])):
        table = new_table(tmp_path / str(asked), **{"hoodie.combine.before.insert": asked})
        table.insert(doubled)
        assert [v for _, _, v in stored(table)] == kept


def test_prepare_records_finds_current_locations_through_the_index(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    tag = next(s for s in table.upsert(rows({("x", "a"): 2, ("x", "c"): 2})).report["steps"] if s["step"] == "tag")
    assert (tag["keys"], tag["files"], tag["after_ranges"]) == (2, 1, 1)


# --- partition records --------------------------------------------------------------------------------


def test_partition_records_gives_updates_and_inserts_buckets_of_their_own(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, **NO_PACKING)
    report = table.upsert(rows({("x", "a"): 2, ("x", "new"): 2, ("y", "b"): 2, ("z", "new"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"]) == (2, 2)
    tokens = {row["_hoodie_file_name"].split("_")[1] for row in table.to_arrow(meta_columns=True).to_pylist()}
    assert len(tokens) == 4  # A task each.


def test_partition_records_small_files_become_update_buckets(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})  # By default a file is small below 100 MB.
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"], report["rows"]["inserted"]) == (1, 0, 2)
    assert len({file_id for file_id, _ in places(table).values()}) == 1
    assert stored(table) == [("x", "a", 1), ("x", "b", 2), ("x", "c", 2)]


def test_partition_records_without_small_files_open_a_new_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    size = table.snapshot().files[0].size_bytes
    for limit, created in ((size, 1), (size + 1, 0)):
        writer = lakeformat.open(tmp_path / "t", **{"hoodie.parquet.small.file.limit": limit})
        report = writer.upsert(rows({("x", f"limit-{limit}"): 2})).report
        assert report["files"]["created"] == created


# --- write to storage ---------------------------------------------------------------------------------


def test_write_storage_announces_files_by_markers_of_their_kind(tmp_path: Path) -> None:
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


def test_write_storage_leaves_markers_of_a_dead_write_to_the_rollback(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    die(table, lambda call: call.name == "open_output", lambda dead: dead.upsert(rows({("x", "a"): 2})))
    assert len(list(Path(tmp_path, "t/.hoodie/.temp").rglob("*.marker.MERGE"))) == 1
    table.upsert(rows({("x", "a"): 3}))
    assert leftovers(LocalStorage(str(tmp_path / "t"))) == []
    assert stored(table) == [("x", "a", 3)]


# --- update index -------------------------------------------------------------------------------------


def test_update_index_is_done_when_the_commit_shows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for numbers in (range(3), range(2, 6)):
        table.upsert(rows({("x", f"k{number}"): 1 for number in numbers}))
        (file,) = table.snapshot().files
        footer = read_footer(table.engine.storage, file)
        bloom = footer.bloom(table.engine.storage)
        assert bloom is not None
        assert (footer.minimum, footer.maximum, bloom.used) == ("k0", f"k{numbers[-1]}", numbers[-1] + 1)


# --- commit changes -----------------------------------------------------------------------------------


def test_commit_changes_asks_the_validators_before_anything_shows(tmp_path: Path) -> None:
    """Files are written and not yet the table's; a validator that is not content makes them go."""
    table = new_table(tmp_path, {("x", "a"): 1})
    before, at_rest = base_files(table), timeline_files(table)
    seen = []

    def no_more_than_two(write: ProposedWrite) -> bool:
        new = base_files(table) - before
        seen.append((len(new), [stat.path for stat in write.stats] == sorted(new), stored(table)))
        return write.after.count() <= 2

    with pytest.raises(ValidationFailedError, match="no_more_than_two refused the write: it returned False"):
        table.upsert(rows({("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2}), validators=[no_more_than_two])
    assert seen == [(1, True, [("x", "a", 1)])]
    assert base_files(table) == before
    assert [name for name in timeline_files(table) if ".rollback" not in name] == at_rest
    assert stored(table) == [("x", "a", 1)]
    table.upsert(rows({("x", "a"): 2, ("x", "b"): 2}), validators=[no_more_than_two])
    assert stored(table) == [("x", "a", 2), ("x", "b", 2)]


def test_commit_changes_checks_for_concurrent_writers(tmp_path: Path) -> None:
    """Somebody changes the same file group while we write, on a storage that has no locks."""

    class Unlocked(LocalStorage):
        has_lock = False

        def lock(self, timeout_seconds: float) -> AbstractContextManager[None]:
            return nullcontext()

    table = new_table(tmp_path, {("x", "a"): 1})
    theirs = iter([rows({("x", "a"): 2})])

    def another(call: Call) -> None:
        if call.name == "open_output" and (batch := next(theirs, None)) is not None:
            Table(Unlocked(str(tmp_path / "t"))).upsert(batch)

    live = Table(FaultyStorage(Unlocked(str(tmp_path / "t")), meanwhile=another))
    with pytest.raises(WriteConflictError, match=r"overlaps commit \d+ in 1 file group"):
        live.upsert(rows({("x", "a"): 3}))
    assert stored(table) == [("x", "a", 2)]


def test_commit_changes_saves_the_metadata_on_the_timeline(tmp_path: Path) -> None:
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
    """A file that a lost attempt of the same instant left is not the table's, marker or not."""
    table = new_table(tmp_path, {("x", "a"): 1})
    (file,) = table.snapshot().files
    lost = file.path.replace(file.name.file_id, "10000000-0000-0000-0000-000000000000-0")
    Path(tmp_path, "t", lost).write_bytes(Path(tmp_path, "t", file.path).read_bytes())
    assert [found.path for found in table.snapshot().files] == [file.path]
    table.upsert(rows({("x", "b"): 2}))
    assert table.to_arrow(["id"])["id"].to_pylist() == ["a", "b"]


# --- upsert -------------------------------------------------------------------------------------------


def test_upsert_goes_requested_inflight_completed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    live, calls = traced(table)
    instant = live.upsert(rows({("x", "a"): 1})).instant_time
    paths = written(calls)
    ordered = [path for path in paths if path.startswith(f".hoodie/{instant}")]
    assert ordered == [f".hoodie/{instant}{suffix}" for suffix in (".commit.requested", ".inflight", ".commit")]
    assert paths.index(ordered[1]) < position(paths, ".parquet") < paths.index(ordered[2])


def test_upsert_knows_which_records_are_in_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2, ("y", "a"): 2})).report
    assert report["rows"] == {"incoming": 3, "inserted": 2, "updated": 1, "deleted": 0}


def test_upsert_saves_the_workload_profile_inflight(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, **NO_PACKING)
    first = table.history()[0].instant_time
    (group,) = {file_id for file_id, _ in places(table).values()}
    changes = {("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2, ("y", "d"): 2, ("y", "e"): 2}
    instant = table.upsert(rows(changes)).instant_time
    profile = timeline_json(table, instant, ".inflight")
    found = {
        (path, stat["fileId"]): (stat["prevCommit"], stat["numUpdateWrites"], stat["numInserts"])
        for path, stats in profile["partitionToWriteStats"].items()
        for stat in stats
    }
    assert found == {("x", group): (first, 2, 0), ("x", ""): ("null", 0, 1), ("y", ""): ("null", 0, 2)}
    assert profile["operationType"] == "UPSERT"


def test_upsert_makes_each_updated_file_group_one_update_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path, **NO_PACKING)
    for start in (0, 10, 20):
        table.insert(rows({("x", f"k{number:02}"): 1 for number in range(start, start + 10)}))
    before = places(table)
    instant = table.upsert(rows({("x", f"k{number:02}"): 2 for number in (1, 2, 21)})).instant_time
    (stats,) = timeline_json(table, instant, ".commit")["partitionToWriteStats"].values()
    assert {stat["fileId"]: stat["numUpdateWrites"] for stat in stats} == {before["k01"][0]: 2, before["k21"][0]: 1}


def test_upsert_merge_handle_makes_a_new_file_slice_of_the_group(tmp_path: Path) -> None:
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


def test_upsert_create_handle_makes_a_new_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    (old,) = base_files(table)
    instant = table.upsert(rows({("x", "b"): 2})).instant_time
    (new,) = base_files(table) - {old}
    assert new.split("_")[0] != old.split("_")[0]
    (stats,) = timeline_json(table, instant, ".commit")["partitionToWriteStats"].values()
    assert [(stat["path"], stat["prevCommit"], stat["numInserts"]) for stat in stats] == [(new, "null", 1)]


def test_upsert_executor_passes_every_batch_on_in_order(tmp_path: Path) -> None:
    """Row groups are read ahead of the writing on another thread; none is lost, and they keep their order."""
    few = {"lakeformat.parquet.row.group.rows": 7}
    table = new_table(tmp_path, {("x", f"k{number:03}"): 1 for number in range(100)}, **few)
    (file,) = table.snapshot().files
    assert pq.read_metadata(tmp_path / "t" / file.path).num_row_groups == 15
    table.upsert(rows({("x", f"k{number:03}"): 2 for number in (0, 50, 99, 100)}))
    wanted = [(f"k{number:03}", 2 if number in (0, 50, 99, 100) else 1) for number in range(101)]
    found = table.to_arrow(["id", "v"]).to_pylist()
    assert [(row["id"], row["v"]) for row in found] == wanted


def test_upsert_sums_the_write_statuses_up(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, **NO_PACKING)
    result = table.upsert(rows({("x", "a"): 2, ("x", "c"): 2, ("y", "d"): 2}))
    stats = [
        stat
        for stats in timeline_json(table, result.instant_time, ".commit")["partitionToWriteStats"].values()
        for stat in stats
    ]
    sums = {name: sum(stat[name] for stat in stats) for name in ("numInserts", "numUpdateWrites", "totalWriteErrors")}
    assert sums == {"numInserts": 2, "numUpdateWrites": 1, "totalWriteErrors": 0}
    sizes = sum(Path(tmp_path, "t", stat["path"]).stat().st_size for stat in stats)
    assert sum(stat["totalWriteBytes"] for stat in stats) == sizes == result.report["files"]["bytes"]
    assert (result.report["rows"]["inserted"], result.report["rows"]["updated"]) == (2, 1)


def test_upsert_with_an_error_completes_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    before = timeline_files(table), base_files(table)
    fault = Fault(lambda _, call: call.name == "open_output", Mode.TORN, kills=False)
    with pytest.raises(lakeformat.StorageError):
        traced(table, fault)[0].upsert(rows({("x", "a"): 2}))
    completed = {name for name in timeline_files(table) if name.endswith(".commit")}
    assert completed == {name for name in before[0] if name.endswith(".commit")}
    assert base_files(table) == before[1]
    assert stored(table) == [("x", "a", 1)]


def test_upsert_to_a_merge_on_read_table_appends_to_log_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, table_type="MERGE_ON_READ")
    before = base_files(table)
    table.upsert(rows({("x", "a"): 2}))
    assert base_files(table) == before
    assert stored(table) == [("x", "a", 2), ("x", "b", 1)]
