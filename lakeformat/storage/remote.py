"""Storage on the file systems of fsspec (S3, GCS, Azure ...). It has no lock, so only one writer at a time is safe.

The timeline needs files to be created only if absent, by the store's conditional write. Some file systems of fsspec
instead first check whether the file exists, and then write it, so two writers could both succeed. Therefore
`FsspecStorage.create` refuses every protocol that is not in `_EXCLUSIVE`.

A request without a response may still be carried out later. Then `FsspecStorage.create` raises `OutcomeUnknownError`,
and `lakeformat.timeline.store` sends the same bytes again.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidOptionError, LakeformatError, StorageError, UnsupportedTableError
from lakeformat.storage.port import (
    EndlessLease,
    FileInfo,
    Lease,
    OutcomeUnknownError,
    Version,
    VersionChangedError,
    check_folder,
    check_path,
)

__all__ = ["FsspecStorage", "check_names"]

_REGION: Final = "client_kwargs={'region_name': ...}"
#: Maps option names of other libraries, in lower case, to the option names of s3fs.
_S3: Final[Mapping[str, str]] = {
    "aws_endpoint_url": "endpoint_url",
    "aws_endpoint_url_s3": "endpoint_url",
    "aws_endpoint": "endpoint_url",
    "endpoint": "endpoint_url",
    "s3.endpoint": "endpoint_url",
    "fs.s3a.endpoint": "endpoint_url",
    "aws_access_key_id": "key",
    "access_key_id": "key",
    "access_key": "key",
    "s3.access-key-id": "key",
    "fs.s3a.access.key": "key",
    "aws_secret_access_key": "secret",
    "secret_access_key": "secret",
    "secret_key": "secret",
    "s3.secret-access-key": "secret",
    "fs.s3a.secret.key": "secret",
    "aws_session_token": "token",
    "session_token": "token",
    "s3.session-token": "token",
    "fs.s3a.session.token": "token",
    "aws_region": _REGION,
    "aws_default_region": _REGION,
    "region": _REGION,
    "region_name": _REGION,
    "s3.region": _REGION,
    "aws_profile": "profile",
    "profile_name": "profile",
    "aws_skip_signature": "anon",
    "skip_signature": "anon",
    "anonymous": "anon",
    "aws_allow_http": "endpoint_url with http://",
    "allow_http": "endpoint_url with http://",
}
#: Maps option names of other libraries, in lower case, to the option names of gcsfs.
_GS: Final[Mapping[str, str]] = {
    "google_application_credentials": "token",
    "google_service_account": "token",
    "google_service_account_path": "token",
    "google_service_account_key": "token",
    "service_account": "token",
    "service_account_path": "token",
    "service_account_key": "token",
}
#: Maps option names of other libraries, in lower case, to the option names of adlfs.
_AZURE: Final[Mapping[str, str]] = {
    "azure_storage_account_name": "account_name",
    "azure_storage_account_key": "account_key",
    "azure_storage_access_key": "account_key",
    "access_key": "account_key",
    "azure_storage_sas_token": "sas_token",
    "azure_storage_sas_key": "sas_token",
    "sas_key": "sas_token",
    "azure_client_id": "client_id",
    "azure_storage_client_id": "client_id",
    "azure_client_secret": "client_secret",
    "azure_storage_client_secret": "client_secret",
    "azure_tenant_id": "tenant_id",
    "azure_storage_tenant_id": "tenant_id",
    "azure_storage_connection_string": "connection_string",
}
_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GS),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), _AZURE),
}


def check_names(location: str, names: Iterable[str]) -> None:
    """Raise an error if storage options have names of other libraries instead of fsspec's.

    Raises:
        InvalidOptionError: An option has such a name. The message gives the right name for each such option.
    """
    known = _OTHER_NAMES.get(location.partition("://")[0], {})
    wrong = {name: known[name.lower()] for name in names if name.lower() in known}
    if wrong:
        cures = ", ".join(f"{right} instead of {name!r}" for name, right in wrong.items())
        raise InvalidOptionError(
            f"storage_options for {location} have names that its file system does not know; write {cures}"
        )


#: Protocols whose ``pipe_file(mode="create")`` lets only one of several writers succeed, as tested with real servers.
_EXCLUSIVE: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})
#: Maps each call to the errors that it may raise unchanged. A call that is not listed may raise ``FileNotFoundError``.
_EXPECTED_ERRORS: Final[Mapping[str, tuple[type[Exception], ...]]] = {
    "create": (FileExistsError,),
    "write": (),
    "list": (FileNotFoundError, NotADirectoryError),
}
#: Errors after which the file does not appear: the store refused the request, or the client did not send it. After any
#: other error, the file may still be created.
_REFUSALS: Final = (PermissionError, FileNotFoundError, NotImplementedError, TypeError, ValueError)


@dataclass(frozen=True)
class FsspecStorage:
    """A folder of an fsspec file system.

    Args:
        url: URL with its protocol, such as ``s3://bucket/table``.
        options: fsspec's ``storage_options``; never shown, logged or stored.
    """

    url: str = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    has_lock: bool = field(default=False, init=False)
    has_versions: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        check_names(self.location, self.options)

    def __repr__(self) -> str:
        return f"FsspecStorage({self.location!r})"

    @property
    def location(self) -> str:
        """Return the URL without user and password. Azure's ``container@account`` is not a password and stays."""
        protocol, _, rest = self.url.partition("://")
        authority, slash, path = rest.partition("/")
        user, _, host = authority.rpartition("@")
        return f"{protocol}://{host if ':' in user else authority}{slash}{path}"

    @cached_property
    def _fs(self) -> Any:
        import fsspec

        protocol = self.url.partition("://")[0]
        try:
            # Cached listings would hide other writers' files. An instance from fsspec's instance cache may cache
            # listings, so make a new one.
            return fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True, **self.options)
        except ImportError as error:
            cure = "run: pip install 'lakeformat[s3]'" if protocol in {"s3", "s3a"} else "install it"
            raise StorageError(f"reading {protocol}:// needs a package that is missing ({error}); {cure}") from None
        except ValueError as error:
            raise StorageError(f"no file system for {protocol}:// ({error}); check the path") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options, "has_lock": False, "has_versions": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _resolve(self, path: str) -> str:
        base: str = self._fs._strip_protocol(self.location).rstrip("/")
        return f"{base}/{check_path(path)}" if path else base

    def create(self, path: str, data: bytes) -> None:
        """Create a file by the store's conditional write.

        If the store says that the file exists, read the file: an earlier try of this call may have created it.
        """
        protocol = self.url.partition("://")[0]
        if protocol not in _EXCLUSIVE:
            raise UnsupportedTableError(
                f"cannot write to {protocol}://: its put-if-absent is not known to be exclusive; "
                "use a local path, s3, gs or abfs"
            )
        with self._explain_errors("create", path):
            try:
                self._fs.pipe_file(self._resolve(path), data, mode="create")
            except FileExistsError:
                # If the response to a request is lost, the client repeats the request. Then the store reports that the
                # object exists, although the first request of this call created it.
                if not (data and self._holds_token(path, data)):
                    raise

    def _holds_token(self, path: str, data: bytes) -> bool:
        return b"lakeformat." in data and self.read(path) == data

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole object. Its version is a digest of its content."""
        data = self.read(path)
        return data, Version(hashlib.blake2b(data, digest_size=16).hexdigest())

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Read an object, and replace it if its version has not changed. Other processes are not excluded."""
        try:
            found = self.read_versioned(path)[1]
        except FileNotFoundError:
            found = None
        if version is None and found is not None:
            raise FileExistsError(path)
        if found != version:
            raise VersionChangedError(f"{path} of {self.location} has changed; read it again")
        self.replace(path, data)
        return self.read_versioned(path)[1]

    def replace(self, path: str, data: bytes) -> None:
        """Replace a whole object."""
        with self._explain_errors("write", path):
            self._fs.pipe_file(self._resolve(path), data)

    def read(self, path: str) -> bytes:
        """Read a whole object."""
        with self._explain_errors("read", path):
            data: bytes = self._fs.cat_file(self._resolve(path))
            return data

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        with self._explain_errors("look at", path):
            try:
                entry = self._fs.info(self._resolve(path))
            except FileNotFoundError:
                return None
            return _make_info(path, entry)

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name. Raise `StorageError` if the bucket is missing."""
        with self._explain_errors("list", path):
            try:
                listed = self._fs.ls(self._resolve(path), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                if not path:
                    self._check_bucket()
                return ()
        real = self._resolve(path)
        entries = [
            _make_info(f"{path}{name.removeprefix(real)}".lstrip("/"), entry)
            for entry in listed
            if (name := entry["name"].rstrip("/")) != real
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def _check_bucket(self) -> None:
        bucket = self._resolve("").partition("/")[0]
        if bucket and not self._fs.exists(bucket):
            raise StorageError(
                f"cannot reach bucket {bucket!r} of {self.location}: it is not there, or these credentials may not see "
                "it; create it, or check its name"
            )

    def open_input(self, path: str) -> Any:
        """Open a seekable file. Each read is a request to the store."""
        real = self._resolve(path)
        with self._explain_errors("read", path):
            file = self._fs.open(real, "rb")
            return pa.PythonFile(_ExplainedFile(file, lambda: self._explain_errors("read", path)), mode="r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Open a streamed upload, which is discarded if the block raises."""
        real = self._resolve(path)
        with self._explain_errors("write", path):
            target = self._fs.open(real, "wb")
        try:
            yield pa.PythonFile(_ExplainedFile(target, lambda: self._explain_errors("write", path)), mode="w")
        except BaseException:
            with self._explain_errors("throw away", path):
                target.discard()
                target.closed = True  # Otherwise the file's finalizer would complete the upload.
            raise
        with self._explain_errors("write", path):
            target.close()

    def move(self, source: str, target: str) -> None:
        """Copy an object and delete the source.

        This need not be atomic: before the commit, readers use neither object.
        """
        old, new = self._resolve(source), self._resolve(target)
        with self._explain_errors("move", source):
            self._fs.cp_file(old, new)
            self._fs.rm_file(old)

    def touch(self, path: str) -> None:
        """Write an empty object, so that its modification time is now."""
        self.replace(path, b"")

    def delete(self, path: str) -> bool:
        """Remove an object; return False if there was none.

        A request before the deletion checks whether the object exists, because the deletion's response does not say.
        """
        entry = self.info(path)
        if entry is None or entry.is_folder:
            return False
        with self._explain_errors("delete", path):
            try:
                self._fs.rm_file(self._resolve(path))
            except FileNotFoundError:
                return False
            return True

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie`` object by object, because fsspec's ``rm`` treats names as patterns."""
        real = self._resolve(check_folder(path))
        with self._explain_errors("delete", path):
            for name in self._fs.find(real):
                self._fs.rm_file(name)

    def remove_empty(self, path: str) -> bool:
        """Tell whether the folder has no children. Nothing is removed: folders exist only as parts of object names."""
        return not self.list(path)

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """Do nothing except check the path, because the storage has no locks."""
        check_path(path)
        yield

    def is_held(self, path: str) -> bool:
        """Return False, because the storage has no locks."""
        check_path(path)
        return False

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[Lease]:
        """Do nothing, because the storage has no locks.

        Conditional creation of timeline files and the conflict check usually stop an accidental second writer.
        """
        yield EndlessLease()

    @contextmanager
    def _explain_errors(self, verb: str, path: str) -> Iterator[None]:
        """Turn a client's error into a one-line error, except the errors that the call is expected to raise."""
        try:
            yield
        except LakeformatError:
            raise
        except Exception as error:  # The clients' errors (s3fs, gcsfs, adlfs) have no common class.
            if isinstance(error, _EXPECTED_ERRORS.get(verb, FileNotFoundError)):
                raise
            if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
                name = str(error).rpartition("argument ")[2]
                raise InvalidOptionError(
                    f"storage_options for {self.location} have a name that its file system does not know: {name}; "
                    "docs/storage.md names the usual ones (key, secret, token, endpoint_url for S3)"
                ) from None
            is_open = verb == "create" and not isinstance(error, _REFUSALS)
            raise (OutcomeUnknownError if is_open else StorageError)(
                f"cannot {verb} {path or 'the table folder'} in {self.location}: {type(error).__name__}: {error}; "
                f"{_advise(error)}"
            ) from None


def _advise(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "check that the bucket is there, and its name"
    if isinstance(error, PermissionError):
        return "check the credentials, and what they allow"
    return "check the address, the credentials and the network"


class _ExplainedFile(io.RawIOBase):
    """A wrapper of an fsspec file whose reads and writes raise `StorageError` instead of the client's errors."""

    def __init__(self, file: Any, explain_errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._file, self._explain_errors = file, explain_errors

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int | None = -1) -> bytes:
        with self._explain_errors():
            return bytes(self._file.read(-1 if size is None else size))

    def write(self, data: Any) -> int:
        with self._explain_errors():
            return int(self._file.write(data))


def _make_info(path: str, entry: dict[str, Any]) -> FileInfo:
    folder = entry["type"] == "directory"
    modified = entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or 0
    millis = modified.timestamp() * 1000 if hasattr(modified, "timestamp") else float(modified or 0) * 1000
    return FileInfo(path, 0 if folder else int(entry.get("size") or 0), int(millis), folder)
