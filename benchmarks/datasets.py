"""``python -m benchmarks.datasets``: engines over our dataset, over plain Parquet files and over delta-rs' dataset.

The same rows are in a table of ours, in Parquet files of the same sizes and row groups, and in a Delta table. DuckDB,
DataFusion and polars read all rows, two columns, and the row of one value of the column by which the rows are sorted.
Each cell is the fastest of three runs, the opening of the table included. ``--rows`` changes the size.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakeformat
from benchmarks.peers_setup import ROOT
from benchmarks.results import machine

__all__ = ["main"]

WORK: Final = ROOT / ".work" / "datasets"
_ALL: Final = "select count(*), sum(id), sum(x), sum(y), max(s), max(t), sum(f0), sum(f1), sum(f2), sum(f3) from d"
_TWO: Final = "select sum(x), sum(f0) from d"
_RUNS: Final = 3


def make_rows(count: int) -> pa.Table:
    """Return rows of ten columns, sorted by ``x``."""
    random = np.random.default_rng(1)
    columns = {name: random.integers(0, 1 << 30, count) for name in ("x", "y")}
    texts = {"s": [f"name {at % 5000}" for at in range(count)], "t": [f"text {at}" for at in columns["y"].tolist()]}
    numbers = {f"f{at}": random.random(count) for at in range(4)}
    return pa.table({"id": np.arange(count), **columns, **texts, **numbers}).sort_by("x")


def make_tables(count: int) -> int:
    """Write the rows three times, and return a value of the sorted column."""
    import deltalake

    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "plain").mkdir(parents=True)
    rows = make_rows(count)
    table = lakeformat.create(WORK / "ours", rows.schema, record_key="id", **{"hoodie.parquet.max.file.size": 32 << 20})
    table.bulk_insert(rows, sort_columns=["x"])
    for at, path in enumerate(table.files()["path"].to_pylist()):
        part = pq.read_table(WORK / "ours" / path, columns=rows.schema.names)
        pq.write_table(part, WORK / "plain" / f"{at}.parquet", row_group_size=131_072, compression="zstd")
    deltalake.write_deltalake(str(WORK / "delta"), rows)
    return int(rows["x"][count // 2].as_py())


def our_dataset() -> Any:
    """Return our table as a dataset."""
    return lakeformat.open(WORK / "ours").to_pyarrow_dataset()


def plain_files() -> Any:
    """Return the Parquet files as a dataset."""
    return ds.dataset(WORK / "plain")


def delta_dataset() -> Any:
    """Return the Delta table as a dataset."""
    import deltalake

    return deltalake.DeltaTable(str(WORK / "delta")).to_pyarrow_dataset()


def run_duckdb(open_dataset: Callable[[], Any], query: str) -> None:
    """Run a query over a dataset in DuckDB."""
    import duckdb

    connection = duckdb.connect()
    connection.register("d", open_dataset())
    connection.sql(query).fetchall()


def run_datafusion(open_dataset: Callable[[], Any], query: str) -> None:
    """Run a query over a dataset in DataFusion."""
    import datafusion

    context = datafusion.SessionContext()
    context.register_dataset("d", open_dataset())
    context.sql(query).collect()


def run_polars(open_dataset: Callable[[], Any], query: str) -> None:
    """Run a query over a dataset in polars; over our table by its own lazy frame."""
    import polars as pl

    if open_dataset is our_dataset:
        frame = lakeformat.scan(WORK / "ours").lazy()
    else:
        frame = pl.scan_pyarrow_dataset(open_dataset())
    pl.SQLContext(d=frame).execute(query.replace("count(*)", "count(id)")).collect()


ENGINES: Final = {"DuckDB": run_duckdb, "DataFusion": run_datafusion, "polars": run_polars}
SOURCES: Final = {"lakeformat": our_dataset, "plain Parquet": plain_files, "delta-rs": delta_dataset}


def fastest(run: Callable[[], None]) -> float:
    """Return the seconds of the fastest run."""
    seconds = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> int:
    """Print a table of seconds, and our ratio to the plain files in brackets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.datasets")
    parser.add_argument("--rows", type=int, default=4_000_000)
    rows = parser.parse_args().rows
    value = make_tables(rows)
    queries = {"all rows": _ALL, "two columns": _TWO, "one row": f"select * from d where x = {value}"}  # noqa: S608
    print(f"{rows:,} rows; measured on {machine()}\n")
    print(f"| seconds | {' | '.join(SOURCES)} |\n| --- |{' ---: |' * len(SOURCES)}")
    for engine, run in ENGINES.items():
        for name, query in queries.items():
            ours, plain, delta = (fastest(partial(run, source, query)) for source in SOURCES.values())
            print(f"| {engine}, {name} | {ours:.3f} ({ours / plain:.2f}x) | {plain:.3f} | {delta:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
