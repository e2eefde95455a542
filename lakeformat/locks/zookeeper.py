"""Hudi's lock in ZooKeeper (``ZookeeperBasedLockProvider``), by kazoo.

The lock is a queue of nodes, each of which belongs to a session of a client. If a client dies or does not answer for
the time of its session, ZooKeeper removes its node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from lakeformat.config.lock_options import LockSettings
from lakeformat.errors import StorageError
from lakeformat.extras import install_line
from lakeformat.locks.lease import make_lost_error, make_timeout_error
from lakeformat.locks.lock_names import hash_location
from lakeformat.storage.port import Lease, RandomIds

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
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise StorageError(f"the lock in ZooKeeper needs kazoo; {install_line('zookeeper')}") from None
    options = dict(settings.more)
    hosts, path = _list_hosts(options), _find_path(location, options, is_implicit=settings.is_implicit)
    answer_seconds = options["zookeeper.connection_timeout_ms"] / 1000
    client = KazooClient(hosts, timeout=options["zookeeper.session_timeout_ms"] / 1000)
    lock = _make_lock(client, path)
    try:
        try:
            client.start(timeout=answer_seconds)
            _acquire(lock, path, settings.shared_wait_seconds)
        except KazooTimeoutError:
            raise StorageError(f"cannot reach ZooKeeper at {hosts}; check hoodie.write.lock.zookeeper.url") from None
        except KazooException as error:
            reason = type(error).__name__
            raise StorageError(f"cannot lock {path} in ZooKeeper at {hosts}: {reason}; try again") from None
        try:
            yield _ZooKeeperLease(client, lock, f"the lock {path} in ZooKeeper at {hosts}", answer_seconds)
        finally:
            if client.connected:  # The end of the session frees the lock, too.
                with suppress(KazooException):
                    lock.release()
    finally:
        client.stop()
        client.close()


class _ZooKeeperLease:
    """The lease of a lock in ZooKeeper. It has no known end, so each check asks ZooKeeper.

    Args:
        name: name of the lock, for messages.
        answer_seconds: maximum time to wait for an answer.
    """

    def __init__(self, client: Any, lock: Any, name: str, answer_seconds: float) -> None:
        self._client, self._name, self._answer_seconds = client, name, answer_seconds
        self._node = f"{lock.path}/{lock.node}"
        self._is_lost = False

    def remaining(self) -> float:
        """Return infinity, or 0 if a check has found that the lock is lost."""
        return 0.0 if self._is_lost else math.inf

    def check(self, seconds: float) -> None:
        """Raise `LockLostError` if ZooKeeper does not confirm that this process holds the lock.

        The lock then lasts at least for the session's timeout, and longer as long as this process answers.
        """
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        if not self._is_lost:
            try:
                self._is_lost = self._client.exists_async(self._node).get(timeout=self._answer_seconds) is None
            except (KazooException, KazooTimeoutError):
                self._is_lost = True
        if self._is_lost:
            raise make_lost_error(self._name)


def _acquire(lock: Any, path: str, seconds: float) -> None:
    from kazoo.exceptions import LockTimeout

    try:
        if lock.acquire(timeout=seconds or 0.001):  # kazoo waits without end if the time is 0.
            return
    except LockTimeout:
        pass
    first = next(iter(lock.contenders()), "")
    raise make_timeout_error(f"the lock {path} in ZooKeeper{f' of {first}' if first else ''}", seconds)


def _list_hosts(options: dict[str, Any]) -> str:
    hosts = str(options["zookeeper.url"]).split(",")
    return ",".join(host.strip() if ":" in host else f"{host.strip()}:{options['zookeeper.port']}" for host in hosts)


def _find_path(location: str, options: dict[str, Any], *, is_implicit: bool) -> str:
    if is_implicit:
        return f"{_IMPLICIT_BASE}/{hash_location(location)}/{_IMPLICIT_KEY}"
    nodes = (str(options["zookeeper.base_path"]).strip("/"), str(options["zookeeper.lock_key"]).strip("/"))
    return "".join(f"/{node}" for node in nodes if node)


def _make_lock(client: Any, path: str) -> Any:
    """Make a lock whose nodes curator's mutex recognises, which Hudi uses. Both attributes are private to kazoo."""
    from kazoo.recipe.lock import Lock

    class CuratorLock(Lock):  # type: ignore[misc]
        _NODE_NAME = "-lock-"
        _EXCLUDE_NAMES = ["-lock-"]  # noqa: RUF012  kazoo adds a list to it.

    return CuratorLock(client, path, f"lakeformat-{RandomIds().token()}")
