"""The class `LakehouseTable`: a Hudi table that is read and written as Spark DataFrames.

For most writes Spark's shuffle sends each row to the task that writes the row's file group.

Examples:
    >>> table = LakehouseTable.forPath(spark, "/data/flights", recordkey="flight_id")
    >>> table.upsert(changes).report["rows"]
    {'incoming': 40, 'inserted': 20, 'updated': 20, 'deleted': 0}
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.beside.verbs import Syncing
from lakeformat.catalog.verbs import Registering
from lakeformat.concurrency import Attempts
from lakeformat.config.read_options import TIME_ZONE
from lakeformat.config.resolve import Options, resolve, storage_options_of
from lakeformat.config.write_options import BAD_ROWS
from lakeformat.errors import InvalidInputError, WriteConflictError
from lakeformat.file_system_view.context import TableContext, open_context
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.operation import Operation
from lakeformat.predicate import Where, where_type_error
from lakeformat.public import spark_public
from lakeformat.services.after_write import Executors, check_services
from lakeformat.services.bad_rows import put_aside
from lakeformat.services.indexes import Indexing
from lakeformat.services.job_check import check_job
from lakeformat.services.maintenance import Clustering, Compaction, Maintenance, Versioning
from lakeformat.spark.host import storage_secrets
from lakeformat.spark.metastore import metastore_uris, with_metastore
from lakeformat.spark.register import use_this_python
from lakeformat.spark.services import executors_of
from lakeformat.spark.table_info import SparkReading
from lakeformat.spark.types import arrow_schema
from lakeformat.spark.writes.merge_place import choose_merge_place
from lakeformat.spark.writes.shuffle import SparkShuffle
from lakeformat.statements import bind_condition, delete_where, update
from lakeformat.table import Table, table_options
from lakeformat.timeline.path_probe import check_free
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import HookArguments, Hooks, check_validators, hooks_of
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import StalePlanError, repeat_after
from lakeformat.write.intake import create_table, open_or_create, plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.plan.table_settings import check_options
from lakeformat.write.rows.arrow_input import check_insert_allowed, has_only_failed_writes, warn_of_ignored_rows
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.rows.stage import StageReader
from lakeformat.write.session import WriteSession, find_closed_partitions
from lakeformat.write.shuffled_session import ShuffledSession
from lakeformat.write.statements.assign import find_settable
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import check_distinct, merge_into, plan_merge, take_out_repeats
from lakeformat.write.statements.rewrite import BucketWriter
from lakeformat.write_verbs import WriteVerbs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LakehouseTable"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_OPERATION: Final = "hoodie.datasource.write.operation"


@spark_public
class LakehouseTable(
    SparkReading,
    WriteVerbs["DataFrame"],
    Clustering,
    Compaction,
    Indexing,
    Maintenance,
    Registering,
    Syncing,
    Versioning,
):
    """A Hudi table in Spark, written by all executors. Get one from `forPath` or `create`.

    Each method that writes runs a few Spark jobs and returns when the commit is visible. The driver plans the write and
    publishes the commit, so it must be able to access the table's storage itself. Its memory grows with the number of
    files, not of rows, except where the driver reads the input rows: in `plan`, and in a small `merge` or `update` by
    Spark expressions (option ``lakeformat.write.merge``). A task keeps the rows of one file group in memory.

    `lakeformat.Table` has the same methods on Arrow data. Both raise the same errors, also for errors in tasks. A
    method does its work when it is called; with ``dry_run=True`` it changes nothing and returns what it would do.
    """

    _options_are_given = "; options are given to LakehouseTable.forPath(spark, path, ...)"

    def __init__(self, spark: SparkSession, context: TableContext, options: Options) -> None:
        self._spark, self.context, self.options = spark, context, options

    @classmethod
    def forPath(  # noqa: N802  Spark's naming style.
        cls, spark: SparkSession, path: str | os.PathLike[str], **options: Any
    ) -> LakehouseTable:
        """Return the table at a path. If the path holds no table, the first write creates it with these options.

        Args:
            spark: the session, of classic Spark or Spark Connect.
            path: folder or URL of the table, valid on the executors too.
            options: Hudi's option names or the short aliases, as for ``df.write``. ``storage_options`` goes to fsspec
                in this process and in tasks; its values never appear in messages.

        Raises:
            InvalidOptionError: an option is unknown or bad.
        """
        use_this_python(spark)
        given, path = dict(options), os.fspath(path)
        said = given.pop("storage_options", None)
        resolved = with_metastore(spark, resolve(given, table=path))
        return cls(spark, open_context(path, resolved, **storage_options_of(path, given, said)), resolved)

    def _metastore_uris(self) -> str:
        return metastore_uris(self._spark)

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | os.PathLike[str],
        schema: StructType | DataFrame,
        *,
        record_key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        ordering: str | Sequence[str] | None = None,
        if_exists: str = "open",
        insert: bool = False,
        **options: Any,
    ) -> LakehouseTable:
        """Create a table. By default it is empty, copy-on-write and of table version 6.

        Args:
            spark: the session, of classic Spark or Spark Connect.
            path: folder or URL of the table, valid on the executors too.
            schema: the columns, or a DataFrame, whose columns the table gets. Its rows are written only with
                ``insert``.
            record_key: columns that identify a row. By default none: each row gets a generated key, and rows can be
                added and overwritten, but not upserted.
            partition_by: columns whose values name the partition folders; none by default.
            ordering: the column that decides which of two rows with one key is newer; none by default. Table version 9
                takes several, of which the first that differs decides.
            if_exists: what to do if the path holds a table already. ``open`` (the default) opens it if it has the
                same settings; ``error`` raises `InvalidOptionError`.
            insert: whether to insert the DataFrame's rows; false by default. If the table has a commit already,
                `InvalidInputError` is raised.
            options: Hudi's option names or the short aliases; see `forPath`.

        Raises:
            InvalidOptionError: an unknown or bad option, or the path holds a table with other settings.
            SchemaMismatchError: a named column is not in the schema, or a type cannot be stored.
            InvalidInputError: ``insert`` is true, but ``schema`` is not a DataFrame or the table has commits.
        """
        table = cls.forPath(spark, path, **table_options(record_key, partition_by, ordering, if_exists, options))
        columns = incoming_schema(arrow_schema(getattr(schema, "schema", schema)))
        context = table.context
        frame = schema if hasattr(schema, "schema") else None
        if insert:
            check_insert_allowed(context.store, has_rows=frame is not None)
        check_free(context.storage)
        new = if_exists == "error" and not (insert and has_only_failed_writes(context.store))
        config = create_table(context.store, table.options, columns, context.clock, must_be_new=new)
        check_options(config, table.options, context.storage.location)
        if insert:
            table.insert(frame)
        elif frame is not None:
            warn_of_ignored_rows(table.location, frame)
        return table

    def __repr__(self) -> str:
        return f"LakehouseTable({self.context.storage.location!r})"

    def _delete_where(self, where: Where, options: Options, hooks: HookArguments) -> WriteResult:
        return delete_where(self.context, options, where, self._runner, **hooks)

    def _update(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        from pyspark.sql import Column

        if not (isinstance(values, Mapping) and any(isinstance(value, Column) for value in values.values())):
            return update(self.context, options, values, where, self._runner, **hooks)
        return self._update_computed(values, where, options, hooks)

    def _merge(
        self, rows: DataFrame, clauses: tuple[Clause, ...], options: Options, hooks: HookArguments
    ) -> WriteResult:
        return repeat_after(
            StalePlanError,
            lambda: self._merge_staged(rows, clauses, options, hooks),
            Attempts(options.patience, self.context.ids.token),
        )

    def _merge_computed(
        self, rows: DataFrame, clauses: Sequence[Clause], seen: Snapshot, *, has_source: bool
    ) -> WriteResult:
        """Merge rows that Spark computed from the table. Each row must change exactly one row of the table.

        Args:
            rows: the computed rows, with the columns that the clauses use.
            has_source: whether other rows were joined. If not, bad rows are refused, whatever the options say: a stored
                row whose new values do not fit must not stay as it is.
            seen: the snapshot that the rows were computed from. If another writer has changed the files of these rows
                since, `WriteConflictError` is raised.
        """
        options = self._options_in(None)
        options = options if has_source else options.with_values(**{BAD_ROWS: "fail"})
        return self._end_write(self._merge_staged(rows, clauses, options, {}, seen, exact=True))

    def _arrow_rows(self, rows: DataFrame) -> pa.Table:
        schema = arrow_schema(_frame(rows).schema)
        return pa.Table.from_batches([conform(batch, schema) for batch in rows.toArrow().to_batches()], schema)

    def _executors(self) -> Executors:
        return executors_of(self._spark)

    def _runner(self, job: WriteJob) -> BucketWriter:
        return SparkShuffle(self._spark, self.context, job).rewrite

    def _update_computed(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        """Update by Spark expressions: Spark computes the new values of the rows, which are then merged by key.

        After a conflict the values are computed again, from the newest rows.
        """
        return repeat_after(
            WriteConflictError,
            lambda: self._update_computed_once(values, where, options, hooks),
            Attempts(options.patience, self.context.ids.token),
        )

    def _update_computed_once(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        from pyspark.sql import Column, functions

        snapshot = self.context.writable_snapshot()
        table, config = snapshot.columns(self.context.storage.location), snapshot.config
        if where is not None and not isinstance(where, str):
            raise where_type_error(where, "Spark SQL text where Spark computes the values")
        bind_condition(where, table, options)  # Raise errors of the condition now, before a Spark job.
        fields = {name: find_settable(name, table, config) for name in values}
        said = {"where": where, TIME_ZONE: where and options.read.time_zone, "as.of.instant": snapshot.instant_time}
        given = {key: text for key, text in said.items() if text} | storage_secrets(self.context)
        frame = self._spark.read.format("lakehouse").option("meta_columns", "false").options(**given)
        keys = {name.partition(".")[0] for name in (*config.record_fields, *config.partition_fields)}
        computed = [
            (value if isinstance(value, Column) else functions.lit(value)).alias(fields[name].name)
            for name, value in values.items()
        ]
        rows = frame.load(self.context.storage.location).select(*sorted(keys), *computed)
        columns = [field.name for field in fields.values()]
        options = options.with_values(**{BAD_ROWS: "fail"})
        return self._merge_staged(rows, (Clause(Kind.UPDATE, None, columns),), options, hooks, snapshot, "update")

    def _merge_staged(
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
        context, snapshot = self.context, self.context.writable_snapshot()
        schema = arrow_schema(_frame(rows).schema)
        job, plan = plan_merge(context.store, snapshot, options, schema, clauses, context.ids, requires_one_match=exact)
        hooks = hooks_of(job.options, **arguments).with_verb(verb)
        check_validators(hooks.validators, plan.schema)
        check_services(self.context.storage, job.options, snapshot, plan.schema)
        session = WriteSession(context, job, hooks)
        shuffle = SparkShuffle(self._spark, context, job)
        put_aside(session, lambda: shuffle.bad_rows)
        with session.transaction.staging(is_whole=True), reuse_memory():
            staged = shuffle.stage(rows)
            count = sum(task.rows for task in staged)
            place = choose_merge_place(self._spark, job, staged, snapshot)
            if place.is_executors:
                _LOG.info("%s: %s", context.storage.location, place)
                merging = ShuffledSession(context, job, shuffle, hooks=hooks, merge=plan, merge_source=seen)
                put_aside(merging.session, lambda: shuffle.bad_rows)
                return merging.run(staged, count)
            with StageReader(context.storage, staged, job.prepare) as reader:
                partitions = reader.read_partitions()
                if job.puts_bad_rows_aside and seen is None:
                    repeats = BadRows(context.storage)
                    partitions = take_out_repeats(partitions, repeats, ",".join(job.prepare.keys.record_fields))
                    shuffle.bad_rows.append(repeats.finish(in_file=False))
                check_distinct(partitions, is_global=plan.is_global, context=context, source_snapshot=seen)
                return merge_into(session, plan, partitions, count, seen)

    def _run_operation(
        self, rows: DataFrame | None, operation: Operation, options: Options, hooks: HookArguments, *, combine: bool
    ) -> WriteResult:
        if rows is None and operation is Operation.DELETE_PARTITION:
            return Table(self.context.storage, options)._run_operation(None, operation, options, hooks, combine=combine)
        return repeat_after(
            StalePlanError,
            lambda: self._write_once(_frame(rows), options, hooks, combine=combine),
            Attempts(options.patience, self.context.ids.token),
        )

    def _write_once(self, rows: DataFrame, resolved: Options, hooks: HookArguments, *, combine: bool) -> WriteResult:
        context, schema = self.context, arrow_schema(rows.schema)
        check_job(resolved)
        config = open_or_create(context.store, resolved, incoming_schema(schema), context.clock)
        if combine and config.record_fields:
            resolved = resolved.with_values(**{"hoodie.combine.before.insert": True})
        snapshot = context.snapshot(config=config)
        job = plan_job(context.store, snapshot, resolved, schema, context.ids)
        parsed = hooks_of(resolved, **hooks)
        check_validators(parsed.validators, job.final_schema(snapshot))
        check_services(context.storage, resolved, snapshot, job.final_schema(snapshot))
        return self._write_rows(rows, job, snapshot, parsed)

    def _write_rows(self, rows: DataFrame, job: WriteJob, snapshot: Snapshot, hooks: Hooks) -> WriteResult:
        """Write the rows. Tasks write the files."""
        shuffle = SparkShuffle(self._spark, self.context, job)
        session = ShuffledSession(self.context, job, shuffle, hooks=hooks)
        put_aside(session.session, lambda: shuffle.bad_rows)
        if not job.needs_staging and (job.operation is Operation.BULK_INSERT or job.prepare.keys.generates_keys):
            return self._write_direct(rows, session, shuffle, job)
        with (
            session.session.transaction.staging(),
            session.session.transaction.report.step("stage") as counted,
        ):
            staged = shuffle.stage(rows)
            counted["files"] = sum(bool(task.path) for task in staged)
        known_commits, count = snapshot.timeline.commit_times, sum(task.rows for task in staged)
        if not job.collects_duplicates:
            return session.run(staged, count, known_commits)
        with (
            session.session.transaction.staging(is_whole=True),
            StageReader(self.context.storage, staged, job.prepare) as reader,
        ):
            return session.session.run_staged(reader.read_partitions(), count, known_commits)

    def _write_direct(
        self, rows: DataFrame, session: ShuffledSession, shuffle: SparkShuffle, job: WriteJob
    ) -> WriteResult:
        with session.session.transaction.staging(), ExitStack() as life:

            def begin() -> tuple[Snapshot, OpenCommit]:
                snapshot = self.context.snapshot()
                known_commits, base = snapshot.timeline.commit_times, snapshot.timeline
                return snapshot, life.enter_context(session.session.transaction.run_unlocked(known_commits, base))

            # Spark's jobs run once, so only what comes before them is repeated after a conflict.
            snapshot, commit = session.session.transaction.retry(begin)
            schema, closed = job.final_schema(snapshot), find_closed_partitions(session.session, snapshot)
            report = session.session.transaction.report
            with report.step("encode") as counted:
                written, staged, arrived = shuffle.write_direct(rows, commit, schema, closed)
                counted["files"] = len(written)
            if job.layout is not None and job.layout.across_tasks:
                with report.step("sort") as counted:
                    written, staged = shuffle.write_runs(staged, commit, schema, job.layout), []
                    counted["files"] = len(written)
            report.rows["incoming"] = arrived
            return session.publish(commit, written, staged, snapshot)


def _frame(rows: Any) -> DataFrame:
    """Return ``rows`` if it is a DataFrame of classic Spark or Spark Connect; else raise `InvalidInputError`."""
    from pyspark.sql import DataFrame

    if not isinstance(rows, DataFrame):
        raise InvalidInputError(
            f"rows of type {type(rows).__name__} are not a DataFrame; give one, or a condition as where='...'"
        )
    return rows
