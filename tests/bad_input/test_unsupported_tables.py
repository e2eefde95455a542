"""Tables of kinds that are not built: refused by name, and left as they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixture_tables import names, unpack
from refusal import named, tree

import lakeformat
from lakeformat import LakeformatError, UnsupportedTableError

OTHERS = [*names("hudi_v8_v9"), *names("hudi_mor_v6")]


@pytest.mark.parametrize("name", OTHERS)
def test_other_versions_and_types(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    before = tree(folder)
    rows = pa.table({"id": ["a"], "ts": [1]})
    reason = "MERGE_ON_READ" if "mor" in name and "v6" in name else "only 6 is"
    for call in (
        lambda: lakeformat.open(folder),
        lambda: lakeformat.create(folder, rows.schema, record_key="id"),
    ):
        with pytest.raises(LakeformatError) as caught:
            call()
        named(caught, UnsupportedTableError, ".hoodie/hoodie.properties", reason)
    assert tree(folder) == before
