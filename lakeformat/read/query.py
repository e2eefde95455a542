"""Step 2 of a read (``docs/design/read-path.md``): make the query from the requested columns and condition."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa

from lakeformat.arrow.conform import reader_schema
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.config.read_options import END, FORMAT, TIME_ZONE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, nearest
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import AsOf
from lakeformat.model.record import META_COLUMNS
from lakeformat.model.zones import time_zone as zone_named
from lakeformat.predicate import Always, And, Predicate, Where, bind_lenient, bind_where, columns_of
from lakeformat.predicate.nodes import statistics_paths
from lakeformat.read.incremental import incremental_snapshot
from lakeformat.timeline.timeline import TableState, Timeline
from lakeformat.timeline.versions import find_instant

__all__ = [
    "ReadQuery",
    "apply_query_type",
    "load_requested_snapshot",
    "make_query",
    "readable_schema",
    "resolve_query",
    "wants_images",
    "warn_before_first",
    "with_time_zone",
]

_LOG: Final = logging.getLogger("lakeformat.read")


@dataclass(frozen=True)
class ReadQuery:
    """The columns and rows of a read.

    Attributes:
        schema: the columns to return, in order, all nullable.
        predicate: the condition on rows, bound to the table's columns.
        skipping: whether statistics may rule out files and row groups.
        asks_indexes: whether secondary indexes may rule out files.
    """

    schema: pa.Schema
    predicate: Predicate
    skipping: bool = True
    asks_indexes: bool = False

    @cached_property
    def filter_paths(self) -> tuple[str, ...]:
        """Return the sorted paths of the columns whose bounds can rule out rows."""
        return statistics_paths(self.predicate)

    def file_columns(self) -> tuple[str, ...]:
        """Return the columns to read: those of the result and those of the filter."""
        return tuple(dict.fromkeys((*self.schema.names, *sorted(columns_of(self.predicate)))))

    def narrow(self, table: pa.Schema, columns: Sequence[str] | None = None, where: Where | None = None) -> ReadQuery:
        """Return a query for fewer columns and rows.

        Args:
            table: the table's columns without the meta columns.
            columns: names among those of `schema`; all of them by default.
            where: a further condition on any columns of the table; none by default.

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
        """
        schema, predicate = self.schema, self.predicate
        if columns is not None:
            names = frozenset(schema.names)
            unknown = [name for name in columns if name not in names]
            if unknown:
                raise InvalidInputError(f"unknown column {unknown[0]!r}; this read has {', '.join(schema.names)}")
            schema = pa.schema([schema.field(name) for name in columns])
        if where is not None:
            further = bind_where(where, readable_schema(table, meta_columns=True))
            predicate = further if predicate == Always(True) else And((predicate, further))
        return replace(self, schema=schema, predicate=predicate)

    def restrict_to_range(self, snapshot: Snapshot) -> ReadQuery:
        """Return this query, limited to the rows of the snapshot's range of commits if the snapshot has one."""
        if snapshot.changes is None:
            return self
        return replace(self, predicate=And((snapshot.changes.predicate, self.predicate)))


def load_requested_snapshot(context: TableContext, options: Options, as_of: AsOf | None = None) -> Snapshot:
    """Return the snapshot at ``as_of``, by default at the option ``as.of.instant``, else now.

    Raises:
        InvalidOptionError: the value is neither an instant nor a version number, or the options do not fit together.
        TableNotFoundError, UnsupportedTableError, CorruptTableError, InstantNotAvailableError: as `load_snapshot`.
    """
    requested = options.read.as_of if as_of is None else as_of
    if wants_images(options):
        raise InvalidOptionError(
            f"{FORMAT}=cdc gives changes, not rows: call changes(images=True) of the table, or read it by "
            'spark.read.format("lakehouse")'
        )
    if options.read.incremental:
        if requested is not None:
            raise InvalidOptionError(f"as.of.instant={requested} in an incremental query; end its range by {END}")
        return incremental_snapshot(context, options)
    listed = options.read.metadata_table
    if requested is None:
        snapshot = context.snapshot(use_metadata_table=listed)
    else:
        config = context.store.config()
        instant = find_instant(context.store, requested, config.zone)
        snapshot = context.snapshot(TableState(instant), config, use_metadata_table=listed)
        warn_before_first(context.storage.location, snapshot.timeline, instant)
    return apply_query_type(snapshot, options)


def warn_before_first(location: str, timeline: Timeline, as_of: str) -> None:
    """Log a warning if a read names a time before the table's first commit, because it then gets no rows.

    Args:
        timeline: all active instants of the table, even those after ``as_of``.
    """
    first = min(timeline.commit_times, default="")
    if as_of < first:
        _LOG.warning("%s: as of %s is before its first commit %s, so there are no rows", location, as_of, first)


def wants_images(options: Options) -> bool:
    """Tell whether the options request a query that returns every change, with the rows before and after it."""
    return options.read.images


def with_time_zone(options: Options, time_zone: str | None) -> Options:
    """Return the options with the given time zone; unchanged if it is None.

    Raises:
        InvalidOptionError: there is no such zone.
    """
    if time_zone is None:
        return options
    if not isinstance(time_zone, str):
        raise InvalidOptionError(f"time_zone is of type {type(time_zone).__name__}; write a region, UTC or +hh:mm")
    zone_named(time_zone)
    return options.with_values(**{TIME_ZONE: time_zone})


def apply_query_type(snapshot: Snapshot, options: Options) -> Snapshot:
    """Return the snapshot for the query type and the merge type.

    A read-optimized query reads its base files only. If log files are not merged, all their rows are read.
    """
    snapshot = snapshot if options.read.merges else replace(snapshot, merges=False)
    return snapshot.read_optimized() if options.read.optimized else snapshot


def _hide_meta_columns(options: Options, snapshot: Snapshot) -> Options:
    """Set the option ``meta_columns`` to false if it is not set and the table stores no meta columns."""
    if snapshot.config.has_virtual_keys and not options.is_set("meta_columns"):
        return options.with_values(meta_columns=False)
    return options


def readable_schema(table: pa.Schema, *, meta_columns: bool) -> pa.Schema:
    """Return the columns of a read of all columns: the meta columns first, if wanted, then the table's."""
    columns = reader_schema(table)
    return with_meta_columns(columns) if meta_columns else columns


def make_query(
    snapshot: Snapshot,
    location: str,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
) -> ReadQuery:
    """Make the query for a snapshot as `resolve_query` does, limited to the snapshot's range of commits if it has one.

    Args:
        location: location of the table, for messages.
    """
    table = snapshot.columns(location)
    return resolve_query(table, _hide_meta_columns(options, snapshot), columns=columns, where=where).restrict_to_range(
        snapshot
    )


def resolve_query(
    table: pa.Schema,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    pushed: Predicate | None = None,
) -> ReadQuery:
    """Make a query from options and arguments, and check it against the table's schema.

    Args:
        columns, where: by default the options of these names.
        pushed: Spark's filters. Spark applies them again, so filters that cannot be bound are left out.

    Raises:
        InvalidInputError: a column is not known, or the condition cannot be answered exactly.
    """
    full = readable_schema(table, meta_columns=True)
    asked = columns if columns is not None else options.read.columns
    if asked is None:
        schema = readable_schema(table, meta_columns=options.read.meta_columns)
    else:
        schema = pa.schema([full.field(_find_name(name, full)) for name in asked])
        if len(set(schema.names)) < len(schema.names):
            raise InvalidInputError(f"columns={','.join(asked)} names a column twice; name each once")
    requested = where if where is not None else options.read.where
    blank = requested is None or (isinstance(requested, str) and not requested.strip())
    parts = [] if blank else [bind_where(requested, full, options.read.time_zone or "UTC")]
    if pushed is not None:
        parts.append(bind_lenient(pushed, full))
    predicate = parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else Always(True)
    return ReadQuery(schema, predicate, options.read.skipping, options.read.metadata_table)


def _find_name(name: str, schema: pa.Schema) -> str:
    if name in schema.names:
        return name
    matches: list[str] = [name_here for name_here in schema.names if name_here.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(name_there for name_there in schema.names if name_there not in META_COLUMNS) or "none"
    raise InvalidInputError(f"unknown column {name!r}{nearest(name, schema.names) or '; the table has ' + names}")
