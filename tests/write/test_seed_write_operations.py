"""The operations beside upsert of "Apache Hudi from zero to one: write flow and operations": one test a step.

============================================  =========================================================================
step of the article                           test
============================================  =========================================================================
insert: no index                              test_insert_does_not_look_keys_up
insert: small files                           test_insert_fills_small_files
bulk insert: no index                         test_bulk_insert_does_not_look_keys_up
bulk insert: no small files                   test_bulk_insert_leaves_small_files_alone
bulk insert: sort mode                        test_bulk_insert_sorts_by_its_sort_mode
bulk insert: partitioner                      test_bulk_insert_takes_a_partitioner
bulk insert: row writing                      test_bulk_insert_takes_rows_as_they_are
delete: keys alone                            test_delete_needs_keys_alone
delete: hard                                  test_delete_removes_the_rows_from_the_new_file_slice
delete partition: by path                     test_delete_partition_reads_and_writes_no_data
delete partition: replacecommit               test_delete_partition_lists_all_file_groups_in_a_replacecommit
delete partition: later readers, writers      test_delete_partition_holds_for_later_readers_and_writers
insert overwrite                              test_insert_overwrite_replaces_the_partitions_of_the_rows
insert overwrite table                        test_insert_overwrite_table_replaces_every_partition
============================================  =========================================================================
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakeformat
from lakeformat import Table
from lakeformat.file_system_view.file_index.stored import FOLDER
from lakeformat.model.operation import Operation
from tests.helpers import hudi_rs
from tests.helpers.flow_table import (
    NO_PACKING,
    Held,
    as_list,
    base_files,
    new_table,
    rows,
    stored,
    timeline_files,
    timeline_json,
    traced,
)

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


def test_delete_removes_the_rows_from_the_new_file_slice(tmp_path: Path) -> None:
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
    opened = [call.path for call in calls if call.name in {"open_input", "open_output"}]
    assert [path for path in opened if not path.startswith(FOLDER)] == []
    assert base_files(table) == before
    assert stored(table) == as_list(without(PARTITIONS, "x"))


def test_delete_partition_lists_all_file_groups_in_a_replacecommit(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    standing = groups(table, "x", "z")
    assert all(len(ids) == 2 for ids in standing.values())
    options = {"hoodie.datasource.write.partitions.to.delete": "x,z"}
    result = lakeformat.open(tmp_path / "t", **options).write(rows({}), Operation.DELETE_PARTITION)
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
