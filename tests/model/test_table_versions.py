"""The properties of each table version, and the values that are refused."""

from __future__ import annotations

import zipfile

import pytest

from lakeformat import UnsupportedTableError
from lakeformat.codec import properties
from lakeformat.merge import make_read_rule
from lakeformat.model.table_config import TableConfig, TableType
from tests.helpers.fixture_tables import FIXTURES, names, read_expectations

TABLES = [
    name for group in ("hudi_v6", "hudi_mor_v6", "hudi_v8_v9", "hudi_upgraded", "hudi_life") for name in names(group)
]
PLAIN = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "6"}


def config_of(name: str) -> TableConfig:
    table = name.rpartition("/")[2]
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        return TableConfig(properties.decode(archive.read(f"{table}/.hoodie/hoodie.properties"), name=name))


@pytest.mark.parametrize("name", TABLES)
def test_settings_are_read_from_tables_of_hudi(name: str) -> None:
    config = config_of(name)
    version = config.version
    expectations = read_expectations(name)
    assert version == expectations.get("table_version", version) in {6, 8, 9}
    assert config.layout_version == (1 if version == 6 else 2)
    assert config.timeline_folder == (".hoodie" if version == 6 else ".hoodie/timeline")
    assert config.archive_folder in (
        {".hoodie/archived", ".hoodie/history"} if version == 6 else {".hoodie/timeline/history"}
    )
    assert (config.table_type is TableType.MERGE_ON_READ) == ("read_optimized" in expectations)
    if expectations.get("ordering"):
        assert config.ordering_fields == (expectations["ordering"],)
    make_read_rule(config.merge_settings)  # Every merge rule of these tables is known.


REFUSED = [
    ({"hoodie.table.version": "7"}, "hoodie.table.version=7 is not supported, only "),
    ({"hoodie.table.version": "11"}, "hoodie.table.version=11 is not supported, only "),
    ({"hoodie.table.version": "11"}, "; set hoodie.write.table.version=9 in the Hudi job that writes the table, and "),
    ({"hoodie.table.version": "six"}, "hoodie.table.version=six is not supported, only "),
    ({"hoodie.timeline.layout.version": "2"}, "hoodie.timeline.layout.version=2"),
    ({"hoodie.table.type": "MERGE_SOMETIMES"}, "hoodie.table.type=MERGE_SOMETIMES"),
    ({"hoodie.table.format": "iceberg"}, "hoodie.table.format=iceberg is not supported; write it by Apache Hudi; "),
    ({"hoodie.table.base.file.format": "ORC"}, "hoodie.table.base.file.format=ORC"),
    ({"hoodie.table.multiple.base.file.formats.enable": "true"}, "multiple.base.file.formats.enable=true"),
    ({"hoodie.table.storage.layout": "lsm_tree"}, "hoodie.table.storage.layout=lsm_tree"),
    ({"hoodie.meta.fields.mode": "COMMIT_TIME_ONLY"}, "hoodie.meta.fields.mode=COMMIT_TIME_ONLY"),
]


@pytest.mark.parametrize(("values", "named"), REFUSED)
def test_unsupported_table_is_refused_by_name(values: dict[str, str], named: str) -> None:
    TableConfig({**PLAIN, "hoodie.table.format": "native", "hoodie.table.base.file.format": ""}).check_readable("x")
    with pytest.raises(UnsupportedTableError) as caught:
        TableConfig({**PLAIN, **values}).check_readable("x")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
