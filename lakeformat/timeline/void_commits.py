"""Void commits: empty commits that hold the names of the completed files of undone commits.

On storage without locks, a late request could create the completed file of an undone commit again. A void commit takes
the name, so that the request fails. lakeformat does not count it as a commit (`Timeline.voids`): files with its instant
time, which late requests may create too, are as invisible as those of an instant that was rolled back.

A void commit is found without further requests: the size of its file is a multiple of `VOID_BYTES`, and the listing of
the timeline gives the sizes. Only files of such a size are read. By chance one commit in 16,384 has such a size.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Final

from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import LogFileName
from lakeformat.timeline.timeline_layout import TimelineLayout

__all__ = ["VOID_BYTES", "VOID_KEY", "encode_void", "is_void", "list_logs", "may_be_void"]

#: Key of ``extraMetadata`` that marks a void commit. Its value fills the file up to its size.
VOID_KEY: Final = "lakeformat.void"
#: Key of ``extraMetadata``: in layout 1, the paths of the undone commit's log files, one per line. Their names do not
#: show that the commit wrote them.
_LOGS_KEY: Final = "lakeformat.void.logs"
#: The size in bytes of the file of a void commit is a multiple of this.
VOID_BYTES: Final = 1 << 14
#: Maximum number of attempts to fill up a file: Avro's own lengths grow with the text.
_TRIES: Final = 4


def may_be_void(size_bytes: int) -> bool:
    """Tell whether a completed file of this size may be a void commit."""
    return size_bytes > 0 and size_bytes % VOID_BYTES == 0


def is_void(metadata: CommitMetadata) -> bool:
    """Tell whether a completed commit is a void commit."""
    return VOID_KEY in metadata.extra


def list_logs(metadata: CommitMetadata) -> tuple[str, ...]:
    """Return the paths of the log files that a late request may create and whose names do not show the undone commit.

    Args:
        metadata: the undone commit, or its void commit.
    """
    if is_void(metadata):
        return tuple(metadata.extra.get(_LOGS_KEY, "").splitlines())
    return tuple(stat.path for stat in metadata.all_stats() if LogFileName.match(stat.path.rpartition("/")[2]))


def encode_void(
    layout: TimelineLayout, commit: CommitMetadata, schema: str, *, is_replace: bool, other_than: int = 0
) -> bytes:
    """Encode the void commit that takes the place of a commit.

    Args:
        schema: the table's schema, which other programs read from the newest commit; "" if there is none.
        is_replace: whether the completed file is that of a replacecommit.
        other_than: a size that the result must not have, because readers tell files of one name by their sizes.
    """

    logs = "" if layout.has_completion_times and not is_void(commit) else "\n".join(list_logs(commit))
    kept = {key: text for key, text in (("schema", schema), (_LOGS_KEY, logs)) if text}

    def encode(length: int) -> bytes:
        extra = {VOID_KEY: "." * length, **kept}
        empty = replace(commit, stats={}, replaced={}, compacted=False, extra=extra)
        return layout.encode_commit(empty, replace=is_replace)

    least = len(encode(0))
    for size in count(-(-least // VOID_BYTES) * VOID_BYTES, VOID_BYTES):
        length = size - least
        for _ in range(_TRIES):
            data = encode(max(0, length))
            if len(data) == size != other_than:
                return data
            length += size - len(data)
    raise AssertionError("unreachable")
