"""Tables whose files hold no partition columns (``…drop.partition.columns=true``), written by both in turn.

Oracle: a dict.
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

SCHEMA: Final = a_schema(id="int64", part="int32", ts="int64", v="string")
JOB: Final = {"hoodie.write.table.version": "9", "hoodie.datasource.write.drop.partition.columns": "true"}


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_read_the_rows_of_alternating_writes(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    """After a copy-on-write commit of its own, Hudi knows the type of the partition no more."""
    path = tmp_path / "t"
    options: dict[str, Any] = {**JOB, "table_type": kind}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", ordering="ts", **options)
    shared = SharedTable(path, hudi, SCHEMA, "part", [0, 1], known=int)
    shared.write_in_turn(table, kind, JOB, "id = 0 and part = 0")
