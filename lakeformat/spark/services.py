"""Table services that run on Spark's executors: cleaning, compaction and clustering. The driver reads no rows.

Under a local master there are no executors, so the services run in this process, without Spark jobs.

**Clean.** If there are more than `_FEW` files to delete, tasks delete them; otherwise the driver does.

**Compaction.** A task writes the base files of several file slices, one after the other. Memory of a task: the log
records of one slice, and two row groups.

**Clustering.** A task rewrites one or more small clustering groups. Three jobs rewrite a large group:

1. One task computes the sort order and its ranges from a sample.
2. Each of several tasks reads some of the files and writes their rows as sorted runs to the stage folder.
3. Tasks merge the runs of each range into base files.

Rows never go through the JVM. Memory of a task: the sort buffer of the settings divided by `_SHARE`.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lakeformat.file_system_view.context import TableContext
from lakeformat.services.after_write import Executors
from lakeformat.services.clean.run import delete_in_process
from lakeformat.services.cluster.group_source import SliceToCluster, open_group
from lakeformat.services.cluster.local_rewriter import Group, GroupRewriter
from lakeformat.services.cluster.rewrite import (
    CurveRanges,
    SpillFile,
    fit_ranges,
    merge_range,
    write_spill_file,
)
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.services.compact.rewrite import (
    CompactSettings,
    SliceToCompact,
    compact_slice,
)
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import (
    ANSWER,
    Batches,
    answer_rows,
    attempt_id,
    bundle_work,
    collect_answers,
    cores,
    group_tasks,
    has_executors,
    numbered_tasks,
    parse_written_file,
    task_numbers,
)
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.stage import Run
from lakeformat.write.workload.shuffle_plan import assign_to_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCompactor", "SparkDeleter", "SparkRewriter", "executors_of"]


def _run_tasks(
    spark: SparkSession,
    storage: Storage,
    what: str,
    tasks: Sequence[Sequence[int]],
    step: Callable[[int], Iterable[dict[str, Any]]],
) -> list[Any]:
    """Run a job, and return the rows that its tasks return, in any order. If there are no tasks, return [].

    Args:
        what: service and step, which Spark's UI shows.
        tasks: for each task the indexes of its work items.
        step: a function that gets the index of a work item, does the work, and returns rows.
    """
    if not tasks:
        return []

    def run(batches: Batches) -> Batches:
        with plain_errors(), reuse_memory():
            for task in task_numbers(batches):
                for number in tasks[task]:
                    yield from answer_rows(step(number))

    return collect_answers(numbered_tasks(spark, len(tasks), run, ANSWER), storage, what)


#: Maximum number of files that the driver deletes itself. For so few files a Spark job would take longer.
_FEW: Final = 1_000


@dataclass(frozen=True)
class SparkDeleter:
    """A deleter that deletes files in Spark tasks; see `lakeformat.services.clean.run.Deleter`.

    Attributes:
        few: maximum number of files that are deleted in this process, without a Spark job.
    """

    spark: SparkSession
    few: int = _FEW

    def __call__(self, storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete the files. Return a mapping of each path that could not be deleted to the reason."""
        if len(paths) <= self.few:
            return delete_in_process(storage, paths)
        count = min(cores(self.spark), -(-len(paths) // max(1, self.few)))
        parts = [list(paths[task::count]) for task in range(count)]

        def delete(number: int) -> Iterator[dict[str, Any]]:
            for path, why in delete_in_process(storage, parts[number]).items():
                yield {"path": path, "why": why}

        tasks = [[number] for number in range(count)]
        answers = _run_tasks(self.spark, storage, "clean: delete files", tasks, delete)
        return {answer["path"]: answer["why"] for answer in answers}


#: Target bytes of files that one task reads. A clustering group with more bytes is divided among several tasks.
_TASK_BYTES: Final = 64 << 20


class SparkCompactor:
    """A compactor that merges file slices in Spark tasks; see `lakeformat.services.compact.rewrite.Compactor`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(
        self, context: TableContext, slices: Sequence[SliceToCompact], settings: CompactSettings
    ) -> list[WrittenFile]:
        """Write a new base file for each slice into the folder that the settings name, and return the files."""
        storage = context.storage
        tasks = bundle_work(self._spark, [piece.file_slice.size_bytes for piece in slices], task_bytes=_TASK_BYTES)

        def merge(number: int) -> Iterator[dict[str, Any]]:
            named = replace(settings, write_token=f"{number}-{attempt_id()}")  # Unique for each attempt.
            yield asdict(compact_slice(storage, slices[number], named, threads=False))

        answers = _run_tasks(self._spark, storage, "compact: merge log files", tasks, merge)
        return [parse_written_file(answer) for answer in answers]


#: The size of the sort buffer in the settings is divided by this number. The size is meant for a whole process, but
#: several tasks share the memory of an executor.
_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class _Spill:
    """The work of one task: file slices of a clustering group, whose rows it writes as sorted runs.

    Attributes:
        group: index of the clustering group.
    """

    group: int
    slices: tuple[SliceToCluster, ...]


class SparkRewriter:
    """A rewriter that rewrites clustering groups in Spark tasks; see `lakeformat.services.cluster.run.Rewriter`.

    Args:
        task_bytes: target bytes of files that one task reads.
    """

    def __init__(self, spark: SparkSession, *, task_bytes: int = _TASK_BYTES) -> None:
        self._spark, self._task_bytes = spark, task_bytes

    def __call__(self, context: TableContext, groups: Sequence[Group], settings: RewriteSettings) -> list[WrittenFile]:
        """Write the new files of all groups into the folder that the settings name, and return the files."""
        settings = replace(settings, buffer_bytes=settings.buffer_bytes // _SHARE)
        sizes = [group.size_bytes for group in groups]
        divided = [number for number, size in enumerate(sizes) if size > self._task_bytes and settings.ordering.columns]
        whole = [number for number in range(len(groups)) if number not in set(divided)]
        written = self._whole(
            context.storage, {number: groups[number] for number in whole}, [sizes[number] for number in whole], settings
        )
        return [*written, *self._divided(context.storage, {number: groups[number] for number in divided}, settings)]

    def _whole(
        self, storage: Storage, groups: dict[int, Group], sizes: Sequence[int], settings: RewriteSettings
    ) -> list[WrittenFile]:
        numbers_ = [*groups]

        def rewrite(number: int) -> Iterator[dict[str, Any]]:
            named = _with_unique_token(settings, number)
            with ThreadPoolExecutor(1) as pool:
                worker = GroupRewriter(storage, named, pool, 1)
                yield from map(asdict, worker.run(str(numbers_[number]), groups[numbers_[number]]))

        return [
            parse_written_file(answer)
            for answer in _run_tasks(
                self._spark, storage, "cluster: rewrite small groups", self._bundled(sizes), rewrite
            )
        ]

    def _divided(self, storage: Storage, groups: dict[int, Group], settings: RewriteSettings) -> list[WrittenFile]:
        order, schema = [*groups], settings.files.schema

        def ranged(number: int) -> Iterator[dict[str, Any]]:
            group = groups[order[number]]
            fitted = fit_ranges(open_group(storage, group.partition_path, group.slices, schema, group.target), settings)
            yield {"group": order[number], "ranges": base64.b85encode(pickle.dumps(fitted)).decode()}

        sampled = _run_tasks(
            self._spark, storage, "cluster: sample ranges", [[number] for number in range(len(order))], ranged
        )
        ranges: dict[int, CurveRanges] = {
            place["group"]: pickle.loads(base64.b85decode(place["ranges"]))  # noqa: S301  A task of this job pickled it.
            for place in sampled
        }
        spills = [
            _Spill(number, tuple(group.slices[answer] for answer in ones))
            for number, group in groups.items()
            for ones in self._bundled([piece.file_slice.size_bytes for piece in group.slices])
        ]

        def spilled(number: int) -> Iterator[dict[str, Any]]:
            group = groups[spills[number].group]
            source = open_group(storage, group.partition_path, spills[number].slices, schema, group.target)
            path = f"{settings.folder}/spill-{number}-{attempt_id()}.arrow"
            runs = write_spill_file(source, spills[number].slices, ranges[spills[number].group], settings, path)
            yield {"group": spills[number].group, **asdict(runs)}

        runs: dict[int, list[SpillFile]] = {}
        for reply in _run_tasks(
            self._spark, storage, "cluster: sort into runs", [[number] for number in range(len(spills))], spilled
        ):
            found_runs = tuple(Run(**run) for run in reply["runs"])
            runs.setdefault(reply["group"], []).append(SpillFile(reply["path"], found_runs))
        parts = [(place, number) for place in groups for number in range(ranges[place].count)]
        weights = [_rows(runs[place], number) for place, number in parts]

        def merged(part: int) -> Iterator[dict[str, Any]]:
            place_of_group, number = parts[part]
            place = str(place_of_group), groups[place_of_group].partition_path
            named = _with_unique_token(settings, part)
            files = merge_range(storage, runs[place_of_group], place, number, ranges[place_of_group], named)
            yield from map(asdict, files)

        per_task = max((int(ranges_of.per_file) for ranges_of in ranges.values()), default=1)
        tasks = group_tasks(assign_to_tasks(weights, task_weight=per_task, at_least=cores(self._spark)))
        return [
            parse_written_file(answer)
            for answer in _run_tasks(self._spark, storage, "cluster: merge runs", tasks, merged)
        ]

    def _bundled(self, sizes: Sequence[int]) -> list[list[int]]:
        return bundle_work(self._spark, sizes, task_bytes=self._task_bytes)


def executors_of(spark: SparkSession) -> Executors:
    """Return functions that do the work of services on the executors, or in this process if there are no executors."""
    if not has_executors(spark):
        return Executors()
    return Executors(SparkRewriter(spark), SparkCompactor(spark), SparkDeleter(spark))


def _rows(spilled: Sequence[SpillFile], number: int) -> int:
    return sum(run.rows for spill in spilled for run in spill.runs if run.number == number)


def _with_unique_token(settings: RewriteSettings, number: int) -> RewriteSettings:
    """Return the settings with a write token that no other task attempt uses, so that its file names are unique.

    Args:
        number: number of the work item, which becomes a part of the token.
    """
    return replace(settings, write_token=f"{number}-{attempt_id()}")
