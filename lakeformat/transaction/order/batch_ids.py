"""Batch ids, by which a repeated batch is recognized and skipped: its (app, id) is already in the table's commits.

The extra metadata of each commit contains the last id of every app. Each commit copies all ids of earlier commits,
so that no id is lost when commits are archived. The ids of all active commits are read: the commit with the greatest
instant time may lack an id, because a commit with an earlier instant time may have been published after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from lakeformat.codec.json_text import parse_json
from lakeformat.config.resolve import Options
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.errors import InvalidOptionError
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["BATCHES_KEY", "BatchId", "batch_of", "make_batches_entry", "read_last_batches"]


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one application, such as a streaming query or a nightly job. The ids of an application increase."""

    app: str
    id: int


def batch_of(options: Options) -> BatchId | None:
    """Return the batch id that the options set, or None if they set none.

    Raises:
        InvalidOptionError: only one of app and id is given.
    """
    app, number = options[BATCH_APP], options[BATCH_ID]
    if (not app) != (number is None):
        raise InvalidOptionError(f"{BATCH_APP} and {BATCH_ID} need each other; give both or none")
    return BatchId(app, number) if app else None


def read_last_batches(store: TimelineStore, timeline: Timeline, app: str | None = None) -> Mapping[str, int]:
    """Return for each app the greatest batch id in the active commits.

    Args:
        app: an app whose id is needed. If no active commit contains it, the archive is searched, because commits of
            other programs do not copy the ids.
    """
    last = _find_greatest_ids(_read_active_ids(store, timeline))
    if app is None or app in last:
        return last
    archive = store.read_archived()
    older = sorted(archive.completed_in(""), reverse=True)
    for start in range(0, len(older), _AT_ONCE):
        commits = archive.commits(older[start : start + _AT_ONCE])
        latest = _find_greatest_ids(_read_ids(metadata.extra) for _, metadata in commits)
        if latest:  # Commits of lakeformat repeat the ids of all earlier commits, so older commits need not be read.
            return {**latest, **last}
    return last


def _read_active_ids(store: TimelineStore, timeline: Timeline) -> Iterable[_Ids]:
    """Return the ids in each commit of a timeline.

    If the names of completed files contain completion times, no two commits have the same name. So the ids of each
    commit are remembered as long as the store.
    """
    known_ids = _KNOWN.get(store, {}) if timeline.layout.has_completion_times else {}
    read_now: dict[tuple[str, str | None], _Ids] = {}
    for commit in timeline.commits:
        name = commit.time, commit.completion_time
        ids = known_ids.get(name)
        read_now[name] = _read_ids(store.read_commit(commit).extra) if ids is None else ids
    _KNOWN[store] = read_now
    return read_now.values()


def _find_greatest_ids(ids_of_commits: Iterable[_Ids]) -> dict[str, int]:
    last: dict[str, int] = {}
    for app, number in chain.from_iterable(ids_of_commits):
        last[app] = max(number, last.get(app, number))
    return last


def _read_ids(extra: Mapping[str, str]) -> _Ids:
    text = extra.get(BATCHES_KEY)
    if text is None:
        return ()
    try:
        parsed = parse_json(text)
    except (ValueError, RecursionError):
        return ()
    entries = parsed.items() if isinstance(parsed, dict) else ()
    return tuple((app, number) for app, number in entries if type(number) is int)


def make_batches_entry(last: Mapping[str, int], batch: BatchId | None) -> Mapping[str, str]:
    """Return the extra metadata entry with the last id of each app, including this batch; empty if there are no ids."""
    entry = {**last, batch.app: batch.id} if batch else dict(last)
    return {BATCHES_KEY: json.dumps(entry, separators=(",", ":"), sort_keys=True)} if entry else {}


#: Key of ``extraMetadata``. Its value is a JSON object that maps each app to its last batch id.
BATCHES_KEY: Final = "lakeformat.batches"


#: The last id of each app in a commit.
_Ids: TypeAlias = tuple[tuple[str, int], ...]
#: The result of `_read_active_ids` for each store, by instant and completion time.
_KNOWN: Final[WeakKeyDictionary[TimelineStore, Mapping[tuple[str, str | None], _Ids]]] = WeakKeyDictionary()
#: Number of archived commits that are read together.
_AT_ONCE: Final = 100
