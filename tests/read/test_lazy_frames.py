"""Lazy polars frames: the rows of an eager frame, for every state of a table, query and engine of polars."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from tests.helpers.arrow_filters import TABLE
from tests.helpers.tables import NO_PACKING, a_batch, a_table

ROWS = pa.table(
    {
        "id": range(len(TABLE)),
        "p": list("aabbcc"),
        **{name: TABLE[name] for name in TABLE.column_names if name != "a.b"},
    }
)


def written(table: Table) -> Table:
    table.insert(ROWS)
    return table


def emptied(table: Table) -> Table:
    written(table).delete(where="id >= 0")
    return table


def updated(table: Table) -> Table:
    written(table).upsert(ROWS.slice(1, 1))
    return table


def widened(table: Table) -> Table:
    """Add a column between two files, so that the first file lacks it."""
    rows = ROWS.slice(0, 1).set_column(0, "id", pa.array([9])).set_column(1, "p", pa.array(["d"]))
    written(table).upsert(rows.append_column("more", pa.array(["new"])))
    return table


#: What happened to a table before it is read.
STATES: dict[str, Callable[[Table], Table]] = {
    "no commit": lambda table: table,
    "rows": written,
    "all rows deleted": emptied,
    "an update": updated,
    "a column added": widened,
}
#: Queries of one lazy frame.
QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "all": lambda f: f.sort("id"),
    "no file has a match": lambda f: f.filter(pl.col("id") > 100),
    "one column": lambda f: f.select("t").sort("t"),
    "filter by a column that is not selected": lambda f: f.filter(pl.col("l") > 0).select("id").sort("id"),
    "row index alone": lambda f: f.with_row_index().select("index"),
    "a range of the length": lambda f: f.select(pl.int_range(pl.len())),
    "length": lambda f: f.select(pl.len()),
    "length after a filter": lambda f: f.filter(pl.col("id") >= 3).select(pl.len()),
    "length of some rows": lambda f: f.head(2).select(pl.len()),
    "a constant for each row": lambda f: f.with_columns(c=pl.lit(5)).select("c"),
    "nothing left": lambda f: f.filter(pl.lit(False)).select("id"),
    "is in, with null": lambda f: f.filter(pl.col("t").is_in(["a", None], nulls_equal=True)).select("id").sort("id"),
    "is in, without": lambda f: f.filter(~pl.col("t").is_in(["a", "b%"])).select("id").sort("id"),
    "floats": lambda f: f.filter((pl.col("x") > 0) | (pl.col("g") == -0.0)).select("id", "x", "g").sort("id"),
    "NaN": lambda f: f.filter(pl.col("x") == pl.lit(math.nan)).select("id"),
    "field of a struct": lambda f: f.filter(pl.col("s").struct.field("a") > 1).select("id", "s").sort("id"),
    "join with nothing": lambda f: f.filter(pl.col("id") > 100).join(f, on="id"),
    "join with itself": lambda f: f.filter(pl.col("id") > 2).join(f.select("id", again="t"), on="id").sort("id"),
    "concat": lambda f: pl.concat([f.filter(pl.col("p") == "a"), f.filter(pl.col("p") == "c")]).sort("id"),
    "concat of lengths": lambda f: pl.concat([f.select(pl.len()), f.head(1).select(pl.len())]),
    "groups": lambda f: f.group_by("p").agg(pl.len(), pl.col("x").max()).sort("p"),
    "SQL": lambda f: pl.SQLContext(f=f).execute("select p, count(*) n from f where id <> 2 group by p order by p"),
    "last rows": lambda f: f.sort("id").tail(2),
    "other names": lambda f: f.rename({"id": "key"}).filter(pl.col("key") < 2).select("key").sort("key"),
}


@pytest.mark.parametrize("kind", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("state", STATES)
def test_a_lazy_frame_gives_what_an_eager_one_gives(state: str, kind: str) -> None:
    empty = a_table(schema=ROWS.schema, partition_by="p", merge_on_read=kind == "merge-on-read", **NO_PACKING)
    table = STATES[state](empty)
    lazy, eager = table.to_polars(lazy=True), table.to_polars().lazy()
    assert lazy.collect_schema() == eager.collect_schema()
    for name, query in QUERIES.items():
        wanted = query(eager).collect()
        for engine in ("in-memory", "streaming"):
            assert query(lazy).collect(engine=engine).equals(wanted), (name, engine)
        if not name.startswith(("join", "concat")):  # Their branches are shared, which the old engine did not stream.
            assert pl.concat([wanted.clear(), *query(lazy).collect_batches()]).equals(wanted), name


def test_frames_of_two_tables_and_of_one_version_are_joined(tmp_path: Path) -> None:
    here = a_table(tmp_path / "a", rows=[a_batch(id=[1, 2], v="x"), a_batch(id=[3], v="y")])
    there = a_table(tmp_path / "b", rows=a_batch(id=[2, 3], w=[5, 6]))
    found = here.to_polars(lazy=True).join(there.to_polars(lazy=True), on="id").sort("id").collect()
    assert found.rows() == [(2, "x", 5), (3, "y", 6)]
    first = here.history()[-1].instant_time
    assert lakeformat.scan(tmp_path / "a", as_of=first).lazy().select(pl.len()).collect().item() == 2


def test_an_error_in_a_filter_reaches_the_user(tmp_path: Path) -> None:
    lazy = a_table(tmp_path / "t", rows=a_batch(id=[1], v="x")).to_polars(lazy=True)
    bad: list[tuple[Any, str]] = [
        (pl.col("nope") > 1, "nope"),
        (pl.col("v") > 1, "string"),
        (pl.col("v").cast(pl.Int64) > 1, "conversion"),
    ]
    for condition, text in bad:
        for engine in ("in-memory", "streaming"):
            with pytest.raises(pl.exceptions.PolarsError, match=text):
                lazy.filter(condition).collect(engine=engine)
