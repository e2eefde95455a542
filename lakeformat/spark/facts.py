"""What a table under Spark tells of itself without a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.layout.report import LayoutReport
from lakeformat.model.instant import AsOf
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import Where
from lakeformat.spark.types import spark_schema
from lakeformat.spark.zones import in_session_zone
from lakeformat.table import Table
from lakeformat.table_state.engine import Engine
from lakeformat.timeline.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Facts"]


class Facts:
    """Settings, columns, files and counts, by this process. A host says where the table is."""

    engine: Engine
    options: Options
    _spark: SparkSession

    def _zoned(self) -> Options:
        """Let conditions be read in the time zone that the session has at this moment."""
        return in_session_zone(self._spark, self.options)

    def _here(self) -> Table:
        return Table(self.engine.storage, self._zoned())

    @property
    def config(self) -> TableConfig:
        """The table's settings, read anew."""
        return self.engine.store.config()

    @property
    def schema(self) -> StructType:
        """The table's columns as Spark has them, without the meta columns."""
        return spark_schema(self._here().schema)

    def exists(self) -> bool:
        """Whether a table stands at the path."""
        return self.engine.store.exists()

    def count(self, where: Where | None = None, *, as_of: AsOf | None = None) -> int:
        """How many rows; see `lakeformat.Table.count`."""
        return self._here().count(where, as_of=as_of)

    def files(self, *, as_of: AsOf | None = None) -> pa.Table:
        """The live files; see `lakeformat.Table.files`."""
        return self._here().files(as_of=as_of)

    def history(self, limit: int | None = None, *, actions: bool = False) -> History:
        """Completed commits, newest first, as `lakeformat.Table.history`."""
        return self._here().history(limit, actions=actions)

    def layout_report(self, columns: Sequence[str], **arguments: Any) -> LayoutReport:
        """What layouts by these columns would let filters skip; see `lakeformat.Table.layout_report`."""
        return Table(self.engine.storage, self.options).layout_report(columns, **arguments)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return self._here()._repr_html_()
