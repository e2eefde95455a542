"""Every operation in turn on one table: after each, Hudi, hudi-rs and lakeformat read the rows of a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.table_cases import FIRST, HIVE, NEW, REGIONS, Case
from tests.interop.test_our_tables import (
    Rows,
    apply_operation,
    assert_hudi_agrees,
    assert_hudi_rs_agrees,
    assert_ours,
    by_key,
)

pytestmark = pytest.mark.interop

CASES: Final = (
    Case("nonpartitioned"),
    Case("partitioned_hive", partition_by=("region",), options=HIVE),
    Case("complex_key", record_key=("id", "n"), partition_by=("region",)),
)

Write = Callable[[lakeformat.Table, pa.Table], object]
Change = Callable[[Rows, Rows], Rows]


def filter_rows(rows: Rows, keep: Callable[[Mapping[str, Any]], bool]) -> Rows:
    return {key: row for key, row in rows.items() if keep(row)}


def of_regions(rows: Rows) -> set[Any]:
    return {row["region"] for row in rows.values()}


def apply_overwrite(case: Case, rows: Rows, brought: Rows) -> Rows:
    """Return the rows after an insert overwrite. Without partitions, the new rows replace all."""
    there = of_regions(brought) if case.partition_by else {*REGIONS}
    return filter_rows(rows, lambda row: row["region"] not in there) | brought


def steps(case: Case) -> list[tuple[str, range | list[int], Write, Change]]:
    """Return for each step: name, numbers of the rows, the write, and the same change of the dictionary."""
    keys = list(dict.fromkeys((*case.record_key, *case.partition_fields)))
    region = f"region={REGIONS[0]}" if case.options else REGIONS[0]
    where = f"region = '{REGIONS[0]}'"
    later = list(range(100, 190))
    put: Change = lambda rows, brought: rows | brought  # noqa: E731
    return [
        ("bulk_insert", FIRST[:100], lambda table, batch: table.bulk_insert(batch), put),
        ("insert", FIRST[100:], lambda table, batch: table.insert(batch), put),
        ("upsert", later, lambda table, batch: table.upsert(batch), put),
        (
            "delete",
            later[::3],
            lambda table, batch: table.delete(batch.select(keys)),
            lambda rows, brought: {key: row for key, row in rows.items() if key not in brought},
        ),
        (
            "update by predicate",
            [],
            lambda table, _: table.update({"value": -1.5, "maybe": None}, where="n < 500000000000 or place = 'a/b'"),
            lambda rows, _: {
                key: row | {"value": -1.5, "maybe": None}
                if row["n"] < 500_000_000_000 or row["place"] == "a/b"
                else row
                for key, row in rows.items()
            },
        ),
        (
            "delete by predicate",
            [],
            lambda table, _: table.delete(where="id between 'key-0050' and 'key-0065' or region = 'africa'"),
            lambda rows, _: filter_rows(
                rows, lambda r: not "key-0050" <= r["id"] <= "key-0065" and r["region"] != REGIONS[3]
            ),
        ),
        (
            "insert_overwrite",
            [*range(60, 80)],
            lambda table, batch: table.insert_overwrite(batch),
            lambda rows, brought: apply_overwrite(case, rows, brought),
        ),
        ("upsert again", FIRST, lambda table, batch: table.upsert(batch), put),
        (
            "delete_partition",
            [],
            lambda table, _: table.delete_partitions(region) if case.partition_by else table.delete(where=where),
            lambda rows, _: filter_rows(rows, lambda r: r["region"] != REGIONS[0]),
        ),
        ("upsert after it", FIRST[::2], lambda table, batch: table.upsert(batch), put),
        (
            "insert_overwrite_table",
            [*range(30, 150)],
            lambda table, batch: table.overwrite(batch),
            lambda _, brought: brought,
        ),
    ]


@pytest.mark.parametrize("case", the_rest_by_night(CASES, {"partitioned_hive"}))
def test_all_read_the_same_after_each_operation(case: Case, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / case.name
    schema = case.rows((), 0).schema
    options = {**case.options, "hoodie.parquet.small.file.limit": "0"}
    lakeformat.create(
        path, schema, record_key=case.record_key, partition_by=case.partition_by, ordering="ts", **options
    )
    rows: Rows = {}
    edition = 0
    for edition, (name, numbers, write, change) in enumerate(steps(case), start=1):
        batch = case.rows(numbers, edition)
        write(lakeformat.open(path, **options), batch)
        rows = change(rows, by_key(case, batch))
        assert lakeformat.open(path).to_arrow().num_rows == len(rows), name
        assert_ours(case, path, rows)
        assert_hudi_agrees(case, path, hudi)
        assert_hudi_rs_agrees(case, path)
    assert rows

    for write in (lambda batch: hudi.write(path, batch, "upsert", **case.writer_options), lakeformat.open(path).upsert):
        edition += 1
        batch = case.rows([*FIRST[::7], *NEW], edition)
        write(batch)
        rows = apply_operation(case, rows, "upsert", batch)
        assert_ours(case, path, rows)
        assert_hudi_agrees(case, path, hudi)
        assert_hudi_rs_agrees(case, path)
