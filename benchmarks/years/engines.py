"""The engines of the small commits, each with the upkeep that keeps its table small.

lakeformat and Hudi do this upkeep by default. delta-rs does none by itself: vacuum, a checkpoint and the cleaning of
its log are called after every twentieth commit, as its documentation advises, and count as part of that commit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.years.workload import PARTITION, RECORD_KEY, SCHEMA, Commit, first_rows

__all__ = ["ENGINES", "Life"]

_UPKEEP: Final = 20
_OPEN_OURS: Final = """
import sys, time, lakeformat
lakeformat.open(sys.argv[2]).snapshot()  # Everything is imported.
start = time.process_time()
lakeformat.open(sys.argv[1]).snapshot()
print(time.process_time() - start)
"""
_OPEN_DELTA: Final = """
import sys, time
from deltalake import DeltaTable
DeltaTable(sys.argv[2]).file_uris()
start = time.process_time()
DeltaTable(sys.argv[1]).file_uris()
print(time.process_time() - start)
"""


class Life(Protocol):
    """One engine's table."""

    def commit(self, commit: Commit) -> None:
        """Run the commit with the upkeep that belongs to it."""

    def opening(self) -> float | None:
        """Return the CPU seconds of opening the table in a new process."""

    def instants(self) -> int:
        """Return the number of files that a reader lists in the log of the table."""


class Lakeformat:
    """lakeformat in plain Python. ``kind`` is the table version, with ``-mor`` after it for merge-on-read."""

    def __init__(self, path: Path, kind: str) -> None:
        import lakeformat

        version, _, is_merge_on_read = kind.partition("-")
        options = {
            "hoodie.write.table.version": version,
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if is_merge_on_read else "COPY_ON_WRITE",
            "hoodie.parquet.max.file.size": 4 << 20,
        }
        if is_merge_on_read:
            options["hoodie.compact.inline"] = "true"
        self._path = path
        self._small = path.with_name("small")
        self._table = lakeformat.create(path, SCHEMA, record_key=RECORD_KEY, partition_by=PARTITION, **options)
        self._table.bulk_insert(first_rows())
        small = lakeformat.create(self._small, SCHEMA, record_key=RECORD_KEY, partition_by=PARTITION, **options)
        small.bulk_insert(first_rows(10))

    def commit(self, commit: Commit) -> None:
        getattr(self._table, commit.verb)(commit.rows)

    def opening(self) -> float | None:
        return _opening(_OPEN_OURS, self._path, self._small)

    def instants(self) -> int:
        import lakeformat

        return len(lakeformat.open(self._path).snapshot().timeline.instants)


class DeltaRs:
    """A Delta table that is changed by merges. Upkeep runs every twentieth commit and removes all that it may."""

    def __init__(self, path: Path, kind: str) -> None:
        from deltalake import write_deltalake

        self._path, self._done = path, 0
        self._small = path.with_name("small")
        short = {"delta.logRetentionDuration": "interval 0 seconds"}
        write_deltalake(str(path), first_rows(), partition_by=[PARTITION], configuration=short)
        write_deltalake(str(self._small), first_rows(10), partition_by=[PARTITION])

    def commit(self, commit: Commit) -> None:
        from deltalake import DeltaTable, write_deltalake

        table = DeltaTable(str(self._path))
        if commit.verb == "insert":
            write_deltalake(table, commit.rows, mode="append")
        else:
            merge: Any = table.merge(commit.rows, "t.part = s.part and t.id = s.id", "s", "t")
            if commit.verb == "delete":
                merge.when_matched_delete().execute()
            else:
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self._done += 1
        if self._done % _UPKEEP == 0:
            table = DeltaTable(str(self._path))
            table.optimize.compact()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            table.create_checkpoint()
            table.cleanup_metadata()

    def opening(self) -> float | None:
        return _opening(_OPEN_DELTA, self._path, self._small)

    def instants(self) -> int:
        return len(list((self._path / "_delta_log").glob("*.json")))


class Hudi:
    """Apache Hudi on Spark 3.5 with its defaults. The CPU time of all threads of the driver counts."""

    def __init__(self, path: Path, kind: str) -> None:
        from benchmarks.engines.hudi import SETTINGS
        from benchmarks.engines.spark_session import open_spark

        self._path = path
        self._spark = open_spark(path, settings=SETTINGS)
        self._write(first_rows(), "bulk_insert", "overwrite")

    def commit(self, commit: Commit) -> None:
        self._write(commit.rows, commit.verb, "append")

    def opening(self) -> float | None:
        return None

    def instants(self) -> int:
        done = self._path.glob(".hoodie/timeline/[0-9]*.*")
        return sum(each.suffix not in (".inflight", ".requested") for each in done)

    def _write(self, rows: Any, operation: str, mode: str) -> None:
        options = {
            "hoodie.table.name": "years",
            "hoodie.datasource.write.recordkey.field": RECORD_KEY,
            "hoodie.datasource.write.partitionpath.field": PARTITION,
            "hoodie.datasource.write.operation": operation,
        }
        schema = "id long, part string, n long, text string"
        frame = self._spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], schema)
        frame.write.format("hudi").options(**options).mode(mode).save(str(self._path))


#: The engines by name.
ENGINES: Final = {"lakeformat": Lakeformat, "delta-rs": DeltaRs, "hudi": Hudi}


def _opening(program: str, path: Path, small: Path) -> float:
    """Return the least CPU seconds of three runs."""
    command = [sys.executable, "-c", program, str(path), str(small)]
    runs = (subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3))
    return min(float(run.stdout) for run in runs)
