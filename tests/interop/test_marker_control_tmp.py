"""Hudi rolls back a dead write of ours whose markers are lines of one file, as on object stores."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, UnlockedStorage
from tests.helpers.flights import grow_old
from tests.helpers.hudi_spark import Hudi, missing_parts
from tests.interop.test_versions_8_and_9 import SCHEMA, batch, rows_of

pytestmark = pytest.mark.interop


def is_last_step(_: int, call: Call) -> bool:
    """Tell whether the call decides the commit, after the last data file."""
    return call.name == "replace_if"


@pytest.mark.parametrize(("bundle", "version"), [("0.15.0", "6"), ("1.2.0", "6"), ("1.2.0", "9")])
def test_hudi_deletes_the_files_that_the_lines_name(bundle: str, version: str, tmp_path: Path) -> None:
    if missing := missing_parts(bundle):
        pytest.skip(f"{' and '.join(missing)} missing: run `make interop`")
    path = tmp_path / "t"
    options = {"hoodie.write.table.version": version}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **options).upsert(
        batch(range(8), 1)
    )
    dying = FaultyStorage(UnlockedStorage(str(path)), Fault(is_last_step, Mode.BEFORE))
    with pytest.raises(Crash):
        lakeformat.Table(dying).upsert(batch(range(9), 2))
    (pending,) = lakeformat.open(path).snapshot().timeline.pending
    assert len(list((path / ".hoodie/.temp" / pending.time).iterdir())) == 2
    assert list(path.glob(f"*/*_{pending.time}.parquet"))
    import shutil; shutil.rmtree(path / ".hoodie/.temp" / pending.time)
    grow_old(path)
    settings = {
        **options,
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.metadata.enable": "false",
        "hoodie.write.concurrency.mode": "single_writer",
    }
    (folder := tmp_path / "hudi").mkdir()
    with Hudi(bundle, folder) as hudi:
        hudi.write(path, batch(range(3, 4), 3), "upsert", **settings)
    assert not list(path.glob(f"*/*_{pending.time}.parquet"))
    assert not (path / ".hoodie/.temp" / pending.time).exists()
    found = {row["id"]: row for row in lakeformat.open(path).to_arrow(meta_columns=False).to_pylist()}
    assert found == rows_of(range(8), 1) | rows_of(range(3, 4), 3)
