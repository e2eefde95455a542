"""xxHash32 of texts: the published examples, and one text at a time in plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.key_fields import FieldRule
from lakeformat.codec.xxhash import hash_ranges, joined_field_hashes
from lakeformat.errors import InvalidInputError

P1, P2, P3, P4, P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
MASK = 0xFFFF_FFFF


def rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & MASK


def plain_xxhash32(data: bytes) -> int:
    """Return the hash by the specification, byte by byte."""
    first, state = 0, P5
    if len(data) >= 16:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        for at in range(0, len(data) - 15, 16):
            words = [int.from_bytes(data[at + 4 * i : at + 4 * i + 4], "little") for i in range(4)]
            lanes = [
                rotated((lane + word * P2) & MASK, 13) * P1 & MASK for lane, word in zip(lanes, words, strict=True)
            ]
        first = len(data) // 16 * 16
        state = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
    state = (state + len(data)) & MASK
    for at in range(first, len(data) - 3, 4):
        state = rotated((state + int.from_bytes(data[at : at + 4], "little") * P3) & MASK, 17) * P4 & MASK
    for byte in data[len(data) // 4 * 4 :]:
        state = rotated((state + byte * P5) & MASK, 11) * P1 & MASK
    state = (state ^ (state >> 15)) * P2 & MASK
    state = (state ^ (state >> 13)) * P3 & MASK
    return state ^ (state >> 16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0x02CC5D05), ("a", 0x550D7456), ("abc", 0x32D153FF), ("Nobody inspects the spammish repetition", 0xE2293B2F)],
)
def test_published_hashes(text: str, expected: int) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    assert hash_ranges(data, np.array([0]), np.array([len(data)])).tolist() == [expected]
    assert plain_xxhash32(text.encode()) == expected


@given(st.lists(st.text(max_size=70), min_size=1, max_size=30))
def test_column_of_texts_is_hashed_like_each_text(texts: list[str]) -> None:
    keys = pa.chunked_array([pa.array(texts, pa.string())])
    expected = [plain_xxhash32(text.encode()) for text in texts]
    plain = [not {":", ","} & {*text} for text in texts]
    found = joined_field_hashes(keys, ["id"], FieldRule.HUDI_1).tolist()
    assert [hash_ for hash_, is_plain in zip(found, plain, strict=True) if is_plain] == [
        hash_ for hash_, is_plain in zip(expected, plain, strict=True) if is_plain
    ]


@pytest.mark.parametrize(
    ("fields", "texts"),
    [(["a", "b"], ["1x", "22"]), (["b"], ["x", "2"]), (["b", "a"], ["1x", "22"]), (["a"], ["1", "2"])],
)
def test_values_of_fields_are_joined_in_the_order_of_the_key(fields: list[str], texts: list[str]) -> None:
    keys = pa.chunked_array([["a:1,b:x"], ["a:2,b:2"]])
    for rule in FieldRule:
        assert joined_field_hashes(keys, fields, rule).tolist() == [plain_xxhash32(text.encode()) for text in texts]


def test_null_key_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="null record key"):
        joined_field_hashes(pa.chunked_array([pa.array([None], pa.string())]), ["id"], FieldRule.HUDI_1)
