"""An S3 server on this machine (moto), and one empty table folder after another on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import fsspec
from moto.server import ThreadedMotoServer

from lakeformat.storage import FsspecStorage

SECRET = "very-secret-canary"
BUCKET = "lake"

_NUMBERS = itertools.count()


@contextmanager
def s3_server() -> Iterator[Mapping[str, Any]]:
    """Start a server on a free port; gives fsspec's ``storage_options`` for it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        options = {
            "key": "key",
            "secret": SECRET,
            "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
        }
        fsspec.filesystem("s3", skip_instance_cache=True, **options).call_s3("create_bucket", Bucket=BUCKET)
        yield options
    finally:
        server.stop()


def new_folder(options: Mapping[str, Any]) -> FsspecStorage:
    """A storage over a folder that nobody has used."""
    return FsspecStorage(f"s3://{BUCKET}/table-{next(_NUMBERS)}", dict(options))
