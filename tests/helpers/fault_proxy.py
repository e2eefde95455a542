"""An HTTP proxy on loopback between storage clients and a server, with latency and seeded faults.

Each connection of a client has a thread and a connection to the server of its own. The bytes of a request are not
changed, so that signatures, which cover the Host header, stay valid. The faults are those of a network and of a busy
store (`Fault`): an answer is lost after the server has carried out the request, the server does nothing and says so, or
the server receives the request only later.
"""

from __future__ import annotations

import contextlib
import enum
import random
import re
import select
import socket
import threading
import time
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

__all__ = ["Fault", "FaultPlan", "FaultProxy", "Request", "fault_proxy"]


class Fault(str, enum.Enum):
    """What happens to a request or its answer."""

    DROP_AFTER = "carried out, then the connection is closed"
    BUSY_AFTER = "carried out, then 503"
    BUSY_BEFORE = "503, not carried out"
    CONFLICT = "409, not carried out"
    STALL = "carried out, no answer until the client gives up"
    LATE = "the connection is closed, carried out later"


#: The faults that a request may meet, by method. Only a conditional PUT meets a conflict.
KINDS: Final[Mapping[str, Sequence[Fault]]] = {
    "PUT": tuple(Fault),
    "DELETE": (Fault.DROP_AFTER, Fault.BUSY_AFTER, Fault.BUSY_BEFORE, Fault.LATE),
    "POST": (Fault.DROP_AFTER, Fault.BUSY_AFTER, Fault.BUSY_BEFORE),
    "GET": (Fault.DROP_AFTER, Fault.BUSY_BEFORE),
    "HEAD": (Fault.DROP_AFTER, Fault.BUSY_BEFORE),
}
_HEAD_BYTES: Final = 1 << 16
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_EXPECT: Final = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)
_CLOSE: Final = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_CONDITION: Final = re.compile(rb"\r\nif-(none-)?match:", re.IGNORECASE)
_BUSY: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>busy</Message></Error>"
_CONFLICT: Final = (
    b"<?xml version='1.0'?><Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        path: the decoded path, without the query.
        query: the query, as it was sent.
        head: the bytes up to the empty line.
    """

    method: str
    path: str
    query: str
    head: bytes
    body: bytes

    @property
    def is_conditional(self) -> bool:
        """Tell whether the request writes only if a condition holds."""
        return _CONDITION.search(self.head) is not None


@dataclass
class FaultPlan:
    """The choice of faults.

    Attributes:
        rate: probability of a fault, for each request.
        seed: the seed of the choice.
        kinds: the faults that may be chosen.
        late_seconds: range of the time after which a `Fault.LATE` request is carried out; None holds such requests
            back until `FaultProxy.deliver` is called.
        stall_seconds: time after which a stalled connection is closed even if the client still waits.
        choose: called with each request first; it may name a fault, or return None to leave the choice to the seed.
    """

    rate: float = 0.0
    seed: int = 0
    kinds: Sequence[Fault] = tuple(Fault)
    late_seconds: tuple[float, float] | None = (0.5, 5.0)
    stall_seconds: float = 60.0
    choose: Callable[[Request], Fault | None] = lambda _: None
    _dice: random.Random = field(init=False, repr=False)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def fault_of(self, request: Request) -> Fault | None:
        """Choose the fault of a request; None for most."""
        if (named := self.choose(request)) is not None:
            return named
        with self._lock:
            if self._dice.random() >= self.rate:
                return None
            kinds = [
                kind
                for kind in KINDS.get(request.method, ())
                if kind in self.kinds and (kind is not Fault.CONFLICT or request.is_conditional)
            ]
            return self._dice.choice(kinds) if kinds else None

    def delay(self) -> float | None:
        """Choose the seconds after which a late request is carried out."""
        if self.late_seconds is None:
            return None
        with self._lock:
            return self._dice.uniform(*self.late_seconds)


class _Peer:
    """One side of a connection: reads whole messages."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._file: BinaryIO = connection.makefile("rb", buffering=_HEAD_BYTES)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_head(self) -> bytes:
        """Read the lines up to the empty line; return ``b""`` if the other side has closed the connection."""
        lines: list[bytes] = []
        while (line := self._file.readline(_HEAD_BYTES)) not in {b"\r\n", b""}:
            lines.append(line)
        return b"".join(lines).removesuffix(b"\r\n") if line else b""

    def read_body(self, head: bytes, *, to_end: bool = False) -> bytes:
        """Read the body of a message as it is sent, with its chunk sizes if it has any."""
        if _CHUNKED.search(head):
            parts: list[bytes] = []
            while True:
                parts.append(size := self._file.readline())
                count = int(size.partition(b";")[0], 16)
                parts.append(self._file.read(count))
                while (line := self._file.readline()) != b"\r\n":  # Trailers of the last chunk.
                    parts.append(line)
                parts.append(line)
                if not count:
                    return b"".join(parts)
        if found := _LENGTH.search(head):
            return self._read_exactly(int(found[1]))
        return self._file.read() if to_end else b""

    def _read_exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            raise ConnectionError("the other side has closed the connection within a message")
        return data

    def is_readable(self) -> bool:
        """Tell whether the other side has sent something or closed the connection."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def wait_for_close(self, seconds: float) -> None:
        select.select([self.socket], [], [], seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self.socket.close()


class FaultProxy:
    """The proxy. Create it with `fault_proxy`.

    Attributes:
        url: the endpoint for clients.
        latency_seconds: time that each request takes longer.
        plan: the faults.
        log: each request, without its bytes, and its status (0 if the client got no answer).
        faults: number of faults by kind.
    """

    def __init__(self, target: str, plan: FaultPlan, latency_seconds: float) -> None:
        parts = urllib.parse.urlsplit(target)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self.plan, self.latency_seconds = plan, latency_seconds
        self.log: deque[tuple[Request, int]] = deque()
        self.faults: Counter[Fault] = Counter()
        self._held: list[tuple[Request, threading.Timer | None]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: set[_Peer] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def deliver(self) -> list[int]:
        """Carry out all requests that are still held back, now. Return the server's statuses."""
        with self._lock:
            held, self._held = self._held, []
        for _, timer in held:
            if timer is not None:
                timer.cancel()
        return [self._carry_out(request) for request, _ in held]

    @property
    def held(self) -> list[Request]:
        """Return the requests that are held back."""
        with self._lock:
            return [request for request, _ in self._held]

    def close(self) -> None:
        """Drop the requests that are held back, and close all connections."""
        with self._lock:
            for _, timer in self._held:
                if timer is not None:
                    timer.cancel()
            self._held.clear()
            peers = list(self._peers)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(_Peer(connection),), daemon=True).start()

    def _serve(self, client: _Peer) -> None:
        server: _Peer | None = None
        with self._lock:
            self._peers.add(client)
        try:
            while (request := _read_request(client)) is not None:
                if self.latency_seconds:
                    time.sleep(self.latency_seconds)
                fault = self.plan.fault_of(request)
                if fault is not None:
                    with self._lock:
                        self.faults[fault] += 1
                if fault in {Fault.BUSY_BEFORE, Fault.CONFLICT, Fault.LATE}:
                    answer = self._spoil_before(request, fault)
                else:
                    if server is None or server.is_readable():  # The server has closed the idle connection.
                        if server is not None:
                            server.close()
                        server = self._connect()
                    answer = self._spoil_after(client, fault, _exchange(server, request))
                self.log.append((replace(request, head=b"", body=b""), _status_of(answer)))
                if not answer:
                    return
                client.send(answer)
                if _CLOSE.search(request.head) or _CLOSE.search(answer.partition(b"\r\n\r\n")[0]):
                    return
        except (OSError, ValueError):
            pass  # One of the sides has closed the connection: the client does not get an answer.
        finally:
            with self._lock:
                self._peers.discard(client)
            client.close()
            if server is not None:
                server.close()

    def _spoil_before(self, request: Request, fault: Fault) -> bytes:
        """Answer a request that is not carried out now; ``b""`` if there is no answer."""
        if fault is Fault.LATE:
            self._hold(request)
            return b""
        return _answer(409, _CONFLICT) if fault is Fault.CONFLICT else _answer(503, _BUSY)

    def _spoil_after(self, client: _Peer, fault: Fault | None, answer: bytes) -> bytes:
        """Return what the client gets of an answer."""
        if fault is Fault.STALL:
            client.wait_for_close(self.plan.stall_seconds)
        if fault in {Fault.STALL, Fault.DROP_AFTER}:
            return b""
        return _answer(503, _BUSY) if fault is Fault.BUSY_AFTER else answer

    def _hold(self, request: Request) -> None:
        delay = self.plan.delay()
        timer = None
        if delay is not None:
            timer = threading.Timer(delay, self._deliver_one, (request,))
            timer.daemon = True
        with self._lock:
            self._held.append((request, timer))
        if timer is not None:
            timer.start()

    def _deliver_one(self, request: Request) -> None:
        with self._lock:
            kept = [entry for entry in self._held if entry[0] is not request]
            is_held, self._held = len(kept) < len(self._held), kept
        if is_held:
            self._carry_out(request)

    def _carry_out(self, request: Request) -> int:
        server = self._connect()
        try:
            return _status_of(_exchange(server, request))
        finally:
            server.close()

    def _connect(self) -> _Peer:
        return _Peer(socket.create_connection(self._target, timeout=60))


def _read_request(client: _Peer) -> Request | None:
    head = client.read_head()
    if not head:
        return None
    if _EXPECT.search(head):
        head = _EXPECT.sub(b"", head)
        client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    method, url, _ = head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
    parts = urllib.parse.urlsplit(url)
    return Request(method, urllib.parse.unquote(parts.path), parts.query, head, client.read_body(head))


def _exchange(server: _Peer, request: Request) -> bytes:
    """Send a request to the server and return its whole answer."""
    server.send(request.head + b"\r\n\r\n" + request.body)
    head = server.read_head()
    while head.startswith(b"HTTP/1.1 1"):
        head = server.read_head()
    if not head:
        raise ConnectionError("the server has closed the connection")
    has_body = request.method != "HEAD" and _status_of(head) not in {204, 304}
    body = server.read_body(head, to_end=bool(_CLOSE.search(head))) if has_body else b""
    return head + b"\r\n\r\n" + body


def _status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def _answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Spoilt\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def fault_proxy(target: str, plan: FaultPlan | None = None, *, latency_seconds: float = 0.0) -> Iterator[FaultProxy]:
    """Run a proxy to the server at ``target`` (``http://127.0.0.1:PORT``) while the block runs."""
    proxy = FaultProxy(target, plan or FaultPlan(), latency_seconds)
    try:
        yield proxy
    finally:
        proxy.close()
