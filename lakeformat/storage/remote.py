"""The part of the storage adapters that all remote file systems share.

A remote storage has no lock. If its server respects conditional writes (`RemoteStorage.has_versions`), several
processes can write to a table. Otherwise `RemoteStorage.create` and `RemoteStorage.replace_if` look first and write
then, so that only one process at a time may write.

An adapter turns each error of its client into a `Failure`. `RemoteStorage.explain_errors` makes an error of one line
from it that contains no secret.
"""

from __future__ import annotations

import enum
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lakeformat.concurrency import run_all
from lakeformat.errors import LakeformatError, StorageError
from lakeformat.storage.conditional import (
    ConditionFailedError,
    ConditionsIgnoredError,
    create_if_absent,
    find_versions,
    replace_if_unchanged,
)
from lakeformat.storage.port import (
    FileInfo,
    NoLocks,
    OutcomeUnknownError,
    Version,
    check_path,
    check_version,
    list_until_none_goes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ExplainedFile", "Failure", "Kind", "RemoteStorage", "remove_user"]


class Kind(enum.Enum):
    """The kind of a client's error."""

    EXPECTED = "an error that the port allows"
    ABSENT = "there is no such object"
    NO_BUCKET = "there is no such bucket"
    CONDITION = "the condition of the write does not hold"
    UNSUPPORTED = "the store does not support the condition"
    DENIED = "the credentials do not allow it"
    REFUSED = "the request was not sent, or not accepted"
    UNANSWERED = "all else"


@dataclass(frozen=True, slots=True)
class Failure:
    """A client's error: its kind, and its text in one line."""

    kind: Kind
    text: str = ""


_ADVICE: Final[Mapping[Kind, str]] = {
    Kind.ABSENT: "check that the bucket is there, and its name",
    Kind.DENIED: "check the credentials, and what they allow",
}
#: The calls that raise `OutcomeUnknownError` if the store does not answer.
_CREATE: Final = "create"
_REPLACE: Final = "replace"
#: The calls for which a missing object is not expected.
_WRITES: Final = frozenset({_CREATE, _REPLACE, "write"})
#: Maximum number of objects that are deleted at once.
_DELETE_THREADS: Final = 16
#: Number of names that every object store returns in one answer.
_LISTED_AT_ONCE: Final = 1000


def remove_user(url: str) -> str:
    """Return the URL without user and password. Azure's ``container@account`` is not a password and stays."""
    protocol, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    return f"{protocol}://{host if ':' in user else authority}{slash}{path}"


@dataclass(frozen=True)
class RemoteStorage(NoLocks):
    """A folder of a remote file system.

    Args:
        url: URL with its protocol, such as ``s3://bucket/table``.
        options: ``storage_options``; never shown, logged or stored.
    """

    url: str = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def protocol(self) -> str:
        """Return the URL's protocol."""
        return self.url.partition("://")[0]

    @property
    def location(self) -> str:
        """Return the URL without user and password."""
        return remove_user(self.url)

    def subfolder(self, path: str) -> Self:
        """Return the storage of a folder inside this one, opened with the same options."""
        return replace(self, url=f"{self.url.rstrip('/')}/{check_path(path)}")

    # --- what an adapter implements ------------------------------------------------------------------------

    def _probed_server(self) -> str | None:
        """Return the server and bucket to probe; None if the store is known to respect conditions."""
        raise NotImplementedError

    def _put(self, path: str, data: bytes) -> None:
        """Write an object, and raise the client's own errors."""
        raise NotImplementedError

    def _put_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Write an object on a condition, and raise the client's own errors."""
        raise NotImplementedError

    def _describe(self, error: Exception) -> Failure:
        """Describe an error of the client."""
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        """Read a whole object."""
        raise NotImplementedError

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole object. Its version is a digest of its content, unless the adapter knows a better one."""
        data = self.read(path)
        return data, Version(hashlib.blake2b(data, digest_size=16).hexdigest())

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        raise NotImplementedError

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        raise NotImplementedError

    # --- listing -------------------------------------------------------------------------------------------

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """List the direct children as they were at one moment, sorted by name.

        The object stores of the clouds return up to `_LISTED_AT_ONCE` names of one moment in one answer. More children
        are listed twice. So are those of a file system and of a server with an address of its own, which may keep its
        objects in a file system (MinIO, versitygw): they look at one name after the other.
        """
        listed = self.list(path)
        if len(listed) <= _LISTED_AT_ONCE and not self.has_folders and self._probed_server() is None:
            return listed
        return list_until_none_goes(listed, partial(self.list, path), path, self.location)

    # --- writes --------------------------------------------------------------------------------------------

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove objects, if they are there, several at once."""
        run_all(self.delete, paths, threads=_DELETE_THREADS)

    @property
    def has_versions(self) -> bool:
        """Tell whether the store respects conditional writes. If that is not known, the first call tries it out."""
        server = self._probed_server()
        return server is None or find_versions(self, server)

    @property
    def has_folders(self) -> bool:
        """Return False, because folders are parts of object names."""
        return False

    def put_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Write an object on a condition, see `ConditionalStore`."""
        with self.explain_errors(_CREATE if version is None else _REPLACE, path):
            return self._put_if(path, data, version)

    def create(self, path: str, data: bytes) -> None:
        """Create an object by a conditional write.

        If the store says that the object exists, it is read: an earlier try of this call may have created it.
        """
        check_path(path)
        if self.has_versions:
            create_if_absent(self, path, data)
            return
        if self.info(path) is not None:
            raise FileExistsError(path)
        with self.explain_errors(_CREATE, path):
            self._put(path, data)

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace an object by a conditional write."""
        check_path(path)
        if self.has_versions:
            return replace_if_unchanged(self, path, data, version)
        try:
            present = self.read_versioned(path)[1]
        except FileNotFoundError:
            present = None
        check_version(path, self.location, present, version)
        with self.explain_errors(_REPLACE, path):
            self._put(path, data)
        return self.read_versioned(path)[1]

    def replace(self, path: str, data: bytes) -> None:
        """Replace a whole object."""
        check_path(path)
        with self.explain_errors("write", path):
            self._put(path, data)

    def touch(self, path: str) -> None:
        """Write an empty object, so that its modification time is now."""
        self.replace(path, b"")

    def make_folder(self, path: str) -> None:
        """Do nothing: on object stores folders exist only as parts of object names."""
        check_path(path)

    def remove_empty(self, path: str) -> bool:
        """Tell whether the folder has no children. Nothing is removed: folders exist only as parts of object names."""
        return not self.list(path)

    # --- errors --------------------------------------------------------------------------------------------

    @contextmanager
    def explain_errors(self, verb: str, path: str) -> Iterator[None]:
        """Turn a client's error into an error of one line, except the errors that the call is expected to raise."""
        try:
            yield
        except LakeformatError:
            raise
        except Exception as error:  # The errors of the clients have no common class.
            raise self._translate(self._describe(error), verb, path) from None

    def _translate(self, failure: Failure, verb: str, path: str) -> Exception:
        kind = failure.kind
        if kind is Kind.ABSENT and verb not in _WRITES:
            return FileNotFoundError(path)
        if kind is Kind.CONDITION or (kind is Kind.ABSENT and verb == _REPLACE):
            return ConditionFailedError(path)
        if kind is Kind.NO_BUCKET:
            bucket = self.location.partition("://")[2].partition("/")[0]
            return StorageError(
                f"cannot reach bucket {bucket!r} of {self.location}: it is not there, or these credentials may not see "
                "it; create it, or check its name"
            )
        advice = _ADVICE.get(kind, "check the address, the credentials and the network")
        text = f"cannot {verb} {path or 'the table folder'} in {self.location}: {failure.text}; {advice}"
        if kind is Kind.UNSUPPORTED:
            return ConditionsIgnoredError(text)
        is_open = kind is Kind.UNANSWERED and verb in {_CREATE, _REPLACE}
        return (OutcomeUnknownError if is_open else StorageError)(text)


class ExplainedFile(io.RawIOBase):
    """A wrapper of a client's file whose reads and writes raise `StorageError` instead of the client's errors."""

    def __init__(self, file: Any, explain_errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._file, self._explain_errors = file, explain_errors

    def readable(self) -> bool:
        """Tell whether the file is open for reading."""
        return bool(self._file.readable())

    def writable(self) -> bool:
        """Tell whether the file is open for writing."""
        return bool(self._file.writable())

    def seekable(self) -> bool:
        """Return whether the position can be changed."""
        return bool(self._file.seekable())

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, and return it."""
        return int(self._file.seek(offset, whence))

    def read(self, size: int | None = -1) -> bytes:
        """Read up to this many bytes, by default all that are left."""
        with self._explain_errors():
            return bytes(self._file.read(-1 if size is None else size))

    def write(self, data: Any) -> int:
        """Write bytes, and return their number."""
        with self._explain_errors():
            return int(self._file.write(data))
