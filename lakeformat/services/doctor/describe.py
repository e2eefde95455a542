"""Description of a table: its kind, sizes, services and the next steps for its operator."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from lakeformat.config.resolve import Options
from lakeformat.display import format_bytes, html_pairs
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import measure_files
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileSlice
from lakeformat.model.instant import COMPLETES_AS, Action, Instant, State
from lakeformat.model.table_config import TableConfig, TableType
from lakeformat.public import OneLine, public
from lakeformat.read.scan import count_known_rows, list_files_table
from lakeformat.services.clean.plan import choose_retention
from lakeformat.services.clean.run import CleanSession
from lakeformat.services.savepoint import Savepoint, read_savepoints
from lakeformat.timeline.history import DEDUPE, VERB_KEY
from lakeformat.timeline.timeline import Timeline

__all__ = ["Description", "describe"]

#: Ratios above which clustering, compaction or cleaning is recommended, in this order: number of small files to number
#: of live files; log bytes to live bytes; bytes of files that are not live to live bytes.
_MANY_SMALL, _MUCH_LOGGED, _MUCH_DEAD = 0.5, 0.3, 2.0
_FEW_FILES = 8
#: Maximum number of footers that are read to count rows.
_FOOTERS = 256


@public
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Description(OneLine):
    """Description of a table at its newest commit.

    Attributes:
        kind: ``copy-on-write`` or ``merge-on-read``.
        record_key, partition_by, ordering: column names.
        instant_time: instant time of the newest commit; None if the table is empty.
        commits: number of commits on the active timeline.
        rows: number of rows that a reader gets; None if only reading could count them, as with log files.
        files, size_bytes: number and bytes of the base and log files that a reader opens.
        all_files, all_bytes: number and bytes of all base and log files in the folders, live or not.
        cleanable_bytes: bytes that `clean` would delete now; computed only if the files that are not live
            have more than twice the live bytes, else 0.
        small_files: number of live base files below ``small_limit`` bytes.
        log_bytes: bytes of the live log files.
        last_clean, last_archived, last_compaction, last_clustering: instant times; None if there was none.
            ``last_archived`` is the newest archived instant.
        pending: pending actions with their instant times, running or waiting to be run.
        advice: what to do next, one line each.
    """

    location: str
    name: str
    version: int
    kind: str
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: tuple[str, ...]
    instant_time: str | None
    commits: int
    partitions: int
    rows: int | None
    files: int
    size_bytes: int
    all_files: int
    all_bytes: int
    cleanable_bytes: int
    small_files: int
    small_limit: int
    log_bytes: int
    last_clean: str | None
    last_archived: str | None
    last_compaction: str | None
    last_clustering: str | None
    pending: tuple[str, ...]
    savepoints: tuple[Savepoint, ...]

    @property
    def log_share(self) -> float:
        """Return the fraction of the live bytes that is in log files, 0 to 1."""
        return self.log_bytes / self.size_bytes if self.size_bytes else 0.0

    @property
    def advice(self) -> tuple[str, ...]:
        """Return what to do next, one line each."""
        lines = []
        if self.log_share > _MUCH_LOGGED:
            lines.append(f"compact(): {self.log_share:.0%} of the bytes are in log files, which reads merge")
        if self.files > _FEW_FILES and self.small_files > _MANY_SMALL * self.files:
            lines.append(f"cluster(): {self.small_files:,} of {self.files:,} files are small")
        if self.cleanable_bytes:
            lines.append(f"clean(): {format_bytes(self.cleanable_bytes)} are of older versions that need not be kept")
        lines += [
            f"{pending}: check() shows whether its writer lives" for pending in self.pending if "plan" not in pending
        ]
        lines += [f"{pending} waits: run or cancel it" for pending in self.pending if "plan" in pending]
        return tuple(lines)

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{text}" for name, text in self.lines().items())

    def _repr_html_(self) -> str:
        """Return the lines of `str` as an HTML table, for notebooks."""
        return html_pairs(self.lines())

    def lines(self) -> dict[str, str]:
        """Return the names and texts of the lines of `str`."""
        saved = ", ".join(save.instant_time for save in self.savepoints)
        small = f"{self.small_files:,} below {format_bytes(self.small_limit)}"
        live = f"{self.files:,} files, {format_bytes(self.size_bytes)}"
        return {
            "table": f"{self.name}, version {self.version}, {self.kind}",
            "at": self.location,
            "keys": ", ".join(self.record_key) or "generated",
            "partitions": f"{self.partitions:,}" + (f" by {', '.join(self.partition_by)}" if self.partition_by else ""),
            "ordering": ", ".join(self.ordering) or "by commit",
            "newest commit": f"{self.instant_time or 'none'}, {self.commits:,} on the timeline",
            "rows": "not known without reading them" if self.rows is None else f"{self.rows:,}",
            "live": f"{live}; {small}; {self.log_share:.0%} in log files",
            "all versions": f"{self.all_files:,} files, {format_bytes(self.all_bytes)}",
            "last clean": self.last_clean or "never",
            "archived up to": self.last_archived or "nothing",
            "last compaction": self.last_compaction or "never",
            "last clustering": self.last_clustering or "never",
            "pending": "; ".join(self.pending) or "nothing",
            "savepoints": saved or "none",
            "to do": "; ".join(self.advice) or "nothing",
        }


def describe(context: TableContext, options: Options) -> Description:
    """Describe the table. Reads at most `_FOOTERS` footers of data files. Memory: one object per file."""
    store, location = context.store, context.storage.location
    config = store.config()
    snapshot = context.snapshot(config=config)
    timeline = snapshot.timeline
    all_files, all_bytes = measure_files(context.storage)
    files = list_files_table(snapshot)
    logs = [log for piece in _slices_with_logs(snapshot) for log in piece.logs]
    live = snapshot.live.size_bytes
    limit = options.write.small_bytes
    plans = frozenset(store.read_clustering_groups(timeline).values())
    archived = store.read_archived().columns.column("time")
    return Description(
        location=location,
        name=config.name,
        version=config.version,
        kind="merge-on-read" if config.table_type is TableType.MERGE_ON_READ else "copy-on-write",
        record_key=config.record_fields,
        partition_by=config.partition_fields,
        ordering=config.ordering_fields,
        instant_time=snapshot.instant_time,
        commits=len(timeline.commits),
        partitions=pc.count_distinct(files["partition_path"]).as_py(),
        rows=_rows(context, snapshot, files["rows"].null_count),
        files=len(files) - files["path"].null_count + len(logs),
        size_bytes=live,
        all_files=all_files,
        all_bytes=all_bytes,
        cleanable_bytes=_count_cleanable(context, options, live, all_bytes),
        small_files=_count_small(snapshot, limit),
        small_limit=limit,
        log_bytes=sum(log.size_bytes for log in logs),
        last_clean=_last_time(timeline, Action.CLEAN),
        last_archived=archived[len(archived) - 1].as_py() if len(archived) else None,
        last_compaction=_last_commit(context, timeline, config, compacted=True),
        last_clustering=_last_commit(context, timeline, config, compacted=False),
        pending=tuple(_pending_text(instant, plans) for instant in timeline.pending),
        savepoints=read_savepoints(context, timeline),
    )


def _rows(context: TableContext, snapshot: Snapshot, unknown: int) -> int | None:
    """Count the rows by the file index, and by the footers of the files whose row count the index lacks.

    Return None if more than `_FOOTERS` footers are needed, if a footer cannot be read, or if the table has log files.

    Args:
        unknown: number of files whose row count the index lacks.
    """
    if unknown > _FOOTERS:
        return None
    try:
        return count_known_rows(context.storage, snapshot)
    except LakeformatError:  # Ignore the error here: the command `check` reports it.
        return None


def _count_cleanable(context: TableContext, options: Options, live_bytes: int, all_bytes: int) -> int:
    if not live_bytes or all_bytes <= (1 + _MUCH_DEAD) * live_bytes:
        return 0
    try:
        return CleanSession(context, options).dry_run(choose_retention(options)).size_bytes
    except LakeformatError:  # Ignore the error here: the command `check` reports it.
        return 0


def _slices_with_logs(snapshot: Snapshot) -> tuple[FileSlice, ...]:
    live = snapshot.live
    return tuple(piece for piece in live.slices if piece.logs) if isinstance(live, ListedSlices) else ()


def _count_small(snapshot: Snapshot, limit: int) -> int:
    """Count the live base files below a size in bytes."""
    sizes = [portion.files["size_bytes"] for portion in snapshot.read_optimized().live.portions()]
    return sum(pc.sum(pc.less(size_column, limit), min_count=0).as_py() for size_column in sizes)


def _last_time(timeline: Timeline, action: Action) -> str | None:
    return max((i.time for i in timeline.of_action(action) if i.state is State.COMPLETED), default=None)


def _last_commit(context: TableContext, timeline: Timeline, config: TableConfig, *, compacted: bool) -> str | None:
    """Return the time of the newest compaction or clustering on the active timeline; None if there is none.

    Args:
        compacted: whether to search for a compaction; else for a clustering.
    """
    for instant in reversed(timeline.commits):
        if instant.action is (Action.COMMIT if compacted else Action.REPLACE_COMMIT):
            metadata = context.store.read_commit(instant)
            is_compaction = config.table_type is TableType.MERGE_ON_READ and metadata.compacted
            is_clustering = metadata.operation == "CLUSTER" and metadata.extra.get(VERB_KEY) != DEDUPE
            if is_compaction if compacted else is_clustering:
                return instant.time
    return None


def _pending_text(instant: Instant, plans: frozenset[str]) -> str:
    """Return the text for a pending instant: ``compaction plan TIME`` for a plan, else ``commit TIME inflight``."""
    if instant.state is State.REQUESTED and (instant.action in COMPLETES_AS or instant.time in plans):
        what = Action.CLUSTERING if instant.action is Action.REPLACE_COMMIT else instant.action
        return f"{what.value} plan {instant.time}"
    return f"{instant.action.value} {instant.time} {instant.state.name.lower()}"
