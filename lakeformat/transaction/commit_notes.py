"""Notes of commits whose completed file is being put, for storage whose lock does not exclude other processes.

On such storage, a completed file whose answer was lost may arrive at any time, even after the next writer has begun.
So a writer notes the file's name and bytes before it puts the file, and removes the note once it has an answer. If a
pending instant has no note, its writer has not put the completed file. If it has a note, the next writer occupies the
name before it undoes the instant: it puts the same file if no other commit has completed meanwhile, else an empty
commit (`lakeformat.transaction.rollback`). So all writers agree on the outcome, whatever arrives later.

`complete_noted_commit` and `occupy_noted_name` settle such a commit. Call them under the table's lock.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage.port import Storage, check_path, own_path
from lakeformat.timeline.store import TimelineStore, put_once
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "VOID_KEY",
    "Note",
    "complete_noted_commit",
    "drop_note",
    "fingerprint",
    "give_up",
    "occupy_noted_name",
    "put_note",
    "read_note",
]


@dataclass(frozen=True, slots=True)
class Note:
    """The completed file that a writer is about to put.

    Attributes:
        path: path of the completed file.
        checked_commits: fingerprint of the commits that it has been checked against; see `fingerprint`.
        data: the file's bytes.
        is_given_up: whether its writer no longer waits for an answer.
    """

    path: str
    checked_commits: str
    data: bytes
    is_given_up: bool = False


def fingerprint(timeline: Timeline) -> str:
    """Return a digest of the set of completed commits."""
    return hashlib.blake2b("\n".join(sorted(timeline.commit_times)).encode(), digest_size=16).hexdigest()


def _note_path(instant_time: str) -> str:
    return own_path("publishing", instant_time)


def put_note(storage: Storage, instant_time: str, note: Note) -> None:
    """Write the note of a commit."""
    head = {"path": note.path, "seen": note.checked_commits, "given_up": note.is_given_up}
    storage.replace(_note_path(instant_time), json.dumps(head).encode() + b"\n" + note.data)


def read_note(storage: Storage, instant_time: str) -> Note | None:
    """Read the note of a commit. Return None if there is none, or if the storage has a lock, where none is written."""
    if storage.has_lock:
        return None
    try:
        head, _, data = storage.read(_note_path(instant_time)).partition(b"\n")
        fields = json.loads(head)
        return Note(check_path(fields["path"]), str(fields["seen"]), data, fields["given_up"] is True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # The file is not from lakeformat, whose notes are put whole.
        return None


def give_up(storage: Storage, instant_time: str) -> None:
    """Mark the note as given up, so that the next writer need not wait for the heartbeat to stop."""
    if (note := read_note(storage, instant_time)) is not None:
        put_note(storage, instant_time, replace(note, is_given_up=True))


def drop_note(storage: Storage, instant_time: str) -> None:
    """Remove the note, if there is one."""
    if not storage.has_lock:
        storage.delete(_note_path(instant_time))


#: Key of ``extraMetadata`` that marks an empty commit, which occupies the name of an undone one.
VOID_KEY: Final = "lakeformat.void"


def complete_noted_commit(store: TimelineStore, instant: Instant) -> bool:
    """Complete a dead writer's commit as noted. Return whether the instant is completed now.

    The writer checked its commit against all commits that had completed then. If another commit has completed since,
    return False: the instant must be undone. A compaction is completed in any case: its plan stays, and others have
    written to the slices that it opened.

    Raises:
        OutcomeUnknownError: the storage still does not answer.
    """
    note = read_note(store.storage, instant.time)
    if note is None:
        return False
    timeline = store.load()
    current = timeline.find(instant.time)
    if current is not None and current.state is State.COMPLETED:
        return True
    if instant.action is not Action.COMPACTION and fingerprint(timeline) != note.checked_commits:
        return False
    try:
        put_once(store.storage, note.path, note.data)
    except FileExistsError:  # Another writer has settled it.
        return True
    return True


def occupy_noted_name(store: TimelineStore, instant_time: str) -> bool:
    """Occupy the name of a completed file that may still arrive, so that it cannot. Put the rollback before this call.

    Returns:
        whether an empty commit has the name; False if there is no note, or if the noted file has arrived.

    Raises:
        OutcomeUnknownError: the storage does not answer; nothing may be deleted yet.
    """
    note = read_note(store.storage, instant_time)
    if note is None:
        return False
    try:
        put_once(store.storage, note.path, _encode_empty(store, note))
    except FileExistsError:
        return VOID_KEY in decode_commit(store.storage.read(note.path), name=note.path).extra
    return True


def _encode_empty(store: TimelineStore, note: Note) -> bytes:
    """Encode the noted commit without its files, with the columns of the newest commit."""
    noted = decode_commit(note.data, name=note.path)
    texts = (store.read_commit(instant).schema_text for instant in reversed(store.load().commits))
    schema = next((text for text in texts if text), "")
    extra = {VOID_KEY: "true", **({"schema": schema} if schema else {})}
    empty = replace(noted, stats={}, replaced={}, compacted=False, extra=extra)
    return store.layout.encode_commit(empty, replace=note.path.endswith(f".{Action.REPLACE_COMMIT.value}"))
