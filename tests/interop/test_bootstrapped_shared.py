"""Tables that Hudi bootstraps from plain files, without their columns, written by both in turn. Oracle: a dict."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.shared_table import Model, SharedTable
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

SCHEMA: Final = a_schema(id="int64", ts="int64", v="string", part="string")
W: Final = "hoodie.datasource.write."
JOB: Final = {
    "hoodie.table.name": "t",
    "hoodie.write.table.version": "9",
    "hoodie.metadata.index.column.stats.enable": "false",  # Hudi bootstraps no table with it.
    f"{W}recordkey.field": "id",
    f"{W}partitionpath.field": "part",
    f"{W}precombine.field": "ts",
    f"{W}hive_style_partitioning": "true",
    f"{W}keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
}


def write_source(folder: Path, rows: Model) -> None:
    """Write a file of several row groups for each partition, without the partition's column."""
    for part in "ab":
        path = folder / f"part={part}" / "rows.parquet"
        path.parent.mkdir(parents=True)
        found = [row for row in rows.values() if row["part"] == part]
        pq.write_table(pa.Table.from_pylist(found, SCHEMA).drop_columns("part"), path, row_group_size=3)


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_read_the_rows_of_alternating_writes(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    shared = SharedTable(path, hudi, SCHEMA, "part", "ab")
    model = shared.rows(range(16), 1)
    write_source(source, model)
    job = {**JOB, f"{W}table.type": kind}
    made = {
        "hoodie.bootstrap.base.path": str(source),
        "hoodie.bootstrap.keygen.class": JOB[f"{W}keygenerator.class"],
        "hoodie.bootstrap.mode.selector": (
            "org.apache.hudi.client.bootstrap.selector.MetadataOnlyBootstrapModeSelector"
        ),
    }
    hudi.write(path, shared.batch(range(1), 1), "bootstrap", mode="overwrite", **job, **made)
    shared.assert_both_read(model)
    table = lakeformat.open(path, **{"lakeformat.compact.auto": False})
    table.delete(where="id = 0")
    table.upsert(shared.batch(range(1, 12, 2), 2))
    model = {n: row for n, row in model.items() if n} | shared.rows(range(1, 12, 2), 2)
    shared.assert_both_read(model)
    if kind == "MERGE_ON_READ":
        assert table.schedule_compaction() is not None
        hudi.run(f"CALL run_compaction(op => 'run', path => '{path}')")  # It needs the sources in our plan.
        assert not lakeformat.open(path).snapshot().live.has_logs
        shared.assert_both_read(model)
    hudi.write(path, shared.batch(range(2, 6), 3), "upsert", **job)
    model |= shared.rows(range(2, 6), 3)
    shared.assert_both_read(model)
    lakeformat.open(path).upsert(shared.batch(range(14, 20), 4))
    lakeformat.open(path).cluster(by=["v"])
    model |= shared.rows(range(14, 20), 4)
    shared.assert_both_read(model)
