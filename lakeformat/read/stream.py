"""The choice of commits for each batch of a stream from a table (Hudi: ``HoodieStreamSourceV1`` and ``V2``).

A position is a point on the timeline in the unit of incremental queries: an instant time in layout 1, a completion time
in layout 2. A batch is the range of whole commits between two positions. In layout 1, no batch ends after a pending
commit that may still complete: the next batch would begin after this commit, and no batch would return its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lakeformat.config.read_options import BEGIN, END
from lakeformat.config.resolve import Options
from lakeformat.config.stream_options import START_OFFSET
from lakeformat.errors import InvalidOptionError
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.instant import Action, State, parse_as_of
from lakeformat.read.incremental import EVERYTHING, cut_before_hollow
from lakeformat.timeline.timeline import Timeline

__all__ = ["BEGINNING", "BatchEnd", "BatchLimits", "StreamPositions", "check_stream_options", "find_batch_end"]

#: Position before every commit.
BEGINNING: Final = "0" * 17
_LATEST: Final = "latest"
_NO_NEW_ROWS: Final = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The maximum size of a batch: commits, files that they wrote, and bytes of these files. None means no limit."""

    commits: int | None = None
    files: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, options: Options) -> BatchLimits:
        """Return the limits in the options."""
        return cls(options.read.batch_commits, options.read.batch_files, options.read.batch_bytes)

    @property
    def is_limited(self) -> bool:
        """Tell whether there is a limit."""
        return self != BatchLimits()

    def allow(self, commits: int, files: int, size_bytes: int) -> bool:
        """Tell whether a batch of this many commits, files and bytes is within the limits."""
        pairs = ((self.commits, commits), (self.files, files), (self.bytes, size_bytes))
        return all(most is None or has <= most for most, has in pairs)


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A completed commit with which a batch may end.

    Attributes:
        position: position of the commit.
        files, bytes: number of files that the commit wrote, and their total bytes. `BatchLimits` limits both.
    """

    position: str
    files: int
    bytes: int


def find_batch_end(start: str, candidates: Sequence[BatchEnd], limits: BatchLimits, earliest_retained: str = "") -> str:
    """Return the position at which the batch after ``start`` ends; ``start`` if there are no new commits.

    Args:
        candidates: commits after ``start``, in the order of their positions.
        limits: maximum size of the batch. The first commit may exceed it, because a batch has at least one commit.
        earliest_retained: oldest position at which the table can still be read as it was. The files of older positions
            may have been cleaned away, so a batch is extended to this position even beyond ``limits``.
    """
    end, commits, files, size_bytes = start, 0, 0, 0
    for candidate in candidates:
        commits, files, size_bytes = commits + 1, files + candidate.files, size_bytes + candidate.bytes
        if end > start and end >= earliest_retained and not limits.allow(commits, files, size_bytes):
            break
        end = candidate.position
    return end


def check_stream_options(options: Options) -> None:
    """Raise `InvalidOptionError` if an option has no meaning in a stream."""
    requested = options.read
    for name, value in (("as.of.instant", requested.as_of), (BEGIN, requested.begin), (END, requested.end)):
        if value is not None:
            raise InvalidOptionError(f"{name}={value} has no meaning in a stream; begin it by {START_OFFSET}")
    if requested.optimized:
        raise InvalidOptionError(
            "a stream gives the rows that commits wrote, so hoodie.datasource.query.type=read_optimized is not "
            "supported; leave it out"
        )


class StreamPositions:
    """The positions on the timeline between which the batches of one table's stream lie.

    `newest` and `next` list the timeline at each call.
    """

    def __init__(self, context: TableContext, options: Options) -> None:
        self._context, self._options = context, options

    @property
    def begins_now(self) -> bool:
        """Tell whether a stream without a checkpoint starts with the next new commit (offset ``latest``)."""
        return self._options.read.start.lower() == _LATEST

    def first(self) -> str:
        """Return the position at which a stream without a checkpoint starts."""
        requested = self._options.read.start
        if self.begins_now:
            return self.newest()
        if requested.lower() == EVERYTHING or not requested.strip("0"):
            return BEGINNING
        return parse_as_of(requested, self._context.store.config().zone, name=START_OFFSET)

    def newest(self) -> str:
        """Return the position of the last commit that can be read; `BEGINNING` if there is none."""
        completed = self._readable().completed_in("")
        return completed[-1].completed_at if completed else BEGINNING

    def next(self, start: str, limits: BatchLimits, until: str | None = None) -> str:
        """Return the position at which the batch after ``start`` ends; ``start`` if there are no new commits.

        Args:
            until: position at which the stream stops; None for no end.
        """
        readable = self._readable()
        if not (seen := readable.completed_in(start, until)):
            return start
        # A listing during a write may show a commit but miss an earlier one. The second listing shows the earlier one.
        readable, last = self._readable(), seen[-1].completed_at
        completed = [instant for instant in readable.completed_in(start, until) if instant.completed_at <= last]
        if not completed:
            return start
        if not limits.is_limited:
            return completed[-1].completed_at
        store, candidates = self._context.store, []
        for instant in completed:
            commit = store.read_commit(instant)
            stats = () if commit.compacted or commit.operation in _NO_NEW_ROWS else tuple(commit.all_stats())
            candidates.append(BatchEnd(instant.completed_at, len(stats), sum(stat.size_bytes for stat in stats)))
        return find_batch_end(start, candidates, limits, self._find_earliest_retained(readable))

    def _readable(self) -> Timeline:
        return cut_before_hollow(self._context, self._options, self._context.store.load())[0]

    def _find_earliest_retained(self, timeline: Timeline) -> str:
        """Return the oldest position at which all files of the table exist (Hudi: ``earliestCommitToRetain``)."""
        cleans = [i for i in timeline.of_action(Action.CLEAN) if i.state is State.COMPLETED]
        clean = self._context.store.read_clean(cleans[-1]) if cleans else None
        earliest = clean.earliest_commit_to_retain if clean else ""
        return timeline.completion_time(earliest) or earliest if earliest else ""
