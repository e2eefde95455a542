"""Settle commits whose completed file was put without an answer: complete them, or void them by an empty commit.

See `lakeformat.transaction.notes`. Call these functions under the table's lock, which excludes no other process here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lakeformat.codec.commit_file import decode_commit
from lakeformat.model.instant import Action, Instant, State
from lakeformat.timeline.put_once import put_once
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.notes import Note, fingerprint, read_note

__all__ = ["VOID_KEY", "completed_as_noted", "voided"]

#: Key of ``extraMetadata`` that marks an empty commit, which occupies the name of an undone one.
VOID_KEY: Final = "lakeformat.void"


def completed_as_noted(store: TimelineStore, instant: Instant) -> bool:
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
    if instant.action is not Action.COMPACTION and fingerprint(timeline) != note.seen:
        return False
    try:
        put_once(store.storage, note.path, note.data)
    except FileExistsError:  # Another writer has settled it.
        return True
    return True


def voided(store: TimelineStore, instant_time: str) -> bool:
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
    texts = (store.commit(instant).schema_text for instant in reversed(store.load().commits))
    schema = next((text for text in texts if text), "")
    extra = {VOID_KEY: "true", **({"schema": schema} if schema else {})}
    empty = replace(noted, stats={}, replaced={}, compacted=False, extra=extra)
    return store.layout.encode_commit(empty, replace=note.path.endswith(f".{Action.REPLACE_COMMIT.value}"))
