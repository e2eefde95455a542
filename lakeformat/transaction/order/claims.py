"""Claims: files that mark our pending instants, and the heartbeats by which writers show that they live.

The claim file is created before the instant's requested file. There are two kinds of claims:

- ``process``: one process carries out the write. If the storage has locks, the process holds a lock on the claim file.
  The lock becomes free as soon as the process dies.
- ``heartbeat``: several processes carry out the write, one after the other, so none of them can hold a lock all the
  time.

In both kinds a thread renews the heartbeat (Hudi: ``HoodieHeartbeatClient``). If the kind is ``heartbeat``, or if the
storage has no locks, only the heartbeat shows that the writer lives. The writer counts as dead if the last heartbeat is
at least `DEAD_AFTER_MS` old.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

from lakeformat.codec.json_text import parse_json
from lakeformat.concurrency import every, run_both
from lakeformat.errors import LakeformatError, WriteConflictError
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import (
    HOODIE,
    Clock,
    FileInfo,
    Ids,
    Lease,
    RandomIds,
    Storage,
    VersionChangedError,
)
from lakeformat.timeline.lost_commits import CLAIMS
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.decisions import Check, Decision, DecisionState, decide, settle

__all__ = [
    "DEAD_AFTER_MS",
    "FOREIGN_GRACE_MS",
    "HEARTBEATS",
    "HEARTBEAT_MS",
    "PROCESS",
    "Claim",
    "HeartbeatThread",
    "advise_on_plan",
    "advise_to_wait",
    "advise_to_wait_for",
    "choose_stale_claims",
    "claim_instant",
    "claim_path",
    "claim_plan",
    "decide_claimed",
    "find_newest_time",
    "forget_heartbeats",
    "has_live_heartbeat",
    "has_process_lock",
    "is_alive",
    "is_only_claim",
    "is_without_life",
    "keep_alive",
    "list_claimed_times",
    "list_claims",
    "list_fresh_heartbeats",
    "read_claim",
    "release",
    "remove_heartbeat",
    "renew_heartbeat",
    "take_over_claim",
    "was_given_up",
]

#: The kind of a claim whose writer is one process, which locks the claim file before it releases the table's lock.
PROCESS: Final = "process"

#: Folder of the heartbeat files of running writers, ours and Hudi's.
HEARTBEATS: Final = f"{HOODIE}/.heartbeat"
#: Heartbeat interval (hoodie.client.heartbeat.interval_in_ms). A writer renews its heartbeat three times per interval.
HEARTBEAT_MS: Final = 60_000
#: Age of the last heartbeat at which a writer counts as dead (hoodie.client.heartbeat.tolerable.misses).
DEAD_AFTER_MS: Final = 2 * HEARTBEAT_MS
#: Age of a heartbeat at which its writer is alive, whatever its claim says.
_FRESH_MS: Final = 5_000
#: Age at which another program's pending instant without a heartbeat counts as dead.
FOREIGN_GRACE_MS: Final = 600_000


_TOKEN: Final = re.compile("[0-9a-f]{32}")
_IDS: Ids = RandomIds()


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a claim.

    Attributes:
        kind: ``process`` or ``heartbeat``.
        write_id: id of the write, which is also the name of its stage folder; None if the claim contains no valid id.
        keeps_plan: True if the requested plan stays on the timeline when the writer dies. Then only the files written
            so far are removed, and the plan can be run again.
        undoes: whether the instant is a rollback of a completed commit.
        dead_after_ms: age in milliseconds of the last heartbeat at which the writer counts as dead.
    """

    kind: str
    write_id: str | None
    keeps_plan: bool = False
    undoes: bool = False
    dead_after_ms: int = DEAD_AFTER_MS


def claim_path(instant_time: str) -> str:
    """Return the path of an instant's claim file, which the writer's process keeps locked."""
    return f"{CLAIMS}/{instant_time}"


def _heartbeat_path(instant_time: str) -> str:
    return f"{HEARTBEATS}/{instant_time}"


def claim_instant(
    store: TimelineStore,
    config: TableConfig,
    clock: Clock,
    action: Action,
    claim: Claim,
    *,
    data: bytes | None = b"",
    seen: tuple[DecisionState, Timeline] | None = None,
) -> Instant:
    """Claim and request a new instant, greater than all existing ones. Call it under the table's lock.

    The claim of a compaction has ``keeps_plan``. Its plan must stay even if its writer dies, because other writers may
    already have written log files to the slices that the requested compaction opened.

    Args:
        data: contents of the requested file; None to create no requested file, because the caller decides it.
        seen: the newest state and timeline; None loads them.
    """
    newest = find_newest_time(*(seen or settle(store)[::2]))
    claim = replace(claim, keeps_plan=action is Action.COMPACTION)
    while True:
        instant = Instant(next_instant_time(clock.now_ms(), newest, config.zone), action, State.REQUESTED)
        newest = instant.time
        if not _create_if_absent(store.storage, claim_path(instant.time), _encode(claim)):
            continue
        # Hudi counts an instant without a heartbeat as dead, so the heartbeat comes before the requested file.
        if store.storage.has_lock:
            renew_heartbeat(store.storage, instant.time)
        else:
            _, current = run_both(partial(renew_heartbeat, store.storage, instant.time), store.load)
            if instant.time in current.taken_times:
                # Another writer had claimed the same time, and has completed its instant and released the claim since.
                release(store.storage, instant.time)
                newest = max(newest, current.last_time or "")
                continue
        try:
            if data is not None:
                store.request(instant, data)
        except FileExistsError:  # Another program created the requested file: our claim must not mark it as ours.
            store.storage.delete(claim_path(instant.time))
            continue
        return instant


def find_newest_time(state: DecisionState, timeline: Timeline) -> str | None:
    """Return the greatest time of all instants that are or were on the timeline; None if there is none.

    An instant that was undone is not on the timeline any more. Its time must not be used again, because late requests
    may still create its files.
    """
    return max((timeline.last_time or "", state.archived_to, *state.undone_times)) or None


def _encode(claim: Claim) -> bytes:
    # The nonce makes the claims of two processes differ: equal bytes would count as written by the same process.
    content: dict[str, object] = {"kind": claim.kind, "lakeformat.token": claim.write_id or "", "nonce": _IDS.token()}
    if claim.dead_after_ms != DEAD_AFTER_MS:
        content["dead_after_ms"] = claim.dead_after_ms
    flags = {"keeps_plan": claim.keeps_plan, "undoes": claim.undoes}
    return json.dumps(content | {name: True for name, is_set in flags.items() if is_set}).encode()


def was_given_up(state: DecisionState, instant: Instant) -> bool:
    """Tell whether another process took the claimant of an instant for dead, and decided that the claim is removed."""
    return instant.time in state.undone_times or instant.time <= state.archived_to


def decide_claimed(store: TimelineStore, instant: Instant, check: Check, lease: Lease | None = None) -> None:
    """Decide the first step of an instant that this process has claimed. If that is a conflict, release the claim.

    The arguments are those of `decide`.

    Raises:
        WriteConflictError: another process took this one for dead and has removed the claim. Nothing was decided.
    """

    def check_claimed(state: DecisionState, timeline: Timeline) -> Decision | None:
        if was_given_up(state, instant):
            raise WriteConflictError(
                f"another process took {instant.action.value} {instant.time} of {store.storage.location} for dead; "
                "run it again"
            )
        return check(state, timeline)

    try:
        decide(store, check_claimed, lease=lease)
    except WriteConflictError:
        release(store.storage, instant.time)
        raise


def claim_plan(storage: Storage, instant_time: str, *, token: str) -> None:
    """Claim a planned instant in order to run it, and start its heartbeat. Call it under the table's lock.

    Raises:
        FileExistsError: the instant is claimed already.
    """
    storage.create(claim_path(instant_time), _encode(Claim(PROCESS, token, keeps_plan=True)))
    renew_heartbeat(storage, instant_time)


def take_over_claim(store: TimelineStore, instant: Instant, clock: Clock, *, token: str) -> bool:
    """Take over the claim of a dead writer's instant, to finish it. Call it under the table's lock.

    The claim is read before the heartbeat, and the heartbeat is renewed before the claim is replaced. So of several
    processes that find the writer dead, only one takes the claim over.

    Returns:
        False if the writer is alive, if another writer has taken it over first, or if the instant has no claim.
    """
    storage, path = store.storage, claim_path(instant.time)
    try:
        content, version = storage.read_versioned(path)
        claim = read_claim(storage, instant.time)
        if claim is None or is_alive(store, instant, claim, clock):
            return False
        renew_heartbeat(storage, instant.time)
        storage.replace_if(path, json.dumps({**parse_json(content), "taken_over_by": token}).encode(), version)
    except (FileNotFoundError, VersionChangedError, ValueError, TypeError):
        return False
    return True


def _create_if_absent(storage: Storage, path: str, data: bytes) -> bool:
    try:
        put_once(storage, path, data)
    except FileExistsError:
        return False
    return True


def read_claim(storage: Storage, instant_time: str) -> Claim | None:
    """Read the claim of an instant. Return None if the instant has no claim: another program created it."""
    try:
        parsed = parse_json(storage.read(claim_path(instant_time)))
    except FileNotFoundError:
        return None
    except ValueError:
        parsed = None
    content = parsed if isinstance(parsed, dict) else {}
    token = str(content.get("lakeformat.token"))
    write_id = token if _TOKEN.fullmatch(token) else None
    dead_after_ms = content.get("dead_after_ms")
    return Claim(
        str(content.get("kind", "heartbeat")),
        write_id,
        content.get("keeps_plan") is True,
        content.get("undoes") is True,
        dead_after_ms if isinstance(dead_after_ms, int) else DEAD_AFTER_MS,
    )


def renew_heartbeat(storage: Storage, instant_time: str) -> None:
    """Set the modification time of the heartbeat file to now; create the file if it does not exist."""
    storage.touch(_heartbeat_path(instant_time))


def remove_heartbeat(storage: Storage, instant_time: str) -> None:
    """Remove the heartbeat file."""
    storage.delete(_heartbeat_path(instant_time))


def has_process_lock(storage: Storage, claim: Claim) -> bool:
    """Tell whether the writer locks its claim file: it is one process, and the storage has locks.

    If so, the lock becomes free when the writer dies. If not, only the heartbeat shows whether the writer is alive.
    """
    return claim.kind == PROCESS and storage.has_lock


def is_alive(store: TimelineStore, instant: Instant, claim: Claim, clock: Clock) -> bool:
    """Tell whether the writer of a claimed pending instant may be alive. Call it under the table's lock."""
    if has_process_lock(store.storage, claim):
        return store.storage.is_held(claim_path(instant.time))
    limit = claim.dead_after_ms
    return has_live_heartbeat(store, instant, clock, grace_ms=limit, dead_after_ms=limit)


def list_fresh_heartbeats(storage: Storage, clock: Clock) -> frozenset[str]:
    """Return the times of the instants whose writers are alive for certain: their heartbeats are very recent."""
    oldest = clock.now_ms() - _FRESH_MS
    return frozenset(entry.name for entry in storage.list(HEARTBEATS) if entry.modified_ms > oldest)


def is_without_life(store: TimelineStore, instant: Instant, clock: Clock) -> bool:
    """Tell whether a pending instant has no writer any more, whichever program began it."""
    claim = read_claim(store.storage, instant.time)
    if claim is not None:
        return not is_alive(store, instant, claim, clock)
    return not has_live_heartbeat(store, instant, clock, grace_ms=FOREIGN_GRACE_MS)


def has_live_heartbeat(
    store: TimelineStore, instant: Instant, clock: Clock, *, grace_ms: int, dead_after_ms: int = DEAD_AFTER_MS
) -> bool:
    """Tell whether the heartbeat of an instant is recent.

    Args:
        grace_ms: milliseconds after its creation for which an instant without a heartbeat file counts as alive.
        dead_after_ms: age of the heartbeat in milliseconds at which it is no longer recent.
    """
    return _measure_rest_ms(store, instant, clock, grace_ms, dead_after_ms) > 0


def _measure_rest_ms(
    store: TimelineStore, instant: Instant, clock: Clock, grace_ms: int, dead_after_ms: int = DEAD_AFTER_MS
) -> int:
    """Return in how many milliseconds an instant counts as dead without another heartbeat; not above 0 if it does."""
    heartbeat = store.storage.info(_heartbeat_path(instant.time))
    if heartbeat is not None:
        return dead_after_ms - (clock.now_ms() - heartbeat.modified_ms)
    instant_info = store.info(instant)
    return 0 if instant_info is None else grace_ms - (clock.now_ms() - instant_info.modified_ms)


def release(storage: Storage, instant_time: str, others: Sequence[str] = ()) -> None:
    """Remove the claim and the heartbeat of an instant. Call it after the commit or rollback.

    Args:
        others: other files of the instant, which are removed first. As long as the claim is there, the next writer
            removes what is left of them.
    """
    storage.delete_all([*others, _heartbeat_path(instant_time)])
    storage.delete(claim_path(instant_time))


def forget_heartbeats(storage: Storage, state: DecisionState, timeline: Timeline, clock: Clock) -> None:
    """Remove the heartbeats of instants that are completed or undone, and old ones of instants that are not pending.

    A late request may create a heartbeat again after its instant has completed.
    """
    pending = {instant.time for instant in timeline.pending}
    over = (state.undone_times | timeline.taken_times) - pending
    for entry in storage.list(HEARTBEATS):
        is_over = entry.name in over
        is_old = clock.now_ms() - entry.modified_ms >= DEAD_AFTER_MS
        if not entry.is_folder and entry.name not in pending and (is_over or is_old):
            storage.delete(entry.path)


def list_claims(storage: Storage) -> Sequence[FileInfo]:
    """List the claim files. List them before the timeline is loaded from which `choose_stale_claims` chooses."""
    return [entry for entry in storage.list(CLAIMS) if not entry.is_folder]


def list_claimed_times(storage: Storage) -> frozenset[str]:
    """Return the times of the instants that writers of lakeformat have claimed."""
    return frozenset(entry.name for entry in list_claims(storage))


def is_only_claim(storage: Storage, instant_time: str) -> bool:
    """Tell whether no other writer of lakeformat has claimed an instant, and no late request can create files of it.

    On storage without locks requests may be late. Call it under the table's lock.
    """
    return storage.has_lock and not list_claimed_times(storage) - {instant_time}


def choose_stale_claims(
    storage: Storage, listed: Sequence[FileInfo], timeline: Timeline, clock: Clock
) -> dict[str, Claim]:
    """Return a mapping of instant time to claim for the claims whose instant is not pending.

    Their writers died before they created the requested file, or after they completed the instant. If the instant is
    not on the timeline, and its claim is younger than `DEAD_AFTER_MS`, its writer may still be about to create the
    requested file. Such a claim is returned only if its process lock is free.
    """
    stale: dict[str, Claim] = {}
    pending = {instant.time for instant in timeline.pending}
    completed = timeline.taken_times - pending
    for entry in listed:
        if entry.name in pending:
            continue
        claim = read_claim(storage, entry.name)
        if claim is None:
            continue
        is_young = entry.name not in completed and clock.now_ms() - entry.modified_ms < claim.dead_after_ms
        if not is_young or (has_process_lock(storage, claim) and not storage.is_held(entry.path)):
            stale[entry.name] = claim
    return stale


_LOG: Final = logging.getLogger("lakeformat.write")


@contextmanager
def keep_alive(storage: Storage, instant_time: str, every_seconds: float = HEARTBEAT_MS / 3000) -> Iterator[None]:
    """Lock the claim file and renew the heartbeat while the block runs, so that other writers see a live writer.

    Claim the instant and enter this block before the table's lock is released.
    """
    with storage.hold(claim_path(instant_time)), HeartbeatThread(storage, instant_time, every_seconds=every_seconds):
        yield


class HeartbeatThread(AbstractContextManager["HeartbeatThread"]):
    """A context manager whose thread renews an instant's heartbeat while the block runs.

    A failed renewal is logged and tried again; the writer counts as dead only after several failures. The thread ends
    when the claim no longer exists: the instant was released, or another writer has undone it.

    Args:
        every_seconds: time between two renewals.
    """

    def __init__(self, storage: Storage, instant_time: str, *, every_seconds: float = HEARTBEAT_MS / 3000) -> None:
        self._storage, self._time = storage, instant_time
        self._has_renewed = False
        self._thread = every(every_seconds, self._renew, name=f"heartbeat-{instant_time}")

    def __enter__(self) -> HeartbeatThread:
        self._thread.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.__exit__(None, None, None)
        if self._has_renewed:
            with suppress(LakeformatError):  # The block's work is done, so a cleanup error must not make it fail.
                if not self._is_claimed():  # A renewal after `release` has created the heartbeat file again.
                    remove_heartbeat(self._storage, self._time)

    def _renew(self) -> bool:
        try:
            if not self._is_claimed():
                return False
            self._has_renewed = True
            renew_heartbeat(self._storage, self._time)
        except LakeformatError as error:
            _LOG.warning(
                "heartbeat of instant %s in %s failed, trying again: %s", self._time, self._storage.location, error
            )
        return True

    def _is_claimed(self) -> bool:
        return read_claim(self._storage, self._time) is not None


def advise_on_plan(store: TimelineStore, instant_time: str) -> str:
    """Return the end of an error message: what to do about a pending clustering that is to rewrite our file groups."""
    claim = read_claim(store.storage, instant_time)
    instant = store.load().find(instant_time)
    if instant is None or instant.state is State.COMPLETED:
        return "it is over by now: run the write again"
    if claim is None and instant.state is State.REQUESTED:
        return "run or cancel that clustering first"
    return f"it is running: {advise_to_wait(store.storage, claim)}, then run the write again"


def advise_to_wait_for(store: TimelineStore, instant: Instant, clock: Clock) -> str:
    """Return the end of an error message: how long to wait for a pending instant, our own or another program's."""
    claim = read_claim(store.storage, instant.time)
    if claim is not None:
        return advise_to_wait(store.storage, claim)
    minutes = max(1, -(-_measure_rest_ms(store, instant, clock, FOREIGN_GRACE_MS) // 60_000))
    return f"wait for it (if that program has died, that shows in {minutes} min)"


def advise_to_wait(storage: Storage, claim: Claim | None) -> str:
    """Return the end of an error message: how to wait for a pending instant whose writer may be alive."""
    if claim is None or has_process_lock(storage, claim):
        return "wait for it"
    minutes = DEAD_AFTER_MS // 60_000
    return f"wait for it (if its process has died, that shows {minutes} minutes after its last heartbeat)"
