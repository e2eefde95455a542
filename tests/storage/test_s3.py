"""Tables on a server that speaks S3: late files, names of options, and the texts of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import CommitStateUnknownError, InvalidOptionError, StorageError
from tests.helpers.s3_server import BUCKET, Network, new_folder, s3_server
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="int64", v="int64")
AT_ONCE = {"config_kwargs": {"retries": {"max_attempts": 0}}}


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def s3(network: Network) -> Iterator[Mapping[str, Any]]:
    with s3_server(network) as options:
        yield {**options, **AT_ONCE}


def rows(v: int) -> pa.Table:
    return a_batch(SCHEMA, id=[1, 2, 3], v=v)


def values(url: str, options: Mapping[str, Any]) -> list[int]:
    return lakeformat.open(url, storage_options=dict(options)).to_arrow(columns=["v"])["v"].to_pylist()


@pytest.mark.parametrize(
    ("comes", "version"),
    [
        ("before the next writer", "6"),
        pytest.param("before the next writer", "9", marks=pytest.mark.slow),
        pytest.param("after it", "6", marks=pytest.mark.slow),
        pytest.param("after it", "9", marks=pytest.mark.slow),
    ],
)
def test_late_completed_file_is_recognised(comes: str, version: str, s3: Mapping[str, Any], network: Network) -> None:
    url, options = new_folder(s3).url, dict(s3)
    table = lakeformat.create(
        url, SCHEMA, record_key="id", storage_options=options, **{"hoodie.write.table.version": version}
    )
    table.upsert(rows(1))
    network.loses = lambda path: re.search(r"/\d{17}(_\d{17})?\.commit$", path) is not None
    try:
        with pytest.raises(CommitStateUnknownError, match="before running the write again"):
            table.upsert(rows(2))
    finally:
        network.loses = lambda _: False
    assert len(network.kept) > 1
    assert values(url, s3) == [1, 1, 1]
    if comes == "before the next writer":
        assert network.deliver()[0] == "200"
        assert values(url, s3) == [2, 2, 2]
    table.upsert(pa.table({"id": [1], "v": [3]}, schema=SCHEMA))
    assert sorted(values(url, s3)) == [2, 2, 3]
    assert set(network.deliver()) <= {"412"}
    assert sorted(values(url, s3)) == [2, 2, 3]
    assert str(lakeformat.open(url, storage_options=options).check()) == "nothing is wrong"


def test_missing_bucket_is_one_line(s3: Mapping[str, Any]) -> None:
    url = "s3://no-such-bucket/t"
    for use in (
        lambda: lakeformat.open(url, storage_options=dict(s3)).schema,
        lambda: lakeformat.create(url, SCHEMA, record_key="id", storage_options=dict(s3)),
    ):
        with pytest.raises(StorageError, match=r"bucket 'no-such-bucket' of s3://no-such-bucket/t: it is not there"):
            use()


def test_an_unknown_option_is_refused_by_name(s3: Mapping[str, Any]) -> None:
    url = f"s3://{BUCKET}/t"
    with pytest.raises(InvalidOptionError, match=rf"{url} .*'colour'"):
        lakeformat.open(url, storage_options={**s3, "colour": "red"})
