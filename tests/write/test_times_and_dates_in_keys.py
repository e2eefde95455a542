"""Timestamps in keys and dates in folders, by Hudi's two options: stored with the table, and read back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, UnsupportedTableError
from lakeformat.model.table_config import LOGICAL_TIMES, SLASH_DATES
from tests.helpers.hudi_spark import table_properties
from tests.helpers.tables import a_schema, a_table

SCHEMA = a_schema(id="int64", at=pa.timestamp("us", "UTC"), day="date32", text="string")
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
ROWS = pa.Table.from_pylist(
    [
        {"id": n, "at": MOMENT + timedelta(days=n), "day": date(2024, 5, 6 + n), "text": f"2024-05-{6 + n:02}"}
        for n in range(4)
    ],
    SCHEMA,
)


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("field", ["day", "text"])
def test_dates_are_folders_in_folders(field: str, version: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    a_table(path, rows=ROWS, partition_by=field, version=version, **{SLASH_DATES: "true"})
    assert {str(file.parent.relative_to(path)) for file in path.glob("2*/*/*/*.parquet")} == {
        f"2024/05/{6 + n:02}" for n in range(4)
    }
    table = lakeformat.open(path)  # Later writes need not name the option.
    table.upsert(ROWS)
    assert table.to_arrow().sort_by("id") == ROWS
    where = f"{field} = '2024-05-07'" if field == "text" else f"{field} = date '2024-05-07'"
    scan = table.read(where=where)
    assert scan.to_arrow()["id"].to_pylist() == [1]
    assert table_properties(path)[SLASH_DATES] == "true"
    assert table.delete(where=where) is not None
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 2, 3]
    if field == "day":
        assert table.explain(where="day = date '2024-05-08'").plan.files_after_names == 1


def test_keys_hold_times_written_out(tmp_path: Path) -> None:
    path = tmp_path / "t"
    a_table(path, rows=ROWS, keys="at", **{LOGICAL_TIMES: "true"})
    lakeformat.open(path).upsert(ROWS)
    found = lakeformat.open(path).to_arrow(meta_columns=True)
    keys = sorted(found["_hoodie_record_key"].to_pylist())
    assert keys == [f"2024-05-{6 + n:02} 07:08:09.123" for n in range(4)]
    assert table_properties(path)[LOGICAL_TIMES] == "true"


def test_the_form_of_stored_keys_is_found_if_no_property_says_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    a_table(path, rows=ROWS, keys="at", **{LOGICAL_TIMES: "true"})
    properties = path / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines()
    properties.write_text("\n".join(line for line in lines if "logical" not in line) + "\n")
    with pytest.raises(UnsupportedTableError, match="would double rows"):
        lakeformat.open(path, **{LOGICAL_TIMES: "false"}).upsert(ROWS)
    table = lakeformat.open(path)
    table.upsert(ROWS)
    assert table.to_arrow().num_rows == ROWS.num_rows
    assert table_properties(path)[LOGICAL_TIMES] == "true"


@pytest.mark.parametrize("option", [SLASH_DATES, LOGICAL_TIMES])
def test_another_form_than_the_tables_is_refused(option: str, tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=ROWS, keys="at", partition_by="day", **{option: "true"})
    with pytest.raises(InvalidOptionError, match="contradicts 'true'"):
        lakeformat.open(tmp_path / "t", **{option: "false"}).upsert(ROWS)


def test_tables_without_the_options_do_not_store_them(tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=ROWS, keys="at", partition_by="day")
    assert {SLASH_DATES, LOGICAL_TIMES}.isdisjoint(table_properties(tmp_path / "t"))
