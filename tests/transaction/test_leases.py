"""The lease of a lock that ends on its own is checked directly before each request that publishes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

import lakeformat
from lakeformat import concurrency
from lakeformat.errors import CommitStateUnknownError, LockLostError
from lakeformat.locks.lease import TimedLease
from lakeformat.storage import LocalStorage
from lakeformat.storage.port import OutcomeUnknownError
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import Decision, Kind, decide
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, UnlockedStorage
from tests.helpers.s3_server import s3_server
from tests.helpers.tables import a_batch, a_table
from tests.locks.hours import Hours

PATH = ".hoodie/20260101000000001.savepoint"
SAVEPOINT = Decision(kind=Kind.SAVEPOINT, instant_time="20260101000000001", path=PATH, data=b"x")


class HoursWithPools(Hours):
    """Time that a test moves, for whole writes, which need pools."""

    def thread_pool(self, threads: int) -> ThreadPoolExecutor:  # type: ignore[override]
        return ThreadPoolExecutor(threads)


@pytest.fixture
def hours() -> Iterator[HoursWithPools]:
    clock = HoursWithPools()
    with concurrency.use_backend(clock):
        yield clock


def make_lease(seconds: float) -> TimedLease:
    lease = TimedLease("the lock x")
    lease.extend(concurrency.monotonic(), seconds)
    return lease


@pytest.mark.parametrize("storage", [LocalStorage, UnlockedStorage])
def test_lease_that_has_ended_stops_the_decision(storage: type[LocalStorage], tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=a_batch(id=1))
    lease = make_lease(100)
    store = TimelineStore(storage(tmp_path / "t"))
    lease.end()
    with pytest.raises(LockLostError, match=r"the lease of the lock x has ended .*; run the write again"):
        decide(store, lambda *_: SAVEPOINT, lease=lease)
    assert store.storage.info(PATH) is None
    decide(store, lambda *_: SAVEPOINT, lease=make_lease(100))
    assert store.storage.read(PATH) == b"x"


def test_lease_that_ends_between_two_tries_stops_the_second(tmp_path: Path) -> None:
    """The first try may have been carried out although it was not answered, so the outcome is unknown."""
    a_table(tmp_path / "t", rows=a_batch(id=1))
    lease = make_lease(100)

    def end_at_replacement(call: Call) -> None:
        if call.name == "replace_if":
            lease.end()

    unanswered = Fault(lambda _, call: call.name == "replace_if", Mode.BEFORE, kills=False, raises=OutcomeUnknownError)
    storage = FaultyStorage(UnlockedStorage(tmp_path / "t"), unanswered, meanwhile=end_at_replacement)
    with pytest.raises(CommitStateUnknownError, match="cannot tell whether savepoint"):
        decide(TimelineStore(storage), lambda *_: SAVEPOINT, lease=lease)
    assert [call.name for call in storage.calls].count("replace_if") == 1


def test_write_on_a_disk_whose_lock_in_dynamodb_has_ended_is_undone(
    tmp_path: Path, hours: HoursWithPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    a_table(tmp_path / "t", rows=a_batch(id=1, v="before"))
    sleeps = itertools.count(60, 1)

    def sleep_for_a_minute(_: object) -> None:
        hours.pass_seconds(next(sleeps), works=False)

    with s3_server() as options:
        url = options["client_kwargs"]["endpoint_url"]
        table = lakeformat.open(
            tmp_path / "t",
            **{
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
                "hoodie.write.lock.dynamodb.table": "locks",
                "hoodie.write.lock.dynamodb.partition_key": "t",
                "hoodie.write.lock.dynamodb.region": "us-east-1",
                "hoodie.write.lock.dynamodb.endpoint_url": url,
                "lakeformat.write.retries": 0,
            },
        )
        with pytest.raises(LockLostError, match="the lock t in DynamoDB table locks"):
            table.upsert(a_batch(id=1, v="lost"), validators=[sleep_for_a_minute])
        assert table.to_arrow(["v"]).to_pylist() == [{"v": "before"}]
        table.upsert(a_batch(id=1, v="after"))
        client = boto3.client("dynamodb", endpoint_url=url, region_name="us-east-1")
        assert client.scan(TableName="locks")["Items"] == []
    assert table.to_arrow(["v"]).to_pylist() == [{"v": "after"}]
