"""Hudi's lock in DynamoDB (``DynamoDBBasedLockProvider``), in the form of Amazon's DynamoDB lock client.

The lock is one item. Its holder writes a new version number into it at each renewal. Who waits takes the lock over once
it has seen the same number for the whole time of the lease, by its own steady clock. So no clocks are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from lakeformat.concurrency import every, monotonic
from lakeformat.config.lock_options import LockSettings
from lakeformat.errors import StorageError
from lakeformat.locks.lease import TimedLease, wait_for_lock
from lakeformat.locks.lock_names import hash_location
from lakeformat.storage.port import Lease, RandomIds

__all__ = ["DynamoDbLock", "hold_dynamodb_lock"]

_KEY: Final = "key"
_OWNER: Final = "ownerName"
_VERSION: Final = "recordVersionNumber"
_DURATION: Final = "leaseDuration"
_RELEASED: Final = "isReleased"
_POLL_SECONDS: Final = 0.5


@contextmanager
def hold_dynamodb_lock(location: str, settings: LockSettings) -> Iterator[Lease]:
    """Hold the table's lock in DynamoDB while the block runs.

    Raises:
        LockTimeoutError: another process still holds the lock after the timeout.
        StorageError: DynamoDB cannot be reached, or boto3 is not installed.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise StorageError("the lock in DynamoDB needs boto3; run: pip install 'lakeformat[dynamodb]'") from None
    options = dict(settings.more)
    client = boto3.client(
        "dynamodb", region_name=options["dynamodb.region"], endpoint_url=options["dynamodb.endpoint_url"]
    )
    key = options["dynamodb.partition_key"] or location.rstrip("/").rpartition("/")[2]
    table = options["dynamodb.table"]
    if settings.is_implicit:
        key, table = hash_location(location), table or "hudi_locks"
    lock = DynamoDbLock(client, str(table), str(key), lease_seconds=settings.wait_seconds)
    try:
        lock.make_table(str(options["dynamodb.billing_mode"]))
        with lock.hold(settings.wait_seconds) as lease:
            yield lease
    except (BotoCoreError, ClientError) as error:
        raise StorageError(f"cannot lock {key} in DynamoDB table {table}: {error}; check the options") from None


class DynamoDbLock:
    """One process's use of a lock.

    Args:
        client: boto3's client of DynamoDB.
        lease_seconds: time for which the lock is valid without a renewal. Hudi: ``hoodie.write.lock.wait_time_ms``.
    """

    def __init__(self, client: Any, table: str, key: str, *, lease_seconds: float) -> None:
        self._client, self._table, self._key, self._seconds = client, table, key, lease_seconds
        self._owner, self._version = f"lakeformat-{RandomIds().token()}", ""
        self._seen, self._since = "", 0.0
        self._lease = TimedLease(f"lock {key} in DynamoDB table {table}")

    def make_table(self, billing_mode: str) -> None:
        """Create the table of locks if it does not exist."""
        with suppress(self._client.exceptions.ResourceNotFoundException):
            self._client.describe_table(TableName=self._table)
            return
        with suppress(self._client.exceptions.ResourceInUseException):
            self._client.create_table(
                TableName=self._table,
                BillingMode=billing_mode,
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
            )
        self._client.get_waiter("table_exists").wait(TableName=self._table)

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Lease]:
        """Hold the lock while the block runs. A thread renews it."""
        wait_for_lock(self._take, timeout_seconds, lambda: f"lock {self._key} in DynamoDB", poll_seconds=_POLL_SECONDS)
        try:
            with every(self._seconds / 3, self._renew, name="dynamodb-lock"):
                yield self._lease
        finally:
            self._release()

    def _take(self) -> bool:
        item = self._client.get_item(TableName=self._table, Key={_KEY: {"S": self._key}}, ConsistentRead=True).get(
            "Item"
        )
        if item is None:
            return self._put("attribute_not_exists(#k)", {"#k": _KEY}, {})
        if _RELEASED in item:
            return self._put("#i = :i", {"#i": _RELEASED}, {":i": item[_RELEASED]})
        found = item[_VERSION]["S"]
        if found != self._seen:
            self._seen, self._since = found, monotonic()
            return False
        if monotonic() - self._since <= int(item[_DURATION]["S"]) / 1000:
            return False
        return self._put("#r = :r", {"#r": _VERSION}, {":r": {"S": found}})

    def _put(self, condition: str, names: dict[str, str], values: dict[str, Any]) -> bool:
        """Write the item with a new version number. Return False if another holder was first."""
        began, version = monotonic(), RandomIds().token()
        item = {
            _KEY: {"S": self._key},
            _OWNER: {"S": self._owner},
            _DURATION: {"S": str(int(self._seconds * 1000))},
            _VERSION: {"S": version},
        }
        more = {"ExpressionAttributeValues": values} if values else {}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                **more,
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            if not self._has_version(version):  # An earlier try of this request may have succeeded.
                return False
        self._version = version
        self._lease.extend(began, self._seconds)
        return True

    def _has_version(self, version: str) -> bool:
        item = self._client.get_item(TableName=self._table, Key={_KEY: {"S": self._key}}, ConsistentRead=True).get(
            "Item"
        )
        return item is not None and item[_VERSION]["S"] == version

    def _own(self) -> tuple[str, dict[str, str], dict[str, Any]]:
        return (
            "#r = :r AND #o = :o",
            {"#r": _VERSION, "#o": _OWNER},
            {":r": {"S": self._version}, ":o": {"S": self._owner}},
        )

    def _renew(self) -> bool:
        if self._lease.remaining() and self._put(*self._own()):
            return True
        self._lease.end()
        return False

    def _release(self) -> None:
        condition, names, values = self._own()
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.delete_item(
                TableName=self._table,
                Key={_KEY: {"S": self._key}},
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        self._lease.end()
