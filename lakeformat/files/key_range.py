"""The least and greatest record key of a base file, as its footer stores them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["KeyRange"]


class KeyRange:
    """The least and greatest key in Java's string order, by UTF-16 units."""

    def __init__(self, minimum: str | None = None, maximum: str | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Widen the range to include these keys."""
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            if len(chunk):
                self._add(chunk)

    def _add(self, keys: pa.Array) -> None:
        if _has_high_bytes(keys):
            # Only texts with characters from U+E000 on sort differently in UTF-8; such keys are rare.
            is_high = pc.match_substring_regex(keys, "[\\x{E000}-\\x{10FFFF}]")
            high = keys.filter(is_high).to_pylist()
            if high:
                self._widen(min(high, key=_java_order), max(high, key=_java_order))
            keys = keys.filter(pc.invert(is_high))
        if len(keys):
            found = pc.min_max(keys)
            self._widen(found["min"].as_py(), found["max"].as_py())

    def _widen(self, low: str, high: str) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low, key=_java_order)
        self.maximum = high if self.maximum is None else max(self.maximum, high, key=_java_order)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _has_high_bytes(keys: pa.Array) -> bool:
    offsets, data = keys.buffers()[1:3]
    width = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    ends = np.frombuffer(offsets, width)[[keys.offset, keys.offset + len(keys)]]
    if data is None or ends[0] == ends[1]:
        return False
    return bool((np.frombuffer(data, np.uint8)[ends[0] : ends[1]] >= 0xEE).any())
