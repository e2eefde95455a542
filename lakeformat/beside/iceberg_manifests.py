"""The manifests of an Iceberg snapshot: which stay, which are written again, and the files of a new snapshot.

A manifest lists files of the table. Only manifests with removed files are written again, and small ones once there are
many of them. So a commit writes an entry for each file that changes, and at most `_ENTRIES` more for each manifest that
lists a removed file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from lakeformat.concurrency import run_all

__all__ = ["Manifest", "SnapshotFiles", "find_unreachable", "read_manifests"]

#: Maximum number of files that a new manifest lists.
_ENTRIES: Final = 200
#: Small manifests are joined when there are this many of one kind of partitions.
_SMALL: Final = 20
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest and the locations of the files that it lists as live."""

    file: ManifestFile
    locations: frozenset[str]


def read_manifests(snapshot: Snapshot | None, files: FileIO) -> tuple[Manifest, ...]:
    """Read the manifests of a snapshot that list any file."""
    if snapshot is None:
        return ()

    def read(manifest: ManifestFile) -> Manifest:
        entries = manifest.fetch_manifest_entry(files, discard_deleted=True)
        return Manifest(manifest, frozenset(entry.data_file.file_path for entry in entries))

    read_all = run_all(read, list(snapshot.manifests(files)), threads=_READERS)
    return tuple(manifest for manifest in read_all if manifest.locations)


def find_unreachable(expired: Sequence[Snapshot], kept: Sequence[Snapshot], files: FileIO) -> list[str]:
    """Return the locations of the manifests and lists that only expired snapshots name.

    A manifest belongs to snapshots that follow each other. So those next to the expired ones name it, if any does.
    """
    gone = {snapshot.snapshot_id for snapshot in expired}
    ordered = sorted((*expired, *kept), key=lambda snapshot: snapshot.sequence_number or 0)
    beside = {
        position + step for position, snapshot in enumerate(ordered) if snapshot.snapshot_id in gone for step in (-1, 1)
    }
    named = {
        manifest.manifest_path
        for position, snapshot in enumerate(ordered)
        if position in beside and snapshot.snapshot_id not in gone
        for manifest in snapshot.manifests(files)
    }
    listed = {manifest.manifest_path for snapshot in expired for manifest in snapshot.manifests(files)}
    return [*sorted(listed - named), *(snapshot.manifest_list for snapshot in expired)]


def _choose_rewritten(manifests: Sequence[Manifest], removed: frozenset[str]) -> list[list[Manifest]]:
    """Return groups of manifests to be written again, each group as one."""
    groups = [[kept] for kept in manifests if kept.locations & removed]
    small: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        if len(manifest.locations) <= _ENTRIES // 2:
            small.setdefault(manifest.file.partition_spec_id, []).append(manifest)
    for alike in small.values():
        if len(alike) >= _SMALL:
            groups = [*(group for group in groups if group[0] not in alike), alike]
    return groups


@dataclass
class SnapshotFiles:
    """Writes the manifests of a new snapshot and their list.

    Attributes:
        specs: the kinds of partitions by their number.
        location: the folder of the files.
        token: makes the files' names unique.
        written: locations of the files that were written.
        removed: the entries that were removed.
    """

    files: FileIO
    schema: Schema
    specs: dict[int, PartitionSpec]
    snapshot_id: int
    location: str
    token: str
    written: list[str] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)

    def write_manifests(
        self, manifests: Sequence[Manifest], removed: frozenset[str], added: Mapping[int, Sequence[DataFile]]
    ) -> list[ManifestFile]:
        """Return the manifests of the snapshot; write those that are new or change.

        Args:
            manifests: those of the snapshot before.
            removed: locations of the files that are not live any more.
            added: the new files by the number of their kind of partitions.
        """
        groups = _choose_rewritten(manifests, removed)
        rewritten = {manifest.file.manifest_path for group in groups for manifest in group}
        kept = [manifest.file for manifest in manifests if manifest.file.manifest_path not in rewritten]
        new = [
            manifest
            for spec, some in added.items()
            for manifest in self._write(spec, [_entry(ManifestEntryStatus.ADDED, file) for file in some])
        ]
        again = [manifest for group in groups for manifest in self._write_again(group, removed)]
        return [*new, *again, *kept]

    def _write_again(self, group: Sequence[Manifest], removed: frozenset[str]) -> Iterator[ManifestFile]:
        entries: list[ManifestEntry] = []
        for manifest in group:
            for entry in manifest.file.fetch_manifest_entry(self.files, discard_deleted=True):
                gone = entry.data_file.file_path in removed
                entry.status = ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING
                entries.append(entry)
                if gone:
                    self.removed.append(entry.data_file)
        return self._write(group[0].file.partition_spec_id, entries)

    def _write(self, spec: int, entries: Sequence[ManifestEntry]) -> Iterator[ManifestFile]:
        for start in range(0, len(entries), _ENTRIES):
            target = self.files.new_output(self._name(f"{self.token}-m{len(self.written)}.avro"))
            with write_manifest(2, self.specs[spec], self.schema, target, self.snapshot_id, "deflate") as writer:
                for entry in entries[start : start + _ENTRIES]:
                    if entry.status is ManifestEntryStatus.ADDED:
                        writer.add(entry)
                    elif entry.status is ManifestEntryStatus.EXISTING:
                        writer.existing(entry)
                    else:
                        writer.delete(entry)
            yield writer.to_manifest_file()

    def write_list(self, manifests: list[ManifestFile], parent: int | None, sequence_number: int) -> str:
        """Write the list of the snapshot's manifests, and return its location."""
        location = self._name(f"snap-{self.snapshot_id}-1-{self.token}.avro")
        target = self.files.new_output(location)
        with write_manifest_list(2, target, self.snapshot_id, parent, sequence_number, "deflate") as writer:
            writer.add_manifests(manifests)
        return location

    def _name(self, name: str) -> str:
        self.written.append(f"{self.location}/{name}")
        return self.written[-1]


def _entry(status: ManifestEntryStatus, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(_table_format_version=2, status=status, data_file=file)
