"""Kinds of tables beside which Iceberg's metadata lies, and what is refused. The oracles are pyiceberg and polars."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.utils.config import Config

import lakeformat
from lakeformat import InvalidOptionError, SyncError, Table, UnsupportedTableError
from tests.helpers.delta_reader import as_texts
from tests.helpers.every_type import ROWS, TYPES
from tests.helpers.fixture_tables import unpack
from tests.helpers.iceberg_reader import assert_iceberg_shows, assert_snapshots_show, iceberg_rows, open_iceberg
from tests.helpers.s3_server import new_folder, s3_server
from tests.helpers.tables import a_batch, a_schema

SCHEMA: Final = a_schema(id="int64", v="string")
FOLLOWED: Final = {"lakeformat.beside": "iceberg"}


def new_table(folder: Path, **options: Any) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, **{"record_key": "id", **FOLLOWED, **options})


def test_all_types_are_shown_and_filters_find_the_same_rows(tmp_path: Path) -> None:
    options = {"record_key": "id", **FOLLOWED, "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path / "t", TYPES, **options)
    for row in ROWS:
        table.insert(pa.Table.from_pylist([row], TYPES))
    assert_iceberg_shows(table, with_polars=True)
    rows, iceberg = table.to_arrow(), open_iceberg(table.location)
    for name in ("i", "n", "wide", "t", "flag", "day", "at", "local"):
        value = next(each for each in rows[name] if each.is_valid)
        chosen = iceberg.scan(row_filter=GreaterThanOrEqual(name, _literal(value))).to_arrow()
        assert as_texts(chosen) == as_texts(rows.filter(pc.field(name) >= value)), name


def _literal(value: pa.Scalar) -> Any:
    plain = value.as_py()
    return plain.isoformat() if hasattr(plain, "isoformat") else plain


@pytest.mark.parametrize(
    "name", ["hudi_v6/cow_all_types", "hudi_v6/cow_two_level_lists", "hudi_v6/cow_schema_evolved",
             "own_kinds/v6_virtual_cow", "own_kinds/v9_altered_cow",
             "hudi_v8_v9/v9_cow_event_time_partitioned"],
)  # fmt: skip
def test_tables_of_hudi_are_shown(tmp_path: Path, name: str) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    table.sync("iceberg")
    assert_iceberg_shows(table, with_polars=True)


@pytest.mark.parametrize("name", ["own_kinds/v6_dropped_cow_date", "own_kinds/v6_dropped_cow"])
def test_dropped_partition_columns_have_the_values_of_the_folders(tmp_path: Path, name: str) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    table.sync("iceberg")
    assert_iceberg_shows(table)
    assert [field.name for field in open_iceberg(table.location).spec().fields] == list(table.config.partition_fields)


@pytest.mark.parametrize("kind", ["string", "int32", "int64", "bool", "date32", "decimal", "timestamp"])
def test_partitions_of_each_type_have_the_values_of_the_files(tmp_path: Path, kind: str) -> None:
    of = {"decimal": pa.decimal128(12, 2), "timestamp": pa.timestamp("us", "UTC")}.get(kind, kind)
    schema = a_schema(id="int64", part=of)
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="part", **FOLLOWED)
    numbers = pa.array([0, 1, None, 1], pa.int64() if kind == "timestamp" else pa.int32())
    values = numbers.cast(schema.field("part").type)
    table.insert(pa.table({"id": range(4), "part": values}, schema))
    assert_iceberg_shows(table)
    assert len(list(open_iceberg(table.location).scan(row_filter="part is null").plan_files())) == 1


def test_a_folder_with_several_values_is_no_partition(tmp_path: Path) -> None:
    schema = a_schema(id="int64", part="string")
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="part", **FOLLOWED)
    table.insert(a_batch(schema, id=[1], part="x"))
    table.insert(a_batch(schema, id=[2, 3], part=["", None]))  # One folder has both.
    assert_iceberg_shows(table)
    iceberg = open_iceberg(table.location)
    assert iceberg_rows(table.location, row_filter="part = ''") == ["[('id', 2), ('part', '')]"]
    assert len(list(iceberg.scan(row_filter="part = 'x'").plan_files())) == 1


def test_renamed_columns_are_refused_by_name_until_the_files_are_written_again(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"lakeformat.beside.fail_on_error": True})
    table.insert(a_batch(SCHEMA, id=[1, 2], v="a"))
    before = iceberg_rows(table.location)
    with pytest.raises(SyncError, match=r"IS visible, only iceberg .*columns w from before an alteration"):
        table.alter().rename("v", "w").execute()
    assert iceberg_rows(table.location) == before
    table.cluster(by="id")
    assert_iceberg_shows(table, with_polars=True)
    table.alter().drop("w").execute()
    assert_iceberg_shows(table)
    assert assert_snapshots_show(table) == 3


def test_a_name_keeps_its_field_id(tmp_path: Path) -> None:
    schema = a_schema(id="int64", s=pa.struct([pa.field("x", pa.int32())]))
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", **FOLLOWED)
    table.insert(pa.table({"id": [1], "s": [{"x": 1}]}, schema))
    table.alter().add("w", "string").execute()
    before = _ids(table)
    table.alter().drop("w").execute()
    table.alter().add("z", "string").execute()
    after = _ids(table)
    assert {name: after[name] for name in ("id", "s", "s.x")} == {name: before[name] for name in ("id", "s", "s.x")}
    assert after["z"] not in before.values()


def _ids(table: Table) -> dict[str, int]:
    schema = open_iceberg(table.location).schema()
    return {name: schema.find_field(name).field_id for name in schema.column_names}


def test_widened_columns_are_shown_if_readers_widen_them_as_hudi_does(tmp_path: Path) -> None:
    schema = a_schema(id="int64", n="int32", f="float32")
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    table.insert(a_batch(schema, id=[1], n=1, f=1.1))
    table.sync("iceberg")
    table.alter().retype("n", "int64").execute()
    table.insert(a_batch(a_schema(id="int64", n="int64", f="float32"), id=[2], n=2**40, f=1.1))
    table.sync("iceberg")
    assert_iceberg_shows(table, with_polars=True)
    assert iceberg_rows(table.location, row_filter="n = 1", selected_fields=("id",)) == ["[('id', 1)]"]
    table.alter().retype("f", "float64").execute()
    with pytest.raises(UnsupportedTableError, match="column f as float, not double"):
        table.sync("iceberg")


def test_metadata_of_another_program_is_refused_until_it_is_replaced(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(a_batch(SCHEMA, id=[1], v="a"))
    path = tmp_path / "t/metadata/v1.metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["snapshots"][0]["summary"]["lakeformat.instant"]
    (tmp_path / "t/metadata/v2.metadata.json").write_text(json.dumps(metadata))
    result = table.insert(a_batch(SCHEMA, id=[2], v="b"))
    assert "version 1 of metadata was written by lakeformat" in result.report["steps"][-1]["error"]
    with pytest.raises(SyncError, match="replace=True"):
        table.sync("iceberg")
    table.sync("iceberg", replace=True)
    assert_iceberg_shows(table)


def test_damaged_metadata_fails_no_commit_and_repair_makes_it_anew(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for key in range(2):
        table.insert(a_batch(SCHEMA, id=[key], v="a"))
    for path in (tmp_path / "t/metadata").glob("*-m*.avro"):
        path.write_bytes(path.read_bytes()[:-30])
    result = table.insert(a_batch(SCHEMA, id=[7], v="b"))
    assert "make it again by sync('iceberg', replace=True)" in result.report["steps"][-1]["error"]
    assert table.count() == 3
    table.repair()
    assert_iceberg_shows(table)


def test_metadata_of_a_table_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(a_batch(SCHEMA, id=[1], v="a"))
    shutil.move(table.location, tmp_path / "elsewhere")
    moved = lakeformat.open(tmp_path / "elsewhere")
    (finding,) = moved.check()
    assert f"was made when the table was at {table.location}" in finding.cure
    moved.repair()
    assert_iceberg_shows(moved)


def test_a_partition_with_the_name_of_the_folder_is_refused(tmp_path: Path) -> None:
    schema = a_schema(id="int64", part="string")
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="part")
    table.insert(a_batch(schema, id=[1], part="metadata"))
    with pytest.raises(UnsupportedTableError, match="metadata is the folder of a partition"):
        table.sync("iceberg")
    assert not table.check()


def test_a_catalog_names_the_newest_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    for name, value in {"type": "sql", **where}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TRIED__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # It reads the environment once.
    named = {"lakeformat.beside.iceberg.catalog": "tried", "lakeformat.beside.iceberg.table": "sales.flights"}
    table = new_table(tmp_path, **named)
    first = table.insert(a_batch(SCHEMA, id=[1, 2], v="a")).instant_time
    lakeformat.open(table.location).delete(where="id = 1")

    def load() -> IcebergTable:
        return SqlCatalog("tried", **where).load_table("sales.flights")

    assert load().scan().to_arrow()["id"].to_pylist() == [1, 2]
    (finding,) = table.check()
    assert f"it shows {first}, 1 commit behind" in finding.cure
    table.repair()
    assert as_texts(load().scan().to_arrow()) == as_texts(table.to_arrow())
    table.sync("iceberg", replace=True)
    assert as_texts(load().scan().to_arrow()) == as_texts(table.to_arrow())
    assert not (tmp_path / "t/metadata/version-hint.text").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(SyncError, match=r"sales\.flights of the catalog tried is another table"):
        new_table(tmp_path / "other", **named).sync("iceberg", replace=True)


def test_a_catalog_that_is_not_known_fails_no_commit(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, **{"lakeformat.beside.iceberg.catalog": "nowhere", "lakeformat.beside.iceberg.table": "a.b"}
    )
    result = table.insert(a_batch(SCHEMA, id=[1], v="a"))
    assert "the Iceberg catalog nowhere says:" in result.report["steps"][-1]["error"]
    with pytest.raises(InvalidOptionError, match=r"needs lakeformat\.beside\.iceberg\.table"):
        lakeformat.open(table.location, **{"lakeformat.beside.iceberg.catalog": "nowhere"})


def test_metadata_on_an_object_store_is_read_there() -> None:
    with s3_server() as s3:
        url, schema = new_folder(s3).url, a_schema(id="int64", part="string")
        options = {"record_key": "id", "partition_by": "part", "storage_options": dict(s3), **FOLLOWED}
        table = lakeformat.create(url, schema, **options)
        table.insert(a_batch(schema, id=[1, 2, 3], part=["x", "a/b %", None]))
        table.delete(where="id = 1")
        access = {
            "s3.endpoint": s3["client_kwargs"]["endpoint_url"],
            "s3.region": "us-east-1",
            "s3.access-key-id": s3["key"],
            "s3.secret-access-key": s3["secret"],
        }
        iceberg = StaticTable.from_metadata(url, access)
        assert as_texts(iceberg.scan().to_arrow()) == as_texts(table.to_arrow())
        assert len(iceberg.snapshots()) == 2
        assert not table.check()
