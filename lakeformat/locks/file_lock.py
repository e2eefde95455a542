"""Hudi's lock file ``.hoodie/.locks/table_lock.json``, which needs no lock service.

Source: RFC-91, Hudi's ``StorageBasedLockProvider``.

The file names its holder and the time until which it holds the lock. It is created only if absent and replaced only if
its version has not changed, so of several writers one takes the lock. It is never deleted: who releases the lock marks
it as expired. A holder renews its lock. If it dies, others take the lock once its time is over.

A lock that has ended is never renewed, although Hudi does so: what its holder saw before may have been undone since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any, Final

from lakeformat.codec.json_text import parse_json
from lakeformat.concurrency import every, monotonic, tries
from lakeformat.errors import StorageError
from lakeformat.locks.lease import TimedLease, wait_for_lock
from lakeformat.storage.port import (
    HOODIE,
    Clock,
    Ids,
    Lease,
    OutcomeUnknownError,
    RandomIds,
    Storage,
    SystemClock,
    Version,
    VersionChangedError,
)

__all__ = ["LOCK_PATH", "FileLock"]

_LOG: Final = logging.getLogger("lakeformat.write")
LOCK_PATH: Final = f"{HOODIE}/.locks/table_lock.json"
#: Milliseconds for which a lock of another holder still counts as held after its time is over (Hudi: clock drift).
_DRIFT_MS: Final = 500
#: Seconds before each further try to release the lock. Some storages refuse two writes within a second.
_RELEASE_PAUSES: Final = (0.4, 0.4)


class FileLock:
    """One process's use of a table's lock file.

    Args:
        validity_seconds: time for which the lock is valid without a renewal.
        renew_seconds: time between two renewals.
    """

    def __init__(
        self,
        storage: Storage,
        validity_seconds: float,
        renew_seconds: float,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._storage, self._clock = storage, clock or SystemClock()
        self._validity, self._renewal = validity_seconds, renew_seconds
        self._owner = f"lakeformat-{(ids or RandomIds()).token()}"
        self._version: Version | None = None
        self._last_ms = 0
        self.lease = TimedLease(f"{storage.location}/{LOCK_PATH}")

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Lease]:
        """Hold the lock while the block runs. A thread renews it.

        Raises:
            LockTimeoutError: another process still holds the lock after the timeout.
        """
        wait_for_lock(self._take, timeout_seconds, self._describe)
        try:
            with every(self._renewal, self._renew, name="table-lock"):
                yield self.lease
        finally:
            self._release()

    def _take(self) -> bool:
        content, version = self._read()
        # A request of this holder may have been carried out although its answer was lost.
        if content is not None and not content.get("expired") and content.get("owner") != self._owner:
            valid_until = content.get("validUntil")
            if isinstance(valid_until, int) and self._clock.now_ms() <= valid_until + _DRIFT_MS:
                return False
        return self._grant(version)

    def _read(self) -> tuple[dict[str, Any] | None, Version | None]:
        try:
            data, version = self._storage.read_versioned(LOCK_PATH)
        except FileNotFoundError:
            return None, None
        with suppress(ValueError):
            content = parse_json(data)
            if isinstance(content, dict):
                return content, version
        return {"expired": True}, version

    def _grant(self, version: Version | None) -> bool:
        """Write the file with a new end of the lock. Return False if another was first, or there was no answer."""
        began = monotonic()
        # Two contents of the same holder must differ, because equal contents may have equal versions.
        self._last_ms = max(self._clock.now_ms() + int(self._validity * 1000), self._last_ms + 1)
        try:
            self._version = self._storage.replace_if(LOCK_PATH, self._encode(expired=False), version)
        except (FileExistsError, VersionChangedError, OutcomeUnknownError):
            return False
        self.lease.extend(began, self._validity)
        return True

    def _encode(self, *, expired: bool) -> bytes:
        content = {"expired": expired, "validUntil": self._last_ms, "owner": self._owner}
        return json.dumps(content, separators=(",", ":")).encode()

    def _renew(self) -> bool:
        """Renew the lock. Return False if it is lost, so that no further renewal is tried.

        It never runs at the same time as `_release`: the end of the periodic work waits for it.
        """
        if self._version is None or not self.lease.remaining():
            return False
        try:
            if self._grant(self._version):
                return True
            content, version = self._read()
        except StorageError as error:
            _LOG.warning("renewing the lock of %s failed, trying again: %s", self._storage.location, error)
            return True
        if self._is_own(content):  # An earlier renewal was carried out, its answer was lost.
            self._version = version
            return True
        self.lease.end()
        self._version = None
        return False

    def _is_own(self, content: dict[str, Any] | None) -> bool:
        return content is not None and content.get("owner") == self._owner and not content.get("expired")

    def _release(self) -> None:
        """Mark the lock as expired if it is still held. If that fails, the lock ends by itself."""
        for _ in tries(_RELEASE_PAUSES):
            if self._version is None or not self.lease.remaining():
                break
            with suppress(StorageError):
                try:
                    self._storage.replace_if(LOCK_PATH, self._encode(expired=True), self._version)
                    break
                except VersionChangedError:  # A renewal may have been carried out although its answer was lost.
                    content, version = self._read()
                    self._version = version if self._is_own(content) else None
        self._version = None
        self.lease.end()

    def _describe(self) -> str:
        lock = f"the lock {self._storage.location}/{LOCK_PATH}"
        try:
            content, _ = self._read()
            if content is None or content.get("expired"):
                return lock
            until = datetime.fromtimestamp(int(content["validUntil"]) / 1000, timezone.utc)
            return f"{lock} of {content['owner']}, valid until {until:%Y-%m-%d %H:%M:%S} UTC"
        except (StorageError, KeyError, ValueError, TypeError, OverflowError, OSError):
            return lock
