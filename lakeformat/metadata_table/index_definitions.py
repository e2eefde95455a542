"""The definitions of the indexes of a metadata table (``.hoodie/.index_defs/index.json``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from lakeformat.errors import CorruptTableError
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.storage.port import HOODIE

__all__ = ["StatisticsForm", "is_partitioned_index", "read_statistics_form"]

_PATH: Final = f"{HOODIE}/.index_defs/index.json"
#: Encoding of bounds since table version 9 (Hudi: ``HoodieIndexVersion``).
_WITH_TYPES: Final = "V2"


@dataclass(frozen=True, slots=True)
class StatisticsForm:
    """The statistics that a metadata table stores for each file.

    Attributes:
        columns: Names of the columns.
        stores_types: Whether the type of a column is stored beside its bounds.
    """

    columns: tuple[str, ...]
    stores_types: bool


def read_statistics_form(table: MetadataTable) -> StatisticsForm:
    """Read the definition of the index. Version 6 has none: there, take the columns that the first file group has.

    Memory in version 6: the records of one file group.

    Raises:
        CorruptTableError: The definition cannot be read.
    """
    definition = _read_definition(table, MetadataPartition.COLUMN_STATS)
    if definition is not None:
        columns = tuple(map(str, definition.get("sourceFields") or ()))
        return StatisticsForm(columns, definition.get("version") == _WITH_TYPES)
    piece = table.list_slices(MetadataPartition.COLUMN_STATS)[0]
    names = pc.unique(table.read_slice(MetadataPartition.COLUMN_STATS, piece)["column_name"]).drop_null()
    return StatisticsForm(tuple(sorted(names.to_pylist())), stores_types=False)


def is_partitioned_index(table: MetadataTable) -> bool:
    """Tell whether the record index has file groups for each partition of the table. Such an index is not written."""
    definition = _read_definition(table, MetadataPartition.RECORD_INDEX) or {}
    options = definition.get("indexOptions") or {}
    return str(options.get("isPartitioned", "false")).lower() == "true"


def _read_definition(table: MetadataTable, partition: MetadataPartition) -> Mapping[str, Any] | None:
    """Return the definition of a partition of the metadata table; None if there is none."""
    try:
        definition = json.loads(table.storage.read(_PATH))["indexDefinitions"].get(partition.value)
        if definition is not None and not isinstance(definition, dict):
            raise TypeError("a definition is not an object")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            f"{table.storage.location}/{_PATH} cannot be read ({type(error).__name__}: {error}); run repair(), which "
            "drops the metadata table"
        ) from None
    return definition
