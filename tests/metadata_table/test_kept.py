"""Actions of lakeformat keep the metadata tables that Hudi made: what they list is what the folders have."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.errors import WriteConflictError
from lakeformat.metadata_table.bounds import typed_bounds
from lakeformat.metadata_table.compaction import last_compaction
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import FOLDER, MetadataPartition
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, UnlockedStorage, at, once
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.flights import grow_old, open_at
from tests.helpers.hudi_view import find_disagreements
from tests.metadata_table.test_fixtures import open_table

LAYOUTS = ["v6_mor_compacted", "v8_cow_clustered", "v9_mor_compacted"]
#: The same tables for long tests: one of them runs in each test run.
LONG_LAYOUTS = [*(pytest.param(name, marks=pytest.mark.nightly) for name in LAYOUTS[:-1]), LAYOUTS[-1]]


def _mark_of(name: str) -> tuple[pytest.MarkDecorator, ...]:
    table = name.rpartition("/")[2]
    return (pytest.mark.nightly,) if table not in LAYOUTS else () if table == LAYOUTS[-1] else (pytest.mark.slow,)


TABLES = [pytest.param(name, marks=_mark_of(name)) for name in names("hudi_metadata")]
Rows = dict[str, dict[str, Any]]


def rows_of(table: lakeformat.Table, **options: str) -> Rows:
    found = table.to_arrow(**options).to_pylist()
    rows = {row["id"]: row for row in found}
    assert len(rows) == len(found)
    return rows


def assert_kept(path: Path) -> None:
    """Check that reads list from the metadata table, that it lists what the folders have, and that rows are equal."""
    metadata = open_table(path)
    assert metadata is not None
    assert "files" in metadata.names
    table = lakeformat.open(path)
    assert table.check().findings == ()
    assert_statistics(path, metadata, table)
    shutil.rmtree(path / ".hoodie/.lakeformat/index", ignore_errors=True)
    listed = lakeformat.open(path)
    assert "metadata table" in str(listed.snapshot().source)
    folders = lakeformat.open(path, **{"hoodie.metadata.enable": "false"})
    assert "folders" in str(folders.snapshot().source)
    assert rows_of(listed) == rows_of(folders)


def assert_statistics(path: Path, metadata: MetadataTable, table: lakeformat.Table) -> None:
    """Check statistics and bloom filters against the files themselves."""
    live = {file.name: file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts}
    pairs = [("" if (p := f.parent.relative_to(path).as_posix()) == "." else p, name) for name, f in live.items()]
    filters = metadata.bloom_filters(pairs)
    assert len(filters) == len(live)
    for (_, name), text in filters.items():
        assert (pq.read_metadata(live[name]).metadata or {})[b"org.apache.hudi.bloomfilter"] == text
    found = metadata.column_stats()
    filled = {name: file for name, file in live.items() if pq.read_metadata(file).num_rows}
    if "record_index" in metadata.names:
        assert_places(metadata, table)
    if "partition_stats" in metadata.names:
        assert_partition_statistics(metadata, table, live.keys() - filled.keys())
    for column in ("_hoodie_record_key", "id", "ts", "qty", "price", "day", "at", "name"):
        rows = found.filter(pc.equal(found["column_name"], column))
        data_type = pa.string() if column.startswith("_") else table.schema.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(rows, data_type)), strict=True)
        known = dict(zip(rows["file_name"].to_pylist(), bounds, strict=True))
        assert filled.keys() <= known.keys()
        for name, file in filled.items():
            values = pq.read_table(file, columns=[column])[column]
            assert known[name] == tuple(pc.min_max(values).as_py().values()), (name, column)


def assert_partition_statistics(metadata: MetadataTable, table: lakeformat.Table, empty: Collection[str]) -> None:
    """Check that each partition with files, and no other, has tight statistics: those of its live files, joined.

    The bounds are those of the rows, if the table is copy-on-write; else rows of base files may be hidden by logs.

    Args:
        empty: names of the base files without rows, which have no statistics.
    """
    found, of_files = metadata.partition_stats(), metadata.column_stats()
    pieces = list(table.snapshot().each_slice())
    live = {(piece.group.partition_path, str(file.name)) for piece in pieces for file in piece.files}
    rows = table.to_arrow(["_hoodie_record_key", "_hoodie_partition_path", *table.schema.names])
    paths = {piece.group.partition_path for piece in pieces}
    for column in ("_hoodie_record_key", "id", "ts", "qty", "amount", "price", "day", "at", "name", "ok"):
        own = found.filter(pc.equal(found["column_name"], column))
        assert sorted(own["partition_path"].to_pylist()) == sorted(paths)
        assert set(own["is_tight"].to_pylist()) == {True}
        counts = of_files.filter(pc.equal(of_files["column_name"], column)).to_pylist()
        by_name = {row["file_name"]: row for row in counts}
        data_type = pa.string() if column.startswith("_") else table.schema.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(own, data_type)), strict=True)
        for row, (low, high) in zip(own.to_pylist(), bounds, strict=True):
            path = row["partition_path"]
            files = [by_name[name] for folder, name in live if folder == path and name not in empty]
            for count in ("values", "nulls", "size_bytes", "unpacked_bytes"):
                assert row[count] == sum(each[count] for each in files), (path, column)
            here = rows.filter(pc.equal(rows["_hoodie_partition_path"], path))[column]
            ends = tuple(pc.min_max(here).as_py().values())
            if not any(piece.logs for piece in pieces) and row["values"] > row["nulls"]:
                assert (low, high) == ends, (path, column)
            elif ends[0] is not None:
                assert low <= ends[0] <= ends[1] <= high, (path, column)


def assert_places(metadata: MetadataTable, table: lakeformat.Table) -> None:
    """Check that the record index has each live key, with one of its places, and names live file groups alone.

    It may name keys that log files have deleted, and one of the places of a key that is in several partitions.
    """
    index = metadata.record_index()
    found = {row["key"]: (row["partition_path"], row["file_id"]) for row in index.to_pylist()}
    assert len(found) == len(index)
    places: dict[str, set[tuple[str, str]]] = {}
    for row in table.to_arrow(["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]).to_pylist():
        key, path, name = row.values()
        file_id = name.removeprefix(".").partition("_")[0]
        places.setdefault(key, set()).add((path, file_id))
    assert places.keys() <= found.keys()
    assert all(found[key] in known for key, known in places.items())
    groups = {(piece.group.partition_path, piece.group.file_id) for piece in table.snapshot().each_slice()}
    assert set(found.values()) <= groups


def actions(table: lakeformat.Table, rows: pa.Table) -> Mapping[str, Callable[[], object]]:
    """Return the actions to run in turn, in an order in which each has something to do."""
    new = rows.set_column(0, "id", pa.array([f"new{number}" for number in range(len(rows))]))
    mor = table.config.table_type.value == "MERGE_ON_READ"
    return {
        "upsert": lambda: table.upsert(rows.slice(0, 3)),
        "insert": lambda: table.insert(new.slice(0, 3)),
        "bulk_insert": lambda: table.bulk_insert(new.slice(3)),
        "delete": lambda: table.delete(where="id = 'new1'"),
        "update": lambda: table.update({"qty": 7}, where="id = 'new2'"),
        "cluster": lambda: table.cluster(by=["qty", "ts"]),
        "savepoint": lambda: table.savepoint(table.history()[0].instant_time),
        "upsert again": lambda: table.upsert(rows),
        "compact": lambda: table.compact() if mor else None,
        "insert_overwrite": lambda: table.insert_overwrite(rows.slice(0, 2)),
        "delete_savepoint": lambda: table.delete_savepoint(table.savepoints()[0].instant_time),
        "clean": lambda: table.clean(commits=1),
        "delete_partitions": lambda: table.delete_partitions("region=us") if table.config.partition_fields else None,
        "upsert after": lambda: table.upsert(rows.slice(0, 4)),
        "clean after": lambda: table.clean(commits=1),
        "archive": lambda: table.archive(min_commits=2, max_commits=3),
        "overwrite": lambda: table.overwrite(rows),
    }


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_action_keeps_the_list_of_files(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.open(path)
    first = open_table(path).names  # type: ignore[union-attr]
    rows = table.to_arrow(where="region <> 'mars'")  # Hudi has left a row of this region in the partition of another.
    for action in actions(table, rows).values():
        action()
        assert_kept(path)
    metadata = open_table(path)
    assert metadata is not None
    assert metadata.names == first
    assert rows_of(table) == {row["id"]: row for row in rows.to_pylist()}
    hudi_rs.assert_same_rows(table)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names("hudi_metadata") if "mor" in name])
def test_keys_that_were_deleted_in_log_files_are_found_when_they_come_back(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.open(path)
    rows = table.to_arrow().slice(0, 3)
    for _ in range(2):
        table.delete(rows)
        assert_kept(path)
        table.upsert(rows)
        assert_kept(path)
    table.delete(rows)
    table.compact()
    table.cluster(by=["qty"])
    assert_kept(path)
    assert not places_of(path, rows)
    table.upsert(rows)
    assert_kept(path)
    assert places_of(path, rows) == set(rows["id"].to_pylist())


def places_of(path: Path, rows: pa.Table) -> set[str]:
    """Return the keys of these rows that the record index has."""
    metadata = open_table(path)
    assert metadata is not None
    return set(metadata.record_index(rows["id"].combine_chunks())["key"].to_pylist())


def test_a_partition_that_cannot_follow_is_dropped_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    definitions = path / ".hoodie/.index_defs/index.json"
    definitions.write_text(definitions.read_text().replace('"isPartitioned" : "false"', '"isPartitioned" : "true"'))
    table = lakeformat.open(path)
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        table.upsert(table.to_arrow().slice(0, 1))
        table.upsert(table.to_arrow().slice(0, 1))
    (text,) = (record.getMessage() for record in caplog.records if "metadata table" in record.getMessage())
    assert text.startswith("dropped record_index from the metadata table of ")
    folders = {folder.name for folder in (path / FOLDER).iterdir() if folder.is_dir()}
    assert folders == {".hoodie", "files", "bloom_filters", "column_stats", "partition_stats"}


@pytest.mark.parametrize(("region", "is_kept"), [("asia", True), ("eu", False)])
def test_a_commit_that_began_later_and_ended_first_hides_no_statistics(
    region: str, is_kept: bool, tmp_path: Path
) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    rows = lakeformat.open(path).to_arrow(where="region = 'eu'")
    new = changed(lakeformat.open(path).to_arrow(where=f"region = '{region}'"))
    new = new.set_column(0, "id", pa.array([f"new{number}" for number in range(len(new))]))
    before = lakeformat.open(path).to_arrow().num_rows

    def is_inflight(call: Call) -> bool:
        return call.name == "create" and call.path.endswith(".inflight") and FOLDER not in call.path

    other = once(is_inflight, lambda _: lakeformat.open(path).bulk_insert(new))
    open_at(FaultyStorage(LocalStorage(str(path)), meanwhile=other), "writer").upsert(rows)
    assert lakeformat.open(path).to_arrow().num_rows == before + len(new)
    metadata = open_table(path)
    assert metadata is not None
    assert ("partition_stats" in metadata.names) == is_kept
    assert_kept(path)


def test_a_file_with_nan_drops_the_statistics_of_files_and_of_partitions(
    tmp_path: Path,
) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    table = lakeformat.open(path)
    row = table.to_arrow(where="id = 'k002'")
    amount = row.schema.get_field_index("amount")
    table.upsert(row.set_column(amount, "amount", pa.array([float("nan")] * len(row))))
    metadata = open_table(path)
    assert metadata is not None
    assert metadata.names == ("bloom_filters", "files", "record_index")


def test_a_file_with_nan_of_a_table_without_partitions_has_no_statistics(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_cow_overwrite_flat", tmp_path)
    table = lakeformat.open(path)
    row = table.to_arrow().slice(0, 1)
    amount = row.schema.get_field_index("amount")
    table.upsert(row.set_column(amount, "amount", pa.array([float("nan")])))
    metadata = open_table(path)
    assert metadata is not None
    assert "column_stats" in metadata.names
    written = {piece.base.name for piece in table.snapshot().each_slice() if piece.base is not None}
    assert not set(map(str, written)) <= set(metadata.column_stats()["file_name"].to_pylist())


@pytest.mark.parametrize("name", ["v8_cow_clustered", "v9_cow_delete_partition"])
def test_a_base_file_that_has_lost_all_rows_has_no_statistics(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path)
    region = table.to_arrow()["region"][0].as_py()
    table.delete(where=f"region = '{region}'")
    empty = {
        str(piece.base.name)
        for piece in table.snapshot().each_slice()
        if piece.base is not None and not pq.read_metadata(path / piece.base.path).num_rows
    }
    assert empty
    metadata = open_table(path)
    assert metadata is not None
    assert "column_stats" in metadata.names
    assert empty.isdisjoint(metadata.column_stats()["file_name"].to_pylist())
    assert find_disagreements(lakeformat.open(path)) == []


def test_log_files_of_a_table_with_partial_updates_have_no_statistics(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    properties = path / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.table.partial.update.mode=IGNORE_DEFAULTS\n")
    table = lakeformat.open(path)
    table.upsert(changed(table.to_arrow(where="region = 'eu'").slice(0, 2)))
    metadata = open_table(path)
    assert metadata is not None
    assert metadata.names == ("bloom_filters", "files", "record_index")
    assert rows_of(table) == rows_of(lakeformat.open(path, **{"hoodie.metadata.enable": "false"}))


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_LAYOUTS)
def test_it_is_compacted_and_cleaned_and_lets_the_table_archive(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    short = {"hoodie.cleaner.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    rows = lakeformat.open(path).to_arrow()
    for number in range(60):
        lakeformat.open(path, **short).upsert(rows.slice(number % len(rows), 2))
    assert_kept(path)
    metadata = open_table(path)
    assert metadata is not None
    files = [file for file in (path / FOLDER / "files").iterdir() if not file.name.endswith(".crc")]
    assert len(files) < 40
    assert len(metadata.instants.times) < 80  # Of 120 deltacommits and more than ten compactions.
    assert len(lakeformat.open(path).snapshot().timeline.commits) < 30
    hudi_rs.assert_same_rows(lakeformat.open(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_is_compacted_after_as_many_commits_as_the_option_says(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path, **{"hoodie.metadata.compact.max.delta.commits": 3, "hoodie.clean.automatic": False})
    rows = table.to_arrow()
    counts = []
    for number in range(9):
        table.upsert(rows.slice(number, 2))
        metadata = open_table(path)
        assert metadata is not None
        counts.append(len(metadata.list_slices(MetadataPartition.FILES)[0].logs))
    assert max(counts[-8:]) == 4  # The next write finds more than three, and compacts before it adds its own.
    assert counts[-8:].count(1) == 2
    assert_kept(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_writers_without_a_lock_keep_it_too(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    first = open_table(path)
    assert first is not None
    tables = [open_at(UnlockedStorage(str(path)), f"writer {number}") for number in range(2)]
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        for number in range(24):
            tables[number % 2].upsert(rows.slice(number % len(rows), 2))
        tables[0].clean(commits=1)
    dropped = [record.getMessage() for record in caplog.records if "from the metadata table" in record.getMessage()]
    assert len(dropped) == ("v6" not in name)  # Version 6 has no partition_stats.
    metadata = open_table(path)
    assert metadata is not None
    is_compacted = last_compaction(metadata) > last_compaction(first)
    assert is_compacted == metadata.instants.has_completion_times  # In layout 1 that needs a lock.
    assert_kept(path)


def test_the_deltacommit_of_a_writer_that_was_undone_in_its_sleep_is_removed(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    storage = UnlockedStorage(str(path))
    rows = lakeformat.open(path).to_arrow()

    def is_deltacommit(call: Call) -> bool:
        return call.name == "create" and FOLDER in call.path and call.path.endswith(".deltacommit.requested")

    def undo(call: Call) -> None:
        slept.append(call)
        grow_old(path)
        open_at(storage, "next").upsert(rows.slice(5, 1))

    def is_published(_: int, call: Call) -> bool:
        return call.name == "replace_if" and "state" in call.path and bool(slept)

    slept: list[Call] = []
    dying = FaultyStorage(storage, Fault(is_published, Mode.BEFORE), meanwhile=once(is_deltacommit, undo))
    with pytest.raises((Crash, WriteConflictError)):
        open_at(dying, "writer").upsert(rows.slice(0, 2))
    (call,) = slept
    undone = call.path.rpartition("/")[2].partition(".")[0]
    assert list((path / FOLDER).rglob(f"{undone}_*.deltacommit"))
    open_at(storage, "last").upsert(rows.slice(6, 1))
    assert not list((path / FOLDER).rglob(f"*{undone}*"))
    assert_kept(path)


def prepare(name: str, folder: Path) -> tuple[Path, Rows, pa.Table]:
    """Return a table whose next write compacts its metadata table."""
    path = unpack(f"hudi_metadata/{name}", folder)
    rows = lakeformat.open(path).to_arrow()
    while len(open_table(path).list_slices(MetadataPartition.FILES)[0].logs) <= 10:  # type: ignore[union-attr]
        lakeformat.open(path).upsert(rows.slice(0, 2))
    return path, rows_of(lakeformat.open(path)), rows


def changed(rows: pa.Table) -> pa.Table:
    later = pa.array([value + 1_000_000 for value in rows["ts"].to_pylist()], rows["ts"].type)
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", later)


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "every"),
    [
        pytest.param(Mode.TORN, 1, marks=pytest.mark.nightly),
        pytest.param(Mode.AFTER, 1, marks=pytest.mark.nightly),
        (Mode.AFTER, 4),
    ],
)
@pytest.mark.parametrize("name", LONG_LAYOUTS)
def test_writer_that_dies_at_a_call_for_the_metadata_table_leaves_it_whole(
    name: str, mode: Mode, every: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In CI the writer dies at each fourth call that changes something, by night at each."""
    path, before, rows = prepare(name, tmp_path)
    write = changed(rows.slice(0, 5))
    recording = FaultyStorage(LocalStorage(shutil.copytree(path, tmp_path / "recorded")))
    open_at(recording, "writer").upsert(write)
    after = rows_of(lakeformat.open(tmp_path / "recorded"))
    assert after != before
    calls = recording.calls
    first = next(number for number, call in enumerate(calls) if call.changes and FOLDER in call.path)
    changing = [number for number, call in enumerate(calls) if call.changes and number >= first]
    assert any("compaction" in calls[number].path for number in changing)
    deaths = changing[::every]
    for number in deaths:
        copy = shutil.copytree(path, tmp_path / f"{number}")
        with pytest.raises(Crash):
            open_at(FaultyStorage(LocalStorage(copy), Fault(at(number), mode)), "writer").upsert(write)
        seen = rows_of(lakeformat.open(copy))
        assert seen in (before, after), calls[number]
        open_at(LocalStorage(copy), "next").upsert(rows.slice(7, 1))
        assert_kept(copy)
        assert rows_of(lakeformat.open(copy)).keys() == seen.keys()
        shutil.rmtree(copy)
    record_property("crashes", len(deaths))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_damaged_one_is_dropped_and_the_write_goes_on(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    (path / FOLDER / ".hoodie/hoodie.properties").unlink()
    table = lakeformat.open(path)
    rows = table.to_arrow()
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        table.upsert(changed(rows))
    assert "could not be maintained" in caplog.text
    assert not (path / FOLDER).exists()
    assert not table.config.has_metadata_table
    assert rows_of(table) == {row["id"]: row for row in changed(rows).to_pylist()}


def test_a_rollback_removes_the_deltacommit_of_a_dead_writer(tmp_path: Path) -> None:
    path, _, rows = prepare("v9_mor_compacted", tmp_path)
    storage = LocalStorage(str(path))

    def is_commit(_: int, call: Any) -> bool:
        return bool(call.changes) and call.path.startswith(".hoodie/timeline") and call.path.endswith(".deltacommit")

    with pytest.raises(Crash):
        open_at(FaultyStorage(storage, Fault(is_commit, Mode.BEFORE)), "writer").upsert(rows.slice(0, 2))
    (dead,) = lakeformat.open(path).snapshot().timeline.pending
    assert list((path / FOLDER).rglob(f"*{dead.time}_*.deltacommit"))
    open_at(storage, "next").upsert(rows.slice(5, 1))
    assert not list((path / FOLDER).rglob(f"{dead.time}*"))
    assert_kept(path)


@pytest.mark.parametrize("name", LAYOUTS)
def test_damage_does_not_stop_archiving_or_recovery(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    storage = LocalStorage(str(path))
    number = next(at for at, call in enumerate(recorded(path, rows)) if call.path.endswith(".inflight"))
    with pytest.raises(Crash):
        open_at(FaultyStorage(storage, Fault(at(number), Mode.AFTER)), "writer").upsert(rows.slice(0, 2))
    for file in (path / FOLDER / "files").iterdir():
        file.unlink()
    assert lakeformat.open(path).archive(min_commits=2, max_commits=3).instants == ()
    open_at(storage, "next").upsert(changed(rows))
    assert rows_of(lakeformat.open(path)) == {row["id"]: row for row in changed(rows).to_pylist()}


def recorded(path: Path, rows: pa.Table) -> list[Call]:
    """Return the calls of an upsert into a copy of the table."""
    recording = FaultyStorage(LocalStorage(str(shutil.copytree(path, f"{path}-recorded"))))
    open_at(recording, "writer").upsert(rows.slice(0, 2))
    return recording.calls
