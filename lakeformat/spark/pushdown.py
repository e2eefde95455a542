"""Filter pushdown into the data source, and a guard against a defect of Spark 4.1 to 4.3 that would lose rows.

**The defect.** A relation is a DataFrame or a view of the data source; each query that uses it scans it. Spark 4.1 to
4.3 (``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``) keep one plan, a list of files, for all
scans of a relation: the plan of the last scan that pushed filters. Every later scan reads the files of that plan,
although its own query may need other files.

**The guard.** A guarded frame has a filter that is always true. Spark pushes this filter, and no optimizer rule can
remove it, because it uses a column that no query can name. So every scan of the frame pushes filters, and each plan
covers the rows of its own scan and of all scans before it.

Two kinds of scan still push nothing: one that runs after the session's setting was switched off, and one of a global
view in a session in which the setting is off. Spark may give such a scan the plan of other scans, which may lack rows.
Therefore tasks read the setting. If it is off, the first task ignores the plan and reads the whole table, and the other
tasks read nothing.

**The log.** A file on the local disk of the planning processes lists the filters that the scans of a relation have
pushed so far. A lock protects it:

- `record_filter` adds a scan's filter. If other processes have just sent plans to Spark that do not cover this filter,
  the function waits until Spark has stored these plans. Otherwise Spark could store one of them after the plan of this
  scan, and the scan would read the files of the wrong plan.
- `confirm_plan` is the last step of planning. If another scan has pushed a new filter since the plan was made, the plan
  must be made again, because it does not cover the new filter.

If the log cannot be used (the file is missing or incomplete, or this system has no file locks), the plan covers all
rows of the table.

All scans of one relation share a `Relation`, which has the snapshot's instant time and the path of the log.
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
from lakeformat.predicate import Always, And, Or, Predicate
from lakeformat.read.incremental import incremental_snapshot
from lakeformat.read.query import apply_query_type, load_requested_snapshot, warn_before_first
from lakeformat.spark.host import requested_context
from lakeformat.spark.verbs import original_verb
from lakeformat.storage import change_scratch, make_scratch
from lakeformat.timeline.timeline import TableState
from lakeformat.timeline.versions import find_instant

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

#: The setting with which Spark passes filters to Python data sources.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
#: The read option that marks a relation made by `guarded_frame`. No other code may set it, because such a relation
#: also needs the always-true filter that `guarded_frame` adds.
_OPTION: Final = "lakeformat.guarded"
#: Name of the guard's column, which `guarded_frame` adds after the table's columns. Its value is 0 in every row, so the
#: guard's filter ``is not null`` is always true.
_COLUMN: Final = "_lakeformat_guard"


def guarded_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """Return a DataFrame of a table whose filters can skip files without the lost rows of Spark 4.1 to 4.3.

    The defect: all queries of a DataFrame or view share one list of files, made for the last scan that pushed filters,
    so a query with another filter may lose rows. An always-true filter of this frame avoids that; see the module.

    Ordinary filters of the frame skip files if the session pushes filters (``register(spark, pushdown=True)``, Spark
    4.1 or later). The rows are the same whether filters are pushed or not.

    Because Spark 4.1 to 4.3 share the list, each new list has the files for all filters that queries of the frame, or
    of a view on it, have used so far. So every further filter adds files to the list, and later queries skip fewer
    files. Therefore make a separate frame for a frequent query.

    Args:
        location: the table's folder or URL.
        options: read options, such as ``as.of.instant`` and ``columns``.
    """
    reader = spark.read.format("lakehouse").options(**options).option(_OPTION, "true")
    frame = original_verb(reader, "load")(location)
    return frame.where(f"{_COLUMN} is not null").drop(_COLUMN)


def is_guarded(options: Mapping[str, str]) -> bool:
    """Tell whether a relation with these options was made by `guarded_frame`."""
    return any(key.lower() == _OPTION for key in options)


def without_mark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the option by which `guarded_frame` marks its relations."""
    return {key: value for key, value in options.items() if key.lower() != _OPTION}


def guarded_schema(schema: StructType) -> StructType:
    """Return the schema of a relation of `guarded_frame`: these columns, then the always-zero guard column."""
    return StructType([*schema.fields, StructField(_COLUMN, ByteType())])


def unguarded_schema(schema: StructType) -> StructType:
    """Return the schema without the column that `guarded_schema` adds."""
    return StructType([field for field in schema.fields if field.name != _COLUMN])


def with_guard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the column that `guarded_schema` adds; its value is 0 in every row."""
    return batch.append_column(_COLUMN, pa.array(np.zeros(batch.num_rows, np.int8)))


def is_pushing() -> bool:
    """Tell whether the session whose query runs this task pushes filters. Return False outside of a task."""
    task = TaskContext.get()
    return task is not None and (task.getLocalProperty(PUSHDOWN) or "").lower() == "true"


_LOG: Final = logging.getLogger("lakeformat.spark")
#: Maximum number of different filters of a relation. If scans push more filters, each further plan covers all rows: a
#: plan for many filters skips few files, but every filter costs planning time.
_MOST: Final = 32
#: Seconds within which Spark stores a plan without partitions, counted from the time at which a process sends it.
_STORED_WITHIN_S: Final = 2.0
#: Seconds to add to `_STORED_WITHIN_S` for each partition of the plan.
_STORED_WITHIN_S_EACH: Final = 0.001

_T = TypeVar("_T")


@dataclass(frozen=True)
class PlannedRows:
    """The rows that the files of a scan's plan must cover.

    Attributes:
        predicate: the filters of all scans so far, combined by OR. The plan must cover the rows for which it is true;
            None means all rows.
        count: number of different filters that the scans had pushed when ``predicate`` was made.
    """

    predicate: Predicate | None
    count: int


#: The `PlannedRows` of a plan that covers all rows of the table.
EVERYTHING: Final = PlannedRows(None, 0)


@dataclass
class _State:
    """The content of a relation's filter log: the file on the local disk that lists the filters of its scans.

    Attributes:
        filters: the different filters that scans have pushed, oldest first; an entry None means that plans must cover
            all rows.
        sent: mapping of process id to two facts about the last plan that the process sent to Spark: the time by which
            Spark has stored the plan (monotonic seconds), and the number of filters that the plan covers.
    """

    filters: list[Predicate | None] = field(default_factory=list)
    sent: dict[int, tuple[float, int]] = field(default_factory=dict)

    def covered_rows(self) -> PlannedRows:
        """Return the rows that a new plan must cover: those that any of the filters selects."""
        predicates = [predicate for predicate in self.filters if predicate is not None]
        return PlannedRows(None if None in self.filters else Or(tuple(predicates)), len(self.filters))

    def place(self, wanted: Predicate | None) -> int:
        """Return the index of the filter ``wanted`` in ``filters``. If the list does not have the filter, append it.

        An entry None means all rows, so its index is returned if it comes before the filter. If there are `_MOST`
        filters already, None is appended instead of the filter.
        """
        for number, recorded in enumerate(self.filters):
            if recorded is None or repr(recorded) == repr(wanted):
                return number
        self.filters.append(wanted if len(self.filters) < _MOST else None)
        return len(self.filters) - 1

    def stored_by(self, place: int) -> float:
        """Return the time by which Spark has stored all plans of other processes that do not cover this filter.

        Plans that this process sent are stored already: Spark reads a plan before it gives the process more work.

        Args:
            place: the index of the filter in ``filters``.

        Returns:
            monotonic seconds; 0 if there are no such plans.
        """
        return max((t for pid, (t, count) in self.sent.items() if pid != os.getpid() and count <= place), default=0.0)

    def send(self, asked: PlannedRows, partitions: int) -> None:
        """Record that this process now sends a plan to Spark, and by when Spark has stored the plan.

        Args:
            asked: the rows that the plan covers.
            partitions: number of the plan's partitions.
        """
        now = time.monotonic()
        self.sent = {pid: sent for pid, sent in self.sent.items() if sent[0] > now}
        self.sent[os.getpid()] = (now + _STORED_WITHIN_S + _STORED_WITHIN_S_EACH * partitions, asked.count)


def new_log() -> str | None:
    """Create the file of a new relation's filter log. Return its path; None if the file cannot be created."""
    try:
        return make_scratch()
    except OSError as error:
        _LOG.warning("files are not skipped by ordinary filters: %s", error)
        return None


def record_filter(log: str, wanted: Predicate) -> PlannedRows:
    """Add a scan's filter to the relation's filter log, and return the rows that the scan's plan must cover.

    Wait until Spark has stored the plans of other processes that do not cover the filter. If the log cannot be used,
    return `EVERYTHING`.

    Args:
        log: path of the filter log.
        wanted: the filter.
    """

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
    """Record that a plan is sent to Spark now. If scans have added filters since it was made, record nothing.

    Args:
        log: path of the relation's filter log.
        asked: the rows that the plan covers.
        partitions: number of the plan's partitions.

    Returns:
        the rows that the plan must cover now. If their ``count`` differs from that of ``asked``, the caller must make
        the plan again.
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


def _drop_true_parts(predicate: Predicate) -> Predicate | None:
    """Return the filter without the operands of its AND that are always true; None if no operand is left."""
    parts = predicate.operands if isinstance(predicate, And) else (predicate,)
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
    """Parse the file of a filter log. If it is incomplete, return a state in which plans must cover all rows.

    A process that dies while it writes the file leaves it incomplete. The filters that it listed are unknown then.
    """
    try:
        state = pickle.loads(data) if data else _State()  # noqa: S301  Safe: only this user can write the file.
    except Exception:
        return _State([None], {0: (time.monotonic() + _STORED_WITHIN_S, 0)})
    assert isinstance(state, _State)  # noqa: S101  `_change_log` pickles only `_State`.
    return state


#: An instant time that is earlier than every commit; used for a table without commits.
_NEVER: Final = "0" * 17


@dataclass(frozen=True)
class Relation:
    """The snapshot that all scans of a Spark relation read, and the file that lists the filters they have pushed.

    A `Relation` is made once, when Spark creates its relation for a DataFrame or view.

    Attributes:
        state: the state that all scans read. The writes that were pending when the relation was made are hidden: no
            scan reads their rows, even if they complete later.
        pushed: path of the filter log: the file that lists the filters. None in three cases: `guarded_frame` did not
            make the relation, or this Spark keeps a plan for each scan, or the file could not be created.
    """

    state: TableState
    pushed: str | None


def keeps_plans_by_scan() -> bool:
    """Tell whether this Spark keeps a plan for each scan of a relation, and so does not have the defect of 4.1 to 4.3.

    The releases without the defect are recognized by another feature that they have: they push limits into Python data
    sources.
    """
    return hasattr(DataSourceReader, "pushLimit")


def new_relation(options: Mapping[str, str]) -> Relation | None:
    """Return the relation for the table as it is now. If the table cannot be opened, return None: a scan will raise."""
    try:
        context, resolved = requested_context(without_mark(options), reads=True)
        timeline = context.store.load()
        as_of = resolved["as.of.instant"]
        asked = None if as_of is None else find_instant(context.store, as_of, context.store.config().zone)
        if asked is not None:
            warn_before_first(context.storage.location, timeline, asked)
    except Exception:
        return None
    newest = timeline.newest_time or _NEVER
    shared = is_guarded(options) and hasattr(DataSourceReader, "pushFilters") and not keeps_plans_by_scan()
    hidden = frozenset(instant.time for instant in timeline.pending_writes)
    return Relation(TableState(min(asked or newest, newest), hidden), new_log() if shared else None)


def open_snapshot(options: Mapping[str, str], relation: Relation | None) -> tuple[TableContext, Snapshot, Options]:
    """Return the table, the snapshot to read and the parsed options.

    Args:
        options: the options of the read; a time or query type in them is applied.
        relation: its snapshot is read. If it is None, the options select the snapshot; by default the newest commit.
    """
    context, resolved = requested_context(without_mark(options), reads=True)
    if relation is None:
        return context, load_requested_snapshot(context, resolved), resolved
    if resolved[QUERY_TYPE] == INCREMENTAL:
        changed = incremental_snapshot(context, resolved, state=relation.state)
        return context, changed, resolved
    listed = resolved.read.metadata_table
    pinned = context.snapshot(relation.state, use_metadata_table=listed)
    return context, apply_query_type(pinned, resolved), resolved
