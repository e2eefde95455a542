"""Java's conversion of values to text, hash codes and date patterns, for whole Arrow columns at a time.

- Text: ``String.valueOf`` as Hudi's key generators apply it to stored values, without a Python loop over the values. A
  timestamp becomes the number of microseconds that Hudi stores.
- Hash codes: the bucket index hashes the fields of record keys. ``String.hashCode`` is a polynomial in 31 over UTF-16
  code units, ``List.hashCode`` is a polynomial in 31 over the hashes of its items, and both are modulo 2^32. With
  prefix sums weighted by powers of 31, the hash of any range of text is computed from two entries of the sums. So no
  loop over keys is needed. Memory: about 30 bytes per byte of a block of 16,384 keys.
- Date patterns, which Hudi parses by Joda-Time, limited to what partition paths need. A pattern may have the letters
  ``yyyy MM dd HH hh mm ss SSS``, quoted literals (``'T'``, ``''``) and any separators. A pattern for parsing may also
  have ``Z``, an offset from UTC. Any other letter is refused; the error names it. The hour ``hh`` goes from 1 to 12,
  and 12 is the first one, so morning and afternoon have the same text.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.float_texts import float_texts
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.key_fields import BLOCK_KEYS, FieldRule, bounds_and_data, find_field_values, hash_blocks
from lakeformat.errors import InvalidInputError, InvalidOptionError

__all__ = [
    "END_MILLI",
    "FIRST_MILLI",
    "JavaPattern",
    "arrow_zone",
    "field_list_hashes",
    "format_millis",
    "java_text",
    "parse_millis",
    "string_hashes",
]


#: Days since the epoch of 0001-01-01, the first date that Spark and Hudi write in ten characters.
_FIRST_DAY: Final = -719_162
#: Days since the epoch of 9999-12-31, the last date that Spark and Hudi write in ten characters.
_LAST_DAY: Final = 2_932_896


def java_text(array: pa.Array, *, logical_times: bool = False) -> pa.StringArray:
    """Convert each value to the text that Java makes of it. A null stays null.

    Args:
        logical_times: whether a timestamp with a zone becomes ``2024-01-02 03:04:05.678``, in milliseconds and UTC
            (``java.sql.Timestamp.toString``), and not its microseconds.

    ====================  =======================================================================
    integers, strings     unchanged
    booleans              ``true``, ``false``
    dates                 ``2024-01-02`` (``LocalDate.toString``; years 1 to 9999)
    timestamps            microseconds since the epoch, with or without a zone
    floats, doubles       ``1.5``, ``1.0E10``, ``NaN`` (``Double.toString`` with the fewest digits, Java 19's
                          rule; older releases write one digit more for some values with an exponent)
    decimals              ``3.10``, ``1E-8`` (``BigDecimal.toString``)
    ====================  =======================================================================

    A dictionary array is decoded first. An array of type null becomes null strings.

    Raises:
        InvalidInputError: The type is not supported (binary, nested, time and others), a date lies outside
            the years 1 to 9999, or a timestamp has nanoseconds that would be lost.
    """
    kind = array.type
    match kind_of(kind):
        case Kind.DICTIONARY:
            return java_text(array.cast(kind.value_type), logical_times=logical_times)
        case Kind.FLOAT if kind != pa.float16():
            return float_texts(array)
        case Kind.DATE:
            return _format_dates(array.cast(pa.date32()))
        case Kind.TIMESTAMP:
            try:
                micros = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
                return _format_micros(micros) if logical_times and kind.tz else micros.cast(pa.string())
            except pa.ArrowInvalid as error:
                advice = f"{error}; round it to microseconds"
                raise InvalidInputError(f"a {kind} column cannot be a key: {advice}") from None
        case Kind.TEXT if kind == pa.string():
            return array
        case Kind.TEXT | Kind.INTEGER | Kind.BOOLEAN | Kind.DECIMAL | Kind.NULL:
            return array.cast(pa.string())
        case Kind.FLOAT | Kind.BYTES | Kind.TIME | Kind.DURATION | Kind.INTERVAL | Kind.OTHER:
            pass
        case Kind.LIST | Kind.STRUCT | Kind.MAP | Kind.UNION:
            pass
        case never:
            assert_never(never)
    raise InvalidInputError(f"a {kind} column cannot be a record key or partition; convert it to string")


#: Microseconds since the epoch of 1582-10-15, before which Java counts days by another calendar, and of the year 10000.
_FIRST_MICRO, _END_MICRO = -12_219_292_800_000_000, 253_402_300_800_000_000


def _format_micros(micros: pa.Int64Array) -> pa.StringArray:
    """Format microseconds since the epoch as a date and time in UTC, cut to milliseconds towards the epoch."""
    bounds = pc.min_max(micros)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not _FIRST_MICRO <= low <= high < _END_MICRO:
        raise InvalidInputError("a time of a key or partition lies outside the years 1583 to 9999; correct it")
    millis = pc.divide(pc.fill_null(micros, 0), 1000).cast(pa.timestamp("ms"))
    texts = pc.replace_substring_regex(pc.strftime(millis, "%Y-%m-%d %H:%M:%S"), r"(\.\d)(\d*?)0+$", r"\1\2")
    return pc.if_else(micros.is_valid(), texts, pa.scalar(None, pa.string()))


def _format_dates(array: pa.Array) -> pa.StringArray:
    bounds = pc.min_max(array.cast(pa.int32()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not _FIRST_DAY <= low <= high <= _LAST_DAY:
        raise InvalidInputError("a date of a key or partition lies outside the years 1 to 9999; correct it")
    return array.cast(pa.string())


_BASE: Final = 31
_INVERSE: Final = pow(_BASE, -1, 1 << 32)

UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]


def field_list_hashes(keys: pa.ChunkedArray, fields: Sequence[str], rule: FieldRule) -> UInt32s:
    """Return for each key the ``List.hashCode`` of the values of ``fields``, as unsigned numbers.

    The values are in the order of the key, whatever the order of ``fields``.

    Args:
        keys: Record keys as text.
        fields: Names of the key fields to hash.
        rule: How the keys are split into fields.

    Raises:
        InvalidInputError: A key is null.
    """
    return hash_blocks(keys, lambda block: _hash_block(block, fields, rule))


def string_hashes(texts: pa.Array) -> UInt32s:
    """Return the ``String.hashCode`` of each text, as unsigned numbers. No text may be null."""
    hashes = [np.empty(0, np.uint32)]
    for start in range(0, len(texts), BLOCK_KEYS):
        offsets, data = bounds_and_data(texts.slice(start, BLOCK_KEYS).cast(pa.large_string()))
        hashes.append(_Texts(data).hashes(offsets[:-1], offsets[1:]))
    return np.concatenate(hashes)


def _hash_block(keys: pa.LargeStringArray, fields: Sequence[str], rule: FieldRule) -> UInt32s:
    bounds, data = bounds_and_data(keys)
    owners, starts, ends = find_field_values(data, bounds, [field.encode() for field in fields], rule)
    hashes = _Texts(data).hashes(starts, ends)
    firsts = np.searchsorted(owners, np.arange(len(keys) + 1))
    return (
        _Sums(hashes).polynomials(firsts[:-1], firsts[1:])
        + _powers(_BASE, int(np.diff(firsts).max(initial=0)))[np.diff(firsts)]
    )


class _Sums:
    """Weighted prefix sums of UTF-16 code units or of hashes, to compute Java's hash of any range of them."""

    def __init__(self, units: UInt32s) -> None:
        self._sums = np.zeros(len(units) + 1, np.uint32)
        np.cumsum(units * _powers(_INVERSE, len(units))[:-1], dtype=np.uint32, out=self._sums[1:])
        self._powers = _powers(_BASE, len(units))

    def polynomials(self, starts: Ints, ends: Ints) -> UInt32s:
        """Return the hash polynomial of each range ``starts[i]:ends[i]`` of the numbers; 0 for an empty range."""
        values: UInt32s = (self._sums[ends] - self._sums[starts]) * self._powers[np.maximum(ends - 1, 0)]
        return values


class _Texts:
    """UTF-8 data, to compute the ``String.hashCode`` of any ranges of its bytes."""

    def __init__(self, data: UInt8s) -> None:
        self._places: Ints | None = None
        units: npt.NDArray[np.unsignedinteger] = data
        if (data >= 0x80).any():
            units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), "<u2")
            # Number of UTF-16 code units of the character that starts at each byte: 2 for four bytes of UTF-8, else 1.
            unit_counts = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
            self._places = np.concatenate([[0], np.cumsum(unit_counts)])
        self._sums = _Sums(units.astype(np.uint32))

    def hashes(self, starts: Ints, ends: Ints) -> UInt32s:
        """Return the ``String.hashCode`` of each byte range ``starts[i]:ends[i]``."""
        if self._places is not None:
            starts, ends = self._places[starts], self._places[ends]
        return self._sums.polynomials(starts, ends)


def _powers(base: int, count: int) -> UInt32s:
    """Return ``base`` to the powers 0 to ``count``, modulo 2^32."""
    factors = np.full(count + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


Int64s = npt.NDArray[np.int64]

#: Lengths of units of time, in milliseconds.
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Maps each pattern field, such as ``HH``, to the length in milliseconds of intervals in which its text never changes.
_STEP: Final = {
    "yyyy": _DAY, "MM": _DAY, "dd": _DAY, "HH": _HOUR, "hh": _HOUR, "mm": _MINUTE, "ss": _SECOND, "SSS": 1,
}  # fmt: skip
#: Values of the fields that a pattern lacks, as in Joda-Time. The hour 12 of ``hh`` changes nothing.
_DEFAULTS: Final = {"yyyy": 2000, "MM": 1, "dd": 1, "HH": 0, "hh": 12, "mm": 0, "ss": 0, "SSS": 0}
_LIMITS: Final = {"yyyy": 9999, "MM": 12, "dd": 31, "HH": 23, "hh": 12, "mm": 59, "ss": 59, "SSS": 999}
#: The field of a pattern for the offset of the zone from UTC, such as ``+0530``, ``-05:00`` or ``Z``.
_OFFSET_FIELDS: Final = frozenset({"Z", "ZZ"})

_TOKEN: Final = re.compile(r"(?P<field>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<literal>[^A-Za-z'])")
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")

#: The epoch as a naive datetime. Moments are converted to wall-clock time in their zone before it is added.
_EPOCH: Final = dt.datetime(1970, 1, 1)
#: The first supported moment, 0001-01-01, in milliseconds since the epoch.
FIRST_MILLI: Final = -62_135_596_800_000
#: The first moment after the supported range, 10000-01-01, in milliseconds since the epoch.
END_MILLI: Final = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A parsed Java date pattern, such as ``yyyy-MM-dd``: a sequence of fields (``yyyy``) and literal texts (``-``)."""

    text: str
    #: Pairs ``(True, letters of a field)`` or ``(False, literal text)``.
    tokens: tuple[tuple[bool, str], ...]

    @classmethod
    def parse(cls, text: str, *, takes_offset: bool = False) -> JavaPattern:
        """Parse a pattern such as ``yyyy-MM-dd'T'HH``.

        Args:
            takes_offset: Whether the pattern may have ``Z``. Then it can parse texts, but not make any.

        Raises:
            InvalidOptionError: A letter is not supported, a quote is not closed, or there is no field.
        """
        tokens, offset = [], 0
        while offset < len(text):
            match = _TOKEN.match(text, offset)
            if match is None:
                raise InvalidOptionError(f"date pattern {text!r} has a quote that is not closed; close it")
            if (field := match["field"]) is not None:
                if field not in _STEP and not (takes_offset and field in _OFFSET_FIELDS):
                    names = (*_STEP, *(["Z"] if takes_offset else []))
                    raise InvalidOptionError(
                        f"date pattern {text!r} uses {field!r}; only {', '.join(names)} are supported"
                    )
                tokens.append((True, field))
            elif (quoted := match["quoted"]) is not None:
                tokens.append((False, quoted.replace("''", "'") or "'"))
            else:
                tokens.append((False, match["literal"]))
            offset = match.end()
        if not any(is_field and part in _STEP for is_field, part in tokens):
            raise InvalidOptionError(f"date pattern {text!r} names no part of a date; use such as yyyy/MM/dd")
        return cls(text, tuple(tokens))

    @property
    def has_offset(self) -> bool:
        """Tell whether texts of the pattern name their offset from UTC."""
        return any(is_field and part in _OFFSET_FIELDS for is_field, part in self.tokens)

    @property
    def without_offset(self) -> JavaPattern:
        """Return the pattern without ``Z``."""
        return JavaPattern(
            self.text, tuple(token for token in self.tokens if not (token[0] and token[1] in _OFFSET_FIELDS))
        )

    @property
    def step_millis(self) -> int:
        """Return the length of the intervals, in wall-clock milliseconds, in which all moments have the same text."""
        return min(_STEP[part] for is_field, part in self.tokens if is_field)

    @property
    def slashes(self) -> int:
        """Return the number of ``/`` that each formatted text has."""
        return sum(part.count("/") for is_field, part in self.tokens if not is_field)

    def format(self, moment: dt.datetime) -> str:
        """Format one moment, a naive datetime in wall-clock time."""
        values = {
            "yyyy": f"{moment.year:04}",
            "MM": f"{moment.month:02}",
            "dd": f"{moment.day:02}",
            "HH": f"{moment.hour:02}",
            "hh": f"{moment.hour % 12 or 12:02}",
            "mm": f"{moment.minute:02}",
            "ss": f"{moment.second:02}",
            "SSS": f"{moment.microsecond // 1000:03}",
        }
        return "".join(values[part] if is_field else part for is_field, part in self.tokens)

    @property
    def regex(self) -> str:
        """Return a regex for the texts that Joda-Time parses by the pattern. Group ``fn`` is the field at token n."""
        pieces = ["^"]
        for index, (is_field, part) in enumerate(self.tokens):
            if not is_field:
                pieces.append(re.escape(part))
                continue
            if part in _OFFSET_FIELDS:
                pieces.append(f"(?P<f{index}>[Zz]|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)")
                continue
            is_last = index + 1 == len(self.tokens)
            before_digits = not is_last and self.tokens[index + 1][0] and self.tokens[index + 1][1] in _STEP
            # Joda-Time accepts fewer digits than the field has letters, unless another field follows directly.
            fewest = len(part) if before_digits or part == "yyyy" else 1
            pieces.append(f"(?P<f{index}>[0-9]{{{fewest},{len(part)}}})")
        return "".join([*pieces, "$"])


def arrow_zone(name: str) -> str:
    """Return Arrow's name for a Java zone id (``UTC``, ``America/New_York``, ``GMT+8:00``).

    Raises:
        InvalidOptionError: The zone is unknown. Java would use GMT without an error.
    """
    name = name.strip()
    if name in {"UTC", "GMT", "Z"}:
        return "UTC"
    if offset := _OFFSET.fullmatch(name):
        return f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # KeyError includes ZoneInfoNotFoundError.
        raise InvalidOptionError(f"no time zone {name!r}; use such as UTC, Europe/Paris or GMT+8:00") from None
    return name


def format_millis(millis: Int64s, pattern: JavaPattern, zone: str) -> tuple[Int64s, list[str]]:
    """Format moments as texts, by a pattern and in a zone.

    Args:
        millis: Milliseconds since the epoch, all within the years 1 to 9999.
        pattern: The pattern of the texts.
        zone: A zone from `arrow_zone`.

    Returns:
        The code of each moment, and the list of texts: a moment with code ``n`` has the ``n``-th text. Different codes
        may have the same text.

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
    """Parse dates to milliseconds since the epoch, each by the first pattern that matches the whole text.

    If a wall-clock time occurs twice in the zone, the earlier moment is returned, as in Joda-Time.

    Args:
        texts: The dates, without nulls.
        patterns: The patterns, in the order in which they are tried.
        zone: A zone from `arrow_zone`, in which the texts are wall-clock times.

    Raises:
        InvalidInputError: A text matches no pattern, is not a date, or is a time that does not exist in the zone.
    """
    millis = np.zeros(len(texts), np.int64)
    pending = np.arange(len(texts))
    for pattern in patterns:
        groups = pc.extract_regex(texts.take(pa.array(pending)), pattern.regex)
        fits = groups.is_valid().to_numpy(zero_copy_only=False)
        matched = pending[fits]
        wall_clock = _wall_clock(groups.filter(pa.array(fits)), pattern, texts.take(pa.array(matched)))
        millis[matched] = wall_clock if pattern.has_offset else _moments_in_zone(wall_clock, zone)
        pending = pending[~fits]
    if len(pending):
        tried = ", ".join(repr(pattern.text) for pattern in patterns)
        raise InvalidInputError(f"{texts[int(pending[0])].as_py()!r} is not a date by {tried}; correct it")
    return millis


def _moments_in_zone(millis: Int64s, zone: str) -> Int64s:
    """Convert wall-clock times of a zone to milliseconds since the epoch."""
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
    """Return the milliseconds of the parsed fields, less the offset from UTC if the pattern has one."""
    fields: dict[str, Int64s] = {}
    offset: Int64s = np.zeros(len(texts), np.int64)
    for index, (is_field, part) in enumerate(pattern.tokens):
        if is_field:
            digits = pc.struct_field(groups, f"f{index}")
            if part in _OFFSET_FIELDS:
                offset = _parse_offsets(digits, texts)
                continue
            if part == "SSS":  # The digits are a decimal fraction of a second: "5" is 500 ms.
                digits = pc.ascii_rpad(digits, 3, "0")
            fields[part] = digits.cast(pa.int64()).to_numpy()
    part_of = {part: fields.get(part, np.full(len(texts), value, np.int64)) for part, value in _DEFAULTS.items()}
    year, month, day = part_of["yyyy"], part_of["MM"], part_of["dd"]
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    wrong = (days.astype("datetime64[M]") != months) | (day < 1) | (month < 1) | (year < 1)
    for part, limit in _LIMITS.items():
        wrong |= part_of[part] > limit
    wrong |= part_of["hh"] < 1
    if wrong.any():
        raise InvalidInputError(f"{texts[int(wrong.argmax())].as_py()!r} is not a date that exists; correct it")
    if "hh" in fields:  # It names an hour of the half of the day that HH gives, by default of the morning.
        part_of["HH"] = part_of["HH"] // 12 * 12 + fields["hh"] % 12
    millis: Int64s = days.astype(np.int64) * _DAY + part_of["SSS"] - offset
    for part in ("HH", "mm", "ss"):
        millis += part_of[part] * _STEP[part]
    return millis


def _parse_offsets(offsets: pa.StringArray, texts: pa.StringArray) -> Int64s:
    """Parse offsets from UTC such as ``+05:30``, ``-0500``, ``+01`` and ``Z``. Return them in milliseconds."""
    is_utc = pc.equal(pc.ascii_upper(offsets), "Z")
    digits = pc.ascii_rpad(pc.replace_substring(pc.if_else(is_utc, "+", offsets), ":", ""), 5, "0")
    hours, minutes = (pc.utf8_slice_codeunits(digits, start, start + 2).cast(pa.int64()).to_numpy() for start in (1, 3))
    if len(wrong := np.flatnonzero((hours > 23) | (minutes > 59))):
        raise InvalidInputError(f"{texts[int(wrong[0])].as_py()!r} has no offset from UTC that exists; correct it")
    is_west = pc.starts_with(digits, "-").to_numpy(zero_copy_only=False)
    result: Int64s = (hours * _HOUR + minutes * _MINUTE) * np.where(is_west, -1, 1)
    return result
