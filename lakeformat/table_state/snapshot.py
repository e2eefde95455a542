"""A table at one instant: settings, schema and files, read once and then a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.avro_schema import from_avro, without_meta
from lakeformat.codec.stored_types import storage_schema
from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from lakeformat.files.slice_reader import SliceMerging
from lakeformat.merge.read_rule import ReadRule, read_rule
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakeformat.model.instant import Action, Instant, State, VisibleInstants
from lakeformat.model.table_config import CREATE_SCHEMA, PROPERTIES_PATH, TableConfig, TableType
from lakeformat.table_state.file_groups import check_complete, list_files, visible_files
from lakeformat.table_state.live import ListedFiles, ListedSlices, LiveFiles, Partitioned, file_objects
from lakeformat.table_state.slices import CountsFrom, check_logs, slices_of
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["Snapshot", "check_horizon", "list_snapshot", "table_schema"]

_AT_A_TIME: Final = 1024


@dataclass(frozen=True)
class Snapshot:
    """What a reader or writer knows of the table at one instant.

    Attributes:
        config: the table's settings.
        timeline: all active instants, not cut.
        instant_time: the newest commit that counts, None in an empty table.
        schema: the table's columns without the meta columns; None if no one has ever said.
        live: the live base files.
    """

    config: TableConfig
    timeline: Timeline
    instant_time: str | None
    schema: pa.Schema | None
    live: LiveFiles

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
        for files in (portion.files for portion in self.live.portions()):
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
        return SliceMerging(self._rule, self._visible.since(piece.base_instant))

    @cached_property
    def by_partition(self) -> Mapping[str, tuple[BaseFile, ...]]:
        """Partition path -> its live files."""
        return Partitioned(self.live)

    def columns(self, location: str) -> pa.Schema:
        """The schema, which must be known. Raises `CorruptTableError`."""
        if self.schema is None:
            raise CorruptTableError(
                f"{location} has no schema: no commit and no base file names one; write to it first"
            )
        return self.schema


def list_snapshot(store: TimelineStore, config: TableConfig, whole: Timeline, as_of: str | None = None) -> Snapshot:
    """The table at a timeline, by listing every partition folder.

    Args:
        whole: loaded before: a file of a commit that completes in between is then not yet visible, and a listed
            file is never missing because its commit was not yet known.

    Raises:
        InstantNotAvailableError: a file of the instant has been cleaned away.
        CorruptTableError: a file that a commit names is missing or has another size.
    """
    location = store.storage.location
    timeline = whole if as_of is None else whole.as_of(as_of)
    commits = [(instant.time, store.commit(instant)) for instant in timeline.commits]
    replaced = frozenset(
        FileGroupId(partition, file_id)
        for _, metadata in commits
        for partition, ids in metadata.replaced.items()
        for file_id in ids
    )
    listing = list_files(store.storage)
    files = visible_files(listing.bases, timeline, replaced, _Names(dict(commits)))
    check_complete(files, commits, replaced, location=location, travelling=as_of is not None)
    newest = timeline.commits[-1].time if timeline.commits else None
    schema = table_schema(store, config, timeline.commits, files)
    live: LiveFiles = ListedFiles(files)
    if listing.logs and config.table_type is TableType.MERGE_ON_READ:
        counts_from = _counting(store, timeline, listing.logs)
        slices = slices_of(files, listing.logs, replaced, counts_from)
        check_logs(slices, commits, counts_from, location=location, travelling=as_of is not None)
        live = ListedSlices(slices) if any(each.logs for each in slices) else live
    return Snapshot(config, whole, newest, schema, live)


def _counting(store: TimelineStore, timeline: Timeline, logs: Iterable[LogFile]) -> CountsFrom:
    """Tells of log files the greatest instant of a base file that they may belong to: see `slices_of`."""
    times = {log.name.instant_time for log in logs}
    if timeline.layout.tells_completion:
        known = store.completion_times(timeline, {time for time in times if timeline.is_committed(time)})
    else:
        known = {time: time for time in times if time <= (timeline.newest_time or "")}
    return lambda log: known.get(log.name.instant_time)


class _Names:
    """Instant time -> group -> the file name its statistics give."""

    def __init__(self, commits: Mapping[str, CommitMetadata]) -> None:
        self._commits = commits
        self._named: dict[str, Mapping[FileGroupId, str]] = {}

    def __call__(self, time: str) -> Mapping[FileGroupId, str]:
        if time not in self._named:
            self._named[time] = {
                FileGroupId(stat.partition_path, stat.file_id): stat.path.rpartition("/")[2]
                for stat in self._commits[time].all_stats()
            }
        return self._named[time]


def check_horizon(store: TimelineStore, timeline: Timeline, as_of: str) -> None:
    """Raise `InstantNotAvailableError` if the instant is older than what the cleaner has left."""
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

    Source: Hudi's ``TableSchemaResolver``.
    """
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
