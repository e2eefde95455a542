"""The rows of the benchmark: TPC-H ``lineitem`` from tpchgen, split into a table and batches of changes.

The key is TPC-H's own, (``l_orderkey``, ``l_linenumber``). Two orders of rows and keys are the
extremes of real tables:

- ``time``: rows lie in the order of ``l_shipdate``, as a table that grows by the day keeps them. The key follows that
  order, as numbers from a sequence do: row number n gets the order n / 4 + 1 and the line n % 4 + 1 (an order of TPC-H
  has four lines on average). New rows have the next keys and dates. Updates and deletes by key concern rows anywhere
  in the newest tenth of the table, as late corrections do.
- ``random``: rows lie in no order, and keep TPC-H's keys, which then are random, as UUIDs are. Updates and deletes by
  key concern rows anywhere. No writer can leave a row group out, not even in a delete by date.

The table begins with 90 % of the rows; inserts and appends come from the rest. All shares are of the table's rows. A
choice among rows is made by a hash of their number, so that it does not depend on the run. No row of a batch lies in
the days that the steps delete.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.lineitem.steps import KEY_COLUMNS, STEPS, Step

__all__ = ["BATCHES", "GENERATOR", "Data", "prepare"]

#: Each batch: where the rows of its inserts begin and end after the base, its updates, its deletes; 1/1000 of the base.
BATCHES: Final = {
    "append": ((10, 60), 0, 0),
    "merge1": ((0, 5), 5, 0),
    "merge5": ((0, 0), 50, 0),
    "cdc": ((5, 9), 4, 2),
}
#: The program of the package tpchgen-cli.
GENERATOR: Final = Path(sys.executable).with_name("tpchgen-cli")
_GROUP_ROWS: Final = 122_880
_ORDERS: Final = {
    "time": "l_shipdate, l_orderkey, l_linenumber",
    "random": "hash(l_orderkey, l_linenumber), l_orderkey, l_linenumber",
}
_NEW_KEYS: Final = {
    "time": "replace (n // 4 + 1 as l_orderkey, (n % 4 + 1)::integer as l_linenumber)",
    "random": "",
}
_CHANGED: Final = (
    "replace ((l_extendedprice + 1)::decimal(15, 2) as l_extendedprice, 'changed: ' || l_comment[:34] as l_comment)"
)
_CONTENT: Final = "select count(*), sum(l_extendedprice * 100)::hugeint, sum(l_orderkey)::hugeint from"


@dataclass(frozen=True, slots=True)
class Data:
    """The files of one scale and one order of keys."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return the Parquet file ``base`` or that of a batch."""
        return self.folder / f"{name}.parquet"

    def expected(self) -> dict[str, list[int]]:
        """Return the content that a table must have after each step, see `LineitemEngine.content`."""
        return dict(json.loads((self.folder / "expected.json").read_text()))


def prepare(root: Path, scale: float, keys: str) -> Data:
    """Make the files if they are missing."""
    folder = root / f"scale-{scale:g}" / keys
    data = Data(folder)
    if not (folder / "expected.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _make(data, _generate(folder.parent, scale), keys)
    return data


def _generate(folder: Path, scale: float) -> Path:
    made = folder / "lineitem.parquet"
    if not made.exists():
        part = folder / "made"
        command = [GENERATOR, "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem", "--output-dir", part]
        subprocess.run([*map(str, command), "--quiet"], check=True)
        (part / "lineitem.parquet").rename(made)
        part.rmdir()
    return made


def _make(data: Data, source: Path, keys: str) -> None:
    import duckdb

    with duckdb.connect(str(data.folder / "making.duckdb")) as database:
        ordered = f"select *, row_number() over (order by {_ORDERS[keys]}) - 1 as n from '{source}'"
        database.execute(f"create table numbered as select * {_NEW_KEYS[keys]} from ({ordered})")
        count = database.execute("select count(*) from numbered").fetchone()
        base = (count[0] if count else 0) * 9 // 10
        rows = f"select * exclude (n) from numbered where n < {base} order by n"
        _write(database, data.file("base"), rows)
        for name in BATCHES:
            _write(database, data.file(name), _batch(name, base, base * 9 // 10 if keys == "time" else 0))
        contents = _contents(database, data)
    (data.folder / "making.duckdb").unlink()
    (data.folder / "expected.json").write_text(json.dumps(contents))


def _batch(name: str, base: int, oldest: int) -> str:
    """Return the query of a batch's rows. Changed rows are numbers ``oldest`` and up, and not in the deleted days."""
    (first, end), updates, deletes = BATCHES[name]
    kept = " and ".join(f"not ({step.condition()})" for step in STEPS if step.days)
    changed = base * updates // 1000
    op = name == "cdc"
    return f"""
        with old as (
            select *, row_number() over (order by hash(n, '{name}')) as place
            from numbered where n >= {oldest} and n < {base} and {kept}
        ), changes as (
            select * exclude (place) {_CHANGED}, 'U' as op from old where place <= {changed}
            union all select * exclude (place), 'D' from old
            where place > {changed} and place <= {changed + base * deletes // 1000}
            union all select *, 'I' from numbered
            where n >= {base + base * first // 1000} and n < {base + base * end // 1000}
        )
        select * exclude (n{"" if op else ", op"}) from changes order by {"n" if name == "append" else "hash(n, 0)"}"""


def _contents(database: Any, data: Data) -> dict[str, list[int]]:
    """Carry the steps out in DuckDB, on the columns that the content needs."""
    columns = f"{', '.join(KEY_COLUMNS)}, l_shipdate, l_extendedprice"
    found = {}
    for step in STEPS:
        for statement in _statements(step, data, columns):
            database.execute(statement)
        row = database.execute(f"{_CONTENT} content").fetchone()
        found[step.name] = [int(value) for value in row]
    return found


def _statements(step: Step, data: Data, columns: str) -> list[str]:
    source = f"'{data.file(step.rows)}'"
    removed = (
        f"delete from content where ({', '.join(KEY_COLUMNS)}) in (select ({', '.join(KEY_COLUMNS)}) from {source})"
    )
    added = f"insert into content select {columns} from {source}"
    match step.method:
        case "delete":
            return [f"delete from content where {step.condition()}"]
        case "load" | "overwrite":
            return [f"create or replace table content as select {columns} from {source}"]
        case "append":
            return [added]
        case "merge":
            return [removed, added]
        case _:
            return [removed, f"{added} where op <> 'D'"]


def _write(database: Any, file: Path, query: str) -> None:
    """Write the rows of a query in their order. All columns are nullable, as DuckDB's Arrow columns are."""
    import pyarrow.parquet as pq

    reader = database.cursor().sql(query).to_arrow_reader(_GROUP_ROWS)
    with pq.ParquetWriter(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
