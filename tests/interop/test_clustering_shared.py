"""Clustered tables and clustering plans, shared with Apache Hudi both ways."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.table_cases import FIRST, NEW, Case, plain_rows
from tests.interop.test_our_tables import Rows, apply_operation, assert_hudi_agrees, assert_ours, by_key

pytestmark = pytest.mark.interop

CASE = Case("clustered", partition_by=("region",))


def make_table(path: Path) -> tuple[lakeformat.Table, Rows]:
    """Create a table with several files in each partition. Return it with the expected rows."""
    table = lakeformat.create(path, plain_rows((), 0).schema, record_key="id", partition_by="region", ordering="ts")
    first = plain_rows(FIRST, 1)
    for start in range(0, len(FIRST), 30):
        table.bulk_insert(plain_rows(FIRST[start : start + 30], 1))
    return table, apply_operation(CASE, {}, "upsert", first)


def rows_without_files(rows: pa.Table) -> list[object]:
    """Return rows with all their meta columns except the file name."""
    return [{**row, "_hoodie_file_name": None} for row in hudi_rs.rows_by_key(rows)]


def pending(path: Path) -> list[str]:
    return [instant.time for instant in lakeformat.open(path).snapshot().timeline.pending]


def last_operation(path: Path) -> str:
    return lakeformat.open(path).history()[0].operation


def call(hudi: Hudi, path: Path, arguments: str) -> None:
    """Call Hudi's procedure. 1.2.0 needs options to leave the table's version."""
    options = "hoodie.metadata.enable=false,hoodie.write.table.version=6,hoodie.write.auto.upgrade=false"
    if hudi.version == "0.15.0":
        options = "hoodie.metadata.enable=false"
    hudi.sql(f"call run_clustering(path => '{path}', {arguments}, options => '{options}')")


def test_hudi_reads_and_writes_a_table_that_we_clustered(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table, rows = make_table(path)
    before, instant = rows_without_files(table.to_arrow(meta_columns=True)), table.history()[0].instant_time
    table.cluster(["value", "n"], curve="hilbert", target_file_bytes=6000)
    assert rows_without_files(hudi.read(path)) == rows_without_files(table.to_arrow(meta_columns=True)) == before
    assert rows_without_files(hudi.read(path, as_of=instant)) == before
    changes = plain_rows([*FIRST[::9], *NEW], 3)
    hudi.write(path, changes, "upsert", **CASE.writer_options)
    rows = apply_operation(CASE, rows, "upsert", changes)
    gone = plain_rows(FIRST[4::18], 4)
    hudi.delete(path, gone, **CASE.writer_options)
    rows = apply_operation(CASE, rows, "delete", gone)
    assert_ours(CASE, path, rows)
    lakeformat.open(path).cluster("n")
    assert_ours(CASE, path, rows)
    assert_hudi_agrees(CASE, path, hudi)
    hudi_rs.assert_same_rows(lakeformat.open(path))


def test_hudi_runs_our_plan(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table, rows = make_table(path)
    before = rows_without_files(table.to_arrow(meta_columns=True))
    planned = table.schedule_clustering(["value", "n"], curve="z-order")
    assert pending(path) == [planned]
    assert rows_without_files(hudi.read(path)) == before
    call(hudi, path, f"op => 'execute', instants => '{planned}'")
    assert pending(path) == []
    assert lakeformat.open(path).history()[0].instant_time == planned
    assert last_operation(path) == "cluster"
    assert rows_without_files(lakeformat.open(path).to_arrow(meta_columns=True)) == before
    table.upsert(plain_rows(FIRST[::7], 5))
    assert_ours(CASE, path, apply_operation(CASE, rows, "upsert", plain_rows(FIRST[::7], 5)))


def test_we_run_hudis_plan(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table, rows = make_table(path)
    changes = plain_rows(FIRST[::9], 3)
    hudi.write(path, changes, "upsert", **CASE.writer_options)
    rows = apply_operation(CASE, rows, "upsert", changes)
    before = rows_without_files(table.to_arrow(meta_columns=True))
    call(hudi, path, "op => 'schedule', order => 'value,n'")
    (planned,) = pending(path)
    with pytest.raises(lakeformat.WriteConflictError, match=planned):
        table.upsert(plain_rows(FIRST[:3], 6))
    result = lakeformat.open(path, **{"hoodie.layout.optimize.strategy": "z-order"}).run_clustering()
    assert result.instant_time == planned
    assert "z-order" in result.describe()
    assert rows_without_files(hudi.read(path)) == rows_without_files(table.to_arrow(meta_columns=True)) == before
    assert by_key(CASE, table.to_arrow(meta_columns=False)) == rows
    hudi.write(path, plain_rows(FIRST[::5], 7), "upsert", **CASE.writer_options)
    assert_ours(CASE, path, apply_operation(CASE, rows, "upsert", plain_rows(FIRST[::5], 7)))
