"""Tables without stored record keys (``hoodie.populate.meta.fields=false``), written by both in turn. Oracle: a dict.

Hudi allows few indexes there: a simple one, and buckets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.shared_table import SharedTable
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

SCHEMA: Final = a_schema(id="int64", region="string", ts="int64", v="string")
JOB: Final = {
    "hoodie.write.table.version": "9",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.populate.meta.fields": "false",
    "hoodie.index.type": "SIMPLE",
}


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_read_the_rows_of_alternating_writes(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options: dict[str, Any] = {"hoodie.populate.meta.fields": False, "table_type": kind}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **JOB | options)
    SharedTable(path, hudi, SCHEMA, "region", ["r0", "r1"]).write_in_turn(table, kind, JOB, "id = 0")
