"""If a data file is missing during a read, the error says whether a clean deleted it or it is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import CorruptTableError
from tests.helpers.tables import a_batch, a_table

KINDS = [(version, kind) for version in ("6", "9") for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]


@pytest.fixture(params=KINDS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakeformat.Table:
    version, kind = request.param
    commits = [a_batch(id=[1, 2], v=number) for number in range(3)]
    keeping = {"table_type": kind, "hoodie.clean.automatic": False}
    return a_table(tmp_path / "t", rows=commits, version=version, operation="upsert", **keeping)


def newest(table: lakeformat.Table) -> list[Path]:
    (piece,) = table.snapshot().each_slice()
    return [Path(table.context.storage.location, file.path) for file in piece.files]


def test_lost_file_is_reported_missing(table: lakeformat.Table) -> None:
    for file in newest(table):
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(CorruptTableError, match=f"{re.escape(str(file))} .*is missing.*run lakeformat check"):
            lakeformat.open(table.context.storage.location).to_arrow()
        assert file.name in str(lakeformat.open(table.context.storage.location).check())
        file.write_bytes(content)


@pytest.mark.parametrize("by", ["upsert", "overwrite"])
def test_missing_file_of_an_older_slice_is_reported_cleaned(by: str, table: lakeformat.Table) -> None:
    batches = table.to_batches()
    files = newest(table)
    getattr(table, by)(pa.table({"id": [1, 2], "v": [9, 9]}))
    if len(files) > 1 and by == "upsert":
        table.compact()
    for file in files:
        file.unlink()
    with pytest.raises(CorruptTableError, match=r"was cleaned while it was read.*read again"):
        list(batches)
    assert lakeformat.open(table.context.storage.location).to_arrow(columns=["v"])["v"].to_pylist() == [9, 9]
