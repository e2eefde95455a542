"""The data source ``lakehouse`` as Spark calls it. The module imports only pyspark, so that Spark finds it fast."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from lakeformat.spark.pushdown import Relation

__all__ = ["LakehouseSource"]

_NEEDED: Final = ("pyarrow", "numpy", "fsspec", "mmh3", "fastavro")


class LakehouseSource(DataSource):
    """The source of ``spark.read.format("lakehouse").load(path)`` and ``df.write.format("lakehouse")….save(path)``."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._relation: Relation | None = None
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise ImportError(
                f'format("lakehouse") needs Python packages that are missing here ({", ".join(missing)}); run '
                f"'pip install {' '.join(_NEEDED)}' in the environment of the driver and the workers"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, which includes the snapshot to read as a `Relation`.

        Spark keeps the pickled source with a DataFrame or view, so all scans of it read the same snapshot.
        """
        self._prepare()
        return self.__dict__

    def _prepare(self) -> Relation | None:
        from lakeformat.spark.pushdown import new_relation

        if self._relation is None:
            self._relation = new_relation(dict(self.options))
        return self._relation

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lakehouse"

    def schema(self) -> StructType:
        """Return the columns of a read for which the user gives no schema.

        Raises:
            UnsupportedTableError: the table is in Spark's catalog, for which Spark passes no path.
        """
        from lakeformat.errors import UnsupportedTableError
        from lakeformat.spark.host import plain_errors
        from lakeformat.spark.reads.reader import read_columns_schema

        if "provider" in self.options:  # Spark sets it only for tables of its catalog.
            with plain_errors():
                raise UnsupportedTableError(
                    "Spark does not pass a path for catalog tables; write create temporary view ... using lakehouse "
                    "options (path '...'), or read by spark.read.format(\"lakehouse\")"
                )
        return read_columns_schema(dict(self.options), self._prepare())

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """Return the reader of a batch query. Sail gives an Arrow schema."""
        from pyspark.sql.types import StructType

        from lakeformat.spark.reads.reader import make_reader

        self._refuse_catalog()
        reader = make_reader(dict(self.options), _struct_of(schema), self._relation)
        if isinstance(schema, StructType):
            return reader
        from lakeformat.spark.reads.retyped_reader import RetypedReader

        return RetypedReader(reader, schema)

    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query. Spark calls this when the write runs, but not for EXPLAIN."""
        from lakeformat.spark.writes.writer import make_writer

        self._refuse_catalog()
        return make_writer(dict(self.options), _struct_of(schema), overwrite)

    def _refuse_catalog(self) -> None:
        """Raise `InvalidOptionError` if the options have no path. Spark passes none for a table of its catalog.

        For a ``load()`` without a path, Spark calls `schema` first, which raises its own error.
        """
        from lakeformat.errors import InvalidOptionError
        from lakeformat.spark.host import plain_errors

        if not any(self.options.get(name) for name in ("path", "paths")):
            with plain_errors():
                raise InvalidOptionError(
                    "no path given; Spark does not pass a path for catalog tables, which can be neither "
                    "read nor written: drop that table (its files stay), and write .load(path), .save(path) or create "
                    "temporary view ... using lakehouse options (path '...')"
                )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name.
        """Return the reader of a streaming query."""
        from lakeformat.spark.streams.reader import make_stream_reader

        self._refuse_catalog()
        return make_stream_reader(dict(self.options), schema, self._relation)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer of batches of a streaming query."""
        from lakeformat.spark.streams.writer import make_stream_writer

        self._refuse_catalog()
        return make_stream_writer(dict(self.options), schema, overwrite)


def _struct_of(schema: StructType | pa.Schema) -> StructType:
    """Return a schema as Spark's type."""
    from pyspark.sql.types import StructType

    from lakeformat.spark.types import spark_schema

    return schema if isinstance(schema, StructType) else spark_schema(schema)
