"""What the last look found, so that the next one need not look at everything again.

A clean that finds nothing leaves nothing on the timeline, as in Hudi. So that a table that only grows is not looked
through after every commit, what was looked at is noted in our own corner. The note may be lost: then all partitions are
looked at once. It only ever decides where to look, never what goes.
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
#: Key of a clean's ``extraMetadata``: the savepoints it knew, as Hudi writes it.
SAVEPOINTS: Final = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class LastLook:
    """Up to where everything has been looked at.

    Attributes:
        earliest: everything that only older instants needed is gone; "" if nobody has looked.
        commits: times of the commits that were known; None if nobody noted them for this way of keeping.
        savepoints: those that kept files then.
    """

    earliest: str = ""
    commits: frozenset[str] | None = None
    savepoints: frozenset[str] = frozenset()


def last_look(storage: Storage, clean: CleanMetadata | None, retention: Retention) -> LastLook:
    """What is known of the last look, from the last clean on the timeline and our own note."""
    noted = _noted(storage)
    if noted is not None and noted["again"]:
        return LastLook()
    cleaned = clean.earliest_commit_to_retain if clean else ""
    told = clean.extra.get(SAVEPOINTS, "") if clean else ""
    savepoints = frozenset(filter(None, told.split(",")))
    if noted is None:
        return LastLook(cleaned, None, savepoints)
    # Of two that came equally far the note is the later one: it is written after every look of ours.
    savepoints = frozenset(noted["savepoints"]) | (savepoints if cleaned > noted["earliest"] else frozenset())
    commits = frozenset(noted["commits"]) if noted["kept"] == _kept(retention) else None
    return LastLook(max(cleaned, noted["earliest"]), commits, savepoints)


def note_look(storage: Storage, look: LastLook, retention: Retention, *, again: bool = False) -> None:
    """Note it, unless that is what the note says already.

    Args:
        again: everything is to be looked at once more: some of what is old has been left for the next clean.
    """
    document = {
        "earliest": look.earliest,
        "again": again,
        "commits": sorted(look.commits or ()),
        "savepoints": sorted(look.savepoints),
        "kept": _kept(retention),
    }
    if document != _noted(storage):
        storage.replace(_PATH, json.dumps(document).encode())


def _kept(retention: Retention) -> str:
    return f"{retention.policy.value} {retention.count}"


def _noted(storage: Storage) -> dict[str, Any] | None:
    try:
        found = json.loads(storage.read(_PATH))
        texts = [found["earliest"], found["kept"], *found["commits"], *found["savepoints"]]
        again = found["again"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(again, bool) and all(isinstance(text, str) for text in texts) else None
