"""Deleting what a clean no longer keeps on executors, where these are not this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lakeformat.services.clean.run import Deleter, delete_here
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import ANSWER, Batches, answers, collected, cores, has_executors, numbered, numbers
from lakeformat.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["deleter_for"]

#: Fewer files are not worth a job.
_FEW: Final = 1_000


def deleter_for(spark: SparkSession) -> Deleter:
    """Who deletes: tasks, if the files are many and the executors are elsewhere; else this process."""

    def delete(storage: Storage, paths: Sequence[str]) -> Mapping[str, str]:
        if len(paths) < _FEW or not has_executors(spark):
            return delete_here(storage, paths)
        tasks = min(cores(spark), -(-len(paths) // _FEW))
        parts = [list(paths[task::tasks]) for task in range(tasks)]

        def run(batches: Batches) -> Batches:
            with plain_errors():
                for task in numbers(batches):
                    yield from answers(_failures(delete_here(storage, parts[task])))

        return {answer["path"]: answer["why"] for answer in collected(numbered(spark, tasks, run, ANSWER))}

    return delete


def _failures(failed: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path, why in failed.items():
        yield {"path": path, "why": why}
