"""Facts about log files from commits: whether a log file holds only updates, and whether it deletes.

The write stats of a commit give these facts for the files that it wrote. But a commit may be archived while its log
files are still in a slice, and archived commits are not read for this. So if a commit of lakeformat writes to a slice,
it also copies the known facts about the earlier log files of the slice into its extra metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lakeformat.codec.json_text import parse_json
from lakeformat.file_system_view.live_files import ListedSlices, LiveFiles
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, join_path

__all__ = ["EARLIER_LOGS", "add_log_facts", "earlier_log_facts"]

#: Key of ``extraMetadata``: known facts about the earlier log files of the slices that the commit wrote to.
EARLIER_LOGS: Final = "lakeformat.earlier.logs"
_UPDATING, _UPSERTING = "updating", "upserting"
#: Value of a fact in `EARLIER_LOGS`, in place of a list of file ids. The fact then holds for all slices that the commit
#: wrote to.
_ALL: Final = "*"
#: Operation of a commit that merges log blocks into one. Its counts of inserts and updates are not used, because the
#: merged blocks may contain inserts.
_LOG_COMPACTION: Final = "LOG_COMPACT"

#: A function of a commit's time and the write stat of one of its log files. It returns whether the file slice had its
#: present base file when the commit wrote.
SawBaseFile = Callable[[str, WriteStat], bool]


def add_log_facts(
    slices: tuple[FileSlice, ...],
    commits: Sequence[tuple[str, CommitMetadata]],
    completion_time: Callable[[str], str | None] | None,
) -> ListedSlices:
    """Find out which log files hold only updates or no deletes, from the commits on the timeline.

    Return the slices with these facts. A commit counts a row as an update if the base file that the slice had then
    contains the row's key. If the slice has another base file now, the count is not used: a compaction may have removed
    a deleted key from the base file, and then the row is an insert.

    Args:
        commits: visible commits, the later ones last.
        completion_time: returns the completion time of an instant; None if the timeline has no completion times.
    """
    bases = {piece.group: piece.base for piece in slices if piece.base is not None and piece.logs}
    saw_base_file = _make_base_file_test(bases, completion_time)
    paths: Mapping[str, set[str]] = {_UPDATING: set(), _UPSERTING: set()}
    through = set[tuple[str, str]]()
    for time, metadata in reversed(commits):
        for stat in metadata.all_stats() if metadata.operation != _LOG_COMPACTION else ():
            if stat.log_names and stat.num_inserts + stat.num_updates + stat.num_deletes:
                if not stat.num_deletes:
                    paths[_UPSERTING].add(stat.path)
                if not stat.num_inserts and saw_base_file(time, stat):
                    paths[_UPDATING].add(stat.path)
        for stat, name in _copied_facts(metadata):
            # Commits copy the facts about earlier log files. The newest valid copy of a slice includes all older ones.
            if (stat.file_id, name) not in through and (name == _UPSERTING or saw_base_file(time, stat)):
                through.add((stat.file_id, name))
                paths[name].update(_earlier_paths(stat))
    return ListedSlices(slices, frozenset(paths[_UPDATING]), frozenset(paths[_UPSERTING]))


def _make_base_file_test(
    bases: Mapping[FileGroupId, BaseFile], completion_time: Callable[[str], str | None] | None
) -> SawBaseFile:
    def saw_base_file(time: str, stat: WriteStat) -> bool:
        base = bases.get(stat.group)
        if base is None or stat.base_name or completion_time is None:
            return base is not None and stat.base_name == str(base.name)
        ended = completion_time(base.name.instant_time)
        return ended is not None and ended < time

    return saw_base_file


def earlier_log_facts(stats: Sequence[WriteStat], live: LiveFiles) -> Mapping[str, str]:
    """Return the extra metadata entry with the known facts about earlier log files; empty if none are known.

    Args:
        stats: write stats of the commit.
        live: the live files as the write saw them.
    """
    written = [stat for stat in stats if stat.log_names[:-1]]
    if not written or not isinstance(live, ListedSlices):
        return {}
    facts: dict[str, str | list[str]] = {}
    for name, paths in ((_UPDATING, live.updating), (_UPSERTING, live.upserting)):
        sure = sorted({stat.file_id for stat in written if paths.issuperset(_earlier_paths(stat))})
        if sure:
            facts[name] = _ALL if len(sure) == len({stat.file_id for stat in written}) else sure
    return {EARLIER_LOGS: json.dumps(facts, separators=(",", ":"))} if facts else {}


def _copied_facts(metadata: CommitMetadata) -> Iterator[tuple[WriteStat, str]]:
    """Read the facts about earlier log files that a commit of lakeformat has copied into its metadata.

    Yield pairs: the write stat of a log file that the commit wrote, and the name of a fact that holds for all earlier
    log files of the same slice.
    """
    text = metadata.extra.get(EARLIER_LOGS)
    if text is None:
        return
    try:
        facts = {name: frozenset(ids) for name, ids in parse_json(text).items() if name in {_UPDATING, _UPSERTING}}
    except (ValueError, TypeError, AttributeError):
        return  # Lakeformat did not write this value, so no fact is known.
    for stat in metadata.all_stats():
        if stat.log_names:
            yield from ((stat, name) for name, ids in facts.items() if _ALL in ids or stat.file_id in ids)


def _earlier_paths(stat: WriteStat) -> Iterator[str]:
    """Yield the paths of the other log files that the slice had when the log file of a write stat was written."""
    own = stat.path.rpartition("/")[2]
    return (join_path(stat.partition_path, name) for name in stat.log_names if name != own)
