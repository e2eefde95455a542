"""Markers: a data file is announced before it exists, so that a rollback finds it (Hudi: ``DirectWriteMarkers``)."""

from __future__ import annotations

from lakeformat.codec import properties
from lakeformat.model.files import join_path
from lakeformat.storage.port import HOODIE, Storage
from lakeformat.table_state.file_groups import PARTITION_MARKER

__all__ = ["announce", "forget_markers", "prepare_partition"]


def _folder(instant_time: str) -> str:
    return f"{HOODIE}/.temp/{instant_time}"


def announce(storage: Storage, instant_time: str, path: str, *, merge: bool) -> None:
    """Put the marker of one base file; ``path`` is relative to the table."""
    kind = "MERGE" if merge else "CREATE"
    storage.touch(f"{_folder(instant_time)}/{path}.marker.{kind}")


def forget_markers(storage: Storage, instant_time: str) -> None:
    """Remove an instant's markers, after its commit or rollback."""
    storage.delete_folder(_folder(instant_time))


def prepare_partition(storage: Storage, partition_path: str, instant_time: str) -> None:
    """Make the folder a partition, if it is none yet: readers pass others by."""
    path = join_path(partition_path, PARTITION_MARKER)
    if storage.info(path) is not None:
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    content = properties.encode(
        {"commitTime": instant_time, "partitionDepth": str(depth)}, comments=["partition metadata"]
    )
    try:
        storage.create(path, content)
    except FileExistsError:
        return
