"""The index of a write, from its options and, for ``AUTO``, from the table's files."""

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

__all__ = ["check_index", "index_settings", "with_bucket_index"]

_LOG: Final = logging.getLogger("lakeformat.write")
_TYPE: Final = "hoodie.index.type"
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"

_UPDATE_PARTITION: Final[Mapping[str, str]] = {
    "BLOOM": "hoodie.bloom.index.update.partition.path",
    "SIMPLE": "hoodie.simple.index.update.partition.path",
}
_HASH_FIELD: Final = "hoodie.bucket.index.hash.field"


def index_settings(config: TableConfig, options: Options) -> IndexSettings:
    """Return the index that the options name and how it works."""
    write_options = options.write
    return IndexSettings(
        write_options.index,
        write_options.by_ranges,
        write_options.by_tree,
        update_partition=write_options.update_partition,
        buckets=write_options.buckets,
        hash_fields=write_options.hash_fields or config.record_fields,
    )


def check_index(index: IndexSettings, config: TableConfig, rule: MergeRule) -> None:
    """Refuse options that the index does not support.

    Raises:
        InvalidOptionError: if a global index would have to move rows whose partition a merger decides, or if a hash
            field is not a record key field.
    """
    if index.is_global and index.update_partition and rule.merger and config.partition_fields:
        raise InvalidOptionError(
            f"a merger cannot say which partition its row belongs to, as hoodie.index.type={index.kind} must know; set "
            f"{_UPDATE_PARTITION[index.kind.removeprefix('GLOBAL_')]}=false, or take another index"
        )
    for name in index.hash_fields if index.has_buckets else ():
        if name not in config.record_fields:
            raise InvalidOptionError(
                f"{_HASH_FIELD} names {name!r}, which is not a record key field{nearest(name, config.record_fields)}; "
                f"use {', '.join(config.record_fields)}"
            )


def with_bucket_index(storage: Storage, snapshot: Snapshot, options: Options) -> Options:
    """Return the options with the bucket index set if the table's files are buckets.

    A file that is not a bucket would make every later write with the bucket index fail. If the index is AUTO and the
    stored keys determine the number of buckets, AUTO becomes BUCKET.

    Raises:
        InvalidOptionError: if the options name another index, or if the number of buckets must be given.
    """
    keys = snapshot.config.record_fields
    write_options = options.write
    if write_options.index == "BUCKET" or not keys or not has_bucket_files(snapshot.each_slice()):
        return options
    is_auto = write_options.index == "AUTO"
    found = only_bucket_count(storage, snapshot, write_options.hash_fields or keys) if is_auto else None
    if found is None or (write_options.buckets != found and options.given(_BUCKETS)):
        raise InvalidOptionError(
            f"the files of {storage.location} are buckets, and new ones must be, too; set {_TYPE}=BUCKET with the "
            f"{_BUCKETS} and {_HASH_FIELD} that it was written with"
        )
    _LOG.info("%s was written with %s=BUCKET and %d buckets, and so is this write", storage.location, _TYPE, found)
    return options.with_values(**{_TYPE: "BUCKET", _BUCKETS: found})
