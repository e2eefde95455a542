"""Conversion between Arrow schemas and the Avro schema text of a Hudi table.

The text is stored in commit metadata (``extraMetadata.schema``), in ``hoodie.table.create.schema`` and in Parquet
footers (``parquet.avro.schema``). It has the form that Hudi's Spark ``SchemaConverters`` makes: a struct is a record
named after its field, a decimal is a ``fixed``, and the namespace of both is the path of names that leads to the field.

========================= ====================================================
Arrow                     Avro
========================= ====================================================
int8, int16, int32        int (int64, floats, boolean, string and bytes: the type of that name)
date32                    int, logical type date
timestamp[us or ms, zone] long, logical type timestamp-micros or -millis
timestamp[us or ms]       long, logical type local-timestamp-micros or -millis
decimal128                fixed, logical type decimal
list, struct, map         array, record, map (keys are strings)
VECTOR                    fixed, logical type vector (Hudi 1.2)
BLOB, VARIANT             record, logical type blob or variant (Hudi 1.2)
========================= ====================================================

`AvroType` is a parsed Avro schema as a tree, with for each type what a decoder needs: how a value is encoded, and the
Arrow type of the decoded values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import (
    BLOB,
    BLOB_TYPES,
    VARIANT,
    VECTOR_ELEMENTS,
    is_blob,
    is_variant,
    is_vector,
    plain_bytes,
    vector_type,
)
from lakeformat.codec.avro.container import MIN_BYTES
from lakeformat.codec.json_text import NestedTooDeepError, parse_json
from lakeformat.codec.stored_types import (
    MAX_NESTING,
    MAX_PRECISION,
    ROOT,
    Place,
    refuse_deep,
    refuse_repeated,
    unstorable_type_error,
)
from lakeformat.errors import CorruptTableError, SchemaMismatchError, UnsupportedTableError
from lakeformat.model.record import META_COLUMNS

__all__ = ["PRIMITIVES", "AvroType", "from_avro", "record_type", "to_avro", "with_meta", "without_meta"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Replacement of characters that Avro does not allow in names (Hudi: ``HoodieAvroUtils.sanitizeName``).
_MASK: Final = "__"
_MAX_NODES: Final = 100_000

#: Maps each primitive type to the Arrow type of its values.
PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_TO_PRIMITIVE: Final = {pa.int8(): "int", pa.int16(): "int", **{t: name for name, t in PRIMITIVES.items()}}
_TO_LOGICAL: Final = {arrow: avro for avro, arrow in _LOGICAL.items() if avro[1] != "uuid"}


def to_avro(schema: pa.Schema, *, table_name: str) -> str:
    """Return the Avro text of ``schema`` as Hudi writes it: record ``<table>_record``, namespace ``hoodie.<table>``.

    Nullable fields become ``["null", T]`` with default null. Meta columns have ``"doc":""``, as in Hudi's own
    footers. Characters of the table name that Avro does not allow are replaced like in Hudi (``my-table`` becomes
    ``my__table``).

    Raises:
        SchemaMismatchError: Avro does not allow a column's name or cannot store its type; the message names the column.
    """
    return _write_avro(_Columns(schema.serialize().to_pybytes(), schema), table_name)


@dataclass(frozen=True, slots=True)
class _Columns:
    """A schema as the key of a cache. Equal ones have equal metadata, too."""

    serialized: bytes
    schema: pa.Schema = field(compare=False)


@lru_cache(maxsize=64)  # Cached: a write needs the text of its columns three times.
def _write_avro(columns: _Columns, table_name: str) -> str:
    table = _sanitise(table_name)
    record = _record(list(columns.schema), f"{table}_record", f"hoodie.{table}", ROOT)
    return json.dumps(record, separators=(",", ":"))


def from_avro(text: str, *, name: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record schema. Meta columns are included if the record has them.

    A field, list element or map value is nullable exactly if its type is a union with null. List elements
    are named ``element``, as in Parquet files. Enums and uuids become strings.

    Args:
        text: The Avro schema as JSON.
        name: Path of the file that contains the text, for messages.

    Raises:
        CorruptTableError: ``text`` is not JSON, or not an Avro record.
        UnsupportedTableError: A field has a type that no column can have; the message names the field and the type.
    """
    try:
        tree = parse_json(text)
        if not isinstance(tree, dict) or tree.get("type") != "record":
            raise CorruptTableError(f"the Avro schema in {name} is not a record; restore the file")
        root = _Parser(name).type_of(tree, ROOT)
    except (NestedTooDeepError, RecursionError):
        raise UnsupportedTableError(f"the schema in {name} is nested too deeply; flatten the table") from None
    except ValueError as error:
        raise CorruptTableError(f"the Avro schema in {name} is not JSON: {error}; restore the file") from None
    return pa.schema(list(root))


def without_meta(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` without Hudi's five meta columns."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with Hudi's five meta columns, as nullable strings, before all other columns."""
    meta = [pa.field(column, pa.string()) for column in META_COLUMNS]
    return pa.schema([*meta, *without_meta(schema)])


def _sanitise(table_name: str) -> str:
    if not table_name:
        raise SchemaMismatchError("a table without a name has no Avro schema; set hoodie.table.name")
    first = table_name[0] if _NAME.fullmatch(table_name[0]) else _MASK
    return first + re.sub(r"[^A-Za-z0-9_]", _MASK, table_name[1:])


def _record(fields: Sequence[pa.Field], name: str, namespace: str, place: Place) -> dict[str, Any]:
    refuse_repeated(fields, place)
    inner = f"{namespace}.{name}"
    avro_fields = [_field_to_avro(field, place.field(field.name, inner)) for field in fields]
    return {"type": "record", "name": name, "namespace": namespace, "fields": avro_fields}


def _field_to_avro(field: pa.Field, place: Place) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise SchemaMismatchError(
            f"column {str(place)!r} cannot be stored: Avro names hold only ASCII letters, digits and _ "
            "and do not start with a digit; rename the column"
        )
    avro: dict[str, Any] = {"name": field.name, "type": _nullable_to_avro(field, place)}
    if field.name in META_COLUMNS and len(place.path) == 1:
        avro["doc"] = ""
    if field.nullable:
        avro["default"] = None
    return avro


def _nullable_to_avro(field: pa.Field, place: Place) -> Any:
    avro = _type_to_avro(field.type, place)
    return ["null", avro] if field.nullable else avro


def _type_to_avro(data_type: pa.DataType, place: Place) -> Any:
    refuse_deep(place)
    if primitive := _TO_PRIMITIVE.get(data_type):
        return primitive
    if kind_of(data_type) is Kind.TIMESTAMP and data_type.tz is not None:
        data_type = pa.timestamp(data_type.unit, "UTC")  # Avro has one type for all zones.
    if logical := _TO_LOGICAL.get(data_type):
        return {"type": logical[0], "logicalType": logical[1]}
    fixed = {"type": "fixed", "name": "fixed", "namespace": f"{place.namespace}.{place.path[-1]}"}
    if is_vector(data_type):
        return _vector_to_avro(data_type, fixed["namespace"])
    if is_blob(data_type) or is_variant(data_type):
        return _marked_to_avro(data_type, place)
    match kind_of(data_type):
        case Kind.BYTES if isinstance(data_type, pa.FixedSizeBinaryType):
            return {**fixed, "size": data_type.byte_width}
        case Kind.DECIMAL if 0 <= data_type.scale <= data_type.precision:
            size = ((10**data_type.precision - 1).bit_length() + 8) // 8  # Bytes for the digits and a sign bit.
            decimal = {"logicalType": "decimal", "precision": data_type.precision, "scale": data_type.scale}
            return {**fixed, "size": size, **decimal}
        case Kind.STRUCT:
            return _record(list(data_type), place.path[-1], place.namespace, place)
        case Kind.LIST:
            return {"type": "array", "items": _nullable_to_avro(data_type.value_field, place.element())}
        case Kind.MAP if data_type.key_type == pa.string():
            return {"type": "map", "values": _nullable_to_avro(data_type.item_field, place.element())}
    raise unstorable_type_error(data_type, place)


def _vector_to_avro(data_type: pa.DataType, namespace: str) -> dict[str, Any]:
    """Return Hudi's form of a VECTOR. Its namespace is the column's, since Avro defines a name once (Hudi: empty)."""
    element = next(name for name, kind in VECTOR_ELEMENTS.items() if kind == data_type.value_type)
    return {
        "type": "fixed",
        "name": f"vector_{element.lower()}_{data_type.list_size}",
        "namespace": namespace,
        "size": plain_bytes(data_type).byte_width,
        "logicalType": "vector",
        "dimension": data_type.list_size,
        "elementType": element,
        "storageBacking": "FIXED_BYTES",
    }


def _marked_to_avro(data_type: pa.StructType, place: Place) -> dict[str, Any]:
    """Return the record of a BLOB or VARIANT with its logical type; the type of a BLOB's bytes is an enum."""
    name = "blob" if is_blob(data_type) else "variant"
    record = _record(list(data_type), name, f"{place.namespace}.{place.path[-1]}", place)
    for required in _required_fields(record, name):
        required["type"] = required["type"][1]
        del required["default"]
    if name == "blob":
        record["fields"][0]["type"] = {"type": "enum", "name": "blob_storage_type", "symbols": [*BLOB_TYPES]}
    return {**record, "logicalType": name}


def _required_fields(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the fields of a BLOB's or VARIANT's record that Hudi calls required, and those of the BLOB's reference."""
    if name == "variant":
        return list(record["fields"])
    kind, _, reference = record["fields"]
    path, _, _, managed = reference["type"][1]["fields"]
    return [kind, path, managed]


class _Parser:
    """A parser of one schema. It stores each named type and the number of types inside, to resolve later references."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, tuple[pa.DataType, int]] = {}
        self._nodes = 0

    def type_of(self, avro: Any, place: Place) -> pa.DataType:
        """Return the Arrow type of an Avro type that is not a union."""
        self._count(1, place)
        match avro:
            case str() if avro in PRIMITIVES:
                return PRIMITIVES[avro]
            case str():
                return self._reference(avro, place)
            case {"logicalType": str(), "type": str()}:
                return self._logical(avro, place)
            case {"type": "record"}:
                return self._record(avro, place)
            case {"type": "array"}:
                return pa.list_(self._field("element", avro.get("items"), place.element()))
            case {"type": "map"}:
                return pa.map_(pa.string(), self._field("value", avro.get("values"), place.element()))
            case {"type": "enum"}:
                return self._remember(avro, place, pa.string())
            case {"type": "fixed", "size": int(size)} if 0 <= size < 2**31:
                return self._remember(avro, place, pa.binary(size))
            case {"type": str() | dict() as inner} if inner != "fixed":
                return self.type_of(inner, place.element())
        raise self._unsupported(avro, place)

    def _record(self, avro: dict[str, Any], place: Place) -> pa.DataType:
        before = self._nodes
        inner = self._full_name(avro, place).rpartition(".")[0]
        avro_fields = avro.get("fields")
        if not isinstance(avro_fields, list):
            raise self._corrupt(place, "is a record without fields")
        fields: list[pa.Field] = []
        for avro_field in avro_fields:
            match avro_field:
                case {"name": str(name), "type": field_type} if name.isprintable() and name:
                    fields.append(self._field(name, field_type, place.field(name, inner)))
                case _:
                    raise self._corrupt(place, f"has a field without name or type: {_brief(avro_field)}")
        if len({field.name for field in fields}) < len(fields):
            raise self._corrupt(place, "has two fields of one name")
        return self._remember(avro, place, pa.struct(fields), cost=self._nodes - before)

    def _field(self, name: str, avro: Any, place: Place) -> pa.Field:
        """Return the Arrow field for a type. A union of one type and null is a nullable field; others are refused."""
        if not isinstance(avro, list):
            return pa.field(name, self.type_of(avro, place), nullable=False)
        others = [branch for branch in avro if branch not in ("null", {"type": "null"})]
        if len(others) != 1 or isinstance(others[0], list):
            raise self._unsupported(avro, place)
        return pa.field(name, self.type_of(others[0], place), nullable=len(others) < len(avro))

    def _decimal(self, avro: dict[str, Any], place: Place) -> pa.DataType:
        match avro.get("precision"), avro.get("scale", 0):
            case int(precision), int(scale) if 0 < precision <= MAX_PRECISION and 0 <= scale <= precision:
                return pa.decimal128(precision, scale)
        raise self._unsupported(avro, place)

    def _logical(self, avro: dict[str, Any], place: Place) -> pa.DataType:
        """Return the Arrow type of an Avro type with a logical type."""
        match avro["type"], avro["logicalType"]:
            case "bytes", "decimal":
                return self._decimal(avro, place)
            case "fixed", "decimal":
                return self._remember(avro, place, self._decimal(avro, place))
            case "fixed", "vector":
                return self._remember(avro, place, self._vector(avro, place))
            case "record", "blob" | "variant" as name:
                return self._marked(avro, place, BLOB if name == "blob" else VARIANT)
            case logical if logical in _LOGICAL:
                return _LOGICAL[logical]
        raise self._unsupported(avro, place)

    def _vector(self, avro: dict[str, Any], place: Place) -> pa.DataType:
        match avro:
            case {"dimension": int(count), "elementType": str(element), "size": int(size)} if (
                element in VECTOR_ELEMENTS and 0 < count <= size < 2**31
            ):
                kind = vector_type(count, element)
                if plain_bytes(kind).byte_width == size and place.depth == 1:
                    return kind
        raise self._unsupported(avro, place)

    def _marked(self, avro: dict[str, Any], place: Place, kind: pa.StructType) -> pa.DataType:
        """Return the type with a mark. A record with other fields is refused, such as a shredded VARIANT."""
        fields_read = self._record(avro, place)
        fields = {field.name: field.type for field in kind}
        if {field.name: _nullable(field.type) for field in fields_read} != fields:
            raise self._unsupported(avro, place)
        return self._remember(
            avro, place, pa.struct([kind.field(field.name) for field in fields_read]), cost=len(fields_read)
        )

    def _reference(self, name: str, place: Place) -> pa.DataType:
        named = self._named.get(_qualify(name, place.namespace)) or self._named.get(name)
        if named is None:  # The name is unknown, or names the record being parsed (a recursive type).
            raise self._unsupported(name, place)
        self._count(named[1], place)
        return named[0]

    def _remember(self, avro: Any, place: Place, data_type: pa.DataType, cost: int = 0) -> pa.DataType:
        self._named[self._full_name(avro, place)] = (data_type, cost)
        return data_type

    def _full_name(self, avro: Any, place: Place) -> str:
        match avro.get("name"), avro.get("namespace", place.namespace):
            case str(name), str(namespace) if name:
                return _qualify(name, namespace)
        raise self._corrupt(place, f"has a named type without a name: {_brief(avro)}")

    def _count(self, nodes: int, place: Place) -> None:
        """Add ``nodes`` to the number of types in the schema. Raise an error above the limit.

        The limit is needed because a short schema with references to named types can describe a huge tree of types.
        """
        self._nodes += nodes
        if place.depth > MAX_NESTING or self._nodes > _MAX_NODES:
            limits = f"{MAX_NESTING} levels or {_MAX_NODES} types"
            column = ".".join(place.path[:3])
            message = f"column {column!r} in {self._source} is nested over {limits}; flatten the column"
            raise UnsupportedTableError(message)

    def _unsupported(self, avro: Any, place: Place) -> UnsupportedTableError:
        return UnsupportedTableError(
            f"column {str(place)!r} in {self._source} has the Avro type {_brief(avro)}, which is "
            "not supported; convert or drop the column with Apache Hudi"
        )

    def _corrupt(self, place: Place, what: str) -> CorruptTableError:
        where = f"column {str(place)!r}" if place.path else "the Avro schema"
        return CorruptTableError(f"{where} in {self._source} {what}; restore the file")


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return the same type; the fields of a struct are nullable."""
    return pa.struct([field.with_nullable(True) for field in kind]) if kind_of(kind) is Kind.STRUCT else kind


def _qualify(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _brief(avro: Any) -> str:
    text = json.dumps(avro)
    return text if len(text) <= 120 else f"{text[:117]}..."


@dataclass(frozen=True, slots=True)
class AvroType:
    """One type of an Avro schema: a node of the tree that decoders follow.

    Attributes:
        kind: Avro's name of the type without its logical type: ``int``, ``record``, ``array`` ... A ``union`` is one of
            several types besides null; columns cannot have it, and only Hudi's own records do.
        arrow: Arrow type of the decoded values. It depends on the logical type too.
        branch: Position of this type in its union, whose other branches are null; None if the type is not in a union.
        branches: Number of branches of the union; 0 if the type is not in a union.
        children: The types of a record's fields or of a union's branches; the one type of an array's items or of a
            map's values.
        size: For a ``fixed``, its number of bytes.
        symbols: For an ``enum``, its symbols.
        min_bytes: Minimum number of bytes of an encoded value.
    """

    kind: str
    arrow: pa.DataType
    branch: int | None = None
    branches: int = 0
    children: tuple[AvroType, ...] = ()
    size: int = 0
    symbols: tuple[str, ...] = ()
    min_bytes: int = 0

    @property
    def names(self) -> list[str]:
        """Return the names of a record's fields."""
        return [field.name for field in self.arrow]


def record_type(text: str, *, name: str) -> AvroType:
    """Parse a record's schema to a tree. The ``arrow`` of its root is a struct of the fields that `from_avro` returns.

    Args:
        text: The Avro schema as JSON.
        name: Path of the file that contains the text, for messages.

    Raises:
        CorruptTableError: ``text`` is not an Avro record, or one of its types is incomplete.
        UnsupportedTableError: A field has a type that no column can have; the message names the field and the type.
    """
    schema = from_avro(text, name=name)
    return _Tree(name).type_of(parse_json(text), pa.struct(list(schema)), "")


class _Tree:
    """A builder of the tree of one schema that `from_avro` has accepted. It stores named types for later references."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, AvroType] = {}

    def type_of(self, avro: Any, arrow: pa.DataType, namespace: str) -> AvroType:
        """Return the tree of one Avro type. ``arrow`` is the Arrow type that `from_avro` returned for it."""
        match avro:
            case list():
                return self._union(avro, arrow, namespace)
            case str() if avro in MIN_BYTES:
                return AvroType(avro, arrow, min_bytes=MIN_BYTES[avro])
            case str():
                return self._named.get(_qualify(avro, namespace)) or self._named[avro]
            case {"type": "record"}:
                return self._remember(avro, namespace, self._record(avro, arrow, _full_name(avro, namespace)))
            case {"type": "array", "items": items}:
                return self._collection("array", self.type_of(items, arrow.value_type, namespace), arrow)
            case {"type": "map", "values": values}:
                return self._collection("map", self.type_of(values, arrow.item_type, namespace), arrow)
            case {"type": "enum", "symbols": [*symbols]} if all(isinstance(symbol, str) for symbol in symbols):
                return self._remember(avro, namespace, AvroType("enum", arrow, symbols=(*symbols,), min_bytes=1))
            case {"type": "fixed", "size": int(size)} if 0 <= size < 2**31:
                return self._remember(avro, namespace, AvroType("fixed", arrow, size=size, min_bytes=size))
            case {"type": str() | dict() as inner} if inner not in ("enum", "fixed"):
                return self.type_of(inner, arrow, namespace)
        raise CorruptTableError(f"the Avro schema in {self._source} has an incomplete type; restore the file")

    def _union(self, avro: list[Any], arrow: pa.DataType, namespace: str) -> AvroType:
        (branch_number,) = (n for n, branch in enumerate(avro) if branch not in ("null", {"type": "null"}))
        avro_type = self.type_of(avro[branch_number], arrow, namespace)
        min_bytes = 1 if len(avro) > 1 else 1 + avro_type.min_bytes
        return AvroType(
            avro_type.kind,
            avro_type.arrow,
            branch_number,
            len(avro),
            avro_type.children,
            avro_type.size,
            avro_type.symbols,
            min_bytes,
        )

    def _record(self, avro: dict[str, Any], arrow: pa.StructType, full: str) -> AvroType:
        inner = full.rpartition(".")[0]
        children = tuple(self._fields(avro["fields"], arrow, inner))
        return AvroType("record", arrow, children=children, min_bytes=sum(child.min_bytes for child in children))

    def _fields(self, fields: list[Any], arrow: pa.StructType, namespace: str) -> Iterator[AvroType]:
        for member, column in zip(fields, arrow, strict=True):
            yield self.type_of(member["type"], column.type, namespace)

    def _collection(self, kind: str, item: AvroType, arrow: pa.DataType) -> AvroType:
        if kind == "array" and not item.min_bytes:
            raise CorruptTableError(
                f"the Avro schema in {self._source} has an array whose items take no bytes; restore the file"
            )
        return AvroType(kind, arrow, children=(item,), min_bytes=1)

    def _remember(self, avro: dict[str, Any], namespace: str, avro_type: AvroType) -> AvroType:
        self._named[_full_name(avro, namespace)] = avro_type
        return avro_type


def _full_name(avro: dict[str, Any], namespace: str) -> str:
    return _qualify(avro["name"], avro.get("namespace", namespace))
