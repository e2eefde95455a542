"""The number of files that filters read, by footers or by a reader, and the number of files that hold a match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import lakeformat
from benchmarks.skipping.data import Filters
from lakeformat.read.query import resolve_query
from lakeformat.read.run.session import plan_read

#: A function from a SQL condition to the number of files that it reads.
Reader: TypeAlias = Callable[[str], int]
_UNCUT: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Verdict:
    """Mean shares of the files for one kind of filters."""

    what: str
    read: float
    matching: float


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """The files of an engine: per file and column the bounds in the footer, and the values."""

    names: tuple[str, ...]
    rows: int
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    values: tuple[npt.NDArray[Any], ...]

    def __len__(self) -> int:
        return len(self.low)

    def verdict(self, filters: Filters, reader: Reader | None = None) -> Verdict:
        """Judge these filters.

        Args:
            reader: returns how many files it opens; without it, the files whose bounds overlap the box count.

        Raises:
            ValueError: the reader opens fewer files than hold a match.
        """
        at = [self.names.index(name) for name in filters.names]
        read = matching = 0
        for low, high in zip(filters.low, filters.high, strict=True):
            touched = ((self.low[:, at] <= high) & (self.high[:, at] >= low)).all(axis=1)
            read += int(touched.sum()) if reader is None else reader(_condition(filters.names, low, high))
            for file in np.flatnonzero(touched).tolist():
                rows = self.values[file][:, at]
                matching += bool(((rows >= low) & (rows <= high)).all(axis=1).any())
        if read < matching:
            raise ValueError(f"{read} files are read of {matching} that hold a match of {filters.what}")
        pairs = len(filters.low) * len(self)
        return Verdict(filters.what, read / pairs, matching / pairs)


def _condition(names: Sequence[str], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> str:
    sides = zip(names, low.tolist(), high.tolist(), strict=True)
    return " and ".join(f"{name} >= {least!r} and {name} <= {most!r}" for name, least, most in sides)


def our_reader(table: Path) -> Reader:
    """Return a function that counts the files that our reader opens for a condition, according to its plan."""
    opened = lakeformat.open(str(table))
    snapshot = opened.snapshot()
    columns = snapshot.columns(str(table))

    def files_read(where: str) -> int:
        query = resolve_query(columns, opened.options, where=where)
        return plan_read(opened.context.storage, snapshot, query, split_bytes=_UNCUT).files_after_stats

    return files_read


def files_of(paths: Sequence[Path], names: tuple[str, ...]) -> Files:
    """Read footers and rows. Raise `ValueError` if a footer has no bounds, because such a file is always read."""
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda path: _one(path, names), paths))
    low, high, values = zip(*found, strict=True)
    return Files(names, sum(map(len, values)), np.stack(low), np.stack(high), values)


def _one(path: Path, names: tuple[str, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        leaves = [groups[0].column(at).path_in_schema for at in range(groups[0].num_columns)]
        statistics = [[group.column(leaves.index(name)).statistics for name in names] for group in groups]
        if not all(one is not None and one.has_min_max for group in statistics for one in group):
            raise ValueError(f"{path} has no bounds of {', '.join(names)} in its footer")
        rows = file.read(columns=list(names))
    low = np.min([[one.min for one in group] for group in statistics], axis=0)
    high = np.max([[one.max for one in group] for group in statistics], axis=0)
    return low, high, np.stack([rows[name].to_numpy() for name in names], axis=1)
