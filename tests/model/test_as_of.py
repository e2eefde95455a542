"""The forms in which readers may name an instant, in tables of either timeline zone."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from lakeformat.model.instant import AsOf, parse_as_of

UTC = dt.timezone.utc
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("asked", "in_utc", "in_local"),
    [
        ("20240501083000", "20240501083000", None),
        ("2024-05-01", "20240501000000000", None),
        ("2024-05-01 08:30:00", "20240501083000999", None),
        ("2024-05-01 08:30:00.000", "20240501083000000", None),
        ("2024-05-01 08:30:00.123456", "20240501083000123", None),
        ("2024-05-01 08:30:00Z", "20240501083000999", "20240501043000999"),
        ("2024-05-01 08:30:00.5+05:30", "20240501030000500", "20240430230000500"),
        (dt.date(2024, 5, 1), "20240501000000000", None),
        (dt.date(999, 5, 1), "09990501000000000", None),
        (dt.datetime(2024, 5, 1, 8, 30), "20240501083000000", None),
        (dt.datetime(2024, 5, 1, 8, 30, 0, 123999), "20240501083000123", None),
        (dt.datetime(2024, 5, 1, 8, 30, tzinfo=UTC), "20240501083000000", "20240501043000000"),
        (dt.datetime(2024, 5, 1, 8, 30, tzinfo=INDIA), "20240501030000000", "20240430230000000"),
        (dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("America/New_York")), "20240101050000000", "20240101000000000"),
    ],
)
@pytest.mark.usefixtures("in_new_york")
def test_an_instant_in_the_timelines_zone(asked: AsOf, in_utc: str, in_local: str | None) -> None:
    assert parse_as_of(asked, UTC) == in_utc
    assert parse_as_of(asked, None) == (in_local or in_utc)
