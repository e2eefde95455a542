"""The known values of folders, numbers of rows and numbers of NaN, compared with the rows themselves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.read.run.file_statistics import FileStatistics, FolderValues, file_statistics, find_folder_values
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", n="int32", x="float64")
ROWS = pa.table(
    {
        "id": range(8),
        "p": ["a", "a", "b c", "b c", None, None, "", "é/%"],
        "n": [1, 1, 2, 2, None, 3, 4, 5],
        "x": [None, None, 1.0, float("nan"), 2.0, 3.0, 4.0, 5.0],
    },
    schema=SCHEMA,
)


def find_statistics(path: Path, *kept: str) -> tuple[FileStatistics, FolderValues]:
    table = lakeformat.open(path)
    snapshot = table.snapshot()
    paths = [file.path for file in snapshot.files if not kept or file.partition_path in kept]
    found = file_statistics(snapshot, paths, {name: SCHEMA.field(name).type for name in ("p", "n", "x")})
    return found, find_folder_values(table.context.storage, found, ["p", "n", "x", "gone"], SCHEMA)


def folder_values_by_rows(path: Path, column: str) -> dict[str, Any]:
    """Return, from the rows, the value of each folder that has a single value."""
    rows = lakeformat.open(path).to_arrow(["_hoodie_partition_path", column])
    grouped: dict[str, set[Any]] = {}
    for row in rows.to_pylist():
        grouped.setdefault(row["_hoodie_partition_path"], set()).add(row[column])
    return {folder: values.pop() for folder, values in grouped.items() if len(values) == 1}


@pytest.fixture(params=["indexed", "listed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    options = {"hoodie.datasource.write.partitionpath.urlencode": True}
    lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="p", **options).bulk_insert(ROWS)
    if request.param == "listed":
        shutil.rmtree(tmp_path / ".hoodie" / ".lakeformat" / "index")
    return tmp_path


def test_folder_has_the_value_of_all_its_rows(path: Path) -> None:
    found, folders = find_statistics(path)
    assert found.rows in {8, None}
    assert folders.values.column_names == ["p", "n"]
    values = folders.values.to_pylist()
    by_rows = {name: folder_values_by_rows(path, name) for name in ("p", "n")}
    wanted = {folder: (by_rows["p"][folder], by_rows["n"][folder]) for folder in by_rows["p"].keys() & by_rows["n"]}
    assert {folder: tuple(values[at].values()) for folder, at in folders.rows.items()} == wanted
    # Nulls and the empty text share a folder, which therefore has no single value.
    assert len(wanted) == 3


def test_file_list_equals_the_kept_files(path: Path) -> None:
    found, folders = find_statistics(path, "a", "b c")
    assert found.files.column("partition_path").to_pylist() == ["a", "b c"]
    assert [*folders.rows] == ["a", "b c"]
    assert find_statistics(path, "nowhere")[1].rows == {}


def test_folder_with_rows_of_another_value_has_no_proven_value(tmp_path: Path) -> None:
    stays = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": False}
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="p", **stays)
    rows = ROWS.slice(0, 4).set_column(1, "p", pa.array(["a", "a", "b", "c"]))
    table.upsert(rows)
    assert [*find_statistics(tmp_path)[1].rows] == ["a", "b", "c"]
    table.upsert(rows.slice(0, 1).set_column(1, "p", pa.array(["z"])))
    assert [*find_statistics(tmp_path)[1].rows] == ["b", "c"]


def test_a_column_of_nulls_alone_has_no_nan(path: Path) -> None:
    assert "x" not in find_statistics(path)[0].without_nan
    assert ("x" in find_statistics(path, "a")[0].without_nan) == (find_statistics(path, "a")[0].rows is not None)
