"""Claims: which pending instants are ours, and whether their writer still lives.

A claim is put before its instant. Its kind says what its writer does to stay alive: ``lock`` holds the table's
lock until it is done, so whoever has the lock knows that it is dead; ``heartbeat`` renews a file
(Hudi: ``HoodieHeartbeatClient``).
"""

from __future__ import annotations

import json
from typing import Final

from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import HOODIE, Clock, Storage, own_path
from lakeformat.timeline.store import TimelineStore

__all__ = [
    "FOREIGN_GRACE_MS",
    "HEARTBEAT_MS",
    "beat",
    "claim_kind",
    "heartbeat_alive",
    "release",
    "stale_claims",
    "take_instant",
]

#: Renewed this often; dead after twice as long (hoodie.client.heartbeat.interval_in_ms and tolerable.misses).
HEARTBEAT_MS: Final = 60_000
#: A pending instant of somebody else without heartbeat is left alone for this long.
FOREIGN_GRACE_MS: Final = 600_000


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
        try:
            if kind == "heartbeat":
                beat(store.storage, instant.time)
            claim = {"kind": kind, "lakeformat.token": token}
            store.storage.create(_path(instant.time), json.dumps(claim).encode())
            store.request(instant, data)
        except FileExistsError:
            newest = instant.time
        else:
            return instant


def claim_kind(storage: Storage, instant_time: str) -> str | None:
    """``lock`` or ``heartbeat``; None if the instant is not ours."""
    try:
        found = json.loads(storage.read(_path(instant_time)))
    except FileNotFoundError:
        return None
    except ValueError:
        return "heartbeat"
    return str(found.get("kind")) if isinstance(found, dict) else "heartbeat"


def beat(storage: Storage, instant_time: str) -> None:
    """Renew the heartbeat."""
    storage.touch(_heartbeat(instant_time))


def heartbeat_alive(storage: Storage, instant: Instant, clock: Clock, *, without: int) -> bool:
    """Whether the writer has shown itself lately.

    Args:
        without: milliseconds for which an instant without a heartbeat file counts as alive.
    """
    found = storage.info(_heartbeat(instant.time))
    if found is not None:
        return clock.now_ms() - found.modified_ms < 2 * HEARTBEAT_MS
    stood = storage.info(f"{HOODIE}/{instant.file_name}")
    return stood is not None and clock.now_ms() - stood.modified_ms < without


def release(storage: Storage, instant_time: str) -> None:
    """Forget the claim, after commit or rollback."""
    storage.delete(_heartbeat(instant_time))
    storage.delete(_path(instant_time))


def stale_claims(storage: Storage, pending: frozenset[str]) -> tuple[str, ...]:
    """Instant times claimed but not pending: their writers died around the first or the last step."""
    return tuple(e.name for e in storage.list(own_path("pending")) if not e.is_folder and e.name not in pending)
