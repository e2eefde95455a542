"""A small partitioned table, and what a write leaves on its timeline and disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.model.files import BaseFileName
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode

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
    "stored",
    "timeline_files",
    "timeline_json",
    "traced",
    "written",
]

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
#: Nothing counts as small: each insert opens a file.
NO_PACKING: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0}

Held = dict[tuple[str, str], int]  # (partition, key) -> v


def rows(held: Held) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": part, "v": v} for (part, key), v in held.items()], SCHEMA)


def new_table(folder: Path, held: Held | None = None, **options: Any) -> Table:
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", **options)
    if held:
        table.insert(rows(held))
    return table


def stored(table: Table) -> list[tuple[str, str, int]]:
    """What hudi-rs and we read, sorted."""
    return sorted((row["p"], row["id"], row["v"]) for row in hudi_rs.assert_same_rows(table))


def as_list(held: Held) -> list[tuple[str, str, int]]:
    return sorted((part, key, v) for (part, key), v in held.items())


def places(table: Table) -> dict[str, tuple[str, str]]:
    """Key -> file id and instant of its commit."""
    listed = table.to_arrow(meta_columns=True).to_pylist()
    return {r["id"]: (r["_hoodie_file_name"].split("_")[0], r["_hoodie_commit_time"]) for r in listed}


def timeline_files(table: Table) -> list[str]:
    folder = Path(table.engine.storage.location, ".hoodie")
    return sorted(file.name for file in folder.iterdir() if file.is_file() and file.name[:1].isdigit())


def timeline_json(table: Table, instant: str, suffix: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(table.engine.storage.location, ".hoodie", instant + suffix).read_text())
    return found


def base_files(table: Table) -> set[str]:
    """Every base file on disk, whatever the timeline says of it."""
    root = Path(table.engine.storage.location)
    return {str(file.relative_to(root)) for file in root.rglob("*.parquet") if BaseFileName.match(file.name)}


def traced(
    table: Table, fault: Fault | None = None, meanwhile: Callable[[Call], object] | None = None, **options: Any
) -> tuple[Table, list[Call]]:
    """The table through a storage that records its calls, and may fail or let others in."""
    storage = FaultyStorage(LocalStorage(table.engine.storage.location), fault, meanwhile)
    return Table(storage, resolve(options)), storage.calls


def die(table: Table, when: Callable[[Call], bool], write: Callable[[Table], object]) -> None:
    """Run a write that dies after the first such call."""
    struck = iter([True])
    fault = Fault(lambda _, call: when(call) and next(struck, False), Mode.AFTER)
    with pytest.raises(Crash):
        write(traced(table, fault)[0])


def written(calls: Iterable[Call]) -> list[str]:
    """Paths that were made, in order."""
    return [call.path for call in calls if call.name in {"create", "touch", "open_output", "move"}]


def position(paths: list[str], part: str) -> int:
    """Of the first path with this part; fails if there is none."""
    return next(at for at, path in enumerate(paths) if part in path)
