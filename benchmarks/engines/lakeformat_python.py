"""lakeformat from plain Python: no Spark, no JVM."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakeformat
from benchmarks.engine import StepResult
from benchmarks.engines.commits import insert_in_commits
from benchmarks.engines.read_calls import open_by_read_calls
from benchmarks.engines.rounds import InRounds
from benchmarks.workload import (
    CORES,
    ORDERING,
    PARTITION,
    POINT_SQL,
    RECORD_KEY,
    SCHEMA,
    ZORDER_FILE_BYTES,
    Content,
    Dataset,
)


class Lakeformat(InRounds):
    """A table partitioned by ``part``, with the defaults a user gets."""

    def __init__(self, dataset: Dataset, table: Path, mapped: bool = True) -> None:
        self._dataset, self._table, self._mapped = dataset, table, mapped

    def load(self, table: Path) -> None:
        rows = ds.dataset(self._dataset.base_files(), schema=SCHEMA).scanner().to_reader()
        self._create(table).bulk_insert(rows)

    def upsert(self, rows: Path) -> None:
        self._open(**self.write_options).upsert(pq.read_table(rows))

    def delete(self, keys: Path) -> None:
        self._open().delete(pq.read_table(keys, columns=[RECORD_KEY, PARTITION]))

    def keys(self) -> int:
        return sum(batch.num_rows for batch in self._open().to_batches(columns=[RECORD_KEY]))

    def tag(self, rows: Path) -> StepResult:
        return self._tag(rows)

    def tag_auto(self, rows: Path) -> StepResult:
        return self._tag(rows, "AUTO")

    def tag_bloom(self, rows: Path) -> StepResult:
        return self._tag(rows, "BLOOM")

    def tag_simple(self, rows: Path) -> StepResult:
        return self._tag(rows, "SIMPLE")

    def inserts50(self, rows: Path) -> StepResult:
        created = self._create(self._table.with_name("inserts50"))
        return insert_in_commits(
            pq.read_table(rows),
            created.insert,
            lambda: sum(map(len, created.snapshot().by_partition.values())),
            lambda: sum(batch.num_rows for batch in created.to_batches(columns=[RECORD_KEY])),
        )

    def zorder(self) -> None:
        self._open().cluster(by=["x", "y"], curve="z-order", target_file_bytes=ZORDER_FILE_BYTES)

    def point(self) -> int:
        return int(self._open().to_arrow(columns=SCHEMA.names, where=POINT_SQL).num_rows)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._open().to_batches(columns=SCHEMA.names))

    def agg(self) -> list[int]:
        columns = self._open().to_arrow(columns=["x", "y"])
        return [pc.sum(columns["x"]).as_py(), pc.max(columns["y"]).as_py()]

    def content(self) -> Content:
        amounts = self._open().to_arrow(columns=["amount"])["amount"]
        return Content(len(amounts), pc.sum(amounts).as_py())

    def versions(self) -> dict[str, str]:
        try:
            installed = version("lakeformat")
        except PackageNotFoundError:
            installed = "source tree"
        return {"lakeformat": installed, "pyarrow": pa.__version__}

    def close(self) -> None:
        """Do nothing: the engine holds nothing open."""

    def _create(self, table: Path) -> Any:
        return lakeformat.create(str(table), SCHEMA, record_key=RECORD_KEY, partition_by=PARTITION, ordering=ORDERING)

    def unmapped(self) -> Lakeformat:
        """Return the same engine, reading files that are not mapped."""
        return Lakeformat(self._dataset, self._table, mapped=False)

    def _open(self, **options: Any) -> Any:
        if not self._mapped:
            return open_by_read_calls(self._table)
        return lakeformat.open(str(self._table), **options)

    def _tag(self, rows: Path, index: str = "") -> StepResult:
        """Plan an upsert and return the time and the figures of its tagging.

        Tagging goes from keys to their files and includes the read of footers.
        """
        table = self._open(**({"hoodie.index.type": index} if index else {}))
        tagging = table.plan_upsert(pq.read_table(rows)).tagging
        figures = {name: value for name, value in tagging.items() if name not in {"step", "seconds"}}
        return StepResult(None, figures, tagging["seconds"])


def open_engine(dataset: Dataset, table: Path) -> Lakeformat:
    """Return the engine of this module."""
    pa.set_cpu_count(CORES)
    return Lakeformat(dataset, table)
