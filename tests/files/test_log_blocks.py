"""Blocks are found among the remains of failed writes, and blocks of unknown content are refused by name."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.log_blocks import parse_blocks
from lakeformat.errors import CorruptTableError, LakeformatError, UnsupportedTableError
from lakeformat.files.log_reader import decode_blocks, read_blocks, read_parts
from lakeformat.merge.versions import LogPart, LogRows
from lakeformat.storage import MemoryStorage
from tests.helpers.log_blocks import (
    AVRO,
    DELETE,
    INSTANT_TIME,
    ROWS,
    SCHEMA,
    block,
    delete_content,
    fixture_logs,
    rows_block,
    store_logs,
)

MAGIC = b"#HUDI#"
ONE = rows_block("1", {"a": 1, "b": None})
TWO = block(DELETE, {INSTANT_TIME: "2", SCHEMA: ROWS}, delete_content([("a", "IntWrapper", 0)]))
THREE = rows_block("3", {"c": 3})


def instants(data: bytes) -> list[str]:
    source = pa.BufferReader(data)
    return [one.instant_time for one in parse_blocks(source, "f", len(data))]


def contents_of(parts: Any) -> list[tuple[str, Any]]:
    def of(part: LogPart) -> Any:
        return part.rows.to_pylist() if isinstance(part, LogRows) else part.keys.to_pylist()

    return [(part.instant_time, of(part)) for part in parts]


HALF = THREE[: len(THREE) // 2]
MANY = b"".join(rows_block(str(time), {"k": time}) for time in range(10, 20))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"#HUD", []),
        (MAGIC, []),
        (ONE + TWO, ["1", "2"]),
        (ONE + HALF, ["1"]),
        (HALF + ONE, ["1"]),
        (ONE + HALF + TWO + HALF, ["1", "2"]),
        (MAGIC + ONE, ["1"]),
        (MAGIC + MAGIC + struct.pack(">q", -5) + ONE, ["1"]),
        (MAGIC + struct.pack(">q", 1 << 62) + ONE, ["1"]),
        (MAGIC * 50_000 + ONE, ["1"]),
        (b"\0" * (3 << 20) + ONE, ["1"]),
        (b"rubbish" + ONE, ["1"]),
        (ONE + b"tail", ["1"]),
        (ONE + b"rubbish" + TWO, ["2"]),  # Bytes after a block make it incomplete, as in Hudi.
        (ONE + MAGIC[:5] + TWO, ["1", "2"]),  # A magic within a magic.
        (ONE[:-1] + bytes([ONE[-1] ^ 1]) + TWO, ["2"]),  # The two sizes differ.
        (rows_block("1", {"#HUDI#": 1}) + TWO, ["1", "2"]),  # A magic within a block does not begin a block.
        (rows_block("1", {"#HUDI#": 1})[:-1] + TWO, ["2"]),
        (MANY, [str(time) for time in range(10, 20)]),
    ],
)
def test_whole_blocks_are_found(data: bytes, found: list[str]) -> None:
    assert instants(data) == found


def test_torn_file_yields_its_whole_blocks() -> None:
    data = ONE + TWO + THREE
    storage, logs = store_logs(data)
    whole = contents_of(read_parts(storage, logs, is_committed=lambda _: True))
    ends = [0, len(ONE), len(ONE + TWO)]
    for size in range(len(data)):
        kept = sum(size >= end for end in ends) - 1
        torn, torn_logs = store_logs(data[:size])
        assert contents_of(read_parts(torn, torn_logs, is_committed=lambda _: True)) == whole[:kept]
        again, again_logs = store_logs(data[:size] + data)
        found = contents_of(read_parts(again, again_logs, is_committed=lambda _: True))
        # Fewer bytes than a magic follow a block: see "rubbish" above.
        lost = kept > 0 and size - ends[kept] in range(1, 5)
        assert found == [*whole[: kept - lost], *whole]


@given(st.integers(0, len(ONE + TWO + THREE) - 1), st.integers(0, 255))
def test_a_garbled_file_is_read_or_refused_by_an_error_of_ours(at: int, byte: int) -> None:
    data = bytearray(ONE + TWO + THREE)
    data[at] = byte
    storage, logs = store_logs(bytes(data))
    found: list[LogPart] = []
    with suppress(LakeformatError):
        found = [*read_parts(storage, logs, is_committed=lambda _: True)]
    for part in found:
        for column in part.rows.columns if isinstance(part, LogRows) else [part.keys, *part.ordering]:
            column.validate(full=True)
    assert len(found) <= 3


def test_garbled_files_of_hudis_are_read_or_refused_by_an_error_of_ours() -> None:
    rng = random.Random(14)
    refused = 0
    for _, log, data in fixture_logs():
        for _ in range(4):
            garbled = bytearray(data)
            garbled[rng.randrange(len(data))] = rng.randrange(256)
            storage = MemoryStorage()
            storage.create(log.path, bytes(garbled))
            try:
                for part in read_parts(storage, [log], is_committed=lambda _: True):
                    if isinstance(part, LogRows):
                        part.rows.validate(full=True)
            except LakeformatError:
                refused += 1
    assert refused


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (block(AVRO, {INSTANT_TIME: "1"}, version=2), UnsupportedTableError, "log format version 2"),
        (block(AVRO, {INSTANT_TIME: "1"}, version=0), UnsupportedTableError, "log format version 0"),
        (block(7, {INSTANT_TIME: "1"}), UnsupportedTableError, "unknown kind 7"),
        (block(AVRO, {INSTANT_TIME: "1", 9: "x"}), UnsupportedTableError, "unknown header key 9"),
        (block(AVRO, {INSTANT_TIME: "1"}, footer=struct.pack(">i", 5)), CorruptTableError, "do not fit its size"),
        (block(AVRO, {INSTANT_TIME: "1"}, footer=b"\0" * 5), CorruptTableError, "do not fit its size"),
        (block(AVRO, {INSTANT_TIME: "1"}), CorruptTableError, "cannot be read"),
        (block(AVRO, {INSTANT_TIME: "1"}, struct.pack(">ii", 3, 0)), CorruptTableError, "has no SCHEMA"),
        (block(AVRO, {INSTANT_TIME: "1", SCHEMA: "{"}, struct.pack(">ii", 3, 0)), CorruptTableError, "is not JSON"),
        (block(AVRO, {INSTANT_TIME: "1", SCHEMA: ROWS}, struct.pack(">ii", 2, 0)), UnsupportedTableError, "version 2"),
        (block(AVRO, {INSTANT_TIME: "1", SCHEMA: ROWS}, struct.pack(">ii", 3, 1 << 30)), CorruptTableError, "records"),
        (block(AVRO, {INSTANT_TIME: "1", SCHEMA: ROWS}, struct.pack(">iii", 3, 1, -9)), CorruptTableError, "negative"),
        (block(AVRO, {INSTANT_TIME: "1", SCHEMA: ROWS}, struct.pack(">iii", 3, 1, 99)), CorruptTableError, "byte 111"),
        (block(DELETE, {INSTANT_TIME: "1"}, struct.pack(">ii", 2, 0)), UnsupportedTableError, "deletes of version 2"),
        (block(DELETE, {INSTANT_TIME: "1"}, struct.pack(">ii", 3, 99)), CorruptTableError, "not 99"),
        (block(DELETE, {INSTANT_TIME: "1"}, b"\0"), CorruptTableError, "cannot be read"),
        (block(5, {INSTANT_TIME: "1", SCHEMA: ROWS}, b"PAR1"), CorruptTableError, "cannot be read"),
    ],
)  # fmt: skip
def test_unsupported_block_is_refused_by_file_and_offset(data: bytes, error: type[Exception], message: str) -> None:
    storage, logs = store_logs(ONE + data)
    with pytest.raises(error, match=message) as raised:
        [*read_parts(storage, logs, is_committed=lambda _: True)]
    assert f"{logs[0].path} (block at byte {len(ONE)})" in str(raised.value)


def test_metadata_tables_of_hudi_are_refused_by_their_hfiles() -> None:
    hfile = block(4, {INSTANT_TIME: "1", SCHEMA: ROWS}, b"HFILE")
    storage, logs = store_logs(hfile)
    with pytest.raises(UnsupportedTableError, match="is an HFile"):
        [*read_parts(storage, logs, is_committed=lambda _: True)]


def test_partial_update_block_is_marked() -> None:
    storage, logs = store_logs(rows_block("1", {"a": 1}, IS_PARTIAL="true") + ONE)
    parts = [*read_parts(storage, logs, is_committed=lambda _: True)]
    assert [part.is_partial for part in parts if isinstance(part, LogRows)] == [True, False]


def test_header_longer_than_a_read_is_read_whole() -> None:
    schema = ROWS.replace('"name":"r"', f'"name":"r","doc":"{"x" * 300_000}"')
    long = block(AVRO, {INSTANT_TIME: "3", SCHEMA: schema}, struct.pack(">ii", 3, 0))
    assert instants(ONE + long + TWO + long) == ["1", "3", "2", "3"]


def test_bytes_beyond_the_listed_size_are_ignored() -> None:
    storage, (log,) = store_logs(ONE)
    storage.replace(log.path, ONE + THREE)
    assert [one.instant_time for one in read_blocks(storage, log)] == ["1"]


def test_file_changed_after_planning_is_noticed() -> None:
    storage, (log,) = store_logs(ONE)
    blocks = read_blocks(storage, log)
    storage.replace(log.path, ONE[:-40])
    with pytest.raises(CorruptTableError, match="ended while it was read"):
        [*decode_blocks(storage, blocks)]
    storage.delete(log.path)
    with pytest.raises(CorruptTableError, match="is missing"):
        [*decode_blocks(storage, blocks)]
