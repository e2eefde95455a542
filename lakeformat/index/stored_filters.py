"""The bloom filters of the metadata table: files that hold none of the keys are left out before they are opened.

Hudi: ``hoodie.bloom.index.use.metadata``. A file that is not left out is searched as without these filters.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.codec.bloom import BloomFilter, hash_chain
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.file_system_view.table_listing import FileSource, open_agreeing
from lakeformat.index.port import IndexSettings, Ints
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.files import BaseFile
from lakeformat.storage.port import Storage

__all__ = ["StoredFilters", "open_for_look_ups", "open_stored_filters"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Number of files whose filters are in memory at once.
_FILES: Final = 64
#: Number of keys that are hashed at once: 56 MB.
_KEYS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredFilters:
    """The filters of the base files of a snapshot. Picklable."""

    table: MetadataTable

    def find_possible_files(self, files: Sequence[BaseFile], keys: pa.ChunkedArray) -> Ints:
        """Return the positions of the files that may hold any of the keys. A file without a filter may hold any.

        If the filters cannot be read, log one line and return all files. Memory: the filters of 64 files, and the
        hashes of a million keys.
        """
        possible = np.ones(len(files), bool)
        try:
            for first in range(0, len(files), _FILES):
                chosen = files[first : first + _FILES]
                stored = self.table.read_filters([(file.partition_path, str(file.name)) for file in chosen])
                filters = [stored.get((file.partition_path, str(file.name))) for file in chosen]
                possible[first : first + len(chosen)] = _test(filters, keys)
        except (LakeformatError, OSError) as error:
            _warn_not_used(self.table.storage, str(error))
            return np.arange(len(files))
        return np.flatnonzero(possible)


def _test(filters: Sequence[BloomFilter | None], keys: pa.ChunkedArray) -> list[bool]:
    """Return for each filter whether it lets any key through; None lets all through."""
    possible = [stored is None for stored in filters]
    rounds = max((stored.hashes for stored in filters if stored is not None), default=0)
    for start in range(0, len(keys), _KEYS):
        if all(possible):
            break
        chain = hash_chain(keys.slice(start, _KEYS), rounds)
        for number, bloom in enumerate(filters):
            if bloom is not None and not possible[number]:
                possible[number] = bool(bloom.might_contain(chain).any())
    return possible


def open_stored_filters(storage: Storage, snapshot: Snapshot, settings: IndexSettings) -> StoredFilters | None:
    """Open the filters if the options ask for them. If they cannot be used, log one line and return None."""
    if not settings.asks_stored_filters or settings.file_search == "SIMPLE" or not snapshot.live.count:
        return None
    table = open_for_look_ups(storage, snapshot, MetadataPartition.BLOOM_FILTERS)
    if isinstance(table, str):
        _warn_not_used(storage, table)
        return None
    return StoredFilters(table)


def _warn_not_used(storage: Storage, reason: str) -> None:
    _LOG.warning(
        "table %s: keys are searched by the filters in footers, not by stored ones: %s", storage.location, reason
    )


def open_for_look_ups(storage: Storage, snapshot: Snapshot, partition: MetadataPartition) -> MetadataTable | str:
    """Open the metadata table of a snapshot for look-ups in a partition. If it cannot be used, return the reason."""
    if partition.value not in snapshot.config.metadata_partitions:
        return f"the table has no {partition.value.replace('_', ' ')} in its metadata table"
    if snapshot.instant_time != (snapshot.timeline.commits[-1].time if snapshot.timeline.commits else None):
        return "the snapshot is not the newest one"
    try:
        table = open_agreeing(storage, snapshot.config, snapshot.timeline)
    except (LakeformatError, OSError) as error:
        return str(error)
    opened: MetadataTable | str = table.reason if isinstance(table, FileSource) else table
    return opened
