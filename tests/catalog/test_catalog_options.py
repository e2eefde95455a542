"""Options by which a table cannot be registered are refused before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import CatalogError, InvalidOptionError
from tests.helpers.tables import a_batch, a_table

SYNC = "hoodie.datasource.hive_sync."
TOOL = "hoodie.meta.sync.client.tool.class"
ON = {SYNC + "enable": "true"}
URIS = {SYNC + "metastore.uris": "thrift://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({SYNC + "ignore_exceptions": "false"}, "nothing says where the Hive metastore is"),
        ({SYNC + "mode": "hms", "lakeformat.catalog.fail_on_error": "true"}, "nothing says where"),
        ({SYNC + "mode": "jdbc", **URIS}, "mode=jdbc needs HiveServer2"),
        ({SYNC + "mode": "hiveql", **URIS}, "mode=hiveql needs HiveServer2"),
        ({SYNC + "mode": "odd", **URIS}, "mode=odd is not known"),
        ({SYNC + "metastore.uris": "http://host"}, "is not of the form thrift://host:9083"),
        ({TOOL: "org.apache.hudi.gcp.bigquery.BigQuerySyncTool"}, "BigQuerySyncTool, which is not built"),
        ({TOOL: "org.apache.hudi.hive.HiveSyncTool,my.Tool", **URIS}, "names my.Tool, which is not built"),
        ({SYNC + "partition_extractor_class": "my.Extractor", **URIS}, "my.Extractor cannot run here"),
        ({SYNC + "table_properties": "a=b=c", **URIS}, "write key=value"),
        ({SYNC + "table.strategy": "SOME", **URIS}, "write one of ALL, RO, RT"),
        ({SYNC + "ignore_exceptions": "true", "lakeformat.catalog.fail_on_error": "true", **URIS}, "contradict"),
        ({SYNC + "mode": "glue", "hoodie.aws.access.key": "k"}, "belong together"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(options: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id", **ON, **options)
    assert not (tmp_path / "t").exists()


def test_options_of_a_registration_that_is_off_are_not_looked_at(tmp_path: Path) -> None:
    off = {SYNC + "enable": "false", SYNC + "mode": "jdbc", TOOL: "my.Tool", SYNC + "jdbcurl": "jdbc:hive2://h:1"}
    a_table(tmp_path / "t", rows=a_batch(id=[1], v=1), **off)


def test_missing_package_is_refused_before_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1))
    synced = lakeformat.open(tmp_path / "t", **ON, **URIS)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.delitem(sys.modules, "pymetastore", raising=False)
    with pytest.raises(InvalidOptionError, match=r"needs pymetastore; run: pip install 'lakeformat\[hive\]'"):
        synced.upsert(a_batch(id=[2], v=1))
    monkeypatch.undo()
    assert table.count() == 1


def test_metastore_that_does_not_answer_does_not_fail_the_write(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1), **ON, **URIS)
    step = table.upsert(a_batch(id=[2], v=1)).report["steps"][-1]
    assert step["error"].startswith("no Hive metastore answers: thrift://127.0.0.1:1: ")
    assert table.count() == 2
    with pytest.raises(CatalogError, match="no Hive metastore answers"):
        table.register("hive")


@pytest.mark.parametrize(
    ("catalog", "more", "problem"),
    [
        ("gleu", {}, "did you mean 'glue'"),
        ("hive", {}, "nothing says where the Hive metastore is"),
        ("hive", {"databse": "x"}, "unknown option 'databse'"),
    ],
)
def test_call_that_cannot_be_carried_out_is_refused(
    catalog: str, more: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1))
    with pytest.raises(InvalidOptionError, match=problem):
        table.register(catalog, **more)


def test_import_needs_neither_client() -> None:
    code = (
        "import sys, lakeformat, lakeformat.table, lakeformat.catalog; "
        "assert not {'boto3', 'pymetastore', 'thrift.transport'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
