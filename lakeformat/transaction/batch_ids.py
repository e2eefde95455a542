"""Batches that may be sent twice: a write whose (app, id) is in the table already is skipped.

The last id of every app stands in each commit's extra metadata. Each commit carries all of them on, so that none is
lost when older commits are archived; commits take their places by instant time and not by the order of publishing, so
all active ones are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.errors import InvalidOptionError
from lakeformat.model.commit import CommitMetadata
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["BATCHES_KEY", "BatchId", "batch_of", "last_batches", "with_batch"]

#: Key of ``extraMetadata``: a JSON object, app -> last id.
BATCHES_KEY: Final = "lakeformat.batches"
#: Archived commits that are looked at together.
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one application: a streaming query, a nightly job. Ids of an app only grow."""

    app: str
    id: int


def batch_of(options: Options) -> BatchId | None:
    """The batch the options name, None if they name none. Raises `InvalidOptionError` if they name half of one."""
    app, number = options[BATCH_APP], options[BATCH_ID]
    if (not app) != (number is None):
        raise InvalidOptionError(f"{BATCH_APP} and {BATCH_ID} need each other; give both or none")
    return BatchId(app, number) if app else None


def last_batches(store: TimelineStore, timeline: Timeline, app: str | None = None) -> Mapping[str, int]:
    """App -> the greatest id that any active commit knows of.

    Args:
        app: one that must be among them if it ever wrote: the archive is asked for an app that no active commit knows,
            as other programs' commits do not carry the ids on.
    """
    last = _greatest(store.commit(instant) for instant in timeline.commits)
    if app is None or app in last:
        return last
    archive = store.archived()
    older = sorted(archive.completed_in(""), reverse=True)
    for start in range(0, len(older), _AT_ONCE):
        found = _greatest(metadata for _, metadata in archive.commits(older[start : start + _AT_ONCE]))
        if found:  # Of what came before, its commits carried all on.
            return {**found, **last}
    return last


def _greatest(commits: Iterable[CommitMetadata]) -> dict[str, int]:
    last: dict[str, int] = {}
    for metadata in commits:
        for app, number in _read(metadata.extra):
            last[app] = max(number, last.get(app, number))
    return last


def _read(extra: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    try:
        found = json.loads(extra.get(BATCHES_KEY, "{}"))
    except (ValueError, RecursionError):
        return ()
    entries = found.items() if isinstance(found, dict) else ()
    return [(app, number) for app, number in entries if type(number) is int]


def with_batch(last: Mapping[str, int], batch: BatchId | None) -> Mapping[str, str]:
    """What a commit carries of it all; nothing where no app ever named a batch."""
    known = {**last, batch.app: batch.id} if batch else dict(last)
    return {BATCHES_KEY: json.dumps(known, separators=(",", ":"), sort_keys=True)} if known else {}
