"""Collect the facts of a report from what the table's other methods return. Changes nothing.

A section whose facts cannot be had, for instance of a damaged table, gets the reason in place of the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Final, TypeVar

from lakeformat.arrow.conform import reader_schema
from lakeformat.config.clustering_options import SORT_COLUMNS
from lakeformat.config.resolve import Options
from lakeformat.errors import LakeformatError, SchemaMismatchError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.layout.ranks import leaf_type
from lakeformat.read.report import report_layout
from lakeformat.read.scan import list_files_table
from lakeformat.services.cluster.run import find_clustering_params
from lakeformat.services.cluster.settings import ordering_of_options
from lakeformat.services.doctor.describe import Description, describe
from lakeformat.services.doctor.run import DoctorSession
from lakeformat.services.report.facts import ReportFacts, Section
from lakeformat.services.report.growth import TableSize, sizes_over_time
from lakeformat.services.report.service_states import service_states
from lakeformat.timeline.history import History, read_history

__all__ = ["collect_facts"]

#: Maximum number of entries of the history that are read.
_MOST_ENTRIES: Final = 2_000
#: Maximum number of live files of a table that is checked by default: a check costs more than the rest.
_CHECKED_FILES: Final = 20_000
#: Maximum number of columns whose layout is reported, unless the caller names them.
_MOST_COLUMNS: Final = 3
#: Number of rows, and of files, of the sample for the layout.
_SAMPLE_ROWS, _SAMPLE_FILES = 20_000, 256

T = TypeVar("T")


class _Attempts:
    """Calls that may fail, and the reasons why they did."""

    def __init__(self) -> None:
        self.missing: dict[Section, str] = {}

    def attempt(self, section: Section, collect: Callable[[], T], otherwise: T) -> T:
        """Return what `collect` returns; if it fails, note the reason and return ``otherwise``."""
        try:
            return collect()
        except (LakeformatError, FileNotFoundError) as error:
            self.missing[section] = str(error)
            return otherwise


def collect_facts(
    context: TableContext, options: Options, columns: Sequence[str] = (), *, check: bool | None = None
) -> ReportFacts:
    """Collect the facts. Arguments and errors as in `lakeformat.Table.report`."""
    config = context.store.config()
    config.check_readable(context.storage.location)
    attempts = _Attempts()
    facts: dict[str, Any] = {
        "name": config.name,
        "location": context.storage.location,
        "made_at": f"{datetime.fromtimestamp(context.clock.now_ms() / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC",
        "history": attempts.attempt(
            Section.TIMELINE, lambda: read_history(context.store, _MOST_ENTRIES, actions=True), History()
        ),
    }
    nothing: Snapshot | None = None
    snapshot = attempts.attempt(Section.TABLE, context.snapshot, nothing)
    if snapshot is not None:
        facts |= _facts_of_snapshot(context, options, snapshot, tuple(columns), attempts)
    count = snapshot.live.count if snapshot is not None else 0
    if check or (check is None and count <= _CHECKED_FILES):
        findings = attempts.attempt(
            Section.FINDINGS, lambda: DoctorSession(context, options).check(contents=False), None
        )
        facts |= {"findings": findings, "checked": "names, sizes and the timeline; check() reads the rows, too"}
    elif check is None:
        attempts.missing[Section.FINDINGS] = f"a table of {count:,} files is checked on request: report(check=True)"
    else:
        attempts.missing[Section.FINDINGS] = "not checked, as check=False asks"
    return ReportFacts(**facts, missing=attempts.missing)


def _facts_of_snapshot(
    context: TableContext, options: Options, snapshot: Snapshot, columns: tuple[str, ...], attempts: _Attempts
) -> dict[str, Any]:
    nothing: Description | None = None
    description = attempts.attempt(Section.TABLE, lambda: describe(context, options), nothing)
    unknown: tuple[TableSize, ...] = ()
    schema = reader_schema(snapshot.schema) if snapshot.schema is not None else ()
    by = columns or _choose_columns(context, options, snapshot, description)
    facts = {
        "description": description,
        "columns": tuple((field.name, str(field.type)) for field in schema),
        "files": list_files_table(snapshot),
        "sizes": attempts.attempt(Section.SIZES, lambda: _read_sizes(context, snapshot, attempts), unknown),
    }
    if not snapshot.live.count:
        attempts.missing[Section.LAYOUT] = "the table is empty"
    elif not by:
        attempts.missing[Section.LAYOUT] = "no column can be sorted; report(by=...) names columns"
    else:
        facts["layout"] = attempts.attempt(
            Section.LAYOUT,
            lambda: report_layout(context.storage, snapshot, by, sample_rows=_SAMPLE_ROWS, most_files=_SAMPLE_FILES),
            None,
        )
    if description is not None:
        facts["services"] = service_states(context, options, snapshot, description)
    return facts


def _choose_columns(
    context: TableContext, options: Options, snapshot: Snapshot, description: Description | None
) -> tuple[str, ...]:
    """Return the columns whose layout is reported: the sort columns of the options, else of the last clustering.

    If there are none: some columns that can be sorted, first the keys and the ordering columns.
    """
    sorted_by = ordering_of_options(options).columns
    last = description.last_clustering if description is not None else None
    if not sorted_by and last is not None:
        params = find_clustering_params(context.store, snapshot.timeline, last) or {}
        sorted_by = tuple(name.strip() for name in params.get(SORT_COLUMNS, "").split(",") if name.strip())
    if sorted_by or snapshot.schema is None:
        return tuple(sorted_by)
    config, schema = snapshot.config, reader_schema(snapshot.schema)
    first = [*config.record_fields, *config.ordering_fields]
    ordered = dict.fromkeys(name for name in (*first, *schema.names) if name not in config.partition_fields)

    def can_be_sorted(name: str) -> bool:
        try:
            leaf_type(schema, name)
        except SchemaMismatchError:
            return False
        return True

    return tuple([name for name in ordered if can_be_sorted(name)][:_MOST_COLUMNS])


def _read_sizes(context: TableContext, snapshot: Snapshot, attempts: _Attempts) -> tuple[TableSize, ...]:
    """Replay all commits, archived ones too, unless there are too many."""
    store, timeline = context.store, snapshot.timeline
    archive = store.read_archived()
    older = [instant for instant in archive.completed_in("") if instant.time not in timeline.commit_times]
    if (count := len(older) + len(timeline.commits)) > _MOST_ENTRIES:
        attempts.missing[Section.SIZES] = f"{count:,} commits are too many to replay; the limit is {_MOST_ENTRIES:,}"
        return ()
    commits = [*archive.commits(older), *((instant, store.read_commit(instant)) for instant in timeline.commits)]
    return sizes_over_time(sorted(commits, key=lambda pair: (pair[0].completed_at, pair[0].time)))
