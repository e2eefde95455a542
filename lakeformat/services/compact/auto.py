"""The rule for when file slices are compacted without a request. Pure.

A slice has outgrown its base file if it has many log files (`lakeformat.compact.auto.log.files`), or if they are larger
than both the base file and 64 MB. The newest commit's stats decide whether to search for such slices, so that most
commits need no listing of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakeformat.config.compaction_options import AutoCompaction
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.compaction import CompactionPlan
from lakeformat.model.instant import Action, Instant, State

__all__ = ["is_ours", "may_run", "may_show_outgrown"]

#: If a commit appends this many bytes to one slice, the slice's log files may be large.
_LARGE_APPEND_BYTES: Final = 4 << 20


def may_show_outgrown(commit: CommitMetadata, auto: AutoCompaction) -> bool:
    """Tell whether a slice that the commit appended to may have outgrown its base file."""
    return any(
        len(stat.log_names) >= auto.log_files or (stat.log_names and stat.size_bytes >= _LARGE_APPEND_BYTES)
        for stat in commit.all_stats()
    )


def may_run(pending: Iterable[tuple[Instant, CompactionPlan | None]]) -> bool:
    """Tell whether nothing is pending except automatic compaction plans that are not running.

    Args:
        pending: actions that have not completed; each compaction with its plan.
    """
    return all(
        one.action is Action.COMPACTION and one.state is State.REQUESTED and plan is not None and plan.is_auto
        for one, plan in pending
    )


def is_ours(commits: Iterable[CommitMetadata], mark: str) -> bool:
    """Tell whether lakeformat made all of the commits.

    Args:
        mark: the metadata key that every commit of lakeformat has.
    """
    return all(mark in commit.extra for commit in commits)
