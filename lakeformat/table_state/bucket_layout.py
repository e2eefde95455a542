"""A check for Hudi's consistent hashing, where buckets grow and split and which no table property shows."""

from __future__ import annotations

from typing import Final

from lakeformat.errors import UnsupportedTableError
from lakeformat.storage.port import HOODIE, Storage

__all__ = ["check_bucket_layout"]

#: Folder in which Hudi keeps, for each partition, the range of hashes of each file group.
_HASHING_METADATA: Final = f"{HOODIE}/.bucket_index/consistent_hashing_metadata"


def check_bucket_layout(storage: Storage) -> None:
    """Refuse to write or cluster a table whose rows Hudi finds by consistent hashing.

    Raises:
        UnsupportedTableError: the table uses consistent hashing; rows would go to file groups in which Hudi does not
            look for their keys.
    """
    if storage.list(_HASHING_METADATA):
        raise UnsupportedTableError(
            f"{storage.location}: writing to a table of the bucket index with consistent hashing ({_HASHING_METADATA}, "
            "hoodie.index.bucket.engine=CONSISTENT_HASHING) is not supported, only reading; use Apache Hudi to write it"
        )
