"""Columns that are identified by ids, as Hudi's schema on read stores them (Hudi: ``InternalSchema``).

An id belongs to one column for ever: a renamed column keeps its id, a new column gets an id that no column has had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakeformat.model.record import META_COLUMNS

__all__ = ["ARRAY", "MAP", "RECORD", "InternalSchema", "SchemaField", "SchemaType"]

#: Names of the nested types.
RECORD: Final = "record"
ARRAY: Final = "array"
MAP: Final = "map"


@dataclass(frozen=True, slots=True)
class SchemaType:
    """The type of a field.

    Attributes:
        name: stored name of the type: ``int``, ``decimal(10, 2)``, `RECORD`, `ARRAY`, `MAP`.
        fields: the fields of a record; ``element`` of an array; ``key`` and ``value`` of a map; else empty.
    """

    name: str
    fields: tuple[SchemaField, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A column, or a field inside one.

    Attributes:
        id: number that identifies the field.
        doc: comment of the field; None for no comment.
    """

    id: int
    name: str
    type: SchemaType
    optional: bool = True
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """The columns that a table has from a commit on.

    Attributes:
        version: instant time of that commit, as a number; 0 for the columns before the first change.
        fields: all columns, with the meta columns.
        last_id: the greatest id that a field has or has had.
    """

    version: int
    fields: tuple[SchemaField, ...]
    last_id: int

    @property
    def columns(self) -> tuple[SchemaField, ...]:
        """Return the columns without the meta columns."""
        return tuple(field for field in self.fields if field.name not in META_COLUMNS)
