"""The options of locks and retries: Hudi's names are obeyed, and all that is wrong with them is said at once."""

from __future__ import annotations

import pickle

import pytest

from lakeformat import InvalidOptionError
from lakeformat.concurrency import Patience
from lakeformat.config.hudi_support import AnswerKind, find_answer
from lakeformat.config.resolve import resolve

LOCK = "hoodie.write.lock."
MODE = "hoodie.write.concurrency.mode"
PACKAGE = "org.apache.hudi.client.transaction.lock"
ZOOKEEPER = {f"{LOCK}zookeeper.{name}": name for name in ("url", "base_path", "lock_key")}
DYNAMODB = {f"{LOCK}dynamodb.{name}": name for name in ("table", "partition_key")}


@pytest.mark.parametrize("mode", ["OPTIMISTIC_CONCURRENCY_CONTROL", "optimistic_concurrency_control"])
def test_writers_of_an_optimistic_mode_hold_the_shared_lock(mode: str) -> None:
    settings = resolve({MODE: mode}).lock
    assert (settings.is_shared, settings.is_non_blocking, settings.provider) == (True, False, "")


def test_non_blocking_mode_is_shared_too() -> None:
    settings = resolve({MODE: "non_blocking_concurrency_control"}).lock
    assert (settings.is_shared, settings.is_non_blocking) == (True, True)


@pytest.mark.parametrize("options", [{}, {MODE: "single_writer"}], ids=["default", "single writer"])
def test_writers_of_lakeformat_alone_share_no_lock(options: dict[str, str]) -> None:
    assert not resolve(options).lock.is_shared


@pytest.mark.parametrize(
    ("name", "more", "provider", "is_implicit"),
    [
        (f"{PACKAGE}.StorageBasedLockProvider", {}, "storage", False),
        (f"{PACKAGE}.ZookeeperBasedLockProvider", ZOOKEEPER, "zookeeper", False),
        (f"{PACKAGE}.ZookeeperBasedImplicitBasePathLockProvider", {f"{LOCK}zookeeper.url": "h"}, "zookeeper", True),
        ("org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider", DYNAMODB, "dynamodb", False),
        (
            "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider",
            {f"{LOCK}dynamodb.table": "t"},
            "dynamodb",
            True,
        ),
    ],
    ids=lambda value: value.rpartition(".")[2] if isinstance(value, str) else "",
)
def test_lock_provider_of_hudi_is_obeyed(name: str, more: dict[str, str], provider: str, is_implicit: bool) -> None:
    settings = resolve({f"{LOCK}provider": name, **more}).lock
    assert (settings.provider, settings.is_implicit, settings.is_shared) == (provider, is_implicit, True)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301  Spark sends it to tasks.


@pytest.mark.parametrize("name", ["FileSystemBasedLockProvider", "InProcessLockProvider", "NoopLockProvider"])
@pytest.mark.parametrize("mode", ["SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"])
def test_lock_provider_of_one_process_or_disk_means_the_own_lock(name: str, mode: str) -> None:
    settings = resolve({f"{LOCK}provider": f"{PACKAGE}.{name}", MODE: mode}).lock
    assert (settings.provider, settings.is_shared) == ("", mode != "SINGLE_WRITER")


def test_times_of_the_lock_are_obeyed() -> None:
    settings = resolve(
        {
            f"{LOCK}wait_time_ms": 2_000,
            f"{LOCK}client.num_retries": 3,
            f"{LOCK}storage.validity.timeout.secs": 100,
            f"{LOCK}storage.heartbeat.poll.secs": 10,
        }
    ).lock
    assert (settings.wait_seconds, settings.shared_wait_seconds) == (2.0, 8.0)
    assert (settings.validity_seconds, settings.renew_seconds) == (100.0, 10.0)


def test_default_wait_beside_hudi_is_longer_than_the_lock_of_a_dead_job() -> None:
    settings = resolve({MODE: "optimistic_concurrency_control"}).lock
    assert settings.wait_seconds == 60
    assert settings.shared_wait_seconds > settings.validity_seconds == 300


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, Patience(300)),
        ({"lakeformat.write.retry.seconds": 20, "lakeformat.write.retries": 0}, Patience(20, 0)),
        ({"hoodie.write.num.retries.on.conflict.failures": 2}, Patience(300, 2)),
        ({"hoodie.write.num.retries.on.conflict.failures": 0}, Patience(300, 0)),
        ({"hoodie.write.num.retries.on.conflict.failures": 2, "lakeformat.write.retries": 9}, Patience(300, 2)),
    ],
)
def test_option_of_hudi_for_retries_wins_if_it_is_set(options: dict[str, int], patience: Patience) -> None:
    assert resolve(options).patience == patience


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"lakeformat.write.retries": -1},
            "lakeformat.write.retries='-1' is not valid: write a whole number from 0 up",
        ),
        ({MODE: "optimistic"}, "write one of SINGLE_WRITER, OPTIMISTIC_CONCURRENCY_CONTROL"),
        (
            {f"{LOCK}provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"},
            "locks of the Hive metastore are not held; leave it out, or set one of StorageBasedLockProvider",
        ),
        (
            {f"{LOCK}provider": f"{PACKAGE}.ZookeeperBasedLockProvider", f"{LOCK}zookeeper.url": "h"},
            f"needs {LOCK}zookeeper.base_path, {LOCK}zookeeper.lock_key; set them as in the other jobs",
        ),
        (
            {f"{LOCK}provider": "DynamoDBBasedLockProvider", f"{LOCK}dynamodb.table": "t"},
            f"needs {LOCK}dynamodb.partition_key; set",
        ),
        (
            {f"{LOCK}storage.validity.timeout.secs": 60},
            f"{LOCK}storage.validity.timeout.secs=60 must be at least ten times {LOCK}storage.renew.interval.secs=30",
        ),
        ({f"{LOCK}dynamodb.billing_mode": "free"}, "write one of PAY_PER_REQUEST, PROVISIONED"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_wrong_option_is_refused_with_advice(options: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        resolve(options)
    assert text in str(caught.value)


def test_one_error_names_all_wrong_options_of_the_lock() -> None:
    with pytest.raises(InvalidOptionError, match=r"4 options are refused: \(1\).*\(4\)") as caught:
        resolve(
            {
                MODE: "many",
                "lakeformat.write.retries": "few",
                f"{LOCK}provider": "ZookeeperBasedLockProvider",
                f"{LOCK}storage.validity.timeout.secs": 5,
            }
        )
    for name in (MODE, "lakeformat.write.retries", "zookeeper.lock_key", "storage.validity.timeout.secs=5"):
        assert name in str(caught.value)


def test_table_name_is_the_key_of_the_dynamodb_lock_as_in_hudi() -> None:
    options = {f"{LOCK}provider": "DynamoDBBasedLockProvider", f"{LOCK}dynamodb.table": "t"}
    settings = resolve({**options, "hoodie.table.name": "orders"}).lock
    assert dict(settings.more)["dynamodb.partition_key"] == "orders"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (f"{LOCK}client.wait_time_ms_between_retry", "about once a second"),
        (f"{LOCK}num_retries", "about once a second"),
        (f"{LOCK}conflict.resolution.strategy", "when a write is published"),
        ("hoodie.write.concurrency.early.conflict.detection.enable", "when a write is published"),
        ("hoodie.write.lock.filesystem.path", "storage's own lock"),
        ("hoodie.write.lock.hivemetastore.uris", "refused"),
        ("hoodie.cleaner.policy.failed.writes", "rolled back by the next writer"),
    ],
)
def test_option_without_effect_is_accepted_and_explained(
    name: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert resolve({name: "1"}).values == {}
    assert caplog.records == []
    answer = find_answer(name)
    assert answer is not None
    assert answer.kind is AnswerKind.IGNORED
    assert says in answer.explanation
