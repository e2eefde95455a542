"""The signs of a living writer: its process holds the claim, and a thread renews the heartbeat.

If the storage has locks, the claim is free as soon as its process dies. If it has none, or if several processes carry
out the write, only the heartbeat stops, and the writer counts as dead `lakeformat.transaction.claims.DEAD_AFTER_MS`
later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread
from typing import Final

from lakeformat.errors import LakeformatError
from lakeformat.model.instant import State
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction import claims

__all__ = ["Pulse", "alive", "how_to_wait", "way_past"]

_LOG: Final = logging.getLogger("lakeformat.write")


@contextmanager
def alive(storage: Storage, instant_time: str) -> Iterator[None]:
    """Show that this process lives while the block runs. Enter it under the same lock as the instant was claimed."""
    with storage.hold(claims.claim_path(instant_time)), Pulse(storage, instant_time):
        yield


class Pulse(AbstractContextManager["Pulse"]):
    """A thread that renews an instant's heartbeat while the block runs, however long a step of the work takes.

    A failed renewal is logged and tried again; the writer counts as dead only after several failures. Once the instant
    is released, or another writer has undone it, nothing is renewed.

    Args:
        every_seconds: time between two renewals.
    """

    def __init__(
        self, storage: Storage, instant_time: str, *, every_seconds: float = claims.HEARTBEAT_MS / 3000
    ) -> None:
        self._storage, self._time, self._every = storage, instant_time, every_seconds
        self._done = Event()
        self._beaten = False
        self._thread = Thread(target=self._run, name=f"heartbeat-{instant_time}", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        if self._beaten:
            with suppress(LakeformatError):  # The write is done; an error here must not fail it.
                if not self._is_claimed():  # It may have been released just before a renewal.
                    claims.forget_heartbeat(self._storage, self._time)

    def _run(self) -> None:
        while not self._done.wait(self._every):
            try:
                if not self._is_claimed():
                    return
                self._beaten = True
                claims.beat(self._storage, self._time)
            except LakeformatError as error:
                _LOG.warning("heartbeat of %s failed, trying again: %s", self._time, error)

    def _is_claimed(self) -> bool:
        return claims.read_claim(self._storage, self._time) is not None


def way_past(store: TimelineStore, instant_time: str) -> str:
    """Return advice for a writer whose file groups the pending clustering at this instant is going to rewrite."""
    claim = claims.read_claim(store.storage, instant_time)
    instant = store.load().find(instant_time)
    if instant is None or instant.state is State.COMPLETED:
        return "it is over by now: run the write again"
    if claim is None and instant.state is State.REQUESTED:
        return "run or cancel that clustering first"
    return f"it is running: {how_to_wait(store.storage, claim)}, then run the write again"


def how_to_wait(storage: Storage, claim: claims.Claim | None) -> str:
    """Return advice about a pending instant whose writer lives, or is not known to be dead."""
    if claim is None or claims.shows_death(storage, claim):
        return "wait for it"
    minutes = claims.DEAD_AFTER_MS // 60_000
    return f"wait for it (if its process has died, that shows {minutes} minutes after its last heartbeat)"
