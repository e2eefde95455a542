"""The tables of the interop tests: one case per operation, key generator, partition form and set of types.

A number and an edition determine a row, so any step can be repeated: the number decides key and partition, the edition
the ordering value and everything else.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

Numbers = Iterable[int]
MakeRows = Callable[[Numbers, int], pa.Table]

#: The row numbers at the start of a case, and those that Hudi inserts first (they open a new region).
FIRST: Final = range(180)
NEW: Final = range(180, 200)

REGIONS: Final = ("eu", "us", "asia", "africa")
PLACES: Final = ("plain", "a/b", "x=y%z", "é ñ", "d,e")
#: Values for url-encoded paths only: Hadoop refuses a colon in a folder's name.
SPOTS: Final = ("plain", "12:30", "a/b", 'q"?*#\\', "[^]{}", "é ñ")

PLAIN: Final = pa.schema(
    {
        "id": pa.string(),
        "n": pa.int64(),
        "maybe": pa.int32(),
        "region": pa.string(),
        "place": pa.string(),
        "spot": pa.string(),
        "year": pa.int32(),
        "day": pa.date32(),
        "moment": pa.timestamp("us", tz="UTC"),
        "epoch_ms": pa.int64(),
        "ts": pa.int64(),
        "value": pa.float64(),
    }
)

TYPES: Final = pa.schema(
    {
        "id": pa.string(),
        "ts": pa.int64(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "dec": pa.decimal128(18, 4),
        "dec2": pa.decimal128(38, 10),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "b": pa.bool_(),
        "s": pa.string(),
        "bin": pa.binary(),
        "arr": pa.list_(pa.int32()),
        "arrs": pa.list_(pa.struct({"a": pa.int32(), "b": pa.string()})),
        "m": pa.map_(pa.string(), pa.float64()),
        "st": pa.struct({"x": pa.int32(), "y": pa.struct({"z": pa.string(), "w": pa.decimal128(5, 2)})}),
    }
)


def plain_row(number: int, edition: int) -> dict[str, Any]:
    """Return a flat row with every kind of key and partition column."""
    moment = dt.datetime(2024, 1, 1, 22, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=number, microseconds=number)
    return {
        "id": f"key-{number:04}",
        "n": number * 10_000_000_000,
        "maybe": None if number % 10 == 0 else number,
        "region": REGIONS[number // 60],
        "place": PLACES[number % len(PLACES)],
        "spot": SPOTS[number % len(SPOTS)],
        "year": 2020 + number // 90,
        "day": dt.date(1969, 12, 31) + dt.timedelta(days=number // 60),
        "moment": moment,
        "epoch_ms": int(moment.timestamp()) * 1000,
        "ts": edition,
        "value": None if number % 13 == 0 else number / 8 + edition,
    }


def typed_row(number: int, edition: int) -> dict[str, Any]:
    """Return a row of every type, limits included. Each seventh row has only key and ordering value."""
    row: dict[str, Any] = {"id": f"r{number}", "ts": edition}
    if number % 7 == 0:
        return row
    sign = -1 if number % 2 else 1
    few = number % 3
    return row | {
        "i": -(2**31) if number == 1 else sign * number * edition,
        "l": 2**63 - 1 if number == 1 else sign * number * 10**12,
        "f": 1.5 * sign * number,
        "d": number / 3,
        "dec": decimal.Decimal(f"{sign * number * 10**11}.5678"),
        "dec2": decimal.Decimal(f"{sign * 1234567890123456789012345678}.0123456789"),
        "day": dt.date(1969, 12, 30) + dt.timedelta(days=number // 40),
        "at": dt.datetime(2024, 2, 29, 23, 59, 59, 123456 + number, tzinfo=dt.timezone.utc),
        "b": sign > 0,
        "s": "" if few == 0 else f"snow \N{SNOWMAN} {edition}",
        "bin": bytes([0, 255, number % 256]) * few,
        # The elements are not null: Hudi's default two-level lists cannot hold a null.
        "arr": [number, -number, edition][:few],
        "arrs": [{"a": number, "b": "x"}, {"a": None, "b": None}][:few],
        "m": {"one": 1.0, "none": None} if few else {},
        "st": {"x": number, "y": {"z": f"z{edition}", "w": decimal.Decimal("-1.23")} if few else None},
    }


def plain_rows(numbers: Numbers, edition: int) -> pa.Table:
    """Return flat rows of the schema `PLAIN`."""
    return pa.Table.from_pylist([plain_row(number, edition) for number in numbers], PLAIN)


def typed_rows(numbers: Numbers, edition: int) -> pa.Table:
    """Return rows of every type, of the schema `TYPES`."""
    return pa.Table.from_pylist([typed_row(number, edition) for number in numbers], TYPES)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a write method of our table."""

    operation: str
    numbers: Sequence[int]
    edition: int


@dataclass(frozen=True, slots=True)
class Case:
    """A table of lakeformat that Hudi shares.

    Attributes:
        name: the name of the test.
        steps: the writes of lakeformat before Hudi sees the table.
        record_key: the key fields.
        partition_by: the argument of ``create`` (with types for the custom key generator).
        options: the options of ``create``, by Hudi's names.
        hudi_options: options that Hudi's writer needs and no table property holds.
        metadata_table: Hudi's writer keeps a metadata table, as by default; this doubles the time of a write.
        from_path: columns that Spark fills from the folder's name in another form than they were written.
        rows: the function that makes the rows.
    """

    name: str
    steps: tuple[Step, ...] = (Step("upsert", FIRST, 1),)
    record_key: tuple[str, ...] = ("id",)
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    hudi_options: Mapping[str, str] = field(default_factory=dict)
    metadata_table: bool = False
    from_path: frozenset[str] = frozenset()
    rows: MakeRows = plain_rows

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Return the column names alone: ``ts`` for ``ts:TIMESTAMP``."""
        return tuple(name.partition(":")[0] for name in self.partition_by)

    @property
    def writer_options(self) -> dict[str, str]:
        """Return all options that Hudi's writer needs beside the table's properties."""
        return {**self.hudi_options, "hoodie.metadata.enable": str(self.metadata_table).lower()}


BULK_INSERT: Final = (Step("bulk_insert", FIRST, 1),)
INSERT: Final = (Step("insert", FIRST, 1),)
HIVE: Final = {"hoodie.datasource.write.hive_style_partitioning": "true"}
URL_ENCODED: Final = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
DAYS_OF_MILLIS: Final = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}
TIMESTAMP_BASED: Final = DAYS_OF_MILLIS | {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
}
#: Digits only: Hudi 0.15 casts such a folder's name to the column's type, here long, and fails on other names.
CUSTOM: Final = DAYS_OF_MILLIS | {
    "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
}

#: The partition and metadata table of the cases of the operations.
SHARED: Final[Mapping[str, Any]] = {"partition_by": ("region",), "metadata_table": True}
OPERATIONS: Final = (
    Case("bulk_insert", BULK_INSERT, **SHARED),
    Case("insert", INSERT, **SHARED),
    Case("upsert", (Step("insert", range(120), 1), Step("upsert", range(60, 180), 2)), **SHARED),
    Case("delete", (*BULK_INSERT, Step("delete", range(50, 100), 2)), **SHARED),
    Case("overwrite", (*INSERT, Step("overwrite", range(30, 150), 2)), **SHARED),
)

KEY_GENERATORS: Final = (
    Case("nonpartitioned", BULK_INSERT, record_key=("n",)),
    Case("nonpartitioned_timestamp_key", record_key=("moment",)),
    Case("nonpartitioned_two_keys", record_key=("day", "n")),
    Case("simple_int_partition", INSERT, record_key=("n",), partition_by=("year",)),
    Case("simple_hive", partition_by=("place",), options=HIVE),
    Case("simple_hive_url_encoded", BULK_INSERT, partition_by=("spot",), options=HIVE | URL_ENCODED),
    Case("complex_two_keys", record_key=("id", "maybe"), partition_by=("region",)),
    Case(
        "complex_three_partition_fields",
        BULK_INSERT,
        record_key=("id", "n"),
        partition_by=("region", "spot", "day"),
        options=URL_ENCODED,
    ),
    Case(
        "timestamp_based",
        partition_by=("epoch_ms",),
        options=TIMESTAMP_BASED,
        hudi_options=TIMESTAMP_BASED,
        from_path=frozenset({"epoch_ms"}),
    ),
    Case(
        "custom",
        INSERT,
        partition_by=("region:SIMPLE", "epoch_ms:TIMESTAMP"),
        options=CUSTOM,
        hudi_options=CUSTOM | {"hoodie.datasource.write.partitionpath.field": "region:SIMPLE,epoch_ms:TIMESTAMP"},
        from_path=frozenset({"epoch_ms"}),
    ),
)

ALL_TYPES: Final = (
    Case("all_types", rows=typed_rows),
    Case("all_types_by_date", BULK_INSERT, partition_by=("day",), options=HIVE, rows=typed_rows),
)

CASES: Final = OPERATIONS + KEY_GENERATORS + ALL_TYPES
