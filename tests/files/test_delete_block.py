"""Delete blocks as columns: keys, and ordering values in every wrapper of Hudi."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.log_reader import read_parts
from lakeformat.merge.versions import LogDeletes
from tests.helpers.log_blocks import DELETE, INSTANT_TIME, block, delete_content, store_logs

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)


def read(content: bytes) -> LogDeletes:
    storage, logs = store_logs(block(DELETE, {INSTANT_TIME: "1"}, content))
    (part,) = read_parts(storage, logs, is_committed=lambda _: True)
    assert isinstance(part, LogDeletes)
    return part


def ordering(*values: tuple[str | None, Any]) -> list[list[Any]]:
    found = read(delete_content([(f"k{at}", *value) for at, value in enumerate(values)]))
    assert found.keys.to_pylist() == [f"k{at}" for at in range(len(values))]
    return [column.to_pylist() for column in found.ordering]


@pytest.mark.parametrize(
    ("name", "value", "read_as"),
    [
        ("BooleanWrapper", True, True),
        ("IntWrapper", -7, -7),
        ("LongWrapper", 0, 0),  # Only the int 0 deletes any version.
        ("LongWrapper", 2**62, 2**62),
        ("FloatWrapper", 0.5, 0.5),
        ("DoubleWrapper", 1e300, 1e300),
        ("BytesWrapper", b"\0x", b"\0x"),
        ("StringWrapper", "später", "später"),
        ("DateWrapper", 20_000, date(2024, 10, 4)),
        ("DecimalWrapper", Decimal("-12.5"), Decimal("-12.5")),
        ("TimeMicrosWrapper", time(1, 2, 3, 4), time(1, 2, 3, 4)),
        ("TimestampMicrosWrapper", MOMENT, MOMENT),
    ],
)
def test_ordering_value_of_every_wrapper_is_read(name: str, value: Any, read_as: Any) -> None:
    given_ = [(name, value), ("IntWrapper", 0), (None, None), (name, value)]
    assert ordering(*given_) == [[read_as, None, None, read_as]]


@pytest.mark.parametrize("values", [[], [("IntWrapper", 0)], [(None, None), ("IntWrapper", 0)]])
def test_deletes_without_ordering_values_have_no_column(values: list[tuple[str | None, Any]]) -> None:
    assert ordering(*values) == []


def test_delete_block_with_several_ordering_fields_is_read() -> None:
    one = [("LongWrapper", 5), ("StringWrapper", "x")]
    other = [("LongWrapper", 6), (None, None)]
    zeros = [("IntWrapper", 0), ("StringWrapper", "")]
    values = [("ArrayWrapper", one), ("IntWrapper", 0), ("ArrayWrapper", other), ("ArrayWrapper", zeros)]
    assert ordering(*values) == [[5, None, 6, 0], ["x", None, None, ""]]
    assert ordering(("ArrayWrapper", [(None, None)] * 2)) == [[None], [None]]
    day = date(2024, 10, 4)
    assert ordering(("ArrayWrapper", [("LocalDateWrapper", day), ("DateWrapper", 20_000)])) == [[day], [day]]


def test_ordering_values_of_several_number_types_share_the_widest() -> None:
    assert ordering(("IntWrapper", 1), ("LongWrapper", 2**40), ("IntWrapper", 0)) == [[1, 2**40, None]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([("LongWrapper", 1), ("StringWrapper", "x")], "cannot be compared"),
        ([("LongWrapper", 1), ("ArrayWrapper", [("LongWrapper", 1)])], "of one and of several fields"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(values: list[tuple[str, Any]], message: str) -> None:
    with pytest.raises(UnsupportedTableError, match=message):
        ordering(*values)


def test_lists_of_different_lengths_are_damage() -> None:
    with pytest.raises(CorruptTableError, match="different lengths"):
        ordering(("ArrayWrapper", [("LongWrapper", 1)]), ("ArrayWrapper", [("LongWrapper", 1)] * 2))


@pytest.mark.parametrize(
    "content",
    [
        "0202" + "fe" + "ff" * 8 + "01",  # A key whose length is too large.
        "020202610000" + "1c",  # An ordering value of a fifteenth type.
        "020202610000" + "03",  # A type with a negative index.
        "0200000000",  # A null key.
        "feffffff0f",  # More deletes than there are bytes.
        "020202610200" + "1a04",  # A list of ordering values with an unknown union index.
    ],
)
def test_contents_that_are_no_deletes_are_refused(content: str) -> None:
    raw = bytes.fromhex(content)
    with pytest.raises(CorruptTableError, match=r"f-0.* cannot be read"):
        read(b"\0\0\0\x03" + len(raw).to_bytes(4, "big") + raw)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=("Cs",)), max_size=80), st.integers(-(2**63), 2**63 - 1))
    )
)
def test_any_keys_and_long_values_are_read(deletes: list[tuple[str, int]]) -> None:
    found = read(delete_content([(key, "LongWrapper", value) for key, value in deletes]))
    assert found.keys.to_pylist() == [key for key, _ in deletes]
    assert [column.to_pylist() for column in found.ordering] == ([[value for _, value in deletes]] if deletes else [])


#: Runs of deletes: keys of equal or different lengths, values of equal or different sizes.
RUNS = st.lists(
    st.tuples(
        st.sampled_from(["key-{:04d}", "k{}", "schlüssel-{:03d}", "{:0200d}"]),
        st.sampled_from([("LongWrapper", 70), ("LongWrapper", 7), ("LongWrapper", 2**40), ("IntWrapper", 0)]),
        st.integers(1, 400),
    ),
    max_size=5,
)


@settings(max_examples=60)
@given(RUNS)
def test_runs_of_equal_layout_are_decoded_together(runs: list[tuple[str, tuple[str, int], int]]) -> None:
    keys = [form.format(at) for form, _, count in runs for at in range(count)]
    values = [(name, value + at % 3 if value else 0) for _, (name, value), count in runs for at in range(count)]
    found = read(delete_content([(key, *value) for key, value in zip(keys, values, strict=True)]))
    assert found.keys.to_pylist() == keys
    expected = [value or None for _, value in values]
    assert [column.to_pylist() for column in found.ordering] == ([expected] if any(expected) else [])


@settings(max_examples=200)
@given(st.data())
def test_damaged_deletes_are_read_or_refused(data: st.DataObject) -> None:
    inside = ("ArrayWrapper", [("LongWrapper", 5), ("StringWrapper", "x")])
    alike = [("k", "LongWrapper", at) for at in range(20)]
    content = bytearray(delete_content([("a", *inside), ("b", "IntWrapper", 0), ("c", *inside), *alike]))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content))
    except (CorruptTableError, UnsupportedTableError):
        return
    for column in (found.keys, *found.ordering):
        column.validate(full=True)
        assert len(column) == len(found.keys)
