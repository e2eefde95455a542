"""Parsing of ``create`` and ``drop table`` into dataclasses, and conversion of column types. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError, InvalidOptionError, nearest
from lakeformat.sql_statements.parse import (
    Dialect,
    TableName,
    column_of_node,
    count_depths,
    quote_sql,
    syntax_tree,
    table_of_node,
    tokenize,
)

__all__ = [
    "AddColumns",
    "CreateTable",
    "DropPartitions",
    "DropTable",
    "arrow_field",
    "arrow_type",
    "check_optional",
    "parse_type",
    "partition_spec",
    "read_create",
    "read_drop",
    "sql_type",
]

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),  # In sqlglot this is Spark's ``timestamp``, an instant.
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}
_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def arrow_type(node: Any) -> pa.DataType:
    """Return the Arrow type for a column type, which is a node of sqlglot's tree.

    Raises:
        InvalidInputError: if tables cannot store the type.
    """
    name = getattr(node.this, "name", "")
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DECIMAL":
        parameters = [int(parameter.this.name) for parameter in node.expressions]
        return pa.decimal128(parameters[0] if parameters else 10, parameters[1] if len(parameters) > 1 else 0)
    if name == "ARRAY" and node.expressions:
        return pa.list_(arrow_type(node.expressions[0]))
    if name == "MAP" and node.expressions:
        return pa.map_(*map(arrow_type, node.expressions))
    if name == "STRUCT" and node.expressions:
        return pa.struct([arrow_field(child) for child in node.expressions])
    raise InvalidInputError(
        f"type {quote_sql(node.sql('spark'))} is not supported; see docs/limits.md for those that are"
    )


def arrow_field(node: Any, *, with_default: bool = False) -> pa.Field:
    """Return the Arrow field for a column definition of a ``create table``. A comment in the definition is ignored.

    Args:
        with_default: whether the definition may have a default value.

    Raises:
        InvalidInputError: if a type or a clause is not supported.
    """
    optional = True
    for constraint_node in node.args.get("constraints") or ():
        kind = type(constraint_node.kind).__name__
        if kind == "NotNullColumnConstraint":
            optional = bool(constraint_node.kind.args.get("allow_null"))
        elif kind != "CommentColumnConstraint" and not (with_default and kind == "DefaultColumnConstraint"):
            constraint = quote_sql(constraint_node.sql("spark"))
            raise InvalidInputError(
                f"{constraint} of column {str(node.name)!r} is not supported; give each row its value"
            )
    return pa.field(str(node.name), arrow_type(node.args["kind"]), optional)


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type for a column type of SQL, such as ``decimal(10, 2)``.

    Raises:
        InvalidInputError: if the text is not a type, or tables cannot store the type.
    """
    return arrow_type(syntax_tree(f"cast(x as {text})").args["to"])


def sql_type(kind: pa.DataType) -> str:
    """Return the Spark SQL name of an Arrow type, for columns as tables store them."""
    if kind in _NAMES:
        return _NAMES[kind]
    match kind_of(kind):
        case Kind.DECIMAL:
            return f"decimal({kind.precision},{kind.scale})"
        case Kind.TIMESTAMP:
            return "timestamp" if kind.tz else "timestamp_ntz"
        case Kind.BYTES:
            return "binary"
        case Kind.LIST:
            return f"array<{sql_type(kind.value_type)}>"
        case Kind.MAP:
            return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
        case Kind.STRUCT:
            return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
        case _:
            return str(kind)


#: Maps the SQL names of table properties in Hudi's guides (``HoodieOptionConfig``), in lower case, to option keys.
_PROPERTIES: Final[Mapping[str, str]] = {
    "primarykey": "hoodie.datasource.write.recordkey.field",
    "precombinefield": "hoodie.table.ordering.fields",
    "orderingfields": "hoodie.table.ordering.fields",
    "type": "hoodie.datasource.write.table.type",
    "payloadclass": "hoodie.datasource.write.payload.class",
    "recordmergemode": "hoodie.write.record.merge.mode",
}
_TYPES: Final = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_RECORD_KEY: Final = _PROPERTIES["primarykey"]
_PARTITIONS: Final = "hoodie.datasource.write.partitionpath.field"
_FORMATS: Final = frozenset({"lakehouse", "hudi", "delta"})


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A ``create table`` statement.

    Attributes:
        target: the table's name or path.
        columns: the columns; None if the query, or the table at the location, defines them.
        options: options of the table and of later writes, by option key.
        location: the path after LOCATION; None if there is none.
        query: the query after AS, as written; None if there is none.
        if_not_exists, or_replace: whether the statement has these clauses.
    """

    target: TableName
    columns: pa.Schema | None
    options: Mapping[str, str]
    location: str | None
    query: str | None
    if_not_exists: bool
    or_replace: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """A ``drop table`` statement; ``if_exists`` tells whether it has that clause."""

    target: TableName
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AddColumns:
    """An ``alter table ... add columns`` statement. With ``if_not_exists``, columns that exist already are skipped."""

    target: TableName
    columns: pa.Schema
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """An ``alter table ... drop partition`` statement. Each partition maps columns to values as text, None for null."""

    target: TableName
    partitions: tuple[Mapping[str, str | None], ...]


def _split_off_query(text: str) -> tuple[str, str | None]:
    """Replace the query of a ``create table ... as`` by ``select 1``. Return the new statement, and the query or None.

    sqlglot parses the statement without its query, because it may be unable to parse the SQL of Spark or duckdb.
    """
    tokens = tokenize(text, Dialect.SPARK)
    for number, (token, depth) in enumerate(zip(tokens, count_depths(tokens), strict=True)):
        if depth == 0 and token.lower == "as" and number + 1 < len(tokens):
            return f"{text[: token.end]} select 1", text[tokens[number + 1].at :]
    return text, None


def read_create(text: str) -> CreateTable | None:
    """Parse a ``create table`` statement. Return None if the table is in a format of other software.

    Raises:
        InvalidInputError: if it cannot be parsed, or a clause is not supported.
        InvalidOptionError: if a property is unknown.
    """
    text, query = _split_off_query(text)
    node = syntax_tree(text)
    if type(node).__name__ != "Create" or node.args.get("kind") != "TABLE":
        raise InvalidInputError(f"cannot read {quote_sql(text)}; see the clauses in docs/sql.md")
    if node.args.get("clone") is not None:
        raise InvalidInputError("create table ... clone is not supported; write create table ... as select")
    target = table_of_node(node.this)
    properties = node.args["properties"].expressions if node.args.get("properties") is not None else []
    formats = [name_node.name.lower() for name_node in properties if type(name_node).__name__ == "FileFormatProperty"]
    if target.path is None and not _FORMATS.intersection(formats):
        return None
    fields, keys = _columns(node)
    clauses = _Clauses()
    for property_node in properties:
        clauses.take(property_node)
    if keys and clauses.settings.setdefault(_RECORD_KEY, ",".join(keys)) != ",".join(keys):
        raise InvalidInputError("primary key and the property primaryKey name different columns; give one of them")
    names = {field.name for field in fields}
    fields += [field for field in clauses.partition_columns if field.name not in names]
    check_optional(fields, clauses.settings.get(_RECORD_KEY, ""))
    if query is not None and fields:
        raise InvalidInputError("create table ... as select takes its columns from the query; leave them out")
    if clauses.partitions:
        clauses.settings[_PARTITIONS] = ",".join(clauses.partitions)
    return CreateTable(
        target,
        pa.schema(fields) if fields else None,
        clauses.settings,
        clauses.location,
        query,
        if_not_exists=bool(node.args.get("exists")),
        or_replace=bool(node.args.get("replace")),
    )


def check_optional(columns: Iterable[pa.Field], record_key: str) -> None:
    """Raise an error if a column outside of the record key is ``not null``, because tables do not store this.

    On record key columns ``not null`` is accepted, because they are never null.
    """
    keys = {name.strip() for name in record_key.split(",")}
    for field in columns:
        if not field.nullable and field.name not in keys:
            raise InvalidInputError(
                f"not null of column {field.name!r} is not supported; leave it out, validators of writes check rows"
            )


def _columns(node: Any) -> tuple[list[pa.Field], list[str]]:
    """Return the Arrow fields of the column definitions, and the column names in ``primary key (...)``."""
    fields: list[pa.Field] = []
    keys: list[str] = []
    for child in node.this.expressions if type(node.this).__name__ == "Schema" else ():
        if type(child).__name__ == "ColumnDef":
            if child.args.get("position") is not None:
                raise InvalidInputError(f"the place of column {str(child.name)!r} is not supported; put it there")
            fields.append(arrow_field(child))
        elif type(child).__name__ == "PrimaryKey":
            keys += [str(column.name) for column in child.expressions]
        else:
            raise InvalidInputError(
                f"{quote_sql(child.sql('spark'))} is not supported; validators of writes check rows"
            )
    return fields, keys


class _Clauses:
    """The values of the clauses after the columns of a ``create table``, collected by `take`."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.partitions: list[str] = []
        self.partition_columns: list[pa.Field] = []
        self.location: str | None = None

    def take(self, node: Any) -> None:
        """Add the value of one clause. Raise `InvalidInputError` if the clause is not supported."""
        readers: Mapping[str, Callable[[Any], None]] = {
            "FileFormatProperty": self._format,
            "LocationProperty": self._location,
            "SchemaCommentProperty": self._ignore,
            "ExternalProperty": self._ignore,
            "PartitionedByProperty": self._partition_by,
            "Property": self._property,
            "OptionsProperty": self._properties,
        }
        if type(node).__name__ not in readers:
            clause = quote_sql(node.sql("spark")) if type(node).__name__ != "LikeProperty" else "like"
            raise InvalidInputError(f"create table ... {clause} is not supported; see the clauses in docs/sql.md")
        readers[type(node).__name__](node)

    def _ignore(self, node: Any) -> None:
        """Ignore a clause without effect: a comment is not stored, and every table is ``external``."""

    def _properties(self, node: Any) -> None:
        for child in node.expressions:
            self._property(child)

    def _format(self, node: Any) -> None:
        if node.name.lower() not in _FORMATS:
            raise InvalidInputError(f"using {node.name} is not supported; write using lakehouse")

    def _location(self, node: Any) -> None:
        self.location = str(node.this.name)

    def _partition_by(self, node: Any) -> None:
        for child in node.this.expressions:
            kind = type(child).__name__
            if kind not in {"Identifier", "Column", "ColumnDef"}:
                raise InvalidInputError(
                    f"partitioned by {quote_sql(child.sql('spark'))} is not supported; name columns, and add one for a "
                    "computed value"
                )
            self.partitions.append(str(child.name))
            if kind == "ColumnDef":
                self.partition_columns.append(arrow_field(child))

    def _property(self, node: Any) -> None:
        key = node.this.name if type(node.this).__name__ != "Dot" else node.this.sql("spark")
        value = str(node.args["value"].name)
        if key.lower() == "path":
            self.location = value
            return
        name, value = _property(str(key), value)
        if self.settings.setdefault(name, value) != value:
            raise InvalidOptionError(f"property {key!r} is given twice; give it once")


def _property(key: str, value: str) -> tuple[str, str]:
    lower = key.lower()
    if lower in _PROPERTIES:
        return _PROPERTIES[lower], _TYPES.get(value.lower(), value) if lower == "type" else value
    if lower.startswith(("hoodie.", "lakeformat.")):
        return key, value
    if lower == "delta.enablechangedatafeed":
        raise InvalidOptionError(f"property {key} is Delta's; write 'hoodie.table.cdc.enabled' = '{value}'")
    names = ("primaryKey", "preCombineField", "orderingFields", "type", "payloadClass", "recordMergeMode")
    raise InvalidOptionError(
        f"property {key!r} is not known{nearest(key, names)}; there are {', '.join(names)} and Hudi's options"
    )


def read_drop(text: str) -> DropTable:
    """Parse a ``drop table`` statement.

    Raises:
        InvalidInputError: if it cannot be parsed, or a clause is not supported.
    """
    node = syntax_tree(text)
    if node.args.get("purge"):
        raise InvalidInputError(
            "drop table ... purge is not supported: no file is deleted by SQL; delete the folder itself"
        )
    named = node.args.get("tables") or [node.this]
    if len(named) != 1:
        raise InvalidInputError("several tables at once; drop one")
    return DropTable(table_of_node(named[0]), bool(node.args.get("exists")))


def partition_spec(node: Any) -> dict[str, str | None]:
    """Parse ``partition (a = 1, b = 'x')`` into a mapping of column to value as a string, or None for null.

    Raises:
        InvalidInputError: if a column has no literal.
    """
    spec: dict[str, str | None] = {}
    for child in node.expressions:
        value = child.expression if type(child).__name__ == "EQ" else None
        kind = type(value).__name__
        if value is None or kind not in {"Literal", "Null", "Neg", "Boolean"}:
            raise InvalidInputError(
                f"partition ({quote_sql(child.sql('spark'))}) is not supported; write column = value"
            )
        spec[column_of_node(child.this)] = (
            None if kind == "Null" else value.name if kind == "Literal" else value.sql("spark").lower()
        )
    return spec
