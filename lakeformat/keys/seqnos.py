"""Sequence numbers of rows: which row of which task of a commit."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

__all__ = ["seqnos"]

#: The last four digits of numbers, as text.
_LAST_DIGITS: Final = (np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10 + ord("0")).astype(np.uint8)


def seqnos(instant_time: str, task: int, first: int, rows: int) -> pa.Array:
    """``<instant>_<task>_<counter>`` for rows from ``first`` on.

    >>> seqnos("20251120083000123", 0, 9, 2).to_pylist()
    ['20251120083000123_0_9', '20251120083000123_0_10']
    """
    prefix = np.frombuffer(f"{instant_time}_{task}_".encode(), np.uint8)
    parts = [pa.array([], pa.string())]
    start, end = first, first + rows
    while start < end:  # One run for each number of digits: texts of one length are a matrix of bytes.
        digits = len(str(start))
        count = min(end, 10**digits) - start
        text = np.empty((count, len(prefix) + digits), np.uint8)
        text[:, : len(prefix)] = prefix
        last = min(digits, 4)
        for head in range(start // 10_000, (start + count - 1) // 10_000 + 1):  # Ten thousand rows at a time.
            low, high = max(head * 10_000, start), min((head + 1) * 10_000, start + count)
            block = text[low - start : high - start, len(prefix) :]
            block[:, -last:] = _LAST_DIGITS[low - head * 10_000 : high - head * 10_000, -last:]
            if digits > last:
                block[:, :-last] = np.frombuffer(str(head).encode(), np.uint8)
        ends = np.arange(0, text.size + 1, text.shape[1]).astype(np.int32)
        parts.append(pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text)))
        start += count
    return parts[-1] if len(parts) <= 2 else pa.concat_arrays(parts)
