"""Hudi's lock in ZooKeeper (``ZookeeperBasedLockProvider``), by kazoo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from lakeformat.config.lock_options import LockSettings
from lakeformat.errors import LockTimeoutError, StorageError
from lakeformat.locks.lease import TimedLease
from lakeformat.locks.lock_names import hash_location
from lakeformat.storage.port import Lease

__all__ = ["hold_zookeeper_lock"]

#: Node under which Hudi's implicit provider has the locks (``ZookeeperBasedImplicitBasePathLockProvider``).
_IMPLICIT_BASE: Final = "/tmp"  # noqa: S108  A node of ZooKeeper, not a folder.
_IMPLICIT_KEY: Final = "lock_key"


@contextmanager
def hold_zookeeper_lock(location: str, settings: LockSettings) -> Iterator[Lease]:
    """Hold the table's lock in ZooKeeper while the block runs. ZooKeeper frees it when the process dies.

    Raises:
        LockTimeoutError: another process still holds the lock after the timeout.
        StorageError: ZooKeeper cannot be reached, or kazoo is not installed.
    """
    try:
        from kazoo.client import KazooClient, KazooState
        from kazoo.exceptions import KazooException, LockTimeout
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise StorageError("the lock in ZooKeeper needs kazoo; run: pip install 'lakeformat[zookeeper]'") from None
    options = dict(settings.more)
    hosts = _list_hosts(options)
    client = KazooClient(hosts, timeout=options["zookeeper.session_timeout_ms"] / 1000)
    lease = TimedLease(f"the lock in ZooKeeper at {hosts}")
    client.add_listener(lambda state: None if state == KazooState.CONNECTED else lease.end())
    try:
        client.start(timeout=options["zookeeper.connection_timeout_ms"] / 1000)
    except KazooTimeoutError:
        raise StorageError(f"cannot reach ZooKeeper at {hosts}; check hoodie.write.lock.zookeeper.url") from None
    path = _find_path(location, options, is_implicit=settings.is_implicit)
    lock = _make_lock(client, path)
    try:
        lock.acquire(timeout=settings.wait_seconds)
    except LockTimeout:
        _close(client)
        raise LockTimeoutError(
            f"another writer held the lock {path} in ZooKeeper for {settings.wait_seconds:g} s; run the write again, "
            "or raise hoodie.write.lock.wait_time_ms"
        ) from None
    except KazooException as error:
        _close(client)
        raise StorageError(f"cannot lock {path} in ZooKeeper at {hosts}: {type(error).__name__}; try again") from None
    try:
        lease.extend_forever()
        yield lease
    finally:
        try:
            lock.release()
        except KazooException:
            pass  # The end of the session frees the lock.
        finally:
            _close(client)


def _close(client: Any) -> None:
    client.stop()
    client.close()


def _list_hosts(options: dict[str, Any]) -> str:
    port = options["zookeeper.port"]
    hosts = str(options["zookeeper.url"] or "localhost:2181").split(",")
    return ",".join(host if ":" in host or not port else f"{host}:{port}" for host in hosts)


def _find_path(location: str, options: dict[str, Any], *, is_implicit: bool) -> str:
    if is_implicit:
        return f"{_IMPLICIT_BASE}/{hash_location(location)}/{_IMPLICIT_KEY}"
    base, key = str(options["zookeeper.base_path"]), str(options["zookeeper.lock_key"])
    return f"{base.rstrip('/')}/{key.strip('/')}"


def _make_lock(client: Any, path: str) -> Any:
    """Make a lock whose nodes curator's mutex recognises, which Hudi uses. Both attributes are private to kazoo."""
    from kazoo.recipe.lock import Lock

    class CuratorLock(Lock):  # type: ignore[misc]
        _NODE_NAME = "-lock-"
        _EXCLUDE_NAMES = ("-lock-",)

    return CuratorLock(client, path, "lakeformat")
