"""An S3 server on this machine (moto), and one empty table folder after another on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
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


def _one_at_a_time(environ: Any, start_response: Any) -> Iterable[bytes]:
    """S3 decides between conditional writes; moto looks first and writes then, with nothing to keep others out."""
    with _TURN:
        return list(_APPLICATION(environ, start_response))


@contextmanager
def s3_server() -> Iterator[Mapping[str, Any]]:
    """Start a server on a free port; gives fsspec's ``storage_options`` for it."""
    server = make_server("127.0.0.1", 0, _one_at_a_time, threaded=True)
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
