"""Versions of records out of log blocks, as columns (Hudi: ``BufferedRecord``).

Memory: the parts themselves, a mask per field that partial updates leave open, and some 30 bytes a version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather, gather_column, joined
from lakeformat.merge.deletes import deleting_rows
from lakeformat.merge.log_records import LogDeletes, LogPart, LogRows
from lakeformat.merge.read_rule import ReadRule
from lakeformat.model.merge_settings import PartialUpdate
from lakeformat.model.record import RECORD_KEY

__all__ = ["Versions", "deletes_whatever", "field_values", "known_values", "versions_of"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Rows and bytes a block, below which blocks are put together: gathering looks at chunk after chunk.
_FEW_ROWS: Final = 1_000
_FEW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of records, the later written ones last.

    Attributes:
        keys: record keys, as text; of rows null where the schema has none, for whoever goes by positions alone.
        ordering: a column for each ordering field; none in commit time.
        deleted: versions that delete.
        listed: deletes that stand in a delete block, and not in a row of data.
        unconditional: deletes that delete whatever was there (Hudi: ``isCommitTimeOrderingDelete``).
        row: where in ``rows`` the version's fields stand, -1 for deletes.
        position: number of the row in the slice's base file that has the key, -1 where nobody says.
        rows: fields.
        known: by column, which of ``rows`` say something of it; a column that is not named here is known in all.
    """

    keys: pa.ChunkedArray
    ordering: tuple[pa.ChunkedArray, ...]
    deleted: Mask
    listed: Mask
    unconditional: Mask
    row: Ints
    position: Ints
    rows: pa.Table
    known: Mapping[str, Mask]

    def __len__(self) -> int:
        """How many versions there are."""
        return len(self.keys)

    @classmethod
    def joined(cls, parts: Sequence[Versions]) -> Versions:
        """All the parts' versions, of which there must be one part at least."""
        first, *others = parts
        if not others:
            return first
        starts = np.cumsum([0, *(part.rows.num_rows for part in parts)])
        rows = [np.where(part.row < 0, -1, part.row + start) for part, start in zip(parts, starts, strict=False)]
        open_fields = dict.fromkeys(name for part in parts for name in part.known)
        table = pa.concat_tables([part.rows for part in parts])
        return cls(
            keys=_put_together([part.keys for part in parts]),
            ordering=tuple(map(_put_together, zip(*(part.ordering for part in parts), strict=True))),
            deleted=np.concatenate([part.deleted for part in parts]),
            listed=np.concatenate([part.listed for part in parts]),
            unconditional=np.concatenate([part.unconditional for part in parts]),
            row=np.concatenate(rows),
            position=np.concatenate([part.position for part in parts]),
            rows=table.combine_chunks() if _in_small_parts(table, len(parts)) else table,
            known={name: np.concatenate([part.knowing(name) for part in parts]) for name in open_fields},
        )

    def knowing(self, name: str) -> Mask:
        """Which of ``rows`` say something of a column."""
        return self.known.get(name, np.ones(self.rows.num_rows, bool))

    def taken(self, at: Ints) -> Versions:
        """The versions at these positions."""
        held = self.row[at]
        held = held[held >= 0]
        return self.of_rows(at, gather(self.rows, held), {name: mask[held] for name, mask in self.known.items()})

    def of_rows(self, at: Ints, rows: pa.Table, known: Mapping[str, Mask]) -> Versions:
        """The versions at these positions, with other rows: those of versions that do not delete, in their order."""
        held = self.row[at] >= 0
        return Versions(
            keys=gather_column(self.keys, at),
            ordering=tuple(gather_column(column, at) for column in self.ordering),
            deleted=self.deleted[at],
            listed=self.listed[at],
            unconditional=self.unconditional[at],
            row=np.where(held, np.cumsum(held) - 1, -1),
            position=self.position[at],
            rows=rows,
            known={name: mask for name, mask in known.items() if not mask.all()},
        )


def versions_of(part: LogPart, rule: ReadRule, schema: pa.Schema, stored: pa.Schema | None = None) -> Versions:
    """The versions that a block holds, in its order.

    Args:
        schema: the columns to keep, those of the rule among them, as the table types them. What a
            block lacks is null, or, in partial updates, unknown.
        stored: the columns as files hold them, of timestamps in milliseconds, which delete blocks give as numbers.

    Raises:
        SchemaMismatchError: a value does not fit its column; names the column.
    """
    if isinstance(part, LogDeletes):
        return _deletes(part, rule, schema, stored or schema)
    return _records(part, rule, schema)


def _deletes(part: LogDeletes, rule: ReadRule, schema: pa.Schema, stored: pa.Schema) -> Versions:
    count = len(part.keys)
    fits = len(part.ordering) == len(rule.ordering)
    values = [
        _of_unit(part.ordering[at], _field_type(stored, name)) if fits else pa.nulls(count)
        for at, name in enumerate(rule.ordering)
    ]
    kinds = pa.schema([pa.field(name, _field_type(schema, name)) for name in rule.ordering])
    ordering = tuple(conform(pa.table(values, names=kinds.names), kinds).columns)
    every = np.ones(count, bool)
    return Versions(
        keys=pa.chunked_array([part.keys], pa.string()),
        ordering=ordering,
        deleted=every,
        listed=every,
        unconditional=every if rule.by_payload else deletes_whatever(ordering, count),
        row=np.full(count, -1),
        position=_positions(part, count),
        rows=schema.empty_table(),
        known={},
    )


def _records(part: LogRows, rule: ReadRule, schema: pa.Schema) -> Versions:
    deleted = deleting_rows(part.rows, rule)
    rows = conform(part.rows, schema)
    ordering = tuple(field_values(rows, name) for name in rule.ordering)
    keys = (
        rows.column(RECORD_KEY)
        if RECORD_KEY in schema.names
        else pa.chunked_array([pa.nulls(len(deleted), pa.string())])
    )
    if deleted.any():
        rows = rows.filter(pa.array(~deleted))
    return Versions(
        keys=keys,
        ordering=ordering,
        deleted=deleted,
        listed=np.zeros(len(keys), bool),
        unconditional=deleted if rule.by_payload else deleted & deletes_whatever(ordering, len(keys)),
        row=np.where(deleted, -1, np.cumsum(~deleted) - 1),
        position=_positions(part, len(keys)),
        rows=rows,
        known=_known(part, rows, rule),
    )


def _positions(part: LogPart, count: int) -> Ints:
    return np.full(count, -1) if part.positions is None else part.positions


def _known(part: LogRows, rows: pa.Table, rule: ReadRule) -> Mapping[str, Mask]:
    """What the rows of a block say. A partial update says all that it holds, nulls, too."""
    if part.is_partial:
        missing = set(rows.schema.names) - set(part.rows.schema.names)
        return {name: np.zeros(rows.num_rows, bool) for name in missing}
    masks = {name: known_values(rows.column(name), rule) for name in rows.schema.names}
    return {name: mask for name, mask in masks.items() if mask is not None}


def known_values(column: pa.ChunkedArray | pa.Array, rule: ReadRule) -> Mask | None:
    """Which values of a whole row count; None if all do (Hudi: ``PartialUpdateHandler``)."""
    if rule.partial is PartialUpdate.IGNORE_DEFAULTS:
        return np.asarray(pc.is_valid(column)) if column.null_count else None
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if text and rule.partial is PartialUpdate.FILL_UNAVAILABLE and rule.unavailable:
        unavailable = pc.fill_null(pc.equal(column, pa.scalar(rule.unavailable).cast(kind)), False)
        if pc.any(unavailable).as_py():
            return ~np.asarray(unavailable).astype(bool)
    return None


def field_values(rows: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
    """A column, or a field of a struct (``a.b``)."""
    if name in rows.schema.names:
        return rows.column(name)
    top, *inner = name.split(".")
    return pc.struct_field(rows.column(top), inner)


def _of_unit(values: pa.Array, stored: pa.DataType) -> pa.Array:
    counted = pa.types.is_timestamp(stored) and pa.types.is_integer(values.type)
    return values.cast(pa.int64()).cast(stored) if counted else values


def _field_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column, or of a field of a struct (``a.b``)."""
    if name in schema.names:
        return schema.field(name).type
    return field_values(schema.empty_table(), name).type


def deletes_whatever(ordering: Sequence[pa.ChunkedArray | pa.Array], count: int) -> Mask:
    """Return which deletes readers of log files take for "delete whatever is there", by their ordering values.

    No ordering field says anything: Hudi's default is null, and the ``Integer`` 0 of a single field.
    """
    found = np.ones(count, bool)
    for column in ordering:
        found &= np.asarray(pc.is_null(column))
    if len(ordering) == 1 and pa.types.is_int32(ordering[0].type):
        found |= np.asarray(pc.fill_null(pc.equal(ordering[0], 0), False)).astype(bool)
    return found


def _in_small_parts(rows: pa.Table, parts: int) -> bool:
    return bool(rows.num_rows < _FEW_ROWS * parts and rows.nbytes < _FEW_BYTES * parts)


def _put_together(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return joined(pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type))
