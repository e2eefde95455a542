"""Callbacks and extra metadata: callbacks get what is visible, and cannot harm it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import CommitMessage, InvalidInputError, InvalidOptionError, Table, ValidationFailedError
from lakeformat.model.operation import Operation

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
ON = "hoodie.write.commit.callback."
RECEIVED: list[CommitMessage] = []


def remember(message: CommitMessage) -> None:
    """Record the message. A test names this function in an option."""
    RECEIVED.append(message)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lakeformat.create(tmp_path / "t", ROWS.schema, record_key="id", name="flights")
    return tmp_path / "t"


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.INSERT_OVERWRITE_TABLE])
def test_callback_runs_after_the_commit_is_visible_and_unlocked(path: Path, operation: Operation) -> None:
    messages: list[tuple[CommitMessage, int]] = []

    def look(message: CommitMessage) -> None:
        table = lakeformat.open(path)
        with table.context.storage.lock(0):
            messages.append((message, table.to_arrow().num_rows))

    result = lakeformat.open(path).write(ROWS, operation, callbacks=[look], extra_metadata={"job": "nightly"})
    ((message, visible),) = messages
    assert visible == 2
    assert message.commit_time == result.instant_time
    assert (message.table_name, message.operation) == ("flights", operation.value)
    assert message.action == ("replacecommit" if operation.is_overwrite else "commit")
    assert sum(stat.num_inserts for stat in message.stats) == 2
    assert message.extra_metadata == {"job": "nightly"}


def test_error_in_a_callback_is_logged_and_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: CommitMessage) -> None:
        raise RuntimeError("no one listens")

    messages: list[str] = []
    with caplog.at_level(logging.WARNING, "lakeformat"):
        result = lakeformat.open(path).upsert(ROWS, callbacks=[fail, lambda m: messages.append(m.commit_time)])
    assert "fail failed after commit" in caplog.text
    assert "no one listens" in caplog.text
    assert messages == [result.instant_time]
    assert lakeformat.open(path).to_arrow().num_rows == 2


def test_refused_write_calls_no_callback(path: Path) -> None:
    messages: list[CommitMessage] = []
    with pytest.raises(ValidationFailedError):
        lakeformat.open(path).upsert(ROWS, validators=[lambda write: False], callbacks=[messages.append])
    assert messages == []


def test_callback_can_be_named_by_an_option(path: Path) -> None:
    RECEIVED.clear()
    result = lakeformat.open(path, **{"lakeformat.transaction.callbacks": f"{__name__}:remember"}).upsert(ROWS)
    assert [message.commit_time for message in RECEIVED] == [result.instant_time]


class _Server(HTTPServer):
    requests: list[tuple[dict[str, str], Any]]


@pytest.fixture
def server() -> Iterator[_Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            listening.requests.append(({k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
            self.send_response(200 if self.path == "/ok" else 500)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    listening = _Server(("127.0.0.1", 0), Handler)
    listening.requests = []
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_http_callback_receives_hudis_message(path: Path, server: _Server, caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    options = {
        ON + "on": "true",
        ON + "http.api.key": "k1",
        ON + "http.custom.headers": "X-Team: flights; X-Other:1",
        ON + "http.timeout.seconds": "5",
    }
    with caplog.at_level(logging.WARNING, "lakeformat"):
        result = lakeformat.open(path, **options, **{ON + "http.url": f"{url}/ok", "_job": "x"}).upsert(ROWS)
    ((headers, message),) = server.requests
    assert headers["hudi-callback-key"] == "k1"
    assert (headers["x-team"], headers["x-other"]) == ("flights", "1")
    assert message["commitTime"] == result.instant_time
    assert message["tableName"] == "flights"
    assert message["commitActionType"] == "commit"
    assert message["extraMetadata"] == {"_job": "x"}
    assert message["hoodieWriteStat"][0]["num_inserts"] == 2
    assert caplog.records == []
    again = lakeformat.open(path, **options, **{ON + "http.url": f"{url}/broken"}).upsert(ROWS)
    assert "500" in caplog.text
    assert len(lakeformat.open(path).history()) == 2
    assert again.instant_time in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({ON + "on": "true"}, "not an http or https address"),
        ({ON + "on": "true", ON + "http.url": "file:///etc/passwd"}, "not an http or https address"),
        ({ON + "on": "true", ON + "class": "org.example.Kafka", ON + "http.url": "http://x"}, "not known"),
        ({ON + "on": "true", ON + "http.url": "http://x", ON + "http.custom.headers": "X"}, "not a header"),
        ({"lakeformat.transaction.callbacks": "nowhere:f"}, "names no function"),
    ],
)
def test_bad_callbacks_are_refused_before_the_write(path: Path, options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        lakeformat.open(path, **options).upsert(ROWS)
    assert lakeformat.open(path).history() == []


def extra(table: Table) -> dict[str, str]:
    return dict(table.context.store.read_commit(table.context.store.load().commits[-1]).extra)


def test_extra_metadata_is_stored_in_the_commit(path: Path) -> None:
    table = lakeformat.open(path, _from="options")
    table.upsert(ROWS, extra_metadata={"checkpoint": "p:1"})
    found = extra(table)
    assert (found["_from"], found["checkpoint"]) == ("options", "p:1")
    assert found["schema"].startswith("{")
    table.delete(pa.table({"id": [1]}), extra_metadata={"why": "asked"})
    assert extra(table)["why"] == "asked"


@pytest.mark.parametrize("metadata", [{"schema": "x"}, {"lakeformat.report": "x"}, {"n": 1}])
def test_harmful_extra_metadata_is_refused(path: Path, metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(metadata))):
        lakeformat.open(path).upsert(ROWS, extra_metadata=metadata)
    assert lakeformat.open(path).history() == []
