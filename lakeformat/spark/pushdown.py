"""Reads through the data source whose ordinary filters may skip files.

Spark 4.1 to 4.3 keep one plan of files for all scans of a relation: that of the last scan that pushed filters. A scan
that pushes nothing reads by it, too. A guarded frame stands under a filter that is always true, that Spark pushes
and that no optimizer rule can drop, since it asks a column that nobody else can name: so every scan of it pushes, and
each plan holds the rows of all scans before it (`lakeformat.spark.pushdown`).

A scan can still fail to push, where the session's setting is switched off once plans of a frame were made, or a
session with another setting shares a global view: tasks see the setting, and then read the whole table.

Which rows a relation's scans have asked for so far, where Spark keeps one plan of files for all of them.

Spark 4.1 to 4.3 (``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``) store the plan of the last
pushdown on the relation, and every scan of it that starts later, of whatever query, reads by that plan. So a plan
must hold the rows of all scans that pushed before it, kept here in a file of the planner's disk, under a lock:

- `ask` adds a scan's filter. Then plans that lack it and were made a moment ago by other processes are given time to
  be stored: Spark must store them before this scan's plan, not after it.
- `settle` comes last in planning: a plan that lacks what another scan has asked for meanwhile is made anew.

Whatever goes wrong (no file, a torn one, no locks on this system), the plan is of everything.

What all scans of one relation of Spark (a DataFrame, a view) share: one snapshot, and what they have pushed.
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
from lakeformat.file_system_view.context import Engine
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import parse_as_of
from lakeformat.predicate import Always, And, Or, Predicate
from lakeformat.read.incremental import changed_snapshot
from lakeformat.read.query import asked_snapshot, of_query_type, warn_before_first
from lakeformat.spark.host import asked_engine
from lakeformat.spark.register import PUSHDOWN
from lakeformat.storage import change_scratch, new_scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "EVERYTHING",
    "Asked",
    "Relation",
    "ask",
    "guarded_frame",
    "guarded_schema",
    "is_guarded",
    "is_pushing",
    "keeps_plans_by_scan",
    "new_log",
    "new_relation",
    "open_snapshot",
    "settle",
    "unguarded_schema",
    "unmarked",
    "with_guard",
]

#: The option that marks such a relation; not for users: only under the filter is it right.
_OPTION: Final = "lakeformat.guarded"
#: The relation's last column: 0 in every row.
_COLUMN: Final = "_lakeformat_guard"


def guarded_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """``load(location)`` with these read options (``as.of.instant``, ``columns``, ``where`` …).

    Its ordinary filters leave files out where the session pushes filters (``register(spark, pushdown=True)``, Spark
    4.1 or later); it gives the same rows everywhere. A plan covers everything that was asked of the frame, or of a
    view on it, before: the more different filters, the less each skips, so what is asked often deserves a frame of
    its own.
    """
    frame = spark.read.format("lakehouse").options(**options).option(_OPTION, "true").load(location)
    return frame.where(f"{_COLUMN} is not null").drop(_COLUMN)


def is_guarded(options: Mapping[str, str]) -> bool:
    """Whether `guarded_frame` made the relation that has these options."""
    return any(key.lower() == _OPTION for key in options)


def unmarked(options: Mapping[str, str]) -> dict[str, str]:
    """The options without the mark."""
    return {key: value for key, value in options.items() if key.lower() != _OPTION}


def guarded_schema(schema: StructType) -> StructType:
    """The columns that Spark is told of."""
    return StructType([*schema.fields, StructField(_COLUMN, ByteType())])


def unguarded_schema(schema: StructType) -> StructType:
    """Inverse of `guarded_schema`."""
    return StructType([field for field in schema.fields if field.name != _COLUMN])


def with_guard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the guard's column."""
    return batch.append_column(_COLUMN, pa.array(np.zeros(batch.num_rows, np.int8)))


def is_pushing() -> bool:
    """Whether the query that runs this task belongs to a session that pushes filters; False if that cannot be told."""
    task = TaskContext.get()
    return task is not None and (task.getLocalProperty(PUSHDOWN) or "").lower() == "true"


_LOG: Final = logging.getLogger("lakeformat.spark")
#: So many different filters, then one frame reads everything: each costs planning, and together they skip little.
_MOST: Final = 32
#: Within these seconds Spark has stored a plan that it is sent, plus some for each of its partitions.
_STORED_WITHIN_S: Final = 2.0
_STORED_WITHIN_S_EACH: Final = 0.001

_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked:
    """What a plan must hold.

    Attributes:
        predicate: the rows of all scans so far; None for all rows.
        count: how many different filters that is.
    """

    predicate: Predicate | None
    count: int


EVERYTHING: Final = Asked(None, 0)


@dataclass
class _State:
    """The file's content.

    Attributes:
        asked: filters in the order in which they came, None for everything.
        sent: process id -> when its last plan is stored at the latest (monotonic seconds), and how many filters
            that plan held.
    """

    asked: list[Predicate | None] = field(default_factory=list)
    sent: dict[int, tuple[float, int]] = field(default_factory=dict)

    def all(self) -> Asked:
        """What a plan made now must hold."""
        known = [predicate for predicate in self.asked if predicate is not None]
        return Asked(None if None in self.asked else Or(tuple(known)), len(self.asked))

    def place(self, wanted: Predicate | None) -> int:
        """Where the filter stands, or one for everything; added if neither does."""
        for at, known in enumerate(self.asked):
            if known is None or repr(known) == repr(wanted):
                return at
        self.asked.append(wanted if len(self.asked) < _MOST else None)
        return len(self.asked) - 1

    def stored_by(self, place: int) -> float:
        """When all plans of other processes are stored that lack a filter.

        Spark gives a process its next work after it has read what came of the last: our own is stored.
        """
        return max((t for pid, (t, count) in self.sent.items() if pid != os.getpid() and count <= place), default=0.0)

    def send(self, asked: Asked, partitions: int) -> None:
        """Note this process's plan."""
        now = time.monotonic()
        self.sent = {pid: sent for pid, sent in self.sent.items() if sent[0] > now}
        self.sent[os.getpid()] = (now + _STORED_WITHIN_S + _STORED_WITHIN_S_EACH * partitions, asked.count)


def new_log() -> str | None:
    """Where a new relation's filters are kept, None if they cannot be."""
    try:
        return new_scratch()
    except OSError as error:
        _LOG.warning("files are not skipped by ordinary filters: %s", error)
        return None


def ask(log: str, wanted: Predicate) -> Asked:
    """Say which rows a scan needs, by a bound filter; returns what its plan must hold."""

    def add(state: _State) -> tuple[Asked, float]:
        place = state.place(_narrowing(wanted))
        return state.all(), state.stored_by(place)

    try:
        asked, until = _changed(log, add)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING
    if (wait := until - time.monotonic()) > 0:
        time.sleep(wait)
    return asked


def settle(log: str, asked: Asked, partitions: int) -> Asked:
    """Say that a plan is about to be sent; returns what it must hold: more than asked, and it must be made anew."""

    def send(state: _State) -> Asked:
        now = state.all()
        if now.count == asked.count:
            state.send(asked, partitions)
        return now

    try:
        return _changed(log, send)
    except OSError as error:
        _LOG.warning("files are not skipped by this query's filters: %s", error)
        return EVERYTHING


def _narrowing(wanted: Predicate) -> Predicate | None:
    """The filter without what is always true; None if nothing is left."""
    parts = wanted.operands if isinstance(wanted, And) else (wanted,)
    kept = tuple(part for part in parts if part != Always(True))
    return And(kept) if kept else None


def _changed(log: str, change: Callable[[_State], _T]) -> _T:
    answers: list[_T] = []

    def run(before: bytes) -> bytes:
        state = _read(before)
        answers.append(change(state))
        return pickle.dumps(state)

    change_scratch(log, run)
    return answers[0]


def _read(data: bytes) -> _State:
    """A process that died while it wrote leaves a torn file: nobody knows what was asked, so everything is."""
    try:
        state = pickle.loads(data) if data else _State()  # noqa: S301  Only this user can write there.
    except Exception:
        return _State([None], {0: (time.monotonic() + _STORED_WITHIN_S, 0)})
    assert isinstance(state, _State)  # noqa: S101  What `_changed` writes.
    return state


#: Before every commit.
_NEVER: Final = "0" * 17


@dataclass(frozen=True)
class Relation:
    """Made once, when Spark makes the relation.

    Attributes:
        as_of: the greatest instant time that it knew.
        unseen: times of the commits that were pending then and may have completed since.
        pushed: where its scans' filters are kept (`lakeformat.spark.pushdown`); None if files are not skipped by them.
    """

    as_of: str
    unseen: frozenset[str]
    pushed: str | None


def keeps_plans_by_scan() -> bool:
    """Whether Spark gives each scan the plan made for its own filters: so since it pushes limits."""
    return hasattr(DataSourceReader, "pushLimit")


def new_relation(options: Mapping[str, str]) -> Relation | None:
    """The table as it stands now; None if it cannot be opened, which the first scan then says."""
    try:
        engine, resolved = asked_engine(unmarked(options), reads=True)
        timeline = engine.store.load()
        as_of = resolved["as.of.instant"]
        asked = None if as_of is None else parse_as_of(as_of, engine.store.config().zone)
        if asked is not None:
            warn_before_first(engine.storage.location, timeline, asked)
    except Exception:
        return None
    newest = timeline.newest_time or _NEVER
    shared = is_guarded(options) and hasattr(DataSourceReader, "pushFilters") and not keeps_plans_by_scan()
    return Relation(
        min(asked or newest, newest),
        frozenset(instant.time for instant in timeline.pending_writes),
        new_log() if shared else None,
    )


def open_snapshot(options: Mapping[str, str], relation: Relation | None) -> tuple[Engine, Snapshot, Options]:
    """The relation's snapshot, or that of now."""
    engine, resolved = asked_engine(unmarked(options), reads=True)
    if relation is None:
        return engine, asked_snapshot(engine, resolved), resolved
    if resolved[QUERY_TYPE] == INCREMENTAL:
        changed = changed_snapshot(engine, resolved, as_of=relation.as_of, unseen=relation.unseen)
        return engine, changed, resolved
    pinned = engine.snapshot(relation.as_of, unseen=relation.unseen)
    return engine, of_query_type(pinned, resolved), resolved
