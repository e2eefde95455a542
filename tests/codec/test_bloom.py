from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.bloom import BLOCK_KEYS, DYNAMIC_V0, SIMPLE, BloomFilter, hash_chain
from lakeformat.errors import CorruptTableError, InvalidInputError
from tests.helpers.fixture_tables import names, unpack

FILTER_KEY = b"org.apache.hudi.bloomfilter"
TYPE_KEY = b"hoodie_bloom_filter_type_code"

keys_of_all_lengths = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=70), min_size=1)


def java_byte(value: int) -> int:
    return value - 256 if value > 127 else value


def murmur(key: bytes, seed: int) -> int:
    """Return Hadoop's MurmurHash 2, computed one byte at a time like its Java source."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = seed ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    tail = key[whole:]
    for index, byte in enumerate(tail):
        h = (h ^ java_byte(byte) << 8 * (len(tail) - 1 - index)) & mask
    if tail:
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def chain_of(key: str, rounds: int) -> list[int]:
    seed, chain = 0, []
    for _ in range(rounds):
        seed = murmur(key.encode(), seed)
        chain.append(abs(seed - 2**32 if seed >= 2**31 else seed))
    return chain


@given(keys_of_all_lengths, st.sampled_from([pa.string(), pa.large_string()]))
def test_the_chain_is_hadoops(keys: list[str], type_: pa.DataType) -> None:
    assert hash_chain(pa.array(keys, type_), 3).T.tolist() == [chain_of(key, 3) for key in keys]


@given(keys_of_all_lengths, st.integers(0, 5), st.integers(0, 5))
def test_slices_and_chunks_make_no_difference(keys: list[str], first: int, second: int) -> None:
    whole = hash_chain(pa.array(keys), 2)
    assert np.array_equal(hash_chain(pa.array(keys).slice(first), 2), whole[:, first:])
    column = pa.chunked_array([pa.array(keys).slice(first), pa.array(keys)])
    both = np.concatenate([whole[:, first:], whole], axis=1)
    assert np.array_equal(hash_chain(column.slice(second), 2), both[:, second:])


@given(keys_of_all_lengths)
def test_hashing_leaves_the_keys_alone(keys: list[str]) -> None:
    column = pa.array([*keys, "four"][-2:])
    hash_chain(column, 2)
    hash_chain(column.slice(1), 2)
    assert column.to_pylist() == [*keys, "four"][-2:]


@pytest.mark.parametrize("template", ["{:08d}", "{}"], ids=["equal lengths", "unequal lengths"])
def test_keys_of_several_blocks(template: str) -> None:
    keys = [template.format(number) for number in range(2 * BLOCK_KEYS + 100)]
    chain = hash_chain(pa.array(keys), 2)
    probes = [0, BLOCK_KEYS - 1, BLOCK_KEYS, len(keys) - 1]
    assert chain[:, probes].T.tolist() == [chain_of(keys[probe], 2) for probe in probes]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (pa.array(["a", "", "b"]), "empty record key at row 1"),
        (pa.chunked_array([["a"], ["bb", ""]]), "empty record key at row 2"),
        (pa.array(["a", None]), "null record key"),
        (pa.array([1]), "must be strings, not int64"),
    ],
)
def test_invalid_keys_are_refused_and_not_added(keys: pa.Array, reason: str) -> None:
    empty = BloomFilter.with_capacity(10, 0.01)
    before = empty.encode()
    with pytest.raises(ValueError, match=reason):
        empty.add(keys)
    assert empty.encode() == before


def footers(collection: str, into: Path) -> Iterator[tuple[Path, dict[bytes, bytes], pa.ChunkedArray]]:
    for name in names(collection):
        for path in unpack(name, into).rglob("*.parquet"):
            metadata = pq.read_schema(path).metadata or {}
            if FILTER_KEY in metadata:
                yield path, metadata, pq.read_table(path, columns=["_hoodie_record_key"])[0]


@pytest.mark.parametrize("collection", ["hudi_v6", "hudi_v8_v9"])
def test_hudis_own_filters_are_rebuilt_byte_for_byte(collection: str, tmp_path: Path) -> None:
    absent = hash_chain(pa.array([f"absent-{number}" for number in range(2_000)]), 30)
    seen = set()
    for path, metadata, keys in footers(collection, tmp_path):
        text = metadata[FILTER_KEY]
        code = metadata[TYPE_KEY].decode() if TYPE_KEY in metadata else None
        stored = BloomFilter.decode(text, code)
        seen.add(stored.type_code)
        assert stored.encode() == text.decode(), path
        assert stored.might_contain(hash_chain(keys, stored.hashes)).all(), path
        assert not stored.might_contain(absent).any(), path
        rebuilt = BloomFilter(
            bits=stored.bits,
            hashes=stored.hashes,
            rows=[np.zeros_like(stored.rows[0])],
            keys_per_row=stored.keys_per_row,
        )
        if stored.keys_per_row is not None:
            assert stored.free == stored.keys_per_row - len(keys), path
            rebuilt = BloomFilter.with_capacity(stored.keys_per_row, 1e-9)  # Hudi's default rate.
        rebuilt.add(keys)
        assert rebuilt.encode() == text.decode(), path
    assert seen >= ({DYNAMIC_V0, SIMPLE} if collection == "hudi_v6" else {DYNAMIC_V0})


@given(keys_of_all_lengths, st.sampled_from([0.3, 0.01, 1e-9]))
def test_filter_contains_every_added_key(keys: list[str], fpp: float) -> None:
    built = BloomFilter.with_capacity(len(keys), fpp)
    built.add(pa.array(keys[: len(keys) // 2], pa.string()))
    built.add(pa.array(keys[len(keys) // 2 :], pa.string()))
    read = BloomFilter.decode(built.encode(), built.type_code)
    assert (read.free, read.used, read.encode()) == (0, len(keys), built.encode())
    chain = hash_chain(pa.array(keys), built.hashes + 1)
    assert read.might_contain(chain).all()
    assert read.might_contain(chain, np.array([0])).tolist() == [True]


def test_few_keys_at_a_time_set_the_bits_that_all_at_once_set() -> None:
    keys = [f"key-{number}" for number in range(3_000)]
    at_once, in_parts = (BloomFilter.with_capacity(len(keys), 1e-4) for _ in range(2))
    at_once.add(pa.array(keys))
    for start in range(0, len(keys), 100):
        in_parts.add(pa.array(keys[start : start + 100]))
        in_parts.add(pa.array([], pa.string()))
    assert in_parts.encode() == at_once.encode()
    with pytest.raises(InvalidInputError):
        in_parts.add(pa.chunked_array([["new"], [""]]))
    assert in_parts.encode() == at_once.encode()


@pytest.mark.parametrize("make", [BloomFilter.with_capacity, BloomFilter.with_fewer_rounds])
def test_the_promised_rate_is_kept(make: Callable[[int, float], BloomFilter]) -> None:
    built = make(10_000, 0.01)
    built.add(pa.array([f"present-{number}" for number in range(10_000)]))
    hits = built.might_contain(hash_chain(pa.array([f"absent-{n}" for n in range(100_000)]), built.hashes))
    assert 0.005 < hits.mean() < 0.015


@pytest.mark.parametrize("held", [200, 1_000, 3_000])
def test_the_expected_rate_is_the_one_that_is_met(held: int) -> None:
    """The rate holds for filters with fewer keys than announced, with more keys, and with an unknown number of keys."""
    bloom = BloomFilter.with_capacity(1_000, 0.01)
    bloom.add(pa.array([f"k{n}" for n in range(held)]))
    absent = hash_chain(pa.array([f"x{n}" for n in range(20_000)]), bloom.hashes)
    met = bloom.might_contain(absent).mean()
    assert bloom.expected_rate(0) == pytest.approx(met, rel=0.2, abs=2e-4)
    uncounted = BloomFilter(bits=bloom.bits, hashes=bloom.hashes, rows=bloom.rows)
    assert uncounted.expected_rate(held) == pytest.approx(bloom.expected_rate(0))
    twice = BloomFilter(bits=bloom.bits, hashes=bloom.hashes, rows=[bloom.rows[0]] * 2, keys_per_row=held, used=held)
    assert bloom.expected_rate(0) < twice.expected_rate(2 * held) <= 2 * bloom.expected_rate(0)


def test_key_is_present_if_any_row_of_the_filter_has_it() -> None:
    rows = []
    for key in ["first", "second"]:
        one = BloomFilter.with_capacity(1, 1e-6)
        one.add(pa.array([key]))
        rows.append(one.rows[0])
    two = BloomFilter(bits=one.bits, hashes=one.hashes, rows=rows, keys_per_row=1, used=1)
    read = BloomFilter.decode(two.encode(), DYNAMIC_V0)
    chain = hash_chain(pa.array(["second", "neither", "first"]), read.hashes)
    assert len(read.rows) == 2
    assert read.might_contain(chain).tolist() == [True, False, True]
    assert read.might_contain(chain, np.array([1, 0])).tolist() == [False, True]


def test_the_last_row_takes_new_keys_and_counts_them() -> None:
    one = BloomFilter.with_capacity(2, 0.01)
    assert one.free == 2
    one.add(pa.array(["a", "b", "c"]))
    assert (one.free, one.used) == (0, 3)


def test_simple_filter_claims_no_free_capacity() -> None:
    text = base64.b64encode(struct.pack(">iibi", -1, 2, 1, 16) + b"\xff\xff").decode()
    simple = BloomFilter.decode(text, None)
    simple.add(pa.array(["a"]))
    assert (simple.type_code, simple.free, simple.encode()) == (SIMPLE, 0, text)
    assert simple.might_contain(hash_chain(pa.array(["b"]), 2)).all()


@pytest.mark.parametrize(("entries", "bits", "hashes"), [(60_000, 2_587_966, 30), (0, 44, 31)])
def test_filter_sizes_equal_hudis(entries: int, bits: int, hashes: int) -> None:
    sized = BloomFilter.with_capacity(entries, 1e-9)
    assert (sized.bits, sized.hashes) == (bits, hashes)


@pytest.mark.parametrize(("fpp", "hashes"), [(0.3, 2), (0.01, 5), (1e-4, 10), (1e-9, 23)])
def test_fewer_rounds_take_few_more_bits(fpp: float, hashes: int) -> None:
    least, fewer = BloomFilter.with_capacity(60_000, fpp), BloomFilter.with_fewer_rounds(60_000, fpp)
    assert (fewer.hashes, fewer.keys_per_row) == (hashes, 60_000)
    assert least.bits <= fewer.bits <= 1.03 * least.bits


@pytest.mark.parametrize("make", [BloomFilter.with_capacity, BloomFilter.with_fewer_rounds])
@pytest.mark.parametrize(("entries", "fpp"), [(10, 0.0), (10, 1.0), (10**9, 1e-9)])
def test_impossible_filter_sizes_are_refused(
    entries: int, fpp: float, make: Callable[[int, float], BloomFilter]
) -> None:
    with pytest.raises(ValueError, match="rate"):
        make(entries, fpp)


def test_a_chain_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="chain of 1 rounds"):
        BloomFilter.with_capacity(1, 0.01).might_contain(hash_chain(pa.array(["a"]), 1))


ROW = struct.pack(">iibi", -1, 2, 1, 16) + b"\x00\x00"


def dynamic(per_row: int, used: int, rows: int, content: bytes) -> bytes:
    return ROW[:13] + struct.pack(">iii", per_row, used, rows) + content


@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        (b"", None, "0 bytes"),
        (ROW[:-1], SIMPLE, "14 bytes where 15"),
        (ROW + b"\x00", SIMPLE, "16 bytes where 15"),
        (struct.pack(">iibi", 3, 2, 1, 16) + b"\x00\x00", None, "Jenkins"),
        (struct.pack(">iibi", -1, 2, 0, 16) + b"\x00\x00", None, "Jenkins"),
        (struct.pack(">iibi", -2, 2, 1, 16) + b"\x00\x00", None, "version -2"),
        (struct.pack(">iibi", -1, 0, 1, 16) + b"\x00\x00", None, "0 hashes"),
        (struct.pack(">iibi", -1, 2**31 - 1, 1, 16) + b"\x00\x00", None, "hashes"),
        (struct.pack(">iibi", -1, 2, 1, -16), None, "-16 bits"),
        (struct.pack(">iibi", -1, 2, 1, 2**31 - 1), None, "13 bytes where 268435469"),
        (ROW, DYNAMIC_V0, "bytes"),
        (dynamic(0, 0, 1, ROW), DYNAMIC_V0, "rows of 0 keys"),
        (dynamic(1, -1, 1, ROW), DYNAMIC_V0, "-1 in the last"),
        (dynamic(1, 0, 0, b""), DYNAMIC_V0, "0 rows"),
        (dynamic(1, 0, 2**31 - 1, ROW), DYNAMIC_V0, "bytes"),
        (dynamic(1, 0, 2, ROW + ROW[:7] + b"\x05" + ROW[8:]), DYNAMIC_V0, "unequal"),
        (ROW, "DYNAMIC_V1", "unknown type 'DYNAMIC_V1'"),
    ],
)
def test_damaged_filter_is_refused_with_its_reason(content: bytes, code: str | None, reason: str) -> None:
    with pytest.raises(CorruptTableError, match=reason):
        BloomFilter.decode(base64.b64encode(content), code)


@pytest.mark.parametrize("text", ["not base64!", "AAA", "ünicode", b"\xff\xfe"])
def test_filter_text_that_is_not_base64_is_refused(text: str | bytes) -> None:
    with pytest.raises(CorruptTableError, match="base64"):
        BloomFilter.decode(text, None)


@given(st.binary(max_size=80), st.integers(0, 60), st.sampled_from([None, SIMPLE, DYNAMIC_V0]), st.booleans())
def test_any_bytes_decode_or_are_refused(noise: bytes, at: int, code: str | None, whole: bool) -> None:
    sound = base64.b64decode(BloomFilter.with_capacity(4, 0.1).encode())
    content = noise if whole else sound[:at] + noise + sound[at + len(noise) :]
    text = base64.b64encode(content)
    try:
        read = BloomFilter.decode(text, code)
    except CorruptTableError:
        return
    assert read.encode() == text.decode()
