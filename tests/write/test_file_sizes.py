"""The number and the sizes of a table's files, for many kinds of rows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.model.operation import Operation
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema, a_table

SCHEMA = a_schema(id="string", p="string", v="binary", word="string")
KINDS = ("random", "constant", "few words")


@dataclass(frozen=True)
class Batch:
    """The rows of one commit: their number, their width, and how well they compress."""

    rows: int
    width: int
    kind: str

    def table(self, start: int) -> pa.Table:
        random = np.random.default_rng(start)
        ids = [f"{n:010}" for n in range(start, start + self.rows)]
        match self.kind:
            case "random":
                values = [random.bytes(self.width) for _ in ids]
            case "constant":
                values = [b"x" * self.width] * self.rows
            case _:
                words = [random.bytes(self.width) for _ in range(20)]
                values = [words[n] for n in random.integers(0, 20, self.rows).tolist()]
        columns = {"id": ids, "p": ["x"] * self.rows, "v": values, "word": ["word"] * self.rows}
        return pa.table(columns, schema=SCHEMA)


def new_table(**options: Any) -> Table:
    return a_table(schema=SCHEMA, partition_by="p", **options)


def limits(most: int, small: int) -> dict[str, int]:
    return {"hoodie.parquet.max.file.size": most, "hoodie.parquet.small.file.limit": small}


BATCHES = st.builds(Batch, st.integers(1, 600), st.integers(0, 300), st.sampled_from(KINDS))


#: Few words between unlike values: each write measures its rows with dictionaries of their own.
BETWEEN = [Batch(138, 247, "random"), Batch(158, 163, "few words"), Batch(590, 284, "random")]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(batches=BETWEEN, most=102_035, operation=Operation.UPSERT)
@given(
    batches=st.lists(BATCHES, min_size=1, max_size=8),
    most=st.integers(40_000, 200_000),
    operation=st.sampled_from([Operation.INSERT, Operation.UPSERT]),
)
def test_files_are_few_and_none_is_too_large(batches: list[Batch], most: int, operation: Operation) -> None:
    table = new_table(**limits(most, most * 5 // 6))
    start = 0
    for batch in batches:
        table.write(batch.table(start), operation)
        start += batch.rows
    sizes = [file.size_bytes for file in table.snapshot().files]
    assert table.to_arrow(["id"])["id"].to_pylist().__len__() == start
    assert max(sizes) <= most * 1.1
    assert len(sizes) <= math.ceil(sum(sizes) / (most * 0.6)) + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [Operation.INSERT, Operation.UPSERT, Operation.BULK_INSERT])
def test_one_large_write_makes_full_files(operation: Operation, kind: str) -> None:
    table = new_table(**limits(100_000, 80_000))
    table.write(Batch(12_000, 120, kind).table(0), operation)
    sizes = sorted(file.size_bytes for file in table.snapshot().files)
    assert max(sizes) <= 110_000
    assert len(sizes) <= math.ceil(sum(sizes) / 70_000) + 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", [Operation.INSERT, Operation.UPSERT])
def test_fifty_small_commits_end_in_full_files_of_few_row_groups(operation: Operation) -> None:
    table = new_table(**limits(60_000, 50_000))
    for number in range(50):
        table.write(Batch(60, 40, "random").table(number * 60), operation)
    files = table.snapshot().files
    assert len(files) <= math.ceil(sum(f.size_bytes for f in files) / 60_000) + 1
    assert max(file.size_bytes for file in files) <= 66_000
    for file in files:
        with table.context.storage.open_input(file.path) as source:
            metadata = pq.ParquetFile(source).metadata
            groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        assert all(one > later for one, later in itertools.pairwise(groups))
        assert len(groups) <= 1 + math.log2(sum(groups) / 60)


@pytest.mark.parametrize(("small", "repacked"), [(4 << 20, 1), (100 << 20, 0)], ids=["encoded early", "held"])
def test_inserts_larger_than_a_row_group_are_packed(small: int, repacked: int) -> None:
    table = new_table(**{"hoodie.parquet.small.file.limit": small})
    for number in range(4):
        table.insert(Batch(140_000, 0, "constant").table(number * 140_000))
    assert len(table.snapshot().files) == 1
    assert table.to_arrow(["id"]).num_rows == 560_000
    steps = {step["step"]: step for step in table.history()[0].report["steps"]}
    assert steps["encode"]["files"] == steps["repack"]["files"] == repacked


def test_partitions_whose_rows_differ_in_width_are_sized_each_by_its_own_rows() -> None:
    table = new_table(**limits(60_000, 50_000))
    narrow, wide = Batch(3_000, 4, "random").table(0), Batch(1_000, 400, "random").table(10_000)
    table.upsert(pa.concat_tables([narrow, wide.set_column(1, "p", pa.array(["y"] * 1_000))]))
    for files in table.snapshot().by_partition.values():
        assert max(file.size_bytes for file in files) <= 66_000
        assert len(files) <= math.ceil(sum(f.size_bytes for f in files) / 40_000) + 1


def test_deletes_of_unknown_keys_open_no_file(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())]), record_key="id")
    rows = Batch(10, 5, "random").table(0)
    gone = pa.array([n >= 4 for n in range(10)])
    table.upsert(rows.append_column("_hoodie_is_deleted", gone))
    assert len(hudi_rs.assert_same_rows(table)) == 4
    plan = table.plan_upsert(
        Batch(10, 5, "random").table(50).append_column("_hoodie_is_deleted", pa.array([True] * 10))
    )
    assert (plan.inserts, plan.files) == (0, ())


def test_new_files_are_cut_by_rows_on_request() -> None:
    split = {"hoodie.copyonwrite.insert.auto.split": "false", "hoodie.copyonwrite.insert.split.size": 100}
    table = new_table(**split)
    table.upsert(Batch(250, 5, "random").table(0))
    names = table.to_arrow(["_hoodie_file_name"])["_hoodie_file_name"].value_counts().to_pylist()
    assert sorted(entry["counts"] for entry in names) == [83, 83, 84]


def test_topped_up_files_read_back_equal(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", **limits(50_000, 40_000))
    for number in range(6):
        table.insert(Batch(100, 60, "random").table(number * 100))
        table.upsert(Batch(100, 60, "few words").table(number * 100 + 50))
    found = hudi_rs.assert_same_rows(table)
    assert len({row["id"] for row in found}) == 650
