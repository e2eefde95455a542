"""Staged rows after the key lookup of a shuffled write, as the driver describes them to the tasks that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.write.rows.prepare import ANY_PARTITION, PrepareSettings
from lakeformat.write.rows.stage import StagedTask, rows_by_partition
from lakeformat.write.tagging.resolve_tasks import FoundSlice, ResolvedTask
from lakeformat.write.tagging.tag_units import TagFile
from lakeformat.write.workload.shuffle_plan import TagResult, TagUnit

__all__ = ["TaggedStage", "join_resolved", "list_found_slices", "list_hashed_slices", "tag_files_by_stage"]


@dataclass(frozen=True)
class TaggedStage:
    """Staged rows whose keys have been looked up.

    Attributes:
        stage_tasks: the stage files.
        tag_files: for each stage file, the files in which the key lookup has recorded the file slices of its rows.
        units: the units of the lookup; of a global index one for each partition that gets rows.
        results: the result of each unit.
        prepare: the settings that name the columns of the staged rows.
        is_resolved: whether the rows have been combined, and have got their partitions from a global index.
    """

    stage_tasks: Sequence[StagedTask]
    tag_files: tuple[tuple[TagFile, ...], ...]
    units: Sequence[TagUnit]
    results: Sequence[TagResult]
    prepare: PrepareSettings
    is_resolved: bool = False


def tag_files_by_stage(
    stages: int, units: Sequence[TagUnit], results: Sequence[TagResult]
) -> tuple[tuple[TagFile, ...], ...]:
    """Return for each of ``stages`` stage files the tag files that the units have written about its rows."""
    tags: list[list[TagFile]] = [[] for _ in range(stages)]
    for unit, result in zip(units, results, strict=True):
        batches: dict[int, list[int]] = {}
        for number, stage in enumerate(result.stages):
            batches.setdefault(stage, []).append(number)
        for stage, numbers in batches.items():
            tags[stage].append(TagFile(result.path, unit.partition_path, tuple(numbers)))
    return tuple(map(tuple, tags))


def join_resolved(resolved: Sequence[ResolvedTask], prepare: PrepareSettings) -> TaggedStage:
    """Return the rows that tasks have assigned to partitions, with one unit and one result for each partition.

    Args:
        prepare: the settings that name the columns of the rows.
    """
    hits: dict[str, dict[int, int]] = {}
    located: dict[str, int] = {}
    samples: dict[str, list[str]] = {}
    buckets: dict[str, dict[int, int]] = {}
    for part in (part for task in resolved for part in task.partitions):
        path = part.partition_path
        _add_counts(hits.setdefault(path, {}), part.hits)
        _add_counts(buckets.setdefault(path, {}), part.buckets)
        located[path] = located.get(path, 0) + part.located
        samples.setdefault(path, []).extend(part.sample)
    return TaggedStage(
        [task.staged for task in resolved],
        tuple(
            tuple(TagFile(task.tag_path, part.partition_path, (number,)) for number, part in enumerate(task.partitions))
            for task in resolved
        ),
        [TagUnit(path, path, (), 0, 0, exact=True) for path in hits],
        [TagResult("", (), hits[path], located[path], tuple(samples[path]), buckets=buckets[path]) for path in hits],
        prepare,
        is_resolved=True,
    )


def _add_counts(total: dict[int, int], more: Mapping[int, int]) -> None:
    for number, rows in more.items():
        total[number] = total.get(number, 0) + rows


def list_found_slices(tagged: TaggedStage, snapshot: Snapshot) -> tuple[FoundSlice, ...]:
    """Return the slices that hold keys of the input, numbered as `FoundSlice` says."""
    everywhere = [(path, number) for path, own in snapshot.slices.items() for number in range(len(own))]
    places: dict[int, tuple[str, int]] = {}
    for unit, result in zip(tagged.units, tagged.results, strict=True):
        for place in result.hits:
            if unit.partition_path == ANY_PARTITION:
                places[place] = everywhere[place]
            else:
                places[len(places)] = unit.partition_path, place
    pieces = {number: snapshot.slices[path][position] for number, (path, position) in places.items()}
    return tuple(
        FoundSlice(number, places[number][1], piece, snapshot.rewriting(piece))
        for number, piece in sorted(pieces.items())
    )


def list_hashed_slices(tagged: TaggedStage, snapshot: Snapshot) -> tuple[FoundSlice, ...]:
    """Return the slices of a bucket index that may hold keys of the input, numbered as `FoundSlice` says."""
    staged = rows_by_partition(tagged.stage_tasks)
    paths = snapshot.slices if ANY_PARTITION in staged else sorted(staged)
    pieces = [(number, piece) for path in paths for number, piece in enumerate(snapshot.slices.get(path, ()))]
    return tuple(FoundSlice(number, position, piece, None) for number, (position, piece) in enumerate(pieces))
