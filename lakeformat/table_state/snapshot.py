"""A table at one instant: settings, schema and files, read once and then a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.avro_schema import from_avro, without_meta
from lakeformat.codec.log_block import HeaderKey
from lakeformat.codec.stored_types import storage_schema
from lakeformat.errors import CorruptTableError, InstantNotAvailableError, UnsupportedTableError
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.files.log_reader import read_blocks
from lakeformat.files.open_slice import SliceMerging
from lakeformat.files.stored_shape import SchemaVersion, StoredShape
from lakeformat.merge.read_rule import ReadRule, read_rule
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State, VisibleInstants
from lakeformat.model.keys import KeySettings
from lakeformat.model.record import OPERATION
from lakeformat.model.table_config import CREATE_SCHEMA, PROPERTIES_PATH, TableConfig, TableType
from lakeformat.predicate import Predicate
from lakeformat.storage.port import Storage
from lakeformat.table_state.file_groups import check_complete, list_files, missing_before, visible_files
from lakeformat.table_state.folder_values import dropped_values, virtual_keys
from lakeformat.table_state.live import ListedFiles, ListedSlices, LiveFiles, Partitioned, Sliced, file_objects
from lakeformat.table_state.schema_history import schema_versions
from lakeformat.table_state.slices import CountsFrom, absent_logs, check_logs, slices_of
from lakeformat.table_state.told_logs import listed_slices
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["ChangeRange", "Names", "Snapshot", "check_horizon", "list_snapshot", "log_positions", "table_schema"]

_AT_A_TIME: Final = 1024
#: Of tables of this version that take no log files the schema that commits tell is all: a snapshot opens no file.
_WE_WRITE: Final = 6


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Commits whose rows alone are read.

    Attributes:
        since: where the range begins, exclusive: a completion time in timeline layout 2, an instant time in layout 1.
        until: the last commit of the range, in the same unit; ``since`` of an empty one. The next range begins there.
        rows: bound to the commit time of rows.
        before_merging: whether rows of slices are chosen before they are merged, or after.
    """

    since: str
    until: str
    rows: Predicate
    before_merging: bool = True


@dataclass(frozen=True)
class Snapshot:
    """What a reader or writer knows of the table at one instant.

    Attributes:
        config: the table's settings.
        timeline: all active instants, not cut.
        instant_time: the newest commit that counts, None in an empty table.
        schema: the table's columns without the meta columns; None if no one has ever said.
        live: the live base files.
        changes: the commits whose rows are read; None for all.
        versions: of a table that schema on read has changed, what its files hold of the columns, by schema.
    """

    config: TableConfig
    timeline: Timeline
    instant_time: str | None
    schema: pa.Schema | None
    live: LiveFiles
    versions: tuple[SchemaVersion, ...] = ()
    changes: ChangeRange | None = None

    @cached_property
    def files(self) -> tuple[BaseFile, ...]:
        """The live base files by partition path and file id, an object each."""
        if isinstance(self.live, ListedSlices):
            return self.live.bases.files
        if isinstance(self.live, ListedFiles):
            return self.live.files
        return tuple(file for portion in self.live.portions() for file in file_objects(portion.files))

    def each_file(self) -> Iterator[BaseFile]:
        """The same one by one, for those who need the first few: objects are made some at a time."""
        live = self.live.bases if isinstance(self.live, ListedSlices) else self.live
        for files in (portion.files for portion in live.portions()):
            for start in range(0, files.num_rows, _AT_A_TIME):
                yield from file_objects(files.slice(start, _AT_A_TIME))

    def read_optimized(self) -> Snapshot:
        """The base files alone: older rows where there are log files, at the cost of copy-on-write."""
        return replace(self, live=self.live.bases) if isinstance(self.live, ListedSlices) else self

    @cached_property
    def _visible(self) -> VisibleInstants:
        return self.timeline.visible(self.instant_time)

    @cached_property
    def _rule(self) -> ReadRule:
        return read_rule(self.config.merge_settings)

    def merging(self, piece: FileSlice) -> SliceMerging:
        """How the files of a slice of `live` become rows.

        Raises:
            UnsupportedTableError: the table's rule of merging is not known.
        """
        shape = self._shapes[piece.group.partition_path] if self._is_shaped else None
        if self.config.has_virtual_keys:
            shape = replace(shape or StoredShape(), key=self._key)
        only = self.changes.rows if self.changes and self.changes.before_merging else None
        return SliceMerging(self._rule, self._visible.since(piece.earliest), shape, only)

    def shape(self, file: BaseFile) -> StoredShape | None:
        """How the columns of a base file that is read alone become the table's; None where they are."""
        if not self._is_shaped:
            return None
        shape = self._shapes[file.partition_path]
        return shape if shape.changes(file.name.instant_time) else None

    @cached_property
    def _key(self) -> KeySettings:
        return virtual_keys(self.config)

    @cached_property
    def _is_shaped(self) -> bool:
        return bool(self.versions or self.config.drops_partition_columns)

    @cached_property
    def _shapes(self) -> _Shapes:
        return _Shapes(self)

    def check_writable(self, location: str) -> None:
        """Refuse, by name, what only readers may meet and no property tells. Raises `UnsupportedTableError`."""
        if self.versions:
            raise UnsupportedTableError(
                f"{location}: writing to a table whose columns go by ids (hoodie.schema.on.read.enable) is not "
                "supported; use Apache Hudi for it"
            )
        if self.schema is not None and OPERATION in self.schema.names:
            raise UnsupportedTableError(
                f"{location}: writing to a table whose rows tell their operation ({OPERATION}, of "
                "hoodie.allow.operation.metadata.field) is not supported; use Apache Hudi for it"
            )

    @cached_property
    def by_partition(self) -> Mapping[str, tuple[BaseFile, ...]]:
        """Partition path -> its live files."""
        return Partitioned(self.live)

    @cached_property
    def slices(self) -> Mapping[str, tuple[FileSlice, ...]]:
        """Partition path -> its live file slices: what writes go by."""
        return Sliced(self.live)

    def each_slice(self) -> Iterator[FileSlice]:
        """All of `slices`, one by one."""
        for path in self.slices:
            yield from self.slices[path]

    def columns(self, location: str) -> pa.Schema:
        """The schema, which must be known. Raises `CorruptTableError`."""
        if self.schema is None:
            raise CorruptTableError(
                f"{location} has no schema: no commit and no base file names one; write to it first"
            )
        return self.schema


class _Shapes(dict[str, StoredShape]):
    """Partition path -> how its files are read, made as they are asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._config, self._versions = snapshot.config, snapshot.versions
        self._schema = snapshot.schema if snapshot.config.drops_partition_columns else None

    def __missing__(self, partition_path: str) -> StoredShape:
        constants = {} if self._schema is None else dropped_values(partition_path, self._config, self._schema)
        self[partition_path] = found = StoredShape(constants, versions=self._versions)
        return found


def list_snapshot(
    store: TimelineStore,
    config: TableConfig,
    whole: Timeline,
    as_of: str | None = None,
    *,
    travelling: bool = False,
    wanted: frozenset[str] | None = None,
) -> Snapshot:
    """The table at a timeline, by listing every partition folder.

    Args:
        travelling: the timeline does not end now, so that files may have been cleaned away since.
        wanted: times of the commits whose files must be there; None for all.
        whole: loaded before: a file of a commit that completes in between is then not yet visible, and a listed
            file is never missing because its commit was not yet known.

    Raises:
        InstantNotAvailableError: a file of the instant has been cleaned away.
        CorruptTableError: a file that a commit names is missing or has another size.
    """
    location, travelling = store.storage.location, travelling or as_of is not None
    timeline = whole if as_of is None else whole.as_of(as_of)
    commits = [(instant.time, store.commit(instant)) for instant in timeline.commits]
    replaced = frozenset(
        FileGroupId(partition, file_id)
        for _, metadata in commits
        for partition, ids in metadata.replaced.items()
        for file_id in ids
    )
    promised = [(time, said) for time, said in commits if wanted is None or time in wanted]
    listing = list_files(store.storage)
    later = [(i, store.commit(i)) for i in whole.commits if i.time not in timeline.commit_times]
    missing = missing_before(later, listing, location) if later else None
    if missing is not None:
        raise InstantNotAvailableError(f"cannot read {location} as of {as_of}: {missing}; ask for a later instant")
    files = visible_files(listing.bases, timeline, replaced, Names(dict(commits)))
    check_complete(files, promised, replaced, location=location, travelling=travelling)
    newest = timeline.commits[-1].time if timeline.commits else None
    schema = table_schema(store, config, timeline.commits, files)
    live: ListedFiles | ListedSlices = ListedFiles(files)
    absent = absent_logs(promised, listing.logs) if config.table_type is TableType.MERGE_ON_READ else []
    if (listing.logs or absent) and config.table_type is TableType.MERGE_ON_READ:
        counts_from = log_positions(store, timeline, (*listing.logs, *absent))
        slices = slices_of(files, listing.logs, replaced, counts_from)
        check_logs(slices, promised, counts_from, replaced, location=location, travelling=travelling)
        if any(each.logs for each in slices):
            tells = timeline.layout.tells_completion
            live = listed_slices(slices, commits, timeline.completion_time if tells else None)
    if schema is not None and (config.version != _WE_WRITE or config.table_type is TableType.MERGE_ON_READ):
        schema = _with_operation(store.storage, schema, live)
    versions = schema_versions(store.storage, commits, location)
    return Snapshot(config, whole, newest, schema, live, versions)


def _with_operation(storage: Storage, schema: pa.Schema, live: ListedFiles | ListedSlices) -> pa.Schema:
    """With the sixth meta column where a file has it: commits do not tell (Hudi: ``hasOperationField``)."""
    if OPERATION in schema.names:
        return schema
    base = next(iter(live.bases.files if isinstance(live, ListedSlices) else live.files), None)
    if base is not None:
        where = f"{storage.location}/{base.path}"
        with open_base(storage, base) as source, open_parquet(source, where) as parquet:
            has_it = OPERATION in parquet.schema_arrow.names
    else:
        logs = live.slices[0].logs if isinstance(live, ListedSlices) else ()
        headers = (block.header.get(HeaderKey.SCHEMA, "") for block in read_blocks(storage, logs[0])) if logs else ()
        has_it = any(f'"{OPERATION}"' in text for text in headers)
    return pa.schema([pa.field(OPERATION, pa.string()), *schema]) if has_it else schema


def log_positions(store: TimelineStore, timeline: Timeline, logs: Iterable[LogFile]) -> CountsFrom:
    """Tells of log files the greatest instant of a base file that they may belong to: see `slices_of`."""
    times = {log.name.instant_time for log in logs}
    if timeline.layout.tells_completion:
        # Version 6 named log files after pending compactions; an upgrade leaves them, and Hudi then loses their rows.
        planned = times.intersection(store.pending_compactions(timeline).values())
        known = {time: time for time in planned}
        known |= store.completion_times(timeline, {time for time in times if timeline.is_committed(time)})
    else:
        # No base file begins a slice whose commit is pending, nor may a log file: it goes if the commit fails.
        opening = {instant.time for instant in timeline.pending if instant.action in COMMIT_ACTIONS}
        known = {time: time for time in times - opening if time <= (timeline.newest_time or "")}
    return lambda log: known.get(log.name.instant_time)


class Names:
    """Instant time -> group -> the file name its statistics give, of commits by their instant times."""

    def __init__(self, commits: Mapping[str, CommitMetadata]) -> None:
        self._commits = commits
        self._named: dict[str, Mapping[FileGroupId, str]] = {}

    def __call__(self, time: str) -> Mapping[FileGroupId, str]:
        """Of one commit."""
        if time not in self._named:
            self._named[time] = {
                FileGroupId(stat.partition_path, stat.file_id): stat.path.rpartition("/")[2]
                for stat in self._commits[time].all_stats()
            }
        return self._named[time]


def check_horizon(store: TimelineStore, timeline: Timeline, as_of: str) -> None:
    """Raise `InstantNotAvailableError` if the instant is older than what cleaning and archiving have left."""
    oldest = timeline.oldest_write
    gone = oldest is not None and as_of < oldest and as_of not in timeline.commit_times
    if gone and store.has_archive(store.config().archive_folder):
        raise InstantNotAvailableError(
            f"instant {as_of} is older than {oldest}, the oldest one on the timeline of {store.storage.location}; ask "
            "for a later instant, or keep more history (hoodie.keep.min.commits)"
        )
    cleans = [i for i in timeline.of_action(Action.CLEAN) if i.state is State.COMPLETED]
    if not cleans:
        return
    clean = store.clean(cleans[-1])
    earliest = clean.earliest_commit_to_retain if clean else ""
    if earliest and as_of < earliest:
        raise InstantNotAvailableError(
            f"instant {as_of} is older than {earliest}, the oldest one the cleaner has kept whole; ask for a later "
            "instant, or keep more history (hoodie.cleaner.commits.retained)"
        )


def table_schema(
    store: TimelineStore, config: TableConfig, commits: tuple[Instant, ...], files: Sequence[BaseFile]
) -> pa.Schema | None:
    """The newest schema a commit carries, else the one given at creation, else that of a base file.

    Dropped partition columns come last, as text if neither a commit nor the schema given at creation has their type.
    Source: Hudi's ``TableSchemaResolver``.
    """
    found = _said_schema(store, config, commits, files)
    if found is None or not config.drops_partition_columns:
        return found
    names = set(found.names)
    missing = [name for name in config.partition_fields if name not in names]
    created = config.get(CREATE_SCHEMA)
    known = without_meta(from_avro(created, name=PROPERTIES_PATH)) if created else found
    names = set(known.names)
    types = [known.field(name).type if name in names else pa.string() for name in missing]
    return pa.schema([*found, *map(pa.field, missing, types)])


def _said_schema(
    store: TimelineStore, config: TableConfig, commits: tuple[Instant, ...], files: Sequence[BaseFile]
) -> pa.Schema | None:
    location = store.storage.location
    for instant in reversed(commits):
        text = store.commit(instant).schema_text
        if text:
            return without_meta(from_avro(text, name=f"{location}/{store.path(instant)}"))
    created = config.get(CREATE_SCHEMA)
    if created:
        return without_meta(from_avro(created, name=f"{location}/{PROPERTIES_PATH}"))
    for file in reversed(files):
        with store.storage.open_input(file.path) as source:
            return without_meta(storage_schema(pq.read_schema(source)))
    return None
