"""A table at a glance: what it is, how large, and its columns. No data file is opened."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from lakeformat.codec.conform import read_schema
from lakeformat.codec.html import html_pairs, html_rows
from lakeformat.errors import LakeformatError
from lakeformat.read.known_files import known_files
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["overview", "overview_html"]


def overview(engine: Engine, snapshot: Snapshot) -> dict[str, Any]:
    """What there is to say of a table, by name, ready for JSON; ``rows`` is None where only footers could tell."""
    config = snapshot.config
    files = known_files(snapshot)
    counts = files["rows"]
    told = not counts.null_count and not snapshot.live.has_logs
    return {
        "name": config.name,
        "location": engine.storage.location,
        "type": config.table_type.value if config.table_type else None,
        "version": config.version,
        "record_key": list(config.record_fields),
        "partition_by": list(config.partition_fields),
        "ordering": list(config.ordering_fields),
        "last_commit": snapshot.instant_time,
        "commits": len(snapshot.timeline.commits),
        "partitions": len(snapshot.live.partitions()),
        "files": snapshot.live.count,
        "log_files": sum(map(len, filter(None, files["log_files"].to_pylist()))) if snapshot.live.has_logs else 0,
        "bytes": snapshot.live.size_bytes,
        "rows": pc.sum(counts, min_count=0).as_py() if told else None,
    }


def overview_html(engine: Engine) -> str:
    """The same as HTML, with the columns; where no table can be read, why."""
    try:
        snapshot = engine.snapshot()
        facts = overview(engine, snapshot)
    except LakeformatError as error:
        return html_pairs({"location": engine.storage.location, "no table": str(error)})
    name = str(facts.pop("name"))
    plain = {key.replace("_", " "): value for key, value in facts.items() if value not in ([], 0) or key == "rows"}
    schema = read_schema(snapshot.schema) if snapshot.schema is not None else []
    columns = html_rows(("column", "type"), [(field.name, str(field.type)) for field in schema])
    return html_pairs(plain, caption=name, more=columns)
