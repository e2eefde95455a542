"""Steps of many upserts into a table of its own: with reads and one compaction, or commits alone."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from benchmarks.engine import StepResult
from benchmarks.steps import COMPACTING, EARLY_COMMITS, LATE_COMMITS, READING, UPSERTING
from benchmarks.workload import DELTACOMMITS, ROUNDS, Dataset

#: The commits whose median counts as the fifth and as the last; a single commit varies too much.
_EARLY = slice(2, 7)
_LATE = slice(-5, None)
#: By default a merge-on-read table compacts its slices during writes, and a commit would include a compaction.
_UNCOMPACTED: Final = MappingProxyType({"hoodie.compact.inline": "false"})


class InRounds:
    """The steps ``u20`` and ``dc50`` for an engine that has the other steps."""

    #: Options that upserts add to those of the table.
    write_options: Mapping[str, str] = MappingProxyType({})
    _dataset: Dataset
    _table: Path

    def u20(self, rows: Path) -> StepResult:
        """Do `ROUNDS` upserts, each followed by a read of all columns or of two (in turn), then one compaction."""
        other = self._beside("u20")
        writing = reading = compacting = 0.0
        for number, part in enumerate(_parts(rows, ROUNDS, other._table)):
            writing += _seconds(lambda part=part: other.upsert(part))
            reading += _seconds(other.agg if number % 2 else other.scan)
        if hasattr(other, "compact"):
            compacting = _seconds(other.compact)
        figures = {UPSERTING: writing, READING: reading, COMPACTING: compacting}
        return StepResult(other.content().rows, figures, writing + reading + compacting)

    def dc50(self, rows: Path) -> StepResult:
        """Do `DELTACOMMITS` upserts without compaction."""
        other = self._beside("dc50")
        other.write_options = _UNCOMPACTED
        seconds = [_seconds(lambda part=part: other.upsert(part)) for part in _parts(rows, DELTACOMMITS, other._table)]
        figures = {
            EARLY_COMMITS: statistics.median(seconds[_EARLY]),
            LATE_COMMITS: statistics.median(seconds[_LATE]),
        }
        return StepResult(other.content().rows, figures, sum(seconds))

    def _beside(self, name: str) -> Any:
        """Return the same engine on a new table with the base rows."""
        other: Any = type(self)(self._dataset, self._table.with_name(name))  # type: ignore[call-arg]
        other.load(other._table)
        return other


def _parts(rows: Path, count: int, table: Path) -> list[Path]:
    """Split the sample into ``count`` files, each with its share of updates and of new keys."""
    folder = table.with_name(f"{table.name}-parts")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    whole = pq.read_table(rows)
    paths = [folder / f"{part:03d}.parquet" for part in range(count)]
    for part, path in enumerate(paths):
        pq.write_table(whole.take(np.arange(part, whole.num_rows, count)), path, compression="zstd")
    return paths


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
