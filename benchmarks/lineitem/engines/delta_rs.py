"""delta-rs (the ``deltalake`` package)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.lineitem.engines.arrow_rows import CONTENT_COLUMNS, content_of, stream
from benchmarks.lineitem.steps import FILE_BYTES, KEY_COLUMNS, Step

__all__ = ["DeltaRs", "open_engine"]

_SAME_ROW: Final = " and ".join(f"t.{name} = s.{name}" for name in KEY_COLUMNS)


class DeltaRs:
    """A Delta table; its property asks for files of 120 MB."""

    def __init__(self, table: Path) -> None:
        self._table = str(table)

    def load(self, rows: Path) -> None:
        write_deltalake(self._table, stream(rows), configuration={"delta.targetFileSize": str(FILE_BYTES)})

    def append(self, rows: Path) -> None:
        write_deltalake(self._table, pq.read_table(rows), mode="append")

    def overwrite(self, rows: Path) -> None:
        write_deltalake(self._table, stream(rows), mode="overwrite")

    def delete(self, step: Step) -> None:
        DeltaTable(self._table).delete(step.condition())

    def merge(self, rows: Path) -> None:
        self._merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()

    def cdc(self, rows: Path) -> None:
        columns = {name: f"s.{name}" for name in pq.read_schema(rows).names if name != "op"}
        merge = self._merge(rows).when_matched_delete("s.op = 'D'").when_matched_update(columns)
        merge.when_not_matched_insert(columns, "s.op <> 'D'").execute()

    def content(self) -> list[int]:
        return content_of(DeltaTable(self._table).to_pyarrow_dataset().to_table(columns=list(CONTENT_COLUMNS)))

    def versions(self) -> dict[str, str]:
        return {"deltalake": version("deltalake"), "pyarrow": pa.__version__}

    def close(self) -> None:
        """Do nothing: the engine holds nothing open."""

    def _merge(self, rows: Path) -> Any:
        return DeltaTable(self._table).merge(pq.read_table(rows), _SAME_ROW, source_alias="s", target_alias="t")


def open_engine(table: Path) -> DeltaRs:
    """Return the engine of this module."""
    return DeltaRs(table)
