"""The table of bad rows: rows that a write could not write, with the reasons (Hudi: ``BaseErrorTableWriter``).

It is a Hudi table of its own, written by an ordinary insert. By default it is in lakeformat's folder of the table,
where no listing, clean or restore of the table looks. Its commit is published directly before that of the write. So no
row is lost: if the bad rows cannot be written, the write fails; if the process dies between the two commits, the bad
rows are there, and the write is run again. A write with a batch id adds its bad rows once, however often it is run.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.arrow.conform import reader_schema
from lakeformat.config.resolve import Options, resolve
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.config.write_options import BAD_ROWS, BAD_ROWS_PATH
from lakeformat.errors import InvalidInputError, InvalidOptionError, TableNotFoundError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.operation import Operation
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import Where
from lakeformat.read.run.view import TableView
from lakeformat.services.after_write import run_services_after_write
from lakeformat.storage import open_beside
from lakeformat.storage.port import Storage, own_path
from lakeformat.timeline.history import VERB_KEY
from lakeformat.timeline.path_probe import check_free
from lakeformat.timeline.write_report import Report
from lakeformat.transaction.commit.commit_listeners import CommitListener, PublishedCommit
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.write.direct_session import write_direct
from lakeformat.write.intake import create_table, open_existing, plan_job
from lakeformat.write.rows.bad_rows import STAGED_COLUMNS, BadRows, StagedBadRows
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.session import WriteSession

__all__ = ["BAD_ROW_COLUMNS", "make_collector", "put_aside", "put_aside_rows", "read_bad_rows"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: The default folder of the table of bad rows, in the table's folder.
_FOLDER: Final = own_path("bad_rows")
#: Name of the step in the write's report.
_STEP: Final = "set aside"
#: The columns of a table of bad rows.
BAD_ROW_COLUMNS: Final = pa.schema(
    [
        ("instant_time", pa.string()),
        ("table_name", pa.string()),
        ("operation", pa.string()),
        *STAGED_COLUMNS,
        ("write_id", pa.string()),
    ]
)


def make_collector(context: TableContext, options: Options) -> BadRows | None:
    """Return a collector for the bad rows of a write in this process; None if the options refuse bad rows."""
    puts_aside = options.write.bad_rows == "aside" and options.write.operation != Operation.DELETE_PARTITION.value
    return BadRows(context.storage) if puts_aside else None


@contextmanager
def put_aside_rows(session: WriteSession, bad_rows: BadRows | None) -> Iterator[None]:
    """Let a write in this process publish the bad rows that it collects during the block.

    Args:
        bad_rows: the collector; None if the write refuses bad rows.
    """
    if bad_rows is None:
        yield
        return
    bad_rows.path = f"{stage_folder(session.job.write_id)}/bad_rows.arrow"
    put_aside(session, lambda: [bad_rows.finish(in_file=False)])
    try:
        yield
    finally:
        if bad_rows.has_file:
            session.transaction.delete_stage()


def put_aside(session: WriteSession, find_parts: Callable[[], Sequence[StagedBadRows]]) -> None:
    """Let a write publish its bad rows directly before its commit. Call it before the write begins.

    Args:
        find_parts: returns the bad rows that were found. It is called when the write publishes.

    Raises:
        InvalidOptionError: the options name the table itself as the table of bad rows.
    """
    context, job = session.context, session.job
    if not job.puts_bad_rows_aside:
        return
    storage = _find_place(context.storage, job.options)
    if storage.location.rstrip("/") == context.storage.location.rstrip("/"):
        raise InvalidOptionError(
            f"{BAD_ROWS_PATH} names {storage.location}, the table itself; name another folder, or leave it out"
        )
    session.count_bad_rows = lambda: sum(part.rows for part in find_parts())
    side = TableContext(storage, context.clock, context.ids, context.use_index)
    transaction = session.transaction
    transaction.publisher.listeners = (_Publisher(side, session, find_parts), *transaction.publisher.listeners)


def _find_place(storage: Storage, options: Options) -> Storage:
    """Return the storage of the table of bad rows, of the table in ``storage``."""
    named = options.write.bad_rows_path
    return storage.subfolder(_FOLDER) if not named else open_beside(storage, named)


def read_bad_rows(
    context: TableContext, options: Options, columns: Sequence[str] | None, where: Where | None
) -> pa.Table:
    """Return the bad rows of a table. Arguments as in `lakeformat.Table.bad_rows`."""
    side = TableContext(_find_place(context.storage, options), context.clock, context.ids, context.use_index)
    with suppress(TableNotFoundError):
        snapshot = side.snapshot()
        if snapshot.schema is not None:
            return TableView(side.storage, snapshot).to_arrow(columns or BAD_ROW_COLUMNS.names, where=where)
    return reader_schema(BAD_ROW_COLUMNS).empty_table().select(list(columns or BAD_ROW_COLUMNS.names))


@dataclass
class _Publisher(CommitListener):
    """A listener that publishes the bad rows of a write directly before its commit.

    Attributes:
        side: the table of bad rows.
        parts: the bad rows that the input was found to have.
        duplicates: the rows that the duplicate policy refuses, which may differ in each attempt.
        incoming: number of input rows; -1 before they were counted.
        is_published: whether ``parts`` were published by an attempt that then failed.
        result: the result of the last commit to the table of bad rows; None if there was none.
    """

    side: TableContext
    session: WriteSession
    find_parts: Callable[[], Sequence[StagedBadRows]]
    parts: Sequence[StagedBadRows] = ()
    duplicates: StagedBadRows = StagedBadRows()  # noqa: RUF009  It is frozen.
    incoming: int = -1
    is_published: bool = False
    result: WriteResult | None = None

    def add_counts(self, report: Report) -> None:
        """Add the number of bad rows to the report, and a step with their number by reason.

        Raises:
            InvalidInputError: the write would replace all rows of the table by none, because all its rows are bad.
        """
        self.parts, duplicates = self.find_parts(), self.session.duplicates
        self.duplicates = StagedBadRows() if duplicates is None else duplicates.finish(in_file=False)
        counts: Counter[str] = Counter()
        for part in (*self.parts, self.duplicates):
            counts.update(part.counts)
        if not counts:
            return
        if report.rows.get("incoming", 0) != self.incoming:  # An attempt may publish twice.
            self.incoming = report.rows.get("incoming", 0) + sum(part.uncounted for part in self.parts)
        report.rows["incoming"] = self.incoming
        report.steps[:] = [step for step in report.steps if step["step"] != _STEP]
        bad = sum(counts.values())
        if self.session.job.operation is Operation.INSERT_OVERWRITE_TABLE and bad >= report.rows["incoming"]:
            raise InvalidInputError(
                f"every row is bad ({', '.join(sorted(counts))}), so the overwrite would empty "
                f"{self.session.storage.location}; correct the rows, or set {BAD_ROWS}=fail to see more"
            )
        report.rows["set_aside"] = bad
        report.steps.append({"step": _STEP, "seconds": 0.0, **dict(sorted(counts.items()))})

    def before_publish(self, commit: OpenCommit, metadata: CommitMetadata, outcome: Outcome) -> None:
        """Publish the bad rows.

        Raises:
            WriteConflictError: other writers keep changing the table of bad rows. A retry is safe.
            LakeformatError: the bad rows cannot be written.
        """
        parts = [*(() if self.is_published else self.parts), self.duplicates]
        if any(part.rows for part in parts):
            self.result = self._append(parts, commit.time)
        self.is_published = True

    def after_release(self, published: PublishedCommit) -> None:
        """Log how many rows were put aside, and run the services of their table that are due."""
        if self.result is not None:
            count = sum(part.rows for part in (*self.parts, self.duplicates))
            location, place = self.session.storage.location, self.side.storage.location
            _LOG.warning("%s: bad rows put aside in %s: %d", location, place, count)
            run_services_after_write(self.result, self.side, resolve({}))

    def _append(self, parts: Sequence[StagedBadRows], instant_time: str) -> WriteResult:
        options = self._options()
        config = self._open(options)
        snapshot = self.side.snapshot(config=config)
        self._check_columns(snapshot.schema)
        job = plan_job(self.side.store, snapshot, options, BAD_ROW_COLUMNS, self.side.ids)

        def read() -> Iterator[pa.RecordBatch]:
            for part in parts:
                for batch in part.read(self.session.storage):
                    yield self._complete(batch, instant_time)

        try:
            return write_direct(WriteSession(self.side, job), read(), read)
        except WriteConflictError as error:
            raise WriteConflictError(f"the bad rows could not be put aside: {error}") from None

    def _options(self) -> Options:
        batch = self.session.transaction.settings.batch
        values: dict[str, object] = {"hoodie.datasource.write.operation": "insert"}
        # Which keys are duplicates may differ in another run of the batch, so its bad rows must not be skipped.
        if batch is not None and not self.duplicates.rows:
            values |= {BATCH_APP: f"{batch.app} {self.session.storage.location}", BATCH_ID: batch.id}
        return resolve({}).with_values(**values)

    def _open(self, options: Options) -> TableConfig:
        try:
            return open_existing(self.side.store, options)
        except TableNotFoundError:
            check_free(self.side.storage)
        main = self.session.job.config
        name = self.session.job.options.write.bad_rows_name or f"{main.name}_bad_rows"
        new = options.with_values(**{"hoodie.table.name": name, "hoodie.write.table.version": str(main.version)})
        return create_table(self.side.store, new, incoming_schema(BAD_ROW_COLUMNS), self.side.clock)

    def _check_columns(self, schema: pa.Schema | None) -> None:
        """Refuse a table that was not made for bad rows."""
        names = set(BAD_ROW_COLUMNS.names if schema is None else schema.names)
        missing = [name for name in BAD_ROW_COLUMNS.names if name not in names]
        if missing:
            raise InvalidOptionError(
                f"{self.side.storage.location} is no table of bad rows, it has no column {missing[0]!r}; name another "
                f"folder in {BAD_ROWS_PATH}"
            )

    def _complete(self, batch: pa.RecordBatch, instant_time: str) -> pa.RecordBatch:
        job, count = self.session.job, batch.num_rows
        verb = self.session.transaction.hooks.extra_metadata.get(VERB_KEY, job.operation.value)
        texts = [instant_time, job.config.name, verb]
        columns = [pa.repeat(text, count) for text in texts]
        columns += [*batch.columns, pa.repeat(job.write_id, count)]
        return pa.RecordBatch.from_arrays(columns, schema=BAD_ROW_COLUMNS)
