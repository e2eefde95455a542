"""Types of columns in a catalog: Hive's types, and the schema as Spark's JSON.

The texts equal those of Hudi's ``HiveSchemaUtil`` and ``SparkSchemaUtils``, spaces included.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["hive_type", "spark_schema_json"]


def hive_type(type_: pa.DataType, *, has_timestamps: bool) -> str:
    """Return the type of a column in Hive, in lower case.

    Args:
        has_timestamps: whether timestamps have the type ``timestamp``. If not, it is ``bigint``, as in Hudi.
    """
    if pat.is_struct(type_):
        fields = (f"{_hive_name(f.name)}:{hive_type(f.type, has_timestamps=has_timestamps)}" for f in type_)
        return f"struct<{','.join(fields)}>".replace("-", "_").lower()
    if pat.is_map(type_):
        key, item = (hive_type(kind, has_timestamps=has_timestamps) for kind in (type_.key_type, type_.item_type))
        return f"map<{key},{item}>"
    if _is_list(type_):
        return f"array<{hive_type(type_.value_type, has_timestamps=has_timestamps)}>"
    if pat.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pat.is_timestamp(type_):
        return "timestamp" if has_timestamps else "bigint"
    return _SIMPLE[_kind(type_)][0]


def _hive_name(name: str) -> str:
    return name.replace("$", "_dollar_")


def spark_schema_json(fields: Iterable[pa.Field]) -> str:
    """Return columns as the JSON text of Spark's schema."""
    columns = ",".join(
        f'{{"name":"{field.name}","type":{_spark_type(field.type)},"nullable":{_flag(field.nullable)},"metadata":{{}}}}'
        for field in fields
    )
    return f'{{"type":"struct","fields":[{columns}]}}'


def _spark_type(type_: pa.DataType) -> str:
    if pat.is_struct(type_):
        return spark_schema_json(type_)
    if pat.is_map(type_):
        return (
            f'{{"type":"map", "keyType":{_spark_type(type_.key_type)},"valueType":{_spark_type(type_.item_type)},'
            f'"valueContainsNull":{_flag(type_.item_field.nullable)}}}'
        )
    if _is_list(type_):
        contains_null = _flag(type_.value_field.nullable)
        return f'{{"type":"array", "elementType":{_spark_type(type_.value_type)},"containsNull":{contains_null}}}'
    if pat.is_decimal(type_):
        return f'"decimal({type_.precision},{type_.scale})"'
    if pat.is_timestamp(type_):
        return '"timestamp"' if type_.tz else '"timestamp_ntz"'
    return f'"{_SIMPLE[_kind(type_)][1]}"'


def _is_list(type_: pa.DataType) -> bool:
    return bool(pat.is_list(type_) or pat.is_large_list(type_) or pat.is_fixed_size_list(type_))


def _flag(value: bool) -> str:
    return "true" if value else "false"


#: Maps the kind of a type to the type's names in Hive and in Spark.
_SIMPLE = {
    "bool": ("boolean", "boolean"),
    "int": ("int", "integer"),
    "long": ("bigint", "long"),
    "float": ("float", "float"),
    "double": ("double", "double"),
    "string": ("string", "string"),
    "binary": ("binary", "binary"),
    "date": ("date", "date"),
}


def _kind(type_: pa.DataType) -> str:
    """Return the key of a type in `_SIMPLE`. A time of day is a number, as in Hudi."""
    tests = {
        "bool": pat.is_boolean,
        "int": lambda t: pat.is_int32(t) or pat.is_int16(t) or pat.is_int8(t) or pat.is_time32(t),
        "long": lambda t: pat.is_int64(t) or pat.is_time64(t),
        "float": lambda t: pat.is_float32(t) or pat.is_float16(t),
        "double": pat.is_float64,
        "date": pat.is_date,
        "binary": lambda t: pat.is_binary(t) or pat.is_large_binary(t) or pat.is_fixed_size_binary(t),
    }
    return next((kind for kind, test in tests.items() if test(type_)), "string")
