"""Versions: the numbers of the commits, and which values are version numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from lakeformat.errors import InstantNotAvailableError, InvalidOptionError
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.versions import find_instant, find_version, join_commit_times, list_commit_times
from tests.helpers.bare_table import bare_store, put_instants
from tests.helpers.short_timelines import hour, instant, timeline_of


@pytest.fixture
def store() -> TimelineStore:
    """Return a table with three commits and other instants."""
    store = bare_store()
    put_instants(store, "c1 n2 d3 c4! r5 b6?")
    return store


def test_commits_are_numbered_with_the_archived_ones() -> None:
    archived = [instant(word) for word in ("c1", "d2", "c4")]
    assert join_commit_times(timeline_of("c4 c3 n5 c6!"), archived) == [hour(number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 1),
        (2, 5),
        ("1", 3),
        (" 2 ", 5),
        ("0000001", 3),
        (np.int64(1), 3),
        (True, None),  # A truth value does not count as a number.
        (1.0, None),
        (None, None),
        ("", None),
        ("1.0", None),
        ("00000001", None),  # A date such as 20251120 has eight digits.
        ("١", None),
        (10**7, None),
        (hour(1), None),
    ],
)
def test_version_is_an_integer_or_a_text_of_seven_digits(
    value: object, number: int | None, store: TimelineStore
) -> None:
    assert list_commit_times(store) == [hour(1), hour(3), hour(5)]
    assert find_version(store, value) == (None if number is None else hour(number))


@pytest.mark.parametrize("value", [3, -1, "3", 10**7 - 1])
def test_version_that_the_table_does_not_have_is_refused(value: object, store: TimelineStore) -> None:
    with pytest.raises(InstantNotAvailableError, match=rf"has no version {value}; it has versions 0 to 2$"):
        find_version(store, value)
    with pytest.raises(InstantNotAvailableError, match=rf"has no version {value}; it has no commit yet$"):
        find_version(bare_store(), value)


def test_instant_is_given_by_a_version_or_by_a_time(store: TimelineStore) -> None:
    assert find_instant(store, 1, UTC) == hour(3)
    assert find_instant(store, "2", UTC) == hour(5)
    for moment in (hour(4), int(hour(4))):
        assert find_instant(store, moment, UTC) == hour(4)
    for moment in ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)):
        assert find_instant(store, moment, UTC) == hour(0)
    for mistake in ("yesterday", 20260101, True):
        with pytest.raises(InvalidOptionError):
            find_instant(store, mistake, UTC)  # type: ignore[arg-type]
