"""delta-rs (the ``deltalake`` package): Delta tables in Rust, without Spark."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.engine import StepResult
from benchmarks.engines.commits import insert_in_commits
from benchmarks.engines.floor import POINT
from benchmarks.workload import CORES, SCHEMA, ZORDER_FILE_BYTES, Content, Dataset

_SAME_ROW = "t.part = s.part and t.id = s.id"


class DeltaRs:
    """A Delta table partitioned by ``part``; upserts and deletes are merges."""

    def __init__(self, dataset: Dataset, table: Path) -> None:
        self._dataset, self._table = dataset, table

    def load(self, table: Path) -> None:
        rows = ds.dataset(self._dataset.base_files(), schema=SCHEMA).scanner().to_reader()
        write_deltalake(str(table), rows, partition_by=["part"])

    def upsert(self, rows: Path) -> None:
        merge = self._merge(pq.read_table(rows))
        merge.when_matched_update_all("s.ts >= t.ts").when_not_matched_insert_all().execute()

    def delete(self, keys: Path) -> None:
        self._merge(pq.read_table(keys)).when_matched_delete().execute()

    def zorder(self) -> None:
        self._delta().optimize.z_order(["x", "y"], target_size=ZORDER_FILE_BYTES)

    def inserts50(self, rows: Path) -> StepResult:
        table = str(self._table.with_name("inserts50"))
        return insert_in_commits(
            pq.read_table(rows),
            lambda part: write_deltalake(table, part, partition_by=["part"], mode="append"),
            lambda: len(DeltaTable(table).file_uris()),
            lambda: int(DeltaTable(table).to_pyarrow_dataset().count_rows()),
        )

    def point(self) -> int:
        return int(self._arrow().to_table(filter=POINT).num_rows)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._arrow().to_batches())

    def agg(self) -> list[int]:
        columns = self._arrow().to_table(columns=["x", "y"])
        return [pc.sum(columns["x"]).as_py(), pc.max(columns["y"]).as_py()]

    def content(self) -> Content:
        amounts = self._arrow().to_table(columns=["amount"])["amount"]
        return Content(len(amounts), pc.sum(amounts).as_py())

    def versions(self) -> dict[str, str]:
        return {"deltalake": version("deltalake"), "pyarrow": pa.__version__}

    def close(self) -> None:
        """Do nothing: the engine holds nothing open."""

    def _delta(self) -> Any:
        return DeltaTable(str(self._table))

    def _arrow(self) -> Any:
        return self._delta().to_pyarrow_dataset()

    def _merge(self, rows: pa.Table) -> Any:
        return self._delta().merge(rows, _SAME_ROW, source_alias="s", target_alias="t")


def open_engine(dataset: Dataset, table: Path) -> DeltaRs:
    """Return the engine of this module."""
    pa.set_cpu_count(CORES)
    return DeltaRs(dataset, table)
