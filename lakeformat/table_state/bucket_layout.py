"""Whether buckets of a table grow and split by themselves: Hudi's consistent hashing, which no property names."""

from __future__ import annotations

from typing import Final

from lakeformat.errors import UnsupportedTableError
from lakeformat.storage.port import HOODIE, Storage

__all__ = ["check_bucket_layout"]

#: Where Hudi says, for each partition, which range of hashes belongs to which file group.
_HASHING_METADATA: Final = f"{HOODIE}/.bucket_index/consistent_hashing_metadata"


def check_bucket_layout(storage: Storage) -> None:
    """Refuse to write or cluster a table whose rows Hudi finds by consistent hashing.

    Raises:
        UnsupportedTableError: rows would go to file groups in which Hudi does not look for their keys.
    """
    if storage.list(_HASHING_METADATA):
        raise UnsupportedTableError(
            f"{storage.location}: writing to a table of the bucket index with consistent hashing ({_HASHING_METADATA}, "
            "hoodie.index.bucket.engine=CONSISTENT_HASHING) is not supported, only reading; use Apache Hudi to write it"
        )
