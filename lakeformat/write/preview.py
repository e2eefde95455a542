"""What a write would do, as a value that prints: the workload profile, its buckets, and what tagging cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.codec.html import html_rows
from lakeformat.config.resolve import Options
from lakeformat.model.one_line import OneLine
from lakeformat.model.operation import Operation, operation_of
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.funnel import draw_funnel, stages_of
from lakeformat.timeline.report import Report, steps_table
from lakeformat.write.decide.job import plan_job
from lakeformat.write.place.profile import BucketPlan, plan_buckets
from lakeformat.write.rows.arrow_input import arrow_reader, fitted
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.prepare import prepare

__all__ = ["PlannedFile", "Planning", "WritePlan", "plan_write"]

_OPERATION: Final = "hoodie.datasource.write.operation"

#: Files that a notebook shows of a plan.
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file group's part of a write (Hudi: ``BucketInfo``).

    Attributes:
        file_id: the group that would be merged into; None for a new one.
        size_bytes: its present size, 0 for a new one.
        updates: rows to look up in it; keys that a footer filter let through by mistake are among them.
        inserts: new rows.
        expected_bytes: its size afterwards, if updated rows keep their width.
    """

    partition_path: str
    file_id: str | None
    size_bytes: int
    updates: int
    inserts: int
    expected_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class WritePlan(OneLine):
    """A write that was planned and not made. ``print(plan)`` shows partitions, files and steps.

    Attributes:
        operation: as in the options.
        instant_time: the commit the plan starts from, None for an empty table.
        incoming: rows of the input.
        files: what would be written.
        steps: name, seconds and counts of each step taken, as in a write's report.
    """

    operation: str
    instant_time: str | None
    incoming: int
    files: tuple[PlannedFile, ...]
    steps: Sequence[Mapping[str, Any]]

    @property
    def updates(self) -> int:
        """Rows to look up in files that hold, or may hold, their keys."""
        return sum(file.updates for file in self.files)

    @property
    def inserts(self) -> int:
        """Rows whose keys no file holds."""
        return sum(file.inserts for file in self.files)

    @property
    def bytes(self) -> int:
        """Expected size of all files the write would make."""
        return sum(file.expected_bytes for file in self.files)

    @property
    def tagging(self) -> Mapping[str, Any]:
        """Counts of the tag step: keys, files, candidates left by each narrowing."""
        return next(step for step in self.steps if step["step"] == "tag")

    def __str__(self) -> str:
        """For people: one line a partition and a file, then the steps."""
        topped = sum(file.file_id is not None and file.inserts > 0 for file in self.files)
        lines = [
            f"{self.operation} of {self.incoming:,} rows onto {self.instant_time or 'an empty table'}: "
            f"{self.updates:,} updates, {self.inserts:,} inserts; {len(self.files):,} files "
            f"({topped:,} topped up), about {self.bytes:,} bytes"
        ]
        for path in sorted({file.partition_path for file in self.files}):
            mine = [file for file in self.files if file.partition_path == path]
            lines.append(
                f"  {path or '(no partition)'}: {sum(f.updates for f in mine):,} updates, "
                f"{sum(f.inserts for f in mine):,} inserts"
            )
            lines += [f"    {_line(file)}" for file in mine]
        return "\n".join([*lines, steps_table(self.steps)])

    def figure(self) -> Any:
        """A matplotlib figure of how the write would find its keys, as `WriteResult.figure` shows one that was made."""
        told = {
            "steps": self.steps,
            "rows": {"updated": self.updates, "inserted": self.inserts},
            "files": {
                "merged": sum(file.file_id is not None for file in self.files),
                "created": sum(file.file_id is None for file in self.files),
            },
        }
        return draw_funnel(f"{self.operation}, planned and not made", stages_of(told))

    def _repr_html_(self) -> str:
        """What notebooks show: a line a file; the first hundred of many."""
        head, *_ = str(self).splitlines()
        files = [
            (f.partition_path, f.file_id or "new", f.updates, f.inserts, f.size_bytes, f.expected_bytes)
            for f in self.files[:_SHOWN]
        ]
        note = f"and {len(self.files) - _SHOWN:,} more files" if len(self.files) > _SHOWN else ""
        names = ("partition", "file group", "updates", "inserts", "bytes now", "bytes then")
        return html_rows(names, files, caption=head, note=note)


def _line(file: PlannedFile) -> str:
    name = file.file_id or "new file group"
    return (
        f"{name:<38} {file.updates:>12,} updates {file.inserts:>12,} inserts "
        f"{file.size_bytes:>15,} -> {file.expected_bytes:,} bytes"
    )


def plan_write(engine: Engine, snapshot: Snapshot, options: Options, rows: pa.RecordBatchReader) -> WritePlan:
    """Prepare, tag and spread rows as the write would, and stop there.

    Memory: the rows and their keys.

    Args:
        snapshot: the table as it stands; no lock is held.
        options: of the write, with its operation.

    Raises:
        InvalidOptionError, SchemaMismatchError, InvalidInputError: as the write itself.
    """
    job = plan_job(engine.store, snapshot, options, rows.schema, engine.ids)
    report = Report(engine.clock, job.operation.value)
    table = rows.read_all()
    with report.step("prepare") as counted:
        prepared = prepare(table, job.prepare)
        counted["rows"] = table.num_rows
    plan = plan_buckets(engine.storage, job, prepared, snapshot, job.final_schema(snapshot), report)
    steps = tuple(report.as_dict()["steps"])
    return WritePlan(job.operation.value, snapshot.instant_time, table.num_rows, _files(plan), steps)


def _files(plan: BucketPlan) -> tuple[PlannedFile, ...]:
    files = []
    for bucket in plan.buckets:
        sizing = plan.sizing[bucket.partition_path]
        size = bucket.base.size_bytes if bucket.base else 0
        grown = round((size or sizing.empty_bytes) + bucket.inserts * sizing.row_bytes)
        file_id = bucket.file_id if bucket.changes is not None else None
        files.append(PlannedFile(bucket.partition_path, file_id, size, bucket.updates, bucket.inserts, grown))
    return tuple(files)


class Planning:
    """The verbs that tell what a write would do. A host says where the table is."""

    engine: Engine
    options: Options

    def plan_upsert(self, rows: Any) -> WritePlan:
        """Show what `upsert` of these rows would do. Nothing is written, locked or claimed."""
        return self.plan(rows, Operation.UPSERT)

    def plan_insert(self, rows: Any) -> WritePlan:
        """Show what `insert` of these rows would do."""
        return self.plan(rows, Operation.INSERT)

    def plan_delete(self, keys: Any) -> WritePlan:
        """Show what `delete` of these keys would do."""
        return self.plan(keys, Operation.DELETE)

    def plan(self, rows: Any, operation: Operation | str) -> WritePlan:
        """Tag the rows and spread them over files as the write would, and stop there.

        Memory: the rows and their keys. Errors as of the write itself, but for those of storing values.
        """
        options = self.options.with_values(**{_OPERATION: operation_of(operation).value})
        config = self.engine.store.config()
        config.check_writable(self.engine.storage.location)
        snapshot = self.engine.snapshot(config=config)
        with reused_memory():
            reader = fitted(arrow_reader(rows, snapshot.schema), snapshot.schema)
            return plan_write(self.engine, snapshot, options, reader)
