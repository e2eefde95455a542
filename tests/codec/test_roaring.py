"""Row numbers in log blocks: Hudi's own texts, every kind of container, and damage."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.codec.log_blocks import decode_positions, encode_positions

#: From a log block that Hudi 1.1.1 wrote for these rows of its base file.
HUDIS = "0100000000000000000000003a3000000100000000000700100000000000" + "020006000800" + "0d001a001c001d00"


def decode_rows(text: str) -> list[int] | None:
    found = decode_positions(text)
    return None if found is None else found.rows.tolist()


def test_bitmap_of_hudi_is_read_and_written_byte_for_byte() -> None:
    rows = [0, 2, 6, 8, 13, 26, 28, 29]
    assert decode_rows(base64.b64encode(bytes.fromhex(HUDIS)).decode()) == rows
    assert base64.b64decode(encode_positions(np.array(rows))).hex() == HUDIS


@settings(max_examples=60)
@given(st.sets(st.integers(0, 2**31 - 1), max_size=30), st.integers(0, 200_000), st.integers(0, 9_000), st.booleans())
def test_any_positions_round_trip(some: set[int], start: int, count: int, by_lakeformat: bool) -> None:
    rows = sorted(some | set(range(start, start + 3 * count, 3)))
    found = decode_positions(encode_positions(np.array(rows, np.int64), by_lakeformat=by_lakeformat))
    assert found is not None
    assert found.rows.tolist() == rows
    assert found.by_lakeformat == by_lakeformat


@pytest.mark.parametrize("containers", [1, 3, 4, 9])
def test_run_containers_of_the_specification_are_read(containers: int) -> None:
    """Every second container has runs. As the specification says, the offsets of containers exist only from four on."""
    flags = np.packbits(np.arange(containers) % 2 == 0, bitorder="little").tobytes()
    table, contents, rows = b"", [], []
    for at in range(containers):
        here = [5, 6, 7, 100, 65_535] if at % 2 == 0 else [1, 9]
        table += struct.pack("<HH", at, len(here) - 1)
        runs = struct.pack("<H6H", 3, 5, 2, 100, 0, 65_535, 0)
        contents.append(runs if at % 2 == 0 else struct.pack("<2H", *here))
        rows += [65_536 * at + row for row in here]
    places = b"\0" * (4 * containers) if containers >= 4 else b""
    bitmap = struct.pack("<HH", 12347, containers - 1) + flags + table + places + b"".join(contents)
    assert decode_rows(base64.b64encode(struct.pack("<QI", 1, 0) + bitmap).decode()) == rows


@settings(max_examples=150)
@given(st.data())
def test_damaged_bitmap_is_refused_or_decoded(data: st.DataObject) -> None:
    raw = bytearray(base64.b64decode(encode_positions(np.array([1, 5, 70_000]), by_lakeformat=True)))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for text in (base64.b64encode(raw).decode(), base64.b64encode(raw[:cut]).decode(), "no base64"):
        found = decode_positions(text)
        assert found is None or (np.diff(found.rows) > 0).all()
