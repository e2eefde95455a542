"""Overwrites stream their rows into files and keep one row per key. The oracle is a dict; hudi-rs reads the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import Table
from tests.helpers import hudi_rs
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", p="string", ts="int64", v="string")
#: Files of a few thousand rows, and buffers that several of them fill.
SMALL = {"hoodie.parquet.max.file.size": 60_000, "lakeformat.write.buffer.bytes": 200_000}

Key = tuple[int, str]


def new_table(folder: Path, **options: Any) -> Table:
    first = a_batch(SCHEMA, id=[1, 2], p=["a", "b"], ts=1, v="before")
    return a_table(folder / "t", schema=SCHEMA, rows=[first], partition_by="p", **SMALL, **options)


def many_rows(repeats: int, seed: int) -> pa.Table:
    """Make 20,000 rows of distinct keys; ``repeats`` of them get the key of another row, far from it."""
    random = np.random.default_rng(seed)
    keys = np.arange(20_000)
    keys[random.choice(len(keys) // 2, repeats, replace=False)] = random.choice(np.arange(10_000, 20_000), repeats)
    order = random.integers(0, 5, len(keys))
    partitions = ["a" if key % 3 else "b" for key in keys]
    return a_batch(
        SCHEMA, id=keys.tolist(), p=partitions, ts=order.tolist(), v=[f"row {at}" for at in range(len(keys))]
    )


def expected(rows: pa.Table, ordering: str | None) -> dict[Key, str]:
    """Keep the row with the greatest ordering value of each key, on a tie the later one."""
    kept: dict[Key, tuple[int, str]] = {}
    for row in rows.to_pylist():
        key, rank = (row["id"], row["p"]), row[ordering] if ordering else 0
        if key not in kept or rank >= kept[key][0]:
            kept[key] = (rank, row["v"])
    return {key: value for key, (_, value) in kept.items()}


def stored(table: Table) -> dict[Key, str]:
    """Return the table's values by key. Check that hudi-rs reads the same rows and that no key occurs twice."""
    rows = hudi_rs.assert_same_rows(table)
    found = {(row["id"], row["p"]): row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def as_stream(rows: pa.Table) -> Iterable[pa.RecordBatch]:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches(max_chunksize=3000)

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("give", [lambda rows: rows, as_stream], ids=["table", "stream"])
@pytest.mark.parametrize("repeats", [0, 1, 700])
def test_one_row_per_key_is_written(
    repeats: int, give: Callable[[pa.Table], Any], ordering: str | None, tmp_path: Path
) -> None:
    table = new_table(tmp_path, **({"ordering": ordering} if ordering else {}))
    rows = many_rows(repeats, seed=repeats)
    result = table.overwrite(give(rows))
    wanted = expected(rows, ordering)
    assert stored(table) == wanted
    assert (result.rows.incoming, result.rows.inserted) == (rows.num_rows, len(wanted))
    assert not list((tmp_path / "t" / ".hoodie").rglob("stage/*/*"))


def test_small_input_with_a_repeated_key(tmp_path: Path) -> None:
    table = new_table(tmp_path, ordering="ts")
    rows = a_batch(SCHEMA, id=[7, 7, 8], p=["a", "a", "a"], ts=[2, 1, 1], v=["newer", "older", "other"])
    table.insert_overwrite(rows)
    assert stored(table) == {(7, "a"): "newer", (8, "a"): "other", (2, "b"): "before"}


def test_a_key_in_two_partitions_is_no_repeat(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.overwrite(a_batch(SCHEMA, id=[7, 7], p=["a", "b"], ts=1, v="x"))
    assert stored(table) == {(7, "a"): "x", (7, "b"): "x"}


def test_deletes_win_over_older_rows_of_an_overwrite(tmp_path: Path) -> None:
    schema = a_schema(id="int64", ts="int64", _hoodie_is_deleted="bool")
    table = a_table(tmp_path / "t", schema=schema, rows=[], ordering="ts", **SMALL)
    table.overwrite(a_batch(schema, id=[1, 1, 2], ts=[1, 2, 1], _hoodie_is_deleted=[False, True, False]))
    assert [row["id"] for row in hudi_rs.assert_same_rows(table)] == [2]


def test_keys_of_all_partitions_are_compared_by_a_global_index(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.index.type": "GLOBAL_SIMPLE", "ordering": "ts"})
    table.overwrite(a_batch(SCHEMA, id=[7, 7], p=["a", "b"], ts=[1, 2], v=["older", "newer"]))
    assert stored(table) == {(7, "b"): "newer"}


def test_nothing_of_a_failed_overwrite_stays(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    rows = many_rows(repeats=3, seed=1)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches(max_chunksize=3000)
        raise RuntimeError("the source is gone")

    before, files = stored(table), sorted((tmp_path / "t").glob("[ab]/*.parquet"))
    with pytest.raises(RuntimeError, match="the source is gone"):
        table.overwrite(pa.RecordBatchReader.from_batches(rows.schema, broken()))
    assert stored(table) == before
    assert sorted((tmp_path / "t").glob("[ab]/*.parquet")) == files
    assert not list((tmp_path / "t" / ".hoodie").rglob("stage/*/*"))
