"""Which files of a partition nobody needs any more: pure (Hudi: ``CleanPlanner``).

By commits and by hours a slice stays if it began at the earliest commit to retain or later, or if it is the newest
before: the table at the earliest commit needs that one. By versions the newest few stay. A group that was replaced is
kept whole, or goes whole. The newest slice of a living group stays in any case, and so does what a savepoint names,
what a pending compaction reads, and every file of which nobody can tell the slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeformat.model.files import FileGroupId
from lakeformat.services.clean.retention import Policy, Retention

__all__ = ["CleanedFile", "Doomed", "PartitionFiles", "Pins", "Slice", "doomed_files"]


@dataclass(frozen=True, slots=True)
class CleanedFile:
    """A file that goes: its path, relative to the table, and bytes."""

    path: str
    size_bytes: int

    @property
    def name(self) -> str:
        """Without the folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Slice:
    """All files of one slice: base file, log files, change data."""

    instant: str
    files: tuple[CleanedFile, ...]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """What lies in one partition.

    Attributes:
        groups: file id -> its committed slices, newest first.
        others: entries of the folder that belong to no slice: files of pending writes, what is not ours.
    """

    path: str
    groups: Mapping[str, Sequence[Slice]]
    others: int = 0


@dataclass(frozen=True, slots=True)
class Pins:
    """What the timeline says of files.

    Attributes:
        replaced: group -> time of the replacecommit that hides it.
        saved: partition path -> bare names of the files that savepoints hold.
        compacting: group -> base instant of the oldest slice that a pending compaction reads.
    """

    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    saved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    compacting: Mapping[FileGroupId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Doomed:
    """What goes of one partition.

    Attributes:
        is_whole: nothing is left then, and the folder goes, too.
    """

    path: str
    files: tuple[CleanedFile, ...]
    is_whole: bool


def doomed_files(partition: PartitionFiles, retention: Retention, earliest: str | None, pins: Pins) -> Doomed:
    """What of a partition is not kept.

    Args:
        earliest: time of the earliest commit to retain; None by versions.
    """
    saved = pins.saved.get(partition.path, frozenset())
    going: list[CleanedFile] = []
    left = partition.others
    for file_id, slices in partition.groups.items():
        group = FileGroupId(partition.path, file_id)
        replaced = pins.replaced.get(group)
        unsaved = [each for each in slices if not any(file.name in saved for file in each.files)]
        gone: Sequence[Slice]
        if replaced is not None:
            gone = unsaved if earliest is None or replaced < earliest else []
        elif retention.policy is Policy.VERSIONS:
            gone = _beyond_versions(unsaved, retention.count, pins.compacting.get(group))
        else:
            gone = _before(slices, unsaved, earliest or "", pins.compacting.get(group))
        going += (file for each in gone for file in each.files)
        left += len(slices) - len(gone)
    return Doomed(partition.path, tuple(going), bool(going and partition.path and not left))


def _beyond_versions(slices: Sequence[Slice], count: int, compacting: str | None) -> Sequence[Slice]:
    """Savepointed slices do not count among those kept; what a compaction reads counts as one."""
    if compacting is not None:
        slices = [each for each in slices if each.instant < compacting]
        count -= 1
    return slices[count:]


def _before(slices: Sequence[Slice], unsaved: Sequence[Slice], earliest: str, compacting: str | None) -> list[Slice]:
    newest = slices[0].instant
    needed = next((each.instant for each in slices if each.instant < earliest), newest)
    least = min(earliest, needed, newest, compacting or earliest)
    return [each for each in unsaved if each.instant < least]
