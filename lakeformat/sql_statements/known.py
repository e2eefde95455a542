"""Names of tables that no catalog knows: what a name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

__all__ = ["GIVEN", "KnownTable", "KnownTables", "Names"]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """Where a table is; ``options``: those it was made with, which writes and reads by its name are given, too."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


class KnownTables(Protocol):
    """Names in any letter case -> tables."""

    def get(self, name: str) -> KnownTable | None:
        """What a name stands for; None if for nothing."""
        ...

    def put(self, name: str, table: KnownTable) -> None:
        """Give a name, or another table to a name."""
        ...

    def forget(self, name: str) -> None:
        """Take a name back; the table stays."""
        ...


class Names:
    """Names that this process has given."""

    def __init__(self) -> None:
        self._tables: dict[str, KnownTable] = {}

    def get(self, name: str) -> KnownTable | None:
        """See `KnownTables`."""
        return self._tables.get(name.lower())

    def put(self, name: str, table: KnownTable) -> None:
        """See `KnownTables`."""
        self._tables[name.lower()] = table

    def forget(self, name: str) -> None:
        """See `KnownTables`."""
        self._tables.pop(name.lower(), None)

    def all(self) -> tuple[str, ...]:
        """Every name, in order."""
        return tuple(sorted(self._tables))


#: By ``create table`` of `lakeformat.sql`, until ``drop table`` or the process ends.
GIVEN: Final = Names()
