"""Versions: the numbers of a table's completed commits, from 0, in the order of their instant times.

Archived commits are counted, so archiving does not change a number. A commit that is undone leaves the timeline, and
later commits take its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import tzinfo
from numbers import Integral
from typing import Any, Final, SupportsInt, TypeGuard

from lakeformat.errors import InstantNotAvailableError
from lakeformat.model.instant import AsOf, Instant, parse_as_of
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["find_instant", "find_version", "join_commit_times", "list_commit_times"]

#: Smallest number that is not a version number. A date such as 20251120 must not be read as a version.
_LIMIT: Final = 10**7


def list_commit_times(store: TimelineStore) -> list[str]:
    """Return the instant times of all commits, oldest first, archived commits included. An index is a version."""
    return join_commit_times(store.load(), store.read_archived().completed_in(""))


def join_commit_times(timeline: Timeline, archived: Iterable[Instant]) -> list[str]:
    """Return the instant times of the commits on a timeline and of archived ones, as `list_commit_times` does."""
    return sorted({instant.time for instant in archived} | timeline.commit_times)


def find_version(store: TimelineStore, value: object) -> str | None:
    """Return the instant time of a version; None if the value is not a version number.

    Args:
        value: an integer, or a text of at most seven digits, is a version number.

    Raises:
        InstantNotAvailableError: the table has no such version. The message has the range.
    """
    number = _version_number(value)
    if number is None:
        return None
    times = list_commit_times(store)
    if not 0 <= number < len(times):
        available = f"versions 0 to {len(times) - 1}" if times else "no commit yet"
        raise InstantNotAvailableError(f"{store.storage.location} has no version {number}; it has {available}")
    return times[number]


def find_instant(store: TimelineStore, as_of: AsOf, zone: tzinfo | None) -> str:
    """Return the instant time for a value of ``as.of.instant``: a version number, or what `parse_as_of` takes.

    Raises:
        InstantNotAvailableError: the table has no such version.
        InvalidOptionError: the value has none of these forms.
    """
    instant = find_version(store, as_of)
    if instant is not None:
        return instant
    moment: Any = str(as_of) if _is_integer(as_of) else as_of
    return parse_as_of(moment, zone)


def _version_number(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\s*\d{1,7}\s*", value, re.ASCII) else None
    number = int(value) if _is_integer(value) else None
    return number if number is not None and number < _LIMIT else None


def _is_integer(value: object) -> TypeGuard[SupportsInt]:
    """Tell whether a value is an integer of Python or numpy."""
    return isinstance(value, Integral) and not isinstance(value, bool)
