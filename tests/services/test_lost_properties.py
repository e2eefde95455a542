"""A table without ``hoodie.properties``: it says so, no table is made in its place, a repair makes the file again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import CorruptTableError
from lakeformat.codec import properties
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", twin="int64", p="string", day="date32", v="int64")
#: Settings of tables: record key, partition fields, and further options.
TABLES: Mapping[str, dict[str, Any]] = {
    "simple": {"record_key": "id", "partition_by": "p"},
    "unpartitioned": {"record_key": "id"},
    "two of each": {"record_key": ["id", "p"], "partition_by": ["p", "day"]},
    "hive style": {"record_key": "id", "partition_by": "day", "hoodie.datasource.write.hive_style_partitioning": True},
    "generated keys": {"partition_by": "p"},
    "ordered": {"record_key": "id", "partition_by": "p", "ordering": "v"},
    "version 9, merge-on-read": {
        "record_key": "id", "partition_by": "p", "table_type": "MERGE_ON_READ", "hoodie.write.table.version": 9
    },
    "version 6, merge-on-read": {"record_key": "id", "partition_by": "p", "table_type": "MERGE_ON_READ"},
    "metadata table": {"record_key": "id", "partition_by": "p", "hoodie.metadata.enable": True},
}  # fmt: skip


def batch(values: Mapping[int, int]) -> pa.Table:
    keys = list(values)
    days = [date(2026, 1, 1 + key % 3) for key in keys]
    twins, parts = [key + 7 for key in keys], [f"p{key % 2}" for key in keys]
    return pa.table([keys, twins, parts, days, list(values.values())], schema=SCHEMA)


def grow(path: Path, given: Mapping[str, Any]) -> dict[int, int]:
    table = lakeformat.create(path, SCHEMA, **given)
    rows = {key: 100 + 3 * key for key in range(12)}
    table.insert(batch(rows))
    if "record_key" in given:
        table.upsert(batch({3: 500}))
        rows[3] = 500
    return rows


def rows_of(path: Path) -> dict[int, int]:
    rows = lakeformat.open(path).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


def stored(path: Path) -> dict[str, str]:
    return dict(properties.decode((path / ".hoodie/hoodie.properties").read_bytes(), name="x"))


def unopened(path: Path) -> lakeformat.Table:
    return lakeformat.Table(LocalStorage(str(path)))


def lose_copy(path: Path) -> None:
    (path / ".hoodie/.lakeformat/properties").unlink()


HARMS: Mapping[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "torn": lambda file: file.write_bytes(file.read_bytes()[:300]),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("case", TABLES)
def test_properties_come_back_from_their_copy(case: str, harm: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = grow(path, TABLES[case])
    before = stored(path)
    HARMS[harm](path / ".hoodie/hoodie.properties")
    (found,) = lakeformat.repair(path, dry_run=True)
    assert (found.kind, found.mends) == (Kind.PROPERTIES, True)
    assert "copy" in found.cure
    assert lakeformat.repair(path).of(Kind.PROPERTIES)
    assert stored(path) == before
    assert rows_of(path) == rows
    assert not lakeformat.open(path).check()


@pytest.mark.parametrize("case", TABLES)
def test_properties_are_proved_by_the_rows_if_there_is_no_copy(case: str, tmp_path: Path) -> None:
    path, given = tmp_path / "t", TABLES[case]
    rows = grow(path, given)
    before = stored(path)
    (path / ".hoodie/hoodie.properties").unlink()
    lose_copy(path)
    with pytest.raises(CorruptTableError, match=r"commits?, but no .hoodie/hoodie.properties.*lakeformat repair"):
        lakeformat.open(path)
    with pytest.raises(CorruptTableError, match=r"commits?, but no"):
        lakeformat.create(path, SCHEMA, record_key="id")
    with pytest.raises(CorruptTableError, match=r"commits?, but no"):
        unopened(path).insert(batch({1: 1}))
    assert not (path / ".hoodie/hoodie.properties").exists()
    options = {name: value for name, value in given.items() if name == "ordering"}
    assert lakeformat.repair(path, **options).of(Kind.PROPERTIES)
    unproved = {"hoodie.table.create.schema"}
    if "ordering" not in given:
        assert {k: v for k, v in stored(path).items() if k not in unproved} == {
            k: v for k, v in before.items() if k not in unproved
        } or case == "version 9, merge-on-read"
    assert rows_of(path) == rows
    assert not lakeformat.open(path).check()
    if "record_key" in given:
        lakeformat.open(path).upsert(batch({3: 600, 99: 1}))
        assert rows_of(path) == {**rows, 3: 600, 99: 1}
    hudi_rs.assert_same_rows(lakeformat.open(path))


def test_columns_that_fit_alike_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p")
    table.insert(batch({1: 1, 2: 2}))
    (path / ".hoodie/hoodie.properties").unlink()
    lose_copy(path)
    (found,) = unopened(path).check()
    assert not found.mends
    assert "record key id" in found.cure
    assert "record key v" in found.cure
    with pytest.raises(CorruptTableError, match="no columns give the stored keys"):
        lakeformat.repair(path, recordkey="twin")
    assert lakeformat.repair(path, recordkey="id")
    assert lakeformat.open(path).config.record_fields == ("id",)


def test_wrong_key_columns_are_a_finding(tmp_path: Path) -> None:
    """Somebody wrote the file by hand: the rows have other keys than it names."""
    path = tmp_path / "t"
    rows = grow(path, TABLES["simple"])
    file = path / ".hoodie/hoodie.properties"
    file.write_text(file.read_text().replace("recordkey.fields=id", "recordkey.fields=twin"))
    (found,) = lakeformat.open(path).check()
    assert (found.kind, found.mends) == (Kind.PROPERTIES, True)
    lakeformat.open(path).repair()
    assert lakeformat.open(path).config.record_fields == ("id",)
    assert rows_of(path) == rows
