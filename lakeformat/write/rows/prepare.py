"""From the user's rows to rows that know their key and partition; everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather, one_chunk
from lakeformat.errors import InvalidInputError, SchemaMismatchError, nearest
from lakeformat.keys.partition_paths import partition_paths
from lakeformat.keys.record_keys import field_column, record_keys
from lakeformat.merge import MergeRule, folded_rows, latest_rows
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.model.record import IS_DELETED, PARTITION_PATH, RECORD_KEY
from lakeformat.write.rows.delete_marker import DeleteMarker

__all__ = ["ANY_PARTITION", "PrepareSettings", "combine", "prepare", "split_by_partition", "winning"]

#: Stands for the partition of rows that may be in any: all are searched.
ANY_PARTITION = "\0"


@dataclass(frozen=True, slots=True)
class PrepareSettings:
    """How rows of one write become prepared rows.

    Attributes:
        schema: the columns to keep, from `incoming_schema`; empty for deletes, which need keys only.
        keys: how keys and partition paths are made.
        rule: how rows with one key become one.
        search_all: the rows name no partition (deletes without partition columns).
        marker: what else marks a row as a delete; such rows are flagged in ``_hoodie_is_deleted``.
        whole: the key alone identifies a row (global indexes): rows of all partitions stay together in order of
            arrival, under `ANY_PARTITION`, and carry their partition path as a column.
    """

    schema: pa.Schema
    keys: KeySettings
    rule: MergeRule
    search_all: bool = False
    marker: DeleteMarker | None = None
    whole: bool = False

    @property
    def prepared_schema(self) -> pa.Schema:
        """Record key, partition path if rows carry it, the columns kept, the flag of deletes if a marker makes one."""
        flag = [pa.field(IS_DELETED, pa.bool_())] if self.marker and IS_DELETED not in self.schema.names else []
        path = [pa.field(PARTITION_PATH, pa.string())] if self.whole and not self.search_all else []
        return pa.schema([pa.field(RECORD_KEY, pa.string()), *path, *self.schema, *flag])


def prepare(rows: pa.Table, settings: PrepareSettings, generated: pa.Array | None = None) -> Mapping[str, pa.Table]:
    """Partition path -> its rows in order of arrival, with the record key as first column.

    Args:
        generated: the rows' keys in a table whose rows have none of their own.

    Raises:
        SchemaMismatchError: a key, partition or ordering column is missing, or a value does not fit.
        InvalidInputError: a null key, a partition value that cannot be a folder.
    """
    _check_columns(rows.schema, settings)
    _check_values(rows)
    keys = record_keys(rows, settings.keys) if generated is None else generated
    keys = keys if isinstance(keys, pa.ChunkedArray) else pa.chunked_array([keys])
    given = set(rows.schema.names)
    kept = conform(rows.select([name for name in settings.schema.names if name in given]), settings.schema)
    _check_nulls(kept)
    if settings.marker:
        kept = settings.marker.flagged(kept)
    table = kept.add_column(0, settings.prepared_schema.field(0), keys.cast(pa.string()))
    if settings.search_all:
        return {ANY_PARTITION: table} if table.num_rows else {}
    unpartitioned = settings.keys.kind is KeyGeneratorKind.NON_PARTITIONED or not settings.keys.partition_fields
    if settings.whole:
        paths = pa.repeat("", table.num_rows) if unpartitioned else partition_paths(rows, settings.keys)
        table = table.add_column(1, settings.prepared_schema.field(1), paths.cast(pa.string()))
        return {ANY_PARTITION: table} if table.num_rows else {}
    if unpartitioned:
        return {"": table} if table.num_rows else {}
    return split_by_partition(table, partition_paths(rows, settings.keys))


def _check_columns(schema: pa.Schema, settings: PrepareSettings) -> None:
    needed = [("record key", name) for name in settings.keys.record_fields]
    if not settings.search_all:
        needed += [("partition", field.name) for field in settings.keys.partition_fields]
    if settings.rule.ordering:
        needed.append(("ordering", settings.rule.ordering))
    given = set(schema.names)
    for role, name in needed:
        if name.partition(".")[0] not in given and name not in given:
            raise SchemaMismatchError(
                f"the input has no {role} column {name!r}{nearest(name, schema.names)}; add it to the rows"
            )


def _check_values(rows: pa.Table) -> None:
    """Text that is not UTF-8, or a column with broken offsets, would be stored as it is and never read again."""
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
    """Rows of each partition, in order of arrival, partitions by name."""
    if not table.num_rows:
        return {}
    names = paths.dictionary.to_pylist()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    if len(names) == 1:
        return {names[0]: table}
    if len(names) <= np.iinfo(np.int16).max:
        codes = codes.astype(np.int16)  # Short integers are sorted by radix, several times faster.
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    starts = ends - np.diff(ends, prepend=0)
    # A gather from one chunk is several times faster than from many. One gather a partition, and not slices of
    # one for all: a partition that waits long must not keep the others' rows in memory.
    whole = one_chunk(table)
    return {
        name: gather(whole, order[start:end])
        for name, start, end in sorted(zip(names, starts.tolist(), ends.tolist(), strict=True))
        if end > start
    }


def combine(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """One row per key: the greatest ordering value, the later one on a tie (Hudi: combine before write).

    Under a rule that folds, its nulls are filled from the others.
    """
    if rule.folds:
        return folded_rows(rows, RECORD_KEY, _ordering(rows, rule))
    winners = winning(rows, rule)
    return rows if winners is None else gather(rows, winners)


def winning(rows: pa.Table, rule: MergeRule) -> npt.NDArray[np.int64] | None:
    """Positions of the rows that `combine` keeps under a rule that does not fold; None is all."""
    return latest_rows(rows.column(RECORD_KEY), _ordering(rows, rule))


def _ordering(rows: pa.Table, rule: MergeRule) -> pa.ChunkedArray | None:
    return field_column(rows, rule.ordering, "ordering") if rule.ordering else None
