"""The settings of a table: options become settings at creation, and later writes are checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from lakeformat.arrow.kinds import field_type, kind_of
from lakeformat.codec.avro.schema import to_avro
from lakeformat.codec.java import java_text
from lakeformat.config.resolve import Options
from lakeformat.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    nearest,
)
from lakeformat.keys.partition_paths import PARSED_KINDS
from lakeformat.model import table_config as names
from lakeformat.model.extractors import extractor_properties
from lakeformat.model.keys import (
    KeyGeneratorKind,
    KeySettings,
    PartitionField,
    PartitionKind,
    TimestampSettings,
    current_names,
)
from lakeformat.model.table_config import ChangeLogging, MergeMode, TableConfig, table_checksum
from lakeformat.model.table_properties import (
    key_generator_properties,
    layout_properties,
    merge_properties,
    ordering_properties,
    payload_ordering,
)
from lakeformat.model.table_version import SEVERAL_ORDERING_FIELDS, SINGLE_KEY_NAMES, table_version
from lakeformat.write.plan.merging import merge_mode, payload_name
from lakeformat.write.rows.schema import check_log_ordering, check_ordering

__all__ = [
    "NEW_ENCODING",
    "check_options",
    "key_settings",
    "lacking_properties",
    "named_generator",
    "named_partitions",
    "new_table_values",
]

_W: Final = "hoodie.datasource.write."
_TYPE: Final = _W + "table.type"
_RECORD: Final = _W + "recordkey.field"
_PARTITION: Final = _W + "partitionpath.field"
_GENERATOR: Final = _W + "keygenerator.class"
_GENERATOR_TYPE: Final = _W + "keygenerator.type"
NEW_ENCODING: Final = "hoodie.write.complex.keygen.new.encoding"
_ORDERING: Final = "hoodie.table.ordering.fields"
_PAYLOAD: Final = _W + "payload.class"
_MARKS_DELETES: Final = ("hoodie.payload.delete.field", "hoodie.payload.delete.marker")
_VERSION: Final = "hoodie.write.table.version"


def new_table_values(options: Options, schema: pa.Schema, location: str) -> Mapping[str, str]:
    """Return the ``hoodie.properties`` of a new table.

    Args:
        schema: the columns of the first input.
        location: the table's path. If the options give no table name, the last part of the path is the name.

    Raises:
        InvalidOptionError: if options contradict each other or need a record key that is not given.
        SchemaMismatchError: if a column that the options name is not in the schema or has an unsuitable type.
    """
    record_fields, named = options[_RECORD], options[_PARTITION]
    partitions = tuple(PartitionField.parse(text) for text in named)
    version, mode = int(options[_VERSION]), merge_mode(None, options)
    ordering = _ordering_fields(options, version, mode)
    if not record_fields:
        _check_keyless(options, ordering, location)
    _check_roles(schema, record_fields, partitions, ordering)
    kind = named_generator(options) or KeyGeneratorKind.infer(record_fields, named)
    _check_generator(kind, record_fields, partitions)
    name = options["hoodie.table.name"] or location.rstrip("/").rpartition("/")[2]
    database = options["hoodie.database.name"]
    if mode == MergeMode.EVENT_TIME and not ordering:
        raise InvalidOptionError(f"merge mode {mode} needs an ordering column; set {_ORDERING} (short: ordering)")
    orders = MergeMode.STORED_AS.get(mode, mode) == MergeMode.EVENT_TIME
    for field in ordering if orders and options[_TYPE] == names.TableType.MERGE_ON_READ.value else ():
        check_log_ordering(schema, field)
    flags = _flags(options)
    _check_dropped(schema, partitions if flags[names.DROPS_PARTITION_COLUMNS] == "true" else ())
    values = {
        names.NAME: name,
        names.DATABASE: database,
        names.TYPE: options[_TYPE],
        **layout_properties(version),
        names.CHECKSUM: table_checksum(name, database),
        "hoodie.table.base.file.format": "PARQUET",
        **key_generator_properties(version, kind, partitions),
        **extractor_properties(
            version,
            len(partitions),
            hive_style=options[names.HIVE_STYLE],
            slash_dates=options.keys.slash_dates,
        ),
        **flags,
        **{key: "true" for key, chosen in _unstored_by_hudi(options).items() if chosen},
        **({names.OPERATION_FIELD: "true"} if options.write.stores_operation else {}),
        "hoodie.partition.metafile.use.base.format": "false",
        names.ZONE: "UTC",
        **({names.CDC_MODE: options[names.CDC_MODE]} if flags[names.CDC] == "true" else {}),
        **merge_properties(version, mode, payload_name(options.merge.payload)),
        **_stored_marker(options),
        **ordering_properties(version, ordering),
        names.CREATE_SCHEMA: to_avro(schema, table_name=name),
        **(current_names(options.timestamp) if _formats_time(kind, partitions) else {}),
    }
    if record_fields:
        values[names.RECORD_FIELDS] = ",".join(record_fields)
    if kind is KeyGeneratorKind.COMPLEX and len(record_fields) == 1:
        values |= _encoding_properties(options, version)
    return values


def _encoding_properties(options: Options, version: int) -> Mapping[str, str]:
    """Return the property that stores how the complex generator writes a key of one field; {} if the version says it.

    Raises:
        InvalidOptionError: if the options name another form than the one that the version has in Hudi.
    """
    chosen = _read_encoding(options)
    if not table_version(version).names_single_keys:
        return {NEW_ENCODING: "false" if chosen == "false" else "true"}
    if chosen == "true":
        raise InvalidOptionError(
            f"{NEW_ENCODING}=true: from table version {SINGLE_KEY_NAMES} on Hudi always writes such keys as "
            "field:value, and so would write rows twice; leave it out"
        )
    return {}


def _read_encoding(options: Options) -> str:
    """Return the option for the form of keys of one field as a text; ``none`` if it is not given."""
    return _format_flag(options[NEW_ENCODING])


def _format_flag(value: bool | None) -> str:
    return str(value).lower()


def _formats_time(kind: KeyGeneratorKind, partitions: Sequence[PartitionField]) -> bool:
    """Tell whether the key generator makes a partition path of a time."""
    return kind is KeyGeneratorKind.TIMESTAMP or any(field.kind is PartitionKind.TIMESTAMP for field in partitions)


def _check_generator(
    kind: KeyGeneratorKind, record_fields: Sequence[str], partitions: Sequence[PartitionField]
) -> None:
    """Refuse several record key fields or no partition field if the key generator takes one of each, as Hudi does."""
    if not kind.takes_one_field:
        return
    if not partitions:
        raise InvalidOptionError(
            f"{kind.value} takes one partition field, not none; name it in {_PARTITION}, or leave the generator out"
        )
    if len(record_fields) < 2:
        return
    by_time = kind is KeyGeneratorKind.TIMESTAMP
    typed = ",".join(f"{field.name}:TIMESTAMP" for field in partitions)
    cure = f"CustomKeyGenerator and {_PARTITION}={typed}" if by_time else KeyGeneratorKind.COMPLEX.value
    raise InvalidOptionError(
        f"{kind.value} takes one record key field, not {', '.join(record_fields)}; name one, or name {cure}"
    )


def _unstored_by_hudi(options: Options) -> Mapping[str, bool]:
    """Return the settings that Hudi does not store. True ones are stored, so that later writes need not name them."""
    return {names.LOGICAL_TIMES: options.keys.logical_times, names.SLASH_DATES: options.keys.slash_dates}


def _check_dropped(schema: pa.Schema, partitions: Sequence[PartitionField]) -> None:
    """Refuse partition columns whose values readers cannot take from the names of folders."""
    for name in (field.name for field in partitions):
        kind = field_type(schema, name)
        if kind is not None and kind_of(kind) not in PARSED_KINDS:
            raise SchemaMismatchError(
                f"the partition column {name!r} is {kind}, and folder names do not give its values back; cast it to "
                f"string, or leave {names.DROPS_PARTITION_COLUMNS} out"
            )


_FLAGS: Final = (
    names.POPULATES_META_FIELDS,
    names.DROPS_PARTITION_COLUMNS,
    names.HIVE_STYLE,
    names.URL_ENCODE,
    names.CDC,
)


def _flags(options: Options) -> Mapping[str, str]:
    return {key: _format_flag(options[key]) for key in _FLAGS}


def _stored_marker(options: Options) -> Mapping[str, str]:
    """Return the entries of ``hoodie.properties`` for the delete marker; empty if its payload class uses none."""
    given = {key: options[key] for key in _MARKS_DELETES}
    if payload_name(options.merge.payload) != MergeMode.PAYLOAD_OF[MergeMode.EVENT_TIME]:
        return {}
    return {names.MERGE_PROPERTY + key: text for key, text in given.items()} if all(given.values()) else {}


def _ordering_fields(options: Options, version: int, mode: str) -> tuple[str, ...]:
    """Return the ordering columns of a new table: those that its payload class prescribes, else those of the options.

    Raises:
        InvalidOptionError: if the options name other columns than the payload class, or several before version 9.
    """
    given = _split_names(options[_ORDERING])
    fixed = payload_ordering(version, mode)
    if fixed and given and given != fixed:
        raise InvalidOptionError(
            f"{_ORDERING}={options[_ORDERING]}: tables of version {version} with {mode} are ordered by "
            f"{','.join(fixed)}; leave the option out"
        )
    if len(given) > 1 and not table_version(version).takes_several_ordering_fields:
        raise InvalidOptionError(
            f"{_ORDERING}={options[_ORDERING]}: several ordering columns are not supported before table version "
            f"{SEVERAL_ORDERING_FIELDS}; name one, or set {_VERSION}={SEVERAL_ORDERING_FIELDS}"
        )
    return fixed or given


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _check_keyless(options: Options, ordering: Sequence[str], location: str) -> None:
    """Refuse a new table without a record key if it needs one: for an ordering column, an upsert or a delete."""
    operation = options[_W + "operation"]
    feature = f"an ordering column ({_ORDERING})" if ordering else f"operation {operation}"
    if ordering or operation in {"upsert", "delete"}:
        raise InvalidOptionError(
            f"a new table at {location} needs a record key for {feature}; set the option {_RECORD} (short: recordkey)"
        )


def _check_roles(
    schema: pa.Schema,
    record_fields: Sequence[str],
    partitions: Sequence[PartitionField],
    ordering: Sequence[str],
) -> None:
    """Check that the key, partition and ordering columns exist and have suitable types."""
    texts = [("record key", f) for f in record_fields] + [("partition", p.name) for p in partitions]
    for role, name in [*texts, *(("ordering", name) for name in ordering)]:
        kind = field_type(schema, name)
        if kind is None:
            raise SchemaMismatchError(
                f"the {role} column {name!r} is not among the columns{nearest(name, schema.names)}; "
                "add it or name another"
            )
        if role == "ordering":
            check_ordering(schema, name)
            continue
        try:
            java_text(pa.array([], kind))
        except InvalidInputError as error:
            raise SchemaMismatchError(f"the {role} column {name!r}: {error}") from None


def named_partitions(options: Options) -> tuple[PartitionField, ...]:
    """Return the partition fields that the options name, with their types.

    Raises:
        InvalidOptionError: a type does not exist.
    """
    return tuple(PartitionField.parse(text) for text in options[_PARTITION])


def named_generator(options: Options) -> KeyGeneratorKind | None:
    """Return the key generator that the options name by class, by type or by both; None if they name none."""
    given = {key: text for key in (_GENERATOR, _GENERATOR_TYPE) if (text := options[key])}
    kinds = {KeyGeneratorKind.parse(text) for text in given.values()}
    if len(kinds) > 1:
        raise InvalidOptionError(
            f"options {_GENERATOR}={given[_GENERATOR]} and {_GENERATOR_TYPE}={given[_GENERATOR_TYPE]} contradict each "
            "other; give one of them"
        )
    return kinds.pop() if kinds else None


def check_options(config: TableConfig, options: Options, location: str) -> None:
    """Refuse options that contradict the table's settings.

    Raises:
        InvalidOptionError: if an option differs from the table's value; the message names both values.
    """
    parsed = tuple(field.name for field in named_partitions(options))
    given = {
        _RECORD: ",".join(options[_RECORD]),
        _PARTITION: ",".join(parsed),
        _ORDERING: ",".join(_split_names(options[_ORDERING])),
        _TYPE: options[_TYPE],
        "hoodie.table.name": options["hoodie.table.name"],
        "hoodie.database.name": options["hoodie.database.name"],
        **_flags(options),
        _VERSION: options[_VERSION],
        names.CDC_MODE: options[names.CDC_MODE],
        NEW_ENCODING: (encoding := _read_encoding(options)),
        **(unstored := {key: _format_flag(chosen) for key, chosen in _unstored_by_hudi(options).items()}),
    }
    stored = {
        _RECORD: ",".join(config.record_fields),
        _PARTITION: ",".join(config.partition_fields),
        _ORDERING: ",".join(config.merge_settings.ordering_fields),
        _TYPE: config.get(names.TYPE).upper(),
        "hoodie.table.name": config.name,
        "hoodie.database.name": config.get(names.DATABASE),
        names.HIVE_STYLE: str(config.hive_style).lower(),
        names.URL_ENCODE: str(config.url_encode).lower(),
        names.POPULATES_META_FIELDS: str(not config.has_virtual_keys).lower(),
        names.DROPS_PARTITION_COLUMNS: str(config.drops_partition_columns).lower(),
        _VERSION: str(config.version),
        names.CDC: config.get(names.CDC).lower() or "false",
        names.CDC_MODE: config.get(names.CDC_MODE).upper() or ChangeLogging.DATA_BEFORE_AFTER.value,
        NEW_ENCODING: config.get(NEW_ENCODING, encoding),
        **{key: config.get(key, text) for key, text in unstored.items()},
        **({names.SLASH_DATES: "true"} if config.slash_dates else {}),
    }
    for key, value in given.items():
        if options.is_set(key) and value != stored[key]:
            _refuse_contradiction(key, value, stored[key], location)
    _check_generator_options(config, options, location)
    mode_option = options.merge.named_by
    if mode_option and config.names_merge_rule:
        given_mode = merge_mode(None, options)
        if given_mode != config.merge_mode:
            _refuse_contradiction(mode_option, given_mode, config.merge_mode, location)


def _check_generator_options(config: TableConfig, options: Options, location: str) -> None:
    """Refuse another key generator than the table's, other types of its partition fields, and other settings of it."""
    generator, stored_generator = named_generator(options), config.key_generator
    if generator is not None and stored_generator and generator is not KeyGeneratorKind.parse(stored_generator):
        _refuse_contradiction(_GENERATOR, generator.class_name, stored_generator, location)
    stored_types = _parse_types(config.typed_partition_fields)
    for name, field in _parse_types(options[_PARTITION]).items():
        if (stored_field := stored_types.get(name, field)) != field:
            _refuse_contradiction(_PARTITION, field.typed, stored_field.typed, location)
    stored = current_names(config.values)
    for key, text in current_names(options.timestamp).items():
        if (stored_text := stored.get(key, text)) != text:
            _refuse_contradiction(key, text, stored_text, location)


def _parse_types(fields: Sequence[str]) -> Mapping[str, PartitionField]:
    """Return the partition fields that have a type, by name."""
    parsed = (PartitionField.parse(text) for text in fields if ":" in text)
    return {field.name: field for field in parsed}


def _refuse_contradiction(key: str, given: str, stored: str, location: str) -> None:
    raise InvalidOptionError(
        f"option {key}={given!r} contradicts {stored!r} in {location}/{names.PROPERTIES_PATH}; leave the option out, "
        "settings of a table are fixed at its creation"
    )


def key_settings(config: TableConfig, options: Options) -> KeySettings:
    """Return the key settings of this table: how its record keys and partition paths are made.

    Raises:
        InvalidOptionError: if the key generator is timestamp-based or custom and neither the table nor the options give
            the types of its fields.
    """
    fields, typed = config.partition_fields, config.typed_partition_fields
    kind = KeyGeneratorKind.of_table(config.key_generator, config.record_fields, fields)
    partitions = tuple(PartitionField(name) for name in fields)
    if kind is KeyGeneratorKind.CUSTOM:
        given = _parse_types((*options[_PARTITION], *typed))
        if set(given) != set(fields):
            raise InvalidOptionError(
                f"the custom key generator's types are not stored with the table; set {_PARTITION} to "
                f"{','.join(f'{name}:SIMPLE or :TIMESTAMP' for name in fields)}"
            )
        partitions = tuple(given[name] for name in fields)
    settings = {**current_names(config.values), **current_names(options.timestamp)}
    timestamp = TimestampSettings.from_options(settings) if _formats_time(kind, partitions) else None
    # A table of an older version without rows and without the property takes the form that the option names.
    is_named = config.traits.names_single_keys or config.get(NEW_ENCODING, _read_encoding(options)) == "false"
    return KeySettings(
        kind,
        config.record_fields,
        partitions,
        hive_style=config.hive_style,
        url_encode=config.url_encode,
        single_key_prefixed=kind is KeyGeneratorKind.COMPLEX and len(config.record_fields) == 1 and is_named,
        timestamp=timestamp,
        takes_unclear=options.write.merges_unclear_keys,
        logical_times=config.logical_times or options.keys.logical_times,
        slash_dates=config.slash_dates or options.keys.slash_dates,
    )


def lacking_properties(config: TableConfig, options: Options, keys: KeySettings) -> Mapping[str, str]:
    """Return the settings of the table's key generator that only the options give. A write stores them.

    Writers that know fewer properties leave them out: Hudi 0.15, and Hudi for a custom generator.

    Args:
        keys: the key settings of the write. A write that makes no keys has none of the generator.
    """
    time = current_names(options.timestamp) if keys.timestamp is not None else {}
    lacking = {key: text for key, text in time.items() if key not in current_names(config.values)}
    if keys.logical_times and not config.logical_times:
        lacking[names.LOGICAL_TIMES] = "true"
    if keys.slash_dates and not config.slash_dates:
        lacking[names.SLASH_DATES] = "true"
    if keys.kind is KeyGeneratorKind.CUSTOM and not all(":" in text for text in config.typed_partition_fields):
        lacking[names.TYPED_FIELDS] = ",".join(field.typed for field in keys.partition_fields)
    return lacking
