"""Columns that get a dictionary: by the repeats in a sample, and in the parts of rows that were joined."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from lakeformat.files.base_file import dictionary_columns

_DISTINCT = [f"text {number}" for number in range(640)]


def _chosen(values: Sequence[str | None], *, joins: bool) -> bool:
    sample = pa.table({"a": pa.chunked_array([values[:100], values[100:]], pa.string())})
    return dictionary_columns(list(sample.schema), sample, joins) == ["a"]


@pytest.mark.parametrize(
    ("values", "joins", "expected"),
    [
        (_DISTINCT, True, False),
        (["same"] * 640, False, True),
        # The last 40 of 640 values repeat; they are the rows of one write among others.
        ([*_DISTINCT[:600], *["same"] * 40], True, True),
        ([*_DISTINCT[:600], *["same"] * 40], False, False),
        # One part in the middle consists of nulls.
        ([*_DISTINCT[:320], *[None] * 40, *_DISTINCT[360:]], True, True),
        # Each value comes twice, but far apart: no part repeats by itself; half of the whole sample repeats.
        ([*_DISTINCT[:320], *_DISTINCT[:320]], True, True),
        ([*_DISTINCT[:330], *_DISTINCT[:310]], True, False),
    ],
)
def test_column_that_repeats_within_a_part_is_dictionary_encoded(
    values: Sequence[str | None], joins: bool, expected: bool
) -> None:
    assert _chosen(values, joins=joins) is expected
