"""The remainder of a partition: packed with others if there are any, otherwise written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.write.intake import plan_job
from lakeformat.write.workload.buckets import tail_bytes
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", v="string")
MIB = 1 << 20
SORTED = {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}


@pytest.mark.parametrize(
    ("operation", "options", "small", "of_one_writer", "of_tasks"),
    [
        ("insert", {}, 100 * MIB, 100 * MIB, 100 * MIB),
        ("insert", {}, 0, 0, 0),
        ("bulk_insert", {}, 100 * MIB, 0, 8 * MIB),
        ("bulk_insert", {}, MIB, 0, MIB),
        ("bulk_insert", SORTED, 100 * MIB, 0, 0),
        ("insert_overwrite", {}, 100 * MIB, 0, 8 * MIB),
        ("insert_overwrite_table", {}, 100 * MIB, 0, 8 * MIB),
    ],
)
def test_tail_bytes_follow_the_rule(
    operation: str, options: dict[str, Any], small: int, of_one_writer: int, of_tasks: int, tmp_path: Path
) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    given = {"operation": operation, "hoodie.parquet.small.file.limit": small, **options}
    job = plan_job(table.context.store, table.snapshot(), resolve(given), SCHEMA, table.context.ids)
    assert (tail_bytes(job, tasks=False), tail_bytes(job, tasks=True)) == (of_one_writer, of_tasks)
