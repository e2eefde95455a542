"""The plan of a write without the write: the same decisions, and not a byte on storage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.errors import SchemaMismatchError
from lakeformat.model.operation import Operation
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", p="string", v="string")


def rows(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    return a_batch(SCHEMA, id=ids, p=[f"p{n % 2}" for n in ids], v=[f"v{n}" for n in ids])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path / "t", rows=rows(0, 100), partition_by="p", operation="upsert")


def on_storage(table: Table) -> dict[str, bytes]:
    root = Path(table.context.storage.location.removeprefix("file://"))
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("operation", [operation for operation in Operation if not operation.traits.is_service])
def test_a_plan_leaves_no_trace(table: Table, operation: Operation) -> None:
    before = on_storage(table)
    assert any(name.endswith(".commit") for name in before)
    plan = table.plan(rows(50, 150), operation)
    assert on_storage(table) == before
    assert plan.incoming == 100
    assert operation.value in str(plan)


def test_a_plan_needs_no_lock(table: Table) -> None:
    with table.context.storage.lock(0):
        assert table.plan_upsert(rows(50, 150)).updates == 50


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.DELETE])
def test_write_does_what_the_plan_says(table: Table, operation: Operation) -> None:
    plan = table.plan(rows(50, 150), operation)
    snapshot = table.snapshot()
    assert plan.instant_time == snapshot.instant_time
    table.write(rows(50, 150), operation)
    stats = list(table.context.store.read_commit(table.context.store.load().commits[-1]).all_stats())
    done = {(s.partition_path, s.file_id, s.num_updates + s.num_deletes, s.num_inserts) for s in stats}
    assert {(f.partition_path, f.file_id, f.updates, f.inserts) for f in plan.files} == done
    sizes = {file.group.file_id: file.size_bytes for file in snapshot.files}
    assert {f.file_id: f.size_bytes for f in plan.files} == sizes


def test_a_plan_counts_new_files_and_tagging(table: Table) -> None:
    more = rows(200, 300).set_column(1, "p", pa.array(["new"] * 100))
    plan = table.plan_upsert(pa.concat_tables([rows(0, 10), more]))
    assert (plan.updates, plan.inserts) == (10, 100)
    assert [(f.partition_path, f.inserts) for f in plan.files if f.file_id is None] == [("new", 100)]
    assert plan.tagging["keys"] == 110
    assert plan.tagging["files"] == 2
    printed = str(plan)
    assert "10 updates, 100 inserts" in printed
    assert "new file group" in printed
    assert all(step["step"] in printed for step in plan.steps)


def test_plan_refuses_what_the_write_refuses(table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match="'v'"):
        table.plan_upsert(rows(0, 1).drop_columns(["v"]))
