"""Engines read a table through `TableDataset`: the rows of a plain read, from few files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lakeformat
from lakeformat import InvalidInputError, Table
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.skipping_tables import SMALL, Reads
from tests.helpers.tables import a_table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())])


def batch(first: int) -> pa.Table:
    """Return twelve rows: some values are null, some are NaN."""
    ids = range(first, first + 12)
    values = [None if n % 5 == 0 else float("nan") if n % 7 == 0 else n / 2 for n in ids]
    return pa.table([[*ids], values, [None if n % 4 == 0 else f"s{n % 3}" for n in ids]], schema=SCHEMA)


@pytest.fixture(params=[False, True], ids=["copy-on-write", "merge-on-read"])
def table(request: pytest.FixtureRequest) -> Table:
    """Return a table of three files. In the merge-on-read table the first has a log file."""
    made = a_table(Reads(), rows=[batch(0), batch(100), batch(200)], merge_on_read=request.param, **SMALL)
    made.upsert(batch(0).slice(0, 2).set_column(2, "s", pa.array(["changed", "changed"])))
    return made


def opened(table: Table, query: Callable[[], Any]) -> set[str]:
    """Return the file groups whose files a query opens."""
    storage = table.context.storage
    assert isinstance(storage, Reads)
    storage.opened.clear()
    query()
    return {path.lstrip(".").partition("_")[0] for path in storage.opened if not path.startswith(".hoodie")}


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


FILTERS = [pc.field("id") > 150, pc.field("s") == "changed", (pc.field("v") < 3) | pc.field("v").is_null()]


@pytest.mark.parametrize("condition", FILTERS, ids=str)
def test_a_dataset_has_the_rows_of_a_read(table: Table, condition: pc.Expression) -> None:
    dataset = table.to_pyarrow_dataset()
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema == table.read().schema
    memory = ds.dataset(table.to_arrow())
    for columns in (None, ["s", "id"], {"id": pc.field("id"), "twice": pc.field("v") * 2}):
        ours, theirs = (each.to_table(columns=columns, filter=condition) for each in (dataset, memory))
        assert str(in_order(ours)) == str(in_order(theirs))
    assert dataset.count_rows(condition) == dataset.count_rows(filter=condition) == memory.count_rows(condition)
    assert dataset.filter(condition).count_rows() == memory.count_rows(condition)
    assert dataset.count_rows() == len(table)
    assert dataset.head(5).num_rows == 5


def test_fragments_are_the_parts_with_a_match_and_can_be_pickled(table: Table) -> None:
    dataset = table.to_pyarrow_dataset()
    condition = pc.field("id") > 150
    fragments = list(dataset.get_fragments(condition))
    assert opened(table, lambda: [each.to_table() for each in fragments]) < opened(table, dataset.to_table)
    found = pa.concat_tables([each.to_table(columns=["id"]) for each in fragments])
    assert sorted(found["id"].to_pylist()) == list(range(200, 212))
    assert sum(each.count_rows() for each in dataset.get_fragments()) == len(table)


def test_parts_are_read_in_another_process_by_pickle(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=[batch(0), batch(100)], **SMALL)
    parts = pickle.loads(pickle.dumps(table.read(["id"], where="v > 1").parts()))  # noqa: S301  Our own bytes.
    rows = pa.concat_tables([lakeformat.read_part(part).read_all() for part in parts])
    assert rows.sort_by("id") == table.to_arrow(["id"], where="v > 1").sort_by("id")
    assert sum(part.size_bytes for part in parts) > 0
    assert all(part.paths and part.schema == rows.schema for part in parts)
    with pytest.raises(InvalidInputError, match="limit="):
        table.read(limit=3).parts()
    with pytest.raises(InvalidInputError, match="get_fragments"):
        pickle.dumps(table.to_pyarrow_dataset())


def test_a_part_has_its_number_of_rows_if_that_is_known_without_reading(table: Table) -> None:
    whole, cut = (table.options.with_values(**{"lakeformat.read.split.bytes": size}) for size in (128 << 20, 1000))
    for options in (whole, cut):
        parts = Table(table.context.storage, options).read().parts()
        counts = [lakeformat.read_part(part).read_all().num_rows for part in parts]
        has_logs = [any(path in logged(table) for path in part.paths) for part in parts]
        assert [part.rows for part in parts] == [None if logs else n for logs, n in zip(has_logs, counts, strict=True)]
        assert sum(counts) == len(table)
    assert [part.rows for part in table.read(where="id > 150").parts()] == [None]


def logged(table: Table) -> set[str]:
    """Return the base files of the slices with log files."""
    return {file["path"] for file in table.files().to_pylist() if file["log_files"]}


QUERY = "id >= 200 and s = 's1'"
FOUND = [n for n in range(200, 212) if n % 3 == 1 and n % 4]


def test_duckdb_asks_for_columns_and_filters(table: Table) -> None:
    rows = table.to_pyarrow_dataset()  # DuckDB finds it by the name of the variable.
    assert duckdb.sql("select count(*), sum(id) from rows").fetchall() == [
        (36, sum(table.to_arrow()["id"].to_pylist()))
    ]
    connection = duckdb.connect().register("t", rows)
    query = f"select id from t where {QUERY} order by id"  # noqa: S608  Our own text.
    assert connection.sql(query).fetchall() == [(n,) for n in FOUND]
    assert opened(table, lambda: connection.sql(query).fetchall()) == opened(table, lambda: table.count(QUERY))
    assert len(opened(table, lambda: connection.sql("select * from t").fetchall())) == 3
    assert sorted(connection.from_arrow(rows).filter("id < 3").project("id").fetchall()) == [(0,), (1,), (2,)]


def test_datafusion_asks_for_columns_and_filters(table: Table) -> None:
    context = datafusion.SessionContext()
    context.register_dataset("t", table.to_pyarrow_dataset())
    query = f"select id from t where {QUERY} order by id"  # noqa: S608  Our own text.
    assert pa.table(context.sql(query).to_arrow_table())["id"].to_pylist() == FOUND
    assert opened(table, lambda: context.sql(query).collect()) == opened(table, lambda: table.count(QUERY))
    assert context.sql("select count(*) as n from t").to_pydict() == {"n": [36]}


NAN = float("nan")
POLARS = [
    pl.col("id") > 150,
    pl.lit(150) < pl.col("id"),
    (pl.col("id") >= 200) & (pl.col("s") == "s1"),
    (pl.col("id") < 5) | (pl.col("s") == "changed"),
    pl.col("s").is_in(["s1", "changed"]),
    pl.col("id").is_between(100, 103, closed="left"),
    pl.col("s").is_null() & pl.col("v").is_not_null(),
    pl.col("v") > 50,
    pl.col("v") < 50,
    pl.col("v") == pl.lit(NAN),
    pl.col("v") >= 50,
    ~(pl.col("v") < 50),
    pl.col("s").str.ends_with("1"),
    pl.col("id") + 1 > 205,
]


@pytest.mark.parametrize("condition", POLARS, ids=str)
def test_a_lazy_polars_frame_has_the_rows_of_a_whole_one(table: Table, condition: pl.Expr) -> None:
    lazy, whole = table.to_polars(lazy=True), table.to_polars()
    for names_of in (["id", "v", "s"], ["s"], ["v", "id"]):
        found = lazy.filter(condition).select(names_of).collect()
        assert sorted(map(str, found.rows())) == sorted(map(str, whole.filter(condition).select(names_of).rows()))


def test_a_lazy_polars_frame_reads_what_it_needs(table: Table) -> None:
    lazy = table.read().lazy()
    for condition in (pl.col("id") > 150, pl.col("id").is_in([201, 202]), pl.col("id").is_between(200, 205)):
        found = opened(table, lambda c=condition: lazy.filter(c).collect())
        assert found == opened(table, lambda: table.count("id > 150"))
    assert lazy.head(3).collect().height == 3
    assert lazy.select(pl.len()).collect().item() == 36
    grouped = lazy.group_by("s").agg(pl.len()).collect(engine="streaming")
    assert dict(grouped.rows()) == dict(table.to_polars().group_by("s").agg(pl.len()).rows())
    assert pl.scan_pyarrow_dataset(table.to_pyarrow_dataset()).filter(pl.col("id") < 3).collect().height == 3
    with pytest.raises(InvalidInputError, match="limit="):
        table.to_polars(lazy=True, limit=3)


@pytest.mark.parametrize("name", names("hudi_metadata"))
def test_tables_of_hudi_are_read_alike_by_all_engines(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    whole = lakeformat.open(path).to_arrow()
    rows = lakeformat.open(path).to_pyarrow_dataset()
    key = whole.schema.names[0]
    assert rows.to_table().sort_by(key) == whole.sort_by(key)
    assert duckdb.sql("select count(*) from rows").fetchall() == [(len(whole),)]
    lazy = lakeformat.scan(path).lazy().collect()
    assert lazy.sort(key).equals(pl.DataFrame(whole).sort(key))


def test_scan_takes_the_arguments_of_open_and_read(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=[batch(0), batch(100)], **SMALL)
    first = table.history()[-1].instant_time
    scan = lakeformat.scan(tmp_path / "t", ["id"], where="id < 3", as_of=first)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert lakeformat.scan(tmp_path / "t").count() == 24
