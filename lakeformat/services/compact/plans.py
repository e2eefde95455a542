"""Compaction plans compared with the current table: which are pending, and which files a run merges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from lakeformat.errors import CorruptTableError, WriteConflictError
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.compaction import CompactionOperation, CompactionPlan
from lakeformat.model.files import FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.instant import Action, Instant
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.conflict import is_hidden

__all__ = ["check_late_files", "pending_compactions", "slice_to_merge"]


def pending_compactions(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, CompactionPlan]]:
    """Return instant time -> instant and plan of every pending compaction, requested or inflight, oldest first.

    Raises:
        CorruptTableError: a plan cannot be read.
    """
    pending = {}
    for instant in timeline.pending:
        if instant.action is Action.COMPACTION and (plan := store.compaction_plan(instant)) is not None:
            pending[instant.time] = instant, plan
    return pending


def slice_to_merge(
    operation: CompactionOperation,
    live: Mapping[FileGroupId, FileSlice],
    replaced: Collection[FileGroupId],
    instant_time: str,
    *,
    by_name: bool,
) -> FileSlice | None:
    """Return the files to merge for an operation; None if its file group was replaced or has a newer base file.

    If log files are named after their slice, log files of the old slice that the plan does not name are added: their
    commit began before the plan was made and completed later. They would be lost with the old slice.

    Args:
        live: the newest slice of each file group; for groups of pending compactions, the slice before.
        replaced: file groups that commits have replaced.
        instant_time: instant time of the plan.
        by_name: whether log files are named after their slice (timeline layout 1).

    Raises:
        CorruptTableError: a file of the plan is missing or not the newest of its group.
    """
    piece = live.get(operation.group)
    if operation.group in replaced or (piece and piece.base and piece.base.name.instant_time > instant_time):
        return None
    if piece is None or (str(piece.base.name) if piece.base else "") != operation.base_name:
        raise CorruptTableError(_lacks(instant_time, operation, operation.base_name or operation.log_names[0]))
    log_of = {str(log.name): log for log in piece.logs}
    missing = next((name for name in operation.log_names if name not in log_of), None)
    if missing is not None:
        raise CorruptTableError(_lacks(instant_time, operation, missing))
    logs = [log_of[name] for name in operation.log_names]
    if by_name:
        known = set(operation.log_names)
        logs += [log for log in piece.logs if str(log.name) not in known and log.name.instant_time < instant_time]
    return FileSlice(operation.group, operation.base_instant, piece.base, _ordered(logs))


def _ordered(logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(logs, key=lambda log: log.name.order))


def _lacks(instant_time: str, operation: CompactionOperation, name: str) -> str:
    where = f" in partition {operation.partition_path!r}" if operation.partition_path else ""
    return (
        f"compaction {instant_time} names {name}{where}, which the table does not have as the newest version of its "
        f"file group; restore the file from a copy, or cancel_compaction({instant_time!r}) and schedule another"
    )


def check_late_files(
    merged: Mapping[FileGroupId, FileSlice],
    instant_time: str,
    others: Iterable[tuple[str, CommitMetadata]],
    *,
    by_name: bool,
) -> None:
    """Refuse to publish base files that would hide files that others have added to the old slices since.

    Args:
        merged: the merged slices, by file group.
        others: time and metadata of the commits completed since the run began.
        by_name: see `slice_to_merge`.

    Raises:
        WriteConflictError: names the commit; the next run merges what it wrote.
    """
    for time, metadata in others:
        for stat in metadata.all_stats():
            piece = merged.get(FileGroupId(stat.partition_path, stat.file_id))
            known = {one.name for one in piece.logs} if piece else set()
            if piece and is_hidden(stat, time, instant_time, by_name=by_name) and _log_name(stat) not in known:
                raise WriteConflictError(
                    f"compaction {instant_time} has not merged {stat.path}, which commit {time} has added to its file "
                    "group meanwhile; run the compaction again"
                )


def _log_name(stat: WriteStat) -> LogFileName | None:
    return LogFileName.match(stat.path.rpartition("/")[2])
