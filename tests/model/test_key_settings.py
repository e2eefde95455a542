from __future__ import annotations

import re

import pytest

from lakeformat.errors import InvalidOptionError
from lakeformat.model.keys import (
    KeyGeneratorKind,
    KeySettings,
    PartitionField,
    PartitionKind,
    TimestampSettings,
    TimestampType,
    TimeUnit,
)

NEW = "hoodie.keygen.timebased."
OLD = "hoodie.deltastreamer.keygen.timebased."


@pytest.mark.parametrize("kind", KeyGeneratorKind)
def test_class_names_are_read_back(kind: KeyGeneratorKind) -> None:
    assert KeyGeneratorKind.parse(kind.class_name) is kind
    assert KeyGeneratorKind.parse(kind.value) is kind
    assert KeyGeneratorKind.parse(kind.name) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.hudi.keygen.NonpartitionedKeyGenerator", KeyGeneratorKind.NON_PARTITIONED),
        ("NonPartitionedKeyGenerator", KeyGeneratorKind.NON_PARTITIONED),
        ("NON_PARTITION", KeyGeneratorKind.NON_PARTITIONED),
        ("NON_PARTITION_AVRO", KeyGeneratorKind.NON_PARTITIONED),
        ("org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator", KeyGeneratorKind.TIMESTAMP),
        ("simple_avro", KeyGeneratorKind.SIMPLE),
        (" custom ", KeyGeneratorKind.CUSTOM),
    ],
)
def test_other_generator_names_are_parsed(name: str, kind: KeyGeneratorKind) -> None:
    assert KeyGeneratorKind.parse(name) is kind


@pytest.mark.parametrize("name", ["", "SimpelKeyGenerator", "GLOBAL_DELETE", "com.example.SimpleKeyGenerator"])
def test_unknown_generators_are_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(repr(name))):
        KeyGeneratorKind.parse(name)


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        (["id"], [], KeyGeneratorKind.NON_PARTITIONED),
        (["a", "b"], [], KeyGeneratorKind.NON_PARTITIONED),
        (["id"], ["p"], KeyGeneratorKind.SIMPLE),
        ([], ["p"], KeyGeneratorKind.SIMPLE),
        (["a", "b"], ["p"], KeyGeneratorKind.COMPLEX),
        (["id"], ["p", "q"], KeyGeneratorKind.COMPLEX),
        (["id"], ["p:SIMPLE", "ts:TIMESTAMP"], KeyGeneratorKind.CUSTOM),
    ],
)
def test_default_generator_is_the_one_that_hudi_infers(
    keys: list[str], partitions: list[str], kind: KeyGeneratorKind
) -> None:
    assert KeyGeneratorKind.infer(keys, partitions) is kind


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("p", PartitionField("p", PartitionKind.SIMPLE)),
        ("p:simple", PartitionField("p", PartitionKind.SIMPLE)),
        (" a.b : TIMESTAMP ", PartitionField("a.b", PartitionKind.TIMESTAMP)),
    ],
)
def test_partition_fields_are_parsed(text: str, field: PartitionField) -> None:
    assert PartitionField.parse(text) == field


def test_unknown_partition_types_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="p:SIMPLE or p:TIMESTAMP"):
        PartitionField.parse("p:HASH")


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (KeyGeneratorKind.NON_PARTITIONED, ["p"], "takes no partition field, not p"),
        (KeyGeneratorKind.SIMPLE, [], "exactly one partition field, not none"),
        (KeyGeneratorKind.TIMESTAMP, ["p", "q"], "exactly one partition field, not p, q"),
    ],
)
def test_fields_that_do_not_fit_the_generator_are_refused(
    kind: KeyGeneratorKind, fields: list[str], reason: str
) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        KeySettings(kind, ("id",), tuple(map(PartitionField, fields)))


def test_timestamp_settings_have_hudis_defaults() -> None:
    options = {f"{NEW}timestamp.type": "SCALAR", f"{NEW}output.dateformat": "yyyy", "hoodie.table.name": "t"}
    settings = TimestampSettings.from_options(options)
    assert settings == TimestampSettings(TimestampType.SCALAR, "yyyy", TimeUnit.SECONDS, (), "UTC", "UTC")
    assert settings.unit is TimeUnit.SECONDS


def test_timestamp_settings_by_both_prefixes_in_any_case() -> None:
    options = {
        f"{OLD}Timestamp.Type": "date_string",
        f"{OLD}output.dateformat": "yyyy",
        f"{NEW}output.dateformat": "yyyy/MM",
        f"{NEW}input.dateformat": "yyyy-MM-dd, yyyyMMdd",
        f"{NEW}input.timezone": "Asia/Tokyo",
        f"{OLD}output.timezone": "GMT+8:00",
    }
    settings = TimestampSettings.from_options(options)
    assert settings.type is TimestampType.DATE_STRING
    assert settings.unit is None
    assert settings.output_format == "yyyy/MM"
    assert settings.input_formats == ("yyyy-MM-dd", "yyyyMMdd")
    assert (settings.input_timezone, settings.output_timezone) == ("Asia/Tokyo", "GMT+8:00")


def test_timezone_option_for_both_directions_wins() -> None:
    options = {
        f"{NEW}timestamp.type": "UNIX_TIMESTAMP",
        f"{NEW}output.dateformat": "yyyy",
        f"{NEW}timezone": "Europe/Paris",
        f"{NEW}output.timezone": "UTC",
    }
    settings = TimestampSettings.from_options(options)
    assert (settings.input_timezone, settings.output_timezone) == ("Europe/Paris", "Europe/Paris")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the option hoodie.keygen.timebased.timestamp.type"),
        ({"timestamp.type": "MIXED"}, "needs the option hoodie.keygen.timebased.input.dateformat"),
        ({"timestamp.type": "UNIX_TIMESTAMP"}, "needs the option hoodie.keygen.timebased.output.dateformat"),
        ({"timestamp.type": "UNIX_TIMESTAMPS"}, "did you mean 'UNIX_TIMESTAMP'?"),
        (
            {"timestamp.type": "SCALAR", "output.dateformat": "yyyy", "timestamp.scalar.time.unit": "WEEKS"},
            "timestamp.scalar.time.unit is 'WEEKS'",
        ),
        (
            {
                "timestamp.type": "MIXED",
                "input.dateformat": "yyyy",
                "input.dateformat.list.delimiter.regex": "(",
            },
            "delimiter '('",
        ),
    ],
)
def test_bad_timestamp_options_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(reason)):
        TimestampSettings.from_options({NEW + name: value for name, value in options.items()})
