"""The table's lock (first form by the lead; part B completes this room)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeformat.config.lock_settings import LockSettings
from lakeformat.storage.port import Lease, Storage

__all__ = ["LockSettings", "lock_table"]


@contextmanager
def lock_table(storage: Storage, settings: LockSettings, *, service: bool = False) -> Iterator[Lease]:
    """Hold the table's lock while the block runs."""
    with storage.lock(settings.wait_seconds) as lease:
        yield lease
