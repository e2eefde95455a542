"""The undo of rings that commits have written (`lakeformat.transaction.hashing_commits`)."""

from __future__ import annotations

from lakeformat.file_system_view.hashing_rings import (
    list_ring_folders,
    list_stored_rings,
    stored_paths,
    uses_consistent_hashing,
)
from lakeformat.timeline.store import TimelineStore

__all__ = ["take_back_rings"]


def take_back_rings(store: TimelineStore, instant_time: str) -> None:
    """Remove the rings of a commit that is undone, their markers first."""
    storage = store.storage
    if not uses_consistent_hashing(storage):
        return
    for path in list_ring_folders(storage):
        stored = list_stored_rings(storage, path)
        if instant_time in stored.times:
            for found in stored_paths(stored, instant_time):
                storage.delete(found)
