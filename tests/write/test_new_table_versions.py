"""New tables of versions 8 and 9 merge and mark rows as those of version 6."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError
from tests.helpers.tables import a_schema

W: Final = "hoodie.datasource.write."
TIMEBASED: Final = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}
SCHEMA: Final = a_schema(id="int64", b="string", reg="string", ts="int64", v="int64")
#: Options beside a record key ``id`` and an ordering column ``ts``; "" removes one of these.
OPTIONS: Final[dict[str, dict[str, str]]] = {
    "part": {"partition_by": "reg"},
    "hive": {"partition_by": "reg", "hive_style": "true", "url_encode": "true"},
    "commit": {"ordering": ""},
    "complex": {"partition_by": "reg,b", "record_key": "id,b"},
    "custom": {"partition_by": "reg:SIMPLE,ts:TIMESTAMP", "keygenerator": "CUSTOM", **TIMEBASED},
    "time": {"partition_by": "ts", "keygenerator": "TIMESTAMP", **TIMEBASED},
    "partial": {W + "payload.class": "PartialUpdateAvroPayload"},
    "nondef": {W + "payload.class": "OverwriteNonDefaultsWithLatestAvroPayload"},
    "default": {W + "payload.class": "DefaultHoodieRecordPayload"},
    "latest": {"ordering": "", W + "payload.class": "OverwriteWithLatestAvroPayload"},
    "etime": {W + "payload.class": "EventTimeAvroPayload"},
    "mode": {"merge_mode": "COMMIT_TIME_ORDERING"},
    "marker": {
        W + "payload.class": "DefaultHoodieRecordPayload",
        "hoodie.payload.delete.field": "b",
        "hoodie.payload.delete.marker": "D",
    },
}


def make_table(path: Path, label: str, version: str) -> lakeformat.Table:
    keys = {"record_key": "id", "ordering": "ts", **OPTIONS[label]}
    return lakeformat.create(path, SCHEMA, **{"hoodie.write.table.version": version, **keys})


@pytest.mark.parametrize("version", ["6", "8", "9"])
@pytest.mark.parametrize("label", OPTIONS)
def test_the_merge_mode_is_the_same_in_every_version(label: str, version: str, tmp_path: Path) -> None:
    six = make_table(tmp_path / "6", label, "6").config
    config = make_table(tmp_path / "t", label, version).config
    assert (config.merge_mode, config.ordering_fields) == (six.merge_mode, six.ordering_fields)


def test_custom_partition_types_are_remembered(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", "custom", "9")
    row = {"id": 1, "b": "x", "reg": "eu", "ts": 86_400_000, "v": 1}
    table.upsert(pa.Table.from_pylist([row], SCHEMA))
    assert table.to_arrow(meta_columns=True).column("_hoodie_partition_path").to_pylist() == ["eu/1970-01-02"]
    lakeformat.open(tmp_path / "t").upsert(pa.Table.from_pylist([row | {"v": 2}], SCHEMA))
    assert table.to_arrow(meta_columns=False).to_pylist() == [row | {"v": 2}]


@pytest.mark.parametrize("version", ["6", "9"])
def test_delete_marker_of_the_table_applies_to_every_write(version: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", "marker", version)
    rows = [{"id": n, "b": "x", "reg": "eu", "ts": 1, "v": n} for n in range(3)]
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    lakeformat.open(tmp_path / "t").upsert(pa.Table.from_pylist([rows[1] | {"b": "D", "ts": 2}], SCHEMA))
    assert table.to_arrow(meta_columns=False).to_pylist() == [rows[0], rows[2]]


def test_unsupported_table_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"hoodie\.write\.table\.version"):
        make_table(tmp_path / "t", "part", "7")
    make_table(tmp_path / "t", "part", "9")
    with pytest.raises(InvalidOptionError, match=r"hoodie.write.table.version='8' contradicts '9'"):
        make_table(tmp_path / "t", "part", "8")
