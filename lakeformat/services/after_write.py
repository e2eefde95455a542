"""Table services that options request after each write (Hudi: ``BaseHoodieWriteClient.runTableServicesInline``).

They run after the write is published and its lock is released. If a service fails, the write stays complete: the error
is logged, and the service is tried again after the next write. A compaction is due by the rule of Hudi's
``ScheduleCompactionActionExecutor.needCompact``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Final

import pyarrow as pa

from lakeformat.beside.verbs import sync_after_commit, sync_result
from lakeformat.catalog.verbs import check_catalogs, register_result
from lakeformat.config import compaction_options as compaction
from lakeformat.config.clustering_options import INLINE, INLINE_COMMITS, SCHEDULE_INLINE
from lakeformat.config.compaction_options import COMPACTION_COMMITS, INLINE_SECONDS, TRIGGER
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import ARCHIVES, CLEANS, expires_inline, make_expiry
from lakeformat.errors import InvalidOptionError, LockTimeoutError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import Action, State, format_instant_time
from lakeformat.model.table_config import TableType
from lakeformat.public import public
from lakeformat.services.archive.run import ArchiveSession
from lakeformat.services.clean.plan import choose_retention
from lakeformat.services.clean.run import CleanSession, Deleter
from lakeformat.services.cluster.run import (
    ClusterSession,
    Rewriter,
    index_binds_rows,
    list_pending_clusterings,
    make_cluster_request,
)
from lakeformat.services.compact.plan import are_all_marked, may_run, may_show_outgrown
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compact.run import CompactSession, list_pending_compactions
from lakeformat.services.job_check import check_job
from lakeformat.services.ttl import ExpireSession
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.write_report import REPORT_KEY
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.claims import HEARTBEATS
from lakeformat.transaction.order.commit_order import order_of

__all__ = [
    "Executors",
    "ServiceHost",
    "Trigger",
    "check_services",
    "commits_since_clustering",
    "is_due",
    "run_due_services",
    "run_services_after_write",
]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Options that decide when a compaction after a write is due.

    Attributes:
        strategy: Hudi's name of the rule that combines the two limits below; a key of `_RULES`.
        commits: a compaction is due after this many deltacommits since the last compaction.
        seconds: a compaction is due this many seconds after the last compaction, or after the first deltacommit if
            there was no compaction.
    """

    strategy: str
    commits: int
    seconds: int

    @classmethod
    def of_options(cls, options: Options) -> Trigger:
        """Return the compaction trigger that the options set."""
        return cls(options[TRIGGER], options[COMPACTION_COMMITS], options[INLINE_SECONDS])


def is_due(trigger: Trigger, timeline: Timeline, now_ms: int, zone: tzinfo | None) -> bool:
    """Tell whether a compaction is due now.

    Args:
        zone: time zone of the timeline's instant times; None is the zone of this process.
    """
    compacted = max((instant.time for instant in timeline.commits if instant.action is Action.COMMIT), default=None)
    plans = (instant.time for instant in timeline.pending if instant.action is Action.COMPACTION)
    requested = max((*plans, compacted or ""), default="")
    deltas = [instant for instant in timeline.of_action(Action.DELTA_COMMIT) if instant.state is State.COMPLETED]
    since = compacted or min((instant.time for instant in deltas), default=None)
    if since is None:
        return False
    count = sum(instant.completed_at > (compacted or "") for instant in deltas)
    elapsed = _parse_instant(format_instant_time(now_ms, zone)) - _parse_instant(since)
    by_count, by_time = count >= trigger.commits, elapsed.total_seconds() >= trigger.seconds
    after_request = sum(instant.completed_at > requested for instant in deltas) >= trigger.commits
    return _RULES[trigger.strategy](by_count, by_time, after_request)


_RULES: Final[Mapping[str, Callable[[bool, bool, bool], bool]]] = {
    "NUM_COMMITS": lambda by_count, by_time, after_request: by_count,
    "NUM_COMMITS_AFTER_LAST_REQUEST": lambda by_count, by_time, after_request: after_request,
    "TIME_ELAPSED": lambda by_count, by_time, after_request: by_time,
    "NUM_AND_TIME": lambda by_count, by_time, after_request: by_count and by_time,
    "NUM_OR_TIME": lambda by_count, by_time, after_request: by_count or by_time,
}


def _parse_instant(instant_time: str) -> datetime:
    return datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S")


_LOG: Final = logging.getLogger("lakeformat.services")


def _wants_clustering(options: Options) -> bool:
    return bool(options[INLINE] or options[SCHEDULE_INLINE])


def _wants_compaction(options: Options) -> bool:
    return bool(options[compaction.INLINE] or options[compaction.SCHEDULE_INLINE])


def check_services(storage: Storage, options: Options, snapshot: Snapshot, schema: pa.Schema) -> None:
    """Check the options of the services that run after a write. Called before the write starts.

    Args:
        snapshot: the table before the write.
        schema: the table's columns after the write.

    Raises:
        InvalidOptionError: an option cannot be used, or clustering is requested for a table with a bucket index
            whose buckets are fixed.
        InvalidInputError, SchemaMismatchError: a sort column is missing, or its type cannot be sorted.
    """
    check_job(options)
    check_catalogs(options, schema)
    if not _wants_clustering(options):
        return
    if index_binds_rows(storage, options, snapshot):
        raise InvalidOptionError(
            f"hoodie.index.type=BUCKET finds rows by the names of their files, which clustering changes; leave out "
            f"{INLINE if options[INLINE] else SCHEDULE_INLINE}"
        )
    make_cluster_request(options).ordering.check(schema)


@dataclass(frozen=True, slots=True)
class Executors:
    """Functions that rewrite or delete a service's files in other processes. For None, this process does the work."""

    rewriter: Rewriter | None = None
    compactor: Compactor | None = None
    deleter: Deleter | None = None


def run_due_services(
    context: TableContext, options: Options, executors: Executors | None = None, *, since: str = "~"
) -> dict[str, Any] | None:
    """Run the services that are due: compaction, clustering, expiry of partitions, cleaning, archiving, in this order.

    Args:
        since: instant time of the write; "~" if it is not known.

    Returns:
        A mapping of service name to a text that says what the service did, for the write's report; None if no service
        was due.
    """
    if not options.write.runs_services:
        return None
    executors = executors or Executors()
    if not order_of(context.store).is_alone:  # Another process that holds the lock is doing the same work.
        options = options.with_values(**{"hoodie.write.lock.wait_time_ms": 0})
    results: dict[str, Any] = {}
    loaded: list[Timeline] = []

    def newest() -> Timeline:
        if results or not loaded:  # A service has changed the timeline.
            loaded[:] = [context.store.load()]
        return loaded[0]

    def cleaned() -> Timeline | None:
        """Return the timeline before the clean; None if a clean was not the only service that changed it."""
        return loaded[0] if loaded and results.keys() == {"clean"} else None

    services: list[tuple[str, Callable[[], str | None]]] = []
    auto = compaction.AutoCompaction.of(options.__getitem__, options.is_set)
    if auto.is_on:
        services.append(("compaction", lambda: _compact_outgrown(context, options, auto, executors.compactor)))
    elif _wants_compaction(options):
        services.append(("compaction", lambda: _compact(context, options, executors.compactor)))
    if _wants_clustering(options):
        services.append(("clustering", lambda: _cluster(context, options, executors.rewriter)))
    if expires_inline(options):
        services.append(("expiry", lambda: _expire(context, options)))
    if options[CLEANS]:
        services.append(("clean", lambda: _clean(context, options, executors.deleter, newest(), since)))
    if options[ARCHIVES]:
        services.append(("archive", lambda: _archive(context, options, newest, cleaned())))
    for name, run in services:
        try:
            text = run()
        except LockTimeoutError as error:
            _LOG.info("%s after the write is left to another process: %s", name, error)
            text = None
        except Exception as error:  # Do not raise: the write itself is published.
            _LOG.warning(
                "%s after the write failed, the write itself is complete: %s: %s", name, type(error).__name__, error
            )
            text = f"failed: {type(error).__name__}: {error}"
        if text is not None:
            results[name] = text
    return results or None


def _expire(context: TableContext, options: Options) -> str | None:
    result = ExpireSession(context, options, make_expiry(options)).run()
    return None if result.skipped else str(result)


def _clean(
    context: TableContext, options: Options, deleter: Deleter | None, newest: Timeline, since: str
) -> str | None:
    session, retention = CleanSession(context, options, deleter), choose_retention(options)
    if not session.may_be_due(retention, newest, since):
        return None
    result = session.clean(retention, only_if_due=True, newest=newest)
    return None if result.skipped else str(result)


def _archive(
    context: TableContext, options: Options, newest: Callable[[], Timeline], cleaned: Timeline | None
) -> str | None:
    """Archive what is due.

    Args:
        cleaned: the timeline before a clean that has just run; it tells in most cases that nothing is due.
    """
    session = ArchiveSession(context, options)
    if (cleaned is not None and not session.may_be_due(cleaned, added=1)) or not session.may_be_due(newest()):
        return None
    result = session.archive(checks_first=True)
    return None if result.skipped else str(result)


def _cluster(context: TableContext, options: Options, rewriter: Rewriter | None) -> str | None:
    if commits_since_clustering(context.store) < options[INLINE_COMMITS]:
        return None
    session = ClusterSession(context, options, rewriter)
    if options[INLINE]:
        return str(session.cluster(make_cluster_request(options)))
    planned = session.schedule(make_cluster_request(options))
    return f"scheduled {planned}" if planned else "nothing to schedule"


def _compact(context: TableContext, options: Options, compactor: Compactor | None) -> str | None:
    """Run the pending compactions, then run or schedule a compaction if one is due.

    Source: Hudi's ``runAnyPendingCompactions``, then ``inlineCompaction``; or ``inlineScheduleCompaction``.
    """
    config = context.store.config()
    if config.table_type is not TableType.MERGE_ON_READ:
        return None
    results = []
    if options[compaction.INLINE]:
        while not (result := CompactSession(context, options, compactor).run()).skipped:
            results.append(str(result))
    timeline = context.store.load()
    if is_due(Trigger.of_options(options), timeline, context.clock.now_ms(), config.zone):
        if options[compaction.INLINE]:
            results.append(str(CompactSession(context, options, compactor).run(plans=True)))
        elif not list_pending_compactions(context.store, timeline):
            planned = CompactSession(context, options, compactor).schedule()
            results.append(f"scheduled {planned}" if planned else "nothing to schedule")
    return "; ".join(results) or None


def _compact_outgrown(
    context: TableContext, options: Options, auto: compaction.AutoCompaction, compactor: Compactor | None
) -> str | None:
    """Compact file slices whose log files have become too many or too large.

    Return a text that says what was compacted; None if nothing was.

    If other programs have commits on the timeline, nothing is compacted, because these programs may have their own
    rules for compaction.
    """
    if context.store.known_config.table_type is not TableType.MERGE_ON_READ:
        return None
    store, timeline = context.store, context.store.load()
    deltas = [instant for instant in timeline.commits if instant.action is Action.DELTA_COMMIT]
    pending = [
        (instant, store.read_compaction_plan(instant) if instant.action is Action.COMPACTION else None)
        for instant in timeline.pending
    ]
    if not deltas or not may_run(pending):
        return None
    if not pending and not may_show_outgrown(store.read_commit(deltas[-1]), auto):
        return None
    if not are_all_marked(map(store.read_commit, timeline.commits), REPORT_KEY) or context.storage.list(HEARTBEATS):
        return None
    result = CompactSession(context, options.with_values(**auto.as_options()), compactor).run(plans=True)
    return None if result.skipped else str(result)


def run_services_after_write(
    result: WriteResult, context: TableContext, options: Options, executors: Executors | None = None
) -> WriteResult:
    """Run the services that are due after a write, then sync the formats beside the table and register it in catalogs.

    Return the write's result. Its report gets ``services``, and a step ``sync`` for each format and catalog.

    Raises:
        CatalogError: the registration has failed, and ``lakeformat.catalog.fail_on_error`` is set.
        SyncError: a sync has failed, and ``lakeformat.beside.fail_on_error`` is set.
    """
    if result.skipped:
        return result
    done = run_due_services(context, options, executors, since=result.instant_time)
    if done is not None:
        result = WriteResult(result.instant_time, result.operation, {**result.report, "services": done})
    return register_result(sync_result(result, context, options), context, options)


@public
class ServiceHost:
    """The base of the classes that offer verbs on one table. Each verb that writes rows ends with `_end_write`."""

    context: TableContext
    options: Options

    def _executors(self) -> Executors:
        """Return the functions that do the work of services in other processes; here none, so this process works."""
        return Executors()

    def _end_write(self, result: WriteResult, options: Options | None = None) -> WriteResult:
        """Run the table services that are due after a write. Return the write's result with their results added.

        Args:
            options: the options of the write; None if they are those of the table.
        """
        return run_services_after_write(result, self.context, options or self.options, self._executors())

    def _end_service(self, result: WriteResult) -> WriteResult:
        """Sync the formats beside the table after a service has changed its files. Return the service's result."""
        if not result.skipped:
            sync_after_commit(self.context, self.options, result.instant_time)
        return result


def commits_since_clustering(store: TimelineStore) -> int:
    """Count the commits that are newer than the last clustering, whether that clustering is completed or pending."""
    timeline = store.load()
    last = max(list_pending_clusterings(store, timeline), default="")
    count = 0
    for instant in reversed(timeline.commits):
        if instant.time < last or store.read_commit(instant).operation == "CLUSTER":
            break
        count += 1
    return count
