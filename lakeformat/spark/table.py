"""A table whose rows travel to their file group by Spark's own shuffle (design: the exchanged way).

Examples:
    >>> table = LakehouseTable.forPath(spark, "/data/flights", recordkey="flight_id")
    >>> table.upsert(changes).report["rows"]
    {'incoming': 40, 'inserted': 20, 'updated': 20, 'deleted': 0}
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lakeformat.config.other_arguments import refuses_others
from lakeformat.config.read_options import TIME_ZONE
from lakeformat.config.resolve import Options, resolve
from lakeformat.config.storage_options import storage_options_of
from lakeformat.errors import InvalidInputError
from lakeformat.merge import MergeFunction
from lakeformat.model.instant import AsOf
from lakeformat.model.operation import Operation
from lakeformat.predicate import Where, refused_where
from lakeformat.services.clean.run import Deleter
from lakeformat.services.cluster.run import Rewriter
from lakeformat.services.clustering import Clustering
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compaction import Compaction
from lakeformat.services.inline import Hands, check_services, with_services
from lakeformat.services.life import Life
from lakeformat.services.versioning import Versioning
from lakeformat.spark.clean import deleter_for
from lakeformat.spark.cluster import rewriter_for
from lakeformat.spark.compact import compactor_for
from lakeformat.spark.exchange import SparkExchange
from lakeformat.spark.facts import Facts
from lakeformat.spark.host import storage_secrets
from lakeformat.spark.register import use_this_python
from lakeformat.spark.types import arrow_schema
from lakeformat.statements import condition, delete_where, update
from lakeformat.table import Table
from lakeformat.table_state.engine import Engine, open_engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.standing import check_free
from lakeformat.transaction.hooks import hooks_of
from lakeformat.transaction.result import WriteResult
from lakeformat.write.decide.job import WriteJob, plan_job
from lakeformat.write.decide.merging import upsert_options
from lakeformat.write.decide.table_settings import check_options, create_table, open_or_create
from lakeformat.write.direct_session import closed_partitions
from lakeformat.write.exchanged import ExchangedSession
from lakeformat.write.rows.arrow_input import check_fillable, warn_of_rows
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.rows.stage import StageReader
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import settable
from lakeformat.write.statements.clauses import Clause, Kind, Merge
from lakeformat.write.statements.merge_into import check_distinct, merge_into, plan_merge
from lakeformat.write.statements.rewrite import Handle

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LakehouseTable"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_OPERATION: Final = "hoodie.datasource.write.operation"
_checked: Final = refuses_others("; options are given to LakehouseTable.forPath(spark, path, ...)")


class LakehouseTable(Facts, Clustering, Compaction, Life, Versioning):
    """A Hudi table, written by all executors. Make one with `forPath` or `create`.

    Each verb runs a few Spark jobs and returns when the commit is visible. The process that calls plans and
    publishes, so it must reach the table's storage itself; rows never come to it. Its memory grows with the
    number of files, not with their rows; a task holds the rows of one file group.

    Verbs raise the same errors as `lakeformat.Table`, whether the caller or a task found out.
    """

    def __init__(self, spark: SparkSession, engine: Engine, options: Options) -> None:
        self._spark, self._engine, self._options = spark, engine, options
        self.engine, self.options = engine, options

    @classmethod
    def forPath(cls, spark: SparkSession, path: str, **options: Any) -> LakehouseTable:  # noqa: N802  Spark's style.
        """The table at a path; if there is none, the first write makes it from the options.

        Args:
            path: folder or URL, as executors see it too.
            options: Hudi's option names or the short aliases, as for ``df.write``; ``storage_options`` goes to
                fsspec, here and in tasks, and is never shown.

        Raises:
            InvalidOptionError: an option is unknown or bad.
        """
        use_this_python(spark)
        given = dict(options)
        said = given.pop("storage_options", None) or {}
        resolved = resolve(given, table=path)
        return cls(spark, open_engine(path, resolved, **{**storage_options_of(path, given), **said}), resolved)

    @classmethod
    def create(
        cls, spark: SparkSession, path: str, schema: StructType | DataFrame, *, insert: bool = False, **options: Any
    ) -> LakehouseTable:
        """Make a table, empty unless ``insert`` says otherwise.

        Args:
            schema: its columns, or a DataFrame that has them.
            insert: insert the DataFrame's rows. A table that has a commit already is refused.
            options: at least ``recordkey``; see `forPath`.

        Raises:
            InvalidOptionError: a bad option, or a table with other settings stands there already.
            SchemaMismatchError: a named column is not in the schema, or a type cannot be stored.
        """
        table = cls.forPath(spark, path, **options)
        columns = incoming_schema(arrow_schema(getattr(schema, "schema", schema)))
        engine = table._engine
        frame = schema if hasattr(schema, "schema") else None
        if insert:
            check_fillable(engine.store, has_rows=frame is not None)
        check_free(engine.storage)
        config = create_table(engine.store, table._options, columns, engine.clock)
        check_options(config, table._options, engine.storage.location)
        if insert:
            table.insert(frame)
        elif frame is not None:
            warn_of_rows(table.location, frame)
        return table

    def __repr__(self) -> str:
        return f"LakehouseTable({self._engine.storage.location!r})"

    def read(
        self,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        as_of: AsOf | None = None,
        *,
        meta_columns: bool = False,
        via: str | None = None,
    ) -> DataFrame:
        """The table as a DataFrame of one instant; arguments as for `lakeformat.spark.read`."""
        from lakeformat.spark.frames import read_table

        options = self._options.with_values(meta_columns=meta_columns)
        return read_table(self._spark, self._engine, options, where=where, columns=columns, as_of=as_of, via=via)

    def toDF(  # noqa: N802  Spark's style.
        self, columns: Sequence[str] | None = None, where: str | Column | None = None, as_of: AsOf | None = None
    ) -> DataFrame:
        """The rows by Spark's own Parquet scan over the files that are left after pruning and skipping.

        Faster than ``format("lakehouse")``: no row passes through Python, Spark reads the columns that a query needs
        and counts from footers. The files are those of this moment (or of ``as_of``): call it again to see later
        commits. Spark looks up every file first, so a filter that leaves few files is worth giving here; beyond some
        100,000 files use the data source. Executors must reach the table under its path or URL.

        Args:
            columns: wanted columns, in order; all by default, the meta columns first.
            where: a Spark SQL condition as for `lakeformat.Table.to_arrow`, or a Spark column; applied exactly. Of a
                column, comparisons with literals of the column's own type leave files out, Spark applies the rest.
            as_of: an instant, a date or a datetime, as `lakeformat.Table.to_batches` takes it; now by default.

        Raises:
            InvalidInputError: an unknown column, or a condition that cannot be answered exactly.
            SkippingError: with the option ``verify``, which first reads the table through the data source.
        """
        from lakeformat.spark.frames import NATIVE, read_table

        return read_table(
            self._spark, self._engine, self._options, where=where, columns=columns, as_of=as_of, via=NATIVE
        )

    @_checked
    def upsert(
        self,
        rows: DataFrame,
        *,
        partial_update: bool | str | Sequence[str] | None = None,
        merger: MergeFunction | str | None = None,
    ) -> WriteResult:
        """Update the rows whose keys are there, insert the others. The frame is evaluated once.

        Args:
            partial_update, merger: as for `lakeformat.Table.upsert`; a function travels to the executors.
        """
        return self._write(rows, Operation.UPSERT, upsert_options(partial_update, merger))

    @_checked
    def insert(self, rows: DataFrame) -> WriteResult:
        """Add the rows, topping up small files; keys are not looked up."""
        return self._write(rows, Operation.INSERT)

    @_checked
    def bulk_insert(self, rows: DataFrame) -> WriteResult:
        """Add the rows as new files: each task writes its own, only what is too little for a file is exchanged."""
        return self._write(rows, Operation.BULK_INSERT)

    @_checked
    def delete(self, keys: DataFrame | None = None, *, where: Where | None = None) -> WriteResult:
        """Delete the rows with these keys, or those that a condition selects.

        Args:
            keys: rows with the key columns and the partition columns; without partition columns every
                partition is searched.
            where: as for `lakeformat.Table.delete`; tasks rewrite the files that hold a match.
        """
        if where is not None and keys is None:
            return self._served(delete_where(self._engine, self._zoned(), where, self._runner))
        if keys is None or where is not None:
            raise InvalidInputError("delete takes keys or a condition: give keys, or where='...'; where='true' is all")
        return self._write(keys, Operation.DELETE)

    @_checked
    def update(self, set: Mapping[str, Any], where: Where | None = None) -> WriteResult:  # noqa: A002  SQL's word.
        """Set columns of the rows that a condition selects; tasks rewrite the files that hold such rows.

        Args:
            set: column -> its new value: as for `lakeformat.Table.update`, or a Spark column expression over the
                row. With one expression at least, Spark reads the selected rows and computes them all, and they are
                merged by record key; other values are then literals.
            where: as for `lakeformat.Table.update`; with Spark expressions, as text. None is every row.

        Raises:
            WriteConflictError: another writer was in the way; a retry is safe.
        """
        from pyspark.sql import Column

        if not (isinstance(set, Mapping) and any(isinstance(value, Column) for value in set.values())):
            return self._served(update(self._engine, self._zoned(), set, where, self._runner))
        return self._served(self._computed(set, where))

    @_checked
    def merge(self, rows: DataFrame) -> Merge:
        """Merge a source by record key; see `lakeformat.Merge`. Tasks prepare the rows, this process merges them."""
        return Merge(lambda clauses: self._served(self._merge(rows, clauses)))

    def merge_rows(self, rows: DataFrame, clauses: Sequence[Clause], seen: Snapshot) -> WriteResult:
        """A merge of rows that were computed from the table as it was; each row must change one of the table.

        Args:
            seen: that table: what others have changed since is a conflict.
        """
        return self._served(self._merge(rows, clauses, seen, exact=True))

    def _rewriter(self) -> Rewriter:
        return rewriter_for(self._spark)

    def _compactor(self) -> Compactor:
        return compactor_for(self._spark)

    def _deleter(self) -> Deleter:
        return deleter_for(self._spark)

    def _served(self, result: WriteResult) -> WriteResult:
        """The result of a write, with what services after it did."""
        hands = Hands(self._rewriter(), self._compactor(), self._deleter())
        return with_services(result, self._engine, self._options, hands)

    def _runner(self, job: WriteJob) -> Handle:
        return SparkExchange(self._spark, self._engine, job).rewrite

    def _computed(self, values: Mapping[str, Any], where: Where | None) -> WriteResult:
        """Update by expressions: Spark reads the rows and computes; their keys bring them back."""
        from pyspark.sql import Column, functions

        snapshot = self._engine.writable()
        table, config = snapshot.columns(self._engine.storage.location), snapshot.config
        if where is not None and not isinstance(where, str):
            raise refused_where(where, "Spark SQL text where Spark computes the values")
        options = self._zoned()
        condition(where, table, options)  # Refused here, in plain words, and not in a task.
        fields = {name: settable(name, table, config) for name in values}
        said = {"where": where, TIME_ZONE: where and options.read.time_zone, "as.of.instant": snapshot.instant_time}
        given = {key: text for key, text in said.items() if text} | storage_secrets(self._engine)
        frame = self._spark.read.format("lakehouse").option("meta_columns", "false").options(**given)
        keys = {name.partition(".")[0] for name in (*config.record_fields, *config.partition_fields)}
        computed = [
            (value if isinstance(value, Column) else functions.lit(value)).alias(fields[name].name)
            for name, value in values.items()
        ]
        rows = frame.load(self._engine.storage.location).select(*sorted(keys), *computed)
        columns = [field.name for field in fields.values()]
        return self._merge(rows, (Clause(Kind.UPDATE, None, columns),), snapshot, "update")

    def _merge(
        self,
        rows: DataFrame,
        clauses: Sequence[Clause],
        seen: Snapshot | None = None,
        verb: str = "merge",
        *,
        exact: bool = False,
    ) -> WriteResult:
        engine, snapshot = self._engine, self._engine.writable()
        schema = arrow_schema(rows.schema)
        job, plan = plan_merge(engine.store, snapshot, self._zoned(), schema, clauses, engine.ids, exact=exact)
        check_services(job.options, snapshot, plan.schema)
        session = WriteSession(engine, job, hooks_of(job.options).of_verb(verb))
        try:
            with reused_memory():
                staged = SparkExchange(self._spark, engine, job).stage(rows)
                with StageReader(engine.storage, staged, job.prepare) as reader:
                    partitions = reader.partitions()
                    check_distinct(partitions, anywhere=plan.anywhere, engine=engine, seen=seen)
                    return merge_into(session, plan, partitions, sum(task.rows for task in staged), seen)
        finally:
            session.transaction.forget_stage()

    @_checked
    def insert_overwrite(self, rows: DataFrame) -> WriteResult:
        """Replace the contents of the partitions that the rows are in; one row per key is kept."""
        return self._write(rows, Operation.INSERT_OVERWRITE, combine=True)

    @_checked
    def overwrite(self, rows: DataFrame) -> WriteResult:
        """Replace the contents of the table, in one step; one row per key is kept."""
        return self._write(rows, Operation.INSERT_OVERWRITE_TABLE, combine=True)

    def delete_partitions(self, partitions: str | Sequence[str]) -> WriteResult:
        """Empty whole partitions in one step; see `lakeformat.Table.delete_partitions`. No Spark job is needed."""
        return Table(self._engine.storage, self._options).delete_partitions(partitions)

    def _write(
        self,
        rows: DataFrame,
        operation: Operation,
        own: Mapping[str, Any] | None = None,
        *,
        combine: bool = False,
    ) -> WriteResult:
        """One write; ``own``: option values of this write alone."""
        from pyspark.sql import DataFrame

        if not isinstance(rows, DataFrame):
            raise InvalidInputError(
                f"rows of type {type(rows).__name__} are no DataFrame; give one, or a condition as where='...'"
            )
        engine, schema = self._engine, arrow_schema(rows.schema)
        options = self._options.with_values(**{_OPERATION: operation.value, **(own or {})})
        config = open_or_create(engine.store, options, incoming_schema(schema), engine.clock)
        if combine and config.record_fields:
            options = options.with_values(**{"hoodie.combine.before.insert": True})
        snapshot = engine.snapshot(config=config)
        job = plan_job(engine.store, snapshot, options, schema, engine.ids)
        check_services(options, snapshot, job.final_schema(snapshot))
        return self._served(self._written(rows, job, snapshot))

    def _written(self, rows: DataFrame, job: WriteJob, snapshot: Snapshot) -> WriteResult:
        """The write itself, by the way that its operation and index allow."""
        exchange = SparkExchange(self._spark, self._engine, job)
        if needs_all := _needs_all_keys(job):
            _LOG.warning("%s is not exchanged: this process merges the rows alone", needs_all)
            return self._write_here(rows, exchange, job, snapshot)
        session = ExchangedSession(self._engine, job, exchange)
        if not job.staged and (job.operation is Operation.BULK_INSERT or job.prepare.keys.generated):
            return self._write_direct(rows, session, exchange, job)
        with (
            session.session.transaction.forgotten_on_failure(),
            session.session.transaction.report.step("stage") as counted,
        ):
            staged = exchange.stage(rows)
            counted["files"] = sum(bool(task.path) for task in staged)
        known = snapshot.timeline.commit_times
        return session.run(staged, sum(task.rows for task in staged), known)

    def _write_here(self, rows: DataFrame, exchange: SparkExchange, job: WriteJob, snapshot: Snapshot) -> WriteResult:
        """The staged way: tasks stage the rows, this process merges them."""
        session = WriteSession(self._engine, job)
        try:
            with reused_memory():
                staged = exchange.stage(rows)
                known = snapshot.timeline.commit_times
                with StageReader(self._engine.storage, staged, job.prepare) as reader:
                    return session.run_staged(reader.partitions(), sum(task.rows for task in staged), known)
        finally:
            session.transaction.forget_stage()

    def _write_direct(
        self, rows: DataFrame, session: ExchangedSession, exchange: SparkExchange, job: WriteJob
    ) -> WriteResult:
        with session.session.transaction.forgotten_on_failure(), session.session.transaction.begun() as commit:
            snapshot = self._engine.snapshot()
            schema, closed = job.final_schema(snapshot), closed_partitions(session.session, snapshot)
            report = session.session.transaction.report
            with report.step("encode") as counted:
                written, staged, arrived = exchange.write_direct(rows, commit, schema, closed)
                counted["files"] = len(written)
            if job.layout is not None and job.layout.across_tasks:
                with report.step("sort") as counted:
                    written, staged = exchange.lay_down(staged, commit, schema, job.layout), []
                    counted["files"] = len(written)
            report.rows["incoming"] = arrived
            return session.publish(commit, written, staged, snapshot)


def _needs_all_keys(job: WriteJob) -> str:
    """What about the write only works where all keys are seen at once; ``""`` if nothing does."""
    index = job.index_settings
    if index.is_global or index.has_buckets:
        return f"index {index.kind}"
    return f"hoodie.datasource.insert.dup.policy={job.dup_policy}" if job.dup_policy != "none" else ""
