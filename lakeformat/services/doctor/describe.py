"""What a table is, and what it is due for, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.codec.html import html_pairs
from lakeformat.config.resolve import Options
from lakeformat.errors import LakeformatError
from lakeformat.model.files import FileSlice
from lakeformat.model.instant import COMPLETES_AS, Action, Instant, State
from lakeformat.model.one_line import OneLine
from lakeformat.model.table_config import TableConfig, TableType
from lakeformat.read.known_files import known_files, known_rows
from lakeformat.services.clean.retention import retention_of
from lakeformat.services.clean.run import CleanSession
from lakeformat.services.savepoint.run import Savepoint, read_savepoints
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_groups import list_files
from lakeformat.table_state.live import ListedSlices
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.history import DEDUPE, VERB_KEY
from lakeformat.timeline.timeline import Timeline

__all__ = ["Description", "describe"]

#: From these shares on something is worth doing.
_MANY_SMALL, _MUCH_LOGGED, _MUCH_DEAD = 0.5, 0.3, 2.0
_FEW_FILES = 8
#: Footers that are read to count rows.
_FOOTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Description(OneLine):
    """A table as it stands.

    Attributes:
        kind: ``copy-on-write`` or ``merge-on-read``.
        record_key, partition_by, ordering: columns.
        instant_time: of the newest commit; None in an empty table.
        commits: on the active timeline.
        rows: that a reader gets; None where only reading would tell, as with log files.
        files, size_bytes: base and log files that a reader opens.
        all_files, all_bytes: those of all versions that lie in the folders.
        cleanable_bytes: what `clean` would delete now; looked up only if older versions take much space, else 0.
        small_files: live base files below ``small_limit`` bytes.
        log_bytes: of the live files, what is in log files.
        last_clean, last_archived, last_compaction, last_clustering: instant times; None if there was none. The newest
            instant that has been archived.
        pending: actions that are under way or waiting, with their instant times.
        advice: what to do next, a line each.
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
        """Of the live bytes, 0 to 1."""
        return self.log_bytes / self.size_bytes if self.size_bytes else 0.0

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do next."""
        said = []
        if self.log_share > _MUCH_LOGGED:
            said.append(f"compact(): {self.log_share:.0%} of the bytes are in log files, which reads merge")
        if self.files > _FEW_FILES and self.small_files > _MANY_SMALL * self.files:
            said.append(f"cluster(): {self.small_files:,} of {self.files:,} files are small")
        if self.cleanable_bytes:
            said.append(f"clean(): {_bytes(self.cleanable_bytes)} are of older versions that need not be kept")
        said += [f"{each}: check() tells whether its writer lives" for each in self.pending if "plan" not in each]
        said += [f"{each} waits: run or cancel it" for each in self.pending if "plan" in each]
        return tuple(said)

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{text}" for name, text in self._lines().items())

    def _repr_html_(self) -> str:
        """What notebooks show: the same lines as a table."""
        return html_pairs(self._lines())

    def _lines(self) -> dict[str, str]:
        kept = ", ".join(save.instant_time for save in self.savepoints)
        small = f"{self.small_files:,} below {_bytes(self.small_limit)}"
        return {
            "table": f"{self.name}, version {self.version}, {self.kind}",
            "at": self.location,
            "keys": ", ".join(self.record_key) or "generated",
            "partitions": f"{self.partitions:,}" + (f" by {', '.join(self.partition_by)}" if self.partition_by else ""),
            "ordering": ", ".join(self.ordering) or "by commit",
            "newest commit": f"{self.instant_time or 'none'}, {self.commits:,} on the timeline",
            "rows": "not known without reading them" if self.rows is None else f"{self.rows:,}",
            "live": f"{self.files:,} files, {_bytes(self.size_bytes)}; {small}; {self.log_share:.0%} in log files",
            "all versions": f"{self.all_files:,} files, {_bytes(self.all_bytes)}",
            "last clean": self.last_clean or "never",
            "archived up to": self.last_archived or "nothing",
            "last compaction": self.last_compaction or "never",
            "last clustering": self.last_clustering or "never",
            "pending": "; ".join(self.pending) or "nothing",
            "savepoints": kept or "none",
            "to do": "; ".join(self.advice) or "nothing",
        }


def describe(engine: Engine, options: Options) -> Description:
    """Look at the table; of data files a few footers are read at most. Memory: an object a file."""
    store, location = engine.store, engine.storage.location
    config = store.config()
    snapshot = engine.snapshot(config=config)
    timeline, listing = snapshot.timeline, list_files(engine.storage)
    sizes = [*(base.size_bytes for base in listing.bases), *(log.size_bytes for log in listing.logs)]
    slices = _slices(snapshot)
    live = sum(each.size_bytes for each in slices)
    limit = options.write.small_bytes
    plans = frozenset(store.pending_clustering(timeline).values())
    archived = store.archived().columns.column("time")
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
        partitions=len({each.group.partition_path for each in slices}),
        rows=_rows(engine, snapshot),
        files=sum(len(each.files) for each in slices),
        size_bytes=live,
        all_files=len(sizes),
        all_bytes=sum(sizes),
        cleanable_bytes=_cleanable(engine, options, live, sum(sizes)),
        small_files=sum(each.base is not None and each.base.size_bytes < limit for each in slices),
        small_limit=limit,
        log_bytes=sum(log.size_bytes for each in slices for log in each.logs),
        last_clean=_last(timeline, Action.CLEAN),
        last_archived=archived[len(archived) - 1].as_py() if len(archived) else None,
        last_compaction=_last_commit(engine, timeline, config, compacted=True),
        last_clustering=_last_commit(engine, timeline, config, compacted=False),
        pending=tuple(_named(instant, plans) for instant in timeline.pending),
        savepoints=read_savepoints(engine, timeline),
    )


def _rows(engine: Engine, snapshot: Snapshot) -> int | None:
    """Count the rows by the file index, and by the footers of at most `_FOOTERS` files that it does not know."""
    unknown = known_files(snapshot)["rows"].null_count
    if unknown > _FOOTERS:
        return None
    try:
        return known_rows(engine.storage, snapshot)
    except LakeformatError:  # What is wrong with a file, check says.
        return None


def _cleanable(engine: Engine, options: Options, live_bytes: int, all_bytes: int) -> int:
    if not live_bytes or all_bytes <= (1 + _MUCH_DEAD) * live_bytes:
        return 0
    try:
        return CleanSession(engine, options).dry_run(retention_of(options)).size_bytes
    except LakeformatError:  # Check names what is wrong.
        return 0


def _slices(snapshot: Snapshot) -> tuple[FileSlice, ...]:
    if isinstance(snapshot.live, ListedSlices):
        return snapshot.live.slices
    return tuple(FileSlice(file.group, file.name.instant_time, file) for file in snapshot.files)


def _last(timeline: Timeline, action: Action) -> str | None:
    return max((i.time for i in timeline.of_action(action) if i.state is State.COMPLETED), default=None)


def _last_commit(engine: Engine, timeline: Timeline, config: TableConfig, *, compacted: bool) -> str | None:
    """The newest compaction, or clustering, of the active timeline."""
    for instant in reversed(timeline.commits):
        if instant.action is (Action.COMMIT if compacted else Action.REPLACE_COMMIT):
            said = engine.store.commit(instant)
            is_one = config.table_type is TableType.MERGE_ON_READ and said.compacted
            is_clustering = said.operation == "CLUSTER" and said.extra.get(VERB_KEY) != DEDUPE
            if is_one if compacted else is_clustering:
                return instant.time
    return None


def _named(instant: Instant, plans: frozenset[str]) -> str:
    """As `Description.pending` has it; what waits for somebody to run it is a plan."""
    if instant.state is State.REQUESTED and (instant.action in COMPLETES_AS or instant.time in plans):
        what = Action.CLUSTERING if instant.action is Action.REPLACE_COMMIT else instant.action
        return f"{what.value} plan {instant.time}"
    return f"{instant.action.value} {instant.time} {instant.state.name.lower()}"


def _bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
