"""Requests that the network delivers after the writer has given up: the table stays whole.

The proxy closes the connection of each chosen request and hands the request on later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import lakeformat
from lakeformat.errors import CommitStateUnknownError
from lakeformat.transaction.order.decisions import STATE_PATH
from tests.helpers.fault_proxy import Fault, FaultProxy, Request, fault_proxy
from tests.helpers.servers import Server, start_server
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="int64", v="int64")
#: The client does not repeat a request itself.
AT_ONCE = {"config_kwargs": {"retries": {"max_attempts": 0}}}
COMPLETED = re.compile(r"/\.hoodie/timeline/\d{17}_\d{17}\.commit$")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with start_server("moto") as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.endpoint) as proxy:
        proxy.plan.late_seconds = None
        yield proxy


def hold_back(proxy: FaultProxy, is_chosen: Callable[[str], bool]) -> None:
    """Hold back each PUT of the chosen files until `FaultProxy.deliver` is called."""

    def choose(request: Request) -> Fault | None:
        return Fault.LATE if request.method == "PUT" and is_chosen(request.path) else None

    proxy.plan.choose = choose


def hold_back_nothing(proxy: FaultProxy) -> None:
    proxy.plan.choose = lambda _: None


class Job:
    """A job with a table of its own on the server."""

    def __init__(self, server: Server, proxy: FaultProxy) -> None:
        self.server, self.proxy, self.url = server, proxy, server.new_url()
        made = {"hoodie.write.table.version": 9}
        lakeformat.create(self.url, SCHEMA, record_key="id", storage_options=server.options, **made)
        self.upsert(1, 1, 2, 3)

    def upsert(self, v: int, *ids: int) -> None:
        """Upsert through the proxy, as a new process does."""
        options = {**self.server.through(self.proxy.url).options, **AT_ONCE}
        lakeformat.open(self.url, storage_options=options).upsert(a_batch(SCHEMA, id=ids, v=v))

    def values(self) -> dict[int, int]:
        """Return the rows that a reader sees. It has its own connection to the server."""
        rows = self.open().to_arrow(columns=["id", "v"])
        return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))

    def open(self) -> lakeformat.Table:
        return lakeformat.open(self.url, storage_options=self.server.options)


@pytest.fixture
def job(server: Server, proxy: FaultProxy) -> Job:
    return Job(server, proxy)


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["before the next write", "after the next write"])
def test_completed_file_that_is_delivered_late_is_the_decided_one(delivery: str, job: Job, proxy: FaultProxy) -> None:
    hold_back(proxy, lambda path: COMPLETED.search(path) is not None)
    with pytest.raises(CommitStateUnknownError):
        job.upsert(2, 1, 2, 3)
    hold_back_nothing(proxy)
    assert job.values() in ({1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 2})
    if delivery == "before the next write":
        assert 200 in proxy.deliver()
        assert job.values() == {1: 2, 2: 2, 3: 2}
    job.upsert(3, 1)
    assert job.values() == {1: 3, 2: 2, 3: 2}
    proxy.deliver()
    assert job.values() == {1: 3, 2: 2, 3: 2}
    assert str(job.open().check()) == "nothing is wrong"


def test_decision_that_is_delivered_late_is_refused(job: Job, proxy: FaultProxy) -> None:
    hold_back(proxy, lambda path: path.endswith(STATE_PATH))
    with pytest.raises(CommitStateUnknownError):
        job.upsert(2, 1, 2, 3)
    hold_back_nothing(proxy)
    assert job.values() == {1: 1, 2: 1, 3: 1}
    job.upsert(3, 4)
    assert job.values() == {1: 1, 2: 1, 3: 1, 4: 3}
    held = len(proxy.held)
    assert proxy.deliver() == [412] * held
    assert held > 0
    assert job.values() == {1: 1, 2: 1, 3: 1, 4: 3}


def test_data_file_that_is_delivered_late_is_not_read(job: Job, proxy: FaultProxy) -> None:
    hold_back(proxy, lambda path: path.endswith(".parquet"))
    with pytest.raises(lakeformat.LakeformatError):
        job.upsert(2, 1, 2, 3)
    hold_back_nothing(proxy)
    job.upsert(3, 1)
    assert 200 in proxy.deliver()
    assert job.values() == {1: 3, 2: 1, 3: 1}
    job.open().repair()
    assert str(job.open().check()) == "nothing is wrong"
