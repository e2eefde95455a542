"""The real clock and the real randomness."""

from __future__ import annotations

import time
import uuid

__all__ = ["RandomIds", "SystemClock"]


class SystemClock:
    """Wall clock and monotonic timer of this machine."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def seconds(self) -> float:
        """A monotonic reading."""
        return time.perf_counter()


class RandomIds:
    """Random 128-bit tokens."""

    def token(self) -> str:
        """32 hexadecimal characters."""
        return uuid.uuid4().hex
