"""An S3 server on this machine (moto), and one empty table folder after another on it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lakeformat.storage import ObjectStorage

SECRET = "very-secret-canary"
BUCKET = "lake"

_NUMBERS = itertools.count()
_TURN = Lock()
_APPLICATION = DomainDispatcherApplication(create_backend_app)


class Network:
    """Faults of requests between client and server.

    Attributes:
        loses: called with the path of each PUT; true for a request that is held back and answered as if the server were
            too busy.
        kept: functions that deliver the requests that were held back.
    """

    def __init__(self) -> None:
        self.loses: Callable[[str], bool] = lambda _: False
        self.kept: list[Callable[[], str]] = []

    def deliver(self) -> list[str]:
        """Send the requests that were held back. Return their statuses."""
        kept, self.kept = self.kept, []
        return [request() for request in kept]

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Serialise conditional writes, as S3 does. Moto checks first and writes afterwards, without a lock."""
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
    """Start a server on a free port. Yield the ``storage_options`` for it."""
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
        boto3.client(
            "s3", aws_access_key_id="key", aws_secret_access_key=SECRET, **options["client_kwargs"]
        ).create_bucket(Bucket=BUCKET)
        yield options
    finally:
        server.shutdown()
        thread.join()


def new_folder(options: Mapping[str, Any]) -> ObjectStorage:
    """Return a storage over a new folder."""
    return ObjectStorage(f"s3://{BUCKET}/table-{next(_NUMBERS)}", dict(options))
