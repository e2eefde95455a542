"""Lookup of time zones by the names that Java and Spark accept."""

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from lakeformat.errors import InvalidOptionError

__all__ = ["time_zone"]

_UTC: Final = frozenset({"Z", "UTC", "GMT", "UT"})
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_MOST: Final = timedelta(hours=18)
#: Maps Java's short zone ids to regions or offsets (``ZoneId.SHORT_IDS``).
_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip


def time_zone(name: str) -> tzinfo:
    """Return the zone of a name: region (``Europe/Berlin``), offset (``+02:00``), ``UTC``, ``Z`` or Java short id.

    Raises:
        InvalidOptionError: The zone is unknown.
    """
    name = _SHORT.get(name, name)
    if name in _UTC:
        return timezone.utc
    if match := _OFFSET.fullmatch(name):
        sign, *numbers = match.groups()
        hours, minutes, seconds = (int(number or 0) for number in numbers)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset <= _MOST and minutes < 60 and seconds < 60:
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidOptionError(f"time zone {name!r} is unknown; write a region, UTC or +hh:mm") from error
