"""Claims: which pending instants are ours, and the files by which their writers show that they live.

A claim is put before its instant. Its kind says who its writer is: one ``process``, or several one after the other
that have only the heartbeat in common (Hudi: ``HoodieHeartbeatClient``). See `lakeformat.transaction.heartbeat`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import HOODIE, Clock, Storage, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.notes import drop_note, read_note

__all__ = [
    "DEAD_AFTER_MS",
    "FOREIGN_GRACE_MS",
    "HEARTBEATS",
    "HEARTBEAT_MS",
    "PROCESS",
    "Claim",
    "beat",
    "claim_path",
    "claim_plan",
    "forget_heartbeat",
    "heartbeat_alive",
    "is_alive",
    "read_claim",
    "release",
    "shows_death",
    "stale_claims",
    "take_instant",
]

#: The kind of a claim whose writer is one process, which holds the claim from before it lets the table's lock go.
PROCESS: Final = "process"

#: Where writers that run show that they live, ours and Hudi's.
HEARTBEATS: Final = f"{HOODIE}/.heartbeat"
#: Renewed three times as often; dead after twice as long (hoodie.client.heartbeat.interval_in_ms, tolerable.misses).
HEARTBEAT_MS: Final = 60_000
DEAD_AFTER_MS: Final = 2 * HEARTBEAT_MS
#: A pending instant of somebody else without heartbeat is left alone for this long.
FOREIGN_GRACE_MS: Final = 600_000


_TOKEN: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim says.

    Attributes:
        kind: ``process`` or ``heartbeat``.
        write_id: names the stage folder of the write; None for rollbacks and for claims that are damaged.
        keeps_plan: of the instant only what followed the plan is undone: it stood before, and may be run again.
        undoes: of a rollback: it takes a completed commit back.
    """

    kind: str
    write_id: str | None
    keeps_plan: bool = False
    undoes: bool = False


def claim_path(instant_time: str) -> str:
    """The claim's file, which the writer holds."""
    return own_path("pending", instant_time)


def _heartbeat(instant_time: str) -> str:
    return f"{HEARTBEATS}/{instant_time}"


def take_instant(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    action: Action,
    *,
    kind: str,
    token: str,
    data: bytes = b"",
    undoes: bool = False,
) -> Instant:
    """Claim and request a new instant, greater than all there are. Call it under the table's lock.

    The plan of a compaction stays, whatever becomes of its writer: others may write for the slices it opens.

    Args:
        undoes: see `Claim`.
    """
    newest = store.load().last_time
    while True:
        instant = Instant(next_instant_time(clock.now_ms(), newest, config.zone), action, State.REQUESTED)
        newest = instant.time
        said = _claim_of(kind, token, keeps_plan=action is Action.COMPACTION, undoes=undoes)
        claim = json.dumps(said).encode()
        if not _created(store.storage, claim_path(instant.time), claim):
            continue
        try:
            store.request(instant, data)
        except FileExistsError:  # Another program's instant: with our claim it would pass for ours.
            store.storage.delete(claim_path(instant.time))
            continue
        if action is not Action.ROLLBACK:
            beat(store.storage, instant.time)
        return instant


def _claim_of(kind: str, token: str, **flags: bool) -> dict[str, object]:
    return {"kind": kind, "lakeformat.token": token, **{name: True for name, is_set in flags.items() if is_set}}


def claim_plan(storage: Storage, instant_time: str, *, token: str) -> None:
    """Claim an instant that somebody has planned, to run it; the heartbeat begins. Call it under the table's lock.

    Raises:
        FileExistsError: it is claimed already.
    """
    claim = json.dumps(_claim_of(PROCESS, token, keeps_plan=True)).encode()
    storage.create(claim_path(instant_time), claim)
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
        found = json.loads(storage.read(claim_path(instant_time)))
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    said = found if isinstance(found, dict) else {}
    token = str(said.get("lakeformat.token"))
    write_id = token if _TOKEN.fullmatch(token) else None
    return Claim(
        str(said.get("kind", "heartbeat")), write_id, said.get("keeps_plan") is True, said.get("undoes") is True
    )


def beat(storage: Storage, instant_time: str) -> None:
    """Renew the heartbeat."""
    storage.touch(_heartbeat(instant_time))


def forget_heartbeat(storage: Storage, instant_time: str) -> None:
    """Remove it."""
    storage.delete(_heartbeat(instant_time))


def shows_death(storage: Storage, claim: Claim) -> bool:
    """Whether the death of the claim's writer is seen at once, or only by a heartbeat that stops."""
    return claim.kind == PROCESS and storage.has_lock


def is_alive(store: TimelineStore, instant: Instant, claim: Claim, clock: Clock) -> bool:
    """Whether the writer of a pending instant of ours lives, or may live. Call it under the table's lock."""
    if shows_death(store.storage, claim):
        return store.storage.is_held(claim_path(instant.time))
    if _is_given_up(store.storage, instant.time):
        return False
    return heartbeat_alive(store, instant, clock, without=DEAD_AFTER_MS)


def _is_given_up(storage: Storage, instant_time: str) -> bool:
    note = read_note(storage, instant_time)
    return note is not None and note.is_given_up


def heartbeat_alive(store: TimelineStore, instant: Instant, clock: Clock, *, without: int) -> bool:
    """Whether the writer has shown itself lately.

    Args:
        without: milliseconds for which an instant without a heartbeat file counts as alive.
    """
    found = store.storage.info(_heartbeat(instant.time))
    if found is not None:
        return clock.now_ms() - found.modified_ms < DEAD_AFTER_MS
    stood = store.info(instant)
    return stood is not None and clock.now_ms() - stood.modified_ms < without


def release(storage: Storage, instant_time: str) -> None:
    """Forget the claim, after commit or rollback."""
    forget_heartbeat(storage, instant_time)
    drop_note(storage, instant_time)
    storage.delete(claim_path(instant_time))


def stale_claims(storage: Storage, pending: frozenset[str], clock: Clock) -> dict[str, Claim]:
    """Claims of instants that are not pending, by time: their writers died around the first or the last step.

    A young one whose writer's death would not show may be about to become pending, and is left out.
    """
    stale: dict[str, Claim] = {}
    for entry in storage.list(own_path("pending")):
        if entry.is_folder or entry.name in pending:
            continue
        claim = read_claim(storage, entry.name)
        is_young = clock.now_ms() - entry.modified_ms < DEAD_AFTER_MS and not _is_given_up(storage, entry.name)
        if claim is not None and (not is_young or (shows_death(storage, claim) and not storage.is_held(entry.path))):
            stale[entry.name] = claim
    return stale
