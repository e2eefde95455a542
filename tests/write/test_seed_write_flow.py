"""Hudi's write flow, step by step, in the order and the words of the article "Apache Hudi from zero to one: write
flow and operations" (part 3).

**The table on disk.** A table is a folder. Each partition is a folder in it and holds *base files*: Parquet files with
rows. Base files whose names begin with the same id form a *file group*. Each of them is a version of the group, a *file
slice*, and the newest one counts. A row stays in its file group. The *timeline*, in the folder ``.hoodie``, lists what
has been done. Each *action* is named after its *instant*, the time at which it began, and has a small file for each of
its states: *requested*, *inflight*, *completed*. Readers take the files of completed actions only. Each row carries
five *meta columns*, such as its record key and the instant of its commit.

**The write.** It passes eight steps. Each section below is one of them, and each test is one sentence of the article:

1. **Create the write client**, here a `lakeformat.Table`: the options of the caller and the properties of the table
   become one configuration.
2. **Transform input**: rows become records. A record has a key (record key and partition path), a current location
   and a new location (file group and instant), and data with a rule that merges old and new data.
3. **Start commit**: failed writes are rolled back, then a *requested* action is put on the timeline.
4. **Prepare records**: records of one key are combined, and the index finds the current locations.
5. **Partition records**: each record goes to an update bucket or to an insert bucket; a bucket is the work of one task.
6. **Write to storage**: a marker announces each data file, then a file write handle writes the file.
7. **Update index**: the index knows the new records when readers see them.
8. **Commit changes**: validators and the conflict check decide; then the metadata on the timeline publishes the files.

The operations are on the next page, test_seed_write_operations.py: upsert in detail, then the others.

**The helpers** are in tests/helpers/flow_table.py. The table has the record key ``id``, the partition column ``p`` and
a value ``v``. ``{("x", "a"): 1}`` is the row of partition x with the key a and the value 1. `rows` makes an Arrow table
of such rows, `a_batch` one of any columns.

- ``new_table(folder, {("x", "a"): 1})`` creates the table. One commit inserts the row.
- ``stored(table)`` reads all rows, as (partition, key, value). It reads them by hudi-rs, too, an independent program,
  and fails if the two differ.
- ``places(table)`` says where each key is: the file group, and the instant of the commit that wrote the row.
- ``base_files(table)`` and ``timeline_files(table)`` are the files that lie on disk.
- ``traced(table)`` opens the table through a storage that records its calls. ``written(calls)`` are the files that they
  create, in order. The call that writes a data file is ``open_output``.
- ``die(table, "open_output", write)`` runs a write whose process dies when its first data file is written.
- ``short(name, T=instant)`` makes names of files readable: T in the place of the instant, C of any other time, G of the
  id of a file group, W of a write token.
- ``VERSIONS`` lists the table versions. Each comes with the folder of its timeline and with the name of a completed
  action, as `short` writes it: T, or T_C from version 8 on, where C is the time at which the action was completed.
- ``NO_PACKING`` is an option: no file counts as small, so new rows go into a new file group. Without it they go into
  the small file that is there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, ValidationFailedError, WriteConflictError
from lakeformat.config.resolve import resolve
from lakeformat.files.footers import read_key_footer
from lakeformat.storage import LocalStorage
from lakeformat.transaction.commit.hooks import ProposedWrite
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, FaultyStorage, UnlockedStorage
from tests.helpers.flights import leftovers
from tests.helpers.flow_table import (
    NO_PACKING,
    SCHEMA,
    VERSIONS,
    base_files,
    die,
    new_table,
    places,
    position,
    rows,
    short,
    step_of,
    stored,
    timeline_content,
    timeline_files,
    traced,
    written,
)
from tests.helpers.tables import a_batch, a_table

# --- 0. the table on disk -----------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "timeline", "completed"), VERSIONS)
def test_table_is_a_folder_with_a_timeline_and_base_files(
    tmp_path: Path, version: int, timeline: str, completed: str
) -> None:
    """One commit has put one row into partition x. Lock and caches of lakeformat are in .hoodie/.lakeformat."""
    table = new_table(tmp_path, {("x", "a"): 1}, version=version)
    instant = table.history()[0].instant_time
    files = {str(path.relative_to(tmp_path / "t")) for path in Path(tmp_path, "t").rglob("*") if path.is_file()}
    assert {short(file, T=instant) for file in files if ".lakeformat" not in file} == {
        ".hoodie/hoodie.properties",
        f"{timeline}/T.commit.requested",
        f"{timeline}/T.inflight",
        f"{timeline}/{completed}.commit",
        "x/.hoodie_partition_metadata",
        "x/G_W_T.parquet",
    }


# --- 1. create the write client -----------------------------------------------------------------------


def test_write_client_takes_key_and_partition_fields_from_the_table(tmp_path: Path) -> None:
    """The properties are in .hoodie/hoodie.properties. Those of this table say that the folder of x is named p=x."""
    new_table(tmp_path, hive_style=True)
    table = lakeformat.open(tmp_path / "t")
    table.upsert(rows({("x", "a"): 1}))
    assert table.to_arrow(meta_columns=True)["_hoodie_partition_path"].to_pylist() == ["p=x"]


@pytest.mark.parametrize(("option", "value"), [("recordkey", "v"), ("partitionpath", "v"), ("hive_style", False)])
def test_write_client_refuses_an_option_that_contradicts_the_table(tmp_path: Path, option: str, value: Any) -> None:
    new_table(tmp_path, hive_style=True)
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
    """HoodieKey: the key generator makes both from columns of the row. They are stored with it, as meta columns."""
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


# The rule that merges old and new data. Here 9 is stored, and a later write brings another value of the same key.


def test_merge_rule_without_ordering_field_lets_the_later_commit_win(tmp_path: Path) -> None:
    table = new_table(tmp_path, {("x", "a"): 9})
    table.upsert(rows({("x", "a"): 1}))
    assert stored(table) == [("x", "a", 1)]


@pytest.mark.parametrize(("incoming", "winner"), [(1, 9), (10, 10)])
def test_merge_rule_with_ordering_field_keeps_the_row_with_the_greater_value(
    tmp_path: Path, incoming: int, winner: int
) -> None:
    table = new_table(tmp_path, {("x", "a"): 9}, ordering="v")
    table.upsert(rows({("x", "a"): incoming}))
    assert stored(table) == [("x", "a", winner)]


def test_merge_rule_of_a_payload_class_merges_field_by_field(tmp_path: Path) -> None:
    """HoodieRecordPayload: the table names a class. This one keeps the stored value where the incoming one is null."""
    payload = {"hoodie.datasource.write.payload.class": "OverwriteNonDefaultsWithLatestAvroPayload"}
    table = new_table(tmp_path, {("x", "a"): 9}, **payload)
    table.upsert(rows({("x", "a"): None, ("x", "b"): None}))
    assert stored(table) == [("x", "a", 9), ("x", "b", None)]


def test_merge_rule_of_a_merger_is_any_function(tmp_path: Path) -> None:
    """HoodieRecordMerger: a function gets the stored rows and the incoming rows, as Arrow tables, and merges them."""

    def add_up(stored_rows: pa.Table, incoming: pa.Table) -> pa.Table:
        return incoming.set_column(2, "v", pc.add(stored_rows["v"], incoming["v"]))

    table = new_table(tmp_path, {("x", "a"): 9})
    table.upsert(rows({("x", "a"): 1, ("x", "b"): 1}), merger=add_up)
    assert stored(table) == [("x", "a", 10), ("x", "b", 1)]


# --- 3. start commit ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "timeline", "completed"), VERSIONS)
def test_start_commit_rolls_back_failed_writes_first(
    tmp_path: Path, version: int, timeline: str, completed: str
) -> None:
    """A dead write leaves a requested and an inflight action and a data file. The next write removes all three.

    The rollback is an action of its own, with the instant R. It begins after the dead write, before the new one, T.
    """
    table = new_table(tmp_path, {("x", "a"): 1}, version=version)
    files, before = base_files(table), timeline_files(table)
    die(table, "open_output", lambda dead: dead.upsert(rows({("x", "a"): 2})))
    (orphan,) = base_files(table) - files
    dead = orphan.removesuffix(".parquet").rpartition("_")[2]
    assert [name for name in timeline_files(table) if name not in before] == [
        f"{dead}.commit.requested",
        f"{dead}.inflight",
    ]

    live, calls = traced(table)
    instant = live.upsert(rows({("x", "a"): 3})).instant_time
    paths = written(calls)
    assert position(paths, ".rollback.requested") < position(paths, f"{instant}.commit.requested")
    rollback = paths[position(paths, ".rollback.requested")].rpartition("/")[2].partition(".")[0]
    assert dead < rollback < instant
    assert {short(name, R=rollback, T=instant) for name in timeline_files(table) if name not in before} == {
        "R.rollback.requested",
        "R.rollback.inflight",
        completed.replace("T", "R") + ".rollback",
        "T.commit.requested",
        "T.inflight",
        f"{completed}.commit",
    }
    assert orphan not in base_files(table)
    assert stored(table) == [("x", "a", 3)]


@pytest.mark.parametrize("operation", ["insert", "upsert", "bulk_insert", "delete", "overwrite"])
def test_start_commit_puts_the_requested_action_on_the_timeline_before_any_file(tmp_path: Path, operation: str) -> None:
    table = new_table(tmp_path, {("x", "a"): 1}, **NO_PACKING)
    live, calls = traced(table)
    result = getattr(live, operation)(rows({("x", "a"): 2}))
    paths = written(calls)
    requested = position(paths, "commit.requested")
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


@pytest.mark.parametrize(("combine", "values"), [(False, [1, 2]), (True, [2])])
def test_prepare_records_deduplicates_inserts_only_if_configured(
    tmp_path: Path, combine: bool, values: list[int]
) -> None:
    table = new_table(tmp_path, **{"hoodie.combine.before.insert": combine})
    table.insert(pa.concat_tables([rows({("x", "a"): 1}), rows({("x", "a"): 2})]))
    assert [v for _, _, v in stored(table)] == values


def test_prepare_records_finds_current_locations_through_the_index(tmp_path: Path) -> None:
    """Finding them is called tagging. Each write reports what its steps did: ``step_of(result, "tag")``.

    Two keys of partition x: one file is there, and its key range rules out the key that is new.
    """
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1})
    tag = step_of(table.upsert(rows({("x", "a"): 2, ("x", "c"): 2})), "tag")
    assert (tag["keys"], tag["files"], tag["after_ranges"]) == (2, 1, 1)


# --- 5. partition records -----------------------------------------------------------------------------


def test_partition_records_puts_updates_and_inserts_into_buckets_of_their_own(tmp_path: Path) -> None:
    """Two update buckets and two insert buckets. A bucket is the work of one task.

    The number of the task is in the write token, the second part of a file's name.
    """
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, **NO_PACKING)
    report = table.upsert(rows({("x", "a"): 2, ("x", "new"): 2, ("y", "b"): 2, ("z", "new"): 2})).report
    assert (report["files"]["merged"], report["files"]["created"]) == (2, 2)
    tokens = {row["_hoodie_file_name"].split("_")[1] for row in table.to_arrow(meta_columns=True).to_pylist()}
    assert len(tokens) == 4


# --- 6. write to storage ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8, 9])
def test_write_to_storage_announces_each_file_by_a_marker_of_its_kind(tmp_path: Path, version: int) -> None:
    """Markers are in .hoodie/.temp/<instant>/, named after the file and CREATE or MERGE. The commit removes them."""
    table = new_table(tmp_path, {("x", "a"): 1}, version=version, **NO_PACKING)
    live, calls = traced(table, **NO_PACKING)
    instant = live.upsert(rows({("x", "a"): 2, ("x", "b"): 2})).instant_time
    paths = written(calls)
    markers = [path for path in paths if path.startswith(f".hoodie/.temp/{instant}/")]
    assert sorted(short(marker, T=instant) for marker in markers) == [
        ".hoodie/.temp/T/x/G_W_T.parquet.marker.CREATE",
        ".hoodie/.temp/T/x/G_W_T.parquet.marker.MERGE",
    ]
    files = [marker.removeprefix(f".hoodie/.temp/{instant}/").rpartition(".marker.")[0] for marker in markers]
    assert set(files) == {path for path in base_files(table) if instant in path}
    assert [file for marker, file in zip(markers, files, strict=True) if paths.index(marker) > paths.index(file)] == []
    assert not Path(tmp_path, "t/.hoodie/.temp", instant).exists()


def test_write_to_storage_markers_of_a_dead_write_serve_its_rollback(tmp_path: Path) -> None:
    """`leftovers` lists what no commit names: orphan files, markers, and so on."""
    table = new_table(tmp_path, {("x", "a"): 1})
    die(table, "open_output", lambda dead: dead.upsert(rows({("x", "a"): 2})))
    assert len(list(Path(tmp_path, "t/.hoodie/.temp").rglob("*.marker.MERGE"))) == 1
    table.upsert(rows({("x", "a"): 3}))
    assert leftovers(LocalStorage(str(tmp_path / "t"))) == []
    assert stored(table) == [("x", "a", 3)]


# --- 7. update index ----------------------------------------------------------------------------------


def keys_in_footer(table: Table) -> tuple[str | None, str | None, int]:
    """Return what the footer of the only file says: least key, greatest key, number of keys in the bloom filter."""
    (file,) = table.snapshot().files
    footer = read_key_footer(table.context.storage, file)
    bloom = footer.bloom(table.context.storage)
    assert bloom is not None
    return footer.minimum, footer.maximum, bloom.used


def test_update_index_knows_every_key_when_the_commit_is_visible(tmp_path: Path) -> None:
    """The bloom index is in the footers of the base files, so it is written with the data: key range and filter.

    An index apart from the files, such as Hudi's in HBase, is updated in this step.
    """
    table = new_table(tmp_path)
    table.upsert(rows({("x", "k0"): 1, ("x", "k1"): 1, ("x", "k2"): 1}))
    assert keys_in_footer(table) == ("k0", "k2", 3)
    table.upsert(rows({("x", "k2"): 1, ("x", "k3"): 1, ("x", "k4"): 1, ("x", "k5"): 1}))
    assert keys_in_footer(table) == ("k0", "k5", 6)


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
    """Another writer changes the same file group while ours writes its data file, on a storage without locks.

    ``meanwhile`` is called before each call to storage: here, before our data file is written, the other one commits.
    """
    table = new_table(tmp_path, {("x", "a"): 1})
    theirs = iter([rows({("x", "a"): 2})])

    def another_writer(call: Call) -> None:
        if call.name == "open_output" and (batch := next(theirs, None)) is not None:
            Table(UnlockedStorage(str(tmp_path / "t"))).upsert(batch)

    once = resolve({"lakeformat.write.retries": 0})
    ours = Table(FaultyStorage(UnlockedStorage(str(tmp_path / "t")), meanwhile=another_writer), once)
    with pytest.raises(WriteConflictError, match=r"overlaps commit \d+ in 1 file group"):
        ours.upsert(rows({("x", "a"): 3}))
    assert stored(table) == [("x", "a", 2)]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_commit_changes_saves_commit_metadata_on_the_timeline(tmp_path: Path, version: int) -> None:
    """The completed file lists the written files: in JSON in version 6, in Avro in versions 8 and 9."""
    table = new_table(tmp_path, {("x", "a"): 1, ("y", "b"): 1}, version=version)
    instant = table.upsert(rows({("x", "a"): 2})).instant_time
    metadata = timeline_content(table, instant, ".commit")
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
