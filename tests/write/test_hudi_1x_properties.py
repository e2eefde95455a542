"""Tables of version 6 that Hudi 1.x made: it names key generator and ordering field as in its newer versions.

The properties are those of tables that Hudi 1.1.1 wrote with ``hoodie.write.table.version=6``. In interop tests Hudi
writes them itself (``tests/interop/test_hudi_made_tables.py``).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.codec import properties
from lakeformat.errors import UnsupportedTableError
from lakeformat.model.table_config import PROPERTIES_PATH
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", ts="int64", day="int64", x="int64")
DAY = 86_400_000
#: The properties that 0.x writes, and those that 1.x writes instead.
RENAMED = {
    "hoodie.table.precombine.field": {"ts": ("hoodie.table.ordering.fields", "ts")},
    "hoodie.table.keygenerator.class": {
        "org.apache.hudi.keygen.SimpleKeyGenerator": ("hoodie.table.keygenerator.type", "SIMPLE"),
        "org.apache.hudi.keygen.TimestampBasedKeyGenerator": ("hoodie.table.keygenerator.type", "TIMESTAMP"),
    },
}
TIMED = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy",
}


def rows(first: int, count: int, ts: int, x: int) -> pa.Table:
    ids = [f"k{at}" for at in range(first, first + count)]
    days = [19_000 * DAY + at * 50 * DAY for at in range(first, first + count)]
    return pa.table([ids, [ts] * count, days, [x] * count], schema=SCHEMA)


def read_properties(path: Path) -> dict[str, str]:
    return properties.decode((path / PROPERTIES_PATH).read_bytes(), name=PROPERTIES_PATH)


def save(path: Path, values: dict[str, str]) -> None:
    (path / PROPERTIES_PATH).write_bytes(properties.encode(values, comments=[]))


def made_by_1x(path: Path, **options: str) -> None:
    """Create a table of twenty rows with ordering value 5, and properties in the names of Hudi 1.x."""
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="day", ordering="ts", **options)
    table.upsert(rows(0, 20, 5, 0))
    values = read_properties(path)
    for old, names in RENAMED.items():
        new, value = names[values.pop(old)]
        values[new] = value
    del values["hoodie.table.create.schema"]
    save(path, values)


def test_older_row_loses_by_the_1x_ordering_property(tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t")
    table = lakeformat.open(tmp_path / "t")
    table.upsert(rows(0, 10, 4, 1))
    table.upsert(rows(10, 5, 6, 2))
    assert sorted(table.to_arrow()["x"].to_pylist()) == [0] * 15 + [2] * 5


def test_upsert_keeps_rows_in_their_partition(tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t", **TIMED)
    before = {folder.name for folder in (tmp_path / "t").iterdir()}
    table = lakeformat.open(tmp_path / "t", **TIMED)
    table.upsert(rows(5, 10, 6, 1))
    assert {folder.name for folder in (tmp_path / "t").iterdir()} == before == {".hoodie", "2022", "2023", "2024"}
    assert sorted(table.to_arrow()["x"].to_pylist()) == [0] * 10 + [1] * 10
    table.delete(rows(0, 20, 7, 0).select(["id", "day"]))
    assert table.to_arrow().num_rows == 0


def test_filter_on_a_timestamp_partition_uses_the_column_not_the_path(tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t", **TIMED)
    table = lakeformat.open(tmp_path / "t")
    assert table.to_arrow(where=f"day >= {19_000 * DAY}").num_rows == 20
    assert table.to_arrow(where="day = 2023").num_rows == 0


def test_options_that_contradict_1x_properties_are_refused(tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t")
    with pytest.raises(lakeformat.errors.InvalidOptionError, match="ordering"):
        lakeformat.open(tmp_path / "t", ordering="x").upsert(rows(0, 1, 6, 1))
    with pytest.raises(lakeformat.errors.InvalidOptionError, match="keygenerator"):
        lakeformat.open(tmp_path / "t", **TIMED).upsert(rows(0, 1, 6, 1))
    lakeformat.open(tmp_path / "t", ordering="ts").upsert(rows(0, 1, 6, 1))


def test_table_with_several_ordering_fields_is_read_only(tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t")
    save(tmp_path / "t", read_properties(tmp_path / "t") | {"hoodie.table.ordering.fields": "ts,x"})
    table = lakeformat.open(tmp_path / "t")
    assert table.to_arrow().num_rows == 20
    with pytest.raises(UnsupportedTableError, match=r"hoodie\.table\.ordering\.fields=ts,x"):
        table.upsert(rows(0, 1, 6, 1))
    assert table.to_arrow() == lakeformat.open(tmp_path / "t").to_arrow()


@pytest.mark.parametrize("name", ["hoodie.table.keygenerator.class", "hoodie.table.keygenerator.type"])
def test_table_with_a_custom_key_generator_class_is_read_only(name: str, tmp_path: Path) -> None:
    made_by_1x(tmp_path / "t")
    values = read_properties(tmp_path / "t")
    del values["hoodie.table.keygenerator.type"]
    save(tmp_path / "t", values | {name: "com.example.YearOfDay"})
    table = lakeformat.open(tmp_path / "t")
    assert table.to_arrow(where="x = 0").num_rows == 20
    assert table.to_arrow(where=f"day < {19_400 * DAY}").num_rows == 8
    with pytest.raises(lakeformat.errors.LakeformatError, match="YearOfDay"):
        table.upsert(rows(0, 1, 6, 1))
