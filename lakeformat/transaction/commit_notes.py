"""Commit notes: files that announce a completed file, for storage whose lock does not exclude other processes.

On such storage, the request that creates a completed file may get no response and still take effect later, even after
the next writer has begun. If the next writer had undone the instant, the commit would become visible without its
files. So each writer

1. writes a note with the path and the bytes of the completed file,
2. creates the completed file,
3. removes the note once the storage has responded.

If a dead writer's pending instant has no note, its completed file was never sent, and the instant can be undone. If it
has a note, the next writer first creates a file at the noted path. If no other commit has completed since the note, it
writes the noted bytes, and the commit is complete. Else it writes an empty commit, and the instant is undone
(`lakeformat.transaction.rollback`); only a compaction is completed even then. A delayed request then finds an existing
file and fails.

`complete_noted_commit` writes the noted bytes, `occupy_noted_name` the empty commit. Call them under the table's lock.
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
    """A commit note, which announces the completed file that a writer is about to create.

    Attributes:
        path: path of the completed file.
        checked_commits: digest (`fingerprint`) of the completed commits that its writer checked for conflicts.
        data: the file's bytes.
        is_given_up: whether its writer has ended without knowing if the file was created.
    """

    path: str
    checked_commits: str
    data: bytes
    is_given_up: bool = False


def fingerprint(timeline: Timeline) -> str:
    """Return a digest of the instant times of all completed commits."""
    return hashlib.blake2b("\n".join(sorted(timeline.commit_times)).encode(), digest_size=16).hexdigest()


def _note_path(instant_time: str) -> str:
    return own_path("publishing", instant_time)


def put_note(storage: Storage, instant_time: str, note: Note) -> None:
    """Write the commit note of an instant."""
    head = {"path": note.path, "seen": note.checked_commits, "given_up": note.is_given_up}
    storage.replace(_note_path(instant_time), json.dumps(head).encode() + b"\n" + note.data)


def read_note(storage: Storage, instant_time: str) -> Note | None:
    """Read an instant's commit note. Return None if there is none, or if the storage has a lock and needs no notes."""
    if storage.has_lock:
        return None
    try:
        head, _, data = storage.read(_note_path(instant_time)).partition(b"\n")
        fields = json.loads(head)
        return Note(check_path(fields["path"]), str(fields["seen"]), data, fields["given_up"] is True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # lakeformat writes whole notes, so this file is not one.
        return None


def give_up(storage: Storage, instant_time: str) -> None:
    """Record in the commit note that its writer has ended, so that the next writer does not wait for its heartbeat."""
    if (note := read_note(storage, instant_time)) is not None:
        put_note(storage, instant_time, replace(note, is_given_up=True))


def drop_note(storage: Storage, instant_time: str) -> None:
    """Remove the commit note of an instant, if there is one."""
    if not storage.has_lock:
        storage.delete(_note_path(instant_time))


#: Key of ``extraMetadata`` that marks an empty commit, created at the completed file's path of an undone commit.
VOID_KEY: Final = "lakeformat.void"


def complete_noted_commit(store: TimelineStore, instant: Instant) -> bool:
    """Create the completed file that a dead writer noted. Return whether the instant is completed now.

    Before it wrote the note, the writer checked its commit for conflicts with all completed commits. If another commit
    has completed since, that one was not checked. Then create nothing and return False: the instant must be undone.
    The file of a compaction is created even then. A compaction's plan must not be removed, because other writers may
    have written log files to the slices that it opened.

    Raises:
        OutcomeUnknownError: the storage does not respond, so the file may or may not exist.
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
    except FileExistsError:  # The writer's delayed request or another writer created the file.
        return True
    return True


def occupy_noted_name(store: TimelineStore, instant_time: str) -> bool:
    """Create an empty commit at the path of a noted completed file, so that a delayed request cannot create that file.

    Create the rollback instant before this call. A writer that is still alive writes its note and then looks for a
    rollback. So either it sees the rollback and stops, or this call sees its note.

    Returns:
        True if an empty commit is stored at the path. False if there is no note, or if the noted file exists.

    Raises:
        OutcomeUnknownError: the storage does not respond; the commit's files must not be deleted yet.
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
    """Encode the noted commit without its files, with the schema of the newest commit that has one."""
    noted = decode_commit(note.data, name=note.path)
    texts = (store.read_commit(instant).schema_text for instant in reversed(store.load().commits))
    schema = next((text for text in texts if text), "")
    extra = {VOID_KEY: "true", **({"schema": schema} if schema else {})}
    empty = replace(noted, stats={}, replaced={}, compacted=False, extra=extra)
    return store.layout.encode_commit(empty, replace=note.path.endswith(f".{Action.REPLACE_COMMIT.value}"))
