"""Step 1: what is asked, as a value."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from lakeformat.codec.conform import read_schema
from lakeformat.config.read_options import END, FORMAT, TIME_ZONE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, nearest
from lakeformat.model.instant import AsOf, parse_as_of
from lakeformat.model.record import META_COLUMNS
from lakeformat.model.zones import time_zone as zone_named
from lakeformat.predicate import Always, And, Predicate, Where, bind_lenient, bind_where, columns_of
from lakeformat.read.incremental import changed_snapshot
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "ReadQuery",
    "asked_snapshot",
    "asks_for_images",
    "in_zone",
    "of_query_type",
    "question",
    "readable_schema",
    "resolve_query",
    "warn_before_first",
]

_LOG: Final = logging.getLogger("lakeformat.read")


@dataclass(frozen=True)
class ReadQuery:
    """Columns and rows wanted.

    Attributes:
        schema: the columns to return, in order, all nullable.
        predicate: bound to the table's columns; rows it does not select are not returned.
        skipping: whether statistics may rule out files and row groups.
    """

    schema: pa.Schema
    predicate: Predicate
    skipping: bool = True

    def file_columns(self) -> tuple[str, ...]:
        """Columns to read: those wanted and those the filter looks at."""
        return tuple(dict.fromkeys((*self.schema.names, *sorted(columns_of(self.predicate)))))

    def within(self, snapshot: Snapshot) -> ReadQuery:
        """The same of the commits alone whose rows the snapshot gives."""
        if snapshot.changes is None:
            return self
        return replace(self, predicate=And((snapshot.changes.rows, self.predicate)))


def asked_snapshot(engine: Engine, options: Options, as_of: AsOf | None = None) -> Snapshot:
    """The table now, or at the instant that the argument, else the option ``as.of.instant`` names.

    Raises:
        InvalidOptionError: what is named is not an instant.
        TableNotFoundError, UnsupportedTableError, CorruptTableError, InstantNotAvailableError: as `load_snapshot`.
    """
    asked = options.read.as_of if as_of is None else as_of
    if asks_for_images(options):
        raise InvalidOptionError(
            f"{FORMAT}=cdc gives changes, not rows: call changes(images=True) of the table, or read it by "
            'spark.read.format("lakehouse")'
        )
    if options.read.incremental:
        if asked is not None:
            raise InvalidOptionError(f"as.of.instant={asked} beside an incremental query; end its range by {END}")
        return changed_snapshot(engine, options)
    if asked is None:
        snapshot = engine.snapshot()
    else:
        config = engine.store.config()
        instant = parse_as_of(asked, config.zone)
        snapshot = engine.snapshot(instant, config)
        warn_before_first(engine.storage.location, snapshot.timeline, instant)
    return of_query_type(snapshot, options)


def warn_before_first(location: str, timeline: Timeline, as_of: str) -> None:
    """Log a warning where a read asks for a time before the table's first commit: it gets no rows.

    Args:
        timeline: the table's own, not cut at that time.
    """
    first = min(timeline.commit_times, default="")
    if as_of < first:
        _LOG.warning("%s: as of %s is before its first commit %s, so there are no rows", location, as_of, first)


def asks_for_images(options: Options) -> bool:
    """Whether an incremental query wants every change with its images; other queries have no such format."""
    return options.read.images


def in_zone(options: Options, time_zone: str | None) -> Options:
    """Take the zone of conditions from an argument if there is one, else from the option.

    Raises:
        InvalidOptionError: There is no such zone.
    """
    if time_zone is None:
        return options
    if not isinstance(time_zone, str):
        raise InvalidOptionError(f"time_zone is of type {type(time_zone).__name__}; write a region, UTC or +hh:mm")
    zone_named(time_zone)
    return options.with_values(**{TIME_ZONE: time_zone})


def of_query_type(snapshot: Snapshot, options: Options) -> Snapshot:
    """What of the snapshot the query type wants read: all of it, or its base files alone."""
    return snapshot.read_optimized() if options.read.optimized else snapshot


def _shown(options: Options, snapshot: Snapshot) -> Options:
    """The options, where meta columns are shown only if asked for of tables that store none (virtual keys)."""
    if snapshot.config.has_virtual_keys and not options.given("meta_columns"):
        return options.with_values(meta_columns=False)
    return options


def readable_schema(table: pa.Schema, *, meta_columns: bool) -> pa.Schema:
    """What a read of all columns returns: the meta columns first, then the table's."""
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS] if meta_columns else []
    return pa.schema([*meta, *read_schema(table)])


def question(
    snapshot: Snapshot,
    location: str,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
) -> ReadQuery:
    """What options and arguments ask of a snapshot, of all rows that it gives; see `resolve_query`.

    Args:
        location: of the table, for messages.
    """
    table = snapshot.columns(location)
    return resolve_query(table, _shown(options, snapshot), columns=columns, where=where).within(snapshot)


def resolve_query(
    table: pa.Schema,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    pushed: Predicate | None = None,
) -> ReadQuery:
    """Check a question against the table's schema.

    Args:
        columns, where: as arguments; else the options of these names.
        pushed: Spark's filters, which it applies again: what cannot be bound of them is left out.

    Raises:
        InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
    """
    full = readable_schema(table, meta_columns=True)
    wanted = columns if columns is not None else options.read.columns
    if wanted is None:
        schema = readable_schema(table, meta_columns=options.read.meta_columns)
    else:
        schema = pa.schema([full.field(_exact(name, full)) for name in wanted])
        if len(set(schema.names)) < len(schema.names):
            raise InvalidInputError(f"columns={','.join(wanted)} names a column twice; name each once")
    asked = where if where is not None else options.read.where
    blank = asked is None or (isinstance(asked, str) and not asked.strip())
    parts = [] if blank else [bind_where(asked, full, options.read.time_zone or "UTC")]
    if pushed is not None:
        parts.append(bind_lenient(pushed, full))
    predicate = parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else Always(True)
    return ReadQuery(schema, predicate, options.read.skipping)


def _exact(name: str, schema: pa.Schema) -> str:
    if name in schema.names:
        return name
    matches: list[str] = [known for known in schema.names if known.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(each for each in schema.names if each not in META_COLUMNS) or "none"
    raise InvalidInputError(f"unknown column {name!r}{nearest(name, schema.names) or '; the table has ' + known}")
