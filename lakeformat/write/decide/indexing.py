"""Which index a write uses, from its options, and where these leave it open, from the table's files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, nearest
from lakeformat.index.bucket import has_bucket_files, only_bucket_count
from lakeformat.index.port import IndexSettings
from lakeformat.merge import MergeRule
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["check_index", "index_settings", "with_buckets_kept"]

_LOG: Final = logging.getLogger("lakeformat.write")
_TYPE: Final = "hoodie.index.type"
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"

_UPDATE_PARTITION: Final[Mapping[str, str]] = {
    "BLOOM": "hoodie.bloom.index.update.partition.path",
    "SIMPLE": "hoodie.simple.index.update.partition.path",
}
_HASH_FIELD: Final = "hoodie.bucket.index.hash.field"


def index_settings(config: TableConfig, options: Options) -> IndexSettings:
    """The index that the options name, and how it works."""
    asked = options.write
    return IndexSettings(
        asked.index,
        asked.by_ranges,
        asked.by_tree,
        update_partition=asked.update_partition,
        buckets=asked.buckets,
        hash_fields=asked.hash_fields or config.record_fields,
    )


def check_index(index: IndexSettings, config: TableConfig, rule: MergeRule) -> None:
    """Refuse what an index cannot do.

    Raises:
        InvalidOptionError: rows that would move by a user's rule, or a hash of what is no key field.
    """
    if index.is_global and index.update_partition and rule.merger and config.partition_fields:
        raise InvalidOptionError(
            f"a merger cannot say which partition its row belongs to, as hoodie.index.type={index.kind} must know; set "
            f"{_UPDATE_PARTITION[index.kind.removeprefix('GLOBAL_')]}=false, or take another index"
        )
    for name in index.hash_fields if index.has_buckets else ():
        if name not in config.record_fields:
            raise InvalidOptionError(
                f"{_HASH_FIELD} names {name!r}, which is no record key field{nearest(name, config.record_fields)}; use "
                f"{', '.join(config.record_fields)}"
            )


def with_buckets_kept(storage: Storage, snapshot: Snapshot, options: Options) -> Options:
    """The options of a write that may open file groups, which in a table of buckets must be buckets, too.

    Another file would make every later write with the bucket index fail. AUTO becomes BUCKET if the keys tell the
    number of buckets.

    Raises:
        InvalidOptionError: another index is asked for, or the number must be given.
    """
    keys = snapshot.config.record_fields
    asked = options.write
    if asked.index == "BUCKET" or not keys or not has_bucket_files(snapshot.each_slice()):
        return options
    asks_nothing = asked.index == "AUTO"
    found = only_bucket_count(storage, snapshot, asked.hash_fields or keys) if asks_nothing else None
    if found is None or (asked.buckets != found and options.given(_BUCKETS)):
        raise InvalidOptionError(
            f"the files of {storage.location} are buckets, and new ones must be, too; set {_TYPE}=BUCKET with the "
            f"{_BUCKETS} and {_HASH_FIELD} that it was written with"
        )
    _LOG.info("%s was written with %s=BUCKET and %d buckets, and so is this write", storage.location, _TYPE, found)
    return options.with_values(**{_TYPE: "BUCKET", _BUCKETS: found})
