"""Tables of version 10 by Hudi 1.3 are read as Hudi reads them. It runs once `VERSION_OPTIONS` has a row for a 1.3."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import VERSION_OPTIONS, Hudi

pytestmark = pytest.mark.interop
RELEASES = [version for version in VERSION_OPTIONS if version.startswith("1.3.")]


def _rows(ids: list[int], ts: int) -> pa.Table:
    return pa.table({"id": ids, "ts": [ts] * len(ids), "name": [f"{ts}-{one}" for one in ids]})


def _found(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted((row["id"], row["ts"], row["name"]) for row in rows.select(["id", "ts", "name"]).to_pylist())


@pytest.mark.parametrize("hudi", RELEASES, indirect=True)
@pytest.mark.parametrize("ordering", ["ts", ""])
def test_we_read_native_log_files_as_hudi_does(ordering: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.write.table.version": "9",
        **({"hoodie.table.ordering.fields": ordering} if ordering else {}),
    }
    hudi.write(path, _rows([1, 2, 3, 4, 5], 10), "upsert", **options)
    hudi.write(path, _rows([1, 2], 20), "upsert", **options)  # An inline log file, which the upgrade leaves.
    newer = {**options, "hoodie.write.table.version": "10"}
    hudi.write(path, _rows([2, 3, 6], 30), "upsert", **newer)
    assert list(path.glob("*.log.parquet"))
    assert _found(lakeformat.open(path).to_arrow()) == _found(hudi.read(path))
    hudi.delete(path, _rows([1, 6], 40), **newer)
    assert list(path.glob("*.deletes.parquet"))
    assert _found(lakeformat.open(path).to_arrow()) == _found(hudi.read(path))
