"""Merge-on-read tables that Hudi wrote and we continue: a dictionary has the expected rows, and hudi-rs agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.model.operation import Operation
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.local_shuffle import write_shuffled
from tests.write.test_continue_fixtures import by_key, later, strip_meta

#: hudi-rs does not see the log files of a slice that a pending compaction has opened.
NOT_FOR_HUDI_RS = "hudi_mor_v6/mor6_compaction_pending"
#: The table has so few keys that the number of buckets cannot be derived from them.
BUCKETS = {"hudi_mor_v6/mor6_bucket_index": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}}
FIXTURES = [name for name in (*names("hudi_mor_v6"), *names("hudi_v8_v9")) if "_cow_" not in name]


#: Tables in which some keys are, or may be, in log files only.
KEYS_IN_LOGS = [name for name in FIXTURES if name.endswith(("log_only", "log_compaction", "_pending", "mor6_rollback"))]


def write_staged(table: lakeformat.Table, rows: pa.Table, operation: Operation) -> lakeformat.WriteResult:
    result: lakeformat.WriteResult = getattr(table, operation.value)(rows)
    return result


def write_in_tasks(table: lakeformat.Table, rows: pa.Table, operation: Operation) -> lakeformat.WriteResult:
    """Run an exchanged write from two stage files."""
    half = rows.num_rows // 2
    return write_shuffled(table, [rows.slice(0, half), rows.slice(half)], operation)


@pytest.mark.parametrize(
    ("name", "write"),
    [*((name, write_staged) for name in FIXTURES), *((name, write_in_tasks) for name in KEYS_IN_LOGS)],
)
def test_upsert_and_delete_continue_a_hudi_merge_on_read_table(
    name: str, write: Callable[[lakeformat.Table, pa.Table, Operation], lakeformat.WriteResult], tmp_path: Path
) -> None:
    table = lakeformat.open(unpack(name, tmp_path), **BUCKETS.get(name, {}))
    ordering = table.config.ordering_field
    model, schema = by_key(table.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict")), table.schema
    rows = [row for _, row in sorted(model.items())]
    changed = [{**row, ordering: later(row[ordering])} if ordering else row for row in rows[::2]]
    result = write(table, pa.Table.from_pylist(changed, schema), Operation.UPSERT)
    assert result.report["rows"]["updated"] == len(changed)
    assert result.report["rows"]["inserted"] == 0
    model |= dict(zip(sorted(model)[::2], changed, strict=True))
    check(table, model, hudi_rs_too=name != NOT_FOR_HUDI_RS)

    gone = sorted(model)[:3]
    write(table, pa.Table.from_pylist([model[key] for key in gone], schema), Operation.DELETE)
    model = {key: row for key, row in model.items() if key not in gone}
    check(table, model, hudi_rs_too=name != NOT_FOR_HUDI_RS)
    assert lakeformat.open(tmp_path / Path(name).name).to_arrow().num_rows == len(model)


def check(table: lakeformat.Table, model: dict[tuple[str, str], dict[str, object]], *, hudi_rs_too: bool) -> None:
    ours = by_key(table.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict"))
    assert ours == {key: strip_meta(row) for key, row in model.items()}
    if not hudi_rs_too:
        return
    theirs = hudi_rs.rows_by_key(hudi_rs.read(table.context.storage.location))
    assert {(row["_hoodie_partition_path"], row["_hoodie_record_key"]) for row in theirs} == set(model)
