"""Real Hudi tables of version 6: lakeformat reads the rows that Hudi's own reader returned."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from tests.helpers.fixture_tables import names, read_expectations, unpack


def to_json_value(value: Any) -> Any:
    """Return a value in the form of the JSON files."""
    match value:
        case dict():
            return {str(key): to_json_value(inner) for key, inner in value.items()}
        case list():
            return [to_json_value(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case date():
            return value.isoformat()
        case _:
            return value


def identity(row: dict[str, Any]) -> str:
    return f"{row['_hoodie_partition_path']}|{row['_hoodie_record_key']}"


def expected_rows(name: str, instant: str | None) -> list[dict[str, Any]]:
    """Return the expected rows, with the stored value in the cells that Spark reads differently."""
    document = read_expectations(name)
    rows = document["snapshot"] if instant is None else document["time_travel"][instant]
    at = instant or document["instants"][-1]["instant"]
    differing = document["spark_differs_from_files"]["instants"].get(at, {})
    for row in rows:
        for column, (_, stored) in differing.get(identity(row), {}).items():
            row[column] = stored
    return rows


def cases() -> list[tuple[str, str | None]]:
    return [(name, instant) for name in names("hudi_v6") for instant in (None, *read_expectations(name)["time_travel"])]


@pytest.mark.parametrize(("name", "instant"), cases())
def test_fixture_tables_read_as_hudi_wrote_them(name: str, instant: str | None, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    rows = [
        to_json_value(row)
        for row in table.to_arrow(as_of=instant, meta_columns=True).to_pylist(maps_as_pydicts="strict")
    ]
    rows.sort(key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))
    missing_as_null = [{**dict.fromkeys(rows[0]), **row} for row in expected_rows(name, instant)] if rows else []
    assert rows == missing_as_null
