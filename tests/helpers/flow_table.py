"""The small table of the tests that teach the write flow, and what a write leaves on its timeline and on disk.

The table has a record key ``id``, a partition column ``p`` and a value ``v``. Tests write its rows as a dictionary:
``{("x", "a"): 1}`` is the row with partition x, key a and value 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.model.files import BaseFileName
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode
from tests.helpers.tables import NO_PACKING, a_schema, a_table

__all__ = [
    "NO_PACKING",
    "SCHEMA",
    "Held",
    "as_list",
    "base_files",
    "die",
    "new_table",
    "places",
    "position",
    "rows",
    "step_of",
    "stored",
    "timeline_files",
    "timeline_json",
    "traced",
    "write_stats",
    "written",
]

SCHEMA = a_schema(id="string", p="string", v="int64")

#: Rows: (partition, key) -> v.
Held = dict[tuple[str, str], int]


def rows(held: Held) -> pa.Table:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([{"id": key, "p": part, "v": v} for (part, key), v in held.items()], SCHEMA)


def as_list(held: Held) -> list[tuple[str, str, int]]:
    """Return the rows in the form of `stored`."""
    return sorted((part, key, v) for (part, key), v in held.items())


def new_table(folder: Path, held: Held | None = None, **options: Any) -> Table:
    """Create the table in ``folder / "t"``, with one commit that inserts the rows, if there are rows."""
    return a_table(folder / "t", schema=SCHEMA, rows=[rows(held)] if held else (), partition_by="p", **options)


def stored(table: Table) -> list[tuple[str, str, int]]:
    """Return (partition, key, v) of every row, sorted. Fail if hudi-rs and lakeformat read different rows."""
    return sorted((row["p"], row["id"], row["v"]) for row in hudi_rs.assert_same_rows(table))


def places(table: Table) -> dict[str, tuple[str, str]]:
    """Return the location of each record: key -> id of its file group, instant of the commit that wrote it."""
    listed = table.to_arrow(meta_columns=True).to_pylist()
    return {r["id"]: (r["_hoodie_file_name"].split("_")[0], r["_hoodie_commit_time"]) for r in listed}


# --- what a write leaves ------------------------------------------------------------------------------


def step_of(result: Any, step: str) -> dict[str, Any]:
    """Return what the report of a write counts for one of its steps, such as ``tag``."""
    found: dict[str, Any] = next(one for one in result.report["steps"] if one["step"] == step)
    return found


def timeline_files(table: Table) -> list[str]:
    """Return the file names of the active timeline, sorted."""
    folder = Path(table.context.storage.location, ".hoodie")
    return sorted(file.name for file in folder.iterdir() if file.is_file() and file.name[:1].isdigit())


def timeline_json(table: Table, instant: str, suffix: str) -> dict[str, Any]:
    """Return the JSON that a timeline file holds; the suffix is ``.commit``, ``.inflight`` and so on."""
    found: dict[str, Any] = json.loads(Path(table.context.storage.location, ".hoodie", instant + suffix).read_text())
    return found


def write_stats(table: Table, instant: str, suffix: str = ".commit") -> list[dict[str, Any]]:
    """Return the write stats in a timeline file, one for each data file, of all partitions."""
    by_partition = timeline_json(table, instant, suffix)["partitionToWriteStats"]
    return [stat for stats in by_partition.values() for stat in stats]


def base_files(table: Table) -> set[str]:
    """Return the paths of all base files on disk, including those that no commit names."""
    root = Path(table.context.storage.location)
    return {str(file.relative_to(root)) for file in root.rglob("*.parquet") if BaseFileName.match(file.name)}


# --- a write under observation ------------------------------------------------------------------------


def traced(
    table: Table, fault: Fault | None = None, meanwhile: Callable[[Call], object] | None = None, **options: Any
) -> tuple[Table, list[Call]]:
    """Open the table through a storage that records its calls. Return the table and the list of calls.

    Args:
        fault: the call that fails.
        meanwhile: what other processes do, called before each call.
    """
    storage = FaultyStorage(LocalStorage(table.context.storage.location), fault, meanwhile)
    return Table(storage, resolve(options)), storage.calls


def die(table: Table, when: Callable[[Call], bool], write: Callable[[Table], object]) -> None:
    """Run a write that dies after the first call for which ``when`` is true."""
    struck = iter([True])
    fault = Fault(lambda _, call: when(call) and next(struck, False), Mode.AFTER)
    with pytest.raises(Crash):
        write(traced(table, fault)[0])


def written(calls: Iterable[Call]) -> list[str]:
    """Return the paths of the files that the calls create, in order."""
    return [call.path for call in calls if call.name in {"create", "touch", "open_output", "move"}]


def position(paths: list[str], part: str) -> int:
    """Return the position of the first path that contains this part. Fail if there is none."""
    return next(at for at, path in enumerate(paths) if part in path)
