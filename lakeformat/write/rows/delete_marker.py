"""A value of the user's own that marks a row as a delete (Hudi: ``DefaultHoodieRecordPayload``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.merge import deleted_rows, marked_rows
from lakeformat.model.merge_settings import MergeSettings
from lakeformat.model.record import IS_DELETED

__all__ = ["DeleteMarker", "delete_marker", "deleted_rows_of"]

_FIELD: Final = "hoodie.payload.delete.field"
_MARKER: Final = "hoodie.payload.delete.marker"
#: Types whose text is the same in Avro, where Hudi looks, and in Java. Dates are not: Avro holds numbers.
_PLAIN: Final = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """Rows are deletes whose ``field`` reads as ``marker``.

    Attributes:
        field: a column of the input.
        marker: the value as Java writes it: ``D``, ``1``, ``true``, ``0.5``.
    """

    field: str
    marker: str

    def flagged(self, rows: pa.Table) -> pa.Table:
        """The rows with true in ``_hoodie_is_deleted`` where the marker stands; other flags stay as they are."""
        marked = marked_rows(rows.column(self.field), self.marker)
        if IS_DELETED in rows.schema.names:
            at = rows.schema.get_field_index(IS_DELETED)
            return rows.set_column(at, IS_DELETED, pc.if_else(marked, True, rows.column(at)))
        return rows.append_column(IS_DELETED, pc.if_else(marked, True, pa.scalar(None, pa.bool_())))


def delete_marker(
    options: Options, stored: MergeSettings, rows: pa.Schema, table: pa.Schema | None
) -> DeleteMarker | None:
    """The marker of a write's input with the columns ``rows``; None where no row can carry it.

    Args:
        stored: the table may name the same two settings: they then hold for every write.
        table: its columns.

    Raises:
        InvalidOptionError: one of the two options is missing, or contradicts the table.
        SchemaMismatchError: the column is in neither input nor table, or is neither text, number nor boolean.
    """
    field, marker = options[_FIELD], options[_MARKER]
    if stored.delete_field:
        kept = (stored.delete_field, stored.delete_marker)
        if (field or kept[0], marker or kept[1]) != kept:
            raise InvalidOptionError(
                f"options {_FIELD}={field} and {_MARKER}={marker} contradict the table's {kept[0]} and {kept[1]}; "
                "leave them out"
            )
        field, marker = kept
    if not field and not marker:
        return None
    if not field or not marker:
        given, missing = (_FIELD, _MARKER) if field else (_MARKER, _FIELD)
        raise InvalidOptionError(f"option {given} is given without {missing}; give both or neither")
    if field not in rows.names:
        if stored.delete_field or (table is not None and field in table.names):
            return None
        known = [*rows.names, *(table.names if table is not None else ())]
        raise SchemaMismatchError(
            f"the delete field {field!r} of option {_FIELD} is in neither input nor table{nearest(field, known)}; "
            "name a column"
        )
    kind = rows.field(field).type
    if not any(is_plain(kind) for is_plain in _PLAIN):
        raise SchemaMismatchError(
            f"the delete field {field!r} of option {_FIELD} is {kind}; name a column of text, numbers or booleans"
        )
    return DeleteMarker(field, marker)


def deleted_rows_of(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Rows that their ``_hoodie_is_deleted`` column marks."""
    return deleted_rows(rows.column(IS_DELETED) if IS_DELETED in rows.schema.names else None, rows.num_rows)
