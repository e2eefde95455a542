"""Options of writers beside others: retries, heartbeats, and the lock that Hudi's writers hold, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, Option, parse_count, parse_positive
from lakeformat.errors import InvalidOptionError

__all__ = ["LOCK_OPTIONS", "RETRIES", "LockSettings"]

RETRIES: Final = "lakeformat.write.retries"
_HUDI_RETRIES: Final = "hoodie.write.num.retries.on.conflict.failures"
_MODE: Final = "hoodie.write.concurrency.mode"
_PROVIDER: Final = "hoodie.write.lock.provider"
_LOCK: Final = "hoodie.write.lock."
_MODES: Final = ("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL")
#: Maps the name of each lock provider of Hudi, without its package, to lakeformat's lock. "" is the storage's own lock.
_PROVIDERS: Final = {
    "StorageBasedLockProvider": "storage",
    "ZookeeperBasedLockProvider": "zookeeper",
    "ZookeeperBasedImplicitBasePathLockProvider": "zookeeper",
    "DynamoDBBasedLockProvider": "dynamodb",
    "DynamoDBBasedImplicitPartitionKeyLockProvider": "dynamodb",
    "FileSystemBasedLockProvider": "",
    "InProcessLockProvider": "",
    "NoopLockProvider": "",
}


def _parse_mode(text: str) -> str:
    mode = text.upper()
    if mode not in _MODES:
        raise ValueError(f"expected one of {', '.join(_MODES)}")
    return mode


def _parse_provider(text: str) -> str:
    name = text.rpartition(".")[2]
    if name not in _PROVIDERS:
        raise ValueError(f"no such lock here; use one of {', '.join(_PROVIDERS)} in all jobs that write to the table")
    return name


def _text(name: str, help_text: str, default: Any = None) -> Option:
    return Option(_LOCK + name, help_text, Effect.WRITE, default=default)


LOCK_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        RETRIES,
        "Number of times that a write is repeated after a conflict with another writer.",
        Effect.WRITE,
        parse_count,
        5,
    ),
    Option(
        _HUDI_RETRIES, "If it is set, it is obeyed instead of lakeformat.write.retries.", Effect.WRITE, parse_count, 0
    ),
    Option(
        "hoodie.client.heartbeat.interval_in_ms",
        "Milliseconds between two heartbeats of a writer, as other writers expect them.",
        Effect.WRITE,
        parse_positive,
        60000,
    ),
    Option(
        "hoodie.client.heartbeat.tolerable.misses",
        "Number of missed heartbeats after which other writers count a writer as dead.",
        Effect.WRITE,
        parse_positive,
        2,
    ),
    Option(
        _MODE,
        "OPTIMISTIC_CONCURRENCY_CONTROL or NON_BLOCKING_CONCURRENCY_CONTROL: Hudi writes to the table, too, so each "
        "write holds Hudi's lock to begin and to publish. Writers of lakeformat alone need no mode.",
        Effect.WRITE,
        _parse_mode,
        "SINGLE_WRITER",
    ),
    Option(
        _PROVIDER,
        "Class of Hudi's lock: StorageBasedLockProvider (the default on object stores), ZookeeperBasedLockProvider or "
        "DynamoDBBasedLockProvider, also their implicit forms. FileSystemBasedLockProvider and InProcessLockProvider "
        "mean lakeformat's own lock.",
        Effect.WRITE,
        _parse_provider,
    ),
    Option(
        _LOCK + "wait_time_ms",
        "Milliseconds to wait for another writer of this table.",
        Effect.WRITE,
        parse_count,
        60000,
    ),
    Option(
        _LOCK + "storage.validity.timeout.secs",
        "Seconds for which the lock file is valid without a renewal.",
        Effect.WRITE,
        parse_positive,
        300,
    ),
    Option(
        _LOCK + "storage.renew.interval.secs",
        "Seconds between two renewals of the lock file.",
        Effect.WRITE,
        parse_positive,
        30,
        (_LOCK + "storage.heartbeat.poll.secs",),
    ),
    _text("zookeeper.url", "Host of ZooKeeper, or several of the form host:port, separated by commas."),
    _text("zookeeper.port", "Port of ZooKeeper, if the URL has none."),
    _text("zookeeper.base_path", "Node of ZooKeeper under which the locks are."),
    _text("zookeeper.lock_key", "Name of the table's lock under that node."),
    Option(
        _LOCK + "zookeeper.session_timeout_ms",
        "Milliseconds after which ZooKeeper frees the lock of a dead process.",
        Effect.WRITE,
        parse_positive,
        60000,
    ),
    Option(
        _LOCK + "zookeeper.connection_timeout_ms",
        "Milliseconds to wait for the connection to ZooKeeper.",
        Effect.WRITE,
        parse_positive,
        15000,
    ),
    _text("dynamodb.table", "Table of DynamoDB that holds the locks."),
    _text("dynamodb.partition_key", "Key of the table's lock; by default the name of the Hudi table."),
    _text("dynamodb.region", "Region of DynamoDB.", "us-east-1"),
    _text("dynamodb.endpoint_url", "Address of DynamoDB, if it is not Amazon's."),
    _text("dynamodb.billing_mode", "Billing mode of a table of locks that is made.", "PAY_PER_REQUEST"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """The settings of the table's lock.

    Attributes:
        wait_seconds: maximum time to wait for the lock.
        provider: ``storage``, ``zookeeper`` or ``dynamodb``; "" for the storage's own lock.
        is_implicit: whether the lock's name is derived from the table's path.
        is_shared: whether Hudi writes to the table, too, so that each write holds the lock.
        is_non_blocking: whether writers append to buckets without conflicts.
        validity_seconds: time for which the lock file is valid without a renewal.
        renew_seconds: time between two renewals of the lock file.
        more: the other options, by their names after ``hoodie.write.lock.``.
    """

    wait_seconds: float
    provider: str = ""
    is_implicit: bool = False
    is_shared: bool = False
    is_non_blocking: bool = False
    validity_seconds: float = 300.0
    renew_seconds: float = 30.0
    more: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, get: Callable[[str], Any], is_set: Callable[[str], bool]) -> LockSettings:
        """Make the settings of the options.

        Args:
            get: returns the value of an option.
            is_set: tells whether the user gave an option.

        Raises:
            InvalidOptionError: the lock of the provider lacks an option.
        """
        mode, name = get(_MODE), get(_PROVIDER) or ""
        provider = _PROVIDERS.get(name, "")
        implicit = "Implicit" in name
        needed = {
            "zookeeper": () if implicit else ("zookeeper.url", "zookeeper.base_path", "zookeeper.lock_key"),
            "dynamodb": () if implicit else ("dynamodb.table",),
        }
        missing = [_LOCK + each for each in needed.get(provider, ()) if not get(_LOCK + each)]
        if missing:
            raise InvalidOptionError(f"{_PROVIDER}={name} needs {', '.join(missing)}")
        validity, renewal = get(_LOCK + "storage.validity.timeout.secs"), get(_LOCK + "storage.renew.interval.secs")
        if validity < 10 * renewal:
            raise InvalidOptionError(
                f"{_LOCK}storage.validity.timeout.secs={validity} must be at least ten times "
                f"{_LOCK}storage.renew.interval.secs={renewal}"
            )
        own = tuple(option.key.removeprefix(_LOCK) for option in LOCK_OPTIONS if option.key.startswith(_LOCK))
        return cls(
            wait_seconds=get(_LOCK + "wait_time_ms") / 1000,
            provider=provider,
            is_implicit=implicit,
            is_shared=mode != "SINGLE_WRITER" or (is_set(_PROVIDER) and bool(provider)),
            is_non_blocking=mode == "NON_BLOCKING_CONCURRENCY_CONTROL",
            validity_seconds=float(validity),
            renew_seconds=float(renewal),
            more=tuple(
                (each, get(_LOCK + each)) for each in own if each.partition(".")[0] in {"zookeeper", "dynamodb"}
            ),
        )
