"""The port of catalogs: what a client of AWS Glue or of a Hive metastore can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakeformat.catalog.entry import CatalogEntry, CatalogPartition

__all__ = ["Catalog"]


class Catalog(Protocol):
    """A client of a catalog. All methods raise `CatalogError` if the catalog refuses or cannot be reached."""

    def has_database(self, database: str) -> bool:
        """Tell whether a database exists."""
        ...

    def create_database(self, database: str) -> None:
        """Create a database. If it exists meanwhile, do nothing."""
        ...

    def find_table(self, database: str, name: str) -> CatalogEntry | None:
        """Return a table; None if there is none."""
        ...

    def create_table(self, entry: CatalogEntry) -> bool:
        """Create a table. Return False if it exists meanwhile."""
        ...

    def alter_table(self, entry: CatalogEntry, *, cascade: bool) -> None:
        """Change a table. Keep properties and attributes that the entry does not have.

        Args:
            cascade: whether the partitions get the columns, too.
        """
        ...

    def drop_table(self, entry: CatalogEntry) -> None:
        """Drop a table from the catalog. Its files stay."""
        ...

    def list_partitions(self, entry: CatalogEntry) -> Sequence[CatalogPartition]:
        """Return all partitions of a table."""
        ...

    def find_partitions(self, entry: CatalogEntry, values: Sequence[tuple[str, ...]]) -> Sequence[CatalogPartition]:
        """Return those of the partitions with these values that the table has."""
        ...

    def add_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions. Pass over those that exist."""
        ...

    def change_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations of partitions, and give them the columns of the table."""
        ...

    def drop_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Drop partitions from the catalog. Their files stay. Pass over those that do not exist."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
