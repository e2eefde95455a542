"""Buckets of record keys, compared with results of Hudi's own ``BucketIdentifier`` and with a loop in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.java import field_list_hashes
from lakeformat.codec.key_fields import FieldRule
from lakeformat.errors import InvalidInputError

#: Key, hash fields, and ``BucketIdentifier.getBucketId(key, fields, 1000003)`` of Hudi 0.15.0 and 1.1.1.
BUCKETS = [
    ("k1", "id", 3397, 3397),
    ("", "id", 31, 31),
    ("a,b", "id", 94710, 94710),
    ("a:b", "id", 1, 95144),
    ("id:5", "id", 84, 226028),
    ("id:5,region:x", "id", 84, 84),
    ("id:5,region:x", "id,region", 2724, 2724),
    ("id:5,region:x", "region,id", 2724, 2724),
    ("id:a,b,region:x", "id,region", 126166, 936124),
    ("id:a:c,region:x", "id,region", 949609, 949609),
    ("id:__null__,region:x", "id,region", 1081, 1081),
    ("id:__empty__,region:x", "id,region", 1081, 1081),
    ("id:a,,region:x", "id,region", 123128, 95662),
    ("ü日\U0001f600", "id", 347845, 347845),
    ("id:1,region:2020-01-01 10:20:30,z:q,w", "id,region,z", 584321, 768089),
    ("id:a,b:c,region:x", "id,region", 4088, 4088),
    ("a,b,", "id", 935118, 935118),
    (",", "id", 75, 75),
    ("x:1,y:2", "id", 1, 429072),
    ("a,b:c", "id", 128, 988177),
]


def hashes(keys: list[str], fields: str, rule: FieldRule) -> list[int]:
    return field_list_hashes(pa.chunked_array([keys], pa.string()), fields.split(","), rule).tolist()


@pytest.mark.parametrize(("key", "fields", "by_0", "by_1"), BUCKETS)
def test_bucket_ids_equal_hudis(key: str, fields: str, by_0: int, by_1: int) -> None:
    for rule, bucket in ((FieldRule.HUDI_0, by_0), (FieldRule.HUDI_1, by_1)):
        for before, behind in ([], []), (["zz:9,id:w"], ["id:7,region:ü", ""]):
            found = hashes([*before, key, *behind], fields, rule)[len(before)]
            assert (found & 0x7FFFFFFF) % 1000003 == bucket


def java_hash(text: str) -> int:
    units = text.encode("utf-16-le")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "little")) % 2**32
    return found


def list_hash(values: list[str]) -> int:
    found = 1
    for value in values:
        found = (31 * found + java_hash(value)) % 2**32
    return found


TEXTS = st.text(st.sampled_from("ab0ü日\uffff\U0001f600 _-"), max_size=12)


@given(st.lists(TEXTS, max_size=40), st.sampled_from(FieldRule))
def test_bucket_of_a_key_of_one_field(keys: list[str], rule: FieldRule) -> None:
    assert hashes(keys, "id", rule) == [list_hash([key]) for key in keys]


@given(st.lists(st.lists(TEXTS.filter(bool), min_size=3, max_size=3), max_size=30), st.sampled_from(FieldRule))
def test_bucket_of_a_key_of_three_fields(rows: list[list[str]], rule: FieldRule) -> None:
    keys = [",".join(f"{name}:{value}" for name, value in zip("ijk", row, strict=True)) for row in rows]
    assert hashes(keys, "i,j,k", rule) == [list_hash(row) for row in rows]
    assert hashes(keys, "k,i", rule) == [list_hash([row[0], row[2]]) for row in rows]


def test_more_keys_than_a_block_in_several_chunks() -> None:
    keys = [f"id:{number},r:{number % 7}" for number in range(40_000)]
    column = pa.chunked_array([keys[:5], keys[5:30_000], [], keys[30_000:]], pa.string())
    found = field_list_hashes(column, ["id", "r"], FieldRule.HUDI_1).tolist()
    assert found == [list_hash([str(number), str(number % 7)]) for number in range(40_000)]


def test_a_null_key_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="null record key"):
        hashes([None], "id", FieldRule.HUDI_1)  # type: ignore[list-item]
