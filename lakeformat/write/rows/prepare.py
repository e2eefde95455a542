"""Preparation of the user's rows: they get their record keys and partition paths, and bad input is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import combine_table, gather, scatter
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.keys.partition_paths import partition_paths
from lakeformat.keys.record_keys import record_keys
from lakeformat.merge import MergeRule, flag_deleted_rows, fold_rows, latest_rows, marked_rows
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.model.merge_settings import MergeSettings
from lakeformat.model.record import IS_DELETED, PARTITION_PATH, RECORD_KEY
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.faults import ASIDE_HINT, find_faults
from lakeformat.write.rows.key_texts import refuse_unclear_keys

__all__ = [
    "ANY_PARTITION",
    "DeleteMarker",
    "PrepareSettings",
    "combine",
    "delete_marker",
    "deleted_rows_of",
    "prepare",
    "split_by_partition",
    "winning_rows",
]

_FIELD: Final = "hoodie.payload.delete.field"
_MARKER: Final = "hoodie.payload.delete.marker"
#: Chunks of the input with at least this many rows of each partition, on average, are divided one by one. Smaller ones
#: are joined first, because each copy of rows takes some time of its own.
_ENOUGH_ROWS: Final = 2048
#: Types that the column of a delete marker may have. Hudi compares the marker with the text of the value in Avro, which
#: for these types is the text of the value in Java. Dates are refused: Avro stores them as numbers, so a marker that is
#: written as a date would never match.
_PLAIN: Final = (Kind.TEXT, Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN)


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """A rule by which a row is a delete if the text of its value in ``field`` equals ``marker``.

    Attributes:
        field: the name of an input column.
        marker: the text of the value as Java writes it: ``D``, ``1``, ``true``, ``0.5``.
        ignores_case: whether the marker counts in capitals and in small letters.
    """

    field: str
    marker: str
    ignores_case: bool = False

    def flag(self, rows: pa.Table) -> pa.Table:
        """Return the rows with ``_hoodie_is_deleted`` true in marked rows. Other rows keep their value, or get null."""
        marked = marked_rows(rows.column(self.field), self.marker, ignores_case=self.ignores_case)
        if IS_DELETED in rows.schema.names:
            position = rows.schema.get_field_index(IS_DELETED)
            return rows.set_column(position, IS_DELETED, pc.if_else(marked, True, rows.column(position)))
        return rows.append_column(IS_DELETED, pc.if_else(marked, True, pa.scalar(None, pa.bool_())))


def delete_marker(
    options: Options, stored: MergeSettings, rows: pa.Schema, table: pa.Schema | None
) -> DeleteMarker | None:
    """Return the delete marker for input with the columns ``rows``; None if no row can be marked.

    Args:
        stored: the table's merge settings. If they name a marker, it applies to every write.
        table: the table's columns; None for a new table.

    Raises:
        InvalidOptionError: if only one of the options for field and marker is given, or if they contradict the table.
        SchemaMismatchError: if the column is in neither input nor table, or is neither text, number nor boolean.
    """
    field, marker = options[_FIELD], options[_MARKER]
    if stored.delete_field:
        stored_pair = (stored.delete_field, stored.delete_marker)
        if (field or stored_pair[0], marker or stored_pair[1]) != stored_pair:
            raise InvalidOptionError(
                f"options {_FIELD}={field} and {_MARKER}={marker} contradict the table's {stored_pair[0]} and "
                f"{stored_pair[1]}; leave them out"
            )
        field, marker = stored_pair
    if not field and not marker:
        return None
    if not field or not marker:
        given, missing = (_FIELD, _MARKER) if field else (_MARKER, _FIELD)
        raise InvalidOptionError(f"option {given} is given without {missing}; give both or neither")
    if field not in rows.names:
        if stored.delete_field or (table is not None and field in table.names):
            return None
        names = [*rows.names, *(table.names if table is not None else ())]
        raise SchemaMismatchError(
            f"the delete field {field!r} of option {_FIELD} is in neither input nor table{nearest(field, names)}; "
            "name a column"
        )
    kind = rows.field(field).type
    if kind_of(kind) not in _PLAIN:
        raise SchemaMismatchError(
            f"the delete field {field!r} of option {_FIELD} is {kind}; name a column of text, numbers or booleans"
        )
    return DeleteMarker(field, marker, stored.ignores_case)


def deleted_rows_of(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose ``_hoodie_is_deleted`` is true."""
    return flag_deleted_rows(rows.column(IS_DELETED) if IS_DELETED in rows.schema.names else None, rows.num_rows)


#: In mappings of partition path to rows, the key of rows that are looked up in all partitions.
ANY_PARTITION = "\0"


@dataclass(frozen=True, slots=True)
class PrepareSettings:
    """Settings for the preparation of a write's input rows: their record keys, partition paths and columns.

    Attributes:
        schema: the columns to store, from `incoming_schema`; empty for deletes, which need only keys.
        keys: settings by which record keys and partition paths are made.
        rule: how rows with the same key are merged.
        searches_all_partitions: whether the rows are looked up in all partitions, because they are deletes without
            partition columns.
        marker: a column value that marks a row as a delete; marked rows are flagged in ``_hoodie_is_deleted``.
        names_aside: whether the error about a bad row names the option that puts such rows aside.
        is_global: whether the key alone identifies a row (global indexes). If so, the rows of all partitions stay in
            one table under `ANY_PARTITION`, in order of arrival, with their partition path as a column.
    """

    schema: pa.Schema
    keys: KeySettings
    rule: MergeRule
    searches_all_partitions: bool = False
    marker: DeleteMarker | None = None
    is_global: bool = False
    names_aside: bool = True

    @property
    def prepared_schema(self) -> pa.Schema:
        """Return the columns of prepared rows.

        They are the record key, the partition path if rows have it as a column, the columns to store, and
        ``_hoodie_is_deleted`` if a marker adds it.
        """
        flag = [pa.field(IS_DELETED, pa.bool_())] if self.marker and IS_DELETED not in self.schema.names else []
        path = [pa.field(PARTITION_PATH, pa.string())] if self.is_global and not self.searches_all_partitions else []
        return pa.schema([pa.field(RECORD_KEY, pa.string()), *path, *self.schema, *flag])


def prepare(
    rows: pa.Table, settings: PrepareSettings, generated: pa.Array | None = None, bad_rows: BadRows | None = None
) -> Mapping[str, pa.Table]:
    """Add record keys to input rows and divide them by partition. Return a mapping of partition path to its rows.

    The rows keep their order, and the record key is their first column. If the rows are looked up in all partitions,
    all of them are under `ANY_PARTITION`.

    Args:
        generated: the record keys of the rows, if the table has no record key fields; else None.
        bad_rows: collects the rows that cannot be written, which are then left out; None refuses them.

    Raises:
        SchemaMismatchError: if a key, partition or ordering column is missing, or a value does not fit its type.
        InvalidInputError: if a key is null, or a partition value cannot be a folder name.
    """
    _check_columns(rows.schema, settings)
    try:
        prepared = _prepare(rows, settings, generated)
    except InvalidInputError as error:
        _prepare(rows.schema.empty_table(), settings, None if generated is None else generated.slice(0, 0))
        if bad_rows is None:
            raise type(error)(f"{error}{ASIDE_HINT * settings.names_aside}") from None
        has_partitions = not settings.searches_all_partitions
        faults = find_faults(rows, settings.schema, settings.keys, has_partitions=has_partitions)
        good = pa.array(bad_rows.take_out(rows, faults))
        prepared = _prepare(rows.take(good), settings, None if generated is None else generated.take(good))
    if bad_rows is not None:
        bad_rows.advance(rows.num_rows)
    return prepared


def _prepare(rows: pa.Table, settings: PrepareSettings, generated: pa.Array | None) -> Mapping[str, pa.Table]:
    _check_values(rows)
    keys = record_keys(rows, settings.keys) if generated is None else generated
    keys = keys if isinstance(keys, pa.ChunkedArray) else pa.chunked_array([keys])
    refuse_unclear_keys(rows, keys, settings.keys)
    given = set(rows.schema.names)
    stored = conform(
        rows.select([name for name in settings.schema.names if name in given]), settings.schema, exact=True
    )
    _check_nulls(stored)
    if settings.marker:
        stored = settings.marker.flag(stored)
    table = stored.add_column(0, settings.prepared_schema.field(0), keys.cast(pa.string()))
    if settings.searches_all_partitions:
        return {ANY_PARTITION: table} if table.num_rows else {}
    unpartitioned = settings.keys.kind is KeyGeneratorKind.NON_PARTITIONED or not settings.keys.partition_fields
    if settings.is_global:
        paths = pa.repeat("", table.num_rows) if unpartitioned else partition_paths(rows, settings.keys)
        table = table.add_column(1, settings.prepared_schema.field(1), paths.cast(pa.string()))
        return {ANY_PARTITION: table} if table.num_rows else {}
    if unpartitioned:
        return {"": table} if table.num_rows else {}
    return split_by_partition(table, partition_paths(rows, settings.keys))


def _check_columns(schema: pa.Schema, settings: PrepareSettings) -> None:
    needed = [("record key", name) for name in settings.keys.record_fields]
    if not settings.searches_all_partitions:
        needed += [("partition", field.name) for field in settings.keys.partition_fields]
    needed += [("ordering", name) for name in settings.rule.ordering]
    given = set(schema.names)
    for role, name in needed:
        if name.partition(".")[0] not in given and name not in given:
            raise SchemaMismatchError(
                f"the input has no {role} column {name!r}{nearest(name, schema.names)}; add it to the rows"
            )


def _check_values(rows: pa.Table) -> None:
    """Refuse columns with invalid UTF-8 or broken offsets, which would be stored unchanged and could not be read."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"column {name!r} holds damaged values ({error}); correct them") from None


def _check_nulls(rows: pa.Table) -> None:
    for field in rows.schema:
        if not field.nullable and rows.column(field.name).null_count:
            raise InvalidInputError(
                f"column {field.name!r} may not be null in this table, and the input has nulls in it"
            )


def split_by_partition(table: pa.Table, paths: pa.DictionaryArray) -> Mapping[str, pa.Table]:
    """Return a mapping of partition path to its rows, in order of arrival. Partition paths are in ascending order."""
    if not table.num_rows:
        return {}
    names = paths.dictionary.to_pylist()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    if len(names) == 1:
        return {names[0]: table}
    if len(names) <= np.iinfo(np.int16).max:
        codes = codes.astype(np.int16)  # numpy sorts short integers by a radix sort, which is several times faster.
    batches = table.to_batches()
    if table.num_rows < _ENOUGH_ROWS * len(names) * len(batches):
        batches = combine_table(table).to_batches()
    # Each partition gets a copy of its rows. If the partitions were views of sorted rows, all rows would stay in memory
    # until the last partition is written.
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in sorted(names)}
    for batch, own in zip(batches, np.split(codes, np.cumsum([len(batch) for batch in batches])[:-1]), strict=True):
        groups = np.split(np.argsort(own, kind="stable"), np.cumsum(np.bincount(own, minlength=len(names)))[:-1])
        for name, rows in zip(names, scatter(batch, groups), strict=True):
            if rows.num_rows:
                parts[name].append(rows)
    return {name: pa.Table.from_batches(rows) for name, rows in parts.items() if rows}


def combine(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Return one row per key: the row with the greatest ordering value, or the later row on a tie.

    Hudi calls this "combine before write". If the rule folds rows (partial updates), fields that this row does not set
    are filled from the other rows.
    """
    if rule.folds:
        return fold_rows(rows, RECORD_KEY, _ordering(rows, rule), rule.partial, rule.unavailable)
    winners = winning_rows(rows, rule)
    return rows if winners is None else gather(rows, winners)


def winning_rows(rows: pa.Table, rule: MergeRule) -> npt.NDArray[np.int64] | None:
    """Return the positions of the rows that `combine` returns if the rule does not fold rows; None for all rows."""
    return latest_rows(rows.column(RECORD_KEY), _ordering(rows, rule))


def _ordering(rows: pa.Table, rule: MergeRule) -> list[pa.ChunkedArray]:
    return list(rule.ordering_columns(rows))
