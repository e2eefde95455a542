"""The result of a write before it is published, and the table as it will be then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeformat.codec.column_ids import reconcile
from lakeformat.file_system_view.live_files import ListedFiles, ListedSlices
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.hashing_metadata import HashRing
from lakeformat.model.internal_schema import InternalSchema
from lakeformat.transaction.order.written_file import WrittenFile

__all__ = ["NewKeyCheck", "Outcome", "make_proposed_snapshot"]

#: A check that gets a list of (instant time, metadata), one for each commit completed since the write began. It raises
#: `WriteConflictError` if one of them conflicts with the keys or partitions that are new in our write.
NewKeyCheck = Callable[[Sequence[tuple[str, CommitMetadata]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a write that is not published yet.

    Attributes:
        schema: the table's columns after the write.
        written: the files of the write.
        snapshot: the table's snapshot when the write started.
        overwritten: partitions whose contents the write replaces; None if it replaces none.
        appended: file groups to which the write has only appended, without reading their rows. ``check_new_keys``
            checks them, not the comparison of file groups.
        check_new_keys: checks the commits that completed while this write ran. It raises an error if one of them wrote
            a key or bucket that is new in this write. For a compaction, it raises an error if one of them wrote to a
            slice that the compaction merges. None for no such check.
        replaced: maps partition path to the ids of the file groups to hide; None hides all file groups of the
            partitions ``overwritten``.
        schema_text: the schema text to store in the commit, copied from an earlier commit; if "", ``schema`` is stored.
        files_schema: the columns of the files; None if they are those of ``schema``.
        altered: all schemas with column ids after a change of the columns, oldest first; None if the write makes none.
        rings: the rings of consistent hashing after a resizing.
    """

    schema: pa.Schema
    written: Sequence[WrittenFile]
    snapshot: Snapshot
    overwritten: frozenset[str] | None = None
    appended: frozenset[FileGroupId] = frozenset()
    check_new_keys: NewKeyCheck | None = None
    replaced: Mapping[str, tuple[str, ...]] | None = None
    schema_text: str = ""
    files_schema: pa.Schema | None = None
    altered: tuple[InternalSchema, ...] | None = None
    rings: tuple[HashRing, ...] = ()

    def schemas_after(self, instant_time: str) -> tuple[InternalSchema, ...]:
        """Return the table's schemas with column ids after the write, oldest first; empty if the table has none.

        Raises:
            SchemaMismatchError: if the write adds a column of a type that cannot be stored with an id.
        """
        schemas, before = self.snapshot.schemas, self.snapshot.schema
        if self.altered is not None or not schemas or before is None:
            return self.altered or schemas
        now = reconcile(schemas[-1], before, self.schema, int(instant_time))
        return schemas if now is schemas[-1] else (*schemas, now)

    @property
    def stats(self) -> list[WriteStat]:
        """Return the write stats of the written files, sorted by path."""
        return sorted((file.stat for file in self.written), key=lambda stat: stat.path)

    @property
    def replaced_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return a mapping of partition path to the ids of the file groups that the commit hides."""
        if self.replaced is not None:
            return self.replaced
        live = self.snapshot.slices
        return {
            partition: tuple(piece.group.file_id for piece in live[partition])
            for partition in sorted(self.overwritten or ())
            if partition in live
        }


def make_proposed_snapshot(
    snapshot: Snapshot,
    schema: pa.Schema,
    stats: Sequence[WriteStat],
    replaced: Mapping[str, Sequence[str]],
    instant_time: str,
) -> Snapshot:
    """Return the snapshot of the table as it will be once these files of a pending instant are published."""
    hidden = {FileGroupId(path, file_id) for path, ids in replaced.items() for file_id in ids}
    slices = {piece.group: piece for piece in snapshot.each_slice() if piece.group not in hidden}
    for stat in stats:
        group, log = stat.group, LogFileName.match(stat.path.rpartition("/")[2])
        if log is None:
            slices[group] = FileSlice(group, instant_time, stat.base_file)
        else:
            piece = slices.get(group) or FileSlice(group, instant_time, None)
            slices[group] = replace(piece, logs=(*piece.logs, LogFile(stat.partition_path, log, stat.size_bytes)))
    after = tuple(slices[group] for group in sorted(slices))
    has_logs = any(piece.logs for piece in after)
    live = ListedSlices(after) if has_logs else ListedFiles(tuple(piece.base for piece in after if piece.base))
    timeline = snapshot.timeline.with_completed(instant_time)
    return Snapshot(snapshot.config, timeline, max(snapshot.instant_time or "", instant_time), schema, live)
