"""The rule for which partitions have expired. Pure (Hudi: ``KeepByTimeStrategy``, ``KeepByCreationTimeStrategy``)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from lakeformat.config.ttl_options import Expiry

__all__ = ["expired", "expires_at"]

_MILLIS: Final = 17


def expires_at(instant_time: str, days: int) -> str:
    """Return the last instant time at which a partition of this age still stays.

    Return "~", which is later than every instant time, if the time is not a date.

    >>> expires_at("20260101120000000", 2)
    '20260103120000000'
    """
    with suppress(ValueError, OverflowError):
        whole = instant_time.ljust(_MILLIS, "9")  # Hudi: fixInstantTimeCompatibility.
        moment = datetime.strptime(whole[:14], "%Y%m%d%H%M%S") + timedelta(days=days)
        return f"{moment:%Y%m%d%H%M%S}{whole[14:]}"
    return "~"


def expired(times: Mapping[str, str], expiry: Expiry, now: str) -> tuple[str, ...]:
    """Return the partitions that have expired, oldest first, at most ``expiry.most``.

    Args:
        times: partition path -> the instant time from which its age is counted.
        now: the current time as an instant time.
    """
    if expiry.days < 1:
        return ()
    wanted = set(expiry.partitions) or times.keys()
    old = sorted((time, path) for path, time in times.items() if path in wanted and now > expires_at(time, expiry.days))
    return tuple(path for _, path in old[: expiry.most])
