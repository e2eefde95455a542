"""Iceberg as a format beside a table: which columns, partitions and files a snapshot has."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.snapshots import (
    Snapshot as IcebergSnapshot,
)
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform

from lakeformat.beside.face import COMPLETED, INSTANT, Changes, Face, Footers, folder_columns
from lakeformat.beside.iceberg_columns import (
    add_ids,
    data_files,
    iceberg_schema,
    mapped_ids,
    name_mapping,
    parts_table,
    plain_values,
    schema_ids,
    sole_values,
)
from lakeformat.beside.iceberg_manifests import Manifest, SnapshotFiles, find_unreachable, read_manifests
from lakeformat.beside.iceberg_places import FOLDER, CatalogPlace, FolderPlace, Place, Stored, reading
from lakeformat.beside.shown import values_of_folders
from lakeformat.config.beside_options import BesideOptions
from lakeformat.errors import LakeformatError, SyncError, UnsupportedTableError, reason_of
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.live_files import Portion
from lakeformat.file_system_view.snapshot import Snapshot

__all__ = ["IcebergFace"]

_LOG: Final = logging.getLogger("lakeformat.beside")
_MAPPING: Final = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of an Iceberg table."""

    stored: Stored
    manifests: tuple[Manifest, ...]


class IcebergFace:
    """The Iceberg metadata beside a table."""

    name = "iceberg"
    folder = FOLDER

    def __init__(self, context: TableContext, options: BesideOptions) -> None:
        self._context, self._storage = context, context.storage
        self._place: Place = (
            CatalogPlace(options.iceberg_catalog, options.iceberg_table, context.storage.location)
            if options.iceberg_catalog
            else FolderPlace(context.storage)
        )

    def read(self) -> Face:
        """Read the newest snapshot."""
        stored = self._place.load()
        if stored is None:
            return Face()
        metadata = stored.metadata
        newest = metadata.current_snapshot()
        with reading(self._storage):
            manifests = read_manifests(newest, stored.files)
        start = len(metadata.location.rstrip("/")) + 1
        said = _said(newest)
        return Face(
            _number(metadata),
            said.get(INSTANT, ""),
            said.get(COMPLETED, ""),
            frozenset(location[start:] for manifest in manifests for location in manifest.locations),
            "" if newest is None or INSTANT in said else said.get("engine-name", "another program"),
            stored=_Read(stored, manifests),
        )

    def columns_differ(self, face: Face, snapshot: Snapshot, schema: pa.Schema) -> bool:
        """Tell whether a snapshot has other columns than the metadata, or the metadata has no snapshot."""
        if face.stored is None or not face.version:
            return True
        metadata = face.stored.stored.metadata
        return bool(iceberg_schema(schema, _ids(metadata)) != metadata.schema())

    def point(self, face: Face) -> None:
        """Let readers find the newest version."""
        if face.stored is not None:
            self._place.point(face.stored.stored)

    def delete(self) -> None:
        """Delete the metadata, or drop the table from the catalog."""
        self._place.delete()

    def put(self, face: Face, changes: Changes, footers: Footers) -> int | None:
        """Add a snapshot; None if another writer has added one."""
        stored, manifests = (face.stored.stored, face.stored.manifests) if face.stored else (None, ())
        names = _partition_columns(stored, changes)
        rows = footers.rows
        parts = _find_partitions(changes, names, rows)
        if stored is None:
            if any(None in part for part in parts):  # A folder does not have one value: bounds prune.
                names, parts = (), [[()] * len(values) for values in parts]
            stored = self._create(changes.schema, names)
            if stored is None:
                return None
        draft = _Draft(self._context, stored, changes, footers.schemas)
        try:
            draft.write(manifests, zip(changes.files.added, rows, parts, strict=True))
        except Exception as error:
            draft.delete_files()
            if isinstance(error, LakeformatError):
                raise
            where = self._storage.location
            raise SyncError(f"{where}: Iceberg's manifests cannot be written: {reason_of(error)}") from error
        is_done = self._place.commit(stored, draft.updates)
        if is_done is False:
            draft.delete_files()
        if is_done:
            draft.delete_expired()
        return draft.number if is_done else None

    def _create(self, schema: pa.Schema, names: Sequence[str]) -> Stored | None:
        columns = iceberg_schema(schema, {})
        fields = (
            PartitionField(
                columns.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name
            )
            for number, name in enumerate(names)
        )
        return self._place.create(columns, PartitionSpec(*fields))


def _said(snapshot: IcebergSnapshot | None) -> Mapping[str, str]:
    """Return what the writer of a snapshot says of it."""
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def _ids(metadata: TableMetadata) -> dict[str, int]:
    return schema_ids(metadata.schemas) | mapped_ids(metadata.properties.get(_MAPPING, ""))


def _number(metadata: TableMetadata) -> int:
    """Return the number of the newest snapshot; 0 if there is none."""
    return int(getattr(metadata, "last_sequence_number", 0))


def _partition_columns(stored: Stored | None, changes: Changes) -> tuple[str, ...]:
    """Return the columns whose values are Iceberg's partitions."""
    if stored is not None:
        columns, fields = stored.metadata.schema(), stored.metadata.spec().fields
        return tuple(str(columns.find_column_name(field.source_id)) for field in fields)
    names = changes.snapshot.config.partition_fields
    types = {field.name: field.type for field in changes.schema}
    can_part = all(name in types and parts_table(types[name]) for name in names)
    if not can_part and folder_columns(changes.snapshot):
        raise UnsupportedTableError(
            f"Iceberg cannot have the partition columns {', '.join(names)}, whose values only the folders' names hold"
        )
    return tuple(names) if can_part else ()


def _find_partitions(
    changes: Changes, names: Sequence[str], rows: Sequence[Sequence[int]]
) -> list[list[tuple[Any, ...] | None]]:
    """Return the partition values of each added file; None for files with several values, or whose are not known."""
    added = changes.files.added
    if not folder_columns(changes.snapshot):
        return [sole_values(portion, names, counts) for portion, counts in zip(added, rows, strict=True)]
    values = values_of_folders(changes.snapshot, changes.schema, added, _plain_value)
    return [
        [tuple(values[folder][name] for name in names) for folder in portion.files["partition_path"].to_pylist()]
        for portion in added
    ]


def _plain_value(value: pa.Scalar) -> Any:
    return plain_values(pa.array([value.as_py()], value.type))[0]


class _Draft:
    """One snapshot to be added: its files, and the changes of the metadata."""

    def __init__(self, context: TableContext, stored: Stored, changes: Changes, held: Iterable[pa.Schema]) -> None:
        metadata = stored.metadata
        self._metadata, self._changes, self._context = metadata, changes, context
        self.updates: list[TableUpdate] = []
        self._expired = [
            snapshot for snapshot in metadata.snapshots if not changes.keeps(_said(snapshot).get(INSTANT, ""))
        ]
        #: The version of the face.
        self.number = _number(metadata) + 1
        self._columns = self._change_columns(held)
        token = uuid.UUID(context.ids.token())
        self._files = SnapshotFiles(
            stored.files,
            self._columns,
            metadata.specs(),
            token.int & ((1 << 63) - 1),
            f"{metadata.location.rstrip('/')}/{FOLDER}",
            str(token),
        )

    def _change_columns(self, held: Iterable[pa.Schema]) -> Schema:
        """Return the columns of the snapshot. The files' other columns get ids, too.

        Args:
            held: the different schemas of the added files.
        """
        metadata, ids = self._metadata, _ids(self._metadata)
        columns = iceberg_schema(self._changes.schema, ids, max(stored.schema_id for stored in metadata.schemas) + 1)
        same = next((stored for stored in metadata.schemas if stored == columns), None)
        if same is None:
            self.updates += [AddSchemaUpdate(schema=columns), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})]
        elif same.schema_id != metadata.current_schema_id:
            self.updates.append(SetCurrentSchemaUpdate.model_validate({"schema-id": same.schema_id}))
        mapping = name_mapping(add_ids(ids | schema_ids([columns]), (field for fields in held for field in fields)))
        if metadata.properties.get(_MAPPING) != mapping:
            self.updates.append(SetPropertiesUpdate(updates={_MAPPING: mapping}))
        return same or columns

    def write(
        self,
        manifests: Sequence[Manifest],
        added: Iterable[tuple[Portion, Sequence[int], Sequence[tuple[Any, ...] | None]]],
    ) -> None:
        """Write the snapshot's files, and add the changes that name them."""
        files, metadata, changes = self._files, self._metadata, self._changes
        location = metadata.location.rstrip("/")
        new: dict[int, list[DataFile]] = {}
        for portion, rows, parts in added:
            data = data_files(portion, rows, [part or () for part in parts], changes.schema, self._columns, location)
            for part, file in zip(parts, data, strict=True):
                file.spec_id = metadata.default_spec_id if part is not None else self._unparted()
                new.setdefault(file.spec_id, []).append(file)
        removed = frozenset(f"{location}/{path}" for path in changes.files.removed)
        chosen = files.write_manifests(manifests, removed, new)
        parent = metadata.current_snapshot_id
        snapshot = {
            "snapshot-id": files.snapshot_id,
            "parent-snapshot-id": parent,
            "sequence-number": self.number,
            "timestamp-ms": max(self._context.clock.now_ms(), metadata.last_updated_ms),
            "manifest-list": files.write_list(chosen, parent, self.number),
            "summary": self._summarize([file for some in new.values() for file in some]),
            "schema-id": self._columns.schema_id,
        }
        self._snapshot = IcebergSnapshot.model_validate(snapshot)
        newest = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": files.snapshot_id}
        self.updates += [
            AddSnapshotUpdate(snapshot=self._snapshot),
            SetSnapshotRefUpdate.model_validate(newest),
        ]
        if self._expired:
            gone = {"snapshot-ids": [snapshot.snapshot_id for snapshot in self._expired]}
            self.updates.append(RemoveSnapshotsUpdate.model_validate(gone))

    def _unparted(self) -> int:
        """Return the number of the kind of files without partition values; add that kind if it is missing."""
        specs = self._files.specs
        number = next((spec_id for spec_id, spec in specs.items() if not spec.fields), None)
        if number is None:
            number = max(specs) + 1
            specs[number] = PartitionSpec(spec_id=number)
            self.updates.append(AddPartitionSpecUpdate(spec=specs[number]))
        return number

    def _summarize(self, added: Sequence[DataFile]) -> Summary:
        metadata, removed, collector = self._metadata, self._files.removed, SnapshotSummaryCollector()
        for file in added:
            collector.add_file(file, self._columns, self._files.specs[file.spec_id])
        for file in removed:
            collector.remove_file(file, self._columns, self._files.specs[file.spec_id])
        changes, before = self._changes, metadata.current_snapshot()
        operation = Operation.APPEND if not removed else Operation.OVERWRITE if added else Operation.DELETE
        own = {
            "engine-name": "lakeformat",
            INSTANT: changes.snapshot.instant_time or "",
            COMPLETED: changes.completed,
        }
        summary = Summary(operation=operation, **collector.build(), **own)
        return update_snapshot_summaries(summary, before.summary if before else None)

    def delete_files(self) -> None:
        """Delete the written files, after the snapshot was refused."""
        for location in self._files.written:
            self._files.files.delete(location)

    def delete_expired(self) -> None:
        """Delete the files of snapshots whose rows are gone. If that fails, they stay: no metadata names them."""
        files, metadata = self._files.files, self._metadata
        if not self._expired:
            return
        kept = [self._snapshot, *(snapshot for snapshot in metadata.snapshots if snapshot not in self._expired)]
        try:
            for location in find_unreachable(self._expired, kept, files):
                files.delete(location)
        except Exception as error:
            _LOG.warning("%s: files of old Iceberg snapshots were not deleted: %s", metadata.location, error)
