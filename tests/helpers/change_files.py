"""Change data files, read by fastavro as Hudi's format defines them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro

import lakeformat
from tests.helpers.log_blocks import CDC, INSTANT_TIME, SCHEMA, split_blocks

__all__ = ["read_logged_changes"]


def _records(file: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for kind, header, content in split_blocks(file.read_bytes()):
        assert (kind, header.keys()) == (CDC, {INSTANT_TIME, SCHEMA})
        schema = json.loads(header[SCHEMA])
        parsed = fastavro.parse_schema(schema)
        source = io.BytesIO(content)
        version, count = struct.unpack(">ii", source.read(8))
        assert version == 3
        for _ in range(count):
            (length,) = struct.unpack(">i", source.read(4))
            record = fastavro.schemaless_reader(io.BytesIO(source.read(length)), parsed)
            yield header[INSTANT_TIME], schema["name"], record
        assert source.read() == b""


def read_logged_changes(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return instant, Avro name and record of each change in the files that the commits of a table name.

    Check that the table has no other such files, and that their sizes are those in the commits.
    """
    table = lakeformat.open(folder)
    named: dict[str, int] = {}
    for instant in table.snapshot().timeline.commits:
        for stat in table.context.store.read_commit(instant).all_stats():
            named |= dict(stat.cdc_stats)
    assert named == {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*.cdc")}
    return [record for path in sorted(named) for record in _records(folder / path)]
