"""Tables we write, shared with Apache Hudi and hudi-rs: each reads what the others wrote, no key is doubled.

The oracle is a dict, record key to row, to which every write is applied in a line of Python.
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
    """Rows by their record key, minus some columns; fails if a key stands in two rows."""
    rows = table.to_pylist(maps_as_pydicts="strict")
    keyed = {tuple(row[name] for name in case.record_key): row for row in rows}
    assert len(keyed) == len(rows), "a record key is doubled"
    return {key: {k: v for k, v in row.items() if k not in without} for key, row in keyed.items()}


def applied(case: Case, rows: Rows, operation: str, table: pa.Table) -> Rows:
    """What the table holds after that operation; every edition is newer than what is stored."""
    changes = by_key(case, table)
    match operation:
        case "delete":
            return {key: row for key, row in rows.items() if key not in changes}
        case "overwrite":
            return changes
        case _:
            return rows | changes


def write_ours(case: Case, table: lakeformat.Table, rows: Rows, step: Step) -> Rows:
    """Do one step on our table and on the oracle."""
    batch = case.rows(step.numbers, step.edition)
    keys = list(dict.fromkeys((*case.record_key, *case.partition_fields)))
    getattr(table, step.operation)(batch.select(keys) if step.operation == "delete" else batch)
    return applied(case, rows, step.operation, batch)


def assert_ours(case: Case, path: Path, rows: Rows) -> None:
    """We read exactly these rows, from a table opened anew."""
    assert by_key(case, lakeformat.open(path).to_arrow(meta_columns=False)) == rows


def assert_hudi_agrees(case: Case, path: Path, hudi: Hudi) -> None:
    """Hudi reads what we read, meta columns included."""
    ours = lakeformat.open(path).to_arrow(meta_columns=True)
    assert by_key(case, hudi.read(path), case.from_path) == by_key(case, ours, case.from_path)


def assert_hudi_rs_agrees(case: Case, path: Path) -> None:
    """hudi-rs reads what we read, meta columns included."""
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
    rows = applied(case, rows, "upsert", upserts)
    assert_ours(case, path, rows)

    deletes = case.rows([*FIRST[4::18], *FIRST[9::18], *NEW[::2]], 4)
    hudi.delete(path, deletes, **case.writer_options)
    rows = applied(case, rows, "delete", deletes)
    assert_ours(case, path, rows)

    again = lakeformat.open(path, **case.hudi_options)
    rows = write_ours(case, again, rows, Step("upsert", [*FIRST[::6], *NEW, *range(200, 210)], 5))
    rows = write_ours(case, again, rows, Step("delete", [*FIRST[3::30], *NEW[1::4]], 6))
    assert_ours(case, path, rows)
    assert_hudi_agrees(case, path, hudi)
    assert_hudi_rs_agrees(case, path)
