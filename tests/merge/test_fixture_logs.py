"""Slices of Hudi's own tables, decoded by fastavro, merge to the rows that Hudi reads."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat.arrow.conform import conform, reader_schema
from lakeformat.codec import properties
from lakeformat.merge import ReadRule, SliceMerge, fold_parts, make_read_rule
from lakeformat.merge.versions import LogRows
from lakeformat.model.table_config import TableConfig
from tests.helpers.fixture_slices import Slice, slices
from tests.helpers.fixture_tables import names, read_expectations, unpack

TABLES = [name for kind in ("hudi_mor_v6", "hudi_v8_v9") for name in names(kind) if "mor" in Path(name).name]
#: Fields of rows, by table and key, that Hudi 0.15.0 (which made the JSON) and releases from 1.1 on read differently:
#: with commit time, a smaller ordering value does not keep a record of the log from replacing another.
SINCE_1_1 = {
    ("hudi_mor_v6/mor6_latest_within_log", "1"): {
        "_hoodie_commit_time": "20261121011639644", "name": "later but smaller", "price": 99.0, "ts": 150,
    }
}  # fmt: skip
HIDDEN = {"_hoodie_commit_seqno", "_hoodie_file_name"}


def as_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return str(value)
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
        case list() if value and isinstance(value[0], tuple):
            return {key: as_json(item) for key, item in value}
        case list():
            return [as_json(item) for item in value]
        case dict():
            return {key: as_json(item) for key, item in value.items()}
    return value


def merge_fixture_slice(found: Slice, rule: ReadRule) -> list[dict[str, Any]]:
    whole = [part.rows.schema for part in found.parts if isinstance(part, LogRows) and not part.is_partial]
    tables = [found.base.schema] if found.base is not None else []
    schema = pa.unify_schemas([reader_schema(schema) for schema in [*tables, *whole]])
    merge = SliceMerge(fold_parts(found.parts, rule, schema), rule)
    base = conform(found.base, schema).to_batches() if found.base is not None else []
    parts = [*map(merge.merge_batch, base), *merge.log_only_rows(1000, 1 << 20)]
    return [{k: as_json(v) for k, v in row.items() if k not in HIDDEN} for part in parts for row in part.to_pylist()]


def slices_of(name: str, into: Path) -> tuple[list[Slice], ReadRule]:
    table = unpack(name, into)
    settings = properties.decode((table / ".hoodie/hoodie.properties").read_bytes(), name=name)
    layout = int(settings["hoodie.timeline.layout.version"])
    return slices(table, layout), make_read_rule(TableConfig(settings).merge_settings)


@pytest.mark.parametrize("name", TABLES)
def test_slices_of_a_table_merge_to_the_rows_of_hudi(name: str, tmp_path: Path) -> None:
    found, rule = slices_of(name, tmp_path)
    rows = [row for one in found for row in merge_fixture_slice(one, rule)]
    rows.sort(key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))
    since = [row | SINCE_1_1.get((name, row["_hoodie_record_key"]), {}) for row in read_expectations(name)["snapshot"]]
    assert rows == since


@pytest.mark.parametrize("name", names("hudi_merge_rules"))
def test_slice_at_each_instant_merges_to_the_rows_of_hudi(name: str, tmp_path: Path) -> None:
    (found,), rule = slices_of(name, tmp_path)
    for instant, rows in read_expectations(name)["as_of"].items():
        then = Slice(found.base, [part for part in found.parts if part.instant_time <= instant])
        assert sorted(merge_fixture_slice(then, rule), key=lambda row: row["_hoodie_record_key"]) == rows, instant
