"""What a path without a table contains, and what the user can do."""

from __future__ import annotations

import re

import pytest

from lakeformat.errors import InvalidOptionError
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.path_probe import check_free, describe_path

DELTA, ICEBERG, PLAIN = "this is a Delta table", "this is an Iceberg table", "this is a folder of plain Parquet"
CASES = [
    ("", None),
    ("readme.txt", None),
    ("_delta_log/00.json a.parquet", DELTA),
    ("metadata/v1.metadata.json data/a.parquet", ICEBERG),
    ("b/a.parquet metadata/v1.metadata.json", ICEBERG),  # Iceberg's folder is looked at, not the first by name.
    ("metadata/snap-1.avro metadata/v1.metadata.json", ICEBERG),
    ("metadata/notes.json", None),
    ("data/v1.metadata.json", None),
    ("a.parquet", PLAIN),
    ("a/b.parquet c/d.txt", PLAIN),
    ("a.txt b/c.parquet", PLAIN),
    ("a/b.txt c/d.parquet", None),  # Only the first folder is listed.
    ("_tmp/a.parquet .tmp/b.parquet c/d.parquet", PLAIN),
    ("_tmp/a.parquet .tmp/b.parquet c/d.txt", None),
    ("a/b/c.parquet", None),
    ("metadata/x.txt metadata/a.parquet", PLAIN),
    (".hoodie/hoodie.properties a.parquet", None),
    (".hoodie/hoodie.properties _delta_log/00.json", None),
]


class NamedStorage(MemoryStorage):
    """A storage in memory with a location of its own."""

    def __init__(self, location: str, *paths: str) -> None:
        super().__init__()
        self._location = location
        for path in paths:
            self.create(path, b"")

    @property
    def location(self) -> str:
        return self._location


@pytest.mark.parametrize(("paths", "said"), CASES)
def test_other_formats_are_recognized_by_their_folders(paths: str, said: str | None) -> None:
    storage = NamedStorage("s3://bucket/t", *paths.split())
    found = describe_path(storage)
    if said is None:
        assert found is None
        check_free(storage)
        return
    assert found is not None
    assert found.startswith(f"{said}; ")
    refused = f"cannot make a table at s3://bucket/t: {found}; or choose another path"
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(refused)}$"):
        check_free(storage)


@pytest.mark.parametrize(
    ("location", "paths", "said"),
    [
        ("/t/a.parquet", "", "this is a file of Parquet; give the folder of a table"),
        ("/t/.hoodie", "", "open /t"),
        ("/t/.hoodie/", "", "open /t"),
        ("/t/.hoodie/timeline", "", "open /t"),
        ("/t/.hoodie/archived/a.parquet", "", "open /t"),
        ("/t/p=1", ".hoodie_partition_metadata a.parquet", "this is the folder of a partition; give the folder above"),
        ("/t.hoodie", "", None),
    ],
)
def test_part_of_a_table_is_recognized(location: str, paths: str, said: str | None) -> None:
    found = describe_path(NamedStorage(location, *paths.split()))
    assert found == said if said is None else (found or "").startswith(said)
