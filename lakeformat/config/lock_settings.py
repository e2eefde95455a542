"""The settings of the table's lock (first form by the lead; part B completes this module)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LockSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """The settings of the table's lock.

    Attributes:
        wait_seconds: maximum time to wait for the lock.
        provider: ``storage``, ``zookeeper`` or ``dynamodb``; "" if the options name none.
        is_shared: whether Hudi writes to the table, too, so that every write holds the lock.
    """

    wait_seconds: float
    provider: str = ""
    is_shared: bool = False
