"""A slice in two parts: the base file without the replaced rows, and the replacing rows, are the rows of the slice."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.arrow.conform import conform
from lakeformat.errors import UnsupportedTableError
from lakeformat.files.replaced_rows import find_numbered_rows, find_replaced_rows, read_replacing_rows
from lakeformat.files.slice_reader import read_slice
from lakeformat.model.record import RECORD_KEY
from lakeformat.read.query import readable_schema
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.random_slices import RULES, RandomSlices
from tests.helpers.tables import a_schema, a_table

SIZES = {"most_rows": 5, "most_bytes": 1 << 20}
SCHEMA = a_schema(id="string", ts="int64", v="int64", w="float64")


def same_rows(rows: pa.Table) -> Counter[str]:
    """Return the rows as texts, which tell -0.0 from 0.0 and are equal for NaN."""
    return Counter(map(repr, rows.to_pylist()))


def check_slices(table: Table) -> Counter[str]:
    """Check every slice with base and log files that stores the table's columns as they are. Count what it saw."""
    storage, snapshot, seen = table.context.storage, table.snapshot(), Counter[str]()
    full = readable_schema(snapshot.columns(storage.location), meta_columns=True)
    for piece in snapshot.each_slice():
        merging = snapshot.merge_rules(piece)
        if piece.base is None or not piece.logs or merging.shape is not None:
            continue
        with storage.open_input(piece.base.path) as source:
            stored = pq.read_table(source)
        base = conform(stored, pa.schema([full.field(name) for name in full.names]))
        replaced = find_replaced_rows(storage, piece, merging, full)
        assert (np.diff(replaced) > 0).all()
        numbered = find_numbered_rows(storage, piece, merging, full)
        assert numbered is None or numbered.tolist() == replaced.tolist()
        seen["by number"] += numbered is not None
        for columns in (full.names, [RECORD_KEY], [snapshot.columns("").names[-1]]):
            wanted = pa.schema([full.field(name) for name in columns])
            left = np.setdiff1d(np.arange(base.num_rows), replaced)
            replacing = [*read_replacing_rows(storage, piece, merging, full, columns, **SIZES)]
            assert all(batch.num_rows <= SIZES["most_rows"] for batch in replacing)
            parts = [base.select(columns).take(pa.array(left)), pa.Table.from_batches(replacing, wanted)]
            whole = pa.Table.from_batches(read_slice(storage, piece, merging, full, columns, **SIZES), wanted)
            assert same_rows(pa.concat_tables(parts)) == same_rows(whole)
        seen["slices"] += 1
        seen["rows"] += len(replaced)
    return seen


@pytest.mark.slow
def test_random_slices_equal_their_two_parts() -> None:
    seen, rules = Counter[str](), set[str]()
    for seed in range(30):
        made = RandomSlices(seed)
        seen += check_slices(made.table)
        rules.add(made.rule)
    assert rules == set(RULES)
    assert seen["slices"] > 30
    assert seen["rows"] > 100


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("ordering", ["ts", ""])
def test_rows_with_and_without_row_numbers(version: int, ordering: str) -> None:
    """Late rows, deletes, new keys, and keys that come back."""
    few = {"lakeformat.parquet.row.group.rows": 7, "hoodie.compact.inline": False}
    table = a_table(schema=SCHEMA, merge_on_read=True, version=version, ordering=ordering, **few)
    table.bulk_insert([{"id": f"k{at:02}", "ts": 10, "v": at, "w": -0.0} for at in range(50)])
    for step, late in enumerate((3, -3, 0, 1)):
        table.upsert([{"id": f"k{at:02}", "ts": 10 + late, "v": 100 * step, "w": None} for at in range(step, 50, 9)])
        table.delete([{"id": f"k{7 * step + 1:02}"}])
        table.upsert([{"id": f"n{step}", "ts": 1, "v": 0, "w": float("nan")}])
        seen = check_slices(table)
    assert seen["rows"] > 8
    assert (seen["by number"] > 0) is (not ordering)  # Late rows need the ordering values of the base file.


def test_a_row_that_wins_by_its_ordering_value_is_not_replaced() -> None:
    table = a_table(schema=SCHEMA, merge_on_read=True, ordering="ts")
    table.bulk_insert([{"id": f"k{at}", "ts": 10 * at, "v": at, "w": 0.0} for at in range(4)])
    table.upsert([{"id": f"k{at}", "ts": 15, "v": 9, "w": 0.0} for at in range(4)])
    assert check_slices(table)["rows"] == 2


def test_both_rows_of_a_doubled_key_are_replaced() -> None:
    table = a_table(schema=SCHEMA, merge_on_read=True, version=6)
    once = [{"id": "a", "ts": 0, "v": 1, "w": 0.0}]
    table.insert([*once, *once, {"id": "b", "ts": 0, "v": 1, "w": 0.0}])
    table.upsert([{"id": "a", "ts": 1, "v": 9, "w": 0.0}])
    assert check_slices(table)["rows"] == 2


def test_slices_of_hudi_equal_their_two_parts(tmp_path: Path) -> None:
    seen = Counter[str]()
    for collection in ("hudi_mor_v6", "hudi_v8_v9"):
        for name in names(collection):
            table = lakeformat.open(unpack(name, tmp_path / collection))
            with suppress(UnsupportedTableError):  # A merge by the table's own code.
                seen += check_slices(table)
    assert seen["slices"] > 10
