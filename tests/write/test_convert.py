"""Delta and Iceberg tables are copied, or taken in their folder. The oracles are deltalake and pyiceberg."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform, DayTransform

import lakeformat
from lakeformat.cli.main import main
from lakeformat.conversion import convert_folder
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at

DAYS = [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 2), datetime.date(1969, 12, 31)]
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "day": pa.array(DAYS * 2, pa.date32()),
        "town": pa.array(["a/b", "é %", None, ""] * 2),
        "s": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}] * 2),
        "tags": pa.array([["a", None], None, [], ["b"]] * 2),
        "counts": pa.array([[("k", 1)], None, [], [("l", None)]] * 2, pa.map_(pa.string(), pa.int64())),
        "amount": pa.array(
            [decimal.Decimal("1.50"), None, decimal.Decimal("-0.01"), decimal.Decimal(0)] * 2, pa.decimal128(10, 2)
        ),
        "at": pa.array([datetime.datetime(2024, 1, 1, 12, 30, 0, 1), None] * 4, pa.timestamp("us", "UTC")),
        "wall": pa.array([datetime.datetime(1900, 1, 1), None] * 4, pa.timestamp("us")),
        "raw": pa.array([b"x", None, b"", b"\0"] * 2, pa.binary()),
        "f": pa.array([1.5, float("nan"), None, -0.0] * 2, pa.float32()),
        "flag": pa.array([True, None, False, None] * 2),
    }
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> SqlCatalog:
    folder = tmp_path_factory.mktemp("warehouse")
    found = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
    found.create_namespace("n")
    return found


def texts(rows: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


def assert_same(table: lakeformat.Table, expected: pa.Table) -> None:
    assert texts(lakeformat.open(table.path).to_arrow()) == texts(expected)
    assert not list(table.check())


@pytest.mark.parametrize("partition_by", [[], ["day"], ["town", "day"]])
def test_delta_table(partition_by: list[str], tmp_path: Path) -> None:
    source = str(tmp_path / "d")
    write_deltalake(source, ROWS.slice(0, 6), partition_by=partition_by)
    more = ROWS.slice(6).append_column("note", pa.array(["new", None]))
    write_deltalake(source, more, mode="append", schema_mode="merge")
    DeltaTable(source).delete("id = 2")
    DeltaTable(source).update({"f": "7.5"}, predicate="id = 0")
    table = lakeformat.convert(source, tmp_path / "t", record_key="id")
    assert_same(table, DeltaTable(source).to_pyarrow_table())
    assert (table.config.get("hoodie.table.partition.fields") or "") == ",".join(partition_by)
    table.delete(where="id = 1")
    assert table.count() == 6
    older = lakeformat.convert(DeltaTable(source, version=0), tmp_path / "older", record_key="id")
    assert_same(older, DeltaTable(source, version=0).to_pyarrow_table())


def test_iceberg_table_of_a_catalog(catalog: SqlCatalog, tmp_path: Path) -> None:
    source = catalog.create_table("n.life", ROWS.schema)
    source.append(ROWS.slice(0, 4))
    with source.update_spec() as spec:
        spec.add_identity("day")
    source.append(ROWS.slice(4))
    source.delete("id = 2")
    with source.update_spec() as spec:
        spec.add_field("id", BucketTransform(4))
    with source.update_schema() as columns:
        columns.rename_column("town", "city")
        columns.add_column("note", source.schema().find_field("town").field_type)
    table = lakeformat.convert(source, tmp_path / "t", record_key="id")
    assert_same(table, source.scan().to_arrow())
    assert table.config.get("hoodie.table.partition.fields") == "day"
    store = table.context.store
    (commit,) = store.load().commits
    newest = source.current_snapshot()
    assert newest is not None
    assert store.read_commit(commit).extra["lakeformat_converted_from"].endswith(f"snapshot {newest.snapshot_id}")


def test_iceberg_table_of_a_path(catalog: SqlCatalog, tmp_path: Path) -> None:
    source = catalog.create_table("n.path", ROWS.schema)
    source.append(ROWS)
    with source.update_spec() as spec:
        spec.add_field("day", DayTransform())
    table = lakeformat.convert(source.metadata_location, tmp_path / "t", record_key="id", partition_by="town")
    assert_same(table, ROWS)
    folder = Path(source.location().removeprefix("file://"))
    with pytest.raises(lakeformat.InvalidInputError, match=r"only the catalog of the Iceberg table .* knows"):
        lakeformat.convert(folder, tmp_path / "u", record_key="id")
    newest = max(folder.glob("metadata/*.metadata.json"))
    newest.with_name("v3.metadata.json").write_bytes(newest.read_bytes())
    (folder / "metadata/version-hint.text").write_text("3")
    table = lakeformat.convert(folder, tmp_path / "u", record_key="id")
    assert_same(table, ROWS)
    assert not table.config.get("hoodie.table.partition.fields")


def test_empty_tables(catalog: SqlCatalog, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", ROWS.slice(0, 0))
    assert lakeformat.convert(tmp_path / "d", tmp_path / "t", record_key="id").count() == 0
    empty = catalog.create_table("n.empty", ROWS.schema)
    assert lakeformat.convert(empty, tmp_path / "u", record_key="id").count() == 0


def _repeat(path: Path) -> Any:
    write_deltalake(path, pa.concat_tables([ROWS, ROWS.slice(0, 1)]))
    return path


def _null(path: Path) -> Any:
    write_deltalake(path, ROWS.set_column(0, "id", pa.array([None, *range(7)], pa.int64())))
    return path


def _vectors(path: Path) -> Any:
    write_deltalake(path, ROWS)
    (log,) = (path / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors", "timestampNtz"],
                "writerFeatures": ["deletionVectors", "timestampNtz"],
            }
    log.write_text("\n".join(map(json.dumps, actions)))
    return path


def _plain(path: Path) -> Any:
    path.mkdir()
    return path


def _no_metadata(path: Path) -> Any:
    return path / "v1.metadata.json"


def _damaged_log(path: Path) -> Any:
    write_deltalake(path, ROWS)
    (log,) = (path / "_delta_log").glob("*.json")
    log.write_text("{")
    return path


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (_no_metadata, lakeformat.UnsupportedTableError, "v1.metadata.json cannot be read by pyiceberg"),
        (_damaged_log, lakeformat.UnsupportedTableError, "d cannot be read by deltalake"),
        (_repeat, lakeformat.DuplicateKeyError, "Delta table .*, version 0: 1 rows have the key of another, e.g. id=0"),
        (_null, lakeformat.DuplicateKeyError, "a record key is null"),
        (_vectors, lakeformat.UnsupportedTableError, "cannot be read by deltalake .*deletionVectors"),
        (_plain, lakeformat.InvalidInputError, "neither a Delta table nor an Iceberg table; lakeformat.adopt"),
    ],
)
def test_refused_source_makes_no_table(
    make: Callable[[Path], Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        lakeformat.convert(make(tmp_path / "d"), tmp_path / "t", record_key="id")
    assert not (tmp_path / "t").exists()


def test_type_that_hudi_lacks_is_named(catalog: SqlCatalog, tmp_path: Path) -> None:
    source = catalog.create_table("n.types", pa.schema([("id", pa.int64()), ("clock", pa.time64("us"))]))
    with pytest.raises(lakeformat.SchemaMismatchError, match="clock"):
        lakeformat.convert(source, tmp_path / "t", record_key="id")
    assert not (tmp_path / "t" / ".hoodie").exists()


def test_second_copy_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", ROWS)
    lakeformat.convert(tmp_path / "d", tmp_path / "t", record_key="id")
    with pytest.raises(lakeformat.InvalidInputError, match="is a table with commits already"):
        lakeformat.convert(tmp_path / "d", tmp_path / "t", record_key="id")
    assert lakeformat.open(tmp_path / "t").count() == 8


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_delta_table_in_its_folder(partition_by: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write_deltalake(folder, ROWS, partition_by=partition_by)
    DeltaTable(folder).delete("id = 2")
    expected = DeltaTable(folder).to_pyarrow_table()
    held = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    table = lakeformat.convert(folder, record_key="id")
    assert_same(table, expected)
    (aside,) = (folder / ".hoodie/.lakeformat/removed").iterdir()
    assert {path.relative_to(aside) for path in aside.rglob("*") if path.is_file()} == held
    table.upsert(ROWS.slice(2, 1))
    assert_same(table, ROWS)
    table.repair(keep=False)
    assert not aside.exists()
    with pytest.raises(lakeformat.InvalidInputError, match="is a Hudi table already; open it"):
        lakeformat.convert(folder, record_key="id")


def test_iceberg_table_in_its_folder(catalog: SqlCatalog, tmp_path: Path) -> None:
    source = catalog.create_table("n.own", ROWS.schema, location=(tmp_path / "i").as_uri())
    source.append(ROWS)
    source.delete("id = 2")
    expected = source.scan().to_arrow()
    with pytest.raises(lakeformat.InvalidInputError, match="only the catalog"):
        lakeformat.convert(tmp_path / "i", record_key="id")
    newest = Path(source.metadata_location.removeprefix("file://"))
    with pytest.raises(lakeformat.InvalidInputError, match="is not the folder of a table; give path"):
        lakeformat.convert(newest, record_key="id")
    newest.with_name("v3.metadata.json").write_bytes(newest.read_bytes())
    (tmp_path / "i/metadata/version-hint.text").write_text("3")
    assert_same(lakeformat.convert(tmp_path / "i", record_key="id"), expected)
    assert not {"data", "metadata"} & {path.name for path in (tmp_path / "i").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_conversion_that_died_is_finished_by_the_next_call(mode: Mode, tmp_path: Path) -> None:
    """The process dies at every fifth call that changes something. The next call ends with the same table."""
    write_deltalake(tmp_path / "d", ROWS, partition_by=["day"])
    shutil.copytree(tmp_path / "d", tmp_path / "whole")
    recording = FaultyStorage(LocalStorage(str(tmp_path / "whole")))
    convert_folder(recording, {}, ("id",), None, None)
    changing = [number for number, call in enumerate(recording.calls) if call.changes]
    for number in changing[::5]:
        folder = tmp_path / f"t{number}"
        shutil.copytree(tmp_path / "d", folder)
        with pytest.raises(Crash):
            convert_folder(FaultyStorage(LocalStorage(str(folder)), Fault(at(number), mode)), {}, ("id",), None, None)
        if not list((folder / ".hoodie").glob("*.commit")):
            assert texts(DeltaTable(folder).to_pyarrow_table()) == texts(ROWS)
        table = lakeformat.convert(folder, record_key="id")
        assert texts(table.to_arrow()) == texts(ROWS)
        assert not (folder / "_delta_log").exists()
        assert all(each.kind is Kind.STALE_MARKERS for each in table.check())


def test_source_that_changes_meanwhile_publishes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write_deltalake(folder, ROWS)

    class Meanwhile(LocalStorage):
        """Another process writes to the source while the table is made."""

        def replace(self, path: str, data: bytes) -> None:
            super().replace(path, data)
            if path.endswith("adopting"):
                write_deltalake(folder, ROWS.slice(0, 1), mode="append")

    with pytest.raises(lakeformat.ValidationFailedError, match=r"version 0 is .*version 1 now; convert it again"):
        convert_folder(Meanwhile(str(folder)), {}, (), None, None)
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 9
    assert lakeformat.convert(folder).count() == 9


def test_another_table_in_the_folder_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", ROWS)
    lakeformat.create(tmp_path / "d/inner", ROWS.select(["id"]), record_key="id", insert=True)
    with pytest.raises(lakeformat.InvalidInputError, match=r"holds another table \(inner\); move it elsewhere"):
        lakeformat.convert(tmp_path / "d", record_key="id")
    assert not (tmp_path / "d/.hoodie").exists()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_deltalake(tmp_path / "d", ROWS)
    assert main(["convert", str(tmp_path / "d"), "--to", str(tmp_path / "t"), "--record-key", "id"]) == 0
    assert f"{tmp_path / 't'} is a table now" in capsys.readouterr().out
    assert_same(lakeformat.open(tmp_path / "t"), ROWS)
    assert main(["convert", str(tmp_path / "d"), "--record-key", "id"]) == 0
    assert_same(lakeformat.open(tmp_path / "d"), ROWS)
