"""Formatting and parsing of whole columns by Java's date patterns, limited to what partition paths need.

A pattern may have the letters ``yyyy MM dd HH mm ss SSS``, quoted literals (``'T'``, ``''``) and any separators. Every
other letter is refused by name. Hudi uses Joda-Time for these patterns.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInputError, InvalidOptionError

__all__ = ["END_MILLI", "FIRST_MILLI", "JavaPattern", "arrow_zone", "format_millis", "parse_millis"]

Int64s = npt.NDArray[np.int64]

#: Milliseconds of each unit, and the step of each pattern field: moments within a step have the same text.
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_STEP: Final = {"yyyy": _DAY, "MM": _DAY, "dd": _DAY, "HH": _HOUR, "mm": _MINUTE, "ss": _SECOND, "SSS": 1}
_DEFAULTS: Final = {"yyyy": 2000, "MM": 1, "dd": 1, "HH": 0, "mm": 0, "ss": 0, "SSS": 0}  # Joda's
_LIMITS: Final = {"yyyy": 9999, "MM": 12, "dd": 31, "HH": 23, "mm": 59, "ss": 59, "SSS": 999}

_TOKEN: Final = re.compile(r"(?P<field>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<literal>[^A-Za-z'])")
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")

#: In wall-clock time, because zones are applied to whole columns first.
_EPOCH: Final = dt.datetime(1970, 1, 1)
#: Milliseconds of 0001-01-01 and 10000-01-01.
FIRST_MILLI: Final = -62_135_596_800_000
END_MILLI: Final = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A parsed pattern: a sequence of fields and literals."""

    text: str
    #: Each is ``(whether it is a field, its letters or the literal text)``.
    tokens: tuple[tuple[bool, str], ...]

    @classmethod
    def parse(cls, text: str) -> JavaPattern:
        """Parse a pattern such as ``yyyy-MM-dd'T'HH``.

        Raises:
            InvalidOptionError: A letter is not supported, a quote is not closed, or there is no field.
        """
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise InvalidOptionError(f"date pattern {text!r} has a quote that is not closed; close it")
            if (field := match["field"]) is not None:
                if field not in _STEP:
                    raise InvalidOptionError(
                        f"date pattern {text!r} uses {field!r}; only {', '.join(_STEP)} are supported"
                    )
                tokens.append((True, field))
            elif (quoted := match["quoted"]) is not None:
                tokens.append((False, quoted.replace("''", "'") or "'"))
            else:
                tokens.append((False, match["literal"]))
            at = match.end()
        if not any(is_field for is_field, _ in tokens):
            raise InvalidOptionError(f"date pattern {text!r} names no part of a date; use such as yyyy/MM/dd")
        return cls(text, tuple(tokens))

    @property
    def step_millis(self) -> int:
        """Return the step of the finest field, in wall-clock milliseconds. Moments within a step have the same text."""
        return min(_STEP[part] for is_field, part in self.tokens if is_field)

    @property
    def slashes(self) -> int:
        """Return the number of ``/`` in every text of the pattern."""
        return sum(part.count("/") for is_field, part in self.tokens if not is_field)

    def format(self, moment: dt.datetime) -> str:
        """Return the text of one wall-clock moment."""
        values = {
            "yyyy": f"{moment.year:04}",
            "MM": f"{moment.month:02}",
            "dd": f"{moment.day:02}",
            "HH": f"{moment.hour:02}",
            "mm": f"{moment.minute:02}",
            "ss": f"{moment.second:02}",
            "SSS": f"{moment.microsecond // 1000:03}",
        }
        return "".join(values[part] if is_field else part for is_field, part in self.tokens)

    @property
    def regex(self) -> str:
        """Return a regex that matches the texts that Joda parses by the pattern, with groups ``f0``, ``f1`` ... by token."""
        pieces = ["^"]
        for index, (is_field, part) in enumerate(self.tokens):
            if not is_field:
                pieces.append(re.escape(part))
                continue
            before_digits = index + 1 < len(self.tokens) and self.tokens[index + 1][0]
            # Joda accepts fewer digits than letters, except directly before another number.
            fewest = len(part) if before_digits or part == "yyyy" else 1
            pieces.append(f"(?P<f{index}>[0-9]{{{fewest},{len(part)}}})")
        return "".join([*pieces, "$"])


def arrow_zone(name: str) -> str:
    """Return Arrow's name for a Java zone id (``UTC``, ``America/New_York``, ``GMT+8:00``).

    Raises:
        InvalidOptionError: The zone is unknown. (Java would silently use GMT.)
    """
    name = name.strip()
    if name in {"UTC", "GMT", "Z"}:
        return "UTC"
    if offset := _OFFSET.fullmatch(name):
        return f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError.
        raise InvalidOptionError(f"no time zone {name!r}; use such as UTC, Europe/Paris or GMT+8:00") from None
    return name


def format_millis(millis: Int64s, pattern: JavaPattern, zone: str) -> tuple[Int64s, list[str]]:
    """Format moments; return ``(code of each moment, text of each code)``. Different codes may have the same text.

    Args:
        millis: Milliseconds since the epoch, all within the years 1 to 9999.
        pattern: The pattern of the texts.
        zone: A zone from `arrow_zone`.

    Raises:
        InvalidInputError: A moment lies outside the years 1 to 9999 in the zone.
    """
    if zone != "UTC":
        moments = pa.array(millis).cast(pa.timestamp("ms", zone))
        millis = pc.local_timestamp(moments).cast(pa.int64()).to_numpy(zero_copy_only=False)
    steps = pa.array(millis // pattern.step_millis).dictionary_encode()
    distinct = steps.dictionary.to_numpy() * pattern.step_millis
    if len(distinct) and not FIRST_MILLI <= distinct.min() <= distinct.max() < END_MILLI:
        raise InvalidInputError(f"a moment lies outside the years 1 to 9999 in {zone}; correct it")
    texts = [pattern.format(_EPOCH + dt.timedelta(milliseconds=value)) for value in distinct.tolist()]
    return steps.indices.to_numpy().astype(np.int64), texts


def parse_millis(texts: pa.StringArray, patterns: Sequence[JavaPattern], zone: str) -> Int64s:
    """Parse texts without nulls as milliseconds since the epoch, each by the first pattern that matches all of it.

    A wall-clock time that occurs twice in the zone means the earlier moment, as in Joda-Time.

    Raises:
        InvalidInputError: A text matches no pattern, is not a date, or is a time that does not exist in the zone.
    """
    millis = np.zeros(len(texts), np.int64)
    pending = np.arange(len(texts))
    for pattern in patterns:
        groups = pc.extract_regex(texts.take(pa.array(pending)), pattern.regex)
        fits = groups.is_valid().to_numpy(zero_copy_only=False)
        matched = pending[fits]
        millis[matched] = _wall_clock(groups.filter(pa.array(fits)), pattern, texts.take(pa.array(matched)))
        pending = pending[~fits]
    if len(pending):
        tried = ", ".join(repr(pattern.text) for pattern in patterns)
        raise InvalidInputError(f"{texts[int(pending[0])].as_py()!r} is not a date by {tried}; correct it")
    if zone == "UTC":
        return millis
    wall_clock = pa.array(millis).cast(pa.timestamp("ms"))
    try:
        moments = pc.assume_timezone(wall_clock, zone, ambiguous="earliest", nonexistent="raise")
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a time does not exist in {zone}: {error}") from None
    result: Int64s = moments.cast(pa.int64()).to_numpy()
    return result


def _wall_clock(groups: pa.StructArray, pattern: JavaPattern, texts: pa.StringArray) -> Int64s:
    fields: dict[str, Int64s] = {}
    for index, (is_field, part) in enumerate(pattern.tokens):
        if is_field:
            digits = pc.struct_field(groups, f"f{index}")
            if part == "SSS":  # The digits are a fraction: "5" is 500 ms.
                digits = pc.ascii_rpad(digits, 3, "0")
            fields[part] = digits.cast(pa.int64()).to_numpy()
    part_of = {part: fields.get(part, np.full(len(texts), value, np.int64)) for part, value in _DEFAULTS.items()}
    year, month, day = part_of["yyyy"], part_of["MM"], part_of["dd"]
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    wrong = (days.astype("datetime64[M]") != months) | (day < 1) | (month < 1) | (year < 1)
    for part, limit in _LIMITS.items():
        wrong |= part_of[part] > limit
    if wrong.any():
        raise InvalidInputError(f"{texts[int(wrong.argmax())].as_py()!r} is not a date that exists; correct it")
    millis: Int64s = days.astype(np.int64) * _DAY + part_of["SSS"]
    for part in ("HH", "mm", "ss"):
        millis += part_of[part] * _STEP[part]
    return millis
