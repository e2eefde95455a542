"""The metastore's address comes from the options, else from hive-site.xml or spark-defaults.conf, as Hudi finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat import CatalogError
from lakeformat.catalog.metastore_address import find_address
from tests.helpers.tables import a_batch, a_table

SITE = "<?xml version='1.0'?><configuration>{}</configuration>"
PROPERTY = "<property><name>hive.metastore.uris</name><value> {} </value></property>"
ON = {"hoodie.datasource.hive_sync.enable": "true"}


def make(folder: Path, name: str, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize("variable", ["HIVE_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_CONF_DIR", "CLASSPATH", "HIVE_HOME"])
def test_hive_site_is_found_in_the_folders_that_the_environment_names(variable: str, tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    make(folder, "hive-site.xml", SITE.format(PROPERTY.format("thrift://a:1,thrift://b")))
    value = str(tmp_path if variable.endswith("HOME") else folder)
    found = find_address({variable: f"/none/x.jar:{value}" if variable == "CLASSPATH" else value})
    assert found is not None
    assert found.parse() == (("a", 1), ("b", 9083))
    assert found.source == str(folder / "hive-site.xml")


@pytest.mark.parametrize(
    "line", ["spark.hadoop.hive.metastore.uris   thrift://a:1", "spark.hive.metastore.uris=thrift://a:1"]
)
def test_defaults_of_spark_name_the_metastore(line: str, tmp_path: Path) -> None:
    folder = make(tmp_path, "spark-defaults.conf", f"# x\nspark.master local\n{line}\n")
    found = find_address({"SPARK_CONF_DIR": folder})
    assert found is not None
    assert found.text == "thrift://a:1"


@pytest.mark.parametrize("text", [SITE.format(""), SITE.format(PROPERTY.format("")), "not xml"])
def test_settings_without_an_address_say_nothing(text: str, tmp_path: Path) -> None:
    first = make(tmp_path / "a", "hive-site.xml", text)
    second = make(tmp_path / "b", "hive-site.xml", SITE.format(PROPERTY.format("thrift://b:2")))
    assert find_address({"HIVE_CONF_DIR": first}) is None
    found = find_address({"HIVE_CONF_DIR": first, "SPARK_CONF_DIR": second})
    assert found is not None
    assert found.text == "thrift://b:2"


def test_write_calls_the_metastore_of_hive_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "conf", "hive-site.xml", SITE.format(PROPERTY.format("thrift://127.0.0.1:1")))
    monkeypatch.setenv("HIVE_CONF_DIR", folder)
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1), **ON)
    step = table.upsert(a_batch(id=[2], v=1)).report["steps"][-1]
    assert step["error"].startswith("no Hive metastore answers: thrift://127.0.0.1:1: ")
    assert table.count() == 2
    with pytest.raises(CatalogError, match=r"thrift://127\.0\.0\.1:1"):
        table.register("hive")


def test_address_of_another_form_is_named_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "conf", "hive-site.xml", SITE.format(PROPERTY.format("http://h")))
    monkeypatch.setenv("HIVE_CONF_DIR", folder)
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1))
    with pytest.raises(CatalogError, match=r"http://h in .*hive-site\.xml is not of the form thrift://host:9083"):
        table.register("hive")


@pytest.mark.parametrize("name", ["hive.metastore.uris", "spark.hadoop.hive.metastore.uris"])
def test_names_of_hive_and_spark_set_the_address(name: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=a_batch(id=[1], v=1), **ON, **{name: "thrift://127.0.0.1:1"})
    step = table.upsert(a_batch(id=[2], v=1)).report["steps"][-1]
    assert step["error"].startswith("no Hive metastore answers: thrift://127.0.0.1:1: ")
    assert lakeformat.open(tmp_path / "t").count() == 2
