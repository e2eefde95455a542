"""The versions of records in log blocks, as columns (Hudi: ``BufferedRecord``).

A version is one change of a record: its new row, or its deletion. `LogRows` and `LogDeletes` are the content of one
block; `Versions` is the versions of one or more blocks.

Memory: the contents of the blocks, a mask for each column that partial updates do not set, and some 30 bytes per
version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_column, gather, gather_column
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.java import java_text
from lakeformat.errors import UnsupportedTableError
from lakeformat.merge.fields import known_values
from lakeformat.merge.order import field_values, flag_deleted_rows, ordering_columns, sequence_texts
from lakeformat.merge.rules import ReadRule
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY

__all__ = [
    "LogDeletes",
    "LogPart",
    "LogRows",
    "Versions",
    "are_unconditional",
    "deleting_rows",
    "make_versions",
    "marked_rows",
]


@dataclass(frozen=True)
class LogRows:
    """The rows of one data block.

    Attributes:
        instant_time: instant time of the commit that wrote the block.
        rows: the rows, with the columns of the block's own schema, meta columns included.
        is_partial: whether the rows contain only the columns that an update set (Hudi: ``IS_PARTIAL``).
        positions: for each row the number of the base-file row that has its key; None if the block has no positions.
    """

    instant_time: str
    rows: pa.Table
    is_partial: bool = False
    positions: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class LogDeletes:
    """The keys of one delete block.

    Attributes:
        instant_time: instant time of the commit that wrote the block.
        keys: record keys, as text.
        ordering: a column for each ordering field, as long as ``keys``. A key whose ordering value is null is deleted
            unconditionally. If empty, all keys are deleted unconditionally.
        positions: for each key the number of the base-file row that has it; None if the block has no positions.
        names: the ordering fields of ``ordering``; empty if they are not stored. Then they are the table's, in order.
    """

    instant_time: str
    keys: pa.Array
    ordering: tuple[pa.Array, ...] = ()
    positions: npt.NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()

    def in_order_of(self, fields: Sequence[str]) -> tuple[pa.Array, ...]:
        """Return a column for each of the table's ordering fields; none if the table has none.

        Raises:
            UnsupportedTableError: the stored fields are others than the table's.
        """
        if not self.names or not fields:
            return self.ordering
        if sorted(self.names) != sorted(fields):
            raise UnsupportedTableError(
                f"the deletes of instant {self.instant_time} are ordered by {', '.join(self.names)}, the table by "
                f"{', '.join(fields)}; compact the table with Apache Hudi"
            )
        return tuple(self.ordering[self.names.index(name)] for name in fields)


#: The content of one log block.
LogPart: TypeAlias = LogRows | LogDeletes


#: Values of ``_hoodie_operation`` that make a row a delete. ``-U`` is the old row of an update, whose new row follows
#: (Hudi 1.2.0: ``isDeleteHoodieOperation``).
_DELETING: Final = pa.array(["D", "-D", "-U"])


def marked_rows(column: pa.ChunkedArray, marker: str, *, ignores_case: bool = False) -> pa.ChunkedArray:
    """Return a flag per row, never null: whether the column's value, written as text by Java's rules, is the marker.

    Args:
        ignores_case: whether capitals and small letters are the same.
    """
    texts = pa.chunked_array([java_text(chunk) for chunk in column.chunks], pa.string())
    if ignores_case:
        texts, marker = pc.utf8_lower(texts), marker.lower()
    return pc.fill_null(pc.equal(texts, marker), False)


def deleting_rows(rows: pa.Table, rule: ReadRule) -> npt.NDArray[np.bool_]:
    """Return a flag per row: whether ``_hoodie_is_deleted``, ``_hoodie_operation`` or the table's marker deletes it."""
    names = rows.schema.names
    flags = flag_deleted_rows(rows.column(IS_DELETED) if IS_DELETED in names else None, rows.num_rows)
    if OPERATION in names:
        flags |= np.asarray(pc.is_in(rows.column(OPERATION).cast(pa.string()), value_set=_DELETING))
    if rule.delete_field in names:
        flags |= np.asarray(
            marked_rows(rows.column(rule.delete_field), rule.delete_marker, ignores_case=rule.ignores_case)
        )
    return flags


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: If blocks have fewer rows than this on average, and fewer bytes than `_FEW_BYTES`, their rows are copied into one
#: chunk, because many small chunks would make `gather` slow.
_FEW_ROWS: Final = 1_000
#: Limit of the mean number of bytes of a block, for the copy into one chunk that `_FEW_ROWS` describes.
_FEW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of records, in the order in which they were written. Arrays have one entry per version.

    Attributes:
        keys: record keys, as text. If the schema has no key column, because the merge uses only positions, keys of
            data rows are null.
        ordering: a column for each ordering field; empty if the later version always wins (commit time).
        deleted: whether the version is a delete.
        in_delete_block: whether the version is a delete in a delete block, not in a data row.
        unconditional: whether the version is a delete that ignores ordering values (Hudi:
            ``isCommitTimeOrderingDelete``).
        row: position of the version's row in ``rows``; -1 for deletes.
        position: number of the base-file row that has the key; -1 if it is unknown.
        rows: the rows of the versions that are not deletes.
        known: maps a column name to a flag for each of ``rows``: whether it sets the column. Columns that are not in
            the mapping are set by all rows.
    """

    keys: pa.ChunkedArray
    ordering: tuple[pa.ChunkedArray, ...]
    deleted: Mask
    in_delete_block: Mask
    unconditional: Mask
    row: Ints
    position: Ints
    rows: pa.Table
    known: Mapping[str, Mask]

    def __len__(self) -> int:
        """Return the number of record versions."""
        return len(self.keys)

    @classmethod
    def join(cls, parts: Sequence[Versions]) -> Versions:
        """Join several `Versions` into one, in the given order."""
        first, *others = parts
        if not others:
            return first
        starts = np.cumsum([0, *(part.rows.num_rows for part in parts)])
        rows = [np.where(part.row < 0, -1, part.row + start) for part, start in zip(parts, starts, strict=False)]
        open_fields = dict.fromkeys(name for part in parts for name in part.known)
        table = pa.concat_tables([part.rows for part in parts])
        return cls(
            keys=_join_columns([part.keys for part in parts]),
            ordering=tuple(map(_join_columns, zip(*(part.ordering for part in parts), strict=True))),
            deleted=np.concatenate([part.deleted for part in parts]),
            in_delete_block=np.concatenate([part.in_delete_block for part in parts]),
            unconditional=np.concatenate([part.unconditional for part in parts]),
            row=np.concatenate(rows),
            position=np.concatenate([part.position for part in parts]),
            rows=table.combine_chunks() if _has_small_parts(table, len(parts)) else table,
            known={name: np.concatenate([part.known_flags(name) for part in parts]) for name in open_fields},
        )

    def known_flags(self, name: str) -> Mask:
        """Return a flag for each of ``rows``: whether it sets the column."""
        return self.known.get(name, np.ones(self.rows.num_rows, bool))

    def take_versions(self, at: Ints) -> Versions:
        """Return the record versions at these positions."""
        held = self.row[at]
        held = held[held >= 0]
        return self.with_rows(at, gather(self.rows, held), {name: mask[held] for name, mask in self.known.items()})

    def with_rows(self, at: Ints, rows: pa.Table, known: Mapping[str, Mask]) -> Versions:
        """Return the record versions at these positions, with new rows and masks.

        Args:
            rows: one row, in order, for each of these versions that is not a delete.
            known: `Versions.known` of these rows.
        """
        held = self.row[at] >= 0
        return Versions(
            keys=gather_column(self.keys, at),
            ordering=tuple(gather_column(column, at) for column in self.ordering),
            deleted=self.deleted[at],
            in_delete_block=self.in_delete_block[at],
            unconditional=self.unconditional[at],
            row=np.where(held, np.cumsum(held) - 1, -1),
            position=self.position[at],
            rows=rows,
            known={name: mask for name, mask in known.items() if not mask.all()},
        )


def make_versions(part: LogPart, rule: ReadRule, schema: pa.Schema, stored: pa.Schema | None = None) -> Versions:
    """Return the record versions in one log block, in its order.

    Args:
        part: the content of the block.
        rule: the table's read rule.
        schema: the columns to keep, with the table's types. It must include the columns that the rule needs. Columns
            that a block lacks are null; in partial updates they count as not set.
        stored: the columns with the types of the files; ``schema`` by default. Delete blocks store timestamps as
            numbers, whose unit is that of these types.

    Raises:
        SchemaMismatchError: a value does not fit its column; the message names the column.
    """
    if isinstance(part, LogDeletes):
        return _delete_versions(part, rule, schema, stored or schema)
    return _row_versions(part, rule, schema)


def _delete_versions(part: LogDeletes, rule: ReadRule, schema: pa.Schema, stored: pa.Schema) -> Versions:
    count = len(part.keys)
    stored_values = part.in_order_of(rule.ordering)
    fits = len(stored_values) == len(rule.ordering)
    values = [
        _restore_unit(stored_values[number], _field_type(stored, name)) if fits else pa.nulls(count)
        for number, name in enumerate(rule.ordering)
    ]
    kinds = pa.schema([pa.field(name, _field_type(schema, name)) for name in rule.ordering])
    ordering = tuple(conform(pa.table(values, names=kinds.names), kinds).columns)
    if rule.is_sequence:
        ordering = tuple(map(sequence_texts, ordering))
    every = np.ones(count, bool)
    return Versions(
        keys=pa.chunked_array([part.keys], pa.string()),
        ordering=ordering,
        deleted=every,
        in_delete_block=every,
        unconditional=every if rule.by_payload else are_unconditional(ordering, count),
        row=np.full(count, -1),
        position=_positions(part, count),
        rows=schema.empty_table(),
        known={},
    )


def _row_versions(part: LogRows, rule: ReadRule, schema: pa.Schema) -> Versions:
    deleted = deleting_rows(part.rows, rule)
    rows = conform(part.rows, schema)
    ordering = tuple(ordering_columns(rows, rule.ordering, is_sequence=rule.is_sequence))
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
        in_delete_block=np.zeros(len(keys), bool),
        unconditional=deleted if rule.by_payload else deleted & are_unconditional(ordering, len(keys)),
        row=np.where(deleted, -1, np.cumsum(~deleted) - 1),
        position=_positions(part, len(keys)),
        rows=rows,
        known=_known_masks(part, rows, rule),
    )


def _positions(part: LogPart, count: int) -> Ints:
    return np.full(count, -1) if part.positions is None else part.positions


def _known_masks(part: LogRows, rows: pa.Table, rule: ReadRule) -> Mapping[str, Mask]:
    """Return `Versions.known` for the rows of a block. A partial update sets all columns it has, nulls included."""
    if part.is_partial:
        missing = set(rows.schema.names) - set(part.rows.schema.names)
        return {name: np.zeros(rows.num_rows, bool) for name in missing}
    masks = {name: known_values(rows.column(name), rule.partial, rule.unavailable) for name in rows.schema.names}
    return {name: mask for name, mask in masks.items() if mask is not None}


def _restore_unit(values: pa.Array, stored: pa.DataType) -> pa.Array:
    counted = kind_of(stored) is Kind.TIMESTAMP and kind_of(values.type) is Kind.INTEGER
    return values.cast(pa.int64()).cast(stored) if counted else values


def _field_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column, or of a field of a struct (``a.b``)."""
    if name in schema.names:
        return schema.field(name).type
    return field_values(schema.empty_table(), name).type


def are_unconditional(ordering: Sequence[pa.ChunkedArray | pa.Array], count: int) -> Mask:
    """Return a flag per delete: whether it is unconditional, by its ordering values.

    An unconditional delete wins against every earlier version, whatever the ordering values. A delete is unconditional
    if it has Hudi's default ordering value: null in all ordering fields, or, if there is a single ordering field, the
    ``Integer`` 0. A date is compared as its day number, so that 1970-01-01 is 0, too.
    """
    flags = np.ones(count, bool)
    for column in ordering:
        flags &= np.asarray(pc.is_null(column))
    if len(ordering) == 1 and ordering[0].type in {pa.int32(), pa.date32()}:
        flags |= np.asarray(pc.fill_null(pc.equal(ordering[0].cast(pa.int32()), 0), False)).astype(bool)
    return flags


def _has_small_parts(rows: pa.Table, parts: int) -> bool:
    return bool(rows.num_rows < _FEW_ROWS * parts and rows.nbytes < _FEW_BYTES * parts)


def _join_columns(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return combine_column(pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type))
