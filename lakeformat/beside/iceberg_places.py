"""Where an Iceberg table's newest metadata is known: a folder of numbered files in the table, or a catalog.

Both give pyiceberg's metadata and its door to files, and refuse a change if another writer has made one meanwhile.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableUpdate, update_table_metadata

from lakeformat.beside.face import HINT
from lakeformat.config.beside_options import FORMATS
from lakeformat.errors import CorruptTableError, LakeformatError, SyncError, UnsupportedTableError, reason_of
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.storage.port import OutcomeUnknownError, Storage

__all__ = ["FOLDER", "CatalogPlace", "FolderPlace", "Place", "Stored", "reading"]

FOLDER: Final = FORMATS["iceberg"]
#: Number of versions of the metadata that stay; a reader may have read the name of one.
_KEPT: Final = 100
_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")
_OF_CATALOG: Final = re.compile(r"\d+-.*\.metadata\.json")


@dataclass(frozen=True, slots=True)
class Stored:
    """Metadata of an Iceberg table as it was read.

    Attributes:
        files: opens and makes the files that it names.
        version: number of its file; 0 for new metadata, and for that of a catalog.
        pointed: number that the hint for readers says.
        table: the table of the catalog.
    """

    metadata: TableMetadata
    files: FileIO
    version: int = 0
    pointed: int = 0
    table: Table | None = None


class Place(Protocol):
    """Where the newest metadata is known."""

    def load(self) -> Stored | None:
        """Return the newest metadata; None if there is none.

        Raises:
            CorruptTableError: a file is missing or damaged, or the table was moved.
        """

    def create(self, schema: Schema, spec: PartitionSpec) -> Stored | None:
        """Return metadata without a snapshot; None if another writer has made some."""

    def commit(self, stored: Stored, updates: Sequence[TableUpdate]) -> bool | None:
        """Change the metadata. Return False if another writer has changed it, and None if that is not known."""

    def point(self, stored: Stored) -> None:
        """Let readers find this metadata, if a writer died before it did so."""

    def delete(self) -> None:
        """Delete the metadata."""


class FolderPlace:
    """Files ``metadata/v1.metadata.json`` and so on, and ``version-hint.text``, which names the newest one."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._files = storage, _StorageFiles(storage)

    def load(self) -> Stored | None:
        """Return the newest metadata, which may be newer than the hint says."""
        storage = self._storage
        try:
            text = storage.read(HINT).decode().strip()
        except FileNotFoundError:
            text = ""
        pointed = int(text) if text.isdecimal() else 0
        version = pointed or self._list_newest()
        while storage.info(_path(version + 1)) is not None:
            version += 1
        if version == 0:
            return None
        with reading(storage):
            metadata = FromByteStream.table_metadata(io.BytesIO(storage.read(_path(version))))
        if _scheme_free(metadata.location) != _scheme_free(storage.location):
            raise CorruptTableError(
                f"{storage.location}: {FOLDER} was made when the table was at {metadata.location}, so it names files "
                "there; make it again by sync('iceberg', replace=True)"
            )
        return Stored(metadata, self._files, version, pointed)

    def _list_newest(self) -> int:
        names = (_VERSION.fullmatch(info.name) for info in self._storage.list(FOLDER))
        return max((int(name[1]) for name in names if name), default=0)

    def create(self, schema: Schema, spec: PartitionSpec) -> Stored | None:
        """Return metadata without a snapshot. The first commit stores it."""
        self._check_folder()
        properties = {"format-version": "2"}
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, self._storage.location, properties)
        return Stored(metadata, self._files)

    def _check_folder(self) -> None:
        if self._storage.info(f"{FOLDER}/{PARTITION_MARKER}") is not None:
            raise UnsupportedTableError(
                f"{self._storage.location}: {FOLDER} is the folder of a partition, and Iceberg's metadata would lie in "
                "it; keep the metadata in a catalog by lakeformat.beside.iceberg.catalog"
            )

    def commit(self, stored: Stored, updates: Sequence[TableUpdate]) -> bool | None:
        """Put the next number's file, if it is absent. Delete an old one."""
        version = stored.version + 1
        before = f"{stored.metadata.location}/{_path(stored.version)}" if stored.version else None
        metadata = update_table_metadata(stored.metadata, tuple(updates), metadata_location=before)
        try:
            self._storage.create(_path(version), metadata.model_dump_json(exclude_none=True).encode())
        except FileExistsError:
            return False
        except OutcomeUnknownError:
            return None
        self._storage.replace(HINT, str(version).encode())
        if (old := version - _KEPT) > 0:
            self._storage.delete(_path(old))
        return True

    def point(self, stored: Stored) -> None:
        """Write the hint again, if it names an older number."""
        if stored.pointed != stored.version:
            self._storage.replace(HINT, str(stored.version).encode())

    def delete(self) -> None:
        """Delete the numbered files, and the manifests unless there may be those of a catalog's table."""
        self._check_folder()
        infos = [info for info in self._storage.list(FOLDER) if not info.is_folder]
        has_catalog = any(_OF_CATALOG.fullmatch(info.name) for info in infos)
        manifests = [info.path for info in infos if info.name.endswith(".avro") and not has_catalog]
        numbered = sorted((int(name[1]), info.path) for info in infos if (name := _VERSION.fullmatch(info.name)))
        for path in (HINT, *(path for _, path in reversed(numbered))):  # No reader sees a gap.
            self._storage.delete(path)
        self._storage.delete_all(manifests)


def _path(version: int) -> str:
    return f"{FOLDER}/v{version}.metadata.json"


def _scheme_free(location: str) -> str:
    return re.sub(r"^\w+://|^file:", "", location).rstrip("/")


@contextmanager
def reading(storage: Storage) -> Iterator[None]:
    """Say in one line that a file of the metadata is missing or damaged."""
    try:
        yield
    except LakeformatError:
        raise
    except Exception as error:
        raise CorruptTableError(
            f"{storage.location}: {FOLDER} cannot be read ({reason_of(error, 200)}); make it again by "
            "sync('iceberg', replace=True)"
        ) from error


class CatalogPlace:
    """A table of a catalog that pyiceberg knows by its own configuration."""

    def __init__(self, catalog: str, table: str, location: str) -> None:
        self._name, self._identifier, self._location = catalog, table, location

    def load(self) -> Stored | None:
        """Return the metadata that the catalog names; None if the catalog has no such table."""
        with self._asking():
            try:
                table = load_catalog(self._name).load_table(self._identifier)
            except NoSuchTableError:
                return None
        if _scheme_free(table.metadata.location) != _scheme_free(self._location):
            raise SyncError(
                f"{self._location}: {self._identifier} of the catalog {self._name} is another table, at "
                f"{table.metadata.location}; name another one by lakeformat.beside.iceberg.table"
            )
        return Stored(table.metadata, table.io, table=table)

    def create(self, schema: Schema, spec: PartitionSpec) -> Stored | None:
        """Make the table in the catalog, and its namespace if that is missing."""
        with self._asking():
            catalog = load_catalog(self._name)
            catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
            try:
                properties = {"format-version": "2", "write.metadata.delete-after-commit.enabled": "true"}
                table = catalog.create_table(self._identifier, schema, self._location, spec, properties=properties)
            except TableAlreadyExistsError:
                return None
        return Stored(table.metadata, table.io, table=table)

    def commit(self, stored: Stored, updates: Sequence[TableUpdate]) -> bool | None:
        """Commit to the catalog, if the table's snapshot is still the one that was read."""
        metadata, table = stored.metadata, cast(Table, stored.table)
        newest = {"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}
        requirements = (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId.model_validate(newest))
        with self._asking():
            try:
                table.catalog.commit_table(table, requirements, tuple(updates))
            except CommitFailedException:
                return False
            except CommitStateUnknownException:
                return None
        return True

    def point(self, stored: Stored) -> None:
        """Do nothing: the catalog's commit is all."""

    def delete(self) -> None:
        """Drop the table from the catalog. Its files stay."""
        if self.load() is not None:
            with self._asking():
                load_catalog(self._name).drop_table(self._identifier)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = reason_of(error)
            raise SyncError(f"{self._location}: the Iceberg catalog {self._name} says: {reason}") from error


class _StorageFiles(FileIO):
    """Opens files of Iceberg metadata through the table's storage."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _Input(location, self._storage)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to create."""
        return _Output(location, self._storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        self._storage.delete(_within(location if isinstance(location, str) else location.location))


def _within(location: str) -> str:
    """Return a path relative to the table. All files of the metadata lie directly in its folder."""
    return f"{FOLDER}/{location.rpartition('/')[2]}"


class _Input(InputFile):
    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return len(self._storage.read(_within(self.location)))

    def exists(self) -> bool:
        return self._storage.info(_within(self.location)) is not None

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._storage.read(_within(self.location)))


class _Output(OutputFile):
    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._storage, self._size = storage, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._storage.info(_within(self.location)) is not None

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._storage)

    def create(self, overwrite: bool = False) -> Any:
        return _Buffer(self)

    def put(self, data: bytes) -> None:
        """Create the file, whose name is unique."""
        self._storage.create(_within(self.location), data)
        self._size = len(data)


class _Buffer(io.BytesIO):
    def __init__(self, output: _Output) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.put(self.getvalue())
        super().close()
