"""Options that say what an overwrite replaces: Hudi 1.2.0 and lakeformat replace the same rows of equal tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi, HudiError
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

SCHEMA: Final = a_schema(id="int64", region="string", ts="int64", v="string")
JOB: Final = {"hoodie.write.table.version": "9", "hoodie.table.ordering.fields": "ts"}
VERBS: Final = {
    "insert_overwrite": lakeformat.Table.insert_overwrite,
    "insert_overwrite_table": lakeformat.Table.overwrite,
}
OPERATIONS: Final = pytest.mark.parametrize("operation", list(VERBS))


def batch(ids: range, ts: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "region": f"r{n % 3}", "ts": ts, "v": f"{n}@{ts}"} for n in ids], SCHEMA)


def made(path: Path) -> Path:
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **JOB)
    table.insert(batch(range(9), 1))
    return path


def texts(path: Path) -> list[str]:
    return sorted(lakeformat.open(path).to_arrow().column("v").to_pylist())


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@OPERATIONS
def test_bulk_insert_that_overwrites(operation: str, mode: str, hudi: Hudi, tmp_path: Path) -> None:
    """Each mode goes with one of the operations."""
    option = {"hoodie.bulkinsert.overwrite.operation.type": operation}
    ours, theirs, rows = made(tmp_path / "ours"), made(tmp_path / "theirs"), batch(range(1, 8, 3), 2)
    if (operation == "insert_overwrite") == (mode == "append"):
        VERBS[operation](lakeformat.open(ours), rows)
        hudi.write(theirs, rows, "bulk_insert", mode=mode, **JOB, **option)
        assert texts(ours) == texts(theirs)
    else:
        with pytest.raises(HudiError, match=f"(?i){mode} with bulk_insert in row writer path is not supported"):
            hudi.write(theirs, rows, "bulk_insert", mode=mode, **JOB, **option)


@OPERATIONS
def test_partitions_that_are_named(operation: str, hudi: Hudi, tmp_path: Path) -> None:
    option = {"hoodie.static.overwrite.partition.paths": "r0,r2"}
    ours, theirs, rows = made(tmp_path / "ours"), made(tmp_path / "theirs"), batch(range(1, 8, 3), 2)
    VERBS[operation](lakeformat.open(ours, **option), rows)
    hudi.write(theirs, rows, operation, **JOB, **option)
    assert texts(ours) == texts(theirs)
