"""Inserts in many small commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.engine import Answer, StepResult
from benchmarks.steps import FIRST_FIVE, LAST_FIVE, LIVE_FILES
from benchmarks.workload import COMMITS


def insert_in_commits(
    rows: pa.Table, insert: Callable[[pa.Table], Any], files: Callable[[], int], count: Callable[[], Answer]
) -> StepResult:
    """Insert the rows in `COMMITS` parts of the same size.

    Answer ``count()``, the table's number of rows afterwards.
    """
    part = rows.num_rows // COMMITS
    seconds = []
    for commit in range(COMMITS):
        started = time.perf_counter()
        insert(rows.slice(commit * part, part))
        seconds.append(time.perf_counter() - started)
    figures = {FIRST_FIVE: sum(seconds[:5]) / 5, LAST_FIVE: sum(seconds[-5:]) / 5, LIVE_FILES: files()}
    return StepResult(count(), figures)
