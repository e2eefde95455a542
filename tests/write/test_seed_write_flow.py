"""The write flow step by step, as the article "Apache Hudi from zero to one: write flow and operations" tells it.

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
commit changes: validators                    test_commit_changes_asks_the_validators_first
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
upsert on merge-on-read                       test_upsert_to_a_merge_on_read_table_is_refused_by_name
insert: no index                              test_insert_does_not_look_keys_up
insert: small files                           test_insert_fills_small_files
bulk insert: no index                         test_bulk_insert_does_not_look_keys_up
bulk insert: no small files                   test_bulk_insert_leaves_small_files_alone
bulk insert: sort mode                        test_bulk_insert_sorts_by_its_sort_mode
bulk insert: partitioner                      test_bulk_insert_takes_a_partitioner
bulk insert: row writing                      test_bulk_insert_takes_rows_as_they_are
delete: keys alone                            test_delete_needs_keys_alone
delete: hard                                  test_delete_is_hard
delete partition: by path                     test_delete_partition_reads_and_writes_no_data
delete partition: replacecommit               test_delete_partition_lists_all_file_groups_in_a_replacecommit
delete partition: later readers, writers      test_delete_partition_holds_for_later_readers_and_writers
insert overwrite                              test_insert_overwrite_replaces_the_partitions_of_the_rows
insert overwrite table                        test_insert_overwrite_table_replaces_every_partition
============================================  =========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hudi_rs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from reliability.faulty import Call, Crash, Fault, FaultyStorage, Mode
from reliability.flights import leftovers

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, Table, UnsupportedTableError, WriteConflictError
from lakeformat.config.resolve import resolve
from lakeformat.index.footers import read_footer
from lakeformat.model.files import BaseFileName
from lakeformat.storage import LocalStorage

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
#: Nothing counts as small: each insert opens a file.
NO_PACKING: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0}

Held = dict[tuple[str, str], int]  # (partition, key) -> v


def rows(held: Held) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": part, "v": v} for (part, key), v in held.items()], SCHEMA)


def new_table(folder: Path, held: Held | None = None, **options: Any) -> Table:
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **options)
    if held:
        table.insert(rows(held))
    return table


def stored(table: Table) -> list[tuple[str, str, int]]:
    """What hudi-rs and we read, sorted."""
    return sorted((row["p"], row["id"], row["v"]) for row in hudi_rs.assert_same_rows(table))


def as_list(held: Held) -> list[tuple[str, str, int]]:
    return sorted((part, key, v) for (part, key), v in held.items())


def places(table: Table) -> dict[str, tuple[str, str]]:
    """Key -> file id and instant of its commit."""
    listed = table.to_arrow().to_pylist()
    return {r["id"]: (r["_hoodie_file_name"].split("_")[0], r["_hoodie_commit_time"]) for r in listed}


def timeline_files(table: Table) -> list[str]:
    folder = Path(table.engine.storage.location, ".hoodie")
    return sorted(file.name for file in folder.iterdir() if file.is_file() and file.name[:1].isdigit())


def timeline_json(table: Table, instant: str, suffix: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(table.engine.storage.location, ".hoodie", instant + suffix).read_text())
    return found


def base_files(table: Table) -> set[str]:
    """Every base file on disk, whatever the timeline says of it."""
    root = Path(table.engine.storage.location)
    return {str(file.relative_to(root)) for file in root.rglob("*.parquet") if BaseFileName.match(file.name)}


def traced(
    table: Table, fault: Fault | None = None, meanwhile: Callable[[Call], object] | None = None, **options: Any
) -> tuple[Table, list[Call]]:
    """The table through a storage that records its calls, and may fail or let others in."""
    storage = FaultyStorage(LocalStorage(table.engine.storage.location), fault, meanwhile)
    return Table(storage, resolve(options)), storage.calls


def die(table: Table, when: Callable[[Call], bool], write: Callable[[Table], object]) -> None:
    """Run a write that dies after the first such call."""
    struck = iter([True])
    fault = Fault(lambda _, call: when(call) and next(struck, False), Mode.AFTER)
    with pytest.raises(Crash):
        write(traced(table, fault)[0])


def written(calls: Iterable[Call]) -> list[str]:
    """Paths that were made, in order."""
    return [call.path for call in calls if call.name in {"create", "touch", "open_output", "move"}]


def position(paths: list[str], part: str) -> int:
    """Of the first path with this part; fails if there is none."""
    return next(at for at, path in enumerate(paths) if part in path)


# --- create the write client --------------------------------------------------------------------------


def test_write_client_reconciles_options_with_the_table_s_properties(tmp_path: Path) -> None:
    new_table(tmp_path, hive_style=True)
    table = lakeformat.open(tmp_path / "t")  # Key and partition fields come from the table.
    table.upsert(rows({("x", "a"): 1}))
    assert table.to_arrow()["_hoodie_partition_path"].to_pylist() == ["p=x"]
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
    tokens = {row["_hoodie_file_name"].split("_")[1] for row in table.to_arrow().to_pylist()}
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


def test_commit_changes_checks_for_concurrent_writers(tmp_path: Path) -> None:
    """Somebody who does not know our lock changes the same file group while we write."""

    class Unlocked(LocalStorage):
        has_lock = False

    table = new_table(tmp_path, {("x", "a"): 1})
    theirs = iter([rows({("x", "a"): 2})])

    def another(call: Call) -> None:
        if call.name == "open_output" and (batch := next(theirs, None)) is not None:
            copy = Unlocked(str(tmp_path / "t"))
            copy.lock = FaultyStorage(LocalStorage(str(tmp_path))).lock  # type: ignore[method-assign]
            Table(copy).upsert(batch)

    live = traced(table, meanwhile=another)[0]
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


def test_upsert_executor_passes_every_batch_on_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups are read ahead of the writing on another thread; none is lost, and they keep their order."""
    for module in ("base_file", "handles", "direct"):
        monkeypatch.setattr(f"lakeformat.write.{module}.ROW_GROUP_ROWS", 7)
    table = new_table(tmp_path, {("x", f"k{number:03}"): 1 for number in range(100)})
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


def test_upsert_to_a_merge_on_read_table_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"table\.type.*COPY_ON_WRITE"):
        new_table(tmp_path, table_type="MERGE_ON_READ")
    table = new_table(tmp_path)
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("COPY_ON_WRITE", "MERGE_ON_READ"))
    with pytest.raises(UnsupportedTableError, match="MERGE_ON_READ"):
        table.upsert(rows({("x", "a"): 1}))


# --- insert and bulk insert ---------------------------------------------------------------------------


def test_insert_does_not_look_keys_up(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    report = table.insert(rows({("x", "a"): 2})).report
    assert (report["rows"]["inserted"], report["rows"]["updated"]) == (1, 0)
    assert stored(table) == [("x", "a", 1), ("x", "a", 2)]


def test_insert_fills_small_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    report = table.insert(rows({("x", "b"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"]) == (1, 0)
    assert len(table.snapshot().files) == 1


def test_bulk_insert_does_not_look_keys_up(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    table.bulk_insert(rows({("x", "a"): 2}))
    assert stored(table) == [("x", "a", 1), ("x", "a", 2)]


def test_bulk_insert_leaves_small_files_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1})
    before = base_files(table)
    report = table.bulk_insert(rows({("x", "b"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"]) == (0, 1)
    assert len(base_files(table) - before) == 1
    assert len(table.snapshot().files) == 2


def test_bulk_insert_sorts_by_its_sort_mode(tmp_path: Path) -> None:
    mixed = {(part, f"k{number}"): number for number in (3, 1, 2) for part in "yx"}
    for mode, order in (("NONE", [3, 1, 2]), ("GLOBAL_SORT", [1, 2, 3])):
        table = new_table(tmp_path / mode, **{"hoodie.bulkinsert.sort.mode": mode})
        table.bulk_insert(rows(mixed))
        for (file,) in table.snapshot().by_partition.values():
            assert pq.read_table(tmp_path / mode / "t" / file.path, columns=["v"])["v"].to_pylist() == order
        assert stored(table) == as_list(mixed)


def test_bulk_insert_takes_a_partitioner(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    held = {("x", f"k{number}"): number for number in range(6)}
    table.bulk_insert(rows(held), partitioner=lambda part: pc.bit_wise_and(part["v"], 1))
    files = sorted(
        pq.read_table(tmp_path / "t" / file.path, columns=["v"])["v"].to_pylist() for file in table.snapshot().files
    )
    assert files == [[0, 2, 4], [1, 3, 5]]
    assert stored(table) == as_list(held)


def test_bulk_insert_takes_rows_as_they_are(tmp_path: Path) -> None:
    """Columns stay columns, from the input to the file, and the option that turns that on in Hudi is taken."""
    options = {"hoodie.datasource.write.row.writer.enable": "true"}
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("st", pa.struct({"x": pa.list_(pa.int64())}))])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", **options)
    batch = pa.table({"id": ["a", "b"], "p": ["x", "x"], "st": [{"x": [1, None]}, None]}, schema)
    table.bulk_insert(batch)
    assert table.to_arrow(meta_columns=False).equals(batch)
    hudi_rs.assert_same_rows(table)


# --- delete -------------------------------------------------------------------------------------------


def test_delete_needs_keys_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1, ("y", "a"): 1})
    report = table.delete(pa.table({"id": ["a", "absent"], "p": ["x", "x"]})).report
    assert report["rows"]["deleted"] == 1
    assert stored(table) == [("x", "b", 1), ("y", "a", 1)]


def test_delete_is_hard(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    before = base_files(table)
    table.delete(pa.table({"id": ["a"], "p": ["x"]}))
    (new,) = base_files(table) - before
    assert pq.read_table(tmp_path / "t" / new, columns=["id"])["id"].to_pylist() == ["b"]
    assert stored(table) == [("x", "b", 1)]


# --- delete partition ---------------------------------------------------------------------------------

PARTITIONS: Held = {(part, key): 1 for part in "xyz" for key in "ab"}


def partitioned(folder: Path) -> Table:
    """Three partitions, of two file groups each."""
    table = new_table(folder, {place: v for place, v in PARTITIONS.items() if place[1] == "a"}, **NO_PACKING)
    table.insert(rows({place: v for place, v in PARTITIONS.items() if place[1] == "b"}))
    return table


def groups(table: Table, *partitions: str) -> dict[str, set[str]]:
    return {part: {file.name.file_id for file in table.snapshot().by_partition[part]} for part in partitions}


def replaced(table: Table, instant: str) -> dict[str, set[str]]:
    found = timeline_json(table, instant, ".replacecommit")["partitionToReplaceFileIds"]
    return {part: set(ids) for part, ids in found.items()}


def without(held: Held, *partitions: str) -> Held:
    return {place: v for place, v in held.items() if place[0] not in partitions}


def test_delete_partition_reads_and_writes_no_data(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    before = base_files(table)
    live, calls = traced(table)
    live.delete_partitions(["x"])
    assert not [call for call in calls if call.name in {"open_input", "open_output"}]
    assert base_files(table) == before
    assert stored(table) == as_list(without(PARTITIONS, "x"))


def test_delete_partition_lists_all_file_groups_in_a_replacecommit(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    standing = groups(table, "x", "z")
    assert all(len(ids) == 2 for ids in standing.values())
    options = {"hoodie.datasource.write.partitions.to.delete": "x,z"}
    result = lakeformat.open(tmp_path / "t", **options).write(rows({}), lakeformat.write.job.Operation.DELETE_PARTITION)
    assert replaced(table, result.instant_time) == standing
    assert timeline_json(table, result.instant_time, ".replacecommit")["operationType"] == "DELETE_PARTITION"
    assert stored(table) == as_list(without(PARTITIONS, "x", "z"))


def test_delete_partition_holds_for_later_readers_and_writers(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    gone = groups(table, "x")["x"]
    before = table.history()[0].instant_time
    table.delete_partitions("x")
    assert lakeformat.open(tmp_path / "t").to_arrow(where="p = 'x'").num_rows == 0
    report = lakeformat.open(tmp_path / "t").upsert(rows({("x", "a"): 5})).report
    assert (report["rows"]["inserted"], report["rows"]["updated"]) == (1, 0)
    assert not gone & groups(table, "x")["x"]
    assert stored(table) == as_list(without(PARTITIONS, "x") | {("x", "a"): 5})
    assert table.to_arrow(as_of=before).num_rows == len(PARTITIONS)


# --- insert overwrite ---------------------------------------------------------------------------------


def test_insert_overwrite_replaces_the_partitions_of_the_rows(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    standing = groups(table, "x")
    instant = table.insert_overwrite(rows({("x", "new"): 2, ("w", "new"): 2})).instant_time
    assert replaced(table, instant) == standing
    assert not standing["x"] & groups(table, "x")["x"]
    assert [name for name in timeline_files(table) if name.startswith(instant)] == [
        f"{instant}.replacecommit{state}" for state in ("", ".inflight", ".requested")
    ]  # Both in one action.
    assert stored(table) == as_list(without(PARTITIONS, "x") | {("x", "new"): 2, ("w", "new"): 2})


def test_insert_overwrite_table_replaces_every_partition(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    standing = groups(table, "x", "y", "z")
    instant = table.overwrite(rows({("x", "new"): 2})).instant_time
    assert replaced(table, instant) == standing
    assert stored(table) == [("x", "new", 2)]
