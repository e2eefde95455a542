"""Which file groups of a partition the instants of a metadata table name.

Nothing stores how many file groups a partition has, and their number decides where a key is. If the last group is lost,
or a file has come under the number after it, each look-up goes to a wrong group, and a key looks new. The write stats
of deltacommits and compactions name the groups that they have written. Hudi does not look there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakeformat.errors import CorruptTableError
from lakeformat.metadata_table.names import MetadataPartition, file_id, file_id_prefix
from lakeformat.storage.port import Storage

__all__ = ["is_last_group_named"]


def is_last_group_named(storage: Storage, partition: MetadataPartition, groups: int, paths: Iterable[str]) -> bool:
    """Tell whether an instant names the last file group, so that there are surely this many.

    It reads the instants one after the other until one of them does.

    Args:
        groups: Number of file groups that have files.
        paths: Paths of completed files of instants.

    Raises:
        CorruptTableError: An instant names a file group that has no files.
    """
    pattern = re.compile(re.escape(file_id_prefix(partition)).encode() + rb"-(\d{4,9})-0")
    for path in paths:
        try:
            data = storage.read(path)
        except FileNotFoundError:  # It was archived meanwhile.
            continue
        last = max(map(int, pattern.findall(data)), default=-1)
        if last >= groups:
            raise CorruptTableError(
                f"{storage.location}/{partition.folder} lacks file group {file_id(partition, last)}, which "
                f"{path.rpartition('/')[2]} names; run repair(), which makes the metadata table again"
            )
        if last == groups - 1:
            return True
    return False
