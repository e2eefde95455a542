"""HFiles: Hudi's own, our own, and damaged ones."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.codec.hfile import HFile
from lakeformat.codec.hfile_format import GZIP, HEADER, NONE
from lakeformat.codec.hfile_writer import encode_hfile
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, parse_blocks
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from tests.helpers.fixture_tables import FIXTURES, names

TABLES = names("hudi_metadata")
KEYS = st.text(st.characters(codec="utf-8"), max_size=30)


def hfiles_of(table: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every HFile in a fixture's metadata table: base files and blocks of log files."""
    with zipfile.ZipFile(FIXTURES / f"{table}.zip") as archive:
        for name in archive.namelist():
            if name.endswith(".hfile"):
                yield name, archive.read(name)
            elif ".log." in name and "/metadata/" in name:
                data = archive.read(name)
                for block in parse_blocks(pa.BufferReader(data), name, len(data)):
                    if block.kind is BlockKind.HFILE_DATA:
                        assert block.header[HeaderKey.SCHEMA]
                        yield block.name, data[block.content_offset : block.content_offset + block.content_bytes]


def cells(table: pa.Table) -> dict[str, bytes]:
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def encode(pairs: dict[str, bytes], **settings: int) -> bytes:
    keys, values = pa.array(list(pairs), pa.string()), pa.array(list(pairs.values()), pa.binary())
    return encode_hfile(keys, values, info={"schema": b"{}"}, metas={"bloomFilter": b"text"}, **settings)


@pytest.mark.parametrize("table", TABLES)
def test_hfiles_of_hudi_are_read_and_written_again(table: str) -> None:
    found = list(hfiles_of(table))
    assert len(found) > 20
    for name, data in found:
        file = HFile(data, name)
        everything = file.read()
        assert len(everything) == file.entries
        assert file.info["schema"].startswith(b"{")
        keys = everything["key"].combine_chunks()
        assert [key.encode() for key in keys.to_pylist()] == sorted(key.encode() for key in keys.to_pylist())
        assert cells(file.look_up(keys)) == cells(everything)
        again = encode_hfile(keys, everything["value"].combine_chunks(), info=file.info, block_bytes=300)
        assert HFile(again, name).read().combine_chunks() == everything.combine_chunks()
        assert HFile(again, name).info == file.info


@pytest.mark.parametrize("table", TABLES)
def test_base_files_of_hudi_have_a_bloom_filter_and_their_key_range(table: str) -> None:
    for name, data in hfiles_of(table):
        if name.endswith(".hfile"):
            file = HFile(data, name)
            keys = file.read()["key"].to_pylist()
            assert file.meta_block("bloomFilter")
            assert file.meta_block("other") is None
            assert file.info["minRecordKey"].decode() == (keys[0] if keys else "")
            assert file.info["maxRecordKey"].decode() == (keys[-1] if keys else "")


@settings(deadline=None)
@given(
    st.dictionaries(KEYS, st.binary(max_size=60), max_size=40),
    st.lists(KEYS, max_size=10),
    st.sampled_from([GZIP, NONE]),
    st.sampled_from([1, 60, 300, 1 << 20]),
)
def test_written_file_gives_its_cells_sorted_by_the_bytes_of_utf_8(
    pairs: dict[str, bytes], others: list[str], compression: int, block_bytes: int
) -> None:
    file = HFile(encode(pairs, compression=compression, block_bytes=block_bytes), "file")
    table = file.read()
    assert cells(table) == pairs
    assert table["key"].to_pylist() == sorted(pairs, key=str.encode)
    assert file.info["schema"] == b"{}"
    assert file.meta_block("bloomFilter") == b"text"
    wanted = [*others, None, *list(pairs)[::2]]
    assert cells(file.look_up(pa.array(wanted, pa.string()))) == {key: pairs[key] for key in wanted if key in pairs}
    for text in ["", *others, *(key[:1] for key in pairs)]:
        assert cells(file.prefix(text)) == {key: value for key, value in pairs.items() if key.startswith(text)}


def test_look_up_reads_only_the_blocks_that_may_hold_a_key() -> None:
    class Reads(BytesIO):
        def read_buffer(self) -> None:
            raise AssertionError("not used")

        def size(self) -> int:
            return len(self.getvalue())

        def read(self, size: int | None = -1) -> bytes:
            offsets.append(self.tell())
            return super().read(size)

    offsets: list[int] = []
    pairs = {f"key {number:04}": b"value" * 9 for number in range(1000)}
    file = HFile(Reads(encode(pairs, block_bytes=1000)), "file")
    assert file.blocks > 50
    offsets.clear()
    assert cells(file.look_up(pa.array(["key 0500", "key 0501", "none", "a", "key 0500b"]))) == {
        "key 0500": b"value" * 9,
        "key 0501": b"value" * 9,
    }
    assert len(offsets) <= 8
    offsets.clear()
    assert len(file.prefix("key 00")) == 100
    assert len(offsets) < 20


def test_key_that_occurs_twice_or_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        encode_hfile(pa.array(["a", "a"]), pa.array([b"", b""]), info={})
    with pytest.raises(ValueError, match="32767"):
        encode({"k" * 32768: b""})
    longest = "ü" * 16383
    assert cells(HFile(encode({longest: b"x"}), "file").look_up(pa.array([longest]))) == {longest: b"x"}


# --- several index levels -------------------------------------------------------------------------


def block(magic: bytes, content: bytes) -> bytes:
    header = struct.pack(">8siiqBii", magic, len(content) + 4, len(content), -1, 0, 16384, len(content) + 33)
    return header + content + bytes(4)


def index_block(magic: bytes, places: list[tuple[bytes, int, int]]) -> bytes:
    """Return a leaf or intermediate index block, with full keys as HBase writes them."""
    entries = [
        struct.pack(">qih", offset, size, len(key)) + key + b"\0" + struct.pack(">QB", 1, 4)
        for key, offset, size in places
    ]
    ends = np.cumsum([0, *map(len, entries)])
    return block(magic, struct.pack(f">{len(ends) + 1}i", len(entries), *ends) + b"".join(entries))


def with_levels(pairs: dict[str, bytes], levels: int) -> bytes:
    """Return an HFile without compression, in which each index block has up to three entries."""
    one = encode(pairs, compression=NONE, block_bytes=64)
    source = HFile(one, "one level")
    places = [(place.key, place.offset, place.size) for place in source._index]
    data = bytearray(one[: max(offset + size for _, offset, size in places)])
    for level in range(1, levels):
        above = []
        for start in range(0, len(places), 3):
            some = index_block(b"IDXLEAF2" if level == 1 else b"IDXINTE2", places[start : start + 3])
            above.append((places[start][0], len(data), len(some)))
            data += some
        places = above
    opened = len(data)
    root = [
        struct.pack(">qi", offset, size) + bytes([len(key) + 2]) + struct.pack(">h", len(key)) + key
        for key, offset, size in places
    ]
    data += block(b"IDXROOT2", b"".join(root)) + block(b"IDXROOT2", b"")
    info = len(data)
    data += block(b"FILEINF2", b"PBUF\x1b" + b"\x0a\x19\x0a\x11KEY_VALUE_VERSION\x12\x04\0\0\0\x01")
    message = b""
    for field, number in ((1, info), (2, opened), (5, len(places)), (6, 0), (7, len(pairs)), (8, levels), (12, NONE)):
        message += (
            bytes([field << 3]) + struct.pack("<BBBB", *(0x80 | number >> at & 0x7F for at in (0, 7, 14, 21))) + b"\0"
        )
    head = b'TRABLK"$' + bytes([len(message)]) + message
    return bytes(data + head.ljust(4092, b"\0") + b"\0\0\0\x03")


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_index_of_several_levels_finds_every_key(levels: int) -> None:
    pairs = {f"k{number:03}": b"v%d" % number for number in range(0, 200, 2)}
    file = HFile(with_levels(pairs, levels), "file")
    assert file.blocks > 20
    assert cells(file.read()) == pairs
    for number in range(200):
        key = f"k{number:03}"
        assert cells(file.look_up(pa.array([key]))) == ({key: pairs[key]} if key in pairs else {})
    assert cells(file.prefix("k01")) == {key: value for key, value in pairs.items() if key.startswith("k01")}


def test_a_look_up_goes_through_many_blocks_at_once() -> None:
    pairs = {f"{number:06}" + "x" * (number % 5): b"v" * (number % 7) + b"%d" % number for number in range(0, 6000, 2)}
    keys, values = pa.array(pairs, pa.string()), pa.array(pairs.values(), pa.binary())
    file = HFile(encode_hfile(keys, values, info={}, block_bytes=400), "file")
    assert file.blocks > 200
    absent = pa.array([f"{number:06}" for number in range(1, 6000, 2)])
    assert cells(file.look_up(pa.concat_arrays([keys.take(pa.array(range(0, 3000, 3))), absent]))) == {
        key: pairs[key] for key in list(pairs)[::3]
    }
    raw = bytearray(encode_hfile(keys, values, info={}, block_bytes=400, compression=NONE))
    block = raw.index(b"DATABLK*", len(raw) // 4)
    raw[block + HEADER.size + 7] += 1  # The length of the block's first value.
    with pytest.raises(CorruptTableError, match="is not a whole HFile"):
        HFile(bytes(raw), "file").look_up(keys)


# --- damage ---------------------------------------------------------------------------------------

SMALL = {"a": b"one", "ß": b"two", "水": b"three", "z" * 40: b"four" * 30}


def read_all(data: bytes) -> tuple[dict[str, bytes], dict[str, bytes]]:
    file = HFile(data, "table/.hoodie/metadata/files/f.hfile")
    everything = cells(file.read())
    return everything, cells(file.look_up(pa.array(list(SMALL)))) | cells(file.prefix("z"))


def read_or_refuse(data: bytes) -> tuple[dict[str, bytes], dict[str, bytes]] | None:
    """Return what the file holds; None if it is refused by an error that names it."""
    try:
        return read_all(data)
    except (CorruptTableError, UnsupportedTableError) as error:
        if "f.hfile" not in str(error):
            raise
        return None


@pytest.mark.parametrize("compression", [GZIP, NONE])
def test_file_that_is_cut_off_anywhere_is_refused_by_name(compression: int) -> None:
    data = encode(SMALL, compression=compression, block_bytes=40)
    for size in range(len(data)):
        with pytest.raises(CorruptTableError, match=r"^table/.hoodie/metadata/files/f\.hfile is not a whole HFile: "):
            read_all(data[:size])


def test_flipped_bit_gives_the_true_values_or_one_error() -> None:
    data = encode(SMALL, block_bytes=40)
    used = [at for at in range(len(data)) if at < len(data) - 4096 + 200 or at >= len(data) - 4]
    for at in used:
        for bit in (at % 8, (at + 5) % 8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert read_or_refuse(bytes(damaged)) in (None, (SMALL, SMALL))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_damage_of_an_uncompressed_file_gives_at_most_one_kind_of_error(data: st.DataObject) -> None:
    damaged = bytearray(encode(SMALL, compression=NONE, block_bytes=40))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 3800))
        damaged[at] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(damaged))


def test_unknown_compression_and_several_versions_are_refused() -> None:
    data = bytearray(encode(SMALL))
    at = data.rindex(b"\x60\x01")
    data[at + 1] = 3
    with pytest.raises(UnsupportedTableError, match="compression 3"):
        read_all(bytes(data))
    keys = pa.array(["a"])
    several = encode_hfile(keys, pa.array([b""]), info={"MAX_MEMSTORE_TS_KEY": struct.pack(">q", 5)})
    with pytest.raises(UnsupportedTableError, match="several versions"):
        HFile(several, "f.hfile")
