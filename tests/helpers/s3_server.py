"""An S3 server on this machine (moto), and one empty table folder after another on it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

import fsspec
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lakeformat.storage import FsspecStorage

SECRET = "very-secret-canary"
BUCKET = "lake"

_NUMBERS = itertools.count()
_TURN = Lock()
_APPLICATION = DomainDispatcherApplication(create_backend_app)


class Network:
    """What becomes of requests on their way.

    Attributes:
        loses: asked for each PUT by its path; those that it chooses are kept back, and answered as if the server were
            too busy.
        kept: how to deliver those requests after all.
    """

    def __init__(self) -> None:
        self.loses: Callable[[str], bool] = lambda _: False
        self.kept: list[Callable[[], str]] = []

    def deliver(self) -> list[str]:
        """Hand on what was kept back. Returns the statuses."""
        kept, self.kept = self.kept, []
        return [request() for request in kept]

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """S3 decides between conditional writes; moto looks first and writes then, with nothing to keep others out."""
        if environ["REQUEST_METHOD"] == "PUT" and self.loses(environ["PATH_INFO"]):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self.kept.append(lambda: _answered({**environ, "wsgi.input": io.BytesIO(body)}))
            start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InternalError</Code><Message>no answer</Message></Error>"]
        with _TURN:
            return list(_APPLICATION(environ, start_response))


def _answered(environ: Any) -> str:
    statuses: list[str] = []
    with _TURN:
        list(_APPLICATION(environ, lambda status, *_: statuses.append(status)))
    return statuses[0].partition(" ")[0]


@contextmanager
def s3_server(network: Network | None = None) -> Iterator[Mapping[str, Any]]:
    """Start a server on a free port; gives fsspec's ``storage_options`` for it."""
    server = make_server("127.0.0.1", 0, network or Network(), threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        options = {
            "key": "key",
            "secret": SECRET,
            "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
        }
        fsspec.filesystem("s3", skip_instance_cache=True, **options).call_s3("create_bucket", Bucket=BUCKET)
        yield options
    finally:
        server.shutdown()
        thread.join()


def new_folder(options: Mapping[str, Any]) -> FsspecStorage:
    """A storage over a folder that nobody has used."""
    return FsspecStorage(f"s3://{BUCKET}/table-{next(_NUMBERS)}", dict(options))
