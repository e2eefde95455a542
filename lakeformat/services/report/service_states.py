"""Which table services have something to do now, by their own plans. Changes nothing and takes no lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import make_expiry
from lakeformat.display import format_bytes
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.table_config import TableType
from lakeformat.services.archive.run import ArchiveSession
from lakeformat.services.clean.plan import choose_retention
from lakeformat.services.clean.run import CleanSession
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.compact.run import CompactSession
from lakeformat.services.doctor.describe import Description
from lakeformat.services.report.facts import Due, ServiceState
from lakeformat.services.ttl import ExpireSession

__all__ = ["service_states"]

#: Maximum number of live files for which a clustering is planned. For more files, their sizes alone decide.
_PLANNED_FILES: Final = 20_000
_ORDER: Final = (Due.DUE, Due.WAITING, Due.UNKNOWN, Due.IDLE)


def service_states(
    context: TableContext, options: Options, snapshot: Snapshot, description: Description
) -> tuple[ServiceState, ...]:
    """Return the state of each service, those that are due first. A plan that fails is not known, with its reason."""
    plans: dict[str, Callable[[], tuple[Due, str]]] = {
        "clean": lambda: _clean(context, options, description),
        "archive": lambda: _archive(context, options, snapshot),
        "cluster": lambda: _cluster(context, options, snapshot, description),
    }
    if snapshot.config.table_type is TableType.MERGE_ON_READ:
        plans["compact"] = lambda: _compact(context, options, snapshot, description)
    if make_expiry(options).days > 0:
        plans["expire_partitions"] = lambda: _expire(context, options)
    states = [*_pending(description), *(_state(name, plan) for name, plan in plans.items())]
    return tuple(sorted(states, key=lambda state: _ORDER.index(state.due)))


def _state(name: str, plan: Callable[[], tuple[Due, str]]) -> ServiceState:
    try:
        return ServiceState(name, *plan())
    except LakeformatError as error:
        return ServiceState(name, Due.UNKNOWN, str(error))


def _pending(description: Description) -> Iterator[ServiceState]:
    for text in description.pending:
        yield ServiceState(text.partition(" ")[0], Due.WAITING, text)


def _clean(context: TableContext, options: Options, description: Description) -> tuple[Due, str]:
    if description.all_files == description.files:
        return Due.IDLE, "every file is live"
    result = CleanSession(context, options).dry_run(choose_retention(options))
    if result.skipped:
        return Due.IDLE, result.skipped
    return (
        Due.DUE,
        f"{len(result.files):,} files of older versions, {format_bytes(result.size_bytes)}, need not be kept",
    )


def _archive(context: TableContext, options: Options, snapshot: Snapshot) -> tuple[Due, str]:
    count = len(snapshot.timeline.instants)
    if ArchiveSession(context, options).may_be_due(snapshot.timeline):
        return Due.DUE, f"{count:,} instants on the timeline, which every read lists"
    return Due.IDLE, f"{count:,} instants on the timeline"


def _cluster(context: TableContext, options: Options, snapshot: Snapshot, description: Description) -> tuple[Due, str]:
    small = (
        f"{description.small_files:,} of {description.files:,} files are below {format_bytes(description.small_limit)}"
    )
    if description.files > _PLANNED_FILES:
        return _advised(description, "cluster()"), small
    if description.files < 2:
        return Due.IDLE, "there are no files to join"
    plan = ClusterSession(context, options).plan(snapshot, make_cluster_request(options))
    if plan is None:
        return Due.IDLE, f"{small}, and none is worth joining with another"
    slices = sum(len(group.slices) for group in plan.groups)
    return _advised(description, "cluster()"), f"{small}; a run now would rewrite {slices:,}"


def _compact(context: TableContext, options: Options, snapshot: Snapshot, description: Description) -> tuple[Due, str]:
    if not snapshot.live.has_logs:
        return Due.IDLE, "there are no log files"
    plan = CompactSession(context, options).plan(snapshot)
    if plan is None or not plan.operations:
        return Due.IDLE, "no file slice is chosen by the options"
    text = f"{len(plan.operations):,} file slices have log files, which reads merge"
    return _advised(description, "compact()"), text


def _advised(description: Description, call: str) -> Due:
    """Return whether `lakeformat.Table.describe` advises a call."""
    return Due.DUE if any(line.startswith(call) for line in description.advice) else Due.IDLE


def _expire(context: TableContext, options: Options) -> tuple[Due, str]:
    result = ExpireSession(context, options, make_expiry(options)).dry_run()
    if result.skipped:
        return Due.IDLE, result.skipped
    return (
        Due.DUE,
        f"{len(result.partitions):,} partitions are older than they may be, {format_bytes(result.size_bytes)}",
    )
