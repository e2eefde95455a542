"""The description of a table, compared with the list that Hudi made of the fixtures and with the files on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers import fixture_tables


@pytest.mark.parametrize("name", fixture_tables.names("hudi_life"))
def test_describe_equals_the_facts_of_hudi(name: str, tmp_path: Path) -> None:
    path, expectations = fixture_tables.unpack(name, tmp_path), fixture_tables.read_expectations(name)
    said = lakeformat.open(path).describe()
    files = [
        file
        for groups in expectations["files"].values()
        for slices in groups.values()
        for f in slices.values()
        for file in f
    ]
    of_action = {
        action: [i["instant"] for i in expectations["timeline"] if i["action"] == action] for action in ACTIONS
    }
    assert said.version == expectations["table_version"]
    assert said.all_files == len(files)
    assert said.all_bytes == sum(p.stat().st_size for p in path.rglob("*") if p.name in files)
    assert said.last_clean == max(of_action["clean"], default=None)
    assert [save.instant_time for save in said.savepoints] == of_action["savepoint"]
    assert said.last_archived == max((i["instant"] for i in expectations["archived"]), default=None)
    assert said.kind == ("merge-on-read" if "mor" in name else "copy-on-write")
    assert (said.record_key, said.partition_by) == (("id",), ("p",) if any(expectations["files"]) else ())
    assert said.commits == sum(
        i["action"] in {"commit", "deltacommit", "replacecommit"} for i in expectations["timeline"]
    )
    assert said.pending == ()


ACTIONS = ("clean", "savepoint")


def test_describe_advises_pending_services(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "p": pa.int64()})
    lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p")
    once = {"hoodie.clean.automatic": False, "hoodie.cleaner.commits.retained": 1}
    table = lakeformat.open(tmp_path / "t", **once)
    for _ in range(4):
        table.upsert(pa.table({"id": list(range(10)), "p": list(range(10))}, schema=schema))
    said = table.describe()
    assert (said.partitions, said.files, said.small_files, said.all_files) == (10, 10, 10, 40)
    assert [line.partition(":")[0] for line in said.advice] == ["cluster()", "clean()"]
    table.schedule_clustering(by="id")
    (Path(table.context.storage.location) / ".hoodie/20300101000000000.commit.requested").touch()
    assert "20300101000000000" in str(table.describe())
    assert [text.split()[0] for text in table.describe().pending] == ["clustering", "commit"]


def test_describe_advises_a_clean_only_if_it_would_delete_files(tmp_path: Path) -> None:
    rows = [{"id": at} for at in range(10)]
    table = lakeformat.create(tmp_path / "t", rows, record_key="id", insert=True)
    for _ in range(4):
        table.upsert(rows)
    said = table.describe()
    assert (said.advice, said.cleanable_bytes, table.clean(dry_run=True).size_bytes) == ((), 0, 0)
    fewer = lakeformat.open(tmp_path / "t", **{"hoodie.cleaner.commits.retained": 1})
    said = fewer.describe()
    assert said.cleanable_bytes == fewer.clean(dry_run=True).size_bytes > 0
    assert [line.partition(":")[0] for line in said.advice] == ["clean()"]
    fewer.clean()
    assert fewer.describe().advice == ()


def test_describe_does_not_count_a_dedupe_as_a_clustering(tmp_path: Path) -> None:
    rows = [{"id": at} for at in range(10)]
    table = lakeformat.create(tmp_path / "t", rows, record_key="id", insert=True)
    table.insert(rows)
    assert table.dedupe().rows == 10
    assert table.describe().last_clustering is None
    clustered = table.cluster(by="id").instant_time
    assert table.describe().last_clustering == clustered
