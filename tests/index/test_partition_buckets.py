"""Tables whose partitions have their own numbers of buckets, by a rule of Hudi's procedure: read, not written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import Table, UnsupportedTableError
from tests.helpers.fixture_tables import read_expectations, unpack
from tests.helpers.refusal import check_message

TABLES = ("hudi_rest/v9_cow_partition_buckets_sql", "hudi_rest/v9_mor_partition_buckets_sql")
ROWS = [{"id": 1, "name": "x", "ts": 9, "part": "a1"}, {"id": 77, "name": "y", "ts": 9, "part": "a9"}]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 8},
    {"hoodie.index.type": "SIMPLE"},
]
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(ROWS),
    "insert": lambda table: table.insert(ROWS),
    "bulk insert": lambda table: table.bulk_insert(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "insert overwrite": lambda table: table.insert_overwrite(ROWS),
    "delete": lambda table: table.delete(ROWS),
    "delete by condition": lambda table: table.delete(where="id = 1"),
    "update": lambda table: table.update({"name": "z"}, where="id = 1"),
    "merge": lambda table: table.merge(ROWS).when_matched_update().execute(),
    "delete partitions": lambda table: table.delete_partitions("part=b"),
    "cluster": lambda table: table.cluster(),
    "plan": lambda table: table.plan_upsert(ROWS),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_write_is_refused_by_name_and_reads_go_on(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    files = sorted(path.rglob("*"))
    for options in OPTIONS:
        for write in WRITES.values():
            with pytest.raises(UnsupportedTableError) as error:
                write(lakeformat.open(path, **options))
            check_message(error, UnsupportedTableError, ".hashing_config gives partitions their own numbers of buckets")
    assert sorted(path.rglob("*")) == files
    expected = {row["id"]: row["name"] for row in read_expectations(name)["snapshot"]}
    rows = lakeformat.open(path).to_arrow(["id", "name"]).to_pylist()
    assert (len(rows), {row["id"]: row["name"] for row in rows}) == (len(expected), expected)
