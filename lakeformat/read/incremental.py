"""Incremental queries: the rows that the commits of a range wrote (Hudi: ``IncrementalRelation``).

The bounds of a range are completion times in timeline layout 2 and instant times in layout 1. The start is exclusive.
Each row is returned as it was at the end of the range, so only the snapshot at the end of the range is read. Its rows
are selected by their commit time, which names the commit that wrote the row last. Clustering and compaction rewrite
rows, but keep their commit times. No older file slice is read, so commits at the start of the range may have been
archived. In slices with log files, base rows and log records are selected by their commit time before they are merged.
So a log record that loses to a row from before the range is in the answer, as in Hudi's.

If a range begins at a commit that has been undone since, `warn_of_undone_commits` logs a warning: the changes do not
include the rows that the rollback or restore brought back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from lakeformat.codec.stored_types import with_operation
from lakeformat.config.read_options import BEGIN, END, FULL_SCAN, HOLES
from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError, InvalidOptionError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.live_files import select_slices
from lakeformat.file_system_view.schema_history import read_schemas
from lakeformat.file_system_view.snapshot import ChangeRange, Snapshot, table_schema
from lakeformat.files.missing_files import CleanedFileError
from lakeformat.model.instant import Action, Moment, parse_as_of
from lakeformat.model.record import COMMIT_TIME
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import Always, And, Comparison, In, Predicate, bind
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import NOW, TableState, Timeline

__all__ = [
    "EVERYTHING",
    "RangeBounds",
    "check_commit_times",
    "cut_before_hollow",
    "incremental_snapshot",
    "parse_range_bounds",
    "warn_of_undone_commits",
]

_LOG: Final = logging.getLogger("lakeformat.read")


def warn_of_undone_commits(store: TimelineStore, whole: Timeline, since: str) -> None:
    """Log a warning if the commit at ``since`` was undone after ``since``.

    A reader that read up to ``since`` has seen the rows of this commit, but the table does not have them any more. The
    commit is found as follows:

    - If a completed commit is at ``since``, no commit at ``since`` was undone, and no file is read.
    - In timeline layout 1, the undone commit must have the instant time ``since``.
    - In timeline layout 2, ``since`` is a completion time, and the completion time of an undone commit is no longer
      stored. So the newest undone commit that began before ``since`` is taken to be the commit at ``since``. If another
      commit completed between the two times, there is no warning.

    Args:
        since: exclusive start of the range; "" for everything.
    """
    if not since or any(commit.completed_at == since for commit in whole.commits):
        return
    for time, by in _find_undone(store, whole, since):
        if time == since or (whole.layout.has_completion_times and not whole.completed_in(time, since)):
            _LOG.warning(
                "the changes of %s begin at %s, at commit %s, which %s has undone since: the changes do not have the "
                "rows that this brought back; read the table again",
                store.storage.location, since, time, by,
            )  # fmt: skip
            return


def _find_undone(store: TimelineStore, whole: Timeline, since: str) -> Iterator[tuple[str, str]]:
    """Yield the newest instant up to `since` that was undone after `since`, and the path of its rollback or restore."""
    paths_of: dict[str, str] = {}
    for instant in whole.of_action(Action.ROLLBACK):
        plan = store.read_rollback_plan(instant) if instant.time > since else None
        if plan is not None:
            paths_of[plan.instant_time] = store.path(instant)
    for instant in whole.of_action(Action.RESTORE):
        restored = store.read_restore_plan(instant) if instant.time > since else None
        for time, _ in restored.instants if restored is not None else ():
            paths_of[time] = store.path(instant)
    yield from sorted(((time, by) for time, by in paths_of.items() if time <= since), reverse=True)[:1]


#: A value of ``since`` that means "from the first commit on". A value of zeros alone means the same.
EVERYTHING: Final = "earliest"
_COMMIT_TIMES: Final = pa.schema([(COMMIT_TIME, pa.string())])


@dataclass(frozen=True, slots=True)
class RangeBounds:
    """A range of commits: after ``since`` ("" for all commits), up to and including ``until`` (None for no end)."""

    since: str
    until: str | None


def incremental_snapshot(
    context: TableContext,
    options: Options,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    state: TableState = NOW,
) -> Snapshot:
    """Return the snapshot at the end of a range of commits. Its `Snapshot.changes` selects the rows of the range.

    Args:
        since, until: exclusive start and inclusive end of the range. By default the options
            ``hoodie.datasource.read.begin.instanttime`` and ``hoodie.datasource.read.end.instanttime``.
        state: the state of the table that the range ends in at the latest.

    Raises:
        InvalidOptionError: there is no ``since``, or a bound is not an instant.
        InstantNotAvailableError: the range ends in the past, and its files have been cleaned away or archived.
        UnsupportedTableError: rows of the table do not hold their commit time.
    """
    config = context.store.config()
    check_commit_times(config, context.storage.location)
    options_read = options.read
    bounds = parse_range_bounds(
        options_read.begin if since is None else since, options_read.end if until is None else until, config
    )
    try:
        return _load_range_end(context, options, config, bounds, state)
    except (FileNotFoundError, CleanedFileError) as error:
        _LOG.info("%s: archived or cleaned while the timeline was read; reading the timeline again", error)
        return _load_range_end(context, options, config, bounds, state)


def _load_range_end(
    context: TableContext,
    options: Options,
    config: TableConfig,
    bounds: RangeBounds,
    state: TableState,
) -> Snapshot:
    loaded = context.timeline(config)  # Load it only once, so that later commits are in neither the range nor the rows.
    whole, held = cut_before_hollow(context, options, state.cut(loaded))
    warn_of_undone_commits(context.store, whole, bounds.since)
    range_read = _make_range(context, whole, bounds)
    times = frozenset(i.time for i in whole.completed_in(bounds.since, bounds.until))
    later = {i.time for i in whole.commits if bounds.until is not None and i.completed_at > bounds.until}
    hidden = replace(state, hidden_times=state.hidden_times | held | later)
    listed = options.read.metadata_table
    try:
        _check_reach(context, whole, bounds)
        snapshot = context.snapshot(hidden, config, times, loaded, use_metadata_table=listed)
    except InstantNotAvailableError as error:
        if not options.read.full_scan:
            raise InstantNotAvailableError(
                f"{error}; or set {FULL_SCAN}=true, which leaves out rows that changed after the range"
            ) from None
        snapshot = context.snapshot(state, config, timeline=loaded, use_metadata_table=listed)
        range_read = replace(range_read, before_merging=False)
    if later and not options.read.end_columns:
        snapshot = _with_newest_columns(context, snapshot, whole)
    glob = options.read.path_glob
    live = snapshot.live if glob is None else select_slices(snapshot.live, glob, context.storage.location)
    return replace(snapshot, live=live, changes=range_read, merges=options.read.merges)


def _with_newest_columns(context: TableContext, snapshot: Snapshot, whole: Timeline) -> Snapshot:
    """Return the snapshot with the table's present columns (Hudi: ``HoodieBaseRelation``)."""
    commits = [(instant.time, context.store.read_commit(instant)) for instant in whole.commits]
    schema = table_schema(context.store, snapshot.config, whole.commits, ())
    if schema is None:
        return snapshot
    if snapshot.has_operations:
        schema = with_operation(schema)
    schemas = read_schemas(context.storage, commits, context.storage.location)
    return replace(snapshot, schema=schema, schemas=schemas)


def parse_range_bounds(since: Moment | None, until: Moment | None, config: TableConfig) -> RangeBounds:
    """Parse the bounds of a range. Raise `InvalidOptionError` if ``since`` is missing or a bound is not an instant."""
    if since is None:
        raise InvalidOptionError(
            'changes need a begin: give since="000" for everything, or since=an instant of history(), after which they '
            f"begin; the option is {BEGIN}"
        )
    everything = isinstance(since, str) and (since.strip().lower() == EVERYTHING or not since.strip().strip("0"))
    return RangeBounds(
        "" if everything else parse_as_of(since, config.zone, name=BEGIN),
        None if until is None or until == "" else parse_as_of(until, config.zone, name=END),
    )


def check_commit_times(config: TableConfig, location: str) -> None:
    """Raise `UnsupportedTableError` if the rows of a table do not hold their commit time."""
    if config.has_virtual_keys:
        raise UnsupportedTableError(
            f"rows of {location} do not hold their commit time (hoodie.populate.meta.fields=false), so there are "
            "no incremental queries of it; read snapshots"
        )


def cut_before_hollow(context: TableContext, options: Options, whole: Timeline) -> tuple[Timeline, frozenset[str]]:
    """Cut the timeline before the oldest pending commit with completed commits after it (only in layout 1).

    If a range went past such a commit, the next range would begin after its instant time, and no range would ever
    return its rows.

    Returns:
        the timeline, in which the completed commits after the pending one count as pending, and the instant times of
        these commits.

    Raises:
        InstantNotAvailableError: there is such a pending commit, and the options say that reads fail then.
    """
    plans = frozenset(context.store.read_clustering_groups(whole).values())
    hollow = whole.hollow_commit(plans)
    if hollow is None:
        return whole, frozenset()
    if options.read.fails_at_holes:
        raise InstantNotAvailableError(
            f"commit {hollow.time} of {context.storage.location} is pending, and later ones have completed; wait for "
            f"it, or set {HOLES}=BLOCK to read up to it"
        )
    held = frozenset(i.time for i in whole.commits if i.time > hollow.time)
    return whole.with_pending(held), held


def _make_range(context: TableContext, whole: Timeline, bounds: RangeBounds) -> ChangeRange:
    inside = whole.completed_in(bounds.since, bounds.until)
    covered = inside[-1].completed_at if inside else bounds.since
    rows: Predicate
    if whole.layout.has_completion_times:
        times = {i.time for i in inside}
        if whole.commits and bounds.since < min(i.completed_at for i in whole.commits):
            times |= {i.time for i in context.store.read_archived().completed_in(bounds.since, bounds.until)}
        rows = In(COMMIT_TIME, tuple(sorted(times))) if times else Always(False)
    else:
        newest = max(whole.commit_times, default=bounds.since)
        last = newest if bounds.until is None else min(bounds.until, newest)
        rows = And((Comparison(COMMIT_TIME, ">", bounds.since), Comparison(COMMIT_TIME, "<=", last)))
    return ChangeRange(bounds.since, max(covered, bounds.since), bind(rows, _COMMIT_TIMES))


def _check_reach(context: TableContext, whole: Timeline, bounds: RangeBounds) -> None:
    """Refuse a range that ends before the active timeline, because the table's files at that time are not known."""
    first = min((i.completed_at for i in whole.commits), default=None)
    if first is None or bounds.until is None or bounds.until >= first or bounds.until <= bounds.since:
        return
    if context.store.read_archived().completed_in("", bounds.until):
        raise InstantNotAvailableError(
            f"the range up to {bounds.until} ends before {first}, the oldest commit on the active timeline of "
            f"{context.storage.location}; end it there or later"
        )
