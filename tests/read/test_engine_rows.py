"""Engines get the rows that `where=` gives. The oracle is the table in memory, filtered by Arrow or by the engine."""

from __future__ import annotations

import decimal
import functools
import math
import pickle
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow._dataset import ScanNodeOptions
from pyarrow.acero import Declaration

import lakeformat
from lakeformat import CorruptTableError, InvalidInputError, Table, TableDataset
from lakeformat.read.dataset import PartFragment
from tests.helpers.arrow_filters import EXPRESSIONS, TABLE
from tests.helpers.examples import examples
from tests.helpers.tables import NO_PACKING, a_schema, a_table

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
    whole = pa.Table.from_pylist([a_row(key) for key in range(300)], table.read().schema)
    wanted = in_order(whole.filter(condition))
    dataset = table.to_pyarrow_dataset()
    assert in_order(dataset.to_table(filter=condition)) == wanted
    assert in_order(table.to_arrow(where=condition)) == wanted
    pickled = map(pickle.dumps, dataset.get_fragments(filter=condition))
    parts = [pickle.loads(each) for each in pickled]  # noqa: S301
    names = whole.schema.names
    found = [part.to_table(schema=whole.schema, columns=names, filter=condition) for part in parts]
    assert in_order(pa.concat_tables([whole.schema.empty_table(), *found])) == wanted
    some = ["v", "id"]
    assert in_order(dataset.to_table(columns=some, filter=condition)) == in_order(whole.filter(condition).select(some))


def test_meta_columns_and_computed_columns(table: Table) -> None:
    dataset = table.to_pyarrow_dataset(meta_columns=True)
    assert in_order(dataset.to_table()) == in_order(dataset.to_table(columns=dataset.schema.names))
    twice = dataset.to_table(columns={"twice": pc.field("id") * 2}, filter=pc.field("id") < 3)
    assert sorted(twice["twice"].to_pylist()) == [0, 2, 4]
    assert dataset.to_table(columns=[]).num_rows == dataset.count_rows() == 300


NAMES = [name for name in TABLE.column_names if name != "a.b"]  # Filters on it are refused.
FILTERED = pa.table(
    {"id": range(2 * len(TABLE)), **{name: pa.chunked_array([*TABLE[name].chunks] * 2) for name in NAMES}}
)


@functools.cache
def filtered_table(kind: str) -> Table:
    """Return a table with the rows of `FILTERED` in two files, one of which has a log file if the kind has them."""
    halves = [FILTERED.slice(at, len(TABLE)) for at in (0, len(TABLE))]
    table = a_table(rows=halves, merge_on_read=kind == "merge-on-read", **NO_PACKING)
    table.upsert(halves[0].slice(2, 1))
    return table


def select_row_by_row(condition: pc.Expression) -> list[int]:
    """Return the ids of the rows that a condition selects; it selects no row of which Arrow cannot tell."""
    selected = []
    for row in range(FILTERED.num_rows):
        with suppress(pa.ArrowException):
            selected += FILTERED.slice(row, 1).filter(condition)["id"].to_pylist()
    return sorted(selected)


#: Every way to ask a dataset, in Python and in C++, for the ids of the rows that a filter selects.
WAYS: dict[str, Callable[[Any, pc.Expression], pa.Table]] = {
    "to_table": lambda d, e: d.to_table(filter=e),
    "to_batches": lambda d, e: pa.Table.from_batches(d.to_batches(filter=e), d.schema),
    "scanner": lambda d, e: d.scanner(columns={"id": pc.field("id")}, filter=e).to_reader().read_all(),
    "filter": lambda d, e: d.filter(e).to_table(["id"]),
    "head": lambda d, e: d.head(100, filter=e),
    "fragments": lambda d, e: pa.concat_tables(
        [d.schema.empty_table(), *(each.to_table(filter=e) for each in d.get_fragments(e))]
    ),
    "fragments without a filter": lambda d, e: pa.concat_tables(each.head(100, filter=e) for each in d.get_fragments()),
    "Scanner.from_dataset": lambda d, e: ds.Scanner.from_dataset(d, filter=e).to_table(),
    "UnionDataset": lambda d, e: ds.UnionDataset(d.schema, [d]).to_table(filter=e),
}


@settings(max_examples=examples(40))
@given(st.sampled_from(["copy-on-write", "merge-on-read"]), EXPRESSIONS)
def test_each_way_to_filter_a_dataset_gives_the_rows_of_arrow(kind: str, condition: pc.Expression) -> None:
    table = filtered_table(kind)
    dataset = table.to_pyarrow_dataset()
    try:
        wanted = sorted(FILTERED.filter(condition)["id"].to_pylist())
    except pa.ArrowException:  # Of some rows. A way that reads no such row does not see the error.
        wanted = select_row_by_row(condition)
        for name, way in WAYS.items():
            with suppress(InvalidInputError, pa.ArrowException):
                assert sorted(way(dataset, condition)["id"].to_pylist()) == wanted, name
        return
    found = {name: sorted(way(dataset, condition)["id"].to_pylist()) for name, way in WAYS.items()}
    assert found == dict.fromkeys(WAYS, wanted)
    assert dataset.count_rows(condition) == table.count(condition) == len(wanted)
    assert sum(each.count_rows(filter=condition) for each in dataset.get_fragments()) == len(wanted)


FLOATS_IN_SQL = [
    "{} > 1", "{} >= 0", "{} <> 0", "{} = -0.0", "not ({} <= 0)", "{} < 0", "{} in (0, 2.5)", "{} > 0 or {} is null",
]  # fmt: skip


def ask_duckdb(rows: Any) -> Callable[[str], list[int]]:
    connection = duckdb.connect().register("d", rows)
    return lambda query: [key for (key,) in connection.sql(query).fetchall()]


def ask_datafusion(rows: Any) -> Callable[[str], list[int]]:
    context = datafusion.SessionContext()
    context.register_dataset("d", rows)
    return lambda query: list(pa.table(context.sql(query).to_arrow_table())["id"].to_pylist())


def ask_polars(rows: pl.LazyFrame) -> Callable[[str], list[int]]:
    context = pl.SQLContext(d=rows)
    return lambda query: context.execute(query).collect()["id"].to_list()


def test_engines_select_what_they_select_in_memory() -> None:
    """DuckDB and a lazy frame of polars know what NaN is, as `where` does; others leave the filter to Arrow."""
    table = filtered_table("merge-on-read")
    ours, memory = table.to_pyarrow_dataset(), ds.dataset(FILTERED)
    scans = pl.scan_pyarrow_dataset(ours), pl.scan_pyarrow_dataset(memory)
    pairs = [[ask_duckdb(each) for each in (ours, memory)], [ask_datafusion(each) for each in (ours, memory)]]
    pairs.append([ask_polars(each) for each in scans])
    as_where = [pairs[0][0], ask_polars(table.to_polars(lazy=True))]
    for condition in (form.format(column, column) for form in FLOATS_IN_SQL for column in "xg"):
        query = f"select id from d where {condition} order by id"  # noqa: S608  Our own text.
        for here, there in pairs:
            assert here(query) == there(query), condition
        known = sorted(table.to_arrow(["id"], where=condition)["id"].to_pylist())
        assert [ask(query) for ask in as_where] == [known] * 2, condition


def test_functions_in_cpp_get_all_rows(table: Table) -> None:
    dataset = table.to_pyarrow_dataset()
    whole, keys = table.to_arrow(), ds.InMemoryDataset(pa.table({"id": [1, 5, 999]}))
    asked = {
        "count": lambda: ds.Scanner.from_dataset(dataset).count_rows(),
        "reader": lambda: len(ds.Scanner.from_dataset(dataset).to_reader().read_all()),
        "no column": lambda: len(ds.Scanner.from_dataset(dataset, columns=[]).to_table()),
        "union": lambda: ds.dataset([dataset] * 20).count_rows() // 20,
        "scan node": lambda: len(Declaration("scan", ScanNodeOptions(dataset)).to_table()),
        "children": lambda: sum(len(each.to_table()) for each in dataset.children),
        "sorted": lambda: dataset.sort_by("id").count_rows(),
    }
    assert {name: ask() for name, ask in asked.items()} == dict.fromkeys(asked, 300)
    flat = table.read(["id", "v"]).to_pyarrow_dataset()
    joins = [keys.join(flat, "id", join_type="inner"), flat.join(keys, "id", join_type="inner")]
    assert [sorted(each.to_table()["id"].to_pylist()) for each in joins] == [[1, 5]] * 2
    assert dataset.take([3, 1]) == whole.take([3, 1])
    part = next(dataset.get_fragments())
    assert part.take([3, 1]) == part.to_table().take([3, 1])
    with pytest.raises(InvalidInputError, match="columns of this dataset are those of the table"):
        dataset.replace_schema(keys.schema)


def test_a_dataset_and_its_parts_have_the_methods_of_pyarrow() -> None:
    for ours, theirs in ((TableDataset, ds.Dataset), (PartFragment, ds.Fragment)):
        wanted = {name for name in vars(theirs) if not name.startswith("_")}
        assert wanted <= {name for each in ours.__mro__ for name in vars(each)}


def test_a_missing_file_is_named(table: Table, tmp_path: Path) -> None:
    dataset, lazy = table.to_pyarrow_dataset(), table.to_polars(lazy=True)
    path = table.files()["path"][0].as_py()
    (tmp_path / "t" / path).unlink()
    for read in (dataset.to_table, dataset.scanner().to_reader().read_all, dataset.scanner().count_rows, lazy.collect):
        with pytest.raises(CorruptTableError, match=path):
            read()
    with pytest.raises(CorruptTableError, match=path):
        lazy.select(pl.len()).collect(engine="streaming")
    in_cpp = ds.Scanner.from_dataset(dataset)
    for read in (in_cpp.count_rows, lambda: in_cpp.to_reader().read_all()):
        with pytest.raises(pa.ArrowInvalid, match=r"to_table\(\) of its dataset says why"):
            read()
