"""Java's conversion of values to text, hash codes and date patterns, for whole Arrow columns at a time.

- Text: ``String.valueOf`` as Hudi's key generators apply it to stored values, without a Python loop over the values. A
  timestamp becomes the number of microseconds that Hudi stores.
- Hash codes: the bucket index hashes the fields of record keys. ``String.hashCode`` is a polynomial in 31 over UTF-16
  code units, ``List.hashCode`` is a polynomial in 31 over the hashes of its items, and both are modulo 2^32. With
  prefix sums weighted by powers of 31, the hash of any range of text is computed from two entries of the sums. So no
  loop over keys is needed. Memory: about 30 bytes per byte of a block of 16,384 keys.
- Date patterns, which Hudi parses by Joda-Time, limited to what partition paths need. A pattern may have the letters
  ``yyyy MM dd HH mm ss SSS``, quoted literals (``'T'``, ``''``) and any separators. A pattern with any other letter is
  refused; the error names the letter.
"""

from __future__ import annotations

import datetime as dt
import enum
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

__all__ = [
    "BLOCK_KEYS",
    "END_MILLI",
    "FIRST_MILLI",
    "FieldRule",
    "JavaPattern",
    "arrow_zone",
    "bounds_and_data",
    "field_list_hashes",
    "find_field_values",
    "format_millis",
    "java_text",
    "parse_millis",
    "string_hashes",
]

#: Below this absolute value, Java writes a floating-point number with an exponent.
_PLAIN_FROM: Final = 1e-3
#: From this absolute value on, Java writes a floating-point number with an exponent.
_PLAIN_BELOW: Final = 1e7

_DECIMAL_PARTS: Final = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<power>[+-]?\d+))?$"

#: Days since the epoch of 0001-01-01, the first date that Spark and Hudi write in ten characters.
_FIRST_DAY: Final = -719_162
#: Days since the epoch of 9999-12-31, the last date that Spark and Hudi write in ten characters.
_LAST_DAY: Final = 2_932_896


def java_text(array: pa.Array) -> pa.StringArray:
    """Convert each value to the text that Java makes of it. A null stays null.

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
    if pa.types.is_dictionary(kind):
        return java_text(array.cast(kind.value_type))
    if pa.types.is_string(kind):
        return array
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        return _format_floats(array)
    if pa.types.is_date(kind):
        return _format_dates(array.cast(pa.date32()))
    if pa.types.is_timestamp(kind):
        try:
            return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"a {kind} column cannot be a key: {error}; round it to microseconds") from None
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    ):
        return array.cast(pa.string())
    raise InvalidInputError(f"a {kind} column cannot be a record key or partition; convert it to string")


def _format_dates(array: pa.Array) -> pa.StringArray:
    bounds = pc.min_max(array.cast(pa.int32()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not _FIRST_DAY <= low <= high <= _LAST_DAY:
        raise InvalidInputError("a date of a key or partition lies outside the years 1 to 9999; correct it")
    return array.cast(pa.string())


def _format_floats(array: pa.Array) -> pa.StringArray:
    """Convert floats to Java's text. Arrow writes the same digits, so only the notation is changed."""
    size = pc.abs(array)
    plain = pc.and_(pc.greater_equal(size, _PLAIN_FROM), pc.less(size, _PLAIN_BELOW))
    is_zero = pc.equal(size, 0)
    text = array.cast(pa.string())
    with_point = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, "0", "."))
    others = pc.and_(pc.is_finite(array), pc.invert(pc.or_(plain, is_zero)))
    if pc.any(others).as_py():
        exponential = _format_exponential(pc.filter(array, others))
        with_point = pc.replace_with_mask(with_point, pc.fill_null(others, False), exponential)
    named = pc.case_when(
        pc.make_struct(pc.is_nan(array), pc.equal(array, float("inf")), pc.equal(array, float("-inf"))),
        "NaN",
        "Infinity",
        "-Infinity",
        with_point,
    )
    return pc.if_else(pc.is_valid(array), named, pa.scalar(None, pa.string()))


def _format_exponential(array: pa.Array) -> pa.StringArray:
    """Format floats in Java's notation ``d.dddE[-]n``. The array must not contain nulls, zeros, NaN or infinities."""
    parts = pc.extract_regex(array.cast(pa.string()), _DECIMAL_PARTS)
    sign, whole, fraction = (pc.struct_field(parts, name) for name in ("sign", "whole", "fraction"))
    power = pc.struct_field(parts, "power")
    power = pc.if_else(pc.equal(power, ""), "0", pc.utf8_ltrim(power, "+")).cast(pa.int64())
    written = pc.binary_join_element_wise(whole, fraction, "")
    digits = pc.utf8_ltrim(written, "0")
    leading_zeros = pc.subtract(pc.binary_length(written), pc.binary_length(digits))
    exponent = pc.subtract(pc.add(power, pc.binary_length(whole)), pc.add(leading_zeros, 1))
    digits = pc.utf8_rtrim(digits, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    mantissa = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(digits, 0, 1), pc.if_else(pc.equal(rest, ""), "0", rest), "."
    )
    mantissa, exponent = _write_two_digits_for_smallest(array, digits, mantissa, exponent)
    number = pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")
    return pc.binary_join_element_wise(sign, number, "")


def _write_two_digits_for_smallest(
    array: pa.Array, digits: pa.Array, mantissa: pa.Array, exponent: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Replace the digits of numbers whose shortest text has one digit by the closest two digits, as Java does.

    For example, the text of the smallest double is ``4.9E-324`` and not ``5E-324``. Only the smallest subnormal numbers
    change: for all others, the second digit is 0.

    Returns:
        The changed ``mantissa`` and ``exponent``.
    """
    double = pa.types.is_float64(array.type)
    unit = 5e-324 if double else float(np.finfo(np.float32).smallest_subnormal)
    steps = [count * unit for count in range(1, 200)]
    closest = [f"{step:.1e}".split("e") for step in steps]
    index = pc.index_in(pc.abs(array), value_set=pa.array(steps, array.type))
    index = pc.if_else(pc.equal(pc.binary_length(digits), 1), index, pa.scalar(None, pa.int32()))
    if index.null_count == len(index):
        return mantissa, exponent
    return (
        pc.coalesce(pc.take(pa.array([part[0] for part in closest]), index), mantissa),
        pc.coalesce(pc.take(pa.array([int(part[1]) for part in closest]), index), exponent.cast(pa.int64())),
    )


#: Number of keys that are hashed at a time.
BLOCK_KEYS: Final = 16_384
_BASE: Final = 31
_INVERSE: Final = pow(_BASE, -1, 1 << 32)
_COMMA, _COLON = b",:"
#: The texts in a key for a null and for an empty value (Hudi: ``KeyGenUtils``). Both are hashed like an empty text.
_PLACEHOLDERS: Final = ("__null__", "__empty__")

UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class FieldRule(enum.Enum):
    """A rule by which a record key is split into the values of its fields (Hudi: ``extractRecordKeysByFields``).

    The two rules give different values in two cases: a value contains ``:`` or ``,``, or the key has one field and the
    form ``field:value``. `HUDI_0` splits such a key, `HUDI_1` uses it whole.
    """

    #: Hudi up to 0.15: a key with ``:`` is split at every comma. A part without ``:`` counts as a value.
    HUDI_0 = "0.15"
    #: Hudi from 1.0 on: a key with both ``:`` and ``,`` is split at the last comma before the ``:`` of each further
    #: field. All other commas belong to values.
    HUDI_1 = "1.1"


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
    hashes = [np.empty(0, np.uint32)]
    for chunk in keys.chunks:
        texts = chunk.cast(pa.large_string())
        if texts.null_count:
            raise InvalidInputError("null record key; every row needs a key")
        starts = range(0, len(texts), BLOCK_KEYS)
        hashes += [_hash_block(texts.slice(start, BLOCK_KEYS), fields, rule) for start in starts]
    return np.concatenate(hashes)


def string_hashes(texts: pa.Array) -> UInt32s:
    """Return the ``String.hashCode`` of each text, as unsigned numbers. No text may be null."""
    hashes = [np.empty(0, np.uint32)]
    for start in range(0, len(texts), BLOCK_KEYS):
        offsets, data = bounds_and_data(texts.slice(start, BLOCK_KEYS).cast(pa.large_string()))
        hashes.append(_Texts(data).hashes(offsets[:-1], offsets[1:]))
    return np.concatenate(hashes)


def bounds_and_data(texts: pa.LargeStringArray) -> tuple[Ints, UInt8s]:
    """Return the bytes of all texts, and where each of them starts and the last one ends."""
    _, buffer, content = texts.buffers()
    offsets = np.frombuffer(buffer, np.int64, len(texts) + 1, texts.offset * 8)
    data = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]] if content else np.empty(0, np.uint8)
    return offsets - offsets[0], data


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


def find_field_values(data: UInt8s, bounds: Ints, fields: Sequence[bytes], rule: FieldRule) -> tuple[Ints, Ints, Ints]:
    """Find the values of ``fields`` in all keys.

    The whole key is used as the only value in two cases: the key is not split, or `FieldRule.HUDI_1` finds none of the
    fields in it.

    Args:
        data: The UTF-8 bytes of all keys, one after another.
        bounds: Start of each key in ``data``, and the end of the last key.
        fields: Names of the key fields.
        rule: How the keys are split into fields.

    Returns:
        Three arrays with an entry for each value: the index of its key, and its start and end in ``data``. Values are
        sorted by key, and within a key by position.
    """
    every = np.arange(len(bounds) - 1)
    colons, commas = np.flatnonzero(data == _COLON), np.flatnonzero(data == _COMMA)
    is_cut = np.diff(np.searchsorted(colons, bounds)) > 0
    if rule is FieldRule.HUDI_1:
        is_cut &= np.diff(np.searchsorted(commas, bounds)) > 0
    if not is_cut.any():
        return every, bounds[:-1], bounds[1:]
    owners, starts, ends, names_end = _pieces(bounds, commas, colons, is_cut)
    split = _cut_at_commas if rule is FieldRule.HUDI_0 else _cut_before_names
    owners, starts, ends, names_end = split(owners, starts, ends, names_end)
    named = names_end >= 0
    wanted = ~named | _is_one_of(data, starts, names_end, fields)
    named, owners, starts, ends = named[wanted], owners[wanted], starts[wanted], ends[wanted]
    starts = np.where(named, names_end[wanted] + 1, starts)
    blank = named & _is_one_of(data, starts, ends, [text.encode() for text in _PLACEHOLDERS])
    ends = np.where(blank, starts, ends)
    is_whole = ~is_cut
    if rule is FieldRule.HUDI_1:
        is_whole |= ~np.isin(every, owners)
    whole = np.flatnonzero(is_whole)
    owners = np.concatenate([owners, whole])
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([starts, bounds[whole]])
    ends = np.concatenate([ends, bounds[whole + 1]])
    return owners[order], starts[order], ends[order]


def _pieces(bounds: Ints, commas: Ints, colons: Ints, is_cut: Bools) -> tuple[Ints, Ints, Ints, Ints]:
    """Split keys at commas.

    Args:
        bounds: Byte offset at which each key starts, and the end of the last key.
        commas: Byte offsets of all commas.
        colons: Byte offsets of all colons.
        is_cut: For each key, whether it is split. Other keys are left out.

    Returns:
        Four arrays with an entry for each part of a key: the index of its key, and the byte offsets of its start, its
        end and its first colon (-1 if it has none).
    """
    comma_owners = np.searchsorted(bounds, commas, side="right") - 1
    inner = is_cut[comma_owners]
    owners = np.concatenate([np.flatnonzero(is_cut), comma_owners[inner]])
    starts = np.concatenate([bounds[:-1][is_cut], commas[inner] + 1])
    order = np.lexsort((starts, owners))
    owners, starts = owners[order], starts[order]
    ends = np.append(starts[1:] - 1, bounds[-1])
    is_last = np.append(owners[1:] != owners[:-1], True)
    ends[is_last] = bounds[owners[is_last] + 1]
    at = np.searchsorted(colons, starts)
    first_colon = np.append(colons, np.iinfo(np.int64).max)[at]
    return owners, starts, ends, np.where(first_colon < ends, first_colon, -1)


def _cut_at_commas(owners: Ints, starts: Ints, ends: Ints, names_end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Remove the empty parts at the end of each key, as Java's ``String.split`` does.

    Arguments and result are the four arrays that `_pieces` returns.
    """
    filled = np.flatnonzero(ends > starts)
    last = np.full(int(owners.max()) + 1, -1)
    last[owners[filled]] = filled
    is_kept = np.arange(len(owners)) <= last[owners]
    return owners[is_kept], starts[is_kept], ends[is_kept], names_end[is_kept]


def _cut_before_names(owners: Ints, starts: Ints, ends: Ints, names_end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Join each part of a key that has no colon to the part before it: the comma between them belongs to a value.

    At the start of a key, such parts are joined to the first part that has a colon. Arguments and result are the four
    arrays that `_pieces` returns.
    """
    named = np.flatnonzero(names_end >= 0)
    named_owners = owners[named]
    is_first = np.append(True, named_owners[1:] != named_owners[:-1])
    is_last = np.append(named_owners[1:] != named_owners[:-1], True)
    begins = np.where(is_first, np.searchsorted(owners, named_owners), named)
    stops = np.where(is_last, np.searchsorted(owners, named_owners, side="right"), np.append(named[1:], 0)) - 1
    return named_owners, starts[begins], ends[stops], names_end[named]


def _is_one_of(data: UInt8s, starts: Ints, ends: Ints, texts: Sequence[bytes]) -> Bools:
    matches = np.zeros(len(starts), bool)
    for text in texts:
        at = np.flatnonzero(ends - starts == len(text))
        letters = data[starts[at][:, None] + np.arange(len(text))]
        matches[at[(letters == np.frombuffer(text, np.uint8)).all(axis=1)]] = True
    return matches


Int64s = npt.NDArray[np.int64]

#: Lengths of units of time, in milliseconds.
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Maps each pattern field, such as ``HH``, to the length in milliseconds of intervals in which its text never changes.
_STEP: Final = {"yyyy": _DAY, "MM": _DAY, "dd": _DAY, "HH": _HOUR, "mm": _MINUTE, "ss": _SECOND, "SSS": 1}
_DEFAULTS: Final = {"yyyy": 2000, "MM": 1, "dd": 1, "HH": 0, "mm": 0, "ss": 0, "SSS": 0}  # As in Joda-Time.
_LIMITS: Final = {"yyyy": 9999, "MM": 12, "dd": 31, "HH": 23, "mm": 59, "ss": 59, "SSS": 999}

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
            before_digits = index + 1 < len(self.tokens) and self.tokens[index + 1][0]
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
    if wrong.any():
        raise InvalidInputError(f"{texts[int(wrong.argmax())].as_py()!r} is not a date that exists; correct it")
    millis: Int64s = days.astype(np.int64) * _DAY + part_of["SSS"]
    for part in ("HH", "mm", "ss"):
        millis += part_of[part] * _STEP[part]
    return millis
