"""Which index a write uses, from its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, nearest
from lakeformat.index.port import IndexSettings
from lakeformat.merge import MergeRule
from lakeformat.model.table_config import TableConfig

__all__ = ["check_index", "index_settings"]

_UPDATE_PARTITION: Final[Mapping[str, str]] = {
    "BLOOM": "hoodie.bloom.index.update.partition.path",
    "SIMPLE": "hoodie.simple.index.update.partition.path",
}
_HASH_FIELD: Final = "hoodie.bucket.index.hash.field"


def index_settings(config: TableConfig, options: Options) -> IndexSettings:
    """The index that the options name, and how it works."""
    kind = options["hoodie.index.type"]
    return IndexSettings(
        kind,
        options["hoodie.bloom.index.prune.by.ranges"],
        options["hoodie.bloom.index.use.treebased.filter"],
        update_partition=options[_UPDATE_PARTITION["BLOOM" if kind == "GLOBAL_BLOOM" else "SIMPLE"]],
        buckets=options["hoodie.bucket.index.num.buckets"],
        hash_fields=options[_HASH_FIELD] or config.record_fields,
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
