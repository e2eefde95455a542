"""When file slices are compacted without a word from the user. Pure.

A slice has outgrown its base file when its log files are many (`lakeformat.compact.auto.log.files`), or when they are
larger than the base file and than 64 MB. Whether to look for such slices is decided by what the newest commit says of
the slices that it wrote to, so that most commits cost no look at the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakeformat.config.compaction_options import AutoCompaction
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.compaction import CompactionPlan
from lakeformat.model.instant import Action, Instant, State

__all__ = ["is_ours", "may_run", "may_show_outgrown"]

#: A commit that appends so many bytes to one slice may have made its log files large.
_LARGE_APPEND_BYTES: Final = 4 << 20


def may_show_outgrown(commit: CommitMetadata, auto: AutoCompaction) -> bool:
    """Tell whether a slice that the commit appended to may have outgrown its base file."""
    return any(
        len(stat.log_names) >= auto.log_files or (stat.log_names and stat.size_bytes >= _LARGE_APPEND_BYTES)
        for stat in commit.all_stats()
    )


def may_run(pending: Iterable[tuple[Instant, CompactionPlan | None]]) -> bool:
    """Tell whether nothing is pending but plans that slices made by themselves and that nobody runs.

    Args:
        pending: actions that have not completed, compactions with their plans.
    """
    return all(
        one.action is Action.COMPACTION and one.state is State.REQUESTED and plan is not None and plan.is_auto
        for one, plan in pending
    )


def is_ours(commits: Iterable[CommitMetadata], mark: str) -> bool:
    """Tell whether lakeformat made all of the commits.

    Args:
        mark: the key of the metadata that each commit of lakeformat has.
    """
    return all(mark in commit.extra for commit in commits)
