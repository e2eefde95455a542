"""Rows are divided by partition as a filter would divide them, in order of arrival, whatever chunks they come in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat.write.rows.prepare import split_by_partition


@pytest.mark.parametrize(
    ("chunk_rows", "partitions"), [(100, 1), (100, 3), (3_000, 3), (10_000, 3), (5_000, 400), (3_000, 10_000)]
)
def test_rows_are_divided_as_a_filter_divides_them(chunk_rows: int, partitions: int) -> None:
    rng = np.random.default_rng(chunk_rows + partitions)
    count = 20_000
    names = pa.array([f"p{number}" for number in rng.permutation(partitions)])
    paths = names.take(pa.array(rng.integers(0, partitions, count))).dictionary_encode()
    whole = pa.table({"key": [f"{n:08}" for n in range(count)], "note": ["x" * (n % 7) for n in range(count)]})
    whole = whole.append_column("number", pa.array([None if n % 5 == 0 else n for n in range(count)]))
    rows = pa.concat_tables(whole.slice(at, chunk_rows) for at in range(0, count, chunk_rows))
    texts = paths.cast(pa.string())
    parts = split_by_partition(rows, paths)
    assert list(parts) == sorted(set(texts.to_pylist()))
    assert sum(part.num_rows for part in parts.values()) == count
    for name in list(parts)[:5]:
        assert parts[name].equals(whole.filter(pc.equal(texts, name)))
