"""Options of writers beside others: retries, heartbeats, and the lock that Hudi's writers hold, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lakeformat.config.option import Effect, Option, make_choice_parser, parse_count, parse_positive
from lakeformat.config.problems import Problem
from lakeformat.errors import InvalidOptionError

__all__ = ["LOCK_OPTIONS", "LOCK_PROVIDER", "RETRIES", "RETRY_SECONDS", "LockSettings", "find_lock_errors", "lock_kind"]

RETRIES: Final = "lakeformat.write.retries"
RETRY_SECONDS: Final = "lakeformat.write.retry.seconds"
_HUDI_RETRIES: Final = "hoodie.write.num.retries.on.conflict.failures"
_MODE: Final = "hoodie.write.concurrency.mode"
LOCK_PROVIDER: Final = "hoodie.write.lock.provider"
_LOCK: Final = "hoodie.write.lock."
_VALIDITY: Final = _LOCK + "storage.validity.timeout.secs"
_RENEWAL: Final = _LOCK + "storage.renew.interval.secs"
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


#: Options that the lock of each provider needs, unless the provider derives the lock's name from the table's path.
_NEEDED: Final = {
    "zookeeper": ("zookeeper.url", "zookeeper.base_path", "zookeeper.lock_key"),
    "dynamodb": ("dynamodb.table", "dynamodb.partition_key"),
}
_NEEDED_IMPLICIT: Final = {"zookeeper": ("zookeeper.url",), "dynamodb": ("dynamodb.table",)}
_TABLE_NAME: Final = "hoodie.table.name"


def _parse_provider(text: str) -> str:
    """Return the name of Hudi's class without its package. Refuse locks that lakeformat cannot hold."""
    name = text.strip().rpartition(".")[2]
    if name not in _PROVIDERS:
        reason = "locks of the Hive metastore are not held" if "HiveMetastore" in name else "no such lock here"
        raise ValueError(
            f"{reason}; leave it out, or set one of {', '.join(_PROVIDERS)}, the same in all jobs that write to the "
            "table"
        )
    return name


_entry: Final = partial(Option, Effect.WRITE)


def _text(name: str, help_text: str, default: Any = None) -> Option:
    return _entry(_LOCK + name, help_text, default=default)


def _number(name: str, help_text: str, default: int) -> Option:
    return _entry(_LOCK + name, help_text, parse_positive, default)


LOCK_OPTIONS: Final[tuple[Option, ...]] = (
    _entry(
        RETRY_SECONDS, "Seconds for which a write is repeated after conflicts with other writers.", parse_count, 300
    ),
    _entry(
        RETRIES,
        "Maximum number of times that a write is repeated after a conflict with another writer, whatever the time; by "
        "default the time alone counts.",
        parse_count,
    ),
    _entry(_HUDI_RETRIES, "If it is set, it is obeyed instead of lakeformat.write.retries.", parse_count, 0),
    _entry(
        "hoodie.client.heartbeat.interval_in_ms",
        "Milliseconds between two heartbeats of a writer, as other writers expect them.",
        parse_positive,
        60000,
    ),
    _entry(
        "hoodie.client.heartbeat.tolerable.misses",
        "Number of missed heartbeats after which other writers count a writer as dead.",
        parse_positive,
        2,
    ),
    _entry(
        _MODE,
        "OPTIMISTIC_CONCURRENCY_CONTROL or NON_BLOCKING_CONCURRENCY_CONTROL: Hudi writes to the table, too, so each "
        "write holds Hudi's lock to begin and to publish. Writers of lakeformat alone need no mode.",
        make_choice_parser(*_MODES),
        "SINGLE_WRITER",
    ),
    _entry(
        LOCK_PROVIDER,
        "Class of Hudi's lock: StorageBasedLockProvider (the default on object stores), ZookeeperBasedLockProvider or "
        "DynamoDBBasedLockProvider, also their implicit forms. FileSystemBasedLockProvider, InProcessLockProvider and "
        "NoopLockProvider mean the storage's own lock, on object stores the lock file. All jobs that write to the "
        "table need the same.",
        _parse_provider,
    ),
    _entry(_LOCK + "wait_time_ms", "Milliseconds to wait for another writer of this table.", parse_count, 60000),
    _entry(
        _LOCK + "client.num_retries",
        "Number of times that the wait for Hudi's lock is repeated. The default outlives the lock of a dead Hudi job.",
        parse_count,
        5,
    ),
    _number(
        "storage.validity.timeout.secs",
        "Seconds for which the lock file is valid without a renewal; at most 60 for a lock of lakeformat alone.",
        300,
    ),
    _entry(
        _RENEWAL,
        "Seconds between two renewals of the lock file.",
        parse_positive,
        30,
        (_LOCK + "storage.heartbeat.poll.secs",),
    ),
    _text("zookeeper.url", "Host of ZooKeeper, or several of the form host:port, separated by commas."),
    _number("zookeeper.port", "Port of ZooKeeper, if the URL has none.", 2181),
    _text("zookeeper.base_path", "Node of ZooKeeper under which the locks are."),
    _text("zookeeper.lock_key", "Name of the table's lock under that node."),
    _number(
        "zookeeper.session_timeout_ms", "Milliseconds after which ZooKeeper frees the lock of a dead process.", 60000
    ),
    _number("zookeeper.connection_timeout_ms", "Milliseconds to wait for an answer of ZooKeeper.", 15000),
    _text("dynamodb.table", "Table of DynamoDB that holds the locks. The credentials are those of the environment."),
    _text("dynamodb.partition_key", "Key of the table's lock; by default hoodie.table.name, if it is given."),
    _text("dynamodb.region", "Region of DynamoDB; by default that of the environment, else us-east-1."),
    _text("dynamodb.endpoint_url", "Address of DynamoDB, if it is not the region's."),
    _entry(
        _LOCK + "dynamodb.billing_mode",
        "Billing mode of a table of locks that is made.",
        make_choice_parser("PAY_PER_REQUEST", "PROVISIONED"),
        "PAY_PER_REQUEST",
    ),
    _number("dynamodb.read_capacity", "Read units of a table of locks that is made in the mode PROVISIONED.", 20),
    _number("dynamodb.write_capacity", "Write units of a table of locks that is made in the mode PROVISIONED.", 10),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """The settings of the table's lock.

    Attributes:
        wait_seconds: maximum time to wait for a lock that only lakeformat's writers hold.
        shared_wait_seconds: maximum time to wait for a lock that Hudi's writers hold, too.
        provider: ``storage``, ``zookeeper`` or ``dynamodb``; "" for the storage's own lock.
        is_implicit: whether the lock's name is derived from the table's path.
        is_shared: whether Hudi writes to the table, too, so that each write holds the lock.
        is_non_blocking: whether writers append to buckets without conflicts.
        validity_seconds: time for which the lock file is valid without a renewal.
        renew_seconds: time between two renewals of the lock file.
        more: the other options, by their names after ``hoodie.write.lock.``.
    """

    wait_seconds: float
    shared_wait_seconds: float
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
            InvalidOptionError: the options contradict each other, or the lock of the provider lacks an option.
        """
        if errors := list(find_lock_errors(get)):
            raise InvalidOptionError("; ".join(error.text for error in errors))
        mode, name = get(_MODE), get(LOCK_PROVIDER) or ""
        provider = _PROVIDERS.get(name, "")
        validity, renewal = get(_VALIDITY), get(_RENEWAL)
        names = (option.key.removeprefix(_LOCK) for option in LOCK_OPTIONS if option.key.startswith(_LOCK))
        more = {name: get(_LOCK + name) for name in names if name.partition(".")[0] in _NEEDED}
        more["dynamodb.partition_key"] = more["dynamodb.partition_key"] or get(_TABLE_NAME)
        wait_seconds = get(_LOCK + "wait_time_ms") / 1000
        return cls(
            wait_seconds=wait_seconds,
            shared_wait_seconds=wait_seconds * (1 + get(_LOCK + "client.num_retries")),
            provider=provider,
            is_implicit="Implicit" in name,
            is_shared=mode != "SINGLE_WRITER" or (is_set(LOCK_PROVIDER) and bool(provider)),
            is_non_blocking=mode == "NON_BLOCKING_CONCURRENCY_CONTROL",
            validity_seconds=float(validity),
            renew_seconds=float(renewal),
            more=tuple(more.items()),
        )


def lock_kind(get: Callable[[str], Any]) -> tuple[str, bool]:
    """Return the lock that the options name, "" for the storage's own, and whether its name follows from the path."""
    name = get(LOCK_PROVIDER) or ""
    return _PROVIDERS.get(name, ""), "Implicit" in name


def find_lock_errors(get: Callable[[str], Any]) -> Iterator[Problem]:
    """Find contradictions between the options of the lock, and missing options.

    Args:
        get: returns the value of an option.
    """
    name = get(LOCK_PROVIDER) or ""
    kind, is_implicit = lock_kind(get)
    needed = (_NEEDED_IMPLICIT if is_implicit else _NEEDED).get(kind, ())
    given = {name for name in needed if get(_LOCK + name)} | ({"dynamodb.partition_key"} if get(_TABLE_NAME) else set())
    if missing := [_LOCK + name for name in needed if name not in given]:
        them = "it" if len(missing) == 1 else "them"
        text = f"option {LOCK_PROVIDER}={name} needs {', '.join(missing)}; set {them} as in the other jobs"
        yield Problem(LOCK_PROVIDER, text)
    validity, renewal = get(_VALIDITY), get(_RENEWAL)
    if validity < max(10 * renewal, 10):
        text = f"option {_VALIDITY}={validity} must be at least ten times {_RENEWAL}={renewal}; change one of them"
        yield Problem(_VALIDITY, text)
