"""Storage servers on loopback, each in a process of its own: moto, versitygw, azurite and fake-gcs-server.

``tools/setup_servers.py`` installs all but moto. A test on a server that is not installed is skipped.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from lakeformat.storage import Storage, open_storage
from tests.helpers.ports import reserve_port
from tests.helpers.s3_server import BUCKET, SECRET, s3_server
from tools import setup_servers

__all__ = ["NAMES", "Server", "start_server"]

NAMES: Final = ("moto", "versitygw", "azurite", "fake-gcs-server")
START_SECONDS: Final = 60.0
#: Azurite's account, which is the same in every installation.
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with the empty bucket `BUCKET`.

    Attributes:
        name: one of `NAMES`.
        endpoint: ``http://127.0.0.1:PORT``.
        pid: the server's process.
        folder: the folder with the files of the bucket, for versitygw; else None.
    """

    name: str
    endpoint: str
    pid: int
    folder: Path | None = None

    def through(self, proxy_url: str) -> Server:
        """Return the same server behind a proxy."""
        return replace(self, endpoint=proxy_url)

    def with_timeout(self, seconds: float) -> dict[str, Any]:
        """Return the ``storage_options`` of a client that waits this long for each answer."""
        if self.name == "azurite":
            return {**self.options, "read_timeout": seconds}
        return {**self.options, "config_kwargs": {"read_timeout": seconds}}

    @property
    def options(self) -> dict[str, Any]:
        """Return the ``storage_options`` for the server."""
        if self.name == "azurite":
            return {
                "account_name": ACCOUNT,
                "account_key": ACCOUNT_KEY,
                "endpoint_url": f"{self.endpoint}/{ACCOUNT}",
            }
        if self.name == "fake-gcs-server":
            return {"endpoint_url": self.endpoint, "token": "anon"}
        return {
            "key": "key",
            "secret": SECRET,
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    def new_url(self) -> str:
        """Return the URL of a new folder."""
        scheme = {"azurite": "az", "fake-gcs-server": "gs"}.get(self.name, "s3")
        return f"{scheme}://{BUCKET}/table-{os.getpid()}-{next(_NUMBERS)}"

    def new_storage(self) -> Storage:
        """Return a storage over a new folder."""
        return open_storage(self.new_url(), **self.options)


@contextmanager
def start_server(name: str) -> Iterator[Server]:
    """Run a server while the block runs. Skip the test if the server is not installed."""
    start = {"moto": _moto, "versitygw": _versitygw, "azurite": _azurite, "fake-gcs-server": _fake_gcs}[name]
    with TemporaryDirectory(prefix=f"{name}-") as folder, start(Path(folder)) as server:
        yield server


@contextmanager
def _moto(_: Path) -> Iterator[Server]:
    """Run moto in another Python process, so that it does not share this process's interpreter lock."""
    command = [sys.executable, "-m", "tests.helpers.servers"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # One line per request.
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            endpoint = json.loads(process.stdout.readline())
            yield Server("moto", endpoint, process.pid)
        finally:
            process.stdin.close()  # The program ends.


@contextmanager
def _versitygw(folder: Path) -> Iterator[Server]:
    with reserve_port() as port:
        command = [
            "--access",
            "key",
            "--secret",
            SECRET,
            "--port",
            f"127.0.0.1:{port}",
            "--quiet",
            "--keep-alive",
            "posix",
        ]
        with _process("versitygw", [*command, str(folder)], port) as server:
            _create_s3_bucket(server)
            yield replace(server, folder=folder / BUCKET)


@contextmanager
def _azurite(folder: Path) -> Iterator[Server]:
    with reserve_port() as port:
        command = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent", "--location", str(folder)]
        command += ["--disableTelemetry", "--skipApiVersionCheck"]
        with _process("azurite", command, port) as server:
            _create_container(server)
            yield server


@contextmanager
def _fake_gcs(folder: Path) -> Iterator[Server]:
    with reserve_port() as port:
        command = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
        command += ["-filesystem-root", str(folder), "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
        with _process("fake-gcs-server", command, port) as server:
            body = json.dumps({"name": BUCKET})
            _request(server, "POST", "/storage/v1/b?project=test", {"Content-Type": "application/json"}, body)
            yield server


@contextmanager
def _process(name: str, arguments: list[str], port: int) -> Iterator[Server]:
    program = setup_servers.program(name)
    if not program.exists():
        pytest.skip(f"{name} is not installed: python tools/setup_servers.py {name}")
    process = subprocess.Popen(
        [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        yield Server(name, f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            assert process.poll() is None, f"{process.args!r} has ended"
            assert time.monotonic() < deadline, f"{process.args!r} does not listen"
            time.sleep(0.05)
        else:
            return


def _create_s3_bucket(server: Server) -> None:
    import boto3

    boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    ).create_bucket(Bucket=BUCKET)


def _create_container(server: Server) -> None:
    """Create Azure's counterpart of a bucket, by a request that is signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = f"PUT\n{chr(10) * 11}{canonical}/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    _request(server, "PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", headers)


def _request(server: Server, method: str, path: str, headers: Mapping[str, str], body: str = "") -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.endpoint).netloc, timeout=60)
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status in {200, 201}, (answer.status, text)


def main() -> None:
    """Run moto until standard input ends, and print its endpoint."""
    with s3_server() as options:
        print(json.dumps(options["client_kwargs"]["endpoint_url"]), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
