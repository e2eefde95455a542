"""Upkeep of the file index: a delta after each commit, sometimes a new snapshot, and removal of old snapshots.

The upkeep runs after the commit is visible and must never fail a write. Errors are logged, and the next write makes a
new snapshot. Memory: one list of the files of the changed shards; for the first snapshot of a table without an index,
one list of all its files.

Readers do not use an index snapshot that is older than the last change of the archive: a commit that the snapshot does
not cover may be in the archive, where readers of the index do not look. So when lakeformat archives commits, it also
writes the index snapshot again (`carry_over`). This is safe, because the process knows which commits it archived, and
writes the snapshot only if it covers all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.concurrency import thread_pool
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.file_index.load import find_deltas, find_replayed_commits, load_index_changes
from lakeformat.file_system_view.file_index.replay import (
    IndexChanges,
    cover_timeline,
    replaced_group_keys,
)
from lakeformat.file_system_view.file_index.shards import IndexedFiles, ShardPart
from lakeformat.file_system_view.file_index.stored import (
    FOLDER,
    CoveredTimeline,
    IndexManifest,
    IndexName,
    bounds_schema,
    concat_files,
    file_table,
    fold_bounds,
    group_keys,
    indexed_paths,
    newest_versions,
    read_index_manifest,
    remove_files,
    stored_bounds,
    with_bounds,
    write_file,
)
from lakeformat.file_system_view.live_files import FILE_COLUMNS, file_columns, file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.column_stats import FileStats
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import BaseFile, FileGroupId
from lakeformat.model.instant import COMMIT_ACTIONS, Instant
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, FileInfo, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["IndexWriter", "carry_over", "find_provable_manifest", "write_manifest", "write_shard"]

_LOG: Final = logging.getLogger("lakeformat.file_index")

#: Maximum number of files without column statistics whose footers are read. If there are more, none is read.
_FOOTERS: Final = 256
#: Time for which an index snapshot is kept after the next one was written, because running readers may use it.
_GRACE_MS: Final = 3600 * 1000
#: Maximum number of old index snapshots that are kept.
_MOST_KEPT: Final = 8


_SHARDS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("stored_bytes", pa.int64()),
        ("files", pa.int64()),
        ("size_bytes", pa.int64()),
        ("first", pa.string()),
        ("last", pa.string()),
        ("rows", pa.int64()),
    ]
)


@dataclass(frozen=True)
class IndexWriter:
    """The update of the index after one commit.

    Attributes:
        columns: paths of the columns whose bounds are stored.
        schema: the table's columns after the commit.
        commits: number of commits after which a new snapshot is written. A reader opens fewer deltas than this number.
        shard_files: maximum number of files of a shard.
    """

    store: TimelineStore
    clock: Clock
    columns: Sequence[str]
    schema: pa.Schema
    commits: int
    shard_files: int

    @property
    def _storage(self) -> Storage:
        return self.store.storage

    def add_commit(
        self,
        base: Snapshot,
        instant: Instant,
        files: Sequence[tuple[BaseFile, FileStats | None]],
        replaced: frozenset[FileGroupId],
    ) -> None:
        """Write the changes of a completed commit to the index.

        The caller must not let an error of this method fail the write, because the commit is visible.

        Args:
            base: the table's snapshot from which the write started, without the commit.
            instant: instant of the commit.
            files: base files that the commit wrote, each with its column statistics; None if they are not known.
            replaced: file groups that the commit replaced.
        """
        table = file_table(files, self.columns, bounds_schema(self.schema))
        live = base.live
        if isinstance(live, IndexedFiles) and live.is_whole:
            since = base.timeline.commit_times - live.manifest.covered.commits
            if len(since) + 1 < self.commits:
                self._write_delta(instant, table, replaced)
                return
        try:
            self._write_snapshot(base, instant, table, replaced)
        except Exception as error:  # Write a delta instead: readers can use it with an older snapshot.
            _LOG.warning("no new snapshot of the file index of %s could be made: %s", self._storage.location, error)
            self._write_delta(instant, table, replaced)

    def _write_delta(self, instant: Instant, table: pa.Table, replaced: frozenset[FileGroupId]) -> None:
        write_file(self._storage, "delta", instant.time, table, {"replaced": _as_lists(replaced)})

    # --- snapshots ------------------------------------------------------------------------------------

    def _write_snapshot(
        self, base: Snapshot, instant: Instant, table: pa.Table, replaced: frozenset[FileGroupId]
    ) -> None:
        """Write a new snapshot of the index: the files of `base`, this commit, and all other commits since `base`."""
        entries = self._storage.list(FOLDER)
        if isinstance(base.live, IndexedFiles) and base.live.is_whole and _has_newer(entries, base.timeline):
            self._write_delta(instant, table, replaced)
            return
        timeline = self.store.load(base.config.archive_folder)
        missing = find_replayed_commits(self.store, cover_timeline(base.timeline), timeline)
        if not base.timeline.commits:
            missing = timeline.commits if timeline.commits == (instant,) else None
        if missing is None or instant not in missing:
            return  # A rollback, restore or archiving prevents bringing `base` up to date, so there is no new snapshot.
        others = [other for other in missing if other != instant]
        covered = base.timeline.commit_times
        changes = load_index_changes(self.store, timeline, covered, others, find_deltas(entries), self.schema)
        if changes is None:
            return
        hidden = pa.concat_arrays([changes.replaced, replaced_group_keys(replaced)])
        manifest = self._fold(base, timeline, IndexChanges((*changes.files, table), hidden))
        self._clean(entries, manifest)

    def _fold(self, base: Snapshot, timeline: Timeline, changes: IndexChanges) -> str:
        """Write the shards that changed, then the manifest. Return the manifest's path."""
        schema, live = bounds_schema(self.schema), base.live
        if isinstance(live, IndexedFiles) and live.is_whole:
            before = live.changes
            everything = IndexChanges(
                (*before.files, *changes.files), pa.concat_arrays([before.replaced, changes.replaced])
            )
            parts = IndexedFiles(self._storage, live.manifest, everything, schema, _refuse_listing).parts
            old = live.manifest.shards
        else:
            listed = concat_files([portion.files for portion in live.portions()], schema)
            added = concat_files([listed, *changes.files], schema)
            parts, old = (ShardPart("", -1, added, changes.replaced),), None
        shards = []
        for part in parts:
            if old is not None and part.path and not part.changed:
                shards.append(_convert_row(old.slice(part.at, 1), schema))
                continue
            files = part.read(self._storage, schema, None)
            files = self._fill_statistics(files.replace_schema_metadata(None), schema)
            cuts = range(0, files.num_rows, self.shard_files)
            shards += [write_shard(self._storage, files.slice(start, self.shard_files), schema) for start in cuts]
        return write_manifest(self._storage, shards, cover_timeline(timeline))

    def _fill_statistics(self, files: pa.Table, schema: pa.Schema) -> pa.Table:
        """Add column statistics from the footers of files without any, unless more than `_FOOTERS` files have none."""
        unknown = pc.is_null(files.column("rows"))
        count = pc.sum(unknown).as_py() or 0
        if not 0 < count <= _FOOTERS:
            return files
        missing = file_objects(files.filter(unknown))
        with thread_pool(max(2, pa.cpu_count())) as pool:
            pairs = [
                (file, footer)
                for file, footer in zip(missing, pool.map(self._read_footer, missing), strict=True)
                if footer
            ]
        footers = [footer for _, footer in pairs]
        bounds, rows, owner = row_group_bounds(footers, self.columns, schema)
        folded, rows = fold_files(bounds, rows, owner, len(pairs))
        columns = file_columns([file for file, _ in pairs])
        groups = pa.array([footer.num_row_groups for footer in footers], pa.int32())
        for name, values in (("rows", rows), ("row_groups", groups)):
            columns = columns.set_column(FILE_COLUMNS.get_field_index(name), FILE_COLUMNS.field(name), values)
        return newest_versions(concat_files([files, with_bounds(columns, folded)], schema), pa.array([], pa.string()))

    def _read_footer(self, file: BaseFile) -> pq.FileMetaData | None:
        try:
            return read_metadata(self._storage, file)
        except (LakeformatError, OSError, pa.ArrowException) as error:
            _LOG.warning("the file index has no statistics of %s: its footer cannot be read: %s", file.path, error)
            return None

    # --- removal of unneeded index files --------------------------------------------------------------

    def _clean(self, entries: Sequence[FileInfo], newest_manifest: str) -> None:
        """Remove the files of the index that no reader needs.

        A running reader may use a snapshot until an hour after the next snapshot was written. If this leaves more than
        `_MOST_KEPT` snapshots, only the newest are kept. A reader that misses a file of a removed snapshot lists the
        folders.

        Args:
            entries: the files in the index's folder, listed before the newest snapshot was written.
        """
        now = self.clock.now_ms()
        named = [(entry, name) for entry in entries if (name := IndexName.parse(entry.name)) is not None]
        manifests = sorted(
            (entry for entry, name in named if name.kind == "manifest"), key=lambda e: (e.modified_ms, e.name)
        )
        kept = {newest_manifest}
        followers: list[FileInfo | None] = [*manifests[1:], None]
        dropped: set[str] = set()
        for entry, following in zip(manifests, followers, strict=False):
            if following is None or now - following.modified_ms <= _GRACE_MS:
                kept.add(entry.path)
        for entry in manifests[:-_MOST_KEPT]:
            kept.discard(entry.path)
            dropped.add(entry.path)
        used, gone = set(kept), set(dropped)
        covered: list[frozenset[str]] = []
        for path in (*kept, *dropped):
            manifest = read_index_manifest(self._storage, path)
            if manifest is None:
                continue
            (used if path in kept else gone).update(manifest.shards.column("path").to_pylist())
            if path in kept:
                covered.append(manifest.covered.commits)

        def is_unneeded(time: str) -> bool:
            """Tell whether the delta file of the commit at `time` can be removed.

            It can if one of two cases applies to each kept index snapshot:

            - The snapshot covers the commit, so it already has the changes that are in the delta.
            - The commit is older than all commits that the snapshot covers. Usually it is archived; if not, readers use
              the commit's metadata instead of the delta.

            If none of the kept snapshots can be read, all deltas stay.
            """
            return bool(covered) and all(time in commits or time < min(commits) for commits in covered)

        unused: set[str] = set()
        for entry, name in named:
            is_old = now - entry.modified_ms > _GRACE_MS
            if is_unneeded(name.instant_time) if name.kind == "delta" else is_old or entry.path in gone:
                unused.add(entry.path)
        remove_files(self._storage, unused - used)


def write_shard(storage: Storage, files: pa.Table, schema: pa.Schema) -> pa.Table:
    """Write files, sorted by partition path and file id, as a shard. Return the shard's row for the manifest."""
    file = write_file(storage, "shard", "", files, {})
    keys = group_keys(files.slice(0, 1))[0].as_py(), group_keys(files.slice(files.num_rows - 1))[0].as_py()
    bounds, rows = fold_bounds(files, schema)
    size_bytes = pc.sum(files.column("size_bytes")).as_py()
    row = [[file.path], [file.size_bytes], [files.num_rows], [size_bytes], [keys[0]], [keys[1]], rows]
    return with_bounds(pa.table(row, schema=_SHARDS), bounds)


def write_manifest(storage: Storage, shards: Sequence[pa.Table], covered: CoveredTimeline) -> str:
    """Write a manifest of these shards. Readers use it from then on. Return the manifest's path."""
    whole = pa.concat_tables([_SHARDS.empty_table(), *shards], promote_options="permissive")
    facts = {"commits": sorted(covered.commits), "pending": sorted(covered.pending), "archive": covered.archive}
    return write_file(storage, "manifest", max(covered.commits), whole, facts).path


def _has_newer(entries: Sequence[FileInfo], base: Timeline) -> bool:
    """Tell whether another writer has just written a snapshot: one with a commit that was not completed in ``base``.

    A snapshot with a commit that was undone does not count: no reader can use it.
    """
    names = (IndexName.parse(entry.name) for entry in entries)
    times = [name.instant_time for name in names if name is not None and name.kind == "manifest"]
    pending = {instant.time for instant in base.pending}
    return any(time in pending or time > (base.newest_time or "") for time in times)


def _convert_row(row: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a shard's row of an older manifest: its bounds get the types that the schema has now."""
    plain = row.select([name for name in row.column_names if "/" not in name])
    return with_bounds(plain, stored_bounds(row, indexed_paths(row.column_names), schema))


def _refuse_listing() -> Any:
    raise AssertionError("a snapshot of the index is being written")


def _as_lists(groups: frozenset[FileGroupId]) -> dict[str, list[str]]:
    ids_by_path: dict[str, list[str]] = {}
    for group in sorted(groups):
        ids_by_path.setdefault(group.partition_path, []).append(group.file_id)
    return ids_by_path


def find_provable_manifest(store: TimelineStore, before: Timeline) -> IndexManifest | None:
    """Return the newest index snapshot that can be brought up to date; None if there is none or if reading fails.

    Args:
        before: the timeline before commits are archived, with `Timeline.archive` loaded.
    """
    try:
        entries = [(IndexName.parse(entry.name), entry) for entry in store.storage.list(FOLDER)]
        manifests = [(name, entry) for name, entry in entries if name is not None and name.kind == "manifest"]
        for _, _, path in sorted(((n.instant_time, e.modified_ms, e.path) for n, e in manifests), reverse=True):
            manifest = read_index_manifest(store.storage, path)
            if manifest is None:
                continue
            if find_replayed_commits(store, manifest.covered, before) is not None:
                return manifest
    except (LakeformatError, OSError) as error:
        _LOG.warning("the file index of %s cannot be carried over an archiving: %s", store.storage.location, error)
    return None


def carry_over(
    store: TimelineStore, config: TableConfig, manifest: IndexManifest | None, archived: Sequence[Instant]
) -> bool:
    """Write a snapshot of the index again without the commits that have been archived. Return whether it was written.

    Call this function under the same lock as `find_provable_manifest` and the archiving of the commits. The snapshot is
    written only if it covers all archived commits and at least one other commit. If it is not written, the next write
    creates the index again. Storage errors are logged, not raised.
    """
    gone = frozenset(instant.time for instant in archived if instant.action in COMMIT_ACTIONS)
    if manifest is None or not gone < manifest.covered.commits:
        return False
    try:
        now = store.load(config.archive_folder)
        pending = manifest.covered.pending & {instant.time for instant in now.instants}
        covered = CoveredTimeline(manifest.covered.commits - gone, pending, now.archive or "")
        write_manifest(store.storage, [manifest.shards], covered)
    except (LakeformatError, OSError) as error:
        _LOG.warning("the next write makes the file index of %s again: %s", store.storage.location, error)
        return False
    return True
