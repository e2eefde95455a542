"""The check of a refusal: the right class, one line that names the cause, and an unchanged table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import LakeformatError, Table
from lakeformat.file_system_view.file_groups import list_base_files
from tests.helpers.tables import a_schema

__all__ = ["ROWS", "SCHEMA", "check_message", "check_refused", "new_table", "tree"]

SCHEMA = a_schema(id="string", n="int32", ts="int64", p="string", v="float64")
ROWS = pa.table({"id": ["a", "b"], "n": [1, 2], "ts": [1, 1], "p": ["x", "y"], "v": [0.5, 1.5]}, schema=SCHEMA)


def new_table(folder: Path, schema: pa.Schema = SCHEMA, rows: pa.Table | None = ROWS, **options: Any) -> Table:
    """Create a table with two rows in two partitions."""
    settings = {"record_key": "id", "partition_by": "p", "ordering": "ts", **options}
    table = lakeformat.create(folder / "table", schema, **settings)
    if rows is not None:
        table.upsert(rows)
    return table


def check_message(caught: pytest.ExceptionInfo[LakeformatError], error: type[LakeformatError], *parts: str) -> str:
    """Check that the error is of exactly this class and that its one line has all these parts. Return the line."""
    assert type(caught.value) is error
    message = str(caught.value)
    assert "\n" not in message
    assert message == message.strip()
    for part in parts:
        assert part in message
    return message


def state(table: Table) -> tuple[Any, ...]:
    """Return everything that a refused write must not change. A rollback of the refused write may be added."""
    store = table.context.store
    timeline = store.load()
    files = [file.path for file in list_base_files(table.context.storage)]
    return timeline.commits, timeline.pending, files, table.schema, table.to_arrow().to_pylist()


@contextmanager
def check_refused(table: Table, error: type[LakeformatError], *parts: str) -> Iterator[None]:
    """Check that the block is refused with this error and these words, and that it leaves nothing behind."""
    before = state(table)
    with pytest.raises(LakeformatError) as caught:
        yield
    check_message(caught, error, *parts)
    assert state(table) == before
    table.upsert(table.to_arrow(meta_columns=False).slice(0, 1))  # The table takes writes as before.


def tree(folder: Path) -> dict[str, bytes]:
    """Return path and bytes of every file, except those below ``.lakeformat`` and rollbacks."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and ".lakeformat/" not in name and ".rollback" not in name:
            found[name] = path.read_bytes()
    return found
