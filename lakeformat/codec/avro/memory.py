"""The memory that the Python objects of an Avro record take, measured before the record is decoded.

One byte of Avro may become an object with all the fields of a record. A record that is small enough for any schema is
not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["ALLOWED", "check_memory", "estimate_object_bytes"]

#: Bytes that the objects of a record may always take, and for each of its bytes.
ALLOWED: Final = 128 << 20
_ALLOWED_EACH: Final = 12
_ITEM, _ENTRY, _NUMBER, _TEXT = 8, 100, 32, 56
_WIDTHS: Final[Mapping[str, int]] = {"null": 0, "boolean": 1, "float": 4, "double": 8}

#: A function that skips a value: it gets the position of the value and returns the position after it.
_Skip: TypeAlias = Callable[[int], int]


def estimate_object_bytes(fields: int) -> int:
    """Return about the bytes of a dict with that many fields, without its values."""
    return 184 + 40 * fields


def check_memory(data: bytes, written: Any, fields_of: Mapping[str, int] | None = None) -> None:
    """Refuse a record whose objects would take far more memory than its bytes.

    Args:
        data: The bytes of the record.
        written: The schema of the record, checked, as JSON with full names.
        fields_of: For each record's full name the number of fields that its dict gets; None for its own fields.

    Raises:
        ValueError: The record would take more than `ALLOWED` and twelve times its size.
        IndexError: The bytes are not a record of this schema.
    """
    _Meter(data, fields_of or {}).make_skip(written)(0)


class _Meter:
    """A reader that skips all values of a record and adds up what they would take."""

    def __init__(self, data: bytes, fields_of: Mapping[str, int]) -> None:
        self._data = data
        self._fields_of = fields_of
        self._left = ALLOWED + _ALLOWED_EACH * len(data)
        self._named: dict[str, _Skip] = {}

    def make_skip(self, avro: Any) -> _Skip:
        """Return the function that skips a value of this type."""
        match avro:
            case list():
                return self._make_union([self.make_skip(branch) for branch in avro])
            case {"type": "record", "name": name, "fields": fields}:
                skip = self._make_record(
                    self._fields_of.get(name, len(fields)), [self.make_skip(field["type"]) for field in fields]
                )
                return self._named.setdefault(name, skip)
            case {"type": "array", "items": items}:
                return self._make_blocks(self.make_skip(items), _ITEM)
            case {"type": "map", "values": values}:
                text, value = self._skip_text, self.make_skip(values)
                return self._make_blocks(lambda position: value(text(position)), _ENTRY)
            case {"type": "enum", "name": name}:
                return self._named.setdefault(name, self._skip_number)
            case {"type": "fixed", "name": name, "size": size}:
                return self._named.setdefault(name, self._make_wide(size))
        if avro in _WIDTHS:
            return self._make_wide(_WIDTHS[avro])
        simple = {"int": self._skip_number, "long": self._skip_number, "bytes": self._skip_text}
        return simple.get(avro) or (self._skip_text if avro == "string" else self._named[avro])

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"its {len(self._data):,} bytes hold more values than any file of a table")

    def _read_number(self, offset: int) -> tuple[int, int]:
        number = shift = 0
        data = self._data
        while (byte := data[offset]) > 0x7F:
            number |= (byte & 0x7F) << shift
            offset, shift = offset + 1, shift + 7
        number |= byte << shift
        return (number >> 1) ^ -(number & 1), offset + 1

    def _skip_number(self, offset: int) -> int:
        data = self._data
        if data[offset] <= 0x7F:  # Python has such a number once.
            return offset + 1
        self._take(_NUMBER)
        while data[offset] > 0x7F:
            offset += 1
        return offset + 1

    def _skip_text(self, offset: int) -> int:
        length, offset = self._read_number(offset)
        if not 0 <= length <= len(self._data) - offset:
            raise IndexError("a text is longer than the rest of the record")
        self._take(_TEXT + length)
        return offset + length

    def _make_wide(self, size: int) -> _Skip:
        def skip(offset: int) -> int:
            self._take(_NUMBER + size if size else 0)
            return offset + size

        return skip

    def _make_union(self, branches: list[_Skip]) -> _Skip:
        def skip(offset: int) -> int:
            branch, offset = self._read_number(offset)
            if branch < 0:
                raise IndexError("a union has no such branch")
            return branches[branch](offset)

        return skip

    def _make_record(self, fields: int, skips: list[_Skip]) -> _Skip:
        size = estimate_object_bytes(fields)

        def skip(offset: int) -> int:
            self._take(size)
            for skip_field in skips:
                offset = skip_field(offset)
            return offset

        return skip

    def _make_blocks(self, item: _Skip, size: int) -> _Skip:
        def skip(offset: int) -> int:
            count, offset = self._read_number(offset)
            while count:
                if count < 0:
                    _, offset = self._read_number(offset)
                for _ in range(abs(count)):
                    self._take(size)
                    offset = item(offset)
                count, offset = self._read_number(offset)
            return offset

        return skip
