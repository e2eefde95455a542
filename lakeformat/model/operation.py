"""What a write is for (Hudi: ``WriteOperationType``), as a table: a new operation is one line."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import InvalidInputError, nearest
from lakeformat.model.instant import Action

__all__ = ["Operation", "OperationTraits", "operation_of"]


class Operation(enum.Enum):
    """What the rows are for."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"
    CLUSTER = "cluster"
    COMPACT = "compact"

    @property
    def traits(self) -> OperationTraits:
        """All that is known of it."""
        return _TRAITS[self]

    @property
    def tags(self) -> bool:
        """Whether rows are looked up in the table."""
        return self.traits.tags

    @property
    def joins(self) -> bool:
        """Whether rows may join file groups that are there; the others only open new ones."""
        return self.traits.joins

    @property
    def overwrites(self) -> bool:
        """Whether what was there before is replaced by rows."""
        return self.traits.overwrites

    @property
    def shares(self) -> bool:
        """Whether others may write to its file groups meanwhile: what they add belongs to the slices that it opens."""
        return self.traits.shares

    @property
    def removes(self) -> bool:
        """Whether no row is stored, so that the table keeps its columns."""
        return self.traits.removes

    @property
    def action(self) -> Action:
        """The timeline action it commits as."""
        return self.traits.action


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTraits:
    """The line of one operation in the table; the attributes as the properties of `Operation` say."""

    tags: bool = False
    joins: bool = False
    overwrites: bool = False
    shares: bool = False
    removes: bool = False
    action: Action = Action.COMMIT


_REPLACE: Final = Action.REPLACE_COMMIT
_TRAITS: Final[Mapping[Operation, OperationTraits]] = {
    Operation.UPSERT: OperationTraits(tags=True, joins=True),
    Operation.INSERT: OperationTraits(joins=True),
    Operation.BULK_INSERT: OperationTraits(),
    Operation.DELETE: OperationTraits(tags=True, joins=True, removes=True),
    Operation.INSERT_OVERWRITE: OperationTraits(overwrites=True, action=_REPLACE),
    Operation.INSERT_OVERWRITE_TABLE: OperationTraits(overwrites=True, action=_REPLACE),
    Operation.DELETE_PARTITION: OperationTraits(removes=True, action=_REPLACE),
    Operation.CLUSTER: OperationTraits(joins=True, action=_REPLACE),
    Operation.COMPACT: OperationTraits(joins=True, shares=True, action=Action.COMPACTION),
}


def operation_of(said: Operation | str) -> Operation:
    """Return the operation of a name, in any letter case.

    Raises:
        InvalidInputError: there is no such operation.
    """
    if isinstance(said, Operation):
        return said
    known = {operation.value: operation for operation in Operation}
    found = known.get(str(said).lower())
    if found is None:
        raise InvalidInputError(
            f"operation {said!r} is not known{nearest(str(said), known)}; give one of {', '.join(known)}"
        )
    return found
