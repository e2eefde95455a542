from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from lakeformat.keys.partition_paths import DEFAULT_PARTITION, partition_paths, partition_values
from lakeformat.keys.record_keys import record_keys
from lakeformat.model.keys import (
    KeyGeneratorKind,
    KeySettings,
    PartitionField,
    PartitionKind,
    TimestampSettings,
)
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.tables import a_schema

PREFIX = "hoodie.keygen.timebased."


def by(*fields: str, hive: bool = False, encode: bool = False, **timestamp: str) -> KeySettings:
    """Return settings for fields ``p`` or ``p:TYPE``. Keyword arguments are timestamp options, with ``_`` for ``.``."""
    parsed = tuple(PartitionField.parse(field) for field in fields)
    if not parsed:
        kind = KeyGeneratorKind.NON_PARTITIONED
    elif any(":" in field for field in fields):
        kind = KeyGeneratorKind.CUSTOM
    elif timestamp:
        kind = KeyGeneratorKind.TIMESTAMP
    else:
        kind = KeyGeneratorKind.SIMPLE if len(parsed) == 1 else KeyGeneratorKind.COMPLEX
    options = {PREFIX + name.replace("_", "."): value for name, value in timestamp.items()}
    return KeySettings(
        kind,
        ("id",),
        parsed,
        hive_style=hive,
        url_encode=encode,
        timestamp=TimestampSettings.from_options(options) if options else None,
    )


def paths(column: object, settings: KeySettings) -> list[str]:
    rows = pa.table({"p": column})
    result = partition_paths(rows, settings)
    assert result.type == pa.dictionary(pa.int32(), pa.string())
    assert len(set(result.dictionary.to_pylist())) == len(result.dictionary)
    found: list[str] = result.to_pylist()
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (by("p"), ["eu", "x y/z", "x=y%z", DEFAULT_PARTITION, DEFAULT_PARTITION, "eu"]),
        (by("p", hive=True), ["p=eu", "p=x y/z", "p=x=y%z", *["p=" + DEFAULT_PARTITION] * 2, "p=eu"]),
        (by("p", encode=True), ["eu", "x y%2Fz", "x%3Dy%25z", DEFAULT_PARTITION, DEFAULT_PARTITION, "eu"]),
        (by(), [""] * 6),
    ],
)
def test_path_of_one_field(settings: KeySettings, expected: list[str]) -> None:
    assert paths(["eu", "x y/z", "x=y%z", None, "", "eu"], settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (by("p"), ["2024/05/06", "x", DEFAULT_PARTITION]),
        (by("p", hive=True), ["p=2024/05/06", "p=x", f"p={DEFAULT_PARTITION}"]),
        (by("p", encode=True), ["2024/05/06", "x", DEFAULT_PARTITION]),
        (by("p", "p"), ["2024-05-06/2024-05-06", "x/x", f"{DEFAULT_PARTITION}/{DEFAULT_PARTITION}"]),
    ],
)
def test_dates_of_a_single_field_have_slashes_on_request(settings: KeySettings, expected: list[str]) -> None:
    assert paths(["2024-05-06", "x", None], replace(settings, slash_dates=True)) == expected


def test_a_time_in_a_folder_is_written_out_on_request() -> None:
    times = pa.array([1_704_164_645_678_901, None], pa.timestamp("us", "UTC"))
    assert paths(times, replace(by("p", encode=True), logical_times=True)) == [
        "2024-01-02 03%3A04%3A05.678",
        DEFAULT_PARTITION,
    ]
    with pytest.raises(InvalidInputError, match=r"has `:` in its name.*urlencode=true"):
        paths(times, replace(by("p"), logical_times=True))


def test_url_encoding_escapes_like_hive() -> None:
    kept = " !$&()+,-.;<>@_`|}~aä漢😀"
    escaped = "\x00\x01\n\x1f\x7f\"#%'*/:=?\\{[]^"
    assert paths([kept + escaped], by("p", encode=True)) == [
        kept + "%00%01%0A%1F%7F%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E"
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (1.5, "1.5"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc), "1704164645000000"),
        (Decimal("3.10"), "3.10"),
    ],
)
def test_values_of_other_types_use_the_text_of_keys(value: object, text: str) -> None:
    assert paths([value, None, value], by("p")) == [text, DEFAULT_PARTITION, text]


@pytest.mark.parametrize("as_batch", [False, True])
def test_path_of_several_fields(as_batch: bool) -> None:
    table = pa.table({"p": ["a", "b", "a", None], "q": [1, 1, 2, 2], "r": pa.array([{"s": "x"}] * 4)})
    rows = table.to_batches()[0] if as_batch else table
    found = partition_paths(rows, by("p", "q", "r.s", hive=True)).to_pylist()
    assert found == [
        "p=a/q=1/r.s=x",
        "p=b/q=1/r.s=x",
        "p=a/q=2/r.s=x",
        f"p={DEFAULT_PARTITION}/q=2/r.s=x",
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["a", None], [], ["b", "a"]], pa.string()),
        pa.chunked_array([["a", None], ["b", "a"]], pa.large_string()),
        pa.chunked_array([pa.array(["a", None, "b", "a"]).dictionary_encode()]),
        pa.chunked_array([pa.array(["x", "a", None, "b", "a"]).slice(1)]),
    ],
)
def test_every_arrow_form_of_a_column_gives_the_same_paths(column: pa.ChunkedArray) -> None:
    assert paths(column, by("p")) == ["a", DEFAULT_PARTITION, "b", "a"]
    assert paths(column.slice(2), by("p")) == ["b", "a"]


@pytest.mark.parametrize("settings", [by(), by("p"), by("p", timestamp_type="SCALAR", output_dateformat="yyyy")])
def test_no_rows_have_no_paths(settings: KeySettings) -> None:
    assert paths(pa.array([], pa.int64()), settings) == []


def test_a_column_of_nulls_is_one_partition() -> None:
    assert paths(pa.nulls(2), by("p")) == [DEFAULT_PARTITION] * 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("..", "has a segment . or .."),
        (".", "has a segment . or .."),
        ("a/../b", "has a segment . or .."),
        ("a\\..\\b", "has a segment . or .."),
        ("/etc", "starts or ends with /"),
        ("a/", "starts or ends with /"),
        ("a//b", "has // in it"),
        (".hoodie", "is the table's own folder"),
        (".hoodie/metadata", "is the table's own folder"),
        ("a\x00b", "has control characters"),
        ("a\nb", "has control characters"),
        ("é" * 128, "has a folder name over 255 bytes"),
    ],
)
def test_dangerous_values_are_refused(value: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(reason)):
        paths(["fine", value], by("p"))


def test_escaping_and_hive_style_tame_some_values() -> None:
    assert paths(["/etc", "a\nb"], by("p", encode=True)) == ["%2Fetc", "a%0Ab"]
    assert paths([".."], by("p", hive=True)) == ["p=.."]
    with pytest.raises(InvalidInputError, match=re.escape("'..'")):
        paths([".."], by("p", encode=True))
    with pytest.raises(InvalidInputError, match=re.escape("has a segment")):
        paths(["a/.."], by("p", hive=True))


@pytest.mark.parametrize(
    ("column", "options", "expected"),
    [
        ([1704164645678, None], {"timestamp_type": "EPOCHMILLISECONDS"}, ["2024/01/02", "1970/01/01"]),
        ([1704164645, -1], {"timestamp_type": "UNIX_TIMESTAMP"}, ["2024/01/02", "1969/12/31"]),
        ([1704164645.9], {"timestamp_type": "UNIX_TIMESTAMP"}, ["2024/01/02"]),
        ([Decimal("1704164645.9")], {"timestamp_type": "UNIX_TIMESTAMP"}, ["2024/01/02"]),
        ([1704164645678000], {"timestamp_type": "EPOCHMICROSECONDS"}, ["2024/01/02"]),
        ([-1, -1000], {"timestamp_type": "EPOCHMICROSECONDS"}, ["1970/01/01", "1969/12/31"]),
        ([19724], {"timestamp_type": "SCALAR", "timestamp_scalar_time_unit": "days"}, ["2024/01/02"]),
        ([19724 * 24], {"timestamp_type": "SCALAR", "timestamp_scalar_time_unit": "hours"}, ["2024/01/02"]),
        (
            [dt.date(2024, 1, 2)],
            {"timestamp_type": "SCALAR", "timestamp_scalar_time_unit": "DAYS"},
            ["2024/01/02"],
        ),
        (
            [dt.datetime(2024, 1, 2, 23, tzinfo=dt.timezone.utc)],
            {"timestamp_type": "EPOCHMICROSECONDS", "output_timezone": "GMT+8:00"},
            ["2024/01/03"],
        ),
        (
            ["2024-01-02", "20240103", None, "2024-1-4"],
            {"timestamp_type": "DATE_STRING", "input_dateformat": "yyyy-MM-dd,yyyyMMdd"},
            ["2024/01/02", "2024/01/03", "1970/01/01", "2024/01/04"],
        ),
        (
            ["2024-01-02 23:30"],
            {
                "timestamp_type": "MIXED",
                "input_dateformat": "yyyy-MM-dd HH:mm",
                "input_timezone": "UTC",
                "output_timezone": "Asia/Tokyo",
            },
            ["2024/01/03"],
        ),
    ],
)
def test_path_of_a_timestamp(column: object, options: dict[str, str], expected: list[str]) -> None:
    settings = by("p", output_dateformat="yyyy/MM/dd", **options)
    assert paths(column, settings) == expected
    hive = by("p", hive=True, encode=True, output_dateformat="yyyy/MM/dd", **options)
    assert paths(column, hive) == ["p=" + path.replace("/", "%2F") for path in expected]


def test_many_moments_of_a_day_are_one_path() -> None:
    settings = by("p", timestamp_type="UNIX_TIMESTAMP", output_dateformat="yyyy-MM-dd")
    rows = pa.table({"p": pa.array(range(100_000), pa.int64())})
    assert partition_paths(rows, settings).dictionary.to_pylist() == ["1970-01-01", "1970-01-02"]


def test_custom_generator_mixes_simple_and_timestamp_fields() -> None:
    settings = by("p", "t:TIMESTAMP", hive=True, timestamp_type="UNIX_TIMESTAMP", output_dateformat="yyyy/MM")
    rows = pa.table({"p": ["a", None], "t": [0, 1704164645]})
    assert partition_paths(rows, settings).to_pylist() == [
        "p=a/t=1970/01",
        f"p={DEFAULT_PARTITION}/t=2024/01",
    ]


@pytest.mark.parametrize(
    ("column", "options", "reason"),
    [
        (["x"], {"timestamp_type": "UNIX_TIMESTAMP"}, "it holds texts, but"),
        ([1], {"timestamp_type": "DATE_STRING", "input_dateformat": "yyyy"}, "it holds int64, but"),
        (["x"], {"timestamp_type": "DATE_STRING", "input_dateformat": "yyyy"}, "'x' is not a date by 'yyyy'"),
        ([""], {"timestamp_type": "DATE_STRING", "input_dateformat": "yyyy"}, "'' is not a date"),
        (
            [dt.datetime(2024, 1, 2)],
            {"timestamp_type": "EPOCHMILLISECONDS"},
            "set SCALAR with unit MICROSECONDS",
        ),
        ([dt.date(2024, 1, 2)], {"timestamp_type": "UNIX_TIMESTAMP"}, "set SCALAR with unit DAYS"),
        (
            [1704164645678],
            {"timestamp_type": "UNIX_TIMESTAMP"},
            "1704164645678 seconds lie outside the years",
        ),
        ([float("nan")], {"timestamp_type": "UNIX_TIMESTAMP"}, "partition column 'p'"),
        ([True], {"timestamp_type": "UNIX_TIMESTAMP"}, "a bool column is not a timestamp"),
    ],
)
def test_unreadable_timestamps_are_refused(column: object, options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(reason)) as caught:
        paths(column, by("p", output_dateformat="yyyy", **options))
    assert "partition column 'p': " in str(caught.value)


def test_missing_settings_are_named() -> None:
    timestamp = KeySettings(KeyGeneratorKind.TIMESTAMP, ("id",), (PartitionField("p"),))
    with pytest.raises(InvalidOptionError, match=re.escape("hoodie.keygen.timebased.timestamp.type")):
        paths([1], timestamp)
    unknown = KeySettings(KeyGeneratorKind.CUSTOM, ("id",), (PartitionField("p", PartitionKind.UNKNOWN),))
    with pytest.raises(InvalidOptionError, match=re.escape("partitionpath.field with p:<type>")):
        paths([1], unknown)
    with pytest.raises(SchemaMismatchError, match=re.escape("partition column 'q' is not in the input")):
        paths([1], by("q"))
    with pytest.raises(InvalidInputError, match=re.escape("partition column 'p': a binary column")):
        paths([b"x"], by("p"))


SCHEMA = a_schema(s="string", i="int32", d="date32", b="bool", f="float64", t="int64", n=pa.struct({"s": pa.string()}))


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        ("eu", by("s"), {"s": "eu"}),
        ("s=eu", by("s", hive=True), {"s": "eu"}),
        ("s=x y/z", by("s", hive=True), {}),  # The value may be "x y-z", by Hudi's option for dates.
        ("2024/05/06", by("s"), {}),
        ("2024/05/06", by("d"), {"d": dt.date(2024, 5, 6)}),
        ("d=2024/05/06", by("d", hive=True), {"d": dt.date(2024, 5, 6)}),
        ("2024/5/6", by("d"), {}),
        ("s=x%3Dy%25z", by("s", encode=True, hive=True), {"s": "x=y%z"}),
        ("x%3dy", by("s", encode=True), {}),
        ("a:b", by("s", encode=True), {}),
        ("eu", by("s", hive=True), {}),
        ("n.s=eu", by("n.s", hive=True), {"n.s": "eu"}),
        ("7/2024-01-02/true", by("i", "d", "b"), {"i": 7, "d": dt.date(2024, 1, 2), "b": True}),
        ("07/2024-1-2/1", by("i", "d", "b"), {}),
        ("x/not a date/9", by("s", "d", "i"), {"s": "x", "i": 9}),
        ("99999999999", by("i"), {}),
        ("1.5", by("f"), {}),
        ("a/b/7", by("s", "i"), {}),
        (DEFAULT_PARTITION, by("s"), {}),
        ("default", by("s"), {}),
        (f"s={DEFAULT_PARTITION}/i=3", by("s", "i", hive=True), {"i": 3}),
        ("gone", by("gone"), {}),
        ("", by(), {}),
        ("2024/01", by("t", timestamp_type="UNIX_TIMESTAMP", output_dateformat="yyyy/MM"), {}),
        (
            "a/2024/01/5",
            by("s", "t:TIMESTAMP", "i", timestamp_type="UNIX_TIMESTAMP", output_dateformat="yyyy/MM"),
            {"s": "a", "i": 5},
        ),
    ],
)
def test_path_determines_partition_values(path: str, settings: KeySettings, expected: dict[str, object]) -> None:
    found = partition_values(path, settings, SCHEMA)
    assert {name: value.as_py() for name, value in found.items()} == expected


def test_path_with_fields_of_unknown_type_determines_nothing() -> None:
    fields = (PartitionField("s", PartitionKind.UNKNOWN), PartitionField("i", PartitionKind.UNKNOWN))
    assert partition_values("a/5", KeySettings(KeyGeneratorKind.CUSTOM, ("id",), fields), SCHEMA) == {}


names_of_folders = st.one_of(st.none(), st.text(st.sampled_from("ab/=%.: ä\n"), max_size=4))


@given(st.lists(st.tuples(names_of_folders, st.integers(-5, 5)), min_size=1), st.booleans(), st.booleans())
def test_values_of_a_path_equal_those_of_its_rows(rows: list[tuple[str | None, int]], hive: bool, encode: bool) -> None:
    settings = by("s", "i", hive=hive, encode=encode)
    table = pa.table({"s": pa.array([s for s, _ in rows], pa.string()), "i": [i for _, i in rows]})
    try:
        found = partition_paths(table, settings).to_pylist()
    except InvalidInputError:
        return
    for (text, number), path in zip(rows, found, strict=True):
        values = {name: value.as_py() for name, value in partition_values(path, settings, SCHEMA).items()}
        assert values.get("s", text) == text
        assert values.get("i", number) == number
        if encode:
            assert values["i"] == number
            assert ("s" in values) == bool(text)


def stored_settings(table: Path) -> KeySettings:
    lines = (table / ".hoodie" / "hoodie.properties").read_text(encoding="latin-1").splitlines()
    properties = {
        name: value.replace("\\:", ":").replace("\\=", "=")
        for name, _, value in (line.partition("=") for line in lines if not line.startswith("#"))
    }

    def fields(name: str) -> list[str]:
        return [field for field in properties.get(name, "").split(",") if field]

    keys, partitions = fields("hoodie.table.recordkey.fields"), fields("hoodie.table.partition.fields")
    named = properties.get("hoodie.table.keygenerator.class") or properties.get("hoodie.table.keygenerator.type")
    return KeySettings(
        KeyGeneratorKind.parse(named) if named else KeyGeneratorKind.infer(keys, partitions),
        tuple(keys),
        tuple(map(PartitionField.parse, partitions)),
        hive_style=properties.get("hoodie.datasource.write.hive_style_partitioning") == "true",
        url_encode=properties.get("hoodie.datasource.write.partitionpath.urlencode") == "true",
    )


@pytest.mark.parametrize("name", [*names("hudi_v6"), *names("hudi_v8_v9")])
def test_keys_and_paths_equal_hudis(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path)
    settings = stored_settings(table)
    checked = 0
    for file in (file for file in table.rglob("*.parquet") if ".hoodie" not in file.parts):
        rows = pq.read_table(file, partitioning=None)
        assert record_keys(rows, settings).to_pylist() == rows["_hoodie_record_key"].to_pylist(), file
        found = partition_paths(rows, settings).to_pylist()
        assert found == rows["_hoodie_partition_path"].to_pylist(), file
        for path in set(found):
            assert path == file.parent.relative_to(table).as_posix().removeprefix("."), file
            for column, value in partition_values(path, settings, rows.schema).items():
                assert set(rows[column].to_pylist()) == {value.as_py()}, file
        checked += 1
    assert checked or "mor" in name
