"""How a table makes record keys and partition paths: the settings of Hudi's key generators, as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from lakeformat.errors import InvalidOptionError, nearest

__all__ = [
    "KeyGeneratorKind",
    "KeySettings",
    "PartitionField",
    "PartitionKind",
    "TimeUnit",
    "TimestampSettings",
    "TimestampType",
]

_PACKAGE: Final = "org.apache.hudi.keygen."
_E = TypeVar("_E", bound=Enum)

#: The prefixes of the timestamp generator's options: today's first, then the one before Hudi 0.14.
TIMEBASED_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")


class KeyGeneratorKind(Enum):
    """Hudi's key generators; the value is the class's short name."""

    SIMPLE = "SimpleKeyGenerator"
    COMPLEX = "ComplexKeyGenerator"
    NON_PARTITIONED = "NonpartitionedKeyGenerator"
    TIMESTAMP = "TimestampBasedKeyGenerator"
    CUSTOM = "CustomKeyGenerator"

    @property
    def class_name(self) -> str:
        """As it stands in ``hoodie.table.keygenerator.class``."""
        return _PACKAGE + self.value

    @property
    def type_name(self) -> str:
        """As it stands in ``hoodie.table.keygenerator.type``."""
        return "NON_PARTITION" if self is KeyGeneratorKind.NON_PARTITIONED else self.name

    @classmethod
    def parse(cls, name: str) -> KeyGeneratorKind:
        """From a class name, full or short, or a ``keygenerator.type`` (``SIMPLE``, ``NON_PARTITION`` ...).

        Letter case and the Avro variants (``SimpleAvroKeyGenerator``, ``SIMPLE_AVRO``) make no difference.

        Raises:
            InvalidOptionError: no such generator, or one that cannot be built in here.
        """
        wanted = name.strip().lower().removeprefix(_PACKAGE).replace("avro", "").rstrip("_")
        if found := _KINDS.get(wanted):
            return found
        known = [kind.value for kind in cls]
        raise InvalidOptionError(
            f"key generator {name!r} is not supported; use one of {', '.join(known)}{nearest(name, known)}"
        )

    @classmethod
    def of_table(cls, name: str, record_fields: Iterable[str], partition_fields: Sequence[str]) -> KeyGeneratorKind:
        """The generator of an existing table: the stored one (``""`` if none is), but none without partitions."""
        kind = cls.parse(name) if name else cls.infer(record_fields, partition_fields)
        return kind if partition_fields else cls.NON_PARTITIONED

    @classmethod
    def infer(cls, record_fields: Iterable[str], partition_fields: Iterable[str]) -> KeyGeneratorKind:
        """The generator Hudi takes when none is named (``KeyGenUtils.inferKeyGeneratorType``)."""
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
    """How a partition field becomes text. UNKNOWN: a stored custom generator does not tell."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition path; ``name`` may be nested (``a.b``)."""

    name: str
    kind: PartitionKind = PartitionKind.SIMPLE

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """From the custom generator's ``name:TYPE``; a bare name is simple.

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


class TimestampType(Enum):
    """What the stored value of a timestamp partition field means."""

    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"
    SCALAR = "SCALAR"


class TimeUnit(Enum):
    """Java's ``TimeUnit``; the value is its length in nanoseconds."""

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
    #: Unit of a SCALAR.
    scalar_unit: TimeUnit = TimeUnit.SECONDS
    #: Java patterns tried on texts (DATE_STRING, MIXED).
    input_formats: tuple[str, ...] = ()
    input_timezone: str = "UTC"
    output_timezone: str = "UTC"

    @property
    def unit(self) -> TimeUnit | None:
        """Unit of a number; None where only texts are expected."""
        return self.scalar_unit if self.type is TimestampType.SCALAR else _UNIT_OF_TYPE.get(self.type)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TimestampSettings:
        """From Hudi's option names, today's prefix or the old one, in any letter case; others are ignored.

        Raises:
            InvalidOptionError: an option that is needed is missing, or a value is none Hudi knows.
        """
        given = {name.lower(): value for name, value in options.items()}

        def option(name: str) -> str | None:
            values = (given.get(prefix + name) for prefix in TIMEBASED_PREFIXES)
            return next((value for value in values if value is not None and value.strip()), None)

        def required(name: str) -> str:
            if (value := option(name)) is None:
                raise InvalidOptionError(
                    f"a timestamp partition needs the option {TIMEBASED_PREFIXES[0]}{name}; set it"
                )
            return value

        kind = _member(TimestampType, "timestamp.type", required("timestamp.type"))
        formats: tuple[str, ...] = ()
        if kind in {TimestampType.DATE_STRING, TimestampType.MIXED}:
            delimiter = option("input.dateformat.list.delimiter.regex") or ","
            try:
                parts = re.split(delimiter, required("input.dateformat"))
            except re.error as error:
                raise InvalidOptionError(f"delimiter {delimiter!r} of the input formats: {error}") from None
            formats = tuple(part.strip() for part in parts if part and part.strip())
        both = option("timezone")
        return cls(
            type=kind,
            output_format=required("output.dateformat"),
            scalar_unit=_member(
                TimeUnit, "timestamp.scalar.time.unit", option("timestamp.scalar.time.unit") or "SECONDS"
            ),
            input_formats=formats,
            input_timezone=both or option("input.timezone") or "UTC",
            output_timezone=both or option("output.timezone") or "UTC",
        )


@dataclass(frozen=True, slots=True)
class KeySettings:
    """All that turns a row into its record key and partition path.

    Raises:
        InvalidOptionError: the partition fields do not fit the generator.
    """

    kind: KeyGeneratorKind
    #: In the order of ``hoodie.table.recordkey.fields``; empty where keys are generated.
    record_fields: tuple[str, ...]
    partition_fields: tuple[PartitionField, ...] = ()
    #: ``field=value`` folders.
    hive_style: bool = False
    #: Hive's escaping of partition values.
    url_encode: bool = False
    #: A complex key of one field reads ``id:value``, as in Hudi up to 0.14.0 and some later releases.
    single_key_prefixed: bool = False
    timestamp: TimestampSettings | None = None

    def __post_init__(self) -> None:
        count = len(self.partition_fields)
        match self.kind:
            case KeyGeneratorKind.NON_PARTITIONED if count:
                problem = "takes no partition field"
            case KeyGeneratorKind.SIMPLE | KeyGeneratorKind.TIMESTAMP if count != 1:
                problem = "takes exactly one partition field"
            case _:
                return
        names = ", ".join(field.name for field in self.partition_fields) or "none"
        raise InvalidOptionError(f"{self.kind.value} {problem}, not {names}; name another key generator")

    @property
    def generated(self) -> bool:
        """Whether rows have no key of their own and get one as they are written."""
        return not self.record_fields

    def kind_of(self, field: PartitionField) -> PartitionKind:
        """How ``field`` becomes text: only a custom generator lets each field choose."""
        if self.kind is KeyGeneratorKind.CUSTOM:
            return field.kind
        is_timestamp = self.kind is KeyGeneratorKind.TIMESTAMP
        return PartitionKind.TIMESTAMP if is_timestamp else PartitionKind.SIMPLE


def _member(of: type[_E], option: str, text: str) -> _E:
    try:
        return of[text.strip().upper()]
    except KeyError:
        known = [member.name for member in of]
        raise InvalidOptionError(
            f"{TIMEBASED_PREFIXES[0]}{option} is {text!r}; use {', '.join(known)}{nearest(text, known)}"
        ) from None
