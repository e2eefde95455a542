"""Decisions: the order in which the steps of all writers take effect on storage without locks.

Such storage can replace a file only if its version has not changed. Therefore each table has one small file, the state
file, in which the writers record their decisions one after the other. A decision is a step that other writers must not
miss: a commit, the undo of a dead write, the plan of a table service, a savepoint, a restore. A writer decides in these
steps (`decide`):

1. Read the state file and list the timeline. If the file of the last decision is missing, create it. This is called
   to carry out the decision. Every writer can do it, because the state file holds the name and the bytes of that file.
2. Check for conflicts with all decisions so far.
3. Replace the state file, on condition that it has not changed since step 1. If it has changed, go back to step 1.
4. Carry out the decision: create its file.

A request that the network delivers late does no harm. A late replacement of the state file fails, because the version
has changed. A late creation of a decided file creates what was decided. Only step 3 decides, so no step depends on a
clock, and a writer that was undone while it slept cannot publish any more.

On storage with locks the caller holds the lock. Then `decide` checks and creates the file; there is no state file.

If Hudi writes to the table, too, the writers also hold Hudi's lock around steps 1 to 4 (`lakeformat.locks`).
"""

from __future__ import annotations

import enum
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from lakeformat.codec.json_text import parse_json
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.concurrency import pause
from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LockLostError,
    StorageError,
    WriteConflictError,
)
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action
from lakeformat.storage.port import (
    Ids,
    Lease,
    OutcomeUnknownError,
    RandomIds,
    Storage,
    Version,
    VersionChangedError,
    check_path,
    own_path,
)
from lakeformat.timeline.damaged_commits import read_commit_if_whole
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.void_commits import encode_void
from lakeformat.transaction.order.conflict import PendingActionError

__all__ = [
    "LATEST_REQUEST_MS",
    "STATE_PATH",
    "Check",
    "Decision",
    "DecisionState",
    "Kind",
    "OvertakenError",
    "aside_path",
    "decide",
    "encode_void_commit",
    "fingerprint",
    "make_moving_error",
    "prepare_removal",
    "read_state",
    "settle",
    "warn_of_single_writer",
]

_T = TypeVar("_T")
_LOG: Final = logging.getLogger("lakeformat.write")
#: Path of the state file. It is never deleted.
STATE_PATH: Final = own_path("state")
#: Milliseconds after which no request for a file can be carried out any more that was sent when the file was created.
LATEST_REQUEST_MS: Final = 3_600_000
_CHECKSUM: Final = "checksum"
#: The names in the head of a state file without a checksum.
_NAMES: Final = frozenset({"n", "recent", "undone", "barrier", "archived_to", "shared", "moving", "last"})
#: Number of decisions whose nonces the state file keeps, and of undone writes.
_RECENT: Final = 40
_UNDONE: Final = 500
#: Maximum size in bytes of a decided file inside the state file. A larger one is stored in a file of its own.
_INSIDE_BYTES: Final = 1 << 20
#: Number of times that the state file's replacement is sent if the storage does not respond.
_TRIES: Final = 4
#: Seconds that a lease must still last before a request that must not be carried out after its end.
_LEASE_SECONDS: Final = 60.0
#: Number of lost turns after which a writer tries again at once.
_FREE_TURNS: Final = 2
#: Maximum wait in seconds after the first lost turn with a wait, and after any.
_LEAST_WAIT: Final = 0.05
_MOST_WAIT: Final = 1.0
_IDS: Ids = RandomIds()


class OvertakenError(WriteConflictError):
    """The last decided commit was not completed, and Hudi has completed a commit that it was not checked against."""


class Kind(str, enum.Enum):
    """The kind of a decision."""

    COMMIT = "commit"
    UNDO = "undo"
    PLAN = "plan"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    UPGRADE = "upgrade"
    ARCHIVE = "archive"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision.

    Attributes:
        instant_time: the instant that the decision is about.
        path: path of the file that carries out the decision; "" if there is none.
        data: the file's bytes.
        seen: digest (`fingerprint`) of the completed commits that a commit was checked against.
        undoes: the write that may not be published any more: an instant time, or ``<instant time>/<write id>`` for one
            run of a plan that stays. "" if the decision undoes nothing.
        is_barrier: whether no write that has begun before may be published.
        archived_to: the newest instant time that is archived; "" if the decision is not about the archive.
        moving: a text if the table begins to move to another version, "" if the move ends; None for other decisions.
    """

    kind: Kind
    instant_time: str
    path: str = ""
    data: bytes = b""
    seen: str = ""
    undoes: str = ""
    is_barrier: bool = False
    archived_to: str = ""
    moving: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionState:
    """The content of the state file.

    Attributes:
        number: number of decisions so far.
        last: the last decision; None if there was none.
        recent: number and nonce of the newest decisions, oldest first. A nonce is unique to one call of `decide`.
        undone: `Decision.undoes` of the newest decisions that undo writes.
        barrier: number of the newest decision that is a barrier.
        archived_to: the newest instant time that is archived.
        is_shared: whether Hudi writes to the table, too, under a common lock.
        moving: not empty while the table moves to another version. Then only the end of the move can be decided.
    """

    number: int = 0
    last: Decision | None = None
    recent: tuple[tuple[int, str], ...] = ()
    undone: tuple[str, ...] = ()
    barrier: int = 0
    archived_to: str = ""
    is_shared: bool = False
    moving: str = ""

    def add(self, decision: Decision, nonce: str, *, is_shared: bool = False) -> DecisionState:
        """Return the state after one more decision."""
        number = self.number + 1
        archived_to = max(self.archived_to, decision.archived_to)
        undone = tuple(run for run in (*self.undone, decision.undoes) if run.partition("/")[0] > archived_to)
        return DecisionState(
            number=number,
            last=decision,
            recent=(*self.recent, (number, nonce))[-_RECENT:],
            undone=undone[-_UNDONE:],
            barrier=number if decision.is_barrier else self.barrier,
            archived_to=archived_to,
            is_shared=self.is_shared or is_shared,
            moving=self.moving if decision.moving is None else decision.moving,
        )

    def has_decided(self, nonce: str) -> bool:
        """Tell whether the decision with this nonce is among the newest ones."""
        return any(decided == nonce for _, decided in self.recent)

    @property
    def aside(self) -> str:
        """Return the nonce of the file that contains the last decided file's bytes; "" if the state file does."""
        return self.recent[-1][1] if self.last is not None and _is_large(self.last) else ""

    @property
    def undone_times(self) -> frozenset[str]:
        """Return the times of the instants that have an undone run."""
        return frozenset(run.partition("/")[0] for run in self.undone)

    def has_undone(self, instant_time: str, write_id: str) -> bool:
        """Tell whether this write of an instant was undone."""
        return instant_time in self.undone or f"{instant_time}/{write_id}" in self.undone


#: A function that gets the state and the newest timeline, and raises an error if the decision conflicts with them. It
#: returns the decision, or None if there is nothing to decide.
Check = Callable[[DecisionState, Timeline], "Decision | None"]


def fingerprint(timeline: Timeline) -> str:
    """Return a digest of the instant times of all completed commits."""
    return hashlib.blake2b("\n".join(sorted(timeline.commit_times)).encode(), digest_size=16).hexdigest()


# --- the state file ---------------------------------------------------------------------------------------


def aside_path(nonce: str) -> str:
    """Return the path of the file for the bytes of a decided file that is too large for the state file."""
    return own_path("tmp", f"decided-{nonce}")


def _is_large(decision: Decision) -> bool:
    return len(decision.data) > _INSIDE_BYTES


def _encode(state: DecisionState) -> bytes:
    last, data = state.last, b""
    head: dict[str, object] = {
        "n": state.number,
        "recent": [list(pair) for pair in state.recent],
        "undone": list(state.undone),
        "barrier": state.barrier,
        "archived_to": state.archived_to,
        "shared": state.is_shared,
        "moving": state.moving,
    }
    if last is not None:
        data = b"" if _is_large(last) else last.data
        head["last"] = {
            "kind": last.kind.value,
            "instant": last.instant_time,
            "path": last.path,
            "sha256": hashlib.sha256(last.data).hexdigest(),
            "aside": state.aside,
            "seen": last.seen,
        }
    return json.dumps({**head, _CHECKSUM: _compute_checksum(head)}).encode() + b"\n" + data


def _compute_checksum(head: Mapping[str, object]) -> str:
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=16).hexdigest()


def _read_head(line: bytes) -> dict[str, Any]:
    """Parse the head of the state file. Raise ``ValueError`` if it is damaged.

    Older releases wrote no checksum. Then the head must have exactly the names that they wrote.
    """
    head = parse_json(line)
    if not isinstance(head, dict):
        raise ValueError("its head is not an object")
    checksum = head.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _compute_checksum(head):
        raise ValueError("its head does not have its checksum")
    if checksum is None and {*head, "last"} != _NAMES:
        raise ValueError("its head has other names than an old one")
    return head


def _as(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is not of type {kind.__name__}")
    return value


def _decode(storage: Storage, content: bytes) -> DecisionState:
    line, _, data = content.partition(b"\n")
    try:
        head = _read_head(line)
        last_entry = head.get("last")
        last = None
        if last_entry is not None:
            last = Decision(
                kind=Kind(last_entry["kind"]),
                instant_time=_as(str, last_entry["instant"]),
                path=check_path(_as(str, last_entry["path"])),
                data=storage.read(aside_path(_as(str, last_entry["aside"]))) if last_entry["aside"] else data,
                seen=_as(str, last_entry["seen"]),
            )
            if hashlib.sha256(last.data).hexdigest() != last_entry["sha256"]:
                raise ValueError("the decided file does not have its checksum")
        return DecisionState(
            number=_as(int, head["n"]),
            last=last,
            recent=tuple((_as(int, number), _as(str, nonce)) for number, nonce in _as(list, head["recent"])),
            undone=tuple(_as(str, run) for run in _as(list, head["undone"])),
            barrier=_as(int, head["barrier"]),
            archived_to=_as(str, head["archived_to"]),
            is_shared=_as(bool, head["shared"]),
            moving=_as(str, head["moving"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(
            f"{storage.location}/{STATE_PATH} is damaged ({error}); stop all writers, delete it, and run repair()"
        ) from None


def read_state(storage: Storage) -> tuple[DecisionState, Version | None]:
    """Read the state file. Return an empty state and None if there is none, or if the storage has locks.

    Raises:
        CorruptTableError: the file is damaged.
    """
    tried: Version | None = None
    while not storage.has_lock:
        try:
            content, version = storage.read_versioned(STATE_PATH)
        except FileNotFoundError:
            break
        try:
            return _decode(storage, content), version
        except FileNotFoundError:  # The file beside it is deleted after the next decision: read again.
            if version == tried:
                raise CorruptTableError(
                    f"the file of the last decision in {storage.location}/{STATE_PATH} is missing; stop all writers, "
                    f"delete {STATE_PATH}, and run repair()"
                ) from None
            tried = version
    return DecisionState(), None


#: The state, and the version of its file.
_Read = tuple[DecisionState, "Version | None"]
_Settled = tuple[DecisionState, "Version | None", Timeline]


# --- the loop ---------------------------------------------------------------------------------------------


def settle(store: TimelineStore, read: _Read | None = None, listed: Timeline | None = None) -> _Settled:
    """Read the state, and carry out the last decision if its file is missing.

    The timeline is listed after the state was read, so it has all decisions before the last one, carried out.

    Args:
        read: the result of `read_state` if the caller has read the state a moment ago.
        listed: a timeline that was loaded a moment ago. It is returned again on storage with locks.

    Returns:
        the state, the version of its file, and a timeline that contains all decisions of the state.

    Raises:
        OvertakenError: beside Hudi, another commit has completed since the last decision, which was not carried out.
            The next recovery undoes that decision.
    """
    if listed is not None and store.storage.has_lock:
        return DecisionState(), None, listed
    while True:
        (state, version), read = read or read_state(store.storage), None
        timeline = store.load()
        last = state.last
        if last is None or not last.path or store.has_file(last.path):
            if last is not None and last.kind is Kind.COMMIT:
                store.remember_commit(last.path, last.data)
            return state, version, timeline
        if not store.is_on_timeline(last.path):  # The table was moved to another version, with all its instants.
            return state, version, store.load()
        if read_state(store.storage)[1] != version:
            continue
        if _is_overtaken(state, timeline):
            raise OvertakenError(
                f"commit {last.instant_time} of {store.storage.location} was decided but not completed, and another "
                "program has committed since; run the write again"
            )
        _LOG.info("carrying out %s in %s, which another writer has decided", last.path, store.storage.location)
        with suppress(FileExistsError, FileNotFoundError):
            put_once(store.storage, last.path, last.data)


def _is_overtaken(state: DecisionState, timeline: Timeline) -> bool:
    """Tell whether Hudi has completed a commit that the last decided commit was not checked against."""
    last = state.last
    return state.is_shared and last is not None and last.kind is Kind.COMMIT and fingerprint(timeline) != last.seen


def decide(store: TimelineStore, check: Check, *, lease: Lease | None = None, ids: Ids = _IDS) -> Decision | None:
    """Decide a step and carry it out. On storage with locks, call it under the table's lock.

    Args:
        check: makes the decision; it is called again after each decision of another writer.
        lease: the lease of the lock that Hudi's writers respect, too; None if Hudi does not write to the table. It is
            checked before each request that decides.
        ids: makes the nonce of each try, which also decides how long the writer waits after a lost turn.

    Returns:
        the decision, which is carried out; None if ``check`` returned None.

    Raises:
        FileExistsError: another file has the name of the decision's file.
        CommitStateUnknownError: it is unknown whether the decision is made, or it is made but its file may be missing.
            The caller must delete nothing.
        WriteConflictError: the table is being moved to another version. Nothing was decided.
        LockLostError: the lease ends too soon. Nothing was decided.
    """
    storage = store.storage
    if storage.has_lock:
        decision = check(DecisionState(), store.load())
        if decision is not None and decision.path:
            if lease is not None:
                lease.check(_LEASE_SECONDS)
            put_once(storage, decision.path, decision.data)
        return decision
    read: _Read | None = None
    for turn in count():
        state, version, timeline = settle(store, read)
        decision = check(state, timeline)
        if decision is None:
            return None
        if state.moving and decision.moving is None:
            raise make_moving_error(storage.location)
        nonce = ids.token()
        if _is_large(decision):
            storage.replace(aside_path(nonce), decision.data)
        added = state.add(decision, nonce, is_shared=lease is not None)
        try:
            read = _replace_state(storage, added, version, nonce, decision, lease)
        except LockLostError:
            _remove_aside(storage, added.aside)
            raise
        _remove_aside(storage, state.aside if read is None else added.aside)
        if read is None:
            if decision.path:
                _carry_out(storage, decision)
            return decision
        # After the first lost turns a writer tries again at once, with the state that was read after its request. Then
        # the writers wait for different times, so that they do not meet again.
        if turn >= _FREE_TURNS:
            pause(min(_MOST_WAIT, _LEAST_WAIT * 2 ** (turn - _FREE_TURNS)), nonce)
            read = None
    raise AssertionError("unreachable")


def _remove_aside(storage: Storage, nonce: str) -> None:
    if nonce:
        with suppress(StorageError):  # Not essential: a day later a recovery removes it.
            storage.delete(aside_path(nonce))


def make_moving_error(location: str) -> WriteConflictError:
    """Return the error for a table that is being moved to another table version."""
    return PendingActionError(
        f"{location} is being moved to another table version; wait for it, or, if that process has died, run "
        "upgrade() or downgrade() again"
    )


def _replace_state(
    storage: Storage,
    state: DecisionState,
    version: Version | None,
    nonce: str,
    decision: Decision,
    lease: Lease | None,
) -> _Read | None:
    """Replace the state file. If another writer has replaced it first, return what it contains now, else None.

    After a try without a response, the refusal of a later try says nothing about the first one.

    Raises:
        CommitStateUnknownError: the storage does not respond, also if the lease ends before the next try.
        LockLostError: the lease ends too soon for the first try. Nothing was decided.
    """
    data = _encode(state)
    reason: Exception | None = None
    for _ in range(_TRIES):
        try:
            if lease is not None:
                lease.check(_LEASE_SECONDS)
        except LockLostError:
            if reason is None:
                raise
            break
        try:
            storage.replace_if(STATE_PATH, data, version)
        except (FileExistsError, VersionChangedError) as error:
            try:
                now = _decode_found(storage, error) or read_state(storage)
            except StorageError as failure:
                raise _make_unknown_error(storage, decision, failure) from None
            return None if _was_decided(storage, now[0], nonce, state.number, decision) else now
        except StorageError as error:
            if reason is None and not isinstance(error, OutcomeUnknownError):
                raise
            reason = error
        else:
            return None
    raise _make_unknown_error(storage, decision, reason)


def _decode_found(storage: Storage, error: Exception) -> _Read | None:
    """Decode the state that was read after a lost turn. Return None if the state must be read again."""
    if not isinstance(error, VersionChangedError) or error.found is None:
        return None
    with suppress(FileNotFoundError):
        return _decode(storage, error.found[0]), error.found[1]
    return None


def _was_decided(storage: Storage, now: DecisionState, nonce: str, number: int, decision: Decision) -> bool:
    """Tell whether a decision is among those of the state, which was read after the decision was sent."""
    if now.has_decided(nonce):
        return True
    if now.recent and now.recent[0][0] > number:
        raise _make_unknown_error(storage, decision, None)
    return False


def _carry_out(storage: Storage, decision: Decision) -> None:
    try:
        put_once(storage, decision.path, decision.data)
    except FileNotFoundError:  # Others have carried it out, and the file is archived since.
        return
    except StorageError as error:
        raise _make_unknown_error(storage, decision, error) from None


def _make_unknown_error(storage: Storage, decision: Decision, reason: Exception | None) -> CommitStateUnknownError:
    path = decision.path or STATE_PATH
    return CommitStateUnknownError(
        f"cannot tell whether {decision.kind.value} {decision.instant_time} is visible ({reason or 'no answer'}); all "
        f"files are kept, and the next writer completes it if it was decided: look for {storage.location}/{path} "
        "before running the write again"
    )


def prepare_removal(store: TimelineStore, instant_time: str, check: Callable[[Timeline], None] | None = None) -> None:
    """Decide that an instant's files are removed from the timeline.

    Without this, the next writer would create a decided file again, and could not tell a file that a late request
    creates from another program's.

    Args:
        check: raises an error if the newest timeline does not allow the removal.
    """
    if store.storage.has_lock:
        return

    def make_decision(_: DecisionState, timeline: Timeline) -> Decision:
        if check is not None:
            check(timeline)
        return Decision(kind=Kind.REMOVE, instant_time=instant_time, undoes=instant_time)

    decide(store, make_decision)


# --- void commits -----------------------------------------------------------------------------------------


def encode_void_commit(store: TimelineStore, path: str, data: bytes) -> bytes:
    """Encode the void commit that takes the place of an undone commit's completed file.

    Its schema is that of the newest commit that has one. ``data`` are the own bytes of the commit at ``path``.
    """
    commits = map(partial(read_commit_if_whole, store), reversed(store.load().commits))
    texts = (commit.schema_text for commit in commits if commit is not None)
    try:
        undone = decode_commit(data, name=path)
    except CorruptTableError:
        undone = CommitMetadata("UNKNOWN", {})
    return encode_void(
        store.layout,
        undone,
        next((text for text in texts if text), ""),
        is_replace=path.endswith(f".{Action.REPLACE_COMMIT.value}"),
        other_than=len(data),
    )


#: Locations of the tables for which this process has logged that only one writer is safe.
_WARNED: Final[set[str]] = set()


def warn_of_single_writer(storage: Storage) -> None:
    """Log a warning, once per table, if several writers are not safe on the storage."""
    if not storage.has_lock and not storage.has_versions and storage.location not in _WARNED:
        _WARNED.add(storage.location)
        _LOG.warning(
            "%s is on storage without locks and without conditional writes: write to it from one process only. If "
            "another process writes at the same time, rows may be lost; check() names them",
            storage.location,
        )
