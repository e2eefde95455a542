"""Tables of version 10 (Hudi 1.3, not released) are read. Oracle: the same writes to a table of version 9."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import CorruptTableError, UnsupportedTableError
from lakeformat.files.log_reader import read_blocks, read_change_data
from lakeformat.model.files import BaseFileName, LogFile, LogFileName
from lakeformat.storage import MemoryStorage
from tests.helpers.native_logs import (
    Row,
    commit,
    data_rows,
    delete_rows,
    entries,
    name_of,
    to_version_10,
    write_file,
)

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string())])
T1, T2 = "20991231000000001", "20991231000000100"
OLD = [{"id": n, "ts": 10, "name": f"old{n}"} for n in range(6)]


def twins(tmp_path: Path, **options: str) -> tuple[Path, Path, str]:
    """Return a table of version 9 and a copy of version 10, which have one file group each, and its file id."""
    nine, ten = tmp_path / "nine", tmp_path / "ten"
    given = {"hoodie.write.table.version": "9", "lakeformat.compact.auto": "false", **options}
    table = lakeformat.create(nine, SCHEMA, record_key="id", ordering="ts", table_type="MERGE_ON_READ", **given)
    table.upsert(OLD)
    table.upsert([{"id": 5, "ts": 11, "name": "inline"}])
    shutil.copytree(nine, ten)
    to_version_10(ten)
    (base,) = nine.glob("*.parquet")
    return nine, ten, base.name.partition("_")[0]


def rows_of(path: Path, **options: Any) -> list[Row]:
    found: list[Row] = lakeformat.open(path, **options).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def write_native(
    path: Path, file_id: str, time: str, rows: list[Row], deletes: list[tuple[Any, int | None]], *, joined: bool = False
) -> None:
    data, gone = (name_of(file_id, time, f"{kind}.parquet") for kind in ("log", "deletes"))
    footer = entries(time, SCHEMA, joined=joined)
    write_file(path / data, data_rows(rows, SCHEMA, time, file_id), footer)
    keys, values = [key for key, _ in deletes], [{"ts": ts} for _, ts in deletes]
    write_file(path / gone, delete_rows(keys, pa.schema([("ts", pa.int64())]), values), footer)
    commit(path, time, file_id, SCHEMA, [data, gone])


@pytest.mark.parametrize("joined", [False, True], ids=["entries", "joined"])
def test_native_logs_after_inline_ones_read_as_in_version_9(joined: bool, tmp_path: Path) -> None:
    nine, ten, file_id = twins(tmp_path)
    assert rows_of(ten) == rows_of(nine)  # The slice has an inline log file.
    newer = [{"id": 0, "ts": 12, "name": "new"}, {"id": 1, "ts": 3, "name": "late"}, {"id": 9, "ts": 1, "name": "more"}]
    table = lakeformat.open(nine)
    table.upsert(newer)
    table.delete([{"id": 2}])
    write_native(ten, file_id, T1, newer, [(2, None), (3, 4), (0, 11)], joined=joined)
    assert rows_of(ten) == rows_of(nine)  # The deletes of 3 and 0 are older than their rows.
    table.delete([{"id": 3}])
    write_native(ten, file_id, T2, [], [(3, 10)])
    expected = rows_of(nine)
    assert rows_of(ten) == expected
    assert [row["id"] for row in expected] == [0, 1, 4, 5, 9]
    ten_table = lakeformat.open(ten)
    assert ten_table.to_arrow(where="name = 'new'")["id"].to_pylist() == [0]
    assert sorted(ten_table.to_arrow(where="ts > 10")["id"].to_pylist()) == [0, 5]
    before = ten_table.read(as_of=f"{int(T1) + 5}").to_arrow()
    assert sorted(before["id"].to_pylist()) == [0, 1, 3, 4, 5, 9]
    assert ten_table.changes(since=f"{int(T2) - 50}").to_arrow().num_rows == 0  # Deletes have no rows.


@pytest.mark.parametrize(
    ("edit", "error", "text"),
    [
        ({"VERSION": "3"}, UnsupportedTableError, "version 3, only 2"),
        ({"SCHEMA": ""}, CorruptTableError, "hudi.log.format.SCHEMA"),
    ],
)
def test_footers_that_nothing_explains_are_refused(
    edit: dict[str, str], error: type[Exception], text: str, tmp_path: Path
) -> None:
    _, ten, file_id = twins(tmp_path)
    name = name_of(file_id, T1, "log.parquet")
    footer = {k: v for k, v in entries(T1, SCHEMA, **edit).items() if v}
    write_file(ten / name, data_rows(OLD[:1], SCHEMA, T1, file_id), footer)
    commit(ten, T1, file_id, SCHEMA, [name])
    with pytest.raises(error, match=text) as caught:
        rows_of(ten)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", ["_hoodie_ordering_0", "other"])
def test_deletes_with_other_ordering_columns_are_refused(column: str, tmp_path: Path) -> None:
    _, ten, file_id = twins(tmp_path)
    name = name_of(file_id, T1, "deletes.parquet")
    odd = delete_rows([1], pa.schema([(column, pa.int64())]), [{column: 9}])
    write_file(ten / name, odd, entries(T1, SCHEMA))
    commit(ten, T1, file_id, SCHEMA, [name])
    with pytest.raises(UnsupportedTableError, match=column):
        rows_of(ten)


def test_files_of_other_formats_and_torn_ones_are_refused(tmp_path: Path) -> None:
    _, ten, file_id = twins(tmp_path)
    lance = name_of(file_id, T1, "log.lance")
    (ten / lance).write_bytes(b"LANC")
    commit(ten, T1, file_id, SCHEMA, [lance])
    with pytest.raises(UnsupportedTableError, match=r"the format lance, only parquet"):
        rows_of(ten)
    torn = name_of(file_id, T2, "log.parquet")
    (ten / torn).write_bytes(b"PAR1 and no footer")
    (ten / lance).unlink()
    next((ten / ".hoodie/timeline").glob(f"{T1}_*")).unlink()
    commit(ten, T2, file_id, SCHEMA, [torn])
    with pytest.raises(CorruptTableError, match=r"log\.parquet cannot be read"):
        rows_of(ten)


def test_changes_are_the_rows_of_their_file() -> None:
    storage, name = MemoryStorage(), f"f-0_0-1-2_{T1}_1.cdc.parquet"
    images = pa.struct([("id", pa.int64()), ("name", pa.string())])
    change = {"op": "u", "ts_ms": T1, "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}}
    rows = pa.Table.from_pylist(
        [change], pa.schema([("op", pa.string()), ("ts_ms", pa.string()), ("before", images), ("after", images)])
    )
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    storage.replace(name, sink.getvalue().to_pybytes())
    parsed = LogFileName.match(name)
    assert parsed is not None
    assert parsed.is_cdc
    log = LogFile("", parsed, len(storage.read(name)))
    assert [row for part in read_change_data(storage, log) for row in part.to_pylist()] == [change]
    assert read_blocks(storage, log) == ()


def files_of(path: Path) -> dict[Path, int]:
    """Return the time of each file of a table but its lock."""
    found = (file for file in path.rglob("*") if file.is_file() and file.name != "lock")
    return {file: file.stat().st_mtime_ns for file in found}


WRITES: dict[str, Any] = {
    "upsert": lambda table: table.upsert(OLD),
    "delete": lambda table: table.delete([{"id": 1}]),
    "compact": lambda table: table.compact(),
    "clean": lambda table: table.clean(versions=1),
    "upgrade": lambda table: table.upgrade(9),
    "savepoint": lambda table: table.savepoint(),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_and_services_are_refused(write: str, tmp_path: Path) -> None:
    _, ten, _ = twins(tmp_path)
    before = files_of(ten)
    with pytest.raises(UnsupportedTableError, match=r"version=10 is only read.*hoodie.write.table.version=9"):
        WRITES[write](lakeformat.open(ten))
    assert files_of(ten) == before


@pytest.mark.parametrize("layout", ["default", "lsm_tree"])
def test_files_sorted_by_key_are_read(layout: str, tmp_path: Path) -> None:
    nine, ten, file_id = twins(tmp_path)
    to_version_10(ten, **{"hoodie.table.storage.layout": layout})
    write_native(ten, file_id, T1, [{"id": 0, "ts": 12, "name": "new"}], [(2, None)])
    assert rows_of(ten) == [
        {"id": 0, "ts": 12, "name": "new"},
        *(row for row in rows_of(nine) if row["id"] not in (0, 2)),
    ]


def test_names_are_those_of_hudis_own_test() -> None:
    stem = "136281f3-c24e-423b-a65a-95dbfbddce1d-0_1-0-1_20260901083000123"
    names = [f"{stem}_{version}.{kind}.parquet" for version in (1, 2) for kind in ("log", "deletes", "cdc")]
    parsed = [LogFileName.match(name) for name in names]
    assert [str(each) for each in parsed] == names
    assert [each.order for each in parsed if each] == sorted(each.order for each in parsed if each)
    assert not any(map(BaseFileName.match, names))
    assert LogFileName.match(f"{stem}.parquet") is None
    assert LogFileName.match(f"{stem}_1.other.parquet") is None
    assert LogFileName.match("a.b-0_1-0-1_20260901083000123_1.log.parquet") is None
