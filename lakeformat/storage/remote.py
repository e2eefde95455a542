"""Everything fsspec reaches (S3, GCS, Azure ...). One writer at a time: there is no lock here yet.

The timeline's put-if-absent is the store's own conditional write. File systems of fsspec that cannot do
that (their "create" looks first and writes then) are refused for writing by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import LakeformatError, StorageError, UnsupportedTableError
from lakeformat.storage.port import FileInfo, check_path

__all__ = ["FsspecStorage"]

#: Protocols whose ``pipe_file(mode="create")`` is exclusive, measured against servers of each kind.
_EXCLUSIVE: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})


@dataclass(frozen=True)
class FsspecStorage:
    """A folder of an fsspec file system.

    Args:
        url: with its protocol, ``s3://bucket/table`` for one.
        options: fsspec's ``storage_options``; never shown, logged or stored.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    has_lock: bool = field(default=False, init=False)

    @property
    def location(self) -> str:
        """The URL without user information."""
        protocol, _, rest = self.url.partition("://")
        authority, slash, path = rest.partition("/")
        return f"{protocol}://{authority.rpartition('@')[2]}{slash}{path}"

    @cached_property
    def _fs(self) -> Any:
        import fsspec

        protocol = self.url.partition("://")[0]
        try:
            # Caches of listings hide other writers' files; instances shared through fsspec's cache may have them.
            return fsspec.filesystem(
                protocol, use_listings_cache=False, skip_instance_cache=True, **self.options
            )
        except ImportError as error:
            raise StorageError(f"reading {protocol}:// needs a package that is missing ({error}); install it") from None
        except ValueError as error:
            raise StorageError(f"no file system for {protocol}:// ({error}); check the path") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options, "has_lock": self.has_lock}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _real(self, path: str) -> str:
        base: str = self._fs._strip_protocol(self.url).rstrip("/")
        return f"{base}/{check_path(path)}" if path else base

    def create(self, path: str, data: bytes) -> None:
        """The store's conditional write; a lost answer is told from a lost race by reading back."""
        protocol = self.url.partition("://")[0]
        if protocol not in _EXCLUSIVE:
            raise UnsupportedTableError(
                f"cannot write to {protocol}://: its put-if-absent is not known to be exclusive; "
                "use a local path, s3, gs or abfs"
            )
        with self._explained("create", path):
            try:
                self._fs.pipe_file(self._real(path), data, mode="create")
            except FileExistsError:
                # Clients repeat a request whose answer was lost, and then meet their own object.
                if not (data and self._holds_token(path, data)):
                    raise

    def _holds_token(self, path: str, data: bytes) -> bool:
        return b"lakeformat." in data and self.read(path) == data

    def replace(self, path: str, data: bytes) -> None:
        """Object stores replace whole objects."""
        with self._explained("write", path):
            self._fs.pipe_file(self._real(path), data)

    def read(self, path: str) -> bytes:
        """A whole object."""
        with self._explained("read", path):
            data: bytes = self._fs.cat_file(self._real(path))
            return data

    def info(self, path: str) -> FileInfo | None:
        """What stands there now."""
        with self._explained("look at", path):
            try:
                found = self._fs.info(self._real(path))
            except FileNotFoundError:
                return None
            return _info(path, found)

    def list(self, path: str) -> Sequence[FileInfo]:
        """The direct children, by name."""
        with self._explained("list", path):
            try:
                found = self._fs.ls(self._real(path), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return ()
        entries = [
            _info(f"{path}/{name}" if path else name, entry)
            for entry in found
            if (name := entry["name"].rstrip("/").rpartition("/")[2])
        ]
        return sorted((e for e in entries if e.path != path), key=lambda entry: entry.path)

    def open_input(self, path: str) -> Any:
        """A seekable file; reads are requests."""
        with self._explained("read", path):
            return pa.PythonFile(self._fs.open(self._real(path), "rb"), mode="r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """A streamed upload, thrown away if the block raises."""
        with self._explained("write", path):
            target = self._fs.open(self._real(path), "wb")
            try:
                yield pa.PythonFile(target, mode="w")
            except BaseException:
                target.discard()
                raise
            target.close()

    def move(self, source: str, target: str) -> None:
        """Copy and delete: nothing points at either until the commit."""
        with self._explained("move", source):
            self._fs.copy(self._real(source), self._real(target))
            self._fs.rm_file(self._real(source))

    def touch(self, path: str) -> None:
        """Write an empty object anew."""
        self.replace(path, b"")

    def delete(self, path: str) -> bool:
        """Remove an object."""
        with self._explained("delete", path):
            try:
                self._fs.rm_file(self._real(path))
            except FileNotFoundError:
                return False
            return True

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``."""
        if not path.startswith(".hoodie/"):
            raise StorageError(f"refusing to delete folder {path!r}: only folders of .hoodie are removed whole")
        with self._explained("delete", path):
            try:
                self._fs.rm(self._real(path), recursive=True)
            except FileNotFoundError:
                return

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[None]:
        """No lock: put-if-absent and the conflict check stop an accidental second writer."""
        yield

    @contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError, LakeformatError):
            raise
        except (OSError, json.JSONDecodeError) as error:
            raise StorageError(
                f"cannot {verb} {path or 'the table folder'} in {self.location}: {type(error).__name__}: {error}; "
                "check the address, the credentials and the network"
            ) from None


def _info(path: str, found: dict[str, Any]) -> FileInfo:
    folder = found["type"] == "directory"
    modified = found.get("LastModified") or found.get("mtime") or found.get("last_modified") or 0
    millis = modified.timestamp() * 1000 if hasattr(modified, "timestamp") else float(modified or 0) * 1000
    return FileInfo(path, 0 if folder else int(found.get("size") or 0), int(millis), folder)
