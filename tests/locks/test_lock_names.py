"""Names of locks that Hudi derives from a table's path. The expected values are those of Hudi 1.2.0's ``HashID``."""

from __future__ import annotations

import pytest

from lakeformat.locks.lock_names import hash_location


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/table", "4DCF035CB614089C"),
        ("s3a://bucket/table", "4DCF035CB614089C"),
        ("s3a://bucket/table/", "4DCF035CB614089C"),
        ("s3://b/t", "45205BCC2F82AB53"),
        ("/data/t", "710D1237950927F9"),
    ],
)
def test_hash_of_a_path_is_that_of_hudi(path: str, name: str) -> None:
    assert hash_location(path) == name
