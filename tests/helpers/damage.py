"""Damaged copies of a file's bytes."""

from __future__ import annotations

import random

__all__ = ["flip", "flips"]


def flip(data: bytes, bit: int) -> bytes:
    """Return a copy of the bytes in which one bit differs."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def flips(data: bytes, *, most: int) -> list[bytes]:
    """Return copies of the bytes with one bit flipped: each bit, or ``most`` random ones."""
    bits = range(8 * len(data))
    chosen = bits if len(bits) <= most else random.Random(len(data)).sample(bits, most)
    return [flip(data, bit) for bit in chosen]
