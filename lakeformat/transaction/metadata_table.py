"""Removal of Hudi's metadata table, which lakeformat does not maintain, before a commit becomes visible.

Hudi's writers list files through the metadata table. If it lacks a commit, they lose the rows of that commit
(table-version-6, section 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

from lakeformat.codec import properties
from lakeformat.model.table_config import METADATA_INFLIGHT, METADATA_PARTITIONS, PROPERTIES_PATH
from lakeformat.storage.port import HOODIE, Clock
from lakeformat.timeline.store import TimelineStore

__all__ = ["drop_metadata_table", "write_properties"]

_FOLDER: Final = f"{HOODIE}/metadata"


def write_properties(store: TimelineStore, values: Mapping[str, str], clock: Clock) -> None:
    """Replace ``hoodie.properties``. A backup copy exists meanwhile. Call it under the table's lock."""
    storage = store.storage
    updated = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
    data = properties.encode(dict(values), comments=[f"Updated at {updated}"])
    backup = f"{PROPERTIES_PATH}.backup"
    storage.replace(backup, storage.read(PROPERTIES_PATH))
    storage.replace(PROPERTIES_PATH, data)
    storage.delete(backup)


def drop_metadata_table(store: TimelineStore, clock: Clock) -> bool:
    """Remove the metadata table from the properties, then delete its folder. Return whether there was one."""
    config = store.config()
    storage = store.storage
    if config.has_metadata_table:
        kept = {k: v for k, v in config.values.items() if k not in {METADATA_PARTITIONS, METADATA_INFLIGHT}}
        write_properties(store, kept, clock)
    if storage.info(_FOLDER) is not None:
        storage.delete_folder(_FOLDER)
        return True
    return config.has_metadata_table
