"""The settings of Hudi's key generators, by which record keys and partition paths are computed from rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from lakeformat.errors import InvalidOptionError, nearest

__all__ = [
    "TIMEBASED_PREFIXES",
    "KeyGeneratorKind",
    "KeySettings",
    "PartitionField",
    "PartitionKind",
    "TimeUnit",
    "TimestampSettings",
    "TimestampType",
    "current_names",
]

_PACKAGE: Final = "org.apache.hudi.keygen."
_E = TypeVar("_E", bound=Enum)

#: Prefixes of the options of the timestamp-based key generator: the current prefix, then that of Hudi before 0.14.
TIMEBASED_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")


def current_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the timestamp-based key generator that are not empty, under their current names.

    All other options are ignored, and so is letter case. If an option has both names, the current one counts.
    """
    given = {name.lower(): text for name, text in options.items() if text.strip()}
    current, older = TIMEBASED_PREFIXES
    renamed = {current + name.removeprefix(older): text for name, text in given.items() if name.startswith(older)}
    return {**renamed, **{name: text for name, text in given.items() if name.startswith(current)}}


class KeyGeneratorKind(Enum):
    """Hudi's key generators. The value of a member is the Java class name without its package."""

    SIMPLE = "SimpleKeyGenerator"
    COMPLEX = "ComplexKeyGenerator"
    NON_PARTITIONED = "NonpartitionedKeyGenerator"
    TIMESTAMP = "TimestampBasedKeyGenerator"
    CUSTOM = "CustomKeyGenerator"

    @property
    def class_name(self) -> str:
        """Return the full Java class name, the value of ``hoodie.table.keygenerator.class``."""
        return _PACKAGE + self.value

    @property
    def type_name(self) -> str:
        """Return the name of the type, the value of ``hoodie.table.keygenerator.type``."""
        return "NON_PARTITION" if self is KeyGeneratorKind.NON_PARTITIONED else self.name

    @classmethod
    def parse(cls, name: str) -> KeyGeneratorKind:
        """Parse a class name, full or short, or a ``keygenerator.type`` (``SIMPLE``, ``NON_PARTITION`` ...).

        Letter case and the Avro variants (``SimpleAvroKeyGenerator``, ``SIMPLE_AVRO``) make no difference.

        Raises:
            InvalidOptionError: The generator is unknown or not supported.
        """
        plain_name = name.strip().lower().removeprefix(_PACKAGE).replace("avro", "").rstrip("_")
        if kind := _KINDS.get(plain_name):
            return kind
        kinds = [kind.value for kind in cls]
        raise InvalidOptionError(
            f"key generator {name!r} is not supported; use one of {', '.join(kinds)}{nearest(name, kinds)}"
        )

    @classmethod
    def of_table(cls, name: str, record_fields: Iterable[str], partition_fields: Sequence[str]) -> KeyGeneratorKind:
        """Return the key generator of an existing table.

        If the table has no partition fields, it is the complex or the non-partitioned generator. These two may spell a
        key of one field differently.

        Args:
            name: The class name or type that the table stores. If it is "", the generator is inferred from the fields.
            record_fields: The fields of the record key.
            partition_fields: The partition fields.
        """
        kind = cls.parse(name) if name else cls.infer(record_fields, partition_fields)
        return kind if partition_fields or kind is cls.COMPLEX else cls.NON_PARTITIONED

    def makes_virtual_keys(self, record_fields: Sequence[str]) -> bool:
        """Tell whether the keys of rows that store none can be made: Hudi makes them of columns, in one form."""
        if self is KeyGeneratorKind.COMPLEX:
            return len(record_fields) > 1
        return bool(record_fields) and self in {KeyGeneratorKind.SIMPLE, KeyGeneratorKind.NON_PARTITIONED}

    @property
    def takes_one_field(self) -> bool:
        """Tell whether the generator takes one partition field, and not more than one record key field."""
        return self in {KeyGeneratorKind.SIMPLE, KeyGeneratorKind.TIMESTAMP}

    @classmethod
    def infer(cls, record_fields: Iterable[str], partition_fields: Iterable[str]) -> KeyGeneratorKind:
        """Return the generator that Hudi uses if no option names one (``KeyGenUtils.inferKeyGeneratorType``)."""
        partitions = list(partition_fields)
        if not partitions:
            return cls.NON_PARTITIONED
        if ":" in partitions[0]:
            return cls.CUSTOM
        return cls.SIMPLE if len(partitions) == 1 and len(list(record_fields)) <= 1 else cls.COMPLEX


_KINDS: Final[Mapping[str, KeyGeneratorKind]] = {
    **{kind.value.lower(): kind for kind in KeyGeneratorKind},
    **{kind.name.lower(): kind for kind in KeyGeneratorKind},
    "non_partition": KeyGeneratorKind.NON_PARTITIONED,
}


class PartitionKind(Enum):
    """The rule by which a partition field becomes text.

    It is UNKNOWN if a table with the custom generator stores the field without a type.
    """

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition path. ``name`` may be a path into structs (``a.b``)."""

    name: str
    kind: PartitionKind = PartitionKind.SIMPLE

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """Parse the custom generator's form ``name:TYPE``. A name without a type gets `PartitionKind.SIMPLE`.

        >>> PartitionField.parse("ts:TIMESTAMP").kind.name
        'TIMESTAMP'
        """
        name, _, kind = text.strip().partition(":")
        match kind.strip().upper() or "SIMPLE":
            case "SIMPLE":
                return cls(name.strip(), PartitionKind.SIMPLE)
            case "TIMESTAMP":
                return cls(name.strip(), PartitionKind.TIMESTAMP)
            case _:
                raise InvalidOptionError(
                    f"partition field {text!r} has an unknown type; write {name}:SIMPLE or {name}:TIMESTAMP"
                )

    @property
    def typed(self) -> str:
        """Return the custom generator's form ``name:TYPE``."""
        return f"{self.name}:{self.kind.value}"


class TimestampType(Enum):
    """The form in which rows have a timestamp partition field: a number since the epoch, or a date as text."""

    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"
    SCALAR = "SCALAR"


class TimeUnit(Enum):
    """Java's ``TimeUnit``. The value of a member is its length in nanoseconds."""

    NANOSECONDS = 1
    MICROSECONDS = 1_000
    MILLISECONDS = 1_000_000
    SECONDS = 1_000_000_000
    MINUTES = 60_000_000_000
    HOURS = 3_600_000_000_000
    DAYS = 86_400_000_000_000


_UNIT_OF_TYPE: Final[Mapping[TimestampType, TimeUnit]] = {
    TimestampType.UNIX_TIMESTAMP: TimeUnit.SECONDS,
    TimestampType.EPOCHMILLISECONDS: TimeUnit.MILLISECONDS,
    TimestampType.EPOCHMICROSECONDS: TimeUnit.MICROSECONDS,
}


@dataclass(frozen=True, slots=True)
class TimestampSettings:
    """The ``hoodie.keygen.timebased.*`` options (Hudi: ``TimestampKeyGeneratorConfig``)."""

    type: TimestampType
    #: Java pattern of the partition path, such as ``yyyy/MM/dd``.
    output_format: str
    #: Unit of the numbers if ``type`` is SCALAR.
    scalar_unit: TimeUnit = TimeUnit.SECONDS
    #: Java patterns by which texts are parsed, tried in this order; empty unless ``type`` is DATE_STRING or MIXED.
    input_formats: tuple[str, ...] = ()
    input_timezone: str = "UTC"
    output_timezone: str = "UTC"

    @property
    def unit(self) -> TimeUnit | None:
        """Return the unit of a column of numbers; None if ``type`` is DATE_STRING or MIXED."""
        return self.scalar_unit if self.type is TimestampType.SCALAR else _UNIT_OF_TYPE.get(self.type)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TimestampSettings:
        """Parse the settings from Hudi's options. Ignore all other options.

        Names may have the current or the old prefix, in any letter case.

        Raises:
            InvalidOptionError: A required option is missing, or Hudi does not know a value.
        """
        given = current_names(options)

        def option(name: str) -> str | None:
            return given.get(TIMEBASED_PREFIXES[0] + name)

        def required(name: str) -> str:
            if (value := option(name)) is None:
                raise InvalidOptionError(
                    f"a timestamp partition needs the option {TIMEBASED_PREFIXES[0]}{name}; set it"
                )
            return value

        kind = _parse_member(TimestampType, "timestamp.type", required("timestamp.type"))
        formats: tuple[str, ...] = ()
        if kind in {TimestampType.DATE_STRING, TimestampType.MIXED}:
            delimiter = option("input.dateformat.list.delimiter.regex") or ","
            try:
                parts = re.split(delimiter, required("input.dateformat"))
            except re.error as error:
                raise InvalidOptionError(f"delimiter {delimiter!r} of the input formats: {error}") from None
            formats = tuple(part.strip() for part in parts if part and part.strip())
        timezone = option("timezone")
        return cls(
            type=kind,
            output_format=required("output.dateformat"),
            scalar_unit=_parse_member(
                TimeUnit, "timestamp.scalar.time.unit", option("timestamp.scalar.time.unit") or "SECONDS"
            ),
            input_formats=formats,
            input_timezone=timezone or option("input.timezone") or "UTC",
            output_timezone=timezone or option("output.timezone") or "UTC",
        )


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The settings that turn a row into its record key and partition path.

    Raises:
        InvalidOptionError: The number of partition fields does not fit the generator.
    """

    kind: KeyGeneratorKind
    #: Fields of the record key, in the order of ``hoodie.table.recordkey.fields``; empty if writes generate the keys.
    record_fields: tuple[str, ...]
    partition_fields: tuple[PartitionField, ...] = ()
    #: Whether folders are named ``field=value``.
    hive_style: bool = False
    #: Whether special characters of partition values are escaped in folder names as ``%XX``, like in Hive.
    url_encode: bool = False
    #: Whether the complex generator with one key field makes the key ``field:value``. Hudi up to 0.14.0 and some later
    #: releases do; the others make ``value``.
    single_key_prefixed: bool = False
    timestamp: TimestampSettings | None = None
    #: Whether writes take keys of several fields whose text other values have, too.
    takes_unclear: bool = False
    #: Whether timestamps with a zone are written as dates with times, not as numbers (see `java_text`).
    logical_times: bool = False
    #: Whether the hyphens of a single partition field's value become slashes: ``2024-05-06`` becomes ``2024/05/06``.
    slash_dates: bool = False

    def __post_init__(self) -> None:
        count = len(self.partition_fields)
        match self.kind:
            case KeyGeneratorKind.NON_PARTITIONED if count:
                problem = "takes no partition field"
            case kind if kind.takes_one_field and count != 1:
                problem = "takes exactly one partition field"
            case _:
                return
        names = ", ".join(field.name for field in self.partition_fields) or "none"
        raise InvalidOptionError(f"{self.kind.value} {problem}, not {names}; name another key generator")

    @property
    def generates_keys(self) -> bool:
        """Tell whether the table has no record key fields, so that writes generate the keys of new rows."""
        return not self.record_fields

    def kind_of(self, field: PartitionField) -> PartitionKind:
        """Return the rule by which ``field`` becomes text. Only the custom generator has a rule for each field."""
        if self.kind is KeyGeneratorKind.CUSTOM:
            return field.kind
        is_timestamp = self.kind is KeyGeneratorKind.TIMESTAMP
        return PartitionKind.TIMESTAMP if is_timestamp else PartitionKind.SIMPLE


def _parse_member(enum: type[_E], option: str, text: str) -> _E:
    try:
        return enum[text.strip().upper()]
    except KeyError:
        members = [member.name for member in enum]
        raise InvalidOptionError(
            f"{TIMEBASED_PREFIXES[0]}{option} is {text!r}; use {', '.join(members)}{nearest(text, members)}"
        ) from None
