"""The steps of the benchmark, the interface of its engines, and the engines by name.

This module imports only the standard library, because each engine's environment loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from benchmarks.engines import ENGINES as OTHERS
from benchmarks.engines import EngineSpec

__all__ = ["ENGINES", "FILE_BYTES", "KEYS", "KEY_COLUMNS", "STEPS", "WRITTEN", "LineitemEngine", "Step"]

KEY_COLUMNS: Final = ("l_orderkey", "l_linenumber")
#: The orders of rows and keys, see `benchmarks.lineitem.data`.
KEYS: Final = ("time", "random")
#: The size of a data file that every engine aims at if it has such an option: Hudi's default.
FILE_BYTES: Final = 120 << 20
#: The figure of a step's bytes.
WRITTEN: Final = "bytes written"


@dataclass(frozen=True, slots=True)
class Step:
    """A step calls one method of an engine, with a file of the data or with a range of days."""

    name: str
    title: str
    method: str
    rows: str = ""
    days: tuple[str, str] | None = None

    def condition(self) -> str:
        """Return the SQL condition of the rows to delete."""
        first, end = self.days or ("", "")
        return f"l_shipdate >= date '{first}' and l_shipdate < date '{end}'"


#: All steps, in the order in which they change the table. The merges come last, since not every engine ends them.
STEPS: Final = (
    Step("load", "load into a new table", "load", "base"),
    Step("append", "append 5 %", "append", "append"),
    Step("overwrite", "overwrite the whole table", "overwrite", "base"),
    Step("delete-day", "delete one day", "delete", days=("1994-07-15", "1994-07-16")),
    Step("delete-month", "delete one month", "delete", days=("1995-03-01", "1995-04-01")),
    Step("merge1", "merge 1 %, half updates, half inserts", "merge", "merge1"),
    Step("merge5", "merge 5 %, updates only", "merge", "merge5"),
    Step("cdc", "CDC batch of 1 %: updates, inserts, deletes", "cdc", "cdc"),
)


class LineitemEngine(Protocol):
    """The methods of an engine. Each reads its rows from a Parquet file itself; this reading is part of the step."""

    def load(self, rows: Path) -> None:
        """Create the table with these rows."""

    def append(self, rows: Path) -> None:
        """Add rows whose keys are new."""

    def overwrite(self, rows: Path) -> None:
        """Replace the contents of the table."""

    def delete(self, step: Step) -> None:
        """Delete the rows of the step's days."""

    def merge(self, rows: Path) -> None:
        """Replace rows of equal key and insert the others."""

    def cdc(self, rows: Path) -> None:
        """Apply changes: the column ``op`` is I for an insert, U for an update, D for a delete."""

    def content(self) -> list[int]:
        """Return the number of rows, the sum of ``l_extendedprice`` in cents, and the sum of ``l_orderkey``."""

    def versions(self) -> dict[str, str]:
        """Return the names and versions of the measured packages."""

    def close(self) -> None:
        """End the session."""


def _spec(name: str, module: str, title: str = "", venv: str = "", requirements: tuple[str, ...] = ()) -> EngineSpec:
    """Return an engine with all steps, in the environment of the engine of that name in `benchmarks.engines`."""
    other = OTHERS.get(name)
    if other:
        title, venv, requirements = other.title, other.venv, other.requirements
    return EngineSpec(name, title, module, tuple(step.name for step in STEPS), venv, requirements)


_PYICEBERG: Final = ("pyiceberg[sql-sqlite,pyarrow]>=0.10", "pyarrow", "numpy")
#: The newest DuckDB for which a package brings the extension, so that nothing is downloaded past the registry.
_DUCKLAKE: Final = ("duckdb==1.4.4", "duckdb-ext-ducklake==1.4.4.20260205", "pyarrow", "numpy")

ENGINES: Final = {
    spec.name: spec
    for spec in (
        _spec("lakeformat", "lakeformat_python"),
        _spec("delta-rs", "delta_rs"),
        _spec("pyiceberg", "py_iceberg", "pyiceberg", ".venv-pyiceberg", _PYICEBERG),
        _spec("ducklake", "ducklake", "DuckLake", ".venv-ducklake", _DUCKLAKE),
        _spec("delta", "spark_delta"),
        _spec("iceberg", "spark_iceberg"),
        _spec("hudi", "spark_hudi"),
    )
}
