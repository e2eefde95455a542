"""Hudi's lock in DynamoDB, on moto: one holder at a time, and items in the form of Amazon's lock client."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError

from lakeformat import concurrency
from lakeformat.config.resolve import resolve
from lakeformat.errors import LockLostError, LockTimeoutError, StorageError
from lakeformat.locks import lock_table
from lakeformat.locks.dynamodb import DynamoDbLock
from lakeformat.storage import LocalStorage, MemoryStorage
from tests.helpers.s3_server import s3_server
from tests.locks.hours import Hours

AWS = "org.apache.hudi.aws.transaction.lock"
NEW_TABLE = {
    "dynamodb.billing_mode": "PAY_PER_REQUEST",
    "dynamodb.read_capacity": 20,
    "dynamodb.write_capacity": 10,
}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as options:
        yield options["client_kwargs"]["endpoint_url"]


@pytest.fixture
def client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):  # The lock chooses its own default.
        monkeypatch.delenv(name, raising=False)
    return boto3.client("dynamodb", endpoint_url=endpoint, region_name="us-east-1")


@pytest.fixture
def hours() -> Iterator[Hours]:
    clock = Hours()
    with concurrency.use_backend(clock):  # type: ignore[arg-type]
        yield clock


@pytest.fixture
def table(client: Any) -> str:
    name = f"locks-{next(_NUMBERS)}"
    DynamoDbLock(client, name, "any", lease_seconds=60).make_table(NEW_TABLE)
    return name


def item_of(client: Any, table: str, key: str = "t") -> dict[str, Any] | None:
    return client.get_item(TableName=table, Key={"key": {"S": key}}, ConsistentRead=True).get("Item")


def lock_of(client: Any, table: str) -> DynamoDbLock:
    return DynamoDbLock(client, table, "t", lease_seconds=60)


def test_item_has_the_form_of_the_lock_client_and_goes_with_the_lock(client: Any, table: str, hours: Hours) -> None:
    with lock_of(client, table).hold(0):
        item = item_of(client, table)
        assert item is not None
        assert {name: [*value] for name, value in item.items()} == {
            name: ["S"] for name in ("key", "ownerName", "leaseDuration", "recordVersionNumber")
        }
        assert item["leaseDuration"] == {"S": "60000"}
        hours.pass_seconds(20)
        renewed = item_of(client, table)
        assert renewed is not None
        assert renewed["recordVersionNumber"] != item["recordVersionNumber"]
    assert item_of(client, table) is None


def test_second_holder_waits_and_then_names_the_first(client: Any, table: str, hours: Hours) -> None:
    with (
        lock_of(client, table).hold(0) as lease,
        pytest.raises(LockTimeoutError, match=rf"lock t in DynamoDB table {table} of lakeformat-\w+; waited 200 s"),
    ):
        lock_of(client, table).hold(200).__enter__()
    assert lease.remaining() == 0, "it is released"
    with lock_of(client, table).hold(0) as lease:
        lease.check(50)


def test_lock_of_a_dead_holder_is_taken_after_a_whole_lease_without_a_renewal(
    client: Any, table: str, hours: Hours
) -> None:
    dead = lock_of(client, table).hold(0)
    dead.__enter__()
    hours.pass_seconds(55)
    hours.work.clear()
    seen = hours.now
    with lock_of(client, table).hold(70) as lease:
        assert 60 < hours.now - seen < 62, "the waiter does not know when the last renewal was"
        lease.check(50)


def test_holder_that_slept_learns_that_its_lease_is_over(client: Any, table: str, hours: Hours) -> None:
    with lock_of(client, table).hold(0) as lease:
        work, hours.work = hours.work, []
        with lock_of(client, table).hold(70):
            hours.work += work
            theirs = item_of(client, table)
            assert work[0].action() is False
            with pytest.raises(LockLostError, match="run the write again"):
                lease.check(0.1)
            assert item_of(client, table) == theirs
    assert item_of(client, table) is None


def test_release_of_a_lost_lock_changes_nothing(client: Any, table: str, hours: Hours) -> None:
    lost = lock_of(client, table).hold(0)
    lost.__enter__()
    hours.work.clear()
    with lock_of(client, table).hold(70):
        theirs = item_of(client, table)
        lost.__exit__(None, None, None)
        assert item_of(client, table) == theirs


def test_release_leaves_the_item_of_another_holder(client: Any, table: str, hours: Hours) -> None:
    """Somebody has removed the item of a lock that was held, and another writer has taken the lock."""
    theirs = {"key": "t", "ownerName": "java", "leaseDuration": "60000", "recordVersionNumber": "1"}
    item = {name: {"S": value} for name, value in theirs.items()}
    with lock_of(client, table).hold(0):
        client.put_item(TableName=table, Item=item)
    assert item_of(client, table) == item


@pytest.mark.parametrize("number", [1, 2], ids=["first request", "renewal"])
def test_request_whose_answer_was_lost_is_recognised(number: int, client: Any, table: str, hours: Hours) -> None:
    answers = itertools.count(1)

    def lose(**_: Any) -> None:
        if next(answers) == number:
            raise ConnectionClosedError(endpoint_url="http://127.0.0.1")

    client.meta.events.register("after-call.dynamodb.PutItem", lose)
    lock = lock_of(client, table)
    if number == 1:
        with pytest.raises(ConnectionClosedError):
            lock.hold(0).__enter__()
    with lock.hold(0) as lease:
        hours.pass_seconds(100)
        lease.check(30)
    assert item_of(client, table) is None


def test_lock_that_the_java_client_marked_as_released_is_taken(client: Any, table: str, hours: Hours) -> None:
    theirs = {"key": "t", "ownerName": "java", "leaseDuration": "60000", "recordVersionNumber": "1", "isReleased": "1"}
    client.put_item(TableName=table, Item={name: {"S": value} for name, value in theirs.items()})
    with lock_of(client, table).hold(0):
        item = item_of(client, table)
        assert item is not None
        assert "isReleased" not in item


@pytest.mark.parametrize(
    ("provider", "more", "key"),
    [
        ("DynamoDBBasedLockProvider", {"partition_key": "k"}, "k"),
        ("DynamoDBBasedLockProvider", {"name": "orders"}, "orders"),
        ("DynamoDBBasedImplicitPartitionKeyLockProvider", {}, None),
    ],
    ids=["key", "name of the Hudi table", "implicit"],
)
def test_options_name_the_lock(
    provider: str, more: dict[str, str], key: str | None, client: Any, endpoint: str, tmp_path: Any
) -> None:
    """A local table holds the lock, too, beside its own, and makes the table of locks."""
    table = f"locks-{next(_NUMBERS)}"
    prefix = "hoodie.write.lock."
    options = resolve(
        {
            f"{prefix}provider": f"{AWS}.{provider}",
            f"{prefix}dynamodb.table": table,
            f"{prefix}dynamodb.endpoint_url": endpoint,
            f"{prefix}dynamodb.billing_mode": "provisioned",
            f"{prefix}wait_time_ms": 0,
            **{name if name == "name" else f"{prefix}dynamodb.{name}": value for name, value in more.items()},
        }
    )
    storage = LocalStorage(str(tmp_path))
    with lock_table(storage, options.lock) as lease:
        (item,) = client.scan(TableName=table)["Items"]
        assert item["key"]["S"] == key or (key is None and len(item["key"]["S"]) == 16)
        lease.check(5)
        with pytest.raises(LockTimeoutError):
            storage.lock(0).__enter__()
    throughput = client.describe_table(TableName=table)["Table"]["ProvisionedThroughput"]
    assert (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"]) == (20, 10)


def test_error_of_the_service_names_the_lock_and_the_options(client: Any, endpoint: str) -> None:
    options = resolve(
        {
            "hoodie.write.lock.provider": f"{AWS}.DynamoDBBasedLockProvider",
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.partition_key": "k",
            "hoodie.write.lock.dynamodb.endpoint_url": endpoint,
            "hoodie.write.lock.dynamodb.region": "us east",
        }
    )
    with (
        pytest.raises(StorageError, match=r"cannot lock k in DynamoDB table locks: .*us east.*; check the options"),
        lock_table(MemoryStorage(), options.lock),
    ):
        pytest.fail("no lock")
