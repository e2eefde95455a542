"""Ids of batches that may be sent twice: a write whose (app, id) is in the table already is skipped.

The extra metadata of each commit holds the last id of every app. Each commit copies all ids from the earlier commits,
so that no id is lost when commits are archived. The order of instant times is not the order of publishing, so all
active commits are read.
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

__all__ = ["BATCHES_KEY", "BatchId", "batch_of", "make_batches_entry", "read_last_batches"]


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one application: a streaming query, a nightly job. Ids of an app only grow."""

    app: str
    id: int


def batch_of(options: Options) -> BatchId | None:
    """Return the batch that the options name, None if they name none.

    Raises:
        InvalidOptionError: only one of app and id is given.
    """
    app, number = options[BATCH_APP], options[BATCH_ID]
    if (not app) != (number is None):
        raise InvalidOptionError(f"{BATCH_APP} and {BATCH_ID} need each other; give both or none")
    return BatchId(app, number) if app else None


def read_last_batches(store: TimelineStore, timeline: Timeline, app: str | None = None) -> Mapping[str, int]:
    """Return the greatest id of each app that any active commit holds.

    Args:
        app: an app that must be in the result if it ever wrote. If no active commit holds it, the archive is searched,
            because commits of other programs do not copy the ids.
    """
    last = _collect_greatest_ids(store.read_commit(instant) for instant in timeline.commits)
    if app is None or app in last:
        return last
    archive = store.read_archived()
    older = sorted(archive.completed_in(""), reverse=True)
    for start in range(0, len(older), _AT_ONCE):
        found = _collect_greatest_ids(metadata for _, metadata in archive.commits(older[start : start + _AT_ONCE]))
        if found:  # These commits hold the ids of all earlier commits.
            return {**found, **last}
    return last


def _collect_greatest_ids(commits: Iterable[CommitMetadata]) -> dict[str, int]:
    last: dict[str, int] = {}
    for metadata in commits:
        for app, number in _read_ids(metadata.extra):
            last[app] = max(number, last.get(app, number))
    return last


def _read_ids(extra: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    try:
        found = json.loads(extra.get(BATCHES_KEY, "{}"))
    except (ValueError, RecursionError):
        return ()
    entries = found.items() if isinstance(found, dict) else ()
    return [(app, number) for app, number in entries if type(number) is int]


def make_batches_entry(last: Mapping[str, int], batch: BatchId | None) -> Mapping[str, str]:
    """Return the extra metadata entry with the last ids, including this batch; empty if no app ever named a batch."""
    known = {**last, batch.app: batch.id} if batch else dict(last)
    return {BATCHES_KEY: json.dumps(known, separators=(",", ":"), sort_keys=True)} if known else {}


#: Key of ``extraMetadata``: a JSON object, app -> last id.
BATCHES_KEY: Final = "lakeformat.batches"


#: Number of archived commits that are read together.
_AT_ONCE: Final = 100
