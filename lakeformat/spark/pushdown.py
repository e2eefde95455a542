"""Reads through the data source whose ordinary filters can skip files, in spite of a defect of Spark 4.1 to 4.3.

**The defect.** Spark 4.1 to 4.3 (``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``) keep one plan
of files for all scans of a relation (a DataFrame, a view): the plan of the last scan that pushed filters. Every scan of
the relation that starts later reads the files of that plan, whatever its query is, even if it pushes no filter.

**The guard.** A guarded frame is under a filter that is always true. Spark pushes this filter, and no optimizer rule
can drop it, because it uses a column that no query can name. So every scan of the frame pushes filters, and each plan
holds the rows of all scans before it. A scan can still push nothing: if the session's setting is switched off after
plans were made, or if a session with another setting shares a global view. Tasks see the setting, and then read the
whole table.

**The log.** The filters that the scans of a relation have pushed so far are in a file on the planner's disk, under a
lock:

- `record_filter` adds a scan's filter. If other processes made plans without this filter a moment ago, the function
  waits until Spark has stored these plans, so that this scan's plan is stored last.
- `confirm_plan` is the last step of planning. If another scan has pushed a filter meanwhile, the plan is made again.

If the log cannot be used (the file is missing or torn, or this system has no locks), the plan holds all rows.

All scans of one relation share a `Relation`: one snapshot and one log.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import ByteType, StructField, StructType

from lakeformat.config.read_options import INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import parse_as_of
from lakeformat.predicate import Always, And, Or, Predicate
from lakeformat.read.incremental import incremental_snapshot
from lakeformat.read.query import apply_query_type, load_requested_snapshot, warn_before_first
from lakeformat.spark.host import requested_context
from lakeformat.storage import change_scratch, make_scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "EVERYTHING",
    "PUSHDOWN",
    "PlannedRows",
    "Relation",
    "confirm_plan",
    "guarded_frame",
    "guarded_schema",
    "is_guarded",
    "is_pushing",
    "keeps_plans_by_scan",
    "new_log",
    "new_relation",
    "open_snapshot",
    "record_filter",
    "unguarded_schema",
    "with_guard",
    "without_mark",
]

#: The setting of Spark that makes it offer filters to Python data sources.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
#: The option that marks a guarded relation. Users must not set it: the relation needs the filter of `guarded_frame`.
_OPTION: Final = "lakeformat.guarded"
#: The relation's last column: 0 in every row.
_COLUMN: Final = "_lakeformat_guard"


def guarded_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """Return the DataFrame of a table, with a guard, for these read options (``as.of.instant``, ``columns`` …).

    Ordinary filters of the frame skip files if the session pushes filters (``register(spark, pushdown=True)``, Spark
    4.1 or later). The rows are the same in every session. Each plan covers all filters that queries of the frame, or of
    a view on it, have used so far. The more different filters there are, the fewer files each filter skips. Therefore
    make a separate frame for a frequent query.
    """
    frame = spark.read.format("lakehouse").options(**options).option(_OPTION, "true").load(location)
    return frame.where(f"{_COLUMN} is not null").drop(_COLUMN)


def is_guarded(options: Mapping[str, str]) -> bool:
    """Tell whether `guarded_frame` made the relation that has these options."""
    return any(key.lower() == _OPTION for key in options)


def without_mark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the option that marks a guarded frame."""
    return {key: value for key, value in options.items() if key.lower() != _OPTION}


def guarded_schema(schema: StructType) -> StructType:
    """Return the columns of a guarded relation: the read's columns and the guard's column."""
    return StructType([*schema.fields, StructField(_COLUMN, ByteType())])


def unguarded_schema(schema: StructType) -> StructType:
    """Return the columns without the guard's column."""
    return StructType([field for field in schema.fields if field.name != _COLUMN])


def with_guard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the guard's column."""
    return batch.append_column(_COLUMN, pa.array(np.zeros(batch.num_rows, np.int8)))


def is_pushing() -> bool:
    """Tell whether the session of the query that runs this task pushes filters; False if that is unknown."""
    task = TaskContext.get()
    return task is not None and (task.getLocalProperty(PUSHDOWN) or "").lower() == "true"


_LOG: Final = logging.getLogger("lakeformat.spark")
#: After this many different filters a frame reads all rows, because each filter costs planning time, and a plan for
#: many filters skips few files.
_MOST: Final = 32
#: Seconds within which Spark stores a plan that it receives, and the seconds to add for each of its partitions.
_STORED_WITHIN_S: Final = 2.0
_STORED_WITHIN_S_EACH: Final = 0.001

_T = TypeVar("_T")


@dataclass(frozen=True)
class PlannedRows:
    """The rows that a plan must hold.

    Attributes:
        predicate: the filters of all scans so far, joined by or; None for all rows.
        count: number of different filters.
    """

    predicate: Predicate | None
    count: int


EVERYTHING: Final = PlannedRows(None, 0)


@dataclass
class _State:
    """The content of the log file.

    Attributes:
        filters: the different filters, oldest first; None means all rows.
        sent: process id -> two values of the last plan that the process sent: the moment by which Spark has stored the
            plan (monotonic seconds), and the number of filters that the plan covers.
    """

    filters: list[Predicate | None] = field(default_factory=list)
    sent: dict[int, tuple[float, int]] = field(default_factory=dict)

    def covered_rows(self) -> PlannedRows:
        """Return the rows that a plan made now must hold."""
        known = [predicate for predicate in self.filters if predicate is not None]
        return PlannedRows(None if None in self.filters else Or(tuple(known)), len(self.filters))

    def place(self, wanted: Predicate | None) -> int:
        """Return the position of the filter, or of None, which covers it. If both are missing, add the filter.

        If there are `_MOST` filters already, None is added instead.
        """
        for at, known in enumerate(self.filters):
            if known is None or repr(known) == repr(wanted):
                return at
        self.filters.append(wanted if len(self.filters) < _MOST else None)
        return len(self.filters) - 1

    def stored_by(self, place: int) -> float:
        """Return the moment by which Spark has stored all plans of other processes that lack the filter at ``place``.

        Plans of this process are stored: Spark reads a process's result before it gives the process more work.
        """
        return max((t for pid, (t, count) in self.sent.items() if pid != os.getpid() and count <= place), default=0.0)

    def send(self, asked: PlannedRows, partitions: int) -> None:
        """Record that this process sends a plan."""
        now = time.monotonic()
        self.sent = {pid: sent for pid, sent in self.sent.items() if sent[0] > now}
        self.sent[os.getpid()] = (now + _STORED_WITHIN_S + _STORED_WITHIN_S_EACH * partitions, asked.count)


def new_log() -> str | None:
    """Make the log of a new relation. Return its path; None if the file cannot be made."""
    try:
        return make_scratch()
    except OSError as error:
        _LOG.warning("files are not skipped by ordinary filters: %s", error)
        return None


def record_filter(log: str, wanted: Predicate) -> PlannedRows:
    """Add the filter of a scan to the log, and return the rows that its plan must hold."""

    def add(state: _State) -> tuple[PlannedRows, float]:
        place = state.place(_drop_true_parts(wanted))
        return state.covered_rows(), state.stored_by(place)

    try:
        asked, until = _change_log(log, add)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING
    if (wait := until - time.monotonic()) > 0:
        time.sleep(wait)
    return asked


def confirm_plan(log: str, asked: PlannedRows, partitions: int) -> PlannedRows:
    """Record that a plan is about to be sent, and return the rows that it must hold.

    If these are more than ``asked``, the caller must make the plan again.
    """

    def send(state: _State) -> PlannedRows:
        now = state.covered_rows()
        if now.count == asked.count:
            state.send(asked, partitions)
        return now

    try:
        return _change_log(log, send)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING


def _drop_true_parts(wanted: Predicate) -> Predicate | None:
    """Return the filter without the parts that are always true; None if no part is left."""
    parts = wanted.operands if isinstance(wanted, And) else (wanted,)
    kept = tuple(part for part in parts if part != Always(True))
    return And(kept) if kept else None


def _change_log(log: str, change: Callable[[_State], _T]) -> _T:
    answers: list[_T] = []

    def run(before: bytes) -> bytes:
        state = _read(before)
        answers.append(change(state))
        return pickle.dumps(state)

    change_scratch(log, run)
    return answers[0]


def _read(data: bytes) -> _State:
    """Return the state in the file. If the file is torn, return a state that covers all rows.

    A process that dies while it writes leaves a torn file. The filters in such a file are unknown.
    """
    try:
        state = pickle.loads(data) if data else _State()  # noqa: S301  Only this user can write the file.
    except Exception:
        return _State([None], {0: (time.monotonic() + _STORED_WITHIN_S, 0)})
    assert isinstance(state, _State)  # noqa: S101  `_change_log` writes nothing else.
    return state


#: An instant time before every commit.
_NEVER: Final = "0" * 17


@dataclass(frozen=True)
class Relation:
    """The facts that all scans of a relation share. A `Relation` is made when Spark makes its relation.

    Attributes:
        as_of: the greatest instant time that the relation knows.
        hidden_times: instant times of the writes that were pending when the relation was made. No scan sees them.
        pushed: path of the log that holds the scans' filters; None if filters do not skip files.
    """

    as_of: str
    hidden_times: frozenset[str]
    pushed: str | None


def keeps_plans_by_scan() -> bool:
    """Tell whether Spark keeps one plan per scan. The releases that do so are those that also push limits."""
    return hasattr(DataSourceReader, "pushLimit")


def new_relation(options: Mapping[str, str]) -> Relation | None:
    """Return the relation of the table as it is now; None if the table cannot be opened (a scan raises the error)."""
    try:
        context, resolved = requested_context(without_mark(options), reads=True)
        timeline = context.store.load()
        as_of = resolved["as.of.instant"]
        asked = None if as_of is None else parse_as_of(as_of, context.store.config().zone)
        if asked is not None:
            warn_before_first(context.storage.location, timeline, asked)
    except Exception:
        return None
    newest = timeline.newest_time or _NEVER
    shared = is_guarded(options) and hasattr(DataSourceReader, "pushFilters") and not keeps_plans_by_scan()
    return Relation(
        min(asked or newest, newest),
        frozenset(instant.time for instant in timeline.pending_writes),
        new_log() if shared else None,
    )


def open_snapshot(options: Mapping[str, str], relation: Relation | None) -> tuple[TableContext, Snapshot, Options]:
    """Return the table, the relation's snapshot and the parsed options. Without a relation take the newest snapshot."""
    context, resolved = requested_context(without_mark(options), reads=True)
    if relation is None:
        return context, load_requested_snapshot(context, resolved), resolved
    if resolved[QUERY_TYPE] == INCREMENTAL:
        changed = incremental_snapshot(context, resolved, as_of=relation.as_of, hidden_times=relation.hidden_times)
        return context, changed, resolved
    pinned = context.snapshot(relation.as_of, hidden_times=relation.hidden_times)
    return context, apply_query_type(pinned, resolved), resolved
