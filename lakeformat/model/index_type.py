"""The values of ``hoodie.index.type``, one row of traits for each (Hudi: ``HoodieIndex.IndexType``).

Other modules ask for a trait and never compare names. The class that looks keys up for a type is in `lakeformat.index`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["AUTO", "BUCKET", "CONSISTENT", "INDEX_TYPES", "RECORD_INDEX", "IndexType"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexType:
    """The traits of one index type.

    Attributes:
        name: the value of ``hoodie.index.type``.
        older_name: another value that means this type; "" if there is none.
        is_automatic: whether the index adapts to the table: to buckets if its files are some, to its record index if
            that costs less than the files.
        is_global: whether the key identifies a record in the whole table, not only in its partition.
        has_buckets: whether the key's hash gives the file group.
        trusts_record_index: whether the record index of the metadata table is asked first, and may be the only one to
            name a place.
        file_search: how files are searched for keys: ``BLOOM`` uses filters, ``SIMPLE`` does not, ``AUTO`` takes the
            cheaper one for each file.
        warns_of_moved_keys: whether an upsert looks in other partitions for some of its new keys, to warn of copies.
        update_partition: the option that says whether a global index moves a row whose partition changes.
    """

    name: str
    older_name: str = ""
    is_automatic: bool = False
    is_global: bool = False
    has_buckets: bool = False
    trusts_record_index: bool = False
    file_search: str = "SIMPLE"
    warns_of_moved_keys: bool = False
    update_partition: str = "hoodie.simple.index.update.partition.path"


AUTO: Final = IndexType(name="AUTO", is_automatic=True, file_search="AUTO", warns_of_moved_keys=True)
BUCKET: Final = IndexType(name="BUCKET", has_buckets=True)
RECORD_INDEX: Final = IndexType(
    name="GLOBAL_RECORD_LEVEL_INDEX",
    older_name="RECORD_INDEX",
    is_global=True,
    trusts_record_index=True,
    file_search="AUTO",
    update_partition="hoodie.record.index.update.partition.path",
)
#: Maps each supported value of ``hoodie.index.type`` to its type, in the order in which messages name them.
INDEX_TYPES: Final[Mapping[str, IndexType]] = {
    row.name: row
    for row in (
        AUTO,
        IndexType(name="BLOOM", file_search="BLOOM", warns_of_moved_keys=True),
        IndexType(name="SIMPLE", warns_of_moved_keys=True),
        IndexType(
            name="GLOBAL_BLOOM",
            is_global=True,
            file_search="BLOOM",
            update_partition="hoodie.bloom.index.update.partition.path",
        ),
        IndexType(name="GLOBAL_SIMPLE", is_global=True),
        # It keeps keys in one process. A process without these keys searches the key columns.
        IndexType(name="INMEMORY"),
        BUCKET,
        RECORD_INDEX,
    )
}
#: The engine of the bucket index (``hoodie.index.bucket.engine``) whose buckets are split and merged.
CONSISTENT: Final = "CONSISTENT_HASHING"
