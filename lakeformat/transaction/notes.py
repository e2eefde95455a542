"""Notes of commits whose completed file is on its way, for storages whose lock excludes no other process.

There a completed file whose answer was lost may arrive at any time, also when the next writer has come. So a writer
notes the file's name and bytes before it puts the file, and removes the note once it has an answer. A pending instant
without a note has put nothing. One with a note is never undone before its name is taken: the next writer puts the
same file, if no other commit has completed meanwhile, else an empty commit of that name
(`lakeformat.transaction.rollback`). So all agree on what became of it, whatever arrives later.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from lakeformat.storage.port import Storage, check_path, own_path
from lakeformat.timeline.timeline import Timeline

__all__ = ["Note", "drop_note", "fingerprint", "give_up", "put_note", "read_note"]


@dataclass(frozen=True, slots=True)
class Note:
    """What a writer is about to put.

    Attributes:
        path: of the completed file.
        seen: the commits that it has been checked against; see `fingerprint`.
        data: the file's bytes.
        is_given_up: its writer waits for no answer any more.
    """

    path: str
    seen: str
    data: bytes
    is_given_up: bool = False


def fingerprint(timeline: Timeline) -> str:
    """Name the set of completed commits."""
    return hashlib.blake2b("\n".join(sorted(timeline.commit_times)).encode(), digest_size=16).hexdigest()


def _path(instant_time: str) -> str:
    return own_path("publishing", instant_time)


def put_note(storage: Storage, instant_time: str, note: Note) -> None:
    """Write the note of a commit."""
    head = {"path": note.path, "seen": note.seen, "given_up": note.is_given_up}
    storage.replace(_path(instant_time), json.dumps(head).encode() + b"\n" + note.data)


def read_note(storage: Storage, instant_time: str) -> Note | None:
    """Read the note of a commit. None if there is none; where the lock excludes others, none is written."""
    if storage.has_lock:
        return None
    try:
        head, _, data = storage.read(_path(instant_time)).partition(b"\n")
        said = json.loads(head)
        return Note(check_path(said["path"]), str(said["seen"]), data, said["given_up"] is True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # Not a note of ours: those are put as a whole.
        return None


def give_up(storage: Storage, instant_time: str) -> None:
    """Say that the writer waits no longer: the next writer need not wait for its heartbeat to stop."""
    if (note := read_note(storage, instant_time)) is not None:
        put_note(storage, instant_time, replace(note, is_given_up=True))


def drop_note(storage: Storage, instant_time: str) -> None:
    """Remove the note, if there is one."""
    if not storage.has_lock:
        storage.delete(_path(instant_time))
