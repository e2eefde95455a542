"""What commits tell of log files: whether they hold updates alone, and whether they delete. Pure.

A commit tells it of the files that it wrote, and is archived some day, while its log files wait for a compaction. So a
commit of ours also hands on what was known of the earlier log files of the slices that it wrote to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, join_path
from lakeformat.table_state.live import ListedSlices, LiveFiles

__all__ = ["EARLIER_LOGS", "earlier_logs", "listed_slices"]

#: Key of ``extraMetadata``: what is known of the earlier log files of slices that the commit wrote to.
EARLIER_LOGS: Final = "lakeformat.earlier.logs"
_UPDATING, _UPSERTING = "updating", "upserting"
#: Stands for all slices that the commit wrote to.
_ALL: Final = "*"
#: The operation of a commit that puts log blocks together, those that brought new keys, too.
_LOG_COMPACTION: Final = "LOG_COMPACT"

#: Whether the base file that a commit saw, at some time, for a log file, is the slice's.
Knew = Callable[[str, WriteStat], bool]


def listed_slices(
    slices: tuple[FileSlice, ...],
    commits: Sequence[tuple[str, CommitMetadata]],
    completion_time: Callable[[str], str | None] | None,
) -> ListedSlices:
    """Slices with what the commits on the timeline tell of their log files.

    A commit tells of keys as they stand in the base file that it saw. A compaction that was pending then may have taken
    deleted keys out of it, which the log file has brought back.

    Args:
        commits: visible ones, the later ones last.
        completion_time: of an instant, where the timeline tells; None where it does not.
    """
    bases = {piece.group: piece.base for piece in slices if piece.base is not None and piece.logs}
    knew = _knew(bases, completion_time)
    known: Mapping[str, set[str]] = {_UPDATING: set(), _UPSERTING: set()}
    through = set[tuple[str, str]]()
    for time, metadata in reversed(commits):
        for stat in metadata.all_stats() if metadata.operation != _LOG_COMPACTION else ():
            if stat.log_names and stat.num_inserts + stat.num_updates + stat.num_deletes:
                if not stat.num_deletes:
                    known[_UPSERTING].add(stat.path)
                if not stat.num_inserts and knew(time, stat):
                    known[_UPDATING].add(stat.path)
        for stat, name in _handed_on(metadata):
            # What a commit hands on holds what it was handed.
            if (stat.file_id, name) not in through and (name == _UPSERTING or knew(time, stat)):
                through.add((stat.file_id, name))
                known[name].update(_earlier(stat))
    return ListedSlices(slices, frozenset(known[_UPDATING]), frozenset(known[_UPSERTING]))


def _knew(bases: Mapping[FileGroupId, BaseFile], completion_time: Callable[[str], str | None] | None) -> Knew:
    def knew(time: str, stat: WriteStat) -> bool:
        base = bases.get(FileGroupId(stat.partition_path, stat.file_id))
        if base is None or stat.base_name or completion_time is None:
            return base is not None and stat.base_name == str(base.name)
        ended = completion_time(base.name.instant_time)
        return ended is not None and ended < time

    return knew


def earlier_logs(stats: Sequence[WriteStat], live: LiveFiles) -> Mapping[str, str]:
    """What a commit hands on, for its ``extraMetadata``; nothing where nothing is known.

    Args:
        stats: of the files that it wrote.
        live: the slices that it wrote to, as it saw them.
    """
    written = [stat for stat in stats if stat.log_names[:-1]]
    if not written or not isinstance(live, ListedSlices):
        return {}
    told: dict[str, str | list[str]] = {}
    for name, known in ((_UPDATING, live.updating), (_UPSERTING, live.upserting)):
        sure = sorted({stat.file_id for stat in written if known.issuperset(_earlier(stat))})
        if sure:
            told[name] = _ALL if len(sure) == len({stat.file_id for stat in written}) else sure
    return {EARLIER_LOGS: json.dumps(told, separators=(",", ":"))} if told else {}


def _handed_on(metadata: CommitMetadata) -> Iterator[tuple[WriteStat, str]]:
    """Log files that a commit wrote, each with what it tells of all earlier ones of their slices."""
    text = metadata.extra.get(EARLIER_LOGS)
    if text is None:
        return
    try:
        told = {name: frozenset(ids) for name, ids in json.loads(text).items() if name in {_UPDATING, _UPSERTING}}
    except (ValueError, TypeError, AttributeError):
        return  # Not ours.
    for stat in metadata.all_stats():
        if stat.log_names:
            yield from ((stat, name) for name, ids in told.items() if _ALL in ids or stat.file_id in ids)


def _earlier(stat: WriteStat) -> Iterator[str]:
    """Paths of a slice's log files before the one that was written."""
    own = stat.path.rpartition("/")[2]
    return (join_path(stat.partition_path, name) for name in stat.log_names if name != own)
