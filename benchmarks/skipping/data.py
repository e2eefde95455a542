"""Rows of known distributions, and boxes that filters select."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SEED: Final = 20251121
INPUT_FILES: Final = 8
NAMES: Final = ("a", "b", "c", "d")
#: The shares of the rows that boxes would hold if the columns were independent.
SELECTIVITIES: Final = (0.001, 0.01, 0.1)

Column = npt.NDArray[Any]
_ZIPF: Final = (1.5, 1.3, 2.0, 1.2)
_FOLLOWS: Final = (1.0, 1.0, -1.0, 0.5)


def _uniform(rng: np.random.Generator, rows: int, _: int) -> Column:
    return rng.integers(0, 1_000_000, rows)


def _doubles(rng: np.random.Generator, rows: int, at: int) -> Column:
    """Return the numbers of `_uniform` as doubles. Their boxes are the same, too."""
    return _uniform(rng, rows, at).astype(np.float64)


def _zipf(rng: np.random.Generator, rows: int, at: int) -> Column:
    return np.minimum(rng.zipf(_ZIPF[at], rows), 1_000_000_000)


def _correlated(rng: np.random.Generator, rows: int, at: int) -> Column:
    """Return a column that follows a hidden column. Each caller passes a generator with the same seed."""
    hidden = rng.normal(0, 1_000, rows)
    return hidden * _FOLLOWS[at] + np.random.default_rng([SEED, at]).normal(0, 150, rows)


KINDS: Final[Mapping[str, Callable[[np.random.Generator, int, int], Column]]] = {
    "uniform": _uniform,
    "doubles": _doubles,
    "zipf": _zipf,
    "correlated": _correlated,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One data set, which is laid out by all its columns ``a``, ``b``, …."""

    kind: str
    columns: int

    @property
    def name(self) -> str:
        """Return the name, such as ``zipf-4``."""
        return f"{self.kind}-{self.columns}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns of the layout."""
        return NAMES[: self.columns]

    @classmethod
    def parse(cls, name: str) -> Case:
        """Return the case of this name. Raise `ValueError` if there is none."""
        kind, _, columns = name.rpartition("-")
        if kind not in KINDS or columns not in {"2", "4"}:
            raise ValueError(f"no such case: {name}; cases are {', '.join(case.name for case in CASES)}")
        return cls(kind, int(columns))


CASES: Final = tuple(Case(kind, columns) for kind in KINDS for columns in (2, 4))


def columns_of(case: Case, rows: int) -> dict[str, Column]:
    """Return the values of the layout's columns by name."""
    make = KINDS[case.kind]
    shared = case.kind == "correlated"
    return {
        name: make(np.random.default_rng([SEED, 99 if shared else at]), rows, at) for at, name in enumerate(case.names)
    }


def write_input(case: Case, rows: int, folder: Path) -> None:
    """Write the rows as unordered Parquet files, with a key ``id`` and eight random bytes as payload."""
    folder.mkdir(parents=True, exist_ok=True)
    payload = np.random.default_rng([SEED, 7]).integers(0, 1 << 62, rows)
    table = pa.table({"id": np.arange(rows), **columns_of(case, rows), "payload": payload})
    step = -(-rows // INPUT_FILES)
    for file in range(INPUT_FILES):
        pq.write_table(table.slice(file * step, step), folder / f"part-{file}.parquet", compression="zstd")


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """Closed boxes; ``low`` and ``high`` have a row for each box and a column for each of ``names``."""

    what: str
    names: tuple[str, ...]
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]


def filters_of(case: Case, columns: Mapping[str, Column], count: int) -> list[Filters]:
    """Return ``count`` boxes on all columns for each of `SELECTIVITIES`, and ``count`` on each column that hold 1 %.

    A box lies around a random row. Its sides have the same width in rows, so they follow the distribution.
    """
    rng = np.random.default_rng([SEED, 3])
    ordered = {name: np.sort(column) for name, column in columns.items()}
    kinds = [(f"{100 * share:g} % of the rows", case.names, share) for share in SELECTIVITIES]
    kinds += [(f"1 % of {name} alone", (name,), 0.01) for name in case.names]
    return [_boxes(what, names, share, columns, ordered, count, rng) for what, names, share in kinds]


def _boxes(
    what: str,
    names: tuple[str, ...],
    share: float,
    columns: Mapping[str, Column],
    ordered: Mapping[str, Column],
    count: int,
    rng: np.random.Generator,
) -> Filters:
    rows = len(columns[names[0]])
    drawn = rng.integers(0, rows, count)
    width = share ** (1 / len(names))
    low, high = [], []
    for name in names:
        start = np.searchsorted(ordered[name], columns[name][drawn]) / rows - width * rng.random(count)
        start = np.clip(start, 0, 1 - width)
        low.append(ordered[name][(start * (rows - 1)).astype(np.int64)])
        high.append(ordered[name][((start + width) * (rows - 1)).astype(np.int64)])
    return Filters(what, names, np.stack(low, axis=1), np.stack(high, axis=1))
