"""Hudi's lock in DynamoDB (``DynamoDBBasedLockProvider``), in the form of Amazon's DynamoDB lock client.

The lock is one item. Its holder writes a new version number into it at each renewal. Who waits takes the lock over once
it has seen the same number for the whole time of the lease, by its own steady clock. So no clocks are compared.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from lakeformat.concurrency import every, monotonic
from lakeformat.config.lock_options import LockSettings
from lakeformat.errors import StorageError
from lakeformat.extras import install_line
from lakeformat.locks.lease import TimedLease, wait_for_lock
from lakeformat.locks.lock_names import hash_location
from lakeformat.storage.port import Lease, RandomIds

__all__ = ["DynamoDbLock", "hold_dynamodb_lock"]

_LOG: Final = logging.getLogger("lakeformat.write")
_KEY: Final = "key"
_OWNER: Final = "ownerName"
_VERSION: Final = "recordVersionNumber"
_DURATION: Final = "leaseDuration"
_RELEASED: Final = "isReleased"
_POLL_SECONDS: Final = 0.5
#: Shortest time of a lease in seconds.
_SHORTEST_LEASE: Final = 10.0
#: The region of Hudi's lock if neither the options nor the environment name one.
_REGION: Final = "us-east-1"


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
        raise StorageError(f"the lock in DynamoDB needs boto3; {install_line('dynamodb')}") from None
    options = dict(settings.more)
    table, key = str(options["dynamodb.table"]), str(options["dynamodb.partition_key"])
    if settings.is_implicit:
        key = hash_location(location)
    region = options["dynamodb.region"] or os.environ.get("AWS_REGION") or boto3.Session().region_name or _REGION
    with ExitStack() as stack:
        try:
            client = boto3.client("dynamodb", region_name=region, endpoint_url=_find_endpoint(options))
            lock = DynamoDbLock(client, table, key, lease_seconds=max(settings.wait_seconds, _SHORTEST_LEASE))
            lock.make_table(options)
            lease = stack.enter_context(lock.hold(settings.shared_wait_seconds))
        except (BotoCoreError, ClientError, ValueError) as error:
            raise StorageError(f"cannot lock {key} in DynamoDB table {table}: {error}; check the options") from None
        yield lease


def _find_endpoint(options: Mapping[str, Any]) -> str | None:
    endpoint = options["dynamodb.endpoint_url"]
    return endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}"


class DynamoDbLock:
    """One process's use of a lock.

    Args:
        client: boto3's client of DynamoDB.
        lease_seconds: time for which the lock is valid without a renewal. Hudi: ``hoodie.write.lock.wait_time_ms``.
    """

    def __init__(self, client: Any, table: str, key: str, *, lease_seconds: float) -> None:
        self._client, self._table, self._key, self._seconds = client, table, key, lease_seconds
        self._owner, self._version = f"lakeformat-{RandomIds().token()}", ""
        self._seen, self._seen_owner, self._since = "", "", 0.0
        self._lease = TimedLease(f"the lock {key} in DynamoDB table {table}")

    def make_table(self, options: Mapping[str, Any]) -> None:
        """Create the table of locks if it does not exist, with the options for its billing."""
        try:
            self._client.describe_table(TableName=self._table)
            return
        except self._client.exceptions.ResourceNotFoundException:
            pass
        billing: dict[str, Any] = {"BillingMode": options["dynamodb.billing_mode"]}
        if billing["BillingMode"] == "PROVISIONED":
            billing["ProvisionedThroughput"] = {
                "ReadCapacityUnits": options["dynamodb.read_capacity"],
                "WriteCapacityUnits": options["dynamodb.write_capacity"],
            }
        with suppress(self._client.exceptions.ResourceInUseException):  # Another writer is creating it.
            self._client.create_table(
                TableName=self._table,
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                **billing,
            )
        self._client.get_waiter("table_exists").wait(TableName=self._table)

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Lease]:
        """Hold the lock while the block runs. A thread renews it.

        Raises:
            LockTimeoutError: another process still holds the lock after the timeout.
        """
        wait_for_lock(self._take, timeout_seconds, self._describe, poll_seconds=_POLL_SECONDS)
        try:
            with every(self._seconds / 3, self._renew, name="dynamodb-lock"):
                yield self._lease
        finally:
            self._release()

    def _describe(self) -> str:
        owner = f" of {self._seen_owner}" if self._seen_owner else ""
        return f"the lock {self._key} in DynamoDB table {self._table}{owner}"

    def _read(self) -> Mapping[str, Any] | None:
        answer: Mapping[str, Any] = self._client.get_item(
            TableName=self._table, Key={_KEY: {"S": self._key}}, ConsistentRead=True
        )
        return answer.get("Item")

    def _take(self) -> bool:
        item = self._read()
        if item is None:
            return self._put("attribute_not_exists(#k)", {"#k": _KEY}, {})
        if _RELEASED in item:
            return self._put("#i = :i", {"#i": _RELEASED}, {":i": item[_RELEASED]})
        version = item[_VERSION]["S"]
        if not self._is_own(item):  # A request of this holder may have been carried out although its answer was lost.
            if version != self._seen:
                self._seen, self._seen_owner = version, item.get(_OWNER, {}).get("S", "")
                self._since = monotonic()
                return False
            if monotonic() - self._since <= int(item[_DURATION]["S"]) / 1000:
                return False
        return self._put("#r = :r", {"#r": _VERSION}, {":r": {"S": version}})

    def _is_own(self, item: Mapping[str, Any] | None) -> bool:
        return item is not None and item.get(_OWNER, {}).get("S") == self._owner and _RELEASED not in item

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
            # boto3 repeats a request without an answer, which may have been carried out.
            current = self._read()
            if current is None or current[_VERSION]["S"] != version:
                return False
        self._version = version
        self._lease.extend(began, self._seconds)
        return True

    def _put_again(self) -> bool:
        return self._put("#r = :r", {"#r": _VERSION}, {":r": {"S": self._version}})

    def _renew(self) -> bool:
        """Renew the lock. Return False if it is lost, so that no further renewal is tried."""
        from botocore.exceptions import BotoCoreError, ClientError

        if not self._lease.remaining():
            return False
        try:
            if self._put_again():
                return True
            item = self._read()
            if item is not None and self._is_own(item):  # An earlier renewal was carried out, its answer was lost.
                self._version = item[_VERSION]["S"]
                if self._put_again():
                    return True
        except (BotoCoreError, ClientError) as error:
            _LOG.warning("renewing %s failed, trying again: %s", self._describe(), error)
            return True
        self._lease.end()
        return False

    def _release(self) -> None:
        """Delete the item if it is still this holder's. If that fails, the lock ends by itself."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._lease.remaining():
            try:  # The owner's name is unique, so the version does not matter.
                self._client.delete_item(
                    TableName=self._table,
                    Key={_KEY: {"S": self._key}},
                    ConditionExpression="#o = :o",
                    ExpressionAttributeNames={"#o": _OWNER},
                    ExpressionAttributeValues={":o": {"S": self._owner}},
                )
            except self._client.exceptions.ConditionalCheckFailedException:
                pass  # Another holder has it.
            except (BotoCoreError, ClientError) as error:
                _LOG.warning("releasing %s failed, it ends by itself: %s", self._describe(), error)
        self._lease.end()
