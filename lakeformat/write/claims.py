"""Claims: which pending instants are ours, and whether their writer still lives.

A claim is put before its instant. Its kind says what its writer does to stay alive: ``lock`` holds the table's
lock until it is done, so whoever has the lock knows that it is dead; ``heartbeat`` renews a file
(Hudi: ``HoodieHeartbeatClient``).
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from lakeformat.errors import LakeformatError
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import HOODIE, Clock, Storage, own_path
from lakeformat.timeline.store import TimelineStore

__all__ = [
    "DEAD_AFTER_MS",
    "FOREIGN_GRACE_MS",
    "HEARTBEAT_MS",
    "Claim",
    "Heart",
    "Pulse",
    "beat",
    "claim_plan",
    "heartbeat_alive",
    "read_claim",
    "release",
    "stale_claims",
    "take_instant",
]

_LOG: Final = logging.getLogger("lakeformat.write")

#: Renewed this often; dead after twice as long (hoodie.client.heartbeat.interval_in_ms and tolerable.misses).
HEARTBEAT_MS: Final = 60_000
DEAD_AFTER_MS: Final = 2 * HEARTBEAT_MS
#: A pending instant of somebody else without heartbeat is left alone for this long.
FOREIGN_GRACE_MS: Final = 600_000


_TOKEN: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim says.

    Attributes:
        kind: ``lock`` or ``heartbeat``.
        write_id: names the stage folder of the write; None for rollbacks and for claims that are damaged.
        keeps_plan: of the instant only what followed the plan is undone: it stood before, and may be run again.
    """

    kind: str
    write_id: str | None
    keeps_plan: bool = False


def _path(instant_time: str) -> str:
    return own_path("pending", instant_time)


def _heartbeat(instant_time: str) -> str:
    return f"{HOODIE}/.heartbeat/{instant_time}"


def take_instant(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    action: Action,
    *,
    kind: str,
    token: str,
    data: bytes = b"",
) -> Instant:
    """Claim and request a new instant, greater than all there are. Call it under the table's lock."""
    newest = store.load().newest_time
    while True:
        instant = Instant(next_instant_time(clock.now_ms(), newest, config.zone), action, State.REQUESTED)
        newest = instant.time
        claim = json.dumps({"kind": kind, "lakeformat.token": token}).encode()
        if not _created(store.storage, _path(instant.time), claim):
            continue
        try:
            store.request(instant, data)
        except FileExistsError:  # Another program's instant: with our claim it would pass for ours.
            store.storage.delete(_path(instant.time))
            continue
        if kind == "heartbeat":
            beat(store.storage, instant.time)
        return instant


def claim_plan(storage: Storage, instant_time: str, *, token: str) -> None:
    """Claim an instant that somebody has planned, to run it; the heartbeat begins. Call it under the table's lock.

    Raises:
        FileExistsError: it is claimed already.
    """
    claim = {"kind": "heartbeat", "lakeformat.token": token, "keeps_plan": True}
    storage.create(_path(instant_time), json.dumps(claim).encode())
    beat(storage, instant_time)


def _created(storage: Storage, path: str, data: bytes) -> bool:
    try:
        storage.create(path, data)
    except FileExistsError:
        return False
    return True


def read_claim(storage: Storage, instant_time: str) -> Claim | None:
    """The claim of an instant; None if the instant is not ours."""
    try:
        found = json.loads(storage.read(_path(instant_time)))
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    said = found if isinstance(found, dict) else {}
    token = str(said.get("lakeformat.token"))
    write_id = token if _TOKEN.fullmatch(token) else None
    return Claim(str(said.get("kind", "heartbeat")), write_id, said.get("keeps_plan") is True)


def beat(storage: Storage, instant_time: str) -> None:
    """Renew the heartbeat."""
    storage.touch(_heartbeat(instant_time))


class Heart:
    """Renews an instant's heartbeat from wherever its work goes on, not more often than needed."""

    def __init__(self, storage: Storage, instant_time: str, clock: Clock) -> None:
        self._storage, self._time, self._clock = storage, instant_time, clock
        self._last = clock.seconds()

    def beat(self) -> None:
        """Renew, if the last time is a third of the interval ago."""
        now = self._clock.seconds()
        if now - self._last >= HEARTBEAT_MS / 3000:
            self._last = now
            beat(self._storage, self._time)


class Pulse(AbstractContextManager["Pulse"]):
    """Renews an instant's heartbeat from a thread while the block runs: its process waits for others' work.

    A renewal that fails is logged and tried again; the writer is taken for dead only after several.
    """

    def __init__(self, storage: Storage, instant_time: str) -> None:
        self._storage, self._time = storage, instant_time
        self._done = Event()
        self._thread = Thread(target=self._run, name=f"heartbeat-{instant_time}", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        if read_claim(self._storage, self._time) is None:  # Released meanwhile, perhaps just before a renewal.
            self._storage.delete(_heartbeat(self._time))

    def _run(self) -> None:
        while not self._done.wait(HEARTBEAT_MS / 3000):
            try:
                beat(self._storage, self._time)
            except LakeformatError as error:
                _LOG.warning("heartbeat of %s failed, trying again: %s", self._time, error)


def heartbeat_alive(storage: Storage, instant: Instant, clock: Clock, *, without: int) -> bool:
    """Whether the writer has shown itself lately.

    Args:
        without: milliseconds for which an instant without a heartbeat file counts as alive.
    """
    found = storage.info(_heartbeat(instant.time))
    if found is not None:
        return clock.now_ms() - found.modified_ms < DEAD_AFTER_MS
    stood = storage.info(f"{HOODIE}/{instant.file_name}")
    return stood is not None and clock.now_ms() - stood.modified_ms < without


def release(storage: Storage, instant_time: str) -> None:
    """Forget the claim, after commit or rollback."""
    storage.delete(_heartbeat(instant_time))
    storage.delete(_path(instant_time))


def stale_claims(storage: Storage, pending: frozenset[str], clock: Clock) -> dict[str, Claim]:
    """Claims of instants that are not pending, by time: their writers died around the first or the last step.

    A young one whose writer does not hold the lock may be about to become pending, and is left out.
    """
    stale: dict[str, Claim] = {}
    for entry in storage.list(own_path("pending")):
        if entry.is_folder or entry.name in pending:
            continue
        claim = read_claim(storage, entry.name)
        is_young = clock.now_ms() - entry.modified_ms < DEAD_AFTER_MS
        if claim is not None and (claim.kind == "lock" or not is_young):
            stale[entry.name] = claim
    return stale
