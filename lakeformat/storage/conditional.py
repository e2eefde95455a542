"""Conditional writes on object stores, and what is known if a store does not say that it has written an object.

Only the answer "written" is believed. After any other answer the object is read:

- It has the bytes of this call: the write has succeeded, and its answer was lost.
- It has other bytes: another writer was first.
- It is unchanged: the outcome is unknown, because the request may still be carried out. If the store said that the
  condition does not hold, the same request is sent again. S3 gives this answer, too, if two requests meet.

`find_versions` finds out whether a store respects conditions at all.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from lakeformat.concurrency import tries
from lakeformat.errors import StorageError
from lakeformat.storage.port import OutcomeUnknownError, Version, VersionChangedError, check_version, own_path

__all__ = [
    "ConditionFailedError",
    "ConditionalStore",
    "ConditionsIgnoredError",
    "create_if_absent",
    "find_versions",
    "replace_if_unchanged",
]

#: Bytes in files that no two calls of `create_if_absent` write alike.
_TOKEN: Final = b"lakeformat."
#: Seconds to wait before the same request is sent again.
_PAUSES: Final = (0.05, 0.2, 0.5)
_PROBE_TRIES: Final = 3


class ConditionFailedError(Exception):
    """The store says that an object exists, or that it has another version."""


class ConditionsIgnoredError(StorageError):
    """The store does not support conditional writes."""


class ConditionalStore(Protocol):
    """An object store, as an adapter presents it to this module."""

    @property
    def location(self) -> str:
        """Return the name of the folder for messages."""

    def put_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Write an object if it is absent (None) or has this version, and return its new version.

        Raises:
            ConditionFailedError: the store says that the condition does not hold.
            ConditionsIgnoredError: the store does not support the condition.
            OutcomeUnknownError: the store did not answer, or failed.
            StorageError: the store refused the request, so nothing was written.
        """

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read an object and its version. Raise ``FileNotFoundError`` if it is absent."""

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""


def create_if_absent(store: ConditionalStore, path: str, data: bytes) -> None:
    """Create an object.

    Raises:
        FileExistsError: the object exists. If it has the bytes of this call, and the bytes are not unique to the call,
            the call may have created it.
        OutcomeUnknownError: the object may exist, or may be created later.
    """
    for is_last in tries(_PAUSES):
        failure = _try_put(store, path, data, None)
        if not isinstance(failure, Exception):
            return
        stored = _read_back(store, path)
        if stored is not None:
            if stored[0] == data and _TOKEN in data:
                return
            if stored[0] == data and isinstance(failure, OutcomeUnknownError):
                raise failure
            raise FileExistsError(path)
        _check_again(store, path, failure, is_last=is_last)


def replace_if_unchanged(store: ConditionalStore, path: str, data: bytes, version: Version | None) -> Version:
    """Replace an object that has this version, or create it if the version is None. Return the new version.

    Raises:
        FileExistsError: the version is None, and the object exists.
        VersionChangedError: the object has another version, or is absent.
        OutcomeUnknownError: the object may be written, now or later.
    """
    for is_last in tries(_PAUSES):
        answer = _try_put(store, path, data, version)
        if not isinstance(answer, Exception):
            return answer
        stored = _read_back(store, path)
        if stored is not None and stored[0] == data:
            return stored[1]
        try:
            check_version(path, store.location, stored[1] if stored is not None else None, version)
        except VersionChangedError as error:
            error.found = stored
            raise
        _check_again(store, path, answer, is_last=is_last)
    raise AssertionError("unreachable")


def _try_put(
    store: ConditionalStore, path: str, data: bytes, version: Version | None
) -> Version | ConditionFailedError | OutcomeUnknownError:
    try:
        return store.put_if(path, data, version)
    except (ConditionFailedError, OutcomeUnknownError) as error:
        return error


def _read_back(store: ConditionalStore, path: str) -> tuple[bytes, Version] | None:
    """Read an object after a write that was not confirmed. Return None if it is absent."""
    try:
        return store.read_versioned(path)
    except FileNotFoundError:
        return None
    except StorageError as error:
        raise OutcomeUnknownError(f"cannot tell whether {path} was written: {error}") from None


def _check_again(store: ConditionalStore, path: str, failure: Exception, *, is_last: bool) -> None:
    """Raise an error if the same request must not be sent again."""
    if isinstance(failure, OutcomeUnknownError):
        raise failure
    if is_last:
        raise OutcomeUnknownError(
            f"cannot tell whether {path} of {store.location} was written: the store refuses it, and it is unchanged; "
            "look at the store's log"
        )


# --- the probe --------------------------------------------------------------------------------------------

#: Maps servers and buckets to the results of their probes in this process.
_FOUND: Final[dict[str, bool]] = {}
_GUARD: Final = threading.Lock()


def find_versions(store: ConditionalStore, server: str) -> bool:
    """Tell whether a server respects conditions. The first call in this process tries it on an object of the table.

    Args:
        server: the server and the bucket, by which the result is remembered.

    Raises:
        StorageError: the server does not answer, or refuses to write.
    """
    with _GUARD:
        if server in _FOUND:
            return _FOUND[server]
    result = _probe(store)
    with _GUARD:
        return _FOUND.setdefault(server, result)


def _probe(store: ConditionalStore) -> bool:
    """Create an object twice, and replace it twice on the same condition. Only the first call of each may succeed."""
    failure: Exception = AssertionError("unreachable")
    for _ in range(_PROBE_TRIES):
        token = uuid.uuid4().hex
        path = own_path("probe", token)
        try:
            return _respects_conditions(store, path, token)
        except ConditionsIgnoredError:
            return False
        except (ConditionFailedError, OutcomeUnknownError) as error:  # A lost answer, or a server that refuses all.
            failure = error
        finally:
            with suppress(StorageError):
                store.delete(path)
    if isinstance(failure, ConditionFailedError):
        return False
    raise StorageError(f"cannot find out whether several writers are safe on {store.location}: {failure}") from None


def _respects_conditions(store: ConditionalStore, path: str, token: str) -> bool:
    first, second = f"{token} 1".encode(), f"{token} 2".encode()
    created = store.put_if(path, first, None)
    if not _is_refused(lambda: store.put_if(path, b"not exclusive", None)) or not created.tag:
        return False
    if store.read_versioned(path) != (first, created):
        return False
    replaced = store.put_if(path, second, created)
    if not _is_refused(lambda: store.put_if(path, b"not versioned", created)):
        return False
    return replaced != created and store.read_versioned(path) == (second, replaced)


def _is_refused(put: Callable[[], object]) -> bool:
    try:
        put()
    except ConditionFailedError:
        return True
    return False
