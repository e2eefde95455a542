"""A preview of a write: the files that it would write, and the counts of the key lookup, without writing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from lakeformat.concurrency import run_all
from lakeformat.config.resolve import Options
from lakeformat.display import html_rows
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import open_base, read_metadata
from lakeformat.model.operation import Operation
from lakeformat.public import OneLine, public
from lakeformat.storage.port import Storage
from lakeformat.timeline.write_report import Report, draw_funnel, format_steps, make_stages
from lakeformat.write.handles.base_file_handles import HandleSettings, preview_copies
from lakeformat.write.intake import plan_job
from lakeformat.write.rows.arrow_input import Rows, arrow_reader, fit_to_table
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.tagging.steps import plan_buckets
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.profile import BucketPlan

__all__ = ["PlannedFile", "WritePlan", "plan_rows", "plan_write"]

_OPERATION: Final = "hoodie.datasource.write.operation"

#: Maximum number of planned files that a notebook shows.
_SHOWN: Final = 100


@public
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The rows that a planned write would bring to one file group (Hudi: ``BucketInfo``).

    Attributes:
        partition_path: partition path of the file group.
        file_id: id of the file group that the write would merge into; None for a new one.
        size_bytes: the file group's present size; 0 for a new one.
        updates: number of rows whose keys are in the file group.
        inserts: number of new rows.
        expected_bytes: size of the file group after the write, if updated rows keep their size.
        copied_rows, copied_bytes: rows and bytes of row groups that the write would copy byte for byte from the present
            file. It would encode all other rows of the new file.
    """

    partition_path: str
    file_id: str | None
    size_bytes: int
    updates: int
    inserts: int
    expected_bytes: int
    copied_rows: int = 0
    copied_bytes: int = 0


@public
@dataclass(frozen=True, slots=True, repr=False)
class WritePlan(OneLine):
    """A write that was planned but not carried out. ``print(plan)`` shows partitions, files and steps.

    Attributes:
        operation: the operation, spelt as in the options.
        instant_time: instant of the table's newest commit when the plan was made; None for an empty table.
        incoming: number of input rows.
        files: the files that would be written.
        steps: name, seconds and counts of each step that the preview ran, as in a write's report.
    """

    operation: str
    instant_time: str | None
    incoming: int
    files: tuple[PlannedFile, ...]
    steps: Sequence[Mapping[str, Any]]

    @property
    def updates(self) -> int:
        """Return the number of rows whose keys are in an existing file."""
        return sum(file.updates for file in self.files)

    @property
    def inserts(self) -> int:
        """Return the number of rows whose keys are in no existing file."""
        return sum(file.inserts for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the expected total size, in bytes, of the files that the write would create."""
        return sum(file.expected_bytes for file in self.files)

    @property
    def copied_bytes(self) -> int:
        """Return the bytes of row groups that the write would copy byte for byte, in all files."""
        return sum(file.copied_bytes for file in self.files)

    @property
    def tagging(self) -> Mapping[str, Any]:
        """Return the counts of the key lookup: keys, files, and the candidates that each stage of the lookup leaves."""
        return next(step for step in self.steps if step["step"] == "tag")

    def __str__(self) -> str:
        """Return a readable text: one line per partition and per file, then the steps."""
        topped = sum(file.file_id is not None and file.inserts > 0 for file in self.files)
        lines = [
            f"{self.operation} of {self.incoming:,} rows onto {self.instant_time or 'an empty table'}: "
            f"{self.updates:,} updates, {self.inserts:,} inserts; {len(self.files):,} files "
            f"({topped:,} topped up), about {self.bytes:,} bytes"
        ]
        for path in sorted({file.partition_path for file in self.files}):
            files_of_path = [file for file in self.files if file.partition_path == path]
            lines.append(
                f"  {path or '(no partition)'}: {sum(f.updates for f in files_of_path):,} updates, "
                f"{sum(f.inserts for f in files_of_path):,} inserts"
            )
            lines += [f"    {_line(file)}" for file in files_of_path]
        return "\n".join([*lines, format_steps(self.steps)])

    def figure(self) -> Any:
        """Return a matplotlib figure of how the write would find its keys.

        `WriteResult.figure` shows the same for a write that was carried out.
        """
        report = {
            "steps": self.steps,
            "rows": {"updated": self.updates, "inserted": self.inserts},
            "files": {
                "merged": sum(file.file_id is not None for file in self.files),
                "created": sum(file.file_id is None for file in self.files),
            },
        }
        return draw_funnel(f"{self.operation}, planned and not made", make_stages(report))

    def _repr_html_(self) -> str:
        """Return the table that notebooks show: one row per file, at most the first hundred."""
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
    copied = f", {file.copied_rows:,} rows ({file.copied_bytes:,} bytes) copied" if file.copied_rows else ""
    return (
        f"{name:<38} {file.updates:>12,} updates {file.inserts:>12,} inserts "
        f"{file.size_bytes:>15,} -> {file.expected_bytes:,} bytes{copied}"
    )


def plan_write(context: TableContext, snapshot: Snapshot, options: Options, rows: pa.RecordBatchReader) -> WritePlan:
    """Preview a write: plan it, prepare the rows, look up their keys and assign them to files. Write nothing.

    Memory: the rows and their keys.

    Args:
        snapshot: the table's present state; no lock is held.
        options: the write's options; they name the operation.

    Raises:
        InvalidOptionError, SchemaMismatchError, InvalidInputError: as in the write itself.
    """
    job = replace(plan_job(context.store, snapshot, options, rows.schema, context.ids), is_preview=True)
    report = Report(context.clock, f"plan_{job.operation.value}", context.storage.location)
    table = rows.read_all()
    with report.step("prepare") as counted:
        bad_rows = BadRows(context.storage) if job.puts_bad_rows_aside else None
        prepared = prepare(table, job.prepare, bad_rows=bad_rows)
        counted["rows"] = table.num_rows
    schema = job.final_schema(snapshot)
    plan = plan_buckets(context.storage, job, prepared, snapshot, schema, report)
    steps = tuple(report.end()["steps"])
    files = _planned_files(context.storage, plan, HandleSettings.of(job, snapshot.instant_time or "", schema))
    return WritePlan(job.operation.value, snapshot.instant_time, table.num_rows, files, steps)


def _planned_files(storage: Storage, plan: BucketPlan, handles: HandleSettings) -> tuple[PlannedFile, ...]:

    def preview(bucket: Bucket) -> tuple[int, int]:
        return _preview_copies(storage, bucket, plan.rows[bucket.partition_path], handles)

    files = []
    copies = run_all(preview, plan.buckets, threads=max(1, pa.cpu_count()))
    for bucket, copied in zip(plan.buckets, copies, strict=True):
        sizing = plan.sizing[bucket.partition_path]
        size = bucket.base.size_bytes if bucket.base else 0
        expected_bytes = round((size or sizing.empty_bytes) + bucket.inserts * sizing.row_bytes)
        file_id = bucket.file_id if bucket.opened_at is not None else None
        files.append(
            PlannedFile(bucket.partition_path, file_id, size, bucket.updates, bucket.inserts, expected_bytes, *copied)
        )
    return tuple(files)


def _preview_copies(storage: Storage, bucket: Bucket, rows: pa.Table, handles: HandleSettings) -> tuple[int, int]:
    """Return the numbers of rows and bytes that the merge of a bucket would copy."""
    if bucket.base is None or bucket.log_place is not None or not handles.copies_groups:
        return 0, 0
    with ExitStack() as files:
        open_source = partial(files.enter_context, open_base(storage, bucket.base))
        copies = preview_copies(open_source, read_metadata(storage, bucket.base), bucket, rows, handles)
        return copies.rows, copies.bytes


def plan_rows(context: TableContext, options: Options, rows: Rows, operation: Operation) -> WritePlan:
    """Return the preview of a write of rows that the user gives as a frame, Arrow data or Python data."""
    options = options.with_values(**{_OPERATION: operation.value})
    config = context.store.config()
    config.check_writable(context.storage.location)
    snapshot = context.snapshot(config=config)
    with reuse_memory():
        reader = fit_to_table(arrow_reader(rows, snapshot.schema), snapshot.schema)
        return plan_write(context, snapshot, options, reader)
