"""Deleting what a clean no longer keeps on executors, where these are not this process.

Compaction on executors: a task makes the base files of some slices, one after the other.

Rows never come to this process. Memory of a task: the log records of one slice, and two row groups.

Clustering on executors: small groups one task each, large ones divided into ranges of their order.

Under a local master the executors are this process's own cores: it rewrites the groups itself.

A large group takes three jobs: its curve and ranges are made from a sample; tasks sort its files into runs, some files
each; tasks merge the runs of a range into base files. Rows go through the stage folder and never through the JVM.
Memory of a task: a share of the sort buffer.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lakeformat.file_system_view.context import Engine
from lakeformat.services.clean.run import Deleter, delete_here
from lakeformat.services.cluster.local_rewriter import Group, GroupRewrite, rewrite_here
from lakeformat.services.cluster.rewrite import Ranges, SliceToCluster, Spilled, divide, merge_range, open_group, spill
from lakeformat.services.cluster.run import Rewriter
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.services.compact.rewrite import Compactor, CompactSettings, SliceToCompact, compact_here, compact_slice
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import (
    ANSWER,
    Batches,
    answers,
    attempt,
    bundled,
    collected,
    cores,
    grouped,
    has_executors,
    numbered,
    numbers,
    written,
)
from lakeformat.storage.port import Storage
from lakeformat.transaction.written_file import WrittenFile
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.stage import Run
from lakeformat.write.workload.shuffle_plan import bundle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCompactor", "SparkDeleter", "SparkRewriter", "compactor_for", "deleter_for", "rewriter_for"]

#: Fewer files are not worth a task.
_FEW: Final = 1_000


@dataclass(frozen=True)
class SparkDeleter:
    """Deletes files in tasks; see `lakeformat.services.clean.run.Deleter`.

    Attributes:
        few: so many files, or fewer, this process deletes itself.
    """

    spark: SparkSession
    few: int = _FEW

    def __call__(self, storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        """Those that are still there, with why."""
        if len(paths) <= self.few:
            return delete_here(storage, paths)
        tasks = min(cores(self.spark), -(-len(paths) // max(1, self.few)))
        parts = [list(paths[task::tasks]) for task in range(tasks)]

        def run(batches: Batches) -> Batches:
            with plain_errors():
                for task in numbers(batches):
                    failed = delete_here(storage, parts[task])
                    yield from answers({"path": path, "why": why} for path, why in failed.items())

        frame = numbered(self.spark, tasks, run, ANSWER)
        return {answer["path"]: answer["why"] for answer in collected(frame, storage, "clean: delete files")}


def deleter_for(spark: SparkSession) -> Deleter:
    """Executors, where there are any; else this process."""
    return SparkDeleter(spark) if has_executors(spark) else delete_here


#: Bytes of base and log files that one task reads, about.
_TASK_BYTES: Final = 64 << 20


class SparkCompactor:
    """Compacts slices as a Spark job; see `lakeformat.services.compact.rewrite.Compactor`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, engine: Engine, slices: Sequence[SliceToCompact], settings: CompactSettings) -> list[WrittenFile]:
        """The new base files of all slices, in the settings' folder."""
        storage = engine.storage
        tasks = bundled(self._spark, [one.piece.size_bytes for one in slices], task_bytes=_TASK_BYTES)
        if not tasks:
            return []

        def run(batches: Batches) -> Batches:
            with plain_errors(), reused_memory():
                for task in numbers(batches):
                    for at in tasks[task]:
                        named = replace(settings, write_token=f"{at}-{attempt()}")  # No other attempt has it.
                        yield from answers([asdict(compact_slice(storage, slices[at], named, threads=False))])

        frame = numbered(self._spark, len(tasks), run, ANSWER)
        return [written(answer) for answer in collected(frame, storage, "compact: merge log files")]


def compactor_for(spark: SparkSession) -> Compactor:
    """Executors, where there are any; else this process."""
    return SparkCompactor(spark) if has_executors(spark) else compact_here


#: Bytes of files that one task reads; a group of more is divided.
#: Share of the sort buffer that a task has.
_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class _Spill:
    """Some slices of a group that one task sorts into runs."""

    group: int
    slices: tuple[SliceToCluster, ...]


class SparkRewriter:
    """Rewrites clustering groups as Spark jobs; see `lakeformat.services.cluster.run.Rewriter`.

    Args:
        task_bytes: files that one task reads, about.
    """

    def __init__(self, spark: SparkSession, *, task_bytes: int = _TASK_BYTES) -> None:
        self._spark, self._task_bytes = spark, task_bytes

    def __call__(self, engine: Engine, groups: Sequence[Group], settings: RewriteSettings) -> list[WrittenFile]:
        """The new files of all groups, in the settings' folder."""
        settings = replace(settings, buffer_bytes=settings.buffer_bytes // _SHARE)
        sizes = [group.size_bytes for group in groups]
        divided = [at for at, size in enumerate(sizes) if size > self._task_bytes and settings.ordering.columns]
        whole = [at for at in range(len(groups)) if at not in set(divided)]
        found = self._whole(engine.storage, {at: groups[at] for at in whole}, [sizes[at] for at in whole], settings)
        return [*found, *self._divided(engine.storage, {at: groups[at] for at in divided}, settings)]

    def _run(
        self,
        storage: Storage,
        what: str,
        tasks: Sequence[Sequence[int]],
        step: Callable[[int], Iterable[dict[str, Any]]],
    ) -> list[Any]:
        """Answers of all steps, some steps a task, in no order."""
        if not tasks:
            return []

        def run(batches: Batches) -> Batches:
            with plain_errors(), reused_memory():
                for task in numbers(batches):
                    for at in tasks[task]:
                        yield from answers(step(at))

        return collected(numbered(self._spark, len(tasks), run, ANSWER), storage, f"cluster: {what}")

    def _whole(
        self, storage: Storage, groups: dict[int, Group], sizes: Sequence[int], settings: RewriteSettings
    ) -> list[WrittenFile]:
        numbers_ = [*groups]

        def rewrite(at: int) -> Iterator[dict[str, Any]]:
            named = _named(settings, at)
            with ThreadPoolExecutor(1) as pool:
                worker = GroupRewrite(storage, named, pool, 1)
                yield from map(asdict, worker.run(str(numbers_[at]), groups[numbers_[at]]))

        return [written(answer) for answer in self._run(storage, "rewrite small groups", self._bundled(sizes), rewrite)]

    def _divided(self, storage: Storage, groups: dict[int, Group], settings: RewriteSettings) -> list[WrittenFile]:
        order, schema = [*groups], settings.files.schema

        def ranged(at: int) -> Iterator[dict[str, Any]]:
            group = groups[order[at]]
            found = divide(open_group(storage, group.partition_path, group.slices, schema), settings)
            yield {"group": order[at], "ranges": base64.b85encode(pickle.dumps(found)).decode()}

        found = self._run(storage, "sample ranges", [[at] for at in range(len(order))], ranged)
        ranges: dict[int, Ranges] = {
            one["group"]: pickle.loads(base64.b85decode(one["ranges"]))  # noqa: S301  Our own task's.
            for one in found
        }
        spills = [
            _Spill(at, tuple(group.slices[one] for one in ones))
            for at, group in groups.items()
            for ones in self._bundled([one.piece.size_bytes for one in group.slices])
        ]

        def spilled(at: int) -> Iterator[dict[str, Any]]:
            group = groups[spills[at].group]
            source = open_group(storage, group.partition_path, spills[at].slices, schema)
            path = f"{settings.folder}/spill-{at}-{attempt()}.arrow"
            runs = spill(source, spills[at].slices, ranges[spills[at].group], settings, path)
            yield {"group": spills[at].group, **asdict(runs)}

        runs: dict[int, list[Spilled]] = {}
        for one in self._run(storage, "sort into runs", [[at] for at in range(len(spills))], spilled):
            found_runs = tuple(Run(**run) for run in one["runs"])
            runs.setdefault(one["group"], []).append(Spilled(one["path"], found_runs))
        parts = [(at, number) for at in groups for number in range(ranges[at].count)]
        weights = [_rows(runs[at], number) for at, number in parts]

        def merged(part: int) -> Iterator[dict[str, Any]]:
            at, number = parts[part]
            place = str(at), groups[at].partition_path
            named = _named(settings, part)
            files = merge_range(storage, runs[at], place, number, ranges[at], named)
            yield from map(asdict, files)

        per_task = max((int(one.per_file) for one in ranges.values()), default=1)
        tasks = grouped(bundle(weights, task_weight=per_task, at_least=cores(self._spark)))
        return [written(answer) for answer in self._run(storage, "merge runs", tasks, merged)]

    def _bundled(self, sizes: Sequence[int]) -> list[list[int]]:
        return bundled(self._spark, sizes, task_bytes=self._task_bytes)


def rewriter_for(spark: SparkSession) -> Rewriter:
    """Executors, where there are any; else this process."""
    return SparkRewriter(spark) if has_executors(spark) else rewrite_here


def _rows(spilled: Sequence[Spilled], number: int) -> int:
    return sum(run.rows for one in spilled for run in one.runs if run.number == number)


def _named(settings: RewriteSettings, number: int) -> RewriteSettings:
    """Names of files that no other attempt makes."""
    return replace(settings, write_token=f"{number}-{attempt()}")
