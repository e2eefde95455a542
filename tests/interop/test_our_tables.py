"""Tables of lakeformat, shared with Apache Hudi and hudi-rs: each reads the writes of the others, no key is doubled.

The oracle is a dict from record key to row. Every write is applied to it in a line of Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakeformat
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.table_cases import CASES, FIRST, NEW, Case, Step

pytestmark = pytest.mark.interop

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]


def by_key(case: Case, table: pa.Table, without: frozenset[str] = frozenset()) -> Rows:
    """Return rows by their record key, without some columns. Fail if a key is in two rows."""
    rows = table.to_pylist(maps_as_pydicts="strict")
    keyed = {tuple(row[name] for name in case.record_key): row for row in rows}
    assert len(keyed) == len(rows), "a record key is doubled"
    return {key: {k: v for k, v in row.items() if k not in without} for key, row in keyed.items()}


def apply_operation(case: Case, rows: Rows, operation: str, table: pa.Table) -> Rows:
    """Return the rows after that operation. Every edition is newer than the stored one."""
    changes = by_key(case, table)
    match operation:
        case "delete":
            return {key: row for key, row in rows.items() if key not in changes}
        case "overwrite":
            return changes
        case _:
            return rows | changes


def write_ours(case: Case, table: lakeformat.Table, rows: Rows, step: Step) -> Rows:
    """Apply one step to our table and to the oracle."""
    batch = case.rows(step.numbers, step.edition)
    keys = list(dict.fromkeys((*case.record_key, *case.partition_fields)))
    getattr(table, step.operation)(batch.select(keys) if step.operation == "delete" else batch)
    return apply_operation(case, rows, step.operation, batch)


def assert_ours(case: Case, path: Path, rows: Rows) -> None:
    """Check that lakeformat reads exactly these rows after opening the table again."""
    assert by_key(case, lakeformat.open(path).to_arrow(meta_columns=False)) == rows


def assert_hudi_agrees(case: Case, path: Path, hudi: Hudi) -> None:
    """Check that Hudi reads the same rows as lakeformat, meta columns included."""
    ours = lakeformat.open(path).to_arrow(meta_columns=True)
    assert by_key(case, hudi.read(path), case.from_path) == by_key(case, ours, case.from_path)


def assert_hudi_rs_agrees(case: Case, path: Path) -> None:
    """Check that hudi-rs reads the same rows as lakeformat, meta columns included."""
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(path)).build().read())
    assert by_key(case, theirs) == by_key(case, lakeformat.open(path).to_arrow(meta_columns=True))


#: One case each of operations, key generators and types.
ON_EVERY_RUN: Final = frozenset({"upsert", "delete", "simple_hive_url_encoded", "custom", "all_types"})


@pytest.mark.parametrize("case", the_rest_by_night(CASES, ON_EVERY_RUN))
def test_a_table_shared_with_hudi(case: Case, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / case.name
    table = lakeformat.create(
        path,
        case.rows((), 0).schema,
        record_key=case.record_key,
        partition_by=case.partition_by,
        ordering="ts",
        **case.options,
    )
    rows: Rows = {}
    for step in case.steps:
        rows = write_ours(case, table, rows, step)
    assert_ours(case, path, rows)
    assert_hudi_agrees(case, path, hudi)

    upserts = case.rows([*FIRST[::9], *NEW], 3)
    hudi.write(path, upserts, "upsert", **case.writer_options)
    rows = apply_operation(case, rows, "upsert", upserts)
    assert_ours(case, path, rows)

    deletes = case.rows([*FIRST[4::18], *FIRST[9::18], *NEW[::2]], 4)
    hudi.delete(path, deletes, **case.writer_options)
    rows = apply_operation(case, rows, "delete", deletes)
    assert_ours(case, path, rows)

    again = lakeformat.open(path, **case.hudi_options)
    rows = write_ours(case, again, rows, Step("upsert", [*FIRST[::6], *NEW, *range(200, 210)], 5))
    rows = write_ours(case, again, rows, Step("delete", [*FIRST[3::30], *NEW[1::4]], 6))
    assert_ours(case, path, rows)
    assert_hudi_agrees(case, path, hudi)
    assert_hudi_rs_agrees(case, path)
