"""The write operations, in the order and the words of the article "Apache Hudi from zero to one: write flow and
operations" (part 3).

Each operation is the write flow of test_seed_write_flow.py with some steps changed or left out:

=======================  ======================================================================================
operation                what is special
=======================  ======================================================================================
upsert                   it passes all steps
insert                   no index: a key that is in the table already gets a second row
bulk insert              no index, no small files; a sort mode or a partitioner puts rows into files
delete                   keys come in, and their rows are missing from the new file slices
delete partition         no rows come in: the commit lists the file groups of the partitions as replaced
insert overwrite         delete partition and bulk insert in one action, for the partitions of the rows
insert overwrite table   the same for all partitions
=======================  ======================================================================================

The words and the helpers are explained on the page before. New here:

- ``result.report`` is lakeformat's report of a write. ``write_stats(table, instant)`` are the entries of its commit,
  one for each written file.
- ``failing(table, "open_output")`` is the table on a disk that reports an error in the middle of each data file.
- ``FILE_INDEX`` is the folder of lakeformat's file index, ``.hoodie/.lakeformat/index``. It is a cache: a list of the
  live files, to which each write adds a small file. It holds no rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.file_system_view.file_index.stored import FOLDER as FILE_INDEX
from lakeformat.model.operation import Operation
from tests.helpers import hudi_rs
from tests.helpers.flow_table import (
    NO_PACKING,
    VERSIONS,
    Held,
    as_list,
    base_files,
    failing,
    new_table,
    places,
    rows,
    short,
    stored,
    timeline_content,
    timeline_files,
    traced,
    write_stats,
    written,
)
from tests.helpers.tables import a_batch

# --- upsert into a copy-on-write table ----------------------------------------------------------------
#
# 1. The write client starts the commit: a requested action.


@pytest.mark.parametrize(("version", "timeline", "completed"), VERSIONS)
def test_upsert_action_is_requested_then_inflight_then_completed(
    tmp_path: Path, version: int, timeline: str, completed: str
) -> None:
    """The data files are written between inflight and completed. The completed file makes the write visible."""
    live, calls = traced(new_table(tmp_path, version=version))
    instant = live.upsert(rows({("x", "a"): 1})).instant_time
    paths = [short(path, T=instant) for path in written(calls)]
    assert [path for path in paths if path.startswith(f"{timeline}/T") or path.startswith("x/")] == [
        f"{timeline}/T.commit.requested",
        f"{timeline}/T.inflight",
        "x/.hoodie_partition_metadata",
        "x/G_W_T.parquet",
        f"{timeline}/{completed}.commit",
    ]


# 2. The records are prepared. Now it is known which records are in the table.


def test_upsert_knows_which_records_are_in_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2, ("y", "a"): 2})).report
    assert report["rows"] == {"incoming": 3, "inserted": 2, "updated": 1, "deleted": 0}


# 3. The workload profile counts updates and inserts in each partition, and is saved in the inflight action. From it,
#    update buckets and insert buckets are made. Inserts fill small files first.


@pytest.mark.parametrize("version", [6, 8, 9])
def test_upsert_saves_the_workload_profile_in_the_inflight_action(tmp_path: Path, version: int) -> None:
    """Partition x: two updates in the file group that is there, one insert. Partition y: two inserts."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, version=version, **NO_PACKING)
    first = table.history()[0].instant_time
    (group,) = {file_id for file_id, _ in places(table).values()}
    changes = {("x", "a"): 2, ("x", "b"): 2, ("x", "c"): 2, ("y", "d"): 2, ("y", "e"): 2}
    instant = table.upsert(rows(changes)).instant_time
    profile = timeline_content(table, instant, ".inflight")
    counts = {
        (path, stat["fileId"]): (stat["prevCommit"], stat["numUpdateWrites"], stat["numInserts"])
        for path, stats in profile["partitionToWriteStats"].items()
        for stat in stats
    }
    assert counts == {("x", group): (first, 2, 0), ("x", ""): ("null", 0, 1), ("y", ""): ("null", 0, 2)}
    assert profile["operationType"] == "UPSERT"


def test_upsert_makes_one_update_bucket_for_each_updated_file_group(tmp_path: Path) -> None:
    """Three file groups. Two keys of the first are updated, none of the second, one of the third."""
    table = new_table(tmp_path, {("x", "a1"): 1, ("x", "a2"): 1}, **NO_PACKING)
    table.insert(rows({("x", "b1"): 1, ("x", "b2"): 1}))
    table.insert(rows({("x", "c1"): 1, ("x", "c2"): 1}))
    before = places(table)
    instant = table.upsert(rows({("x", "a1"): 2, ("x", "a2"): 2, ("x", "c1"): 2})).instant_time
    counts = {stat["fileId"]: stat["numUpdateWrites"] for stat in write_stats(table, instant)}
    assert counts == {before["a1"][0]: 2, before["c1"][0]: 1}


def test_upsert_file_group_of_a_small_file_becomes_an_update_bucket_for_inserts(tmp_path: Path) -> None:
    """By default a base file below 100 MB is small."""
    table = new_table(tmp_path, {("x", "a"): 1})
    report = table.upsert(rows({("x", "b"): 2, ("x", "c"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"], report["rows"]["inserted"]) == (1, 0, 2)
    assert len({file_id for file_id, _ in places(table).values()}) == 1
    assert stored(table) == [("x", "a", 1), ("x", "b", 2), ("x", "c", 2)]


@pytest.mark.parametrize(("above_the_file", "created"), [(0, 1), (1, 0)])
def test_upsert_without_a_small_file_puts_inserts_into_a_new_file_group(
    tmp_path: Path, above_the_file: int, created: int
) -> None:
    """A file is small if its bytes are fewer than hoodie.parquet.small.file.limit. NO_PACKING sets this to 0."""
    table = new_table(tmp_path, {("x", "a"): 1})
    limit = table.snapshot().files[0].size_bytes + above_the_file
    writer = lakeformat.open(tmp_path / "t", **{"hoodie.parquet.small.file.limit": limit})
    assert writer.upsert(rows({("x", "b"): 2})).report["files"]["created"] == created


# 4. File write handles write the buckets: the merge handle for an update bucket, the create handle for an insert
#    bucket. An executor reads and writes as producer and consumer.


def test_upsert_merge_handle_writes_a_new_file_slice_of_the_same_file_group(tmp_path: Path) -> None:
    """It holds all rows of the group, the old and the changed. The old file stays for readers that have begun."""
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
    assert [(s["path"], s["prevCommit"], s["numInserts"]) for s in write_stats(table, instant)] == [(new, "null", 1)]


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
    with pytest.raises(lakeformat.StorageError):
        failing(table, "open_output").upsert(rows({("x", "a"): 2}))
    completed = {name for name in timeline_files(table) if name.endswith(".commit")}
    assert completed == {name for name in timeline if name.endswith(".commit")}
    assert base_files(table) == files
    assert stored(table) == [("x", "a", 1)]


# --- upsert into a merge-on-read table ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "log_file", "completed"),
    [
        (6, "x/.G_T1.log.1_W", "T2.deltacommit"),
        (8, "x/.G_T2.log.1_W", "T2_C.deltacommit"),
        (9, "x/.G_T2.log.1_W", "T2_C.deltacommit"),
    ],
)
def test_upsert_into_a_merge_on_read_table_appends_to_log_files(
    tmp_path: Path, version: int, log_file: str, completed: str
) -> None:
    """The flow is the same, but other handles write: updates are appended to a log file beside the base file.

    T1 is the instant of the insert, T2 that of the upsert. The name of a log file begins with the id of its file group.
    Then comes in version 6 the instant of its base file, from version 8 on that of its own action, a deltacommit.
    """
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1}, version=version, merge_on_read=True)
    files = base_files(table)
    first = table.history()[0].instant_time
    second = table.upsert(rows({("x", "a"): 2})).instant_time
    assert base_files(table) == files
    (log,) = Path(tmp_path, "t").glob("x/.*.log.*")
    assert short(f"x/{log.name}", T1=first, T2=second) == log_file
    assert completed in {short(name, T1=first, T2=second) for name in timeline_files(table)}
    assert stored(table) == [("x", "a", 2), ("x", "b", 1)]


# --- insert and bulk insert ---------------------------------------------------------------------------


def test_insert_does_not_look_keys_up(tmp_path: Path) -> None:
    """It is quicker than an upsert, but a key that is in the table already gets a second row."""
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


def values_of_files(table: Table) -> list[tuple[str, list[int]]]:
    """Return for each file its partition and the values in it, in the order of its rows; sorted."""
    root = Path(table.context.storage.location)
    return sorted(
        (file.partition_path, pq.read_table(root / file.path, columns=["v"])["v"].to_pylist())
        for file in table.snapshot().files
    )


@pytest.mark.parametrize(("mode", "order"), [("NONE", [3, 1, 2]), ("GLOBAL_SORT", [1, 2, 3])])
def test_bulk_insert_sorts_by_its_sort_mode(tmp_path: Path, mode: str, order: list[int]) -> None:
    """The rows come in the order 3, 1, 2, for both partitions."""
    mixed: Held = {(part, f"k{number}"): number for number in (3, 1, 2) for part in "yx"}
    table = new_table(tmp_path, **{"hoodie.bulkinsert.sort.mode": mode})
    table.bulk_insert(rows(mixed))
    assert values_of_files(table) == [("x", order), ("y", order)]
    assert stored(table) == as_list(mixed)


def test_bulk_insert_takes_a_partitioner(tmp_path: Path) -> None:
    """A function that gives each row the number of its file: here even values go to one file, odd ones to another."""
    table = new_table(tmp_path)
    held: Held = {("x", f"k{number}"): number for number in range(6)}
    table.bulk_insert(rows(held), partitioner=lambda part: pc.bit_wise_and(part["v"], 1))
    assert values_of_files(table) == [("x", [0, 2, 4]), ("x", [1, 3, 5])]
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
    """HoodieKey: record key and partition path. A key that is not in the table is ignored."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1, ("y", "a"): 1})
    report = table.delete(pa.table({"id": ["a", "absent"], "p": ["x", "x"]})).report
    assert report["rows"]["deleted"] == 1
    assert stored(table) == [("x", "b", 1), ("y", "a", 1)]


def test_delete_puts_its_keys_into_the_update_buckets_of_their_file_groups(tmp_path: Path) -> None:
    """The workload profile counts the key as an update of the file group; only the commit knows it as a delete."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    (group,) = {file_id for file_id, _ in places(table).values()}
    instant = table.delete(pa.table({"id": ["a", "absent"], "p": ["x", "x"]})).instant_time
    (planned,) = write_stats(table, instant, ".inflight")
    assert (planned["fileId"], planned["numUpdateWrites"], planned["numInserts"]) == (group, 1, 0)
    (done,) = write_stats(table, instant)
    assert (done["fileId"], done["numDeletes"], done["numWrites"]) == (group, 1, 1)  # One row is deleted, one is kept.


def test_delete_removes_the_rows_from_the_new_file_slice(tmp_path: Path) -> None:
    """It is a hard delete: nothing is left of the row in the newest file of the group."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    before = base_files(table)
    table.delete(pa.table({"id": ["a"], "p": ["x"]}))
    (new,) = base_files(table) - before
    assert pq.read_table(tmp_path / "t" / new, columns=["id"])["id"].to_pylist() == ["b"]
    assert stored(table) == [("x", "b", 1)]


def test_delete_may_be_mixed_with_upserts(tmp_path: Path) -> None:
    """Rows of an upsert in which the column _hoodie_is_deleted is true are deletes."""
    table = new_table(tmp_path, {("x", "a"): 1, ("x", "b"): 1})
    report = table.upsert(a_batch(id=["a", "b", "c"], p="x", v=2, _hoodie_is_deleted=[True, False, False])).report
    assert report["rows"] == {"incoming": 3, "inserted": 1, "updated": 1, "deleted": 1}
    assert stored(table) == [("x", "b", 2), ("x", "c", 2)]


# --- delete partition ---------------------------------------------------------------------------------

PARTITIONS: Held = {(part, key): 1 for part in "xyz" for key in "ab"}


def partitioned(folder: Path, version: int = 6) -> Table:
    """Create the table with three partitions of two file groups each, and these rows."""
    first = {place: v for place, v in PARTITIONS.items() if place[1] == "a"}
    table = new_table(folder, first, version=version, **NO_PACKING)
    table.insert(rows({place: v for place, v in PARTITIONS.items() if place[1] == "b"}))
    return table


def groups(table: Table, *partitions: str) -> dict[str, set[str]]:
    """Return partition -> ids of its live file groups."""
    return {part: {file.name.file_id for file in table.snapshot().by_partition[part]} for part in partitions}


def replaced(table: Table, instant: str) -> dict[str, set[str]]:
    """Return partition -> ids of the file groups that a replacecommit lists as replaced."""
    found = timeline_content(table, instant, ".replacecommit")["partitionToReplaceFileIds"]
    return {part: set(ids) for part, ids in found.items()}


def without(held: Held, *partitions: str) -> Held:
    """Return the rows of the other partitions."""
    return {place: v for place, v in held.items() if place[0] not in partitions}


def test_delete_partition_reads_and_writes_no_data(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    before = base_files(table)
    live, calls = traced(table)
    live.delete_partitions(["x"])
    opened = [call.path for call in calls if call.name in {"open_input", "open_output"}]
    assert [path for path in opened if not path.startswith(FILE_INDEX)] == []
    assert base_files(table) == before
    assert stored(table) == as_list(without(PARTITIONS, "x"))


@pytest.mark.parametrize(("version", "timeline", "completed"), VERSIONS)
def test_delete_partition_lists_all_file_groups_in_a_replacecommit(
    tmp_path: Path, version: int, timeline: str, completed: str
) -> None:
    table = partitioned(tmp_path, version)
    standing = groups(table, "x", "z")
    assert {part: len(ids) for part, ids in standing.items()} == {"x": 2, "z": 2}
    options = {"hoodie.datasource.write.partitions.to.delete": "x,z"}
    instant = lakeformat.open(tmp_path / "t", **options).write(rows({}), Operation.DELETE_PARTITION).instant_time
    assert {short(str(path.relative_to(tmp_path / "t")), T=instant) for path in tmp_path.rglob(f"{instant}*")} == {
        f"{timeline}/T.replacecommit.requested",
        f"{timeline}/T.replacecommit.inflight",
        f"{timeline}/{completed}.replacecommit",
    }
    assert replaced(table, instant) == standing
    assert timeline_content(table, instant, ".replacecommit")["operationType"] == "DELETE_PARTITION"
    assert stored(table) == as_list(without(PARTITIONS, "x", "z"))


def test_delete_partition_holds_for_later_readers_and_writers(tmp_path: Path) -> None:
    """A key of the deleted partition is new again. Only reads of the time before still find the old rows."""
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
    """One action hides the file groups of x and adds new ones. Partition w is new, y and z stay."""
    table = partitioned(tmp_path)
    standing = groups(table, "x")
    instant = table.insert_overwrite(rows({("x", "new"): 2, ("w", "new"): 2})).instant_time
    assert replaced(table, instant) == standing
    assert not standing["x"] & groups(table, "x")["x"]
    assert [short(name, T=instant) for name in timeline_files(table) if name.startswith(instant)] == [
        "T.replacecommit",
        "T.replacecommit.inflight",
        "T.replacecommit.requested",
    ]
    assert stored(table) == as_list(without(PARTITIONS, "x") | {("x", "new"): 2, ("w", "new"): 2})


def test_insert_overwrite_table_replaces_every_partition(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    standing = groups(table, "x", "y", "z")
    instant = table.overwrite(rows({("x", "new"): 2})).instant_time
    assert replaced(table, instant) == standing
    assert stored(table) == [("x", "new", 2)]
