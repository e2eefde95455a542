"""Tables under the bucket index, written in turn by Apache Hudi and by us: no bucket and no key is doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.index.bucket import bucket_of
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.table_cases import FIRST, NEW, Case, Step, plain_rows
from tests.interop.test_our_tables import Rows, apply_operation, assert_ours, by_key, write_ours

pytestmark = pytest.mark.interop

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"}
CASES = (
    Case("simple_key", partition_by=("region",)),
    Case("complex_key", record_key=("id", "n"), partition_by=("region",)),
    Case(
        "one_field_of_a_complex_key",
        record_key=("id", "n"),
        partition_by=("region",),
        hudi_options={"hoodie.bucket.index.hash.field": "id"},
    ),
    Case("timestamps_in_the_key", record_key=("id", "moment"), partition_by=("region",)),
)


def file_ids(table: lakeformat.Table) -> dict[tuple[str, Any], str]:
    """Return (partition, bucket) -> file id. Fail if a bucket has two files."""
    files = table.snapshot().files
    found = {(file.partition_path, bucket_of(file.name.file_id)): file.name.file_id for file in files}
    assert len(found) == len(files)
    return found


@pytest.mark.parametrize("case", the_rest_by_night(CASES, {"complex_key"}))
@pytest.mark.parametrize("first", ["hudi", "ours"])
def test_a_bucket_table_shared_with_hudi(first: str, case: Case, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / case.name
    asked = {**BUCKETS, **case.hudi_options}
    theirs = {**asked, **case.writer_options}
    table = lakeformat.create(
        path,
        plain_rows((), 0).schema,
        record_key=case.record_key,
        partition_by=case.partition_by,
        ordering="ts",
        **asked,
    )
    rows: Rows = {}
    if first == "ours":
        rows = write_ours(case, table, rows, Step("upsert", FIRST, 1))
    else:
        batch = plain_rows(FIRST, 1)
        hudi.write(path, batch, "upsert", **theirs)
        rows = apply_operation(case, rows, "upsert", batch)
    begun = file_ids(lakeformat.open(path))
    assert {bucket for _, bucket in begun} == {0, 1, 2}

    for edition, numbers in ((2, [*FIRST[::9], *NEW]), (3, FIRST[::7])):
        table = lakeformat.open(path, **asked)
        rows = write_ours(case, table, rows, Step("upsert", numbers, 10 * edition))
        changes = plain_rows(numbers, 10 * edition + 1)
        hudi.write(path, changes, "upsert", **theirs)
        rows = apply_operation(case, rows, "upsert", changes)
        assert_ours(case, path, rows)

    gone = plain_rows(FIRST[4::18], 40)
    hudi.delete(path, gone, **theirs)
    rows = apply_operation(case, rows, "delete", gone)
    rows = write_ours(case, lakeformat.open(path, **asked), rows, Step("bulk_insert", range(210, 240), 41))
    assert_ours(case, path, rows)
    assert by_key(case, hudi.read(path)) == by_key(case, lakeformat.open(path).to_arrow(meta_columns=True))
    hudi_rs.assert_same_rows(lakeformat.open(path))
    assert file_ids(lakeformat.open(path)).items() >= begun.items()
