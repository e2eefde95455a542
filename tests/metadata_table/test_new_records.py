"""Records that are made from the footers of Hudi's base files are those that Hudi made of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.metadata_table.index_definitions import StatisticsForm
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.metadata_table.new_records import (
    MeasuredFile,
    NewFile,
    filter_rows,
    statistics_keys,
    statistics_rows,
)
from lakeformat.metadata_table.partition_records import find_unmeasured, indexed_columns, partition_rows
from lakeformat.model.files import BaseFile, BaseFileName, LogFile, LogFileName
from lakeformat.model.record import META_COLUMNS
from lakeformat.storage import LocalStorage
from lakeformat.transaction.upkeep.new_files import IndexedColumns, measure_files
from tests.helpers.fixture_tables import names, unpack
from tests.metadata_table.test_fixtures import open_table

TABLES = names("hudi_metadata")
MEASURES = ["key", "file_name", "column_name", "values", "nulls", "size_bytes", "unpacked_bytes"]


def files_of(path: Path) -> list[NewFile]:
    """Return the base files of a table. None of them has NaN."""
    found = []
    for file in sorted(path.rglob("*.parquet")):
        folder = file.parent.relative_to(path).as_posix()
        base = BaseFile("" if folder == "." else folder, BaseFileName.parse(file.name), file.stat().st_size)
        found.append(NewFile(base, pq.read_metadata(file), frozenset({"amount"})))
    return found


def logs_of(path: Path, columns: IndexedColumns) -> list[MeasuredFile]:
    """Return the log files of a table."""
    found = []
    for file in sorted(path.rglob(".*.log.*")):
        name = LogFileName.match(file.name)
        if name is not None and ".hoodie" not in file.parts:
            found.append(LogFile(file.parent.relative_to(path).as_posix(), name, file.stat().st_size))
    return measure_files(LocalStorage(str(path)), found, columns)


def sorted_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Return the rows in the order of their keys, without columns that have no value."""
    found = rows.sort_by("key").to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


@pytest.mark.parametrize("name", TABLES)
def test_statistics_are_those_of_hudi(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table, metadata = lakeformat.open(path), open_table(path)
    assert metadata is not None
    schema = pa.schema([*((column, pa.string()) for column in META_COLUMNS), *table.schema])
    theirs = metadata.column_stats()
    columns = sorted(set(theirs["column_name"].to_pylist()))
    version = table.config.version
    logs = logs_of(path, IndexedColumns(StatisticsForm(tuple(columns), version == 9), schema))
    assert bool(logs) == ("mor" in name)
    ours = statistics_rows([*files_of(path), *logs], columns, schema, stores_types=version == 9)
    assert ours is not None
    there = {row["file_name"] for row in ours.to_pylist()}
    expected = [row for row in sorted_rows(theirs) if row["file_name"] in there]
    for row in expected:
        if row["values"] == row["nulls"]:  # Hudi gives a boolean without a value the bounds false and false.
            row.pop("min.BooleanWrapper", None)
            row.pop("max.BooleanWrapper", None)
    if version == 6:  # The compaction of 0.15 turns dates and decimals into integers and bytes. It has no `is_tight`.
        expected = [row for row in expected if row["column_name"] not in {"day", "price"}]
        is_other = pc.is_in(ours["column_name"], value_set=pa.array(["day", "price"]))
        ours = ours.filter(pc.invert(is_other)).drop_columns(["is_tight"])
    assert sorted_rows(ours.drop_columns(["is_deleted"])) == expected
    pairs = [(each.file.partition_path, each.name) for each in (*files_of(path), *logs)]
    assert set(ours["key"].to_pylist()) <= set(statistics_keys(pairs, columns).to_pylist())


@pytest.mark.parametrize("name", TABLES)
def test_filters_are_those_of_hudi(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    metadata = open_table(path)
    assert metadata is not None
    files = files_of(path)
    rows = filter_rows(files, "1")
    assert rows is not None
    ours = dict(zip(rows["key"].to_pylist(), rows["filter"].to_pylist(), strict=True))
    theirs = metadata.bloom_filters([(each.file.partition_path, each.name) for each in files])
    assert theirs
    for piece in metadata.list_slices(MetadataPartition.BLOOM_FILTERS):
        for row in metadata.read_slice(MetadataPartition.BLOOM_FILTERS, piece).to_pylist():
            if row["key"] in ours:
                assert (row["filter"], row["type"]) == (ours[row["key"]], "DYNAMIC_V0")


def test_a_file_with_unknown_bounds_of_one_column_gets_no_statistics(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_cow_delete_partition", tmp_path)
    schema = lakeformat.open(path).schema
    known, *others = files_of(path)
    files = [known, *(NewFile(each.file, each.footer) for each in others)]  # These may have NaN in `amount`.
    rows = statistics_rows(files, ["id", "amount"], schema, stores_types=True)
    assert rows is not None
    assert sorted(rows["column_name"].to_pylist()) == ["amount", "id"]
    assert set(rows["file_name"].to_pylist()) == {known.name}


@pytest.mark.parametrize("name", TABLES)
def test_joined_statistics_are_those_of_hudi(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table, metadata = lakeformat.open(path), open_table(path)
    assert metadata is not None
    if not metadata.has(MetadataPartition.PARTITION_STATS):
        return
    schema = pa.schema([*((column, pa.string()) for column in META_COLUMNS), *table.schema])
    known = metadata.column_stats()
    theirs = metadata.partition_stats()
    columns = sorted(set(theirs["column_name"].to_pylist()))
    stores_types = table.config.version == 9
    types = indexed_columns([*columns, "no such column"], schema, stores_types=stores_types)
    assert sorted(types) == columns
    files = [
        (piece.group.partition_path, str(file.name)) for piece in table.snapshot().each_slice() for file in piece.files
    ]
    live = known.filter(pc.is_in(known["key"], value_set=statistics_keys(files, columns)))
    assert find_unmeasured([*files, files[0], ("region=us", "x.parquet")], live, types) == [("region=us", "x.parquet")]
    ours = partition_rows(sorted({path for path, _ in files}), live, types, stores_types=stores_types)
    ours = ours.rename_columns(["partition_path" if each == "file_name" else each for each in ours.column_names])
    expected = sorted_rows(theirs)
    for row in expected:
        if row["values"] == row["nulls"]:
            row.pop("min.BooleanWrapper", None)
            row.pop("max.BooleanWrapper", None)
    assert sorted_rows(ours.drop_columns(["is_deleted"])) == expected
