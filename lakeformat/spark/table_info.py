"""The methods of `lakeformat.spark.LakehouseTable` that read: rows as DataFrames, and facts about the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lakeformat.arrow.conform import reader_schema
from lakeformat.config.read_options import BEGIN, END, FORMAT, INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.model.instant import AsOf, Moment
from lakeformat.public import spark_public
from lakeformat.read.incremental import EVERYTHING, parse_range_bounds
from lakeformat.read.query import with_time_zone
from lakeformat.read.verbs import ReadVerbs
from lakeformat.spark.host import in_session_zone, storage_secrets
from lakeformat.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SparkReading"]

_VERIFY: Final = "lakeformat.read.verify"


@spark_public
class SparkReading(ReadVerbs):
    """The methods that read a table. Methods that return no rows run in this process, without a Spark job."""

    _spark: SparkSession

    def _options_in(self, time_zone: str | None) -> Options:
        """Return the options with a zone for conditions: ``time_zone``, else the options' zone, else the session's."""
        return in_session_zone(self._spark, with_time_zone(self.options, time_zone))

    @property
    def schema(self) -> StructType:
        """Return the table's columns as Spark's types, without the meta columns."""
        return spark_schema(reader_schema(self.snapshot().columns(self.location)))

    def read(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: str | Column | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
        meta_columns: bool | None = None,
        verify: bool | None = None,
        time_zone: str | None = None,
        via: str | None = None,
    ) -> DataFrame:
        """Return a DataFrame of the table as it is at the time of this call. To read later commits, call `read` again.

        Only the columns that a query needs are read, and filters skip folders, files and row groups. (Over Spark
        Connect only ``where`` skips folders and files.) The table's path or URL must be valid on the executors.

        Args:
            columns: names of the columns to read, in order; all by default.
            where: a Spark SQL condition, or a Spark ``Column``. The rows are exactly those for which it is true. Files
                whose column statistics (minimum and maximum) rule it out are skipped. In a ``Column``, only
                comparisons of a column with literals of the column's own type can skip files.
            as_of: an instant time, a version number of `history`, a date or a datetime; now by default. A datetime
                without a zone is in the timeline's zone, which is UTC in tables created by lakeformat.
            limit: maximum number of rows; which rows is not defined. All rows by default.
            meta_columns: whether the five ``_hoodie_`` columns come first. By default the option ``meta_columns`` of
                the table, else false.
            verify: whether to test the skipping before the read: read the files and row groups that would be skipped,
                and raise `SkippingError` if a row in them matches. By default the option ``verify`` of the table,
                which is false.
            time_zone: the zone of texts and times without a zone in ``where`` that are compared with a timestamp
                column. By default the option ``time_zone``, else the session's zone.
            via: ``"native"`` reads by Spark's own Parquet scan, ``"source"`` by ``format("lakehouse")``. By default
                Spark's scan is used, unless there are very many files or Spark cannot read more than half of them. The
                logger ``lakeformat.spark`` reports the choice (INFO).

        Raises:
            InvalidInputError: an unknown column or value of ``via``, or a condition that cannot be evaluated exactly.
            InvalidOptionError: an unknown argument.
            InstantNotAvailableError: files of the state at ``as_of`` have been deleted.
            SkippingError: with ``verify``, skipping would lose rows. The message names the files.
        """
        from lakeformat.spark.reads.frames import read_rows

        said = {_VERIFY: verify, "meta_columns": meta_columns}
        options = self.options.with_values(**{key: value for key, value in said.items() if value is not None})
        options = with_time_zone(options, time_zone)
        return read_rows(self._spark, self.context, options, columns, where=where, as_of=as_of, limit=limit, via=via)

    def changes(self, since: Moment | None = None, until: Moment | None = None, *, images: bool = False) -> DataFrame:
        """Return the rows that were written by commits after ``since`` and up to ``until``: an incremental query.

        Args:
            since: exclusive start of the range: an instant time (from table version 8 on a completion time), a date or
                a datetime; ``"000"`` is before all commits. By default the option
                ``hoodie.datasource.read.begin.instanttime``.
            until: inclusive end of the range, in the same forms; by default the option
                ``hoodie.datasource.read.end.instanttime``, else now.
            images: whether to return every change, including deletes, with the row before and after the change. The
                table needs no setting for this. By default false: each row that was written is returned once, as it is
                at the end of the range.

        Returns:
            the rows without the meta columns. With ``images``, ``op`` (``i``, ``u`` or ``d``), ``ts_ms``, and the row
            ``before`` and ``after`` as JSON text, as Hudi returns them.

        Raises:
            InvalidOptionError: the range has no start, or a bound is not an instant.
            InstantNotAvailableError: with ``images``, commits of the range are archived or their files are deleted.
                Without ``images``, the range ends before the oldest commit on the timeline; the option
                ``hoodie.datasource.read.incr.fallback.fulltablescan.enable`` then allows a full scan instead.
        """
        from lakeformat.spark.reads.frames import read_table

        asked = self.options.read
        since, until = asked.begin if since is None else since, asked.end if until is None else until
        bounds = parse_range_bounds(since, until, self.config)
        values: dict[str, Any] = {QUERY_TYPE: INCREMENTAL, BEGIN: bounds.since or EVERYTHING}
        values |= {} if bounds.until is None else {END: bounds.until}
        if not images:
            return read_table(self._spark, self.context, self.options.with_values(**values, meta_columns=False))
        given = {**values, FORMAT: "cdc", **storage_secrets(self.context)}
        return self._spark.read.format("lakehouse").options(**given).load(self.location)
