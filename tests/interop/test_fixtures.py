"""The test harness reads tables that Hudi wrote: both Hudi versions return the rows in the fixtures' JSON."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.helpers.hudi_spark import Hudi, the_rest_by_night

pytestmark = pytest.mark.interop


def encode_value(value: Any) -> Any:
    """Return a value of ``to_pylist`` in the form of the fixtures' JSON."""
    match value:
        case decimal.Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case dict():
            return {key: encode_value(item) for key, item in value.items()}
        case list():
            return [encode_value(item) for item in value]
        case _:
            return value


def as_json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the encoding and the order of the fixtures."""
    ordered = table.sort_by([("_hoodie_partition_path", "ascending"), ("_hoodie_record_key", "ascending")])
    return [encode_value(row) for row in ordered.to_pylist(maps_as_pydicts="strict")]


@pytest.mark.parametrize("name", the_rest_by_night(names("hudi_v6"), {"hudi_v6/cow_all_types"}))
def test_hudi_reads_the_fixture(hudi: Hudi, name: str, tmp_path: Path) -> None:
    table, oracle = unpack(name, tmp_path), read_expectations(name)
    assert as_json_rows(hudi.read(table)) == oracle["snapshot"]


def test_hudi_reads_the_past(hudi: Hudi, tmp_path: Path) -> None:
    table, oracle = unpack("hudi_v6/cow_part_hive", tmp_path), read_expectations("hudi_v6/cow_part_hive")
    first = min(oracle["time_travel"])
    assert as_json_rows(hudi.read(table, as_of=first)) == oracle["time_travel"][first]


def test_hudi_upserts_and_deletes_by_its_own_bloom_filters(hudi: Hudi, tmp_path: Path) -> None:
    table = unpack("hudi_v6/cow_part_hive", tmp_path)
    stored = hudi.read(table)
    rows = stored.select([name for name in stored.schema.names if not name.startswith("_hoodie")])
    rows = rows.filter(pc.is_valid(rows["region"])).sort_by("id")
    amounts = pa.array([decimal.Decimal("77.77")] * rows.num_rows, rows.schema.field("amount").type)
    changed = rows.set_column(rows.schema.get_field_index("amount"), "amount", amounts)

    hudi.write(table, changed.slice(0, 6), "upsert")
    after_upsert = hudi.read(table)
    assert after_upsert.num_rows == stored.num_rows
    assert pc.sum(pc.equal(after_upsert["amount"], decimal.Decimal("77.77"))).as_py() == 6

    hudi.delete(table, changed.slice(0, 2))
    assert hudi.read(table).num_rows == stored.num_rows - 2
