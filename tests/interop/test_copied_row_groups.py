"""Base files with copied row groups are read by Hudi and hudi-rs, written by Hudi, and written by lakeformat again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.table_cases import TYPES, Case, typed_rows
from tests.interop.test_our_tables import (
    Rows,
    apply_operation,
    assert_hudi_agrees,
    assert_hudi_rs_agrees,
    assert_ours,
)

pytestmark = pytest.mark.interop


def test_hudi_reads_and_writes_files_with_copied_row_groups(hudi: Hudi, tmp_path: Path) -> None:
    case, path, rows = Case("copied", rows=typed_rows), tmp_path / "copied", Rows()
    options = {"lakeformat.parquet.row.group.rows": 20}
    table = lakeformat.create(path, TYPES, record_key="id", ordering="ts", **options)
    for edition, (verb, numbers) in enumerate(
        [("bulk_insert", range(100, 300)), ("upsert", [105, 106, 250]), ("delete", [131, 132]), ("upsert", [299, 900])]
    ):
        batch = typed_rows(numbers, edition + 1)
        result = getattr(table, verb)(batch)
        assert verb == "bulk_insert" or "copied rows" in result.describe()
        rows = apply_operation(case, rows, verb, batch)
        assert_ours(case, path, rows)
        assert_hudi_agrees(case, path, hudi)
        assert_hudi_rs_agrees(case, path)
    updated = table.to_arrow(where="id >= 'r150' and id < 'r205'")  # Parts of the row groups that it meets.
    at = updated.schema.get_field_index("s")
    updated = updated.set_column(at, updated.schema.field(at), pa.array(["new"] * len(updated)))
    assert "copied" in table.update({"s": "new"}, where="id >= 'r150' and id < 'r205'").describe()
    rows = apply_operation(case, rows, "upsert", updated)
    table.delete(where="id >= 'r160' and id < 'r200'")
    rows = apply_operation(
        case, rows, "delete", updated.filter(pc.field("id") < "r200").filter(pc.field("id") >= "r160")
    )
    assert_ours(case, path, rows)
    assert_hudi_agrees(case, path, hudi)
    assert_hudi_rs_agrees(case, path)
    for write in (lambda batch: hudi.write(path, batch, "upsert", **case.writer_options), table.upsert):
        batch = typed_rows([107, 298, 901], 9)
        write(batch)
        rows = apply_operation(case, rows, "upsert", batch)
        assert_ours(case, path, rows)
        assert_hudi_agrees(case, path, hudi)
