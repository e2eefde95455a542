"""The small commits, equal for every engine, and the measurements between them.

Of ten commits seven update twenty rows, one deletes twenty, one inserts them again, and one inserts twenty that the
next round deletes: the table keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

__all__ = ["PARTITION", "RECORD_KEY", "SCHEMA", "Commit", "Look", "commits", "first_rows"]

ROWS: Final = 20_000
PARTITIONS: Final = 4
CHANGED: Final = 20
RECORD_KEY: Final = "id"
PARTITION: Final = "part"
SCHEMA: Final = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True, slots=True)
class Commit:
    """One of the small commits."""

    verb: Literal["upsert", "insert", "delete"]
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Look:
    """The table after some commits: CPU seconds of each since the last look, files, instants, bytes of memory.

    ``opening`` is the CPU time of opening the table in a new process, None if the engine does not measure it.
    """

    commits: int
    seconds: list[float]
    opening: float | None
    files: int
    data_files: int
    instants: int
    memory: int


def first_rows(count: int = ROWS) -> pa.Table:
    """Return the first rows of the table."""
    return _rows(np.arange(count), 0)


def commits(count: int) -> Iterator[Commit]:
    """Yield the commits, the same for every engine."""
    rng = np.random.default_rng(7)
    away = rng.choice(ROWS, CHANGED, replace=False)
    for number in range(count):
        ids = rng.choice(ROWS, CHANGED, replace=False)
        fresh = np.arange(CHANGED) + ROWS + (number // 10) * CHANGED
        match number % 10:
            case 3:
                yield Commit("delete", _rows(away, number))
            case 6:
                yield Commit("insert", _rows(away, number))
            case 7:
                yield Commit("insert", _rows(fresh, number))
            case 9:
                yield Commit("delete", _rows(fresh, number))
            case _:
                yield Commit("upsert", _rows(ids, number))


def _rows(ids: np.ndarray[Any, Any], number: int) -> pa.Table:
    parts = [f"p{each % PARTITIONS}" for each in ids.tolist()]
    return pa.table([ids, parts, np.full(len(ids), number), [f"commit {number}"] * len(ids)], schema=SCHEMA)
