"""The write operations (Hudi: ``WriteOperationType``) and their traits, such as whether they look up keys."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.errors import InvalidInputError, nearest
from lakeformat.model.instant import Action
from lakeformat.public import public

__all__ = ["Operation", "OperationTraits", "operation_of"]


@public
class Operation(enum.Enum):
    """A write operation."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"
    CLUSTER = "cluster"
    COMPACT = "compact"
    ALTER_SCHEMA = "alter_schema"

    @property
    def traits(self) -> OperationTraits:
        """Return the traits of the operation, such as whether it looks up keys."""
        return _TRAITS[self]

    @property
    def needs_tagging(self) -> bool:
        """Tell whether the write looks up the keys of its rows in the table, to find which file groups have them."""
        return self.traits.needs_tagging

    @property
    def uses_existing_groups(self) -> bool:
        """Tell whether rows may be written to existing file groups. If not, the write creates only new file groups."""
        return self.traits.uses_existing_groups

    @property
    def is_overwrite(self) -> bool:
        """Tell whether the rows of the write replace all earlier rows of their partitions, or of the whole table."""
        return self.traits.is_overwrite

    @property
    def allows_appends(self) -> bool:
        """Tell whether other writers may append to the same file groups while the write runs.

        This is true for compactions only: the appended log files belong to the file slices that the compaction begins,
        so they do not conflict with it.
        """
        return self.traits.allows_appends

    @property
    def has_no_rows(self) -> bool:
        """Tell whether the write stores no rows. Then it cannot add columns to the table."""
        return self.traits.has_no_rows

    @property
    def action(self) -> Action:
        """Return the timeline action of the write's instant."""
        return self.traits.action


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTraits:
    """The traits of one operation; the properties of `Operation` describe them.

    Attributes:
        is_service: whether lakeformat alone starts the operation: it takes no rows of a caller.
    """

    needs_tagging: bool = False
    uses_existing_groups: bool = False
    is_overwrite: bool = False
    allows_appends: bool = False
    has_no_rows: bool = False
    is_service: bool = False
    action: Action = Action.COMMIT


_REPLACE: Final = Action.REPLACE_COMMIT
_TRAITS: Final[Mapping[Operation, OperationTraits]] = {
    Operation.UPSERT: OperationTraits(needs_tagging=True, uses_existing_groups=True),
    Operation.INSERT: OperationTraits(uses_existing_groups=True),
    Operation.BULK_INSERT: OperationTraits(),
    Operation.DELETE: OperationTraits(needs_tagging=True, uses_existing_groups=True, has_no_rows=True),
    Operation.INSERT_OVERWRITE: OperationTraits(is_overwrite=True, action=_REPLACE),
    Operation.INSERT_OVERWRITE_TABLE: OperationTraits(is_overwrite=True, action=_REPLACE),
    Operation.DELETE_PARTITION: OperationTraits(has_no_rows=True, action=_REPLACE),
    Operation.CLUSTER: OperationTraits(uses_existing_groups=True, is_service=True, action=_REPLACE),
    Operation.ALTER_SCHEMA: OperationTraits(has_no_rows=True, is_service=True),
    Operation.COMPACT: OperationTraits(
        uses_existing_groups=True, allows_appends=True, is_service=True, action=Action.COMPACTION
    ),
}


def operation_of(value: Operation | str) -> Operation:
    """Return the operation that writes rows with the name ``value``, in any letter case.

    Raises:
        InvalidInputError: There is no operation of that name, or it writes no rows of the caller.
    """
    operations = {operation.value: operation for operation in Operation if not operation.traits.is_service}
    name = value.value if isinstance(value, Operation) else str(value).lower()
    operation = operations.get(name)
    if operation is None:
        raise InvalidInputError(
            f"operation {name!r} is not one that writes rows{nearest(name, operations)}; give one of "
            f"{', '.join(operations)}"
        )
    return operation
