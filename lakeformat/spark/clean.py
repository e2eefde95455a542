"""Deleting what a clean no longer keeps on executors, where these are not this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakeformat.services.clean.run import Deleter, delete_here
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import ANSWER, Batches, answers, collected, cores, has_executors, numbered, numbers
from lakeformat.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkDeleter", "deleter_for"]

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
