"""The choice of commits to keep readable, and of files to delete. Pure (Hudi: ``CleanPlanner``, ``CleanerUtils``).

Which slices of a file group stay depends on the policy:

- Commits or hours: the slices that began at the earliest commit to retain or later, and the newest slice before that
  commit, because a reader of that commit needs it.
- Versions: a fixed number of the newest slices.

Under every policy, these stay: slices that a savepoint names, files that cannot be assigned to a slice, and, if the
file group is not replaced, its newest slice and the slices that a pending compaction reads. If the file group is
replaced, all of its slices are deleted at once, except those that a savepoint names. If the policy is commits or hours,
they are deleted only if the commit that replaced the group is before the earliest commit to retain.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final, Protocol

from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import CLEAN_POLICY, COMMITS_RETAINED, HOURS_RETAINED, VERSIONS_RETAINED
from lakeformat.errors import InvalidInputError
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, format_instant_time
from lakeformat.public import public
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "CleanedFile",
    "DeleteConstraints",
    "FilesToDelete",
    "ListedFile",
    "PartitionFiles",
    "Policy",
    "Retention",
    "Slice",
    "choose_files",
    "choose_retention",
    "find_earliest_to_retain",
]

_HOUR_MS: Final = 3_600_000
#: Actions that restrict a clean: if one of them is pending, the last commit before it and all later commits stay
#: readable, because the pending write may read files of that commit. Compaction is not in the set, because cleaning
#: keeps the slices that a pending compaction reads in any case.
_AWAITED: Final = COMMIT_ACTIONS | {Action.CLUSTERING}


class Policy(str, enum.Enum):
    """Cleaning policy (Hudi: ``HoodieCleaningPolicy``)."""

    COMMITS = "KEEP_LATEST_COMMITS"
    HOURS = "KEEP_LATEST_BY_HOURS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


_COUNTED: Final = {
    Policy.COMMITS: COMMITS_RETAINED,
    Policy.HOURS: HOURS_RETAINED,
    Policy.VERSIONS: VERSIONS_RETAINED,
}


@dataclass(frozen=True, slots=True)
class Retention:
    """How many commits, hours or file versions a clean keeps.

    Attributes:
        policy: what is counted.
        count: number of commits, of hours, or of slices of each file group to keep.
    """

    policy: Policy
    count: int


def choose_retention(
    options: Options, commits: int | None = None, hours: int | None = None, versions: int | None = None
) -> Retention:
    """Return the retention of ``commits``, ``hours`` or ``versions``, whichever is not None; else that of the options.

    Raises:
        InvalidInputError: more than one argument is given, or a count is below 1.
    """
    arguments = {Policy.COMMITS: commits, Policy.HOURS: hours, Policy.VERSIONS: versions}
    given = {policy: count for policy, count in arguments.items() if count is not None}
    if len(given) > 1:
        raise InvalidInputError("a clean keeps commits, hours or versions; give one of them")
    for policy, count in given.items():
        if count < 1:
            raise InvalidInputError(f"a clean keeps at least 1, not {count}; give a number from 1 up")
        return Retention(policy, count)
    policy = Policy(options[CLEAN_POLICY])
    return Retention(policy, options[_COUNTED[policy]])


def find_earliest_to_retain(
    timeline: Timeline, retention: Retention, now_ms: int, zone: tzinfo | None
) -> Instant | None:
    """Return the oldest commit that stays readable.

    Return None if the policy is versions, or if no commit becomes unreadable.

    Never returns a commit after the oldest pending write: the commit that this write started from stays readable.
    Source: Hudi's ``CleanerUtils.getEarliestCommitToRetain``.

    Args:
        now_ms: current time in milliseconds since the epoch.
        zone: time zone of the timeline's instant times; None is the zone of this process.
    """
    if retention.policy is Policy.VERSIONS:
        return None
    commits = timeline.commits
    if retention.policy is Policy.COMMITS:
        earliest = commits[-retention.count] if len(commits) > retention.count else None
    else:
        since = format_instant_time(now_ms - retention.count * _HOUR_MS, zone)
        earliest = next((commit for commit in commits if commit.time >= since), None)
    pending = next((instant.time for instant in timeline.pending if instant.action in _AWAITED), None)
    if earliest is None or pending is None or earliest.time <= pending:
        return earliest
    return max((commit for commit in commits if commit.time < pending), default=None)


class ListedFile(Protocol):
    """A file in a folder's listing. On a disk its size is looked up when it is first asked for."""

    @property
    def path(self) -> str:
        """Return the path, relative to the table."""

    @property
    def name(self) -> str:
        """Return the file name without its folder."""

    @property
    def size_bytes(self) -> int:
        """Return the size in bytes."""


@public
@dataclass(frozen=True, slots=True)
class CleanedFile:
    """A file to delete: its path, relative to the table, and its size in bytes."""

    path: str
    size_bytes: int

    @property
    def name(self) -> str:
        """Return the file name without its folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Slice:
    """All files of one file slice (base file, log files, change data), and the slice's base instant."""

    instant: str
    files: tuple[ListedFile, ...]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """Contents of one partition's folder.

    Attributes:
        groups: maps file id to the group's committed slices, newest first.
        others: number of entries that belong to no slice, such as files of pending writes. If there are
            any, the folder is not removed.
    """

    path: str
    groups: Mapping[str, Sequence[Slice]]
    others: int = 0


@dataclass(frozen=True, slots=True)
class DeleteConstraints:
    """Restrictions on deleting files, read from the timeline.

    Attributes:
        replaced: maps each replaced file group to the instant time of the commit that replaced it.
        saved: maps partition path to the names of files that savepoints name.
        compacting: maps file group to the base instant of the oldest slice that a pending compaction reads.
    """

    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    saved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    compacting: Mapping[FileGroupId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilesToDelete:
    """Files to delete in one partition.

    Attributes:
        is_whole: whether the deletion leaves no other file in the partition, so that its folder is removed too.
    """

    path: str
    files: tuple[CleanedFile, ...]
    is_whole: bool


def choose_files(
    partition: PartitionFiles, retention: Retention, earliest: str | None, constraints: DeleteConstraints
) -> FilesToDelete:
    """Choose the files of a partition to delete.

    Args:
        earliest: time of the earliest commit to retain; None if the policy is versions.
    """
    saved = constraints.saved.get(partition.path, frozenset())
    doomed: list[CleanedFile] = []
    remaining = partition.others
    for file_id, slices in partition.groups.items():
        group = FileGroupId(partition.path, file_id)
        replaced = constraints.replaced.get(group)
        unsaved = [piece for piece in slices if not any(file.name in saved for file in piece.files)]
        dropped: Sequence[Slice]
        if replaced is not None:
            dropped = unsaved if earliest is None or replaced < earliest else []
        elif retention.policy is Policy.VERSIONS:
            dropped = _choose_old_versions(unsaved, retention.count, constraints.compacting.get(group))
        else:
            dropped = _before(slices, unsaved, earliest or "", constraints.compacting.get(group))
        doomed += (CleanedFile(file.path, file.size_bytes) for piece in dropped for file in piece.files)
        remaining += len(slices) - len(dropped)
    return FilesToDelete(partition.path, tuple(doomed), bool(doomed and partition.path and not remaining))


def _choose_old_versions(slices: Sequence[Slice], count: int, compacting: str | None) -> Sequence[Slice]:
    """Return the slices that are older than the newest ``count`` slices.

    If a pending compaction reads slices of the group, these slices and all newer slices stay, and count as one version.

    Args:
        slices: slices without files that a savepoint names, newest first.
        compacting: base instant of the oldest slice that a pending compaction reads; None if there is none.
    """
    if compacting is not None:
        slices = [piece for piece in slices if piece.instant < compacting]
        count -= 1
    return slices[count:]


def _before(slices: Sequence[Slice], unsaved: Sequence[Slice], earliest: str, compacting: str | None) -> list[Slice]:
    needed = next((piece.instant for piece in slices if piece.instant < earliest), "")
    least = min(needed, compacting or needed)
    return [piece for piece in unsaved if piece.instant < least]
