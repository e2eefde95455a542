"""Compaction on executors: a task makes the base files of some slices, one after the other.

Rows never come to this process. Memory of a task: the log records of one slice, and two row groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from lakeformat.services.compact.rewrite import Compactor, CompactSettings, SliceToCompact, compact_here, compact_slice
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import (
    ANSWER,
    Batches,
    answers,
    attempt,
    bundled,
    collected,
    has_executors,
    numbered,
    numbers,
    written,
)
from lakeformat.table_state.engine import Engine
from lakeformat.transaction.written import Written
from lakeformat.write.rows.arrow_pool import reused_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCompactor", "compactor_for"]

#: Bytes of base and log files that one task reads, about.
_TASK_BYTES: Final = 64 << 20


class SparkCompactor:
    """Compacts slices as a Spark job; see `lakeformat.services.compact.rewrite.Compactor`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, engine: Engine, slices: Sequence[SliceToCompact], settings: CompactSettings) -> list[Written]:
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
