"""The small table of the seed pages, and what a write leaves on its timeline and on disk.

The table has a record key ``id``, a partition column ``p`` and a value ``v``. Tests write its rows as a dictionary:
``{("x", "a"): 1}`` is the row with partition x, key a and value 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fastavro
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
    "VERSIONS",
    "Held",
    "as_list",
    "base_files",
    "die",
    "failing",
    "new_table",
    "places",
    "position",
    "rows",
    "short",
    "step_of",
    "stored",
    "timeline_content",
    "timeline_files",
    "traced",
    "write_stats",
    "written",
]

#: Table version, folder of the timeline, and the name of a completed action up to its dot, as `short` writes it.
VERSIONS = [(6, ".hoodie", "T"), (8, ".hoodie/timeline", "T_C"), (9, ".hoodie/timeline", "T_C")]

SCHEMA = a_schema(id="string", p="string", v="int64")

#: Rows: (partition, key) -> v, which may be null.
Held = dict[tuple[str, str], int | None]


def rows(held: Held) -> pa.Table:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([{"id": key, "p": part, "v": v} for (part, key), v in held.items()], SCHEMA)


def as_list(held: Held) -> list[tuple[str, str, int | None]]:
    """Return the rows in the form of `stored`."""
    return sorted((part, key, v) for (part, key), v in held.items())


def new_table(folder: Path, held: Held | None = None, **options: Any) -> Table:
    """Create the table in ``folder / "t"``, with one commit that inserts the rows, if there are rows.

    The options are those of `a_table`, such as ``version=8`` for the table version; by default it is 6.
    """
    return a_table(folder / "t", schema=SCHEMA, rows=[rows(held)] if held else (), partition_by="p", **options)


def stored(table: Table) -> list[tuple[str, str, int | None]]:
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


def _timeline_folder(table: Table) -> Path:
    """Return the folder of the active timeline: ``.hoodie`` in version 6, ``.hoodie/timeline`` in versions 8 and 9."""
    hoodie = Path(table.context.storage.location, ".hoodie")
    return hoodie / "timeline" if (hoodie / "timeline").is_dir() else hoodie


def timeline_files(table: Table) -> list[str]:
    """Return the file names of the active timeline, sorted."""
    return sorted(file.name for file in _timeline_folder(table).iterdir() if file.is_file() and file.name[:1].isdigit())


def timeline_content(table: Table, instant: str, suffix: str) -> dict[str, Any]:
    """Return what a timeline file says: JSON in version 6, Avro in versions 8 and 9.

    Args:
        suffix: the end of the file's name, such as ``.commit`` or ``.inflight``.
    """
    (name,) = [name for name in timeline_files(table) if name.startswith(instant) and name.endswith(suffix)]
    path = _timeline_folder(table) / name
    if path.parent.name == ".hoodie":
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    with path.open("rb") as file:
        (record,) = fastavro.reader(file)
    return record  # type: ignore[return-value]


def write_stats(table: Table, instant: str, suffix: str = ".commit") -> list[dict[str, Any]]:
    """Return the write stats in a timeline file, one for each data file, of all partitions."""
    by_partition = timeline_content(table, instant, suffix)["partitionToWriteStats"]
    return [stat for stats in by_partition.values() for stat in stats]


def base_files(table: Table) -> set[str]:
    """Return the paths of all base files on disk, including those that no commit names."""
    root = Path(table.context.storage.location)
    return {str(file.relative_to(root)) for file in root.rglob("*.parquet") if BaseFileName.match(file.name)}


def short(path: str, **times: str) -> str:
    """Return a path or file name with letters in the place of times and ids, which differ from run to run.

    G is the id of a file group and W a write token. Each of the times becomes the name of its argument: ``T=instant``
    writes T for this instant. C is any other time: in the name of a completed action, its completion time.
    """
    for letter, time in times.items():
        path = path.replace(time, letter)
    path = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+", "G", path)
    path = re.sub(r"_\d+-\d+-\d+", "_W", path)
    return re.sub(r"\d{17}", "C", path)


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


def die(table: Table, at: str, write: Callable[[Table], object]) -> None:
    """Run a write in a process that dies directly after its first call to storage of this name.

    The call itself is done: ``at="open_output"`` dies when the first data file is written.
    """
    struck = iter([True])
    fault = Fault(lambda _, call: call.name == at and next(struck, False), Mode.AFTER)
    with pytest.raises(Crash):
        write(traced(table, fault)[0])


def failing(table: Table, at: str) -> Table:
    """Open the table through a storage whose calls of this name report an error when half of their work is done."""
    return traced(table, Fault(lambda _, call: call.name == at, Mode.TORN, kills=False))[0]


def written(calls: Iterable[Call]) -> list[str]:
    """Return the paths of the files that the calls create, in order."""
    return [call.path for call in calls if call.name in {"create", "touch", "open_output", "move"}]


def position(paths: list[str], part: str) -> int:
    """Return the position of the first path that contains this part. Fail if there is none."""
    return next(at for at, path in enumerate(paths) if part in path)
