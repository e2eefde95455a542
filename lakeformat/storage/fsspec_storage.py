"""Storage on the file systems of fsspec. Only one writer at a time is safe, except on GCS.

fsspec has no call that creates a file only if it is absent, on every file system. So `FsspecStorage` looks first and
writes then. `GcsStorage` sends GCS's own conditional requests through gcsfs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import StorageError
from lakeformat.extras import install_line
from lakeformat.storage.option_names import make_unknown_name_error
from lakeformat.storage.port import FileInfo, Version, check_folder, check_path
from lakeformat.storage.remote import ExplainedFile, Failure, Kind, RemoteStorage

__all__ = ["FsspecStorage", "GcsStorage"]

#: Maps protocols to the extra that installs their package.
_EXTRAS: Final[Mapping[str, str]] = {"gs": "gcs", "gcs": "gcs"}
#: Errors after which the file does not appear: the store refused the request, or the client did not send it. After any
#: other error, the file may still be written.
_REFUSALS: Final = (NotImplementedError, TypeError, ValueError)


@dataclass(frozen=True, repr=False)
class FsspecStorage(RemoteStorage):
    """A folder of an fsspec file system."""

    @property
    def has_versions(self) -> bool:
        """Return False, because fsspec has no conditional writes."""
        return False

    @property
    def has_folders(self) -> bool:
        """Return True, because some of fsspec's file systems have folders."""
        return True

    @cached_property
    def _fs(self) -> Any:
        import fsspec

        protocol = self.protocol
        try:
            # Cached listings would hide other writers' files. An instance from fsspec's instance cache may cache
            # listings, so make a new one.
            kind = self._find_class(fsspec)
            return kind(use_listings_cache=False, skip_instance_cache=True, **self.options)
        except ImportError as error:
            extra = _EXTRAS.get(protocol)
            cure = install_line(extra) if extra else "install it"
            raise StorageError(f"reading {protocol}:// needs a package that is missing ({error}); {cure}") from None
        except ValueError as error:
            raise StorageError(f"no file system for {protocol}:// ({error}); check the path") from None
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            name = str(error).rpartition("argument ")[2].strip("'")
            raise make_unknown_name_error(self.location, [name], inspect.signature(kind.__init__).parameters) from None

    def _find_class(self, fsspec: Any) -> Any:
        return fsspec.get_filesystem_class(self.protocol)

    def _resolve(self, path: str) -> str:
        base: str = self._fs._strip_protocol(self.location).rstrip("/")
        return f"{base}/{check_path(path)}" if path else base

    def _put(self, path: str, data: bytes) -> None:
        real = self._resolve(path)
        with suppress(NotImplementedError):
            self._fs.makedirs(real.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(real, data)

    def _describe(self, error: Exception) -> Failure:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            kind = Kind.ABSENT
        elif isinstance(error, FileExistsError):
            kind = Kind.CONDITION
        elif isinstance(error, PermissionError) or str(error).startswith("Forbidden"):  # gcsfs raises an OSError.
            kind = Kind.DENIED
        else:
            kind = Kind.REFUSED if isinstance(error, _REFUSALS) else Kind.UNANSWERED
        return Failure(kind, f"{type(error).__name__}: {error}")

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        real = self._resolve(path)
        with self.explain_errors("read", path):
            data: bytes = self._fs.cat_file(real)
            return data

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        real = self._resolve(path)
        try:
            with self.explain_errors("look at", path):
                return _make_info(path, self._fs.info(real))
        except FileNotFoundError:
            return None

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name. Raise `StorageError` if the bucket is missing."""
        real = self._resolve(path)
        try:
            with self.explain_errors("list", path):
                listed = self._fs.ls(real, detail=True)
        except FileNotFoundError:
            if not path:
                self._check_bucket()
            return ()
        entries = [
            _make_info(f"{path}{name.removeprefix(real)}".lstrip("/"), entry)
            for entry in listed
            if (name := entry["name"].rstrip("/")) != real
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def _check_bucket(self) -> None:
        bucket = self._resolve("").partition("/")[0]
        with self.explain_errors("list", ""):
            is_missing = bucket and not self._fs.exists(bucket)
        if is_missing:
            raise self._translate(Failure(Kind.NO_BUCKET), "list", "")

    def open_input(self, path: str) -> Any:
        """Open a seekable file. Each read is a request to the store."""
        real = self._resolve(path)
        with self.explain_errors("read", path):
            file = self._fs.open(real, "rb")
            return pa.PythonFile(ExplainedFile(file, lambda: self.explain_errors("read", path)), mode="r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Open a streamed upload, which is discarded if the block raises."""
        real = self._resolve(path)
        with self.explain_errors("write", path):
            with suppress(NotImplementedError):
                self._fs.makedirs(real.rpartition("/")[0], exist_ok=True)
            target = self._fs.open(real, "wb")
        try:
            yield pa.PythonFile(ExplainedFile(target, lambda: self.explain_errors("write", path)), mode="w")
        except BaseException:
            with suppress(StorageError, FileNotFoundError), self.explain_errors("throw away", path):
                self._throw_away(target, real)
            raise
        with self.explain_errors("write", path):
            target.close()

    def _throw_away(self, file: Any, real: str) -> None:
        from fsspec.spec import AbstractBufferedFile

        if isinstance(file, AbstractBufferedFile):
            file.discard()
            file.closed = True  # Otherwise the file's finalizer would complete the upload.
        else:
            file.close()
            self._fs.rm_file(real)

    def move(self, source: str, target: str) -> None:
        """Copy a file and delete the source.

        This need not be atomic: before the commit, readers use neither file.
        """
        old, new = self._resolve(source), self._resolve(target)
        with self.explain_errors("move", source):
            with suppress(NotImplementedError):
                self._fs.makedirs(new.rpartition("/")[0], exist_ok=True)
            self._fs.cp_file(old, new)
            self._fs.rm_file(old)

    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""
        real = self._resolve(path)
        with suppress(FileNotFoundError), self.explain_errors("delete", path):
            self._fs.rm_file(real)

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie`` file by file, because fsspec's ``rm`` treats names as patterns."""
        real = self._resolve(check_folder(path))
        with suppress(FileNotFoundError), self.explain_errors("delete", path):
            entries = self._fs.find(real, withdirs=True, detail=True)
            folders = {name for name, entry in entries.items() if entry["type"] == "directory"}
            for name in entries.keys() - folders:
                self._fs.rm_file(name)
            for name in sorted({real, *folders}, reverse=True):
                self._remove_folder(name)

    def make_folder(self, path: str) -> None:
        """Make a folder and those that it lies in, if they are missing and the file system has folders."""
        real = self._resolve(path)
        with self.explain_errors("make folder", path), suppress(NotImplementedError):
            self._fs.makedirs(real, exist_ok=True)

    def remove_empty(self, path: str) -> bool:
        """Remove a folder if it is empty, if the file system has folders at all."""
        is_empty = super().remove_empty(path)
        if is_empty and path:
            self._remove_folder(self._resolve(path))
        return is_empty

    def _remove_folder(self, real: str) -> None:
        with suppress(OSError, NotImplementedError):
            self._fs.rmdir(real)


class GcsStorage(FsspecStorage):
    """A folder of a bucket of Google Cloud Storage. The version of an object is its generation."""

    @property
    def has_versions(self) -> bool:
        """Tell whether the server respects conditional writes. Google's does."""
        return super(FsspecStorage, self).has_versions

    @property
    def has_folders(self) -> bool:
        """Return False."""
        return False

    def _find_class(self, fsspec: Any) -> Any:
        """Return gcsfs's class for the JSON API, which sends no gRPC requests: other servers do not know them."""
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem

    def _probed_server(self) -> str | None:
        endpoint = self.options.get("endpoint_url")
        return f"gs {endpoint} {self._resolve('').partition('/')[0]}" if endpoint else None

    def _put(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(self._resolve(path), data)

    def _put_if(self, path: str, data: bytes, version: Version | None) -> Version:
        bucket, key, _ = self._fs.split_path(self._resolve(path))
        boundary = "==lakeformat=="
        while boundary.encode() in data:
            boundary += "="
        head = json.dumps({"name": key})
        body = (
            f"--{boundary}\nContent-Type: application/json; charset=UTF-8\n\n{head}\n"
            f"--{boundary}\nContent-Type: application/octet-stream\n\n"
        ).encode()
        answer = self._fs.call(
            "POST",
            f"{self._fs._location}/upload/storage/v1/b/{bucket}/o",
            uploadType="multipart",
            ifGenerationMatch=version.tag if version else "0",
            headers={"Content-Type": f'multipart/related; boundary="{boundary}"'},
            data=body + data + f"\n--{boundary}--".encode(),
            json_out=True,
        )
        return Version(str(answer["generation"]))

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole object and its generation, by one request."""
        real = self._resolve(path)
        with self.explain_errors("read", path):
            headers, data = self._fs.call("GET", self._fs.url(real))
            return data, Version(str(headers["x-goog-generation"]))


def _make_info(path: str, entry: dict[str, Any]) -> FileInfo:
    folder = entry["type"] == "directory"
    modified = (
        entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or entry.get("created") or 0
    )
    millis = modified.timestamp() * 1000 if hasattr(modified, "timestamp") else float(modified or 0) * 1000
    return FileInfo(path, 0 if folder else int(entry.get("size") or 0), int(millis), folder)
