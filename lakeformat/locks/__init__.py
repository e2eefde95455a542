"""The table's lock, in the form that Hudi's writers use, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lakeformat.config.lock_options import LockSettings
from lakeformat.locks.file_lock import FileLock
from lakeformat.storage.port import Clock, Lease, Storage

__all__ = ["LockSettings", "excludes_writers", "lock_table"]

#: Validity of the lock file in seconds if only lakeformat writes to the table, and the time between two renewals.
_OWN_VALIDITY, _OWN_RENEWAL = 60.0, 6.0


def excludes_writers(storage: Storage, settings: LockSettings) -> bool:
    """Tell whether all writers hold the table's lock to begin and to publish: ours, and Hudi's if it writes, too."""
    return storage.has_lock or settings.is_shared


@contextmanager
def lock_table(
    storage: Storage, settings: LockSettings, *, service: bool = False, clock: Clock | None = None
) -> Iterator[Lease]:
    """Hold the table's lock while the block runs.

    On storage with locks this is the storage's lock, and beside it the lock of a provider that the options name. On
    other storage it is the lock of the provider, by default Hudi's lock file. Writers hold it only if Hudi writes to
    the table, too. Table services always hold it, so that two of them do not do the same work.

    Args:
        service: whether a table service needs the lock.
        clock: the source of the time for the lock file; by default this machine's clock.

    Raises:
        LockTimeoutError: another process still holds the lock after the time that the settings allow.
    """
    with storage.lock(settings.wait_seconds) as lease:
        more = _find_lock(storage, settings, clock, service=service)
        if more is None:
            yield lease
            return
        with more as shared:
            yield shared


def _find_lock(
    storage: Storage, settings: LockSettings, clock: Clock | None, *, service: bool
) -> AbstractContextManager[Lease] | None:
    """Return the lock to hold beside the storage's own lock; None if there is none."""
    if settings.provider == "zookeeper":
        from lakeformat.locks.zookeeper import hold_zookeeper_lock

        return hold_zookeeper_lock(storage.location, settings)
    if settings.provider == "dynamodb":
        from lakeformat.locks.dynamodb import hold_dynamodb_lock

        return hold_dynamodb_lock(storage.location, settings)
    if storage.has_lock or not storage.has_versions or not (settings.is_shared or service):
        return None
    if settings.is_shared:
        lock = FileLock(storage, settings.validity_seconds, settings.renew_seconds, clock=clock)
        return lock.hold(settings.shared_wait_seconds)
    validity, renewal = min(settings.validity_seconds, _OWN_VALIDITY), min(settings.renew_seconds, _OWN_RENEWAL)
    return FileLock(storage, validity, renewal, clock=clock).hold(settings.wait_seconds)
