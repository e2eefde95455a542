"""Storage on S3 and Azure through obstore, with conditional writes.

A read of a small file, a listing or a write of a small file is one request. Data files are read in ranges and written
in parts, several at the same time.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import StorageError
from lakeformat.storage.object_files import RangedFile, fetch_range
from lakeformat.storage.object_options import (
    AZURE,
    S3,
    StoreSettings,
    check_process,
    load_obstore,
    make_azure_settings,
    make_s3_settings,
    open_store,
)
from lakeformat.storage.port import FileInfo, Version, check_folder, check_path
from lakeformat.storage.remote import ExplainedFile, Failure, Kind, RemoteStorage

__all__ = ["PROTOCOLS", "ObjectStorage"]

PROTOCOLS: Final = S3 | AZURE

#: Size in bytes of the parts of an upload. S3 allows 10,000 parts, so a file may have 80 GB.
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
#: A file of at most this many bytes is fetched whole when it is opened.
_SMALL_BYTES: Final = 1 << 20
#: A file up to this size is read by one request.
_WHOLE_BYTES: Final = 16 << 20
_DELETE_TRIES: Final = 3
#: Maximum number of objects that one request deletes.
_DELETED_AT_ONCE: Final = 1000


@dataclass(frozen=True, repr=False)
class ObjectStorage(RemoteStorage):
    """A folder of a bucket on S3 or a server that speaks S3, or of a container on Azure."""

    def __post_init__(self) -> None:
        self._settings  # noqa: B018  Unknown options are refused at once.

    @cached_property
    def _settings(self) -> StoreSettings:
        make = make_s3_settings if self.protocol in S3 else make_azure_settings
        return make(self.url, self.location, self.options)

    @property
    def _store(self) -> Any:
        check_process()
        return self._stores[0]

    @property
    def _data_store(self) -> Any:
        check_process()
        return self._stores[1]

    @cached_property
    def _stores(self) -> tuple[Any, Any]:
        """Open the store for small files and the store for data files."""
        with self.explain_errors("open", ""):
            return (
                open_store(self.protocol, self._settings, for_data=False),
                open_store(self.protocol, self._settings, for_data=True),
            )

    def _resolve(self, path: str) -> str:
        return "/".join(filter(None, (self._settings.base, check_path(path))))

    def _probed_server(self) -> str | None:
        endpoint = self._settings.endpoint
        return f"{endpoint}/{self._settings.bucket}" if endpoint else None

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        """Read a whole object."""
        return self.read_versioned(path)[0]

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole object and its etag."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        with self.explain_errors("read", path):
            answer = obstore.get(self._store, key)
            version = Version(answer.meta["e_tag"] or "")
            size = int(answer.meta["size"])
            if size <= _WHOLE_BYTES:
                return answer.bytes().to_bytes(), version
            return fetch_range(partial(self._fetch, key), 0, size), version

    def _fetch(self, key: str, start: int, end: int) -> bytes:
        obstore = load_obstore(self.protocol)

        data: bytes = obstore.get_range(self._data_store, key, start=start, end=end).to_bytes()
        return data

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        if path:
            with suppress(FileNotFoundError), self.explain_errors("look at", path):
                return _make_info(path, obstore.head(self._store, key))
        with self.explain_errors("look at", path):
            is_folder = bool(next(iter(obstore.list(self._store, key or None, chunk_size=1)), ()))
        return FileInfo(path, 0, 0, True) if is_folder else None

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name. Raise `StorageError` if the bucket is missing."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        cut = len(key) + 1 if key else 0
        inside = f"{path}/" if path else ""
        with self.explain_errors("list", path):
            listed = obstore.list_with_delimiter(self._store, key or None)
        folders = {name[cut:].rstrip("/") for name in listed["common_prefixes"]}
        entries = [FileInfo(inside + name, 0, 0, True) for name in folders]
        entries += [
            _make_info(inside + name, entry)
            for entry in listed["objects"]
            if (name := entry["path"][cut:]) and name not in folders  # Hadoop writes empty objects for folders.
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def open_input(self, path: str) -> Any:
        """Open a seekable file. A small one is fetched whole by the request that asks for its size."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        with self.explain_errors("read", path):
            answer = obstore.get(self._data_store, key)
            size = int(answer.meta["size"])
            if size <= _SMALL_BYTES:
                return pa.BufferReader(answer.bytes().to_bytes())
        file = RangedFile(partial(self._fetch, key), size)
        return pa.PythonFile(ExplainedFile(file, lambda: self.explain_errors("read", path)), mode="r")

    # --- writing -------------------------------------------------------------------------------------------

    def _put(self, path: str, data: bytes) -> None:
        obstore = load_obstore(self.protocol)

        obstore.put(self._store, self._resolve(path), data, use_multipart=len(data) > _WHOLE_BYTES)

    def _put_if(self, path: str, data: bytes, version: Version | None) -> Version:
        obstore = load_obstore(self.protocol)

        mode: Any = "create" if version is None else {"e_tag": version.tag}
        result = obstore.put(self._store, self._resolve(path), data, mode=mode, use_multipart=False)
        return Version(result["e_tag"] or "")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Open a streamed upload, which is discarded if the block raises."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        with self.explain_errors("write", path):
            writer = obstore.open_writer(self._data_store, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        try:
            yield pa.PythonFile(_Sink(writer, lambda: self.explain_errors("write", path)), mode="w")
        except BaseException:
            with suppress(StorageError), self.explain_errors("throw away", path):
                writer.__exit__(*sys.exc_info())
            raise
        with self.explain_errors("write", path):
            writer.close()

    def move(self, source: str, target: str) -> None:
        """Copy an object and delete the source.

        This need not be atomic: before the commit, readers use neither object.
        """
        obstore = load_obstore(self.protocol)

        old, new = self._resolve(source), self._resolve(target)
        with self.explain_errors("move", source):
            obstore.copy(self._data_store, old, new)
        self.delete(source)

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(path)
        with suppress(FileNotFoundError), self.explain_errors("delete", path):
            obstore.delete(self._store, key)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove objects, if they are there, many by one request."""
        obstore = load_obstore(self.protocol)

        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            keys = [self._resolve(path) for path in some]
            try:
                with self.explain_errors("delete", some[0]):
                    obstore.delete(self._store, keys)
            except FileNotFoundError:  # Azure: one of them is missing, and others may be there.
                super().delete_all(some)

    def delete_folder(self, path: str) -> None:
        """Remove the objects of a folder of ``.hoodie``, many by one request."""
        obstore = load_obstore(self.protocol)

        key = self._resolve(check_folder(path))
        for _ in range(_DELETE_TRIES):
            # Azure reports an error if another process has deleted an object meanwhile.
            with suppress(FileNotFoundError), self.explain_errors("delete", path):
                for batch in obstore.list(self._store, key, chunk_size=_DELETED_AT_ONCE):
                    obstore.delete(self._store, [entry["path"] for entry in batch])
                return

    # --- errors --------------------------------------------------------------------------------------------

    def _describe(self, error: Exception) -> Failure:
        from obstore import exceptions

        text = _shorten(str(error))
        code = _find_code(str(error))
        kind = Kind.UNANSWERED
        if code in {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"}:
            kind = Kind.NO_BUCKET
        elif "501 Not Implemented" in text or isinstance(error, exceptions.NotSupportedError):
            kind = Kind.UNSUPPORTED
        elif isinstance(error, FileNotFoundError):
            kind = Kind.ABSENT
        elif isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileExistsError)):
            kind = Kind.CONDITION
        elif (
            code == "AccessDenied"
            or "403 Forbidden" in text
            or isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError))
        ):
            kind = Kind.DENIED
        elif isinstance(error, (ValueError, TypeError, exceptions.InvalidPathError)):
            kind = Kind.REFUSED
        for secret in self._secrets():
            text = text.replace(secret, "***")
        name = type(error).__name__
        return Failure(kind, text if name == "GenericError" else f"{name}: {text}")

    def _secrets(self) -> builtins.list[str]:
        """Return the texts of the options that may be secrets."""
        names = (
            "secret",
            "password",
            "token",
            "account_key",
            "sas_token",
            "client_secret",
            "connection_string",
            "bearer_token",
        )
        return [str(self.options[name]) for name in names if self.options.get(name)]


class _Sink(ExplainedFile):
    """A file of obstore that is open for writing."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        return super().write(memoryview(data).cast("B"))


def _make_info(path: str, entry: Any) -> FileInfo:
    # An answer about a single object has no fractions of a second, a listing may have some.
    return FileInfo(path, int(entry["size"]), int(entry["last_modified"].timestamp()) * 1000)


def _find_code(text: str) -> str:
    """Return the error code in a server's answer, such as ``NoSuchBucket``."""
    match = re.search(r"<Code>([A-Za-z]+)</Code>|\(code: ([A-Za-z]+)\)", text)
    return match[1] or match[2] if match else ""


def _shorten(text: str) -> str:
    """Return what happened: the server's code and message if there is one, in one line without the URL's query."""
    text = text.partition("Debug source:")[0]
    text = re.sub(r"\?\S*", "", text)
    code, message = _find_code(text), re.search(r"<Message>([^<]*)</Message>", text)
    status = re.search(r"status code: (\d{3}[^:<]*)", text)
    if status:
        said = ": ".join(filter(None, (code, message[1] if message else "")))
        return " ".join(f"{status[1].strip()} {said}".split())
    return " ".join(text.partition("<?xml")[0].split())[:300]
