"""The check of a table with consistent hashing: each live file group belongs to a bucket of its partition's ring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.hashing_rings import (
    list_stored_rings,
    load_ring,
    ring_folder,
    uses_consistent_hashing,
)
from lakeformat.model.files import FileSlice
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline

__all__ = ["check_rings"]


def check_rings(storage: Storage, timeline: Timeline, slices: Iterable[FileSlice]) -> Iterator[Finding]:
    """Yield a finding for each partition whose ring is damaged, or has no bucket for a live file group."""
    if not uses_consistent_hashing(storage):
        return
    ids_of: dict[str, list[str]] = {}
    for piece in slices:
        ids_of.setdefault(piece.group.partition_path, []).append(piece.group.file_id)
    for path, ids in ids_of.items():
        try:
            load_ring(storage, timeline, list_stored_rings(storage, path), ids)
        except CorruptTableError as error:
            yield Finding(Kind.BUCKETS, ring_folder(path), str(error))
