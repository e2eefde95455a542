"""Replacement of ``hoodie.properties``, and the copy from which a repair makes it again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Final

from lakeformat.codec import properties
from lakeformat.errors import StorageError, WriteConflictError
from lakeformat.model.table_config import PROPERTIES_PATH
from lakeformat.storage.port import Clock, Storage, Version, VersionChangedError, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.commit_order import order_of

__all__ = ["COPY_PATH", "add_properties", "save_copy", "write_properties"]

#: The copy of ``hoodie.properties``. Only a repair reads it, because another program may have changed the file since.
COPY_PATH: Final = own_path("properties")

_LOG: Final = logging.getLogger("lakeformat.write")


def add_properties(store: TimelineStore, clock: Clock, lacking: Mapping[str, str]) -> None:
    """Add properties to ``hoodie.properties``, but those that are there. Call it under the table's lock.

    On storage without locks, another process may change the file meanwhile. Then the next write adds them.
    """
    if all(key in store.known_config.values for key in lacking):
        return
    version = order_of(store).version_of(PROPERTIES_PATH)
    with suppress(WriteConflictError):
        write_properties(store, {**lacking, **store.config().values}, clock, version)
        _LOG.info("%s/%s lacked %s, and has it now", store.storage.location, PROPERTIES_PATH, ", ".join(lacking))
        store.config()  # So that this process knows it.


def write_properties(
    store: TimelineStore, values: Mapping[str, str], clock: Clock, version: Version | None = None
) -> None:
    """Replace ``hoodie.properties``. Keep a backup copy meanwhile. Call it under the table's lock.

    Args:
        version: the version of the file that is to be replaced, on storage without locks; None for any version.

    Raises:
        WriteConflictError: the file has another version.
    """
    storage = store.storage
    updated = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
    data = properties.encode(dict(values), comments=[f"Updated at {updated}"])
    backup = f"{PROPERTIES_PATH}.backup"
    storage.replace(backup, storage.read(PROPERTIES_PATH))
    try:
        if version is None:
            storage.replace(PROPERTIES_PATH, data)
        else:
            storage.replace_if(PROPERTIES_PATH, data, version)
    except VersionChangedError:
        storage.delete(backup)
        raise WriteConflictError(
            f"another process has changed {storage.location}/{PROPERTIES_PATH} meanwhile; run this again"
        ) from None
    storage.delete(backup)
    save_copy(storage, data)


def save_copy(storage: Storage, data: bytes) -> None:
    """Write the copy of ``hoodie.properties``. If the storage refuses, there is none: no write needs it."""
    with suppress(StorageError):
        storage.replace(COPY_PATH, data)
