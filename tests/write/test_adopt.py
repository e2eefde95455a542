"""A folder of plain Parquet becomes a table with all its rows. Its files stay unchanged until the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.bootstrap import adopt_folder, folder_type
from lakeformat.errors import CorruptTableError, DuplicateKeyError, InvalidInputError, LakeformatError
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at

ROWS = pa.table(
    {"id": list(range(9)), "day": [f"2026-01-0{n % 3 + 1}" for n in range(9)], "n": [n % 2 for n in range(9)]}
)


def write_plain_files(path: Path, *, partitioned: bool = True) -> Path:
    """Write plain Parquet, as Spark or pyarrow would."""
    parts = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive") if partitioned else None
    ds.write_dataset(ROWS, path, format="parquet", partitioning=parts)
    (path / "_SUCCESS").touch()
    return path


def files(path: Path) -> dict[str, bytes]:
    found = (each for each in path.rglob("*") if each.is_file() and ".hoodie" not in each.parts)
    return {str(each.relative_to(path)): each.read_bytes() for each in found}


def read_rows(table: lakeformat.Table) -> list[dict[str, object]]:
    return table.to_arrow(columns=["id", "day", "n"]).sort_by("id").to_pylist()


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("options", [{}, {"hoodie.write.table.version": 9, "hoodie.table.type": "MERGE_ON_READ"}])
def test_folder_of_parquet_becomes_a_table_with_its_rows(
    options: dict[str, object], partitioned: bool, tmp_path: Path
) -> None:
    path = write_plain_files(tmp_path / "t", partitioned=partitioned)
    before = files(path)
    table = lakeformat.adopt(path, record_key="id", ordering="n", **options)
    assert read_rows(table) == ROWS.to_pylist()
    hudi_rs.assert_same_rows(table)
    aside = path / ".hoodie/.lakeformat/removed"
    kept = {str(Path(*each.relative_to(aside).parts[1:])): each.read_bytes() for each in aside.rglob("*.parquet")}
    assert kept == {name: data for name, data in before.items() if name != "_SUCCESS"}
    assert not kept.keys() & files(path).keys()
    assert sorted(table.snapshot().slices) == (
        ["day=2026-01-01", "day=2026-01-02", "day=2026-01-03"] if partitioned else [""]
    )
    table.upsert(pa.table({"id": [0], "day": ["2026-01-01"], "n": [7]}))
    assert read_rows(table)[0]["n"] == 7
    assert table.to_arrow().num_rows == 9
    assert not table.check()
    with pytest.raises(InvalidInputError, match="is a Hudi table already"):
        lakeformat.adopt(path, record_key="id")


def test_partition_column_of_folders_and_missing_columns_are_read(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"t/k={number}").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "a": ["x"]}), tmp_path / "t/k=1/a.parquet")
    pq.write_table(pa.table({"id": [2], "b": [0.5]}), tmp_path / "t/k=2/a.parquet")
    table = lakeformat.adopt(tmp_path / "t", record_key="id", partition_by="id")
    assert table.to_arrow(columns=["id", "a", "b", "k"]).sort_by("id").to_pylist() == [
        {"id": 1, "a": "x", "b": None, "k": 1},
        {"id": 2, "a": None, "b": 0.5, "k": 2},
    ]
    assert sorted(table.snapshot().slices) == ["1", "2"]
    assert not (tmp_path / "t/k=1").exists()
    assert folder_type(["1", None, "4000000000"]) == pa.int64()
    assert folder_type(["1", "01"]) == pa.string()


def put(name: str, table: pa.Table | None = None) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path / name) if table is not None else (path / name).write_bytes(b"?")

    return plant


@pytest.mark.parametrize(
    ("plant", "error", "message"),
    [
        (put("_delta_log/0.json"), InvalidInputError, "Delta"),
        (put("metadata/v1.metadata.json"), InvalidInputError, "Iceberg"),
        (put("_temporary/0/x"), InvalidInputError, "half-written"),
        (put("_spark_metadata/0"), InvalidInputError, "files that count"),
        (put("more.csv"), InvalidInputError, "is not a Parquet file"),
        (put("bad.parquet"), CorruptTableError, "cannot be read"),
        (put("x=1/a.parquet", ROWS), InvalidInputError, "adopt one of the two"),
        (put("a.parquet", ROWS), DuplicateKeyError, "9 rows have the key of another"),
        (put("a.parquet", pa.table({"id": pa.nulls(1, pa.int64())})), DuplicateKeyError, "null"),
        (put("a.parquet", pa.table({"id": ["a"]})), InvalidInputError, "column 'id' is"),
        (put("a.parquet", pa.table({"_hoodie_commit_time": ["a"]})), InvalidInputError, "of a Hudi table"),
    ],
)
def test_unsuitable_folder_is_refused_and_unchanged(
    plant: Callable[[Path], None], error: type[LakeformatError], message: str, tmp_path: Path
) -> None:
    path = write_plain_files(tmp_path / "t", partitioned=False)
    plant(path)
    before = files(path)
    with pytest.raises(error, match=message) as raised:
        lakeformat.adopt(path, record_key="id")
    assert "\n" not in str(raised.value)
    assert files(path) == before
    assert not (path / ".hoodie").exists()


def test_missing_or_doubled_column_is_refused(tmp_path: Path) -> None:
    path = write_plain_files(tmp_path / "t")
    with pytest.raises(InvalidInputError, match="no column 'key'"):
        lakeformat.adopt(path, record_key="key")
    pq.write_table(ROWS, next(path.rglob("*.parquet")))
    with pytest.raises(InvalidInputError, match="in the files and in their folders' names"):
        lakeformat.adopt(path, record_key="id")
    with pytest.raises(InvalidInputError, match="holds no Parquet file"):
        lakeformat.adopt(tmp_path / "empty", record_key="id")


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_conversion_that_died_is_finished_by_the_next_call(
    mode: Mode, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The process dies at every call that changes something. The next call ends with the same table."""
    recording = FaultyStorage(LocalStorage(str(write_plain_files(tmp_path / "whole"))))
    adopt_folder(recording, ("id",), None, None, {})
    changing = [number for number, call in enumerate(recording.calls) if call.changes]
    assert len(changing) > 10
    record_property("crashes", len(changing))
    for number in changing:
        path = write_plain_files(tmp_path / f"t{number}")
        before = files(path)
        with pytest.raises(Crash):
            adopt_folder(FaultyStorage(LocalStorage(str(path)), Fault(at(number), mode)), ("id",), None, None, {})
        if not list((path / ".hoodie").glob("*.commit")):
            assert {name: files(path)[name] for name in before} == before
        is_over = number == changing[-1] and mode is Mode.AFTER
        again = lakeformat.open(path) if is_over else lakeformat.adopt(path, record_key="id")
        assert read_rows(again) == ROWS.to_pylist()
        assert not [name for name in files(path) if name in before and name.endswith(".parquet")]
        # They are left for the next write.
        assert all(each.kind is Kind.STALE_MARKERS for each in lakeformat.open(path).check())
