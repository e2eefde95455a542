"""Metadata tables that lakeformat makes: complete, as Hudi's own, and crash-safe."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat.cli.main import main
from lakeformat.errors import InvalidInputError, UnsupportedTableError, WriteConflictError
from lakeformat.metadata_table.bounds import typed_bounds
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import FOLDER, partition_of_name
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, UnlockedStorage, at
from tests.helpers.fixture_tables import unpack
from tests.helpers.flights import open_at
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import assert_kept, changed, rows_of

KINDS = [(6, "COPY_ON_WRITE"), (6, "MERGE_ON_READ"), (8, "COPY_ON_WRITE"), (9, "MERGE_ON_READ")]
LAYOUTS = ["v6_mor_compacted", "v8_cow_clustered", "v9_mor_compacted"]
MADE = ("bloom_filters", "column_stats", "files", "record_index")
OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
}


def rows_and_new_table(version: int, kind: str, folder: Path, **options: Any) -> tuple[pa.Table, lakeformat.Table]:
    """Return rows of the columns that the fixtures have, and a new table for them."""
    rows = lakeformat.open(unpack("hudi_metadata/v9_mor_compacted", folder)).to_arrow()
    settings = {"hoodie.write.table.version": version, "table_type": kind, **options}
    table = lakeformat.create(
        folder / "new", rows.schema, record_key="id", partition_by="region", ordering="ts", **settings
    )
    return rows, table


def opened(path: Path) -> MetadataTable:
    metadata = open_table(path)
    assert metadata is not None
    return metadata


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_option_makes_it_at_the_next_write(version: int, kind: str, is_new: bool, tmp_path: Path) -> None:
    rows, table = rows_and_new_table(version, kind, tmp_path)
    path = tmp_path / "new"
    if not is_new:
        table.upsert(rows)
        table.upsert(changed(rows.slice(0, 3)))
        table.delete(rows.slice(3, 1))
    lakeformat.open(path, **OPTIONS).upsert(changed(rows.slice(5)))
    assert opened(path).names == MADE
    assert_kept(path)
    if version != 6:
        assert list((path / ".hoodie/.index_defs").iterdir())
    before = sorted(opened(path).instants.filled)
    lakeformat.open(path, **OPTIONS).upsert(changed(changed(rows)))
    lakeformat.open(path).delete(rows.slice(7, 2))
    assert_kept(path)
    assert sorted(opened(path).instants.filled) == before  # Made once.
    hudi_rs.assert_same_rows(lakeformat.open(path))


def test_without_the_option_or_with_false_nothing_is_made(tmp_path: Path) -> None:
    rows, table = rows_and_new_table(9, "COPY_ON_WRITE", tmp_path)
    table.upsert(rows)
    lakeformat.open(tmp_path / "new", **{**OPTIONS, "hoodie.metadata.enable": "false"}).upsert(rows)
    assert not (tmp_path / "new" / FOLDER).exists()


def content(metadata: MetadataTable, live: set[str], schema: pa.Schema) -> dict[str, Any]:
    """Return what a metadata table says about live base files, in a comparable form."""
    files = metadata.files()
    files = files.filter(pc.is_in(files["file_name"], value_set=pa.array(sorted(live))))
    stats = metadata.column_stats()
    stats = stats.filter(pc.is_in(stats["file_name"], value_set=pa.array(sorted(live))))
    found = {}
    for column in stats["column_name"].unique().to_pylist():
        rows = stats.filter(pc.equal(stats["column_name"], column))
        data_type = pa.string() if column.startswith("_") else schema.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(rows, data_type)), strict=True)
        for row, pair in zip(rows.to_pylist(), bounds, strict=True):
            is_empty = row["nulls"] == row["values"]  # Hudi stores false as the bounds of an empty boolean column.
            found[row["key"]] = row["values"], row["nulls"], (None, None) if is_empty else pair
    names = [(row["partition_path"], row["file_name"]) for row in files.to_pylist()]
    return {
        "files": sorted(map(str, files.to_pylist())),
        "column_stats": found,
        "record_index": sorted(map(str, metadata.record_index().drop_columns(["instant_ms"]).to_pylist())),
        "bloom_filters": metadata.bloom_filters(names),
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_records_equal_those_of_hudi_for_the_same_files(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path, **{"hoodie.metadata.record.index.min.filegroup.count": "4"})
    live = {file.path.rpartition("/")[2] for piece in table.snapshot().each_slice() for file in piece.files}
    bases = {name for name in live if name.endswith(".parquet")}
    expected, listed = content(opened(path), bases, table.schema), opened(path).files()
    groups = {each: len(opened(path).list_slices(partition_of_name(each))) for each in MADE}
    table.drop_index("files")
    assert not (path / FOLDER).exists()
    for each in ("record_index", "column_stats", "bloom_filters"):
        table.create_index(each)
    found = content(opened(path), bases, table.schema)
    assert found["files"] == expected["files"]
    assert found["record_index"] == expected["record_index"]
    assert found["bloom_filters"] == expected["bloom_filters"]
    assert found["column_stats"] == expected["column_stats"]
    assert set(opened(path).files()["file_name"].to_pylist()) <= set(listed["file_name"].to_pylist())
    groups["record_index"] = 4  # The option says so; the fixtures have two to four.
    assert {index.name: index.file_groups for index in table.indexes()} == groups
    assert_kept(path)


def partition_bounds(path: Path, schema: pa.Schema) -> dict[str, Any]:
    """Return counts and bounds of each partition and column. Hudi has false as the bounds of empty boolean columns."""
    stats, found = opened(path).partition_stats(), {}
    for column in stats["column_name"].unique().to_pylist():
        rows = stats.filter(pc.equal(stats["column_name"], column))
        data_type = pa.string() if column.startswith("_") else schema.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(rows, data_type)), strict=True)
        for row, pair in zip(rows.to_pylist(), bounds, strict=True):
            is_empty = row["nulls"] == row["values"]
            found[row["key"]] = row["values"], row["nulls"], row["is_tight"], (None, None) if is_empty else pair
    return found


@pytest.mark.parametrize("name", ["v8_cow_clustered", "v9_cow_delete_partition"])
def test_statistics_of_partitions_equal_those_of_hudi(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path)
    live = {piece.group.partition_path for piece in table.snapshot().each_slice()}
    expected = partition_bounds(path, table.schema)
    table.drop_index("files")
    table.create_index("partition_stats")
    assert [index.name for index in table.indexes()] == ["column_stats", "files", "partition_stats"]
    found = partition_bounds(path, table.schema)
    assert found.items() <= expected.items()
    assert set(opened(path).partition_stats()["partition_path"].to_pylist()) == live
    table.upsert(changed(table.to_arrow().slice(0, 3)))
    assert "partition_stats" in opened(path).names


def test_indexes_are_made_and_dropped_one_by_one(tmp_path: Path) -> None:
    rows, table = rows_and_new_table(9, "COPY_ON_WRITE", tmp_path)
    table.upsert(rows)
    assert table.indexes() == ()
    made = table.create_index("column_stats", columns=["qty", "ts"])
    assert made.columns[-2:] == ("qty", "ts")
    assert [index.name for index in table.indexes()] == ["column_stats", "files"]
    with pytest.raises(InvalidInputError, match="has index column_stats already"):
        table.create_index("column_stats")
    with pytest.raises(InvalidInputError, match=r"no index 'record_indx' .*record_index"):
        table.create_index("record_indx")
    with pytest.raises(InvalidInputError, match="has no column 'nothing' to index"):
        table.create_index("column_stats", columns=["nothing"])
    table.upsert(changed(rows))
    table.create_index("record_index")
    assert table.drop_index("column_stats") == ("column_stats",)
    assert not (tmp_path / "new" / FOLDER / "column_stats").exists()
    assert "column_stats" not in (tmp_path / "new/.hoodie/.index_defs/index.json").read_text()
    with pytest.raises(InvalidInputError, match="has no index 'column_stats'"):
        table.drop_index("column_stats")
    table.upsert(rows.slice(0, 1))
    table.create_index("column_stats")
    table.create_index("bloom_filters")
    assert_kept(tmp_path / "new")


def test_pending_write_delays_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows, table = rows_and_new_table(9, "MERGE_ON_READ", tmp_path)
    table.upsert(rows)
    table.upsert(changed(rows.slice(0, 3)))
    planned = table.schedule_compaction()
    assert planned is not None
    with pytest.raises(WriteConflictError, match="is pending in"):
        table.create_index("record_index")
    with caplog.at_level(logging.INFO, "lakeformat.write"):
        lakeformat.open(tmp_path / "new", **OPTIONS).upsert(rows.slice(0, 1))
    assert f"is not made now, because {planned} is pending" in caplog.text
    table.run_compaction(planned)
    lakeformat.open(tmp_path / "new", **OPTIONS).upsert(changed(rows))
    assert opened(tmp_path / "new").names == MADE
    assert_kept(tmp_path / "new")


def test_statistics_that_would_lack_a_file_are_not_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows, table = rows_and_new_table(9, "COPY_ON_WRITE", tmp_path)
    amount = rows.schema.get_field_index("amount")
    table.upsert(rows.set_column(amount, "amount", pa.array([float("nan")] * len(rows))))
    with pytest.raises(UnsupportedTableError, match=r"column_stats .* cannot be made: the bounds of .* are not known"):
        table.create_index("column_stats")
    lakeformat.open(tmp_path / "new", **OPTIONS).upsert(rows.slice(0, 1))
    assert opened(tmp_path / "new").names == ("bloom_filters", "files", "record_index")
    assert "column_stats and partition_stats are left out" in caplog.text
    columns = {"hoodie.metadata.index.column.stats.column.list": "id,ts"}
    lakeformat.open(tmp_path / "new", **OPTIONS, **columns).upsert(rows.slice(0, 1))
    assert opened(tmp_path / "new").names == MADE


def test_damaged_one_is_made_again_by_the_option(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    (path / FOLDER / ".hoodie/hoodie.properties").unlink()
    rows = changed(lakeformat.open(path).to_arrow().slice(0, 3))
    lakeformat.open(path, **OPTIONS).upsert(rows)  # It drops the metadata table.
    assert not (path / FOLDER).exists()
    lakeformat.open(path, **OPTIONS).upsert(rows)
    assert opened(path).names == MADE
    assert_kept(path)


@pytest.mark.parametrize("version", [6, 9])
def test_storage_without_locks(version: int, tmp_path: Path) -> None:
    rows, table = rows_and_new_table(version, "COPY_ON_WRITE", tmp_path)
    table.upsert(rows)
    path = tmp_path / "new"
    own = open_at(UnlockedStorage(str(path)), "maker")
    if version == 6:
        with pytest.raises(UnsupportedTableError, match="on storage without locks"):
            own.create_index("record_index")
        return
    for name in ("record_index", "column_stats", "bloom_filters"):
        own.create_index(name)
    open_at(UnlockedStorage(str(path)), "next").upsert(changed(rows.slice(0, 2)))
    assert opened(path).names == MADE
    assert_kept(path)


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param(Mode.TORN, marks=pytest.mark.nightly), Mode.AFTER])
@pytest.mark.parametrize(("version", "kind"), [(6, "MERGE_ON_READ"), (9, "COPY_ON_WRITE")])
def test_maker_that_dies_at_any_call_leaves_nothing_that_counts(
    version: int, kind: str, mode: Mode, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rows, table = rows_and_new_table(version, kind, tmp_path)
    table.upsert(rows)
    table.create_index("files")
    path = tmp_path / "new"
    before = rows_of(lakeformat.open(path))
    recording = FaultyStorage(LocalStorage(shutil.copytree(path, tmp_path / "recorded")))
    open_at(recording, "maker").create_index("record_index")
    deaths = [number for number, call in enumerate(recording.calls) if call.changes]
    for number in deaths:
        copy = shutil.copytree(path, tmp_path / f"{number}")
        with pytest.raises(Crash):
            open_at(FaultyStorage(LocalStorage(copy), Fault(at(number), mode)), "maker").create_index("record_index")
        assert rows_of(lakeformat.open(copy)) == before, recording.calls[number]
        lakeformat.open(copy, **OPTIONS).upsert(changed(rows.slice(2, 2)))
        assert opened(copy).names == MADE
        assert_kept(copy)
        shutil.rmtree(copy)
    record_property("crashes", len(deaths))


def test_sql_makes_shows_and_drops_indexes(tmp_path: Path) -> None:
    rows, table = rows_and_new_table(9, "COPY_ON_WRITE", tmp_path)
    table.upsert(rows)
    name = f"lakehouse.`{tmp_path / 'new'}`"

    def shown() -> dict[str, str]:
        found = lakeformat.sql(f"show indexes from {name}")
        return dict(zip(found["index_name"].to_pylist(), found["cols"].to_pylist(), strict=True))

    assert shown() == {}
    lakeformat.sql(f"create index record_index on {name} (id)")
    lakeformat.sql(f"create index if not exists record_index on table {name}")
    lakeformat.sql(f"CREATE INDEX column_stats ON {name} USING column_stats (qty, ts)")
    assert shown().keys() == {"column_stats", "files", "record_index"}
    assert shown()["column_stats"].endswith(",qty,ts")
    lakeformat.sql(f"drop index column_stats on {name}")
    lakeformat.sql(f"drop index if exists column_stats on {name}")
    assert shown().keys() == {"files", "record_index"}
    with pytest.raises(InvalidInputError, match="has no index 'column_stats'"):
        lakeformat.sql(f"drop index column_stats on {name}")
    with pytest.raises(InvalidInputError, match="expression index"):
        lakeformat.sql(f"create index by_day on {name} using column_stats (ts) options (expr = 'from_unixtime')")
    lakeformat.sql(f"create index by_t on {name} (name)")
    lakeformat.sql(f"create index if not exists by_t on {name} (name)")
    assert shown()["secondary_index_by_t"] == "name"
    lakeformat.sql(f"drop index by_t on {name}")
    assert shown().keys() == {"files", "record_index"}
    with pytest.raises(InvalidInputError, match="no index 'bloom_filter' that lakeformat can make; did you"):
        lakeformat.sql(f"create index bloom_filter on {name} (name)")


def test_command_line_makes_lists_and_drops_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, table = rows_and_new_table(9, "COPY_ON_WRITE", tmp_path)
    table.upsert(rows)
    path = str(tmp_path / "new")
    assert main(["index", "create", path, "record_index"]) == 0
    assert capsys.readouterr().out.startswith("record_index: 10 file groups, ")
    assert main(["index", "list", path]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["files", "record_index"]
    assert main(["index", "drop", path, "files"]) == 0
    assert capsys.readouterr().out == "dropped files, record_index\n"
    assert main(["index", "list", path]) == 0
    assert capsys.readouterr().out == "no indexes\n"
