"""The requests of an upsert on an object store."""

from __future__ import annotations

import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.storage import MemoryStorage, open_storage
from lakeformat.storage.port import FileInfo
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import STATE_PATH, Decision, Kind, decide, read_state
from tests.helpers.s3_server import BUCKET, Network, s3_server
from tests.helpers.tables import a_batch, a_table

FILES, ROWS = 3, 300
OPTIONS: dict[str, Any] = {"hoodie.write.table.version": 9, "hoodie.metadata.enable": False}
#: The limits: requests of a commit, and of each file that it writes. The object stores of the clouds do not need the
#: second listing, which a server with an address of its own gets (`RemoteStorage.list_at_once`).
COMMIT_REQUESTS, FILE_REQUESTS, SECOND_LISTINGS = 26, 2, 6


@dataclass(frozen=True)
class Request:
    """One request: its method, ``LIST`` for a listing, and the path of the object or folder inside the table."""

    method: str
    path: str

    @property
    def is_data(self) -> bool:
        """Tell whether the object is a data file."""
        return self.path.endswith(".parquet") and not self.path.startswith(".hoodie/")


class Recorder(Network):
    """A network that records the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Record a request, and pass it on."""
        query = urllib.parse.parse_qs(environ["QUERY_STRING"])
        is_listing = "list-type" in query
        name = query.get("prefix", [""])[0] if is_listing else environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        method = "LIST" if is_listing else environ["REQUEST_METHOD"]
        self.requests.append(Request(method, name.partition("/")[2]))
        return super().__call__(environ, start_response)


def rows(seed: int) -> pa.Table:
    """Return a value for each key; the keys are the same for every seed."""
    ids = range(ROWS)
    return pa.table({"id": [*ids], "part": [f"p{key % FILES}" for key in ids], "v": [float(key * seed) for key in ids]})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Recorder, dict[str, str]]]:
    """Run a server. Yield the record of its requests, and the options of a client."""
    recorder = Recorder()
    with s3_server(recorder) as options:
        yield recorder, dict(options)


@pytest.fixture(scope="module")
def requests(server: tuple[Recorder, dict[str, str]]) -> list[Request]:
    """Return the requests of an upsert that changes every file of a table, which was written to before."""
    recorder, options = server
    url = f"s3://{BUCKET}/request-counts"
    table = lakeformat.create(
        url, rows(0).schema, record_key="id", partition_by="part", storage_options=options, **OPTIONS
    )
    table.upsert(rows(1))
    table.upsert(rows(2))
    recorder.requests.clear()
    table.upsert(rows(3))
    found = [*recorder.requests]
    assert table.read().to_arrow().sort_by("id").column("v").to_pylist() == rows(3).column("v").to_pylist()
    return found


def test_upsert_stays_within_the_limit_of_requests(requests: list[Request]) -> None:
    assert len(requests) <= COMMIT_REQUESTS + SECOND_LISTINGS + FILE_REQUESTS * FILES


def test_each_data_file_is_written_by_one_request(requests: list[Request]) -> None:
    writes = Counter(each.path for each in requests if each.is_data and each.method in {"PUT", "POST"})
    assert len(writes) == FILES
    assert set(writes.values()) == {1}


def test_only_the_file_of_the_planning_is_read_twice(requests: list[Request]) -> None:
    reads = Counter(each.path for each in requests if each.is_data and each.method == "GET")
    assert len(reads) == FILES
    assert reads.total() <= FILES + 1


def test_no_request_asks_for_the_size_of_a_file_or_for_a_known_partition(requests: list[Request]) -> None:
    assert [each.path for each in requests if each.method == "HEAD"] == []


def test_markers_of_all_files_are_two_objects(requests: list[Request]) -> None:
    """Without markers, Hudi's rollback of the write would find none of its files."""
    marked = [each for each in requests if each.path.startswith(".hoodie/.temp/")]
    assert Counter(each.method for each in marked) == {"PUT": 2}


def test_markers_claim_and_heartbeat_are_removed_by_two_requests(requests: list[Request]) -> None:
    """The claim goes last: as long as it is there, the next writer removes the others."""
    assert [each.method for each in requests if each.method in {"DELETE", "POST"}] == ["POST", "POST"]


def test_writer_that_loses_a_turn_reads_the_state_once_more(server: tuple[Recorder, dict[str, str]]) -> None:
    recorder, options = server
    url = f"s3://{BUCKET}/lost-turn"
    lakeformat.create(url, rows(0).schema, record_key="id", storage_options=options, **OPTIONS)
    stores = [TimelineStore(open_storage(url, **options)) for _ in range(2)]
    turns = iter((True, False))

    def make(name: str, meanwhile: Callable[[], object] = lambda: None) -> Decision:
        meanwhile()
        return Decision(kind=Kind.PLAN, instant_time=name, path=f".hoodie/timeline/{name}.clean.requested", data=b"x")

    def lose_first() -> None:
        if next(turns):
            decide(stores[1], lambda *_: make("1"))
            recorder.requests.clear()

    decide(stores[0], lambda *_: make("0"))
    decide(stores[0], lambda *_: make("2", lose_first))
    state = [each.method for each in recorder.requests if each.path == STATE_PATH]
    assert state == ["PUT", "GET", "PUT"]
    assert read_state(stores[1].storage)[0].number == 3


def test_write_that_stages_nothing_asks_for_no_stage_folder(requests: list[Request]) -> None:
    assert [each for each in requests if each.path.startswith(".hoodie/.lakeformat/stage")] == []


class Listed(MemoryStorage):
    """A storage that records which folders are listed as they were at one moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: list[str] = []

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """Record the folder."""
        self.folders.append(path)
        return super().list_at_once(path)


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_lists_the_timeline_once_for_each_lock(version: int) -> None:
    """Beside the two locks, which begin and publish the commit, its plan lists it, and the choice of due services."""
    storage = Listed()
    table = a_table(storage, rows=a_batch(id=["a"], v=["x"]), version=version)
    table.upsert(a_batch(id=["a"], v=["y"]))
    storage.folders.clear()
    table.upsert(a_batch(id=["a"], v=["z"]))
    assert storage.folders.count(table.context.store.layout.folder) == 4
