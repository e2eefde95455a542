from __future__ import annotations

import datetime as dt
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.java import JavaPattern, arrow_zone, format_millis, parse_millis
from lakeformat.errors import InvalidInputError, InvalidOptionError

MOMENT = 1704164645678  # 2024-01-02T03:04:05.678Z


def text_of(millis: int, pattern: str, zone: str = "UTC") -> str:
    codes, texts = format_millis(np.array([millis]), JavaPattern.parse(pattern), arrow_zone(zone))
    return texts[codes[0]]


def millis_of(text: str, *patterns: str, zone: str = "UTC") -> int:
    parsed = parse_millis(
        pa.array([text]), [JavaPattern.parse(one, takes_offset=True) for one in patterns], arrow_zone(zone)
    )
    return int(parsed[0])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy/MM/dd", "2024/01/02"),
        ("yyyyMMddHH", "2024010203"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-01-02T03:04:05.678"),
        ("'day='dd", "day=02"),
        ("'o''clock' HH", "o'clock 03"),
        ("HH''mm", "03'04"),
        ("yyyy-MM-dd hh", "2024-01-02 03"),
    ],
)
def test_moment_is_formatted_by_pattern(pattern: str, text: str) -> None:
    assert text_of(MOMENT, pattern) == text


def test_hours_of_half_a_day_begin_with_12() -> None:
    texts = [text_of(hour * 3_600_000, "hh") for hour in range(24)]
    assert texts == ["12", *(f"{hour:02}" for hour in range(1, 12))] * 2


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2024-01-02 03:04"),
        ("GMT", "2024-01-02 03:04"),
        ("GMT+8:00", "2024-01-02 11:04"),
        ("GMT-08", "2024-01-01 19:04"),
        ("+05:30", "2024-01-02 08:34"),
        ("America/New_York", "2024-01-01 22:04"),
    ],
)
def test_zone_names_are_javas(zone: str, text: str) -> None:
    assert text_of(MOMENT, "yyyy-MM-dd HH:mm", zone) == text
    assert millis_of(text, "yyyy-MM-dd HH:mm", zone=zone) == MOMENT // 60_000 * 60_000


@pytest.mark.parametrize("zone", ["", "PST8", "Europe/Atlantis", "../etc/passwd", "GMT+8:00:00:00"])
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(InvalidOptionError, match="no time zone"):
        arrow_zone(zone)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("yyyy-ww", "uses 'ww'"),
        ("yy", "uses 'yy'"),
        ("yyyy-MMM", "uses 'MMM'"),
        ("hh:mm a", "uses 'a'"),
        ("HH:mm:ss.SSSSSS", "uses 'SSSSSS'"),
        ("yyyyZ", "uses 'Z'"),
        ("yyyy'T", "quote that is not closed"),
        ("'T'", "names no part of a date"),
        ("", "names no part of a date"),
    ],
)
def test_unsupported_pattern_is_refused_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        JavaPattern.parse(pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "iso"),
    [
        ("2024-1-2", "yyyy-MM-dd", "2024-01-02T00:00:00"),
        ("20240102", "yyyyMMdd", "2024-01-02T00:00:00"),
        ("2024-02-29 23:59:59.5", "yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29T23:59:59.500"),
        ("7", "dd", "2000-01-07T00:00:00"),
        ("0001", "yyyy", "0001-01-01T00:00:00"),
        ("2020-01-06 12:12:12", "yyyy-MM-dd hh:mm:ss", "2020-01-06T00:12:12"),
        ("2020-01-06 1", "yyyy-MM-dd hh", "2020-01-06T01:00:00"),
        ("2020-01-06 15 5", "yyyy-MM-dd HH hh", "2020-01-06T17:00:00"),
        ("2020-04-01T13:01:33.428Z", "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2020-04-01T13:01:33.428"),
        ("2020-04-01T13:01:33-05:00", "yyyy-MM-dd'T'HH:mm:ssZ", "2020-04-01T18:01:33"),
        ("2020-04-01T13:01:33+0530", "yyyy-MM-dd'T'HH:mm:ssZZ", "2020-04-01T07:31:33"),
        ("20200401+05", "yyyyMMddZ", "2020-03-31T19:00:00"),
    ],
)
def test_text_is_parsed_by_pattern(text: str, pattern: str, iso: str) -> None:
    moment = dt.datetime.fromisoformat(iso + "+00:00") - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    assert millis_of(text, pattern) == moment // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2024-01", "yyyy-MM-dd"),
        ("2024-01-02 ", "yyyy-MM-dd"),
        ("2024-13-01", "yyyy-MM-dd"),
        ("2024-00-01", "yyyy-MM-dd"),
        ("2023-02-29", "yyyy-MM-dd"),
        ("2024-01-00", "yyyy-MM-dd"),
        ("0000", "yyyy"),
        ("24", "HH"),
        ("00", "hh"),
        ("13", "hh"),
        ("2020-04-01 24:00", "yyyy-MM-dd Z"),
        ("2020-04-01 +24:00", "yyyy-MM-dd Z"),
        ("2020-04-01 -01:60", "yyyy-MM-dd Z"),
        ("2024-01-02\n", "yyyy-MM-dd"),
        ("٢٠٢٤", "yyyy"),
    ],
)
def test_text_that_is_not_a_date_is_quoted_in_the_error(text: str, pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(repr(text))):
        millis_of(text, pattern)


def test_first_matching_pattern_parses_the_text() -> None:
    assert millis_of("2024/01/02", "yyyy-MM-dd", "yyyy/MM/dd") == millis_of("2024-01-02", "yyyy-MM-dd")


def test_texts_with_an_offset_ignore_the_zone() -> None:
    texts = ["2020-04-01T13:01:33Z", "2020-04-01T13:01:33.500-05:00", "20200401"]
    patterns = ["yyyy-MM-dd'T'HH:mm:ssZ", "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "yyyyMMdd"]
    found = [millis_of(text, *patterns, zone="Europe/Paris") for text in texts]
    expected = ["2020-04-01T13:01:33+00:00", "2020-04-01T18:01:33.500+00:00", "2020-03-31T22:00:00+00:00"]
    assert found == [round(dt.datetime.fromisoformat(text).timestamp() * 1000) for text in expected]


def test_hours_that_summer_time_skips_or_repeats() -> None:
    with pytest.raises(InvalidInputError, match="does not exist in Europe/Paris"):
        millis_of("2024-03-31 02:30", "yyyy-MM-dd HH:mm", zone="Europe/Paris")
    twice = millis_of("2024-10-27 02:30", "yyyy-MM-dd HH:mm", zone="Europe/Paris")
    assert twice == millis_of("2024-10-27 00:30", "yyyy-MM-dd HH:mm")


@given(
    st.lists(st.integers(-62_135_596_800_000, 253_402_300_799_999), min_size=1),
    st.sampled_from(["yyyy-MM-dd'T'HH:mm:ss.SSS", "yyyyMMddHHmmssSSS"]),
)
def test_written_moments_are_read_back(millis: list[int], pattern: str) -> None:
    parsed = JavaPattern.parse(pattern)
    codes, texts = format_millis(np.array(millis), parsed, "UTC")
    assert parse_millis(pa.array(texts), [parsed], "UTC")[codes].tolist() == millis


def test_moment_outside_the_calendar_of_its_zone_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="outside the years 1 to 9999 in \\+14:00"):
        text_of(253_402_300_799_999, "yyyy", "+14:00")
