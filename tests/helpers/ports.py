"""Ports for servers of the tests that nothing else on this machine takes meanwhile."""

from __future__ import annotations

import fcntl
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["reserve_port"]

#: Below the ports that the kernel gives to connections and to servers that ask for any port.
_PORTS: Final = range(20_000, 30_000)


@contextmanager
def reserve_port() -> Iterator[int]:
    """Reserve a port that is free, until the block ends: no other process of the tests gets it meanwhile."""
    folder = Path(tempfile.gettempdir()) / "lakeformat-tests-ports"
    folder.mkdir(exist_ok=True)
    for port in random.sample(_PORTS, len(_PORTS)):
        with (folder / str(port)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            yield port
            return
    raise AssertionError("no free port")
