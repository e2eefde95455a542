"""Delta Lake as a format beside a table: which actions a version has."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeformat.beside import delta_actions as delta
from lakeformat.beside.delta_log import FOLDER, DeltaLog, delete_log, put_version, read_log
from lakeformat.beside.face import Changes, Face, Footers, folder_columns
from lakeformat.beside.shown import values_of_folders
from lakeformat.catalog.types import spark_schema_json
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot

__all__ = ["DeltaFace"]


class DeltaFace:
    """The Delta log beside a table."""

    name = "delta"
    folder = FOLDER

    def __init__(self, context: TableContext) -> None:
        self._context, self._storage = context, context.storage

    def read(self) -> Face:
        """Read the newest version of the log."""
        return read_log(self._storage).face

    def columns_differ(self, face: Face, snapshot: Snapshot, schema: pa.Schema) -> bool:
        """Tell whether a snapshot has other columns, or other partition columns, than the log."""
        shown = face.stored.metadata
        return shown.get("schemaString") != spark_schema_json(schema) or tuple(
            shown.get("partitionColumns") or ()
        ) != folder_columns(snapshot)

    def put(self, face: Face, changes: Changes, footers: Footers) -> int | None:
        """Add a version to the log; None if another writer has added one."""
        now = self._context.clock.now_ms()
        actions = list(self._actions(face.stored, changes, footers.rows, now))
        return put_version(self._storage, face.stored, actions, now, changes.keeps)

    def point(self, face: Face) -> None:
        """Do nothing: readers list the log."""

    def delete(self) -> None:
        """Delete the log."""
        delete_log(self._storage)

    def _actions(
        self, log: DeltaLog, changes: Changes, rows: Sequence[Sequence[int]], now: int
    ) -> Iterator[Mapping[str, Any]]:
        snapshot, schema, added = changes.snapshot, changes.schema, changes.files.added
        values = values_of_folders(snapshot, schema, added, delta.partition_text)
        yield delta.commit_info(snapshot.instant_time or "", changes.completed, changes.operation, now)
        protocol = delta.protocol_of(schema)
        if protocol["minReaderVersion"] > log.protocol.get("minReaderVersion", 0):
            yield {"protocol": protocol}
        if changes.columns_changed:
            yield {"metaData": self._metadata(log, schema, folder_columns(snapshot), now)}
        yield from delta.remove_actions(changes.files.removed, now)
        for portion, counts in zip(added, rows, strict=True):
            yield from delta.add_actions(portion, counts, values, schema, now)

    def _metadata(self, log: DeltaLog, schema: pa.Schema, dropped: tuple[str, ...], now_ms: int) -> Mapping[str, Any]:
        stored = log.metadata
        return {
            "id": stored.get("id") or str(uuid.UUID(self._context.ids.token())),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": spark_schema_json(schema),
            "partitionColumns": list(dropped),
            "configuration": {},
            "createdTime": stored.get("createdTime") or now_ms,
        }
