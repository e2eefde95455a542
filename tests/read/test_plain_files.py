"""Plain base files, which pyarrow and polars read themselves. The oracle is the table in memory, filtered by Arrow."""

from __future__ import annotations

import decimal
import math
import pickle
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat import CorruptTableError, Table
from tests.helpers.tables import a_schema

SCHEMA = a_schema(
    id="int64",
    part="string",
    x="float64",
    n="int32",
    v="string",
    d=pa.decimal128(10, 2),
    at=pa.timestamp("us", "UTC"),
    s=pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))]),
)
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, None)


def a_row(key: int) -> dict[str, Any]:
    return {
        "id": key,
        "part": "abc"[key % 3],
        "x": FLOATS[key % len(FLOATS)],
        "n": None if key % 5 == 0 else key,
        "v": None if key % 4 == 0 else f"v{key % 10}",
        "d": decimal.Decimal(key) / 4,
        "at": datetime(2026, 1, 1 + key % 28, tzinfo=timezone.utc),
        "s": None if key % 6 == 0 else {"a": key, "b": ["x", None]},
    }


@pytest.fixture
def table(tmp_path: Path) -> Table:
    small = {"lakeformat.parquet.row.group.rows": 50}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="part", **small)
    table.upsert([a_row(key) for key in range(300)])
    return table


CONDITIONS = [
    pc.field("id") == 7,
    pc.field("id") > 1000,
    (pc.field("part") == "b") & (pc.field("n") < 40),
    pc.field("x") > 1,
    pc.field("x") == 0.0,
    pc.is_nan(pc.field("x")),
    ~(pc.field("x") < 1),
    pc.field("v").is_null() | (pc.field("v") == "v3"),
    pc.field("d") >= decimal.Decimal("70.25"),
    pc.field("at") < pa.scalar(datetime(2026, 1, 3, tzinfo=timezone.utc), pa.timestamp("us", "UTC")),
    pc.field("n").isin([1, 2, 299]),
]


def in_order(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_every_reader_gives_the_rows_of_the_condition(condition: pc.Expression, table: Table) -> None:
    scan = table.read()
    assert scan.plain() is not None
    whole = pa.Table.from_pylist([a_row(key) for key in range(300)], scan.schema)
    wanted = in_order(whole.filter(condition))
    dataset = table.to_pyarrow_dataset()
    assert in_order(dataset.to_table(filter=condition)) == wanted
    assert in_order(table.to_arrow(where=condition)) == wanted
    pickled = map(pickle.dumps, dataset.get_fragments(filter=condition))
    parts = [pickle.loads(each) for each in pickled]  # noqa: S301
    names = scan.schema.names
    found = [part.to_table(schema=scan.schema, columns=names, filter=condition) for part in parts]
    assert in_order(pa.concat_tables([scan.schema.empty_table(), *found])) == wanted
    some = ["v", "id"]
    assert in_order(dataset.to_table(columns=some, filter=condition)) == in_order(whole.filter(condition).select(some))


@pytest.mark.parametrize(
    "condition",
    [pl.col("id") == 7, pl.col("x") > 1, pl.col("x").is_nan(), pl.col("v").is_null(), pl.col("n").is_in([1, 299])],
    ids=str,
)
def test_polars_reads_the_files_itself(condition: pl.Expr, table: Table) -> None:
    eager = pl.DataFrame(table.to_arrow()).filter(condition).sort("id")
    lazy = table.read().lazy().filter(condition)
    assert lazy.collect().sort("id").equals(eager)
    assert lazy.select("v").head(2).collect().height == min(2, eager.height)
    assert lazy.select(pl.len()).collect().item() == eager.height
    assert table.read().lazy().join(lazy.select("id"), on="id").collect().sort("id").equals(eager)


def test_meta_columns_and_computed_columns(table: Table) -> None:
    dataset = table.to_pyarrow_dataset(meta_columns=True)
    assert in_order(dataset.to_table()) == in_order(dataset.to_table(columns=dataset.schema.names))
    twice = dataset.to_table(columns={"twice": pc.field("id") * 2}, filter=pc.field("id") < 3)
    assert sorted(twice["twice"].to_pylist()) == [0, 2, 4]
    assert dataset.to_table(columns=[]).num_rows == dataset.count_rows() == 300


def test_files_that_differ_from_the_table_are_not_plain(table: Table, tmp_path: Path) -> None:
    assert table.read(where="id > 3").plain() is None
    assert table.read(limit=3).plain() is None
    table.alter().add("w", "string").execute()
    assert table.read().plain() is None
    assert table.read(["id"]).plain() is not None
    assert table.to_pyarrow_dataset().to_table()["w"].null_count == 300
    table.alter().rename("v", "u").execute()
    assert table.read(["id", "u"]).plain() is None
    assert set(table.to_pyarrow_dataset().to_table(columns=["u"])["u"].to_pylist()) > {"v3", None}

    logged = lakeformat.create(tmp_path / "m", SCHEMA, record_key="id", table_type="MERGE_ON_READ")
    logged.upsert([a_row(1)])
    assert logged.read().plain() is not None
    logged.upsert([a_row(1) | {"v": "new"}])
    assert logged.read().plain() is None
    assert logged.to_pyarrow_dataset().to_table()["v"].to_pylist() == ["new"]


def test_a_missing_file_is_named(table: Table, tmp_path: Path) -> None:
    dataset = table.to_pyarrow_dataset()
    path = table.files()["path"][0].as_py()
    (tmp_path / "t" / path).unlink()
    with pytest.raises(CorruptTableError, match=path):
        dataset.to_table()
