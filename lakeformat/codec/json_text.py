"""Parsing of JSON in files of a table.

Python makes objects of up to a hundred bytes of one byte of JSON, and its parser raises `RecursionError` for texts that
are nested some hundred levels deep. Here both are a ``ValueError``, as all other damage is.
"""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["NestedTooDeepError", "parse_json"]

#: A text of fewer bytes or characters is parsed without a look at its parts.
_SMALL: Final = 256 << 10
#: Bytes that the objects of a text may always take, and for each byte or character of the text.
_ALLOWED: Final = 128 << 20
_ALLOWED_EACH: Final = 16
#: Bytes of an object, of an array, of a field of an object besides its value, and of another value.
_OBJECT, _ARRAY, _FIELD, _VALUE = 240, 64, 128, 64


class NestedTooDeepError(ValueError):
    """The text is nested deeper than Python parses JSON."""


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON text.

    Args:
        options: arguments of ``json.loads``.

    Raises:
        ValueError: the text is not JSON, or has far more values than a text of its length has.
        NestedTooDeepError: the text is nested some hundred levels deep.
    """
    if len(text) > _SMALL and _estimate_bytes(text) > _ALLOWED + _ALLOWED_EACH * len(text):
        raise ValueError(f"its {len(text):,} characters hold more values than any file of a table")
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise NestedTooDeepError("it is nested too deeply") from None


def _estimate_bytes(text: str | bytes) -> int:
    """Return about the bytes that the objects of a text take at most. Marks in texts count, too."""
    if isinstance(text, bytes):
        objects, arrays, fields, values = (text.count(mark) for mark in (b"{", b"[", b":", b","))
    else:
        objects, arrays, fields, values = (text.count(mark) for mark in ("{", "[", ":", ","))
    width = 1 if text.isascii() else 4
    return objects * _OBJECT + arrays * _ARRAY + fields * _FIELD + values * _VALUE + 2 * width * len(text)
