"""The read verbs of `lakeformat.spark.LakehouseTable`: those of plain Python, and rows as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lakeformat.arrow.conform import reader_schema
from lakeformat.config.read_options import BEGIN, END, FORMAT, INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.model.instant import AsOf
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
    """The read verbs; those that return no rows run in this process, without a Spark job."""

    _spark: SparkSession

    def _options_in(self, time_zone: str | None) -> Options:
        """Return the options of a read whose conditions use this time zone; by default the session's."""
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
        """Return the table as a DataFrame. The frame always shows the table as it is at the time of this call.

        Filters on partition columns leave out folders, other filters leave out row groups, and only columns that a
        query needs are read. To see later commits, call `read` again. Executors must reach the table under its
        path or URL.

        Args:
            columns: wanted columns, in order; all by default.
            where: a Spark SQL condition, or a Spark ``Column``; applied exactly. Before Spark plans the read, files
                are left out by their statistics. In a ``Column``, only comparisons of a column with literals of its
                own type leave files out.
            as_of: an instant time, a date or a datetime; now by default. A datetime without a zone is in the
                timeline's zone, which is UTC in tables made by lakeformat.
            limit: the greatest number of rows; any rows of the answer may be chosen. All by default.
            meta_columns: whether the five ``_hoodie_`` columns come first. By default the option ``meta_columns`` of
                the table, else false.
            verify: whether to check the skipping first: the files and row groups that would be skipped are read, and
                no row in them may match. By default the option ``verify`` of the table, which is false.
            time_zone: the zone of texts and times without a zone in ``where`` that are compared with a timestamp
                column. By default the option ``time_zone``, else the session's zone.
            via: ``"native"``, Spark's own Parquet scan, or ``"source"``, ``format("lakehouse")``. By default the
                first, unless there are too many files or Spark cannot read them. The logger ``lakeformat.spark``
                says which one is used (INFO).

        Raises:
            InvalidInputError: an unknown column or way, or a condition that cannot be answered exactly.
            InvalidOptionError: an unknown argument.
            InstantNotAvailableError: files of ``as_of`` are deleted.
            SkippingError: with ``verify``, if skipping would have lost rows. The message names the files.
        """
        from lakeformat.spark.reads.frames import read_rows

        said = {_VERIFY: verify, "meta_columns": meta_columns}
        options = self.options.with_values(**{key: value for key, value in said.items() if value is not None})
        options = with_time_zone(options, time_zone)
        return read_rows(self._spark, self.context, options, columns, where=where, as_of=as_of, limit=limit, via=via)

    def changes(self, since: AsOf | None = None, until: AsOf | None = None, *, images: bool = False) -> DataFrame:
        """Return the rows that commits after ``since``, up to and including ``until``, wrote: an incremental query.

        Args:
            since: exclusive; an instant time (from table version 8 on a completion time), a date or a datetime;
                ``"000"`` is before all commits. By default the option
                ``hoodie.datasource.read.begin.instanttime``.
            until: inclusive; by default the option ``hoodie.datasource.read.end.instanttime``, else now.
            images: whether to return every change, deletes too, with the row before and after it. Writes need no
                setting for this. By default false: each row is returned once, as it is at the end of the range.

        Returns:
            the rows without the meta columns. With ``images``, ``op`` (``i``, ``u`` or ``d``), ``ts_ms``, and the row
            ``before`` and ``after`` as JSON text, as Hudi returns them.

        Raises:
            InvalidOptionError: no begin, or a bound that is not an instant.
            InstantNotAvailableError: with ``images``, commits of the range are archived or their files are deleted.
                Without ``images``, the range ends before the oldest commit on the timeline; see
                ``hoodie.datasource.read.incr.fallback.fulltablescan.enable``.
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
