"""A table at one instant: settings, schema and files, as an immutable value."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.avro.schema import from_avro, without_meta
from lakeformat.codec.log_blocks import HeaderKey
from lakeformat.codec.stored_types import storage_schema, with_meta_columns, with_operation
from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.file_system_view.file_groups import (
    Listing,
    check_complete,
    find_missing_before,
    list_files,
    make_listing,
    visible_files,
)
from lakeformat.file_system_view.folder_values import (
    constants_time,
    dropped_column_values,
    stored_columns,
    virtual_key_settings,
)
from lakeformat.file_system_view.live_files import (
    FilesByPartition,
    ListedFiles,
    ListedSlices,
    ListedTable,
    LiveFiles,
    SlicesByPartition,
    file_columns,
    file_objects,
)
from lakeformat.file_system_view.log_file_stats import add_log_facts
from lakeformat.file_system_view.metadata_bounds import MetadataBounds
from lakeformat.file_system_view.overtaken import find_overtaking
from lakeformat.file_system_view.schema_history import read_schemas, schema_versions
from lakeformat.file_system_view.slices import LatestBase, build_slices, check_logs, find_absent_logs
from lakeformat.file_system_view.table_listing import (
    FOLDERS,
    METADATA_TABLE,
    NOT_USED,
    FileSource,
    MetadataListing,
    group_text,
    list_metadata_table,
    names_metadata_table,
    visible_table,
)
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.files.log_reader import read_blocks
from lakeformat.files.missing_files import CleanedFileError
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.stored_shape import AS_STORED, SchemaVersion, StoredShape
from lakeformat.merge.rules import ReadRule, make_read_rule
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State, VisibleInstants
from lakeformat.model.internal_schema import InternalSchema
from lakeformat.model.record import OPERATION
from lakeformat.model.table_config import CREATE_SCHEMA, PROPERTIES_PATH, TableConfig, TableType
from lakeformat.predicate import Predicate
from lakeformat.public import public
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "ChangeRange",
    "FileNames",
    "Snapshot",
    "check_instant_available",
    "list_snapshot",
    "make_latest_base",
    "table_schema",
]

_LOG: Final = logging.getLogger("lakeformat.read")
_AT_A_TIME: Final = 1024
#: The times and the metadata of commits, in order.
_Commits: TypeAlias = Sequence[tuple[str, CommitMetadata]]


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """A range of commits. Only rows that they wrote are read.

    Attributes:
        since: exclusive start of the range: a completion time in timeline layout 2, an instant time in layout 1.
        until: the last commit of the range, in the same unit; ``since`` if the range is empty. The next range begins
            there.
        predicate: bound predicate that selects the rows of the range by their commit time.
        before_merging: whether the predicate selects base rows and log records before they are merged. If False, it
            selects merged rows.
    """

    since: str
    until: str
    predicate: Predicate
    before_merging: bool = True


@public
@dataclass(frozen=True)
class Snapshot:
    """The table at one instant, as readers and writers use it.

    Attributes:
        config: the table's settings.
        timeline: all active instants, even those after ``instant_time``.
        instant_time: time of the newest visible commit; None in an empty table.
        schema: the table's columns without the meta columns; None if no commit, property or file gives them.
        live: the live files.
        schemas: for a table changed by schema on read, all its columns with their ids so far, oldest first; else empty.
        changes: the commits whose rows are read; None for all.
        source: where the names of the files come from.
        merges: whether log files are merged; see `SliceMergeRules`.
    """

    config: TableConfig
    timeline: Timeline
    instant_time: str | None
    schema: pa.Schema | None
    live: LiveFiles
    schemas: tuple[InternalSchema, ...] = ()
    changes: ChangeRange | None = None
    source: FileSource = FOLDERS
    merges: bool = True

    @cached_property
    def files(self) -> tuple[BaseFile, ...]:
        """Return the live base files, sorted by partition path and file id. Memory: one object per file."""
        if isinstance(self.live, ListedSlices):
            return self.live.bases.files
        if isinstance(self.live, ListedFiles):
            return self.live.files
        return tuple(file for portion in self.live.portions() for file in file_objects(portion.files))

    def each_file(self) -> Iterator[BaseFile]:
        """Yield the live base files one by one. Create objects in portions, because a caller may need only a few."""
        live = self.live.bases if isinstance(self.live, ListedSlices) else self.live
        for files in (portion.files for portion in live.portions()):
            for start in range(0, files.num_rows, _AT_A_TIME):
                yield from file_objects(files.slice(start, _AT_A_TIME))

    def read_optimized(self) -> Snapshot:
        """Return the snapshot with its base files only: a read costs less, but misses the rows in log files."""
        return replace(self, live=self.live.bases) if isinstance(self.live, ListedSlices) else self

    @cached_property
    def _visible(self) -> VisibleInstants:
        return self.timeline.visible(self.instant_time)

    @cached_property
    def _rule(self) -> ReadRule:
        return make_read_rule(self.config.merge_settings) if self.merges else ReadRule()

    def merge_rules(self, piece: FileSlice) -> SliceMergeRules:
        """Return the settings by which the files of a slice of `live` are merged into rows.

        Raises:
            UnsupportedTableError: the table's merge rule is not supported.
        """
        shape = self._shapes[piece.group.partition_path] if self._is_shaped else None
        if self.key_shape.key is not None:
            shape = replace(shape or AS_STORED, key=self.key_shape.key)
        only = self.changes.predicate if self.changes and self.changes.before_merging else None
        return SliceMergeRules(self._rule, self._visible.since(piece.earliest), shape, only, self.merges)

    def merging(self, piece: FileSlice) -> SliceMergeRules | None:
        """Return the rules by which the files of a slice become rows; None if its base file alone has the rows.

        Raises:
            UnsupportedTableError: the table's merge rule is not supported.
        """
        is_converted = piece.base is not None and self.shape(piece.base) is not None
        return self.merge_rules(piece) if piece.logs or is_converted else None

    def rewriting(self, piece: FileSlice) -> SliceMergeRules | None:
        """Return the rules of `merging` for a writer, which also needs the record keys that no file holds."""
        return self.merge_rules(piece) if self.config.has_virtual_keys else self.merging(piece)

    def shape(self, file: BaseFile) -> StoredShape | None:
        """Return the conversion of a base file's columns into the table's, for a base file without log files.

        Return None if the file has the table's columns. Its record keys, if no file holds them, are not made.
        """
        if not self._is_shaped:
            return None
        shape = self._shapes[file.partition_path]
        return shape if shape.needs_conversion(file.name.instant_time) else None

    @cached_property
    def key_shape(self) -> StoredShape:
        """Return the rules by which record keys are read from files.

        Raises:
            UnsupportedTableError: no file holds them, and they cannot be made.
        """
        if not self.config.has_virtual_keys:
            return AS_STORED
        return StoredShape(key=virtual_key_settings(self.config), versions=self.versions)

    @cached_property
    def versions(self) -> tuple[SchemaVersion, ...]:
        """Return for each of `schemas` how files that have it store the table's columns."""
        return schema_versions(self.schemas)

    @cached_property
    def _is_shaped(self) -> bool:
        return bool(self.schemas or self.config.folder_columns)

    @cached_property
    def _shapes(self) -> _Shapes:
        return _Shapes(self)

    @property
    def has_operations(self) -> bool:
        """Tell whether files have the column of operations (``hoodie.allow.operation.metadata.field``)."""
        return self.schema is not None and OPERATION in self.schema.names

    @cached_property
    def by_partition(self) -> Mapping[str, tuple[BaseFile, ...]]:
        """Return a mapping of partition path to its live base files."""
        return FilesByPartition(self.live)

    @cached_property
    def slices(self) -> Mapping[str, tuple[FileSlice, ...]]:
        """Return a mapping of partition path to its live file slices."""
        return SlicesByPartition(self.live)

    def each_slice(self) -> Iterator[FileSlice]:
        """Yield all live file slices one by one."""
        for path in self.slices:
            yield from self.slices[path]

    def columns(self, location: str) -> pa.Schema:
        """Return the schema. Raise `CorruptTableError` if it is not known."""
        if self.schema is None:
            raise CorruptTableError(
                f"{location} has no schema: no commit and no base file names one; write to it first"
            )
        return self.schema


class _Shapes(dict[str, StoredShape]):
    """A mapping of partition path to the conversion of its files' columns into the table's.

    The first look-up of a partition path creates its entry.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._config, self._version_session = snapshot.config, snapshot.versions
        self._schema = snapshot.schema if snapshot.config.folder_columns else None

    def __missing__(self, partition_path: str) -> StoredShape:
        constants = {} if self._schema is None else dropped_column_values(partition_path, self._config, self._schema)
        self[partition_path] = shape = StoredShape(
            constants, versions=self._version_session, only=constants_time(self._config)
        )
        return shape


def list_snapshot(
    store: TimelineStore,
    config: TableConfig,
    whole: Timeline,
    as_of: str | None = None,
    *,
    is_time_travel: bool = False,
    needed_times: frozenset[str] | None = None,
    use_metadata_table: bool = False,
) -> Snapshot:
    """Build the snapshot of the table at an instant from a listing of the metadata table, or of every partition folder.

    Before a file is reported missing that the metadata table lacks, the folders are listed.

    Args:
        whole: all active instants. Load them before this call: a file of a commit that completes meanwhile is then not
            visible, and every file of a commit on the timeline is in the listing.
        as_of: the instant; None for now.
        is_time_travel: whether the timeline ends in the past, so that files may have been cleaned away since.
        needed_times: times of the commits whose files must exist; None for all.
        use_metadata_table: whether the metadata table may replace the listing of the folders. If so, a file that is
            missing or cut short may be noticed only when it is opened. No commit may be hidden in ``whole``.

    Raises:
        CleanedFileError: a file was cleaned between the loading of ``whole`` and the listing.
        InstantNotAvailableError: a file of the instant has been cleaned away.
        CorruptTableError: a file that a commit names is missing or has another size.
    """
    is_past = is_time_travel or as_of is not None
    request = _SnapshotRequest(store, config, whole, as_of, is_past, needed_times)
    listed, source = None, FOLDERS
    if not use_metadata_table and names_metadata_table(config):
        source = NOT_USED
    elif use_metadata_table:
        listed, source = list_metadata_table(store.storage, config, whole, is_past=is_past)
    if listed is not None:
        try:
            snapshot = request.make_from_metadata_table(listed)
        except (CorruptTableError, InstantNotAvailableError, FileNotFoundError) as error:
            reason = str(error).partition(";")[0]  # The advice after it is for a folder that lacks the file.
            source = FileSource(FOLDERS.name, f"the metadata table cannot be used: {reason}", is_damage=True)
        else:
            return request.check_not_overtaken(snapshot)
    snapshot = request.make_snapshot(list_files(store.storage), source)
    if source.is_damage:
        _LOG.warning("%s: the folders were listed: %s", store.storage.location, source.reason)
    return request.check_not_overtaken(snapshot)


@dataclass(frozen=True, slots=True)
class _SnapshotRequest:
    """The arguments of `list_snapshot`. Its methods make the snapshot from a listing."""

    store: TimelineStore
    config: TableConfig
    whole: Timeline
    as_of: str | None
    is_time_travel: bool
    needed_times: frozenset[str] | None

    def make_snapshot(self, listing: Listing, source: FileSource) -> Snapshot:
        """Build the snapshot from a listing. Raise the errors of `list_snapshot`."""
        store, config, whole, as_of = self.store, self.config, self.whole, self.as_of
        is_time_travel = self.is_time_travel
        location = store.storage.location
        timeline = whole if as_of is None else whole.as_of(as_of)
        commits, promised, replaced = self._read_commits(timeline)
        later = [(i, store.read_commit(i)) for i in whole.commits if i.time not in timeline.commit_times]
        missing = find_missing_before(later, listing, location) if later else None
        if missing is not None:
            raise InstantNotAvailableError(f"cannot read {location} as of {as_of}: {missing}; ask for a later instant")
        files = visible_files(listing.bases, timeline, replaced, FileNames(dict(commits)))
        check_complete(files, promised, replaced, location=location, is_time_travel=is_time_travel)
        schema = table_schema(store, config, timeline.commits, files)
        live: LiveFiles = ListedFiles(files)
        absent = find_absent_logs(promised, listing.logs) if config.table_type is TableType.MERGE_ON_READ else []
        if (listing.logs or absent) and config.table_type is TableType.MERGE_ON_READ:
            latest_base = make_latest_base(store, timeline, (*listing.logs, *absent))
            slices = build_slices(files, listing.logs, replaced, latest_base)
            check_logs(slices, promised, latest_base, replaced, location=location, is_time_travel=is_time_travel)
            if any(piece.logs for piece in slices):
                tells = timeline.layout.has_completion_times
                live = add_log_facts(slices, commits, timeline.completion_time if tells else None)
        return self._finish(timeline, commits, schema, live, source)

    def make_from_metadata_table(self, listed: MetadataListing) -> Snapshot:
        """Build the snapshot from a listing of the metadata table. Raise the errors of `list_snapshot`.

        The files of a copy-on-write table stay columns.
        """
        timeline = self.whole if self.as_of is None else self.whole.as_of(self.as_of)
        is_whole = len(timeline.commits) == len(self.whole.commits)
        if self.config.table_type is not TableType.COPY_ON_WRITE or not is_whole:
            columns = (listed.files[name].to_pylist() for name in ("partition_path", "file_name", "size_bytes"))
            snapshot = self.make_snapshot(make_listing(zip(*columns, strict=True)), METADATA_TABLE)
            return _add_statistics(snapshot, listed.table)
        commits, promised, replaced = self._read_commits(timeline)
        table, groups = visible_table(listed.files, timeline, replaced, FileNames(dict(commits)))
        named = {stat.group for _, metadata in promised for stat in metadata.all_stats()}
        written = pc.is_in(groups, pa.array(map(group_text, named), pa.string()))
        check_complete(
            file_objects(table.filter(written)),
            promised,
            replaced,
            location=self.store.storage.location,
            is_time_travel=self.is_time_travel,
        )
        last = file_objects(table.slice(max(0, table.num_rows - 1)))
        schema = table_schema(self.store, self.config, timeline.commits, last)
        return _add_statistics(
            self._finish(timeline, commits, schema, ListedTable(table), METADATA_TABLE), listed.table
        )

    def check_not_overtaken(self, found: Snapshot) -> Snapshot:
        """Return the snapshot if no clean has overtaken it. Raise `CleanedFileError` otherwise."""
        path = find_overtaking(self.store, self.whole, found.instant_time, found.slices)
        if path is not None:
            raise CleanedFileError(
                f"{self.store.storage.location}/{path} was cleaned while the files were listed; read again, or keep "
                "more history (hoodie.cleaner.commits.retained)"
            )
        return found

    def _read_commits(self, timeline: Timeline) -> tuple[_Commits, _Commits, frozenset[FileGroupId]]:
        """Read the commits. Return all, those whose files must exist, and the file groups that they replaced."""
        commits = [(instant.time, self.store.read_commit(instant)) for instant in timeline.commits]
        replaced = frozenset(group for _, metadata in commits for group in metadata.replaced_groups)
        needed = self.needed_times
        promised = [(time, metadata) for time, metadata in commits if needed is None or time in needed]
        return commits, promised, replaced

    def _finish(
        self, timeline: Timeline, commits: _Commits, schema: pa.Schema | None, live: LiveFiles, source: FileSource
    ) -> Snapshot:
        config, storage = self.config, self.store.storage
        if schema is not None and (not config.traits.lists_all_columns or config.table_type is TableType.MERGE_ON_READ):
            schema = _add_operation(storage, schema, live)
        schemas = read_schemas(storage, commits, storage.location)
        newest = timeline.commits[-1].time if timeline.commits else None
        return Snapshot(config, self.whole, newest, schema, live, schemas, source=source)


def _add_statistics(snapshot: Snapshot, table: MetadataTable) -> Snapshot:
    """Return the snapshot with the statistics of the metadata table."""
    if snapshot.schema is None or snapshot.schemas:
        return snapshot  # With schema on read, column ids identify columns, but statistics have their names.
    statistics, live = (
        MetadataBounds(table, with_meta_columns(stored_columns(snapshot.schema, snapshot.config))),
        snapshot.live,
    )
    if isinstance(live, ListedSlices):
        return replace(snapshot, live=replace(live, statistics=statistics))
    files = live.table if isinstance(live, ListedTable) else file_columns(snapshot.files)
    return replace(snapshot, live=ListedTable(files, statistics))


def _add_operation(storage: Storage, schema: pa.Schema, live: LiveFiles) -> pa.Schema:
    """Add the operation column if a file has it: the schemas in commits lack it (Hudi: ``hasOperationField``)."""
    if OPERATION in schema.names:
        return schema
    bases = live.bases if isinstance(live, ListedSlices) else live
    first = (file for portion in bases.portions() for file in file_objects(portion.files.slice(0, 1)))
    base = next(first, None)
    if base is not None:
        where = f"{storage.location}/{base.path}"
        with open_base(storage, base) as source, open_parquet(source, where) as parquet:
            has_operation = OPERATION in parquet.schema_arrow.names
    else:
        logs = live.slices[0].logs if isinstance(live, ListedSlices) else ()
        headers = (block.header.get(HeaderKey.SCHEMA, "") for block in read_blocks(storage, logs[0])) if logs else ()
        has_operation = any(f'"{OPERATION}"' in text for text in headers)
    return with_operation(schema) if has_operation else schema


def make_latest_base(store: TimelineStore, timeline: Timeline, logs: Iterable[LogFile]) -> LatestBase:
    """Return a function that returns the greatest instant of a base file that a log file may belong to.

    `build_slices` uses the function to assign log files to file slices.
    """
    times = {log.name.instant_time for log in logs}
    if timeline.layout.has_completion_times:
        # In table version 6, log files written during a pending compaction are named by its instant, and an upgrade
        # keeps these names. Hudi does not read such files after the upgrade. They are read here: each may belong to any
        # base file up to the instant in its name.
        planned = times.intersection(store.read_compaction_groups(timeline).values())
        opened = {time: time for time in planned}
        opened |= store.completion_times(timeline, {time for time in times if timeline.is_committed(time)})
    else:
        # Neither a base file nor a log file of a pending commit starts a slice: a rollback would delete the file.
        opening = {instant.time for instant in timeline.pending if instant.action in COMMIT_ACTIONS}
        opened = {time: time for time in times - opening if time <= (timeline.newest_time or "")}
    return lambda log: opened.get(log.name.instant_time)


class FileNames:
    """A function of a commit's time. It returns a mapping of file group to file name, from the commit's write stats."""

    def __init__(self, commits: Mapping[str, CommitMetadata]) -> None:
        self._commits = commits
        self._named: dict[str, Mapping[FileGroupId, str]] = {}

    def __call__(self, time: str) -> Mapping[FileGroupId, str]:
        """Return a mapping of file group to the name of the file that a commit wrote, from the commit's write stats."""
        if time not in self._named:
            self._named[time] = {stat.group: stat.path.rpartition("/")[2] for stat in self._commits[time].all_stats()}
        return self._named[time]


def check_instant_available(store: TimelineStore, timeline: Timeline, as_of: str) -> None:
    """Raise `InstantNotAvailableError` if cleaning or archiving has removed the state at an instant."""
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
    clean = store.read_clean(cleans[-1])
    earliest = clean.earliest_commit_to_retain if clean else ""
    if earliest and as_of < earliest:
        raise InstantNotAvailableError(
            f"instant {as_of} is older than {earliest}, the oldest one the cleaner has kept whole; ask for a later "
            "instant, or keep more history (hoodie.cleaner.commits.retained)"
        )


def table_schema(
    store: TimelineStore, config: TableConfig, commits: tuple[Instant, ...], files: Sequence[BaseFile]
) -> pa.Schema | None:
    """Return the newest schema in a commit, else the schema given at creation, else that of a base file, else None.

    Dropped partition columns come last. Their type is text if neither a commit nor the schema given at creation has it.
    Source: Hudi's ``TableSchemaResolver``.
    """
    schema = _find_schema(store, config, commits, files)
    if schema is not None and config.has_operations:
        schema = with_operation(schema)
    if schema is None or not config.drops_partition_columns:
        return schema
    names = set(schema.names)
    missing = [name for name in config.partition_fields if name not in names]
    created = config.get(CREATE_SCHEMA)
    created_schema = without_meta(from_avro(created, name=PROPERTIES_PATH)) if created else schema
    names = set(created_schema.names)
    types = [created_schema.field(name).type if name in names else pa.string() for name in missing]
    return pa.schema([*schema, *map(pa.field, missing, types)])


def _find_schema(
    store: TimelineStore, config: TableConfig, commits: tuple[Instant, ...], files: Sequence[BaseFile]
) -> pa.Schema | None:
    location = store.storage.location
    for instant in reversed(commits):
        text = store.read_commit(instant).schema_text
        if text:
            return without_meta(from_avro(text, name=f"{location}/{store.path(instant)}"))
    created = config.get(CREATE_SCHEMA)
    if created:
        return without_meta(from_avro(created, name=f"{location}/{PROPERTIES_PATH}"))
    for file in reversed(files):
        with open_base(store.storage, file) as source, open_parquet(source, f"{location}/{file.path}") as parquet:
            return without_meta(storage_schema(parquet.schema_arrow))
    return None
