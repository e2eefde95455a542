"""A table in Spark: Spark's own shuffle brings each row to the task that writes its file group.

Examples:
    >>> table = LakehouseTable.forPath(spark, "/data/flights", recordkey="flight_id")
    >>> table.upsert(changes).report["rows"]
    {'incoming': 40, 'inserted': 20, 'updated': 20, 'deleted': 0}
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.config.read_options import TIME_ZONE
from lakeformat.config.resolve import Options, resolve, storage_options_of
from lakeformat.errors import InvalidInputError
from lakeformat.file_system_view.context import Engine, open_engine
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.operation import Operation
from lakeformat.predicate import Where, refused_where
from lakeformat.public import spark_public
from lakeformat.services.after_write import Hands, check_services, with_services
from lakeformat.services.clean.run import Deleter
from lakeformat.services.cluster.run import Rewriter
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.maintenance import Clustering, Compaction, Life, Versioning
from lakeformat.spark.host import storage_secrets
from lakeformat.spark.register import use_this_python
from lakeformat.spark.services import compactor_for, deleter_for, rewriter_for
from lakeformat.spark.table_info import Facts
from lakeformat.spark.types import arrow_schema
from lakeformat.spark.writes.shuffle import SparkExchange
from lakeformat.statements import condition, delete_where, update
from lakeformat.table import Table, table_options
from lakeformat.timeline.path_probe import check_free
from lakeformat.transaction.hooks import HookArguments, Hooks, check_validators, hooks_of
from lakeformat.transaction.result import WriteResult
from lakeformat.write.intake import create_table, open_or_create, plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.plan.table_settings import check_options
from lakeformat.write.rows.arrow_input import check_fillable, warn_of_rows
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.rows.stage import StageReader
from lakeformat.write.session import WriteSession, closed_partitions
from lakeformat.write.shuffled_session import ExchangedSession
from lakeformat.write.statements.assign import find_settable
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import check_distinct, merge_into, plan_merge
from lakeformat.write.statements.rewrite import Handle
from lakeformat.write_verbs import PARTITIONS_TO_DELETE, WriteVerbs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LakehouseTable"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_OPERATION: Final = "hoodie.datasource.write.operation"


@spark_public
class LakehouseTable(Facts, WriteVerbs["DataFrame"], Clustering, Compaction, Life, Versioning):
    """A Hudi table in Spark, written by all executors. Make one with `forPath` or `create`.

    Each verb runs a few Spark jobs and returns when the commit is visible. This process plans and publishes, so it
    must reach the table's storage itself. Rows come to this process only in `plan`. Its memory grows with the number
    of files, not with their rows; a task holds the rows of one file group.

    `lakeformat.Table` has the same verbs on Arrow data, and raises the same errors, whether this process or a task
    found them. A verb does its work when it is called; with ``dry_run=True`` it changes nothing and returns what it
    would do.
    """

    _options_are_given = "; options are given to LakehouseTable.forPath(spark, path, ...)"

    def __init__(self, spark: SparkSession, engine: Engine, options: Options) -> None:
        self._spark, self.engine, self.options = spark, engine, options

    @classmethod
    def forPath(  # noqa: N802  Spark's style.
        cls, spark: SparkSession, path: str | os.PathLike[str], **options: Any
    ) -> LakehouseTable:
        """Return the table at a path. If there is none, the first write makes it from the options.

        Args:
            spark: the session, of classic Spark or Spark Connect.
            path: folder or URL, as executors see it too.
            options: Hudi's option names or the short aliases, as for ``df.write``; ``storage_options`` goes to
                fsspec, here and in tasks, and is never shown.

        Raises:
            InvalidOptionError: an option is unknown or bad.
        """
        use_this_python(spark)
        given, path = dict(options), os.fspath(path)
        said = given.pop("storage_options", None) or {}
        resolved = resolve(given, table=path)
        return cls(spark, open_engine(path, resolved, **{**storage_options_of(path, given), **said}), resolved)

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | os.PathLike[str],
        schema: StructType | DataFrame,
        *,
        record_key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        ordering: str | None = None,
        if_exists: str = "open",
        insert: bool = False,
        **options: Any,
    ) -> LakehouseTable:
        """Make a table. By default it is empty, copy-on-write and of table version 6.

        Args:
            spark: the session, of classic Spark or Spark Connect.
            path: folder or URL, as executors see it too.
            schema: the columns, or a DataFrame that has them. No row is written without ``insert``.
            record_key: columns that identify a row. By default none: each row gets a generated key, and rows can be
                added and overwritten, but not upserted.
            partition_by: columns that make the folders; none by default.
            ordering: the column that decides which of two rows with one key is newer; none by default.
            if_exists: ``open`` (the default) opens a table of the same settings that exists already; ``error``
                refuses.
            insert: whether to insert the DataFrame's rows; false by default. A table that has a commit already is
                refused.
            options: Hudi's option names or the short aliases; see `forPath`.

        Raises:
            InvalidOptionError: an unknown or bad option, or the path holds a table with other settings.
            SchemaMismatchError: a named column is not in the schema, or a type cannot be stored.
            InvalidInputError: ``insert`` without rows, or for a table that has commits.
        """
        table = cls.forPath(spark, path, **table_options(record_key, partition_by, ordering, if_exists, options))
        columns = incoming_schema(arrow_schema(getattr(schema, "schema", schema)))
        engine = table.engine
        frame = schema if hasattr(schema, "schema") else None
        if insert:
            check_fillable(engine.store, has_rows=frame is not None)
        check_free(engine.storage)
        config = create_table(engine.store, table.options, columns, engine.clock, must_be_new=if_exists == "error")
        check_options(config, table.options, engine.storage.location)
        if insert:
            table.insert(frame)
        elif frame is not None:
            warn_of_rows(table.location, frame)
        return table

    def __repr__(self) -> str:
        return f"LakehouseTable({self.engine.storage.location!r})"

    def _delete_where(self, where: Where, options: Options, hooks: HookArguments) -> WriteResult:
        return self._served(delete_where(self.engine, options, where, self._runner, **hooks))

    def _update(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        from pyspark.sql import Column

        if not (isinstance(values, Mapping) and any(isinstance(value, Column) for value in values.values())):
            return self._served(update(self.engine, options, values, where, self._runner, **hooks))
        return self._served(self._computed(values, where, options, hooks))

    def _merge(
        self, rows: DataFrame, clauses: tuple[Clause, ...], options: Options, hooks: HookArguments
    ) -> WriteResult:
        return self._served(self._merged(rows, clauses, options, hooks))

    def _merge_computed(self, rows: DataFrame, clauses: Sequence[Clause], seen: Snapshot) -> WriteResult:
        """Merge rows that were computed from a snapshot of the table; each row must change one of the table.

        Args:
            seen: that snapshot: what others have changed since is a conflict.
        """
        return self._served(self._merged(rows, clauses, self._options_in(None), {}, seen, exact=True))

    def _arrow_rows(self, rows: DataFrame) -> pa.Table:
        schema = arrow_schema(_frame(rows).schema)
        return pa.Table.from_batches([conform(batch, schema) for batch in rows.toArrow().to_batches()], schema)

    def _rewriter(self) -> Rewriter:
        return rewriter_for(self._spark)

    def _compactor(self) -> Compactor:
        return compactor_for(self._spark)

    def _deleter(self) -> Deleter:
        return deleter_for(self._spark)

    def _served(self, result: WriteResult) -> WriteResult:
        """The result of a write, with what services after it did."""
        hands = Hands(self._rewriter(), self._compactor(), self._deleter())
        return with_services(result, self.engine, self.options, hands)

    def _runner(self, job: WriteJob) -> Handle:
        return SparkExchange(self._spark, self.engine, job).rewrite

    def _computed(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        """Update by Spark expressions: Spark reads the rows and computes, and the results are merged by key."""
        from pyspark.sql import Column, functions

        snapshot = self.engine.writable()
        table, config = snapshot.columns(self.engine.storage.location), snapshot.config
        if where is not None and not isinstance(where, str):
            raise refused_where(where, "Spark SQL text where Spark computes the values")
        condition(where, table, options)  # A wrong condition is refused here and not in a task.
        fields = {name: find_settable(name, table, config) for name in values}
        said = {"where": where, TIME_ZONE: where and options.read.time_zone, "as.of.instant": snapshot.instant_time}
        given = {key: text for key, text in said.items() if text} | storage_secrets(self.engine)
        frame = self._spark.read.format("lakehouse").option("meta_columns", "false").options(**given)
        keys = {name.partition(".")[0] for name in (*config.record_fields, *config.partition_fields)}
        computed = [
            (value if isinstance(value, Column) else functions.lit(value)).alias(fields[name].name)
            for name, value in values.items()
        ]
        rows = frame.load(self.engine.storage.location).select(*sorted(keys), *computed)
        columns = [field.name for field in fields.values()]
        return self._merged(rows, (Clause(Kind.UPDATE, None, columns),), options, hooks, snapshot, "update")

    def _merged(
        self,
        rows: DataFrame,
        clauses: Sequence[Clause],
        options: Options,
        arguments: HookArguments,
        seen: Snapshot | None = None,
        verb: str = "merge",
        *,
        exact: bool = False,
    ) -> WriteResult:
        engine, snapshot = self.engine, self.engine.writable()
        schema = arrow_schema(_frame(rows).schema)
        job, plan = plan_merge(engine.store, snapshot, options, schema, clauses, engine.ids, exact=exact)
        hooks = hooks_of(job.options, **arguments).of_verb(verb)
        check_validators(hooks.validators, plan.schema)
        check_services(job.options, snapshot, plan.schema)
        session = WriteSession(engine, job, hooks)
        try:
            with reused_memory():
                staged = SparkExchange(self._spark, engine, job).stage(rows)
                with StageReader(engine.storage, staged, job.prepare) as reader:
                    partitions = reader.partitions()
                    check_distinct(partitions, anywhere=plan.anywhere, engine=engine, seen=seen)
                    return merge_into(session, plan, partitions, sum(task.rows for task in staged), seen)
        finally:
            session.transaction.forget_stage()

    def _write(
        self,
        rows: DataFrame | None,
        operation: Operation,
        hooks: HookArguments,
        options: Mapping[str, Any] | None = None,
        *,
        combine: bool = False,
    ) -> WriteResult:
        if rows is None and operation is Operation.DELETE_PARTITION:
            partitions = (options or {})[PARTITIONS_TO_DELETE]
            return Table(self.engine.storage, self.options).delete_partitions(partitions, **hooks)
        engine, schema = self.engine, arrow_schema(_frame(rows).schema)
        resolved = self.options.with_values(**{_OPERATION: operation.value, **(options or {})})
        config = open_or_create(engine.store, resolved, incoming_schema(schema), engine.clock)
        if combine and config.record_fields:
            resolved = resolved.with_values(**{"hoodie.combine.before.insert": True})
        snapshot = engine.snapshot(config=config)
        job = plan_job(engine.store, snapshot, resolved, schema, engine.ids)
        parsed = hooks_of(resolved, **hooks)
        check_validators(parsed.validators, job.final_schema(snapshot))
        check_services(resolved, snapshot, job.final_schema(snapshot))
        return self._served(self._written(rows, job, snapshot, parsed))

    def _written(self, rows: DataFrame, job: WriteJob, snapshot: Snapshot, hooks: Hooks) -> WriteResult:
        """The write itself, by the way that its operation and index allow."""
        exchange = SparkExchange(self._spark, self.engine, job)
        if needs_all := _needs_all_keys(job):
            _LOG.warning("%s is not exchanged: this process merges the rows alone", needs_all)
            return self._write_here(rows, exchange, job, snapshot, hooks)
        session = ExchangedSession(self.engine, job, exchange, hooks=hooks)
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

    def _write_here(
        self, rows: DataFrame, exchange: SparkExchange, job: WriteJob, snapshot: Snapshot, hooks: Hooks
    ) -> WriteResult:
        """The staged way: tasks stage the rows, this process merges them."""
        session = WriteSession(self.engine, job, hooks)
        try:
            with reused_memory():
                staged = exchange.stage(rows)
                known = snapshot.timeline.commit_times
                with StageReader(self.engine.storage, staged, job.prepare) as reader:
                    return session.run_staged(reader.partitions(), sum(task.rows for task in staged), known)
        finally:
            session.transaction.forget_stage()

    def _write_direct(
        self, rows: DataFrame, session: ExchangedSession, exchange: SparkExchange, job: WriteJob
    ) -> WriteResult:
        with session.session.transaction.forgotten_on_failure(), session.session.transaction.begun() as commit:
            snapshot = self.engine.snapshot()
            schema, closed = job.final_schema(snapshot), closed_partitions(session.session, snapshot)
            report = session.session.transaction.report
            with report.step("encode") as counted:
                written, staged, arrived = exchange.write_direct(rows, commit, schema, closed)
                counted["files"] = len(written)
            if job.layout is not None and job.layout.across_tasks:
                with report.step("sort") as counted:
                    written, staged = exchange.write_runs(staged, commit, schema, job.layout), []
                    counted["files"] = len(written)
            report.rows["incoming"] = arrived
            return session.publish(commit, written, staged, snapshot)


def _needs_all_keys(job: WriteJob) -> str:
    """What about the write only works where all keys are seen at once; ``""`` if nothing does."""
    index = job.index_settings
    if index.is_global or index.has_buckets:
        return f"index {index.kind}"
    return f"hoodie.datasource.insert.dup.policy={job.dup_policy}" if job.dup_policy != "none" else ""


def _frame(rows: Any) -> DataFrame:
    """Return the rows if they are a DataFrame, of classic Spark or Spark Connect; else raise `InvalidInputError`."""
    from pyspark.sql import DataFrame

    if not isinstance(rows, DataFrame):
        raise InvalidInputError(
            f"rows of type {type(rows).__name__} are no DataFrame; give one, or a condition as where='...'"
        )
    return rows
