"""The entries of a catalog as values: a table with its columns and properties, and its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CatalogColumn", "CatalogEntry", "CatalogPartition"]


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column or partition key; the type is a type of Hive, in lower case."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A table in a catalog.

    Attributes:
        columns: the columns without the partition keys.
        is_managed: whether the catalog owns the table's files, and deletes them with the table.
    """

    database: str
    name: str
    columns: tuple[CatalogColumn, ...]
    partition_keys: tuple[CatalogColumn, ...]
    location: str
    input_format: str
    output_format: str
    serde: str
    serde_properties: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_managed: bool = False

    @property
    def full_name(self) -> str:
        """Return ``database.table``, for messages."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """A partition in a catalog: one value for each partition key, and the folder."""

    values: tuple[str, ...]
    location: str
