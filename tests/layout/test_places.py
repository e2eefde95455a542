"""Ranks, coordinates and positions by examples, and cuts of files compared with the rule word by word."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.layout import CurveBuild, CurveStrategy, cell_ends, cut_places, fit_curve
from lakeformat.layout.curve import SLACK
from lakeformat.layout.ranks import (
    MAXIMUM_BOUNDARIES,
    Cells,
    Words,
    fit_boundaries,
    fit_ranks,
    leaf_column,
    leaf_type,
    words_of,
)

LINEAR, Z_ORDER, HILBERT = CurveStrategy
SIGN = 1 << 63


def words(values: list[Any], kind: pa.DataType) -> Words:
    return Words(pa.array(values, kind))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.bool_(), [False, True], [0, 1]),
        (pa.int8(), [-1, 0, 5], [SIGN - 1, SIGN, SIGN + 5]),
        (pa.int16(), [-300], [SIGN - 300]),
        (pa.int32(), [7], [SIGN + 7]),
        (pa.int64(), [-(1 << 63), (1 << 63) - 1], [0, (1 << 64) - 1]),
        (pa.uint8(), [200], [200]),
        (pa.uint64(), [(1 << 64) - 1], [(1 << 64) - 1]),
        (pa.date32(), [3], [SIGN + 3]),
        (pa.time64("us"), [3], [SIGN + 3]),
        (pa.timestamp("ns"), [-3], [SIGN - 3]),
        (pa.decimal32(9, 2), [Decimal("-1.23"), Decimal("1.23")], [SIGN - 123, SIGN + 123]),
        (pa.decimal64(18, 0), [Decimal(-(10**17)), Decimal(10**17)], [SIGN - 10**17, SIGN + 10**17]),
        (pa.decimal128(9, 2), [Decimal("-1.23")], [SIGN - 123]),
        (pa.decimal128(18, 0), [Decimal(10**17)], [SIGN + 10**17]),
        (pa.float64(), [0.0, -0.0, 1.0], [SIGN, SIGN, SIGN + 0x3FF0000000000000]),
        (pa.float32(), [0.5], [SIGN + 0x3FE0000000000000]),
        (pa.float16(), [np.float16(0.5)], [SIGN + 0x3FE0000000000000]),
        (pa.float64(), [-1.0], [0x400FFFFFFFFFFFFF]),
        (pa.null(), [None, None], [0, 0]),
    ],
)
def test_numbers_are_one_word_in_their_order(kind: pa.DataType, values: list[Any], expected: list[int]) -> None:
    found = words(values, kind)
    assert (found.count, found.cut, len(found)) == (1, False, len(values))
    assert found.word(0).tolist() == expected
    assert found.word(0, np.array([0])).tolist() == found.word(0).tolist()[:1]
    assert found.complete(np.arange(len(values))).all()
    shifted = Words(pa.concat_arrays([pa.nulls(3, kind), pa.array(values, kind)]).slice(3))
    assert shifted.word(0).tolist() == found.word(0).tolist()


@pytest.mark.parametrize(
    ("kind", "count"), [(pa.decimal128(38, 0), 2), (pa.decimal128(25, 0), 2), (pa.decimal256(60, 0), 4)]
)
def test_wide_decimals_are_words_of_64_bits(kind: pa.DataType, count: int) -> None:
    numbers = [-1, 0, 5, (1 << 64) + 7, -(1 << 70)]
    found = words([Decimal(each) for each in numbers], kind)
    assert found.count == count
    whole = [((each + (1 << 64 * count - 1)) % (1 << 64 * count)) for each in numbers]
    for at in range(count):
        expected = [each >> 64 * (count - 1 - at) & (1 << 64) - 1 for each in whole]
        assert found.word(at).tolist() == expected
        assert found.word(at, np.array([4, 1])).tolist() == [expected[4], expected[1]]


def test_texts_that_differ_late_have_ranks_of_their_own() -> None:
    column = pa.array(["12345678a", "12345678b", "12345678b", "x"])
    assert fit_ranks(column, 3).of(Words(column)).tolist() == [1, 4, 4, 7]  # The middles of 1, 2 and 1 of 4 rows.


def test_empty_texts_have_empty_words() -> None:
    assert [Words(pa.array(["", ""])).word(at).tolist() for at in (0, 8)] == [[0, 0], [0, 0]]


@pytest.mark.parametrize("bit", [0, 1, 7, 31, 32, 33, 40, 63])
def test_end_of_a_cell_has_all_lower_bits(bit: int) -> None:
    places = np.array([0, 1 << bit], np.uint64)
    assert cell_ends(places, np.array([1])).tolist() == [(1 << bit) - 1]


def test_decimals_of_19_digits_do_not_fit_into_one_word() -> None:
    assert words([Decimal(10**19 - 1), Decimal(1 - 10**19)], pa.decimal128(19, 0)).count == 2


def test_all_nans_are_one_value_and_the_greatest() -> None:
    negative = np.array([np.nan, -np.nan, np.inf]).view(np.uint64) | np.array([0, SIGN, 0], np.uint64)
    first, second, infinite = Words(pa.array(negative.view(np.float64), from_pandas=False)).word(0).tolist()
    assert first == second > infinite


def test_columns_without_rows_have_no_words() -> None:
    empty = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    for column in (empty, pa.array([], pa.string()), pa.array([], pa.int64())):
        assert Words(column).word(0).tolist() == []


def test_columns_without_an_order_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="month_day_nano_interval has no order"):
        Words(pa.nulls(1, pa.month_day_nano_interval()))


TEXTS = ["", "a", "abcdefgh", "abcdefghi", "x" * 64, "x" * 65, "x" * 99]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()])
def test_texts_are_eight_words_and_their_length(kind: pa.DataType) -> None:
    values: Any = [each.encode() for each in TEXTS] if "binary" in str(kind) else TEXTS
    for column in (pa.array(values, kind), pa.concat_arrays([pa.array(values[-1:], kind), pa.array(values, kind)])[1:]):
        found = Words(column)
        assert (found.count, found.cut, found.valid) == (9, True, None)
        for at in range(8):
            expected = [int.from_bytes(each.encode()[8 * at : 8 * at + 8].ljust(8, b"\0"), "big") for each in TEXTS]
            assert found.word(at).tolist() == expected
            assert found.word(at, np.array([3])).tolist() == expected[3:4]
        assert found.word(8).tolist() == [0, 1, 8, 9, 64, 65, 65]
        assert found.complete(np.arange(7)).tolist() == [True] * 5 + [False] * 2


def test_binaries_of_one_width_are_texts() -> None:
    column = pa.array([b"zzzzz", b"abcde", b"abcdf"], pa.binary(5))[1:]
    assert words_of(column).word(0).tolist() == [
        int.from_bytes(each + b"\0\0\0", "big") for each in (b"abcde", b"abcdf")
    ]
    assert words_of(pa.chunked_array([column, column])).word(8).tolist() == [5] * 4


def test_only_columns_with_nulls_have_flags() -> None:
    assert words([1, None], pa.int64()).valid is not None
    assert words([1, None], pa.int64()).valid.tolist() == [True, False]  # type: ignore[union-attr]
    assert words([1, 2], pa.int64()).valid is None


def test_fields_of_structs_are_found_by_their_paths() -> None:
    inner = pa.array([{"b": {"c": 1}}, None, {"b": None}], pa.struct({"b": pa.struct({"c": pa.int64()})}))
    rows = pa.table({"a": inner, "a.b.x": [1, 2, 3], "n": [4, 5, 6]})
    assert leaf_column(rows, "a.b.c").to_pylist() == [1, None, None]
    assert leaf_column(rows, "a.b.x").to_pylist() == [1, 2, 3]
    assert leaf_type(rows.schema, "a.b.c") == pa.int64()
    for name in ("m", "a.x", "a.b.c.d", "n.x", "m.b"):
        with pytest.raises(SchemaMismatchError, match=f"'{name}' is not among the columns"):
            leaf_column(rows, name)
    for name in ("a", "a.b"):
        with pytest.raises(SchemaMismatchError, match="no order"):
            leaf_type(rows.schema, name)


@pytest.mark.parametrize(
    ("values", "codes", "null"),
    [
        # A rank is the share of the rows below, and half of those that are equal.
        ([1, 2, 2, 3], [0, 2, 8, 14], 0),
        ([None, 1], [8, 12], 4),
        ([None, None, None, 1], [12, 14], 6),
        ([7], [0, 8], 0),
        ([None, None], [15], 0),
        ([], [0], 0),
        ([*range(64)], [0, *(at // 4 for at in range(64))], 0),
    ],
)
def test_ranks_are_shares_of_the_sample(values: list[int | None], codes: list[int], null: int) -> None:
    ranks = fit_ranks(pa.array(values, pa.int64()), 4)
    assert (ranks.codes.tolist(), ranks.null_code) == (codes, null)
    assert (ranks.boundaries is None) == (not any(each is not None for each in values))


def test_ranks_of_rows_are_those_of_the_values_next_below() -> None:
    ranks = fit_ranks(pa.array([10, 20, 20, 30], pa.int64()), 4)
    assert ranks.of(words([5, 10, 15, 20, 29, 30, 99, None], pa.int64())).tolist() == [0, 2, 2, 8, 8, 14, 14, 0]
    nothing = fit_ranks(pa.array([None, None], pa.int64()), 4)
    assert nothing.of(words([1, None], pa.int64())).tolist() == [15, 0]


@pytest.mark.parametrize("more", [0, 1, 20_000])
def test_a_sample_of_more_values_is_thinned_out_evenly(more: int) -> None:
    count = MAXIMUM_BOUNDARIES + more
    boundaries = fit_boundaries(pa.array(range(count), pa.int64()))
    assert boundaries is not None
    assert boundaries.count == MAXIMUM_BOUNDARIES
    below, equal = boundaries.find(words([*range(count)], pa.int64()))
    assert equal.sum() == MAXIMUM_BOUNDARIES
    assert np.abs(below - np.arange(1, count + 1) * MAXIMUM_BOUNDARIES / count).max() <= 1
    ranks = fit_ranks(pa.array(range(count), pa.int64()), 16)
    found = ranks.of(words([*range(count)], pa.int64())).astype(float)
    assert np.abs(found - (np.arange(count) + 0.5) / count * (1 << 16)).max() <= 6


def test_boundaries_tell_texts_apart_that_begin_alike() -> None:
    texts = ["a", "same-begin", "same-begin-1", "same-begin-2", "same-other"]
    boundaries = fit_boundaries(pa.array(texts[::-1] * 2))
    assert boundaries is not None
    asked = ["", *texts, "same-begin-15", "same-begin-3", "z", "same"]
    below, equal = boundaries.find(words(asked, pa.string()))
    assert below.tolist() == [sum(text <= each for text in texts) for each in asked]
    assert equal.tolist() == [each in texts for each in asked]
    assert fit_boundaries(pa.nulls(2, pa.int64())) is None


@pytest.mark.parametrize(
    ("distinct", "shift", "strides"),
    [
        ([5], 0, (1,)),
        ([0, 1, 65_535], 0, (1,)),
        ([0, 1, 65_536], 1, (2, 1)),
        ([0, 1, 2, 3, 4, 5, 1 << 32], 17, (4, 2, 1)),
        ([0, (1 << 64) - 1], 48, (1,)),
    ],
)
def test_cells_are_as_wide_as_sixteen_bits_allow(distinct: list[int], shift: int, strides: tuple[int, ...]) -> None:
    cells = Cells.of(np.array(distinct, np.uint64))
    assert (int(cells.shift), cells.strides) == (shift, strides)


# --- positions ------------------------------------------------------------------------------------------------


def places(strategy: CurveStrategy, sample: dict[str, Any], rows: dict[str, Any], **more: Any) -> list[int]:
    curve = fit_curve(strategy, [*sample], pa.table(sample), **more)
    found: list[int] = curve.positions(pa.table(rows)).tolist()
    return found


def test_linear_positions_are_codes_of_the_columns_one_after_the_other() -> None:
    a = pa.array([5, 10, 15, 20, 35, None], pa.int64())
    # Three boundaries have seven codes, in three bits: null, below, 10, between, 20, between, 30, above.
    assert places(LINEAR, {"a": [10, 20, 30]}, {"a": a}) == [code << 61 for code in (1, 2, 3, 4, 7, 0)]
    b = pa.array(["x", "x", "x", "y", "x", "z"])
    found = places(LINEAR, {"a": [10, 20, 30], "b": ["x", "x", "y"]}, {"a": a, "b": b})
    # The second column has three bits, and counts only where the first is a sampled value or null.
    assert found == [(a << 61) + (b << 58) for a, b in ((1, 0), (2, 2), (3, 0), (4, 4), (7, 0), (0, 5))]


def test_texts_that_are_cut_close_the_later_columns() -> None:
    sample = {"a": ["x" * 64, "x" * 65], "b": [1, 2]}
    rows = {"a": ["x" * 64, "x" * 65, "x" * 66], "b": [2, 2, 2]}
    assert places(LINEAR, sample, rows) == [(2 << 61) + (4 << 58), 4 << 61, 4 << 61]


def test_columns_beyond_64_bits_are_left_out_and_columns_of_nulls_are_not() -> None:
    names = [f"c{at}" for at in range(40)]
    sample = {name: [1, 2] for name in names}
    found = places(LINEAR, sample, {name: [1, 2] for name in names})
    assert found == [int("010" * 21 + "0", 2), int("100" * 21 + "0", 2)]
    nulls = {"n": pa.array([None, None], pa.int64()), "a": [1, 2]}
    rows = {"n": pa.array([None, 7], pa.int64()), "a": [2, 2]}
    assert places(LINEAR, nulls, rows) == [4 << 60, 1 << 63]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0, 3], [0, 255], [(0, 0), (1, 255), (3, 128), (0, 0), (3, 255)]),
        # The highest bits in which sampled values differ, of both columns alike.
        ([0, 3], [0, (1 << 40) - 1], [(0, 0), (0, 1), (0, 0), (0, 0), (0, 1)]),
        # Bits that all samples share are left out, and values outside are those at the ends.
        ([1024, 1027], [0, 7], [(0, 0), (0, 7), (0, 7), (0, 0), (3, 7)]),
    ],
)
def test_direct_positions_take_the_bits_of_the_values(
    a: list[int], b: list[int], expected: list[tuple[int, int]]
) -> None:
    rows = {"a": pa.array([0, 1, 3, None, 5_000], pa.uint64()), "b": pa.array([0, 300, 128, None, 1 << 8], pa.uint64())}
    sample = {"a": pa.array([*a, None], pa.uint64()), "b": pa.array([*b, None], pa.uint64())}
    found = places(Z_ORDER, sample, rows, build=CurveBuild.DIRECT)
    assert found == [
        int("".join(f"{left >> bit & 1}{right >> bit & 1}" for bit in range(31, -1, -1)), 2) for left, right in expected
    ]
    hilbert = places(HILBERT, sample, rows, build=CurveBuild.DIRECT)
    assert len(set(hilbert)) == len(set(found))
    nulls = {name: pa.array([None], pa.uint64()) for name in "ab"}
    assert places(Z_ORDER, nulls, rows, build=CurveBuild.DIRECT) == [0] * 5


@pytest.mark.parametrize(("columns", "bits"), [(2, 16), (4, 16), (5, 12), (64, 1)])
def test_columns_share_64_bits_and_a_rank_has_sixteen_at_most(columns: int, bits: int) -> None:
    rows = pa.table({f"c{at}": [1, 2] for at in range(columns)})
    assert fit_curve(Z_ORDER, rows.schema.names, rows).bits == bits
    direct = fit_curve(Z_ORDER, rows.schema.names, rows, build=CurveBuild.DIRECT)
    assert (direct.bits, direct.strategy, direct.columns) == (64 // columns, Z_ORDER, tuple(rows.schema.names))
    assert fit_curve(HILBERT, ["c0"], rows).strategy is LINEAR
    many = pa.table({f"c{at}": [1] for at in range(65)})
    with pytest.raises(InvalidInputError, match="1 to 64"):
        fit_curve(Z_ORDER, many.schema.names, many)


def test_z_order_positions_interleave_the_ranks() -> None:
    a, b = [1, 2, 3, 4], [4, 1, 3, 2]
    found = places(Z_ORDER, {"a": a, "b": b}, {"a": a, "b": b})
    ranks = {value: int((value - 0.5) / 4 * (1 << 16)) for value in a}
    assert found == [
        int("".join(f"{ranks[x] >> bit & 1}{ranks[y] >> bit & 1}" for bit in range(15, -1, -1)), 2)
        for x, y in zip(a, b, strict=True)
    ]


def test_blocks_of_a_large_table_are_placed_one_by_one() -> None:
    numbers = np.random.default_rng(0).integers(0, 1_000, (2, 140_000))
    rows = pa.table({"a": numbers[0], "b": numbers[1]})
    curve = fit_curve(Z_ORDER, ["a", "b"], rows.slice(0, 1_000))
    whole = curve.positions(rows)
    for first in (0, 65_530, 131_070, 139_990):
        assert curve.positions(rows.slice(first, 10)).tolist() == whole[first : first + 10].tolist()


# --- cuts -------------------------------------------------------------------------------------------------------


def cut_slowly(places: list[int], files: int) -> list[int]:
    """Return the cuts by the rule: at the highest differing bit near the mean length, and there next to the mean."""
    starts, start = [], 0
    for left in range(files, 1, -1):
        even = (len(places) - start) / left
        wanted, slack = start + round(even), int(SLACK * even)
        ends = range(max(start + 1, wanted - slack), min(len(places) - left + 1, wanted + slack) + 1)
        height = {end: (places[end] ^ places[end - 1]).bit_length() for end in ends}
        highest = max(height.values())
        start = min((end for end in ends if height[end] == highest), key=lambda end: (abs(end - wanted), end))
        if not highest:
            start = wanted
        starts.append(start)
    return starts


PLACES = st.lists(st.integers(0, 40) | st.integers(0, (1 << 64) - 1), min_size=1, max_size=80).map(sorted)


@given(PLACES, st.data())
def test_files_are_cut_by_the_rule(sorted_places: list[int], data: st.DataObject) -> None:
    files = data.draw(st.integers(1, len(sorted_places)))
    assert cut_places(np.array(sorted_places, np.uint64), files).tolist() == cut_slowly(sorted_places, files)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=2, max_size=9, unique=True).map(sorted))
def test_the_end_of_a_file_fills_the_bits_in_which_the_next_row_differs(sorted_places: list[int]) -> None:
    ends = cell_ends(np.array(sorted_places, np.uint64), np.arange(1, len(sorted_places)))
    expected = [before | (1 << (before ^ after).bit_length() - 1) - 1 for before, after in pairwise(sorted_places)]
    assert ends.tolist() == expected


def test_direct_coordinates_are_the_bits_from_the_first_that_differs() -> None:
    """5, 6 and 7 differ in their last two bits: their coordinates are 1, 2 and 3, whose bits are interleaved."""
    sample = pa.table({"a": [5, 7], "b": [5, 7]})
    curve = fit_curve(Z_ORDER, "ab", sample, build=CurveBuild.DIRECT)
    rows = pa.table({"a": [5, 5, 7, 7, 6], "b": [5, 7, 5, 7, 7]})
    assert curve.positions(rows).tolist() == [0b0011, 0b0111, 0b1011, 0b1111, 0b1101]


@pytest.mark.parametrize("more", [[], [None]])
def test_direct_coordinates_of_texts_are_their_first_bytes(more: list[None]) -> None:
    sample = pa.table({"a": ["apple", "pear", *more], "b": ["x", "x", *more]})
    places = fit_curve(HILBERT, "ab", sample, build=CurveBuild.DIRECT).positions(
        pa.table({"a": ["apple", "banana", "pear"], "b": ["x"] * 3})
    )
    assert len(set(places.tolist())) == 3
