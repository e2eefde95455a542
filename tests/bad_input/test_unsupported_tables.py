"""Tables of kinds that are not written to: refused by name, and left as they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import LakeformatError, UnsupportedTableError
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.refusal import named, tree

OTHERS = [name for name in (*names("hudi_v8_v9"), *names("hudi_mor_v6")) if "_cow_" not in name]


@pytest.mark.parametrize("name", OTHERS)
def test_other_types(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    before = tree(folder)
    rows = pa.table({"id": ["a"], "ts": [1]})
    table = lakeformat.open(folder)
    for call in (
        lambda: table.upsert(rows),
        lambda: table.insert(rows),
        lambda: table.bulk_insert(rows),
        lambda: table.delete(rows),
        lambda: table.delete(where="true"),
        lambda: table.update({"ts": 1}, where="true"),
        lambda: table.merge(rows).when_matched_delete().execute(),
        lambda: table.delete_partitions(["x"]),
        table.cluster,
        lambda: table.plan_upsert(rows),
    ):
        with pytest.raises(LakeformatError) as caught:
            call()
        named(caught, UnsupportedTableError, ".hoodie/hoodie.properties", "writing")
    assert tree(folder) == before
