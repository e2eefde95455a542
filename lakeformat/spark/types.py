"""Conversion between Spark's schemas and Arrow's."""

from __future__ import annotations

import inspect
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lakeformat.arrow.conform import reader_schema
from lakeformat.arrow.logical_types import HUDI_TYPE, is_blob, is_vector, type_metadata
from lakeformat.codec.stored_types import Place, unstorable_type_error
from lakeformat.errors import SchemaMismatchError, nearest
from lakeformat.write.rows.schema import evolve

__all__ = ["arrow_schema", "requested_schema", "spark_schema"]

#: Arguments of ``to_arrow_schema`` that give timestamps the zone UTC. Spark 4.0 has no such argument and
#: always uses UTC.
_ZONE: Final = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's. Timestamps without zone become timestamp_ntz."""
    plain = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return StructType([_named(ours, field) for ours, field in zip(plain, schema, strict=True)])


def _named(ours: StructField, field: pa.Field) -> StructField:
    """Name a VECTOR or BLOB in the column's metadata, as Hudi does."""
    named = is_vector(field.type) or is_blob(field.type)
    return (
        StructField(ours.name, ours.dataType, ours.nullable, dict(type_metadata(field.type) or {})) if named else ours
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to Arrow. Spark accepts only batches with exactly this schema.

    Raises:
        SchemaMismatchError: Spark cannot convert a type to Arrow.
    """
    return pa.schema([_arrow_field(field) for field in schema])


def _arrow_field(field: StructField) -> pa.Field:
    try:
        arrow = to_arrow_schema(StructType([field]), **_ZONE).field(0)
        named = field.metadata.get(HUDI_TYPE)
        return arrow.with_metadata({HUDI_TYPE: str(named)}) if named else arrow
    except (TypeError, ValueError) as error:
        raise unstorable_type_error(field.dataType.simpleString(), Place((field.name,))) from error


def requested_schema(wanted: StructType, stored: pa.Schema) -> pa.Schema:
    """Check the schema that the user gives for a read, and convert it to Arrow.

    The schema may omit and reorder columns, and have wider types than the table.

    Args:
        wanted: the user's schema.
        stored: the table's columns.

    Raises:
        SchemaMismatchError: the table does not have a column, or a type cannot represent all values of the stored type.
    """
    schema, stored_names = arrow_schema(wanted), set(stored.names)
    for field in schema:
        if field.name not in stored_names:
            raise SchemaMismatchError(
                f"the schema given for reading names {field.name!r}, which the table lacks"
                f"{nearest(field.name, stored.names)}; leave it out"
            )
        ours = reader_schema(pa.schema([stored.field(field.name)]))
        asked = reader_schema(pa.schema([field]))
        if not _holds(asked, ours):
            raise SchemaMismatchError(
                f"the schema given for reading has {field.name!r} as {field.type}, which cannot hold the table's "
                f"{ours.field(0).type}; use that type or a wider one"
            )
    return schema


def _holds(asked: pa.Schema, ours: pa.Schema) -> bool:
    try:
        return bool(evolve(asked, ours, fill_missing=True, exact=True).equals(asked))
    except SchemaMismatchError:
        return False
