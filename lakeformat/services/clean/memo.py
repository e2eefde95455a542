"""A note of the last search for old files, so that the next search can skip unchanged partitions.

A clean that finds nothing leaves nothing on the timeline, as in Hudi. The note records its search in lakeformat's own
folder, so that a table that only grows is not searched in full after every commit. The note may be lost: then all
partitions are searched. It decides only where to search, never what is deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.clean_files import CleanMetadata
from lakeformat.services.clean.retention import Retention
from lakeformat.storage.port import Storage, own_path

__all__ = ["SAVEPOINTS", "LastLook", "last_look", "note_look"]

_PATH: Final = own_path("cleaned")
#: Hudi's key in a clean's ``extraMetadata`` for the savepoints known to the clean.
SAVEPOINTS: Final = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class LastLook:
    """How far the last search for old files got.

    Attributes:
        earliest: all files that only older instants needed are deleted; "" if there was no search.
        commits: times of the commits known to the search; None if they were not noted for this retention.
        savepoints: times of the savepoints known to the search.
    """

    earliest: str = ""
    commits: frozenset[str] | None = None
    savepoints: frozenset[str] = frozenset()


def last_look(storage: Storage, clean: CleanMetadata | None, retention: Retention) -> LastLook:
    """Return the last search, from the last clean on the timeline and the note."""
    noted = _read_note(storage)
    if noted is not None and noted["again"]:
        return LastLook()
    cleaned = clean.earliest_commit_to_retain if clean else ""
    listed = clean.extra.get(SAVEPOINTS, "") if clean else ""
    savepoints = frozenset(filter(None, listed.split(",")))
    if noted is None:
        return LastLook(cleaned, None, savepoints)
    # If both got equally far, the note is the later one: it is written after every search.
    savepoints = frozenset(noted["savepoints"]) | (savepoints if cleaned > noted["earliest"] else frozenset())
    commits = frozenset(noted["commits"]) if noted["kept"] == _retention_text(retention) else None
    return LastLook(max(cleaned, noted["earliest"]), commits, savepoints)


def note_look(storage: Storage, look: LastLook, retention: Retention, *, again: bool = False) -> None:
    """Write the note unless it has these values already.

    Args:
        again: whether to search everything the next time, because some old files are left for the next clean.
    """
    document = {
        "earliest": look.earliest,
        "again": again,
        "commits": sorted(look.commits or ()),
        "savepoints": sorted(look.savepoints),
        "kept": _retention_text(retention),
    }
    if document != _read_note(storage):
        storage.replace(_PATH, json.dumps(document).encode())


def _retention_text(retention: Retention) -> str:
    return f"{retention.policy.value} {retention.count}"


def _read_note(storage: Storage) -> dict[str, Any] | None:
    try:
        found = json.loads(storage.read(_PATH))
        texts = [found["earliest"], found["kept"], *found["commits"], *found["savepoints"]]
        again = found["again"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(again, bool) and all(isinstance(text, str) for text in texts) else None
