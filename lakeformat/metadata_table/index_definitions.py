"""The definitions of the indexes of a metadata table (``.hoodie/.index_defs/index.json``)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.json_text import parse_json
from lakeformat.errors import CorruptTableError
from lakeformat.metadata_table.bounds import wrapped_bounds
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition, RecordKind, partition_of_name
from lakeformat.model.record import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakeformat.model.table_version import TableVersion
from lakeformat.storage.port import HOODIE, Storage

__all__ = [
    "INDEX_DEFINITIONS",
    "SecondaryIndex",
    "StatisticsForm",
    "add_definitions",
    "choose_columns",
    "find_secondary_indexes",
    "is_partitioned_index",
    "keep_definitions",
    "read_secondary_indexes",
    "read_statistics_form",
]

#: Path of the definitions, relative to the table. Tables of version 6 have none.
INDEX_DEFINITIONS: Final = f"{HOODIE}/.index_defs/index.json"
#: Meta columns that have statistics from table version 8 on, whatever columns are named.
_META: Final = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
#: Encoding of bounds since table version 9 (Hudi: ``HoodieIndexVersion``).
_WITH_TYPES: Final = "V2"
#: Form of a secondary index that divides its keys by the value alone.
_BY_VALUE: Final = "V2"
_IDENTITY: Final = "identity"
#: Number of records for each column that show all columns: each column has a record in each file group then.
_ENOUGH: Final = 64


@dataclass(frozen=True, slots=True)
class StatisticsForm:
    """The statistics that a metadata table stores for each file.

    Attributes:
        columns: Names of the columns.
        stores_types: Whether the type of a column is stored beside its bounds.
    """

    columns: tuple[str, ...]
    stores_types: bool


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """A secondary index: which record keys have a value of a column.

    Attributes:
        partition: Its partition of the metadata table.
        column: The column; dots are between the names of nested columns.
    """

    partition: MetadataPartition
    column: str


def read_secondary_indexes(table: MetadataTable) -> tuple[SecondaryIndex, ...]:
    """Return the secondary indexes of the forms that are known here."""
    return find_secondary_indexes(table.storage, table.names)


def find_secondary_indexes(storage: Storage, names: Iterable[str]) -> tuple[SecondaryIndex, ...]:
    """Return those among named partitions, even if the metadata table cannot be read, as `read_secondary_indexes`."""
    parsed = (partition_of_name(name) for name in names)
    named = [
        partition for partition in parsed if partition is not None and partition.kind is RecordKind.SECONDARY_INDEX
    ]
    definitions = _read_definitions(storage) if named else {}
    defined = [(partition, definitions.get(partition.value, {})) for partition in named]
    return tuple(
        SecondaryIndex(partition, str(columns[0]))
        for partition, definition in defined
        if len(columns := list(definition.get("sourceFields") or ())) == 1
        and definition.get("version") == _BY_VALUE
        and definition.get("indexFunction") == _IDENTITY
    )


def read_statistics_form(table: MetadataTable, schema: pa.Schema | None = None) -> StatisticsForm:
    """Read the definition of the index. Version 6 has none: there, take the columns that the first file groups have.

    Memory in version 6: the records of one file group.

    Args:
        table: The metadata table.
        schema: The table's columns, which have statistics in version 6 if no file has any yet.

    Raises:
        CorruptTableError: The definition cannot be read.
    """
    definition = _read_definition(table, MetadataPartition.COLUMN_STATS)
    if definition is not None:
        columns = tuple(map(str, definition.get("sourceFields") or ()))
        return StatisticsForm(columns, definition.get("version") == _WITH_TYPES)
    names: set[str] = set()
    records = 0
    for piece in table.list_slices(MetadataPartition.COLUMN_STATS):
        rows = table.read_slice(MetadataPartition.COLUMN_STATS, piece)["column_name"].drop_null()
        names, records = names | set(pc.unique(rows).to_pylist()), records + len(rows)
        if records > _ENOUGH * len(names):
            break
    columns = tuple(sorted(names))
    if not columns and schema is not None:
        columns = _all_columns(schema)
    return StatisticsForm(columns, stores_types=False)


def is_partitioned_index(table: MetadataTable) -> bool:
    """Tell whether the record index has file groups for each partition of the table. Such an index is not written."""
    definition = _read_definition(table, MetadataPartition.RECORD_INDEX) or {}
    options = definition.get("indexOptions") or {}
    return str(options.get("isPartitioned", "false")).lower() == "true"


def _read_definition(table: MetadataTable, partition: MetadataPartition) -> Mapping[str, Any] | None:
    """Return the definition of a partition of the metadata table; None if there is none."""
    return _read_definitions(table.storage).get(partition.value)


def _read_definitions(storage: Storage) -> Mapping[str, Mapping[str, Any]]:
    """Return the definitions by name; none if there is no such file."""
    try:
        definitions = parse_json(storage.read(INDEX_DEFINITIONS))["indexDefinitions"]
        if not all(isinstance(definition, dict) for definition in definitions.values()):
            raise TypeError("a definition is not an object")
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            f"{storage.location}/{INDEX_DEFINITIONS} cannot be read ({type(error).__name__}: {error}); run repair(), "
            "which makes the metadata table again"
        ) from None
    by_name: Mapping[str, Mapping[str, Any]] = definitions
    return by_name


def choose_columns(
    schema: pa.Schema, columns: Sequence[str] | None, limit: int, version: TableVersion
) -> tuple[str, ...]:
    """Return the names of the columns that statistics are stored of, as Hudi chooses them.

    Args:
        schema: The table's columns, without meta columns.
        columns: The columns that the user has named; None for the first ones whose type can have statistics.
        limit: Most columns if none are named. Table version 6 knows no limit.
        version: The table version.
    """
    if not version.has_index_definitions:
        return _all_columns(schema) if columns is None else tuple(dict.fromkeys(columns))
    if columns is None:
        return (*_META, *_bounded_columns(schema, stores_types=version.stores_bound_types)[:limit])
    return tuple(dict.fromkeys((*_META, *columns)))


def _all_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that have statistics in a version without definitions, if none are named."""
    return tuple(sorted((*META_COLUMNS, *_bounded_columns(schema, stores_types=False))))


def _bounded_columns(schema: pa.Schema, *, stores_types: bool) -> list[str]:
    return [f.name for f in schema if wrapped_bounds(*2 * [pa.nulls(0, f.type)], stores_types=stores_types)]


def add_definitions(
    storage: Storage,
    version: TableVersion,
    columns: Sequence[str] | None,
    *,
    has_record_index: bool,
    secondary: SecondaryIndex | None = None,
) -> None:
    """Store the definitions of new indexes. Call it before the table's properties name them.

    Args:
        version: The table version, one that has definitions.
        columns: The columns of new column statistics; None if there are none.
        has_record_index: Whether there is a new record index.
        secondary: A new secondary index; None if there is none.
    """
    new: dict[str, Any] = {}
    if secondary is not None:
        made = _definition(secondary.partition, _IDENTITY, (secondary.column,), {}, _BY_VALUE)
        made[secondary.partition.value]["indexType"] = "secondary_index"
        new |= made
    if has_record_index:
        new |= _definition(MetadataPartition.RECORD_INDEX, "", (), {"isPartitioned": "false"}, "V1")
    if columns is not None:
        form = _WITH_TYPES if version.stores_bound_types else "V1"
        new |= _definition(MetadataPartition.COLUMN_STATS, MetadataPartition.COLUMN_STATS.value, columns, {}, form)
    if new:
        _write_definitions(storage, {**_read_definitions(storage), **new})


def keep_definitions(storage: Storage, kept: Collection[str]) -> tuple[str, ...]:
    """Remove the definitions of all other indexes than these. Return the names of those that were there.

    Hudi's readers look at the definition of an index of an expression or of a secondary index, not at the table's
    properties: with a definition whose folder is gone or stale, they fail, or miss rows.
    """
    try:
        definitions = _read_definitions(storage)
    except CorruptTableError:
        if not kept:
            storage.delete(INDEX_DEFINITIONS)
        return ()
    removed = tuple(name for name in definitions if name not in kept)
    if removed:
        _write_definitions(storage, {name: definition for name, definition in definitions.items() if name in kept})
    return removed


def _definition(
    partition: MetadataPartition, function: str, columns: Sequence[str], options: Mapping[str, str], form: str
) -> dict[str, Any]:
    return {
        partition.value: {
            "indexName": partition.value,
            "indexType": partition.value,
            "indexFunction": function,
            "sourceFields": list(columns),
            "indexOptions": dict(options),
            "version": form,
        }
    }


def _write_definitions(storage: Storage, definitions: Mapping[str, Any]) -> None:
    storage.replace(INDEX_DEFINITIONS, json.dumps({"indexDefinitions": definitions}, indent=2).encode())
