"""What is the same for each format whose metadata lies beside a table. The oracles are the formats' own readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, UnsupportedTableError
from lakeformat.cli.main import main
from lakeformat.services.doctor.findings import Kind
from tests.helpers.delta_reader import assert_delta_shows, delta_rows
from tests.helpers.iceberg_reader import assert_iceberg_shows, iceberg_rows
from tests.helpers.tables import a_batch, a_schema

SCHEMA: Final = a_schema(id="int64", v="string")
READ: Final[dict[str, Callable[[str], list[str]]]] = {"delta": delta_rows, "iceberg": iceberg_rows}
ASSERT_SHOWS: Final[dict[str, Callable[[Table], None]]] = {
    "delta": assert_delta_shows,
    "iceberg": assert_iceberg_shows,
}

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])


def new_table(folder: Path, form: str, **options: Any) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, record_key="id", **{"lakeformat.beside": form, **options})


@each_format
def test_a_merge_on_read_table_is_shown_as_of_its_last_compaction(
    tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "lakeformat.compact.auto": False}
    table = new_table(tmp_path, form, **kind)
    table.insert(a_batch(SCHEMA, id=[1, 2], v="a"))
    before = READ[form](table.location)
    result = table.upsert(a_batch(SCHEMA, id=[2], v="b"))
    assert "1 file slices have log files" in result.report["steps"][-1]["skipped"]
    assert not caplog.text
    assert READ[form](table.location) == before
    (finding,) = table.check().of(Kind.BESIDE)
    assert "compact() first" in finding.cure
    assert not finding.mends
    table.compact()
    ASSERT_SHOWS[form](table)


@each_format
def test_check_says_how_far_the_metadata_is_behind_and_repair_brings_it_up_to_date(tmp_path: Path, form: str) -> None:
    table = new_table(tmp_path, form)
    first = table.insert(a_batch(SCHEMA, id=[1], v="a")).instant_time
    other = lakeformat.open(table.location)
    other.upsert(a_batch(SCHEMA, id=[1], v="b"))
    other.insert(a_batch(SCHEMA, id=[2], v="b"))
    (finding,) = table.check()
    assert finding.kind is Kind.BESIDE
    behind = f"it shows {first}, 2 commits behind the table (1 files to add, 1 to remove): sync('{form}')"
    assert behind in finding.cure
    other.repair()
    ASSERT_SHOWS[form](table)
    assert not table.check()


@each_format
def test_vectors_are_refused_by_name(tmp_path: Path, form: str) -> None:
    vector = pa.field("v", pa.list_(pa.float32(), 2), metadata={"hudi_type": "VECTOR(2)"})
    rows = pa.table({"id": [1], "v": pa.array([[1.0, 2.0]], vector.type)}, pa.schema([("id", pa.int64()), vector]))
    table = lakeformat.create(tmp_path / "t", rows, record_key="id", insert=True)
    with pytest.raises(UnsupportedTableError, match="read the VECTOR columns v as bytes"):
        table.sync(form)


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "delta")
    with pytest.raises(InvalidOptionError, match="sync to 'detla' is not supported; did you mean 'delta'"):
        table.sync("detla")
    with pytest.raises(InvalidOptionError, match="write delta"):
        lakeformat.open(table.location, **{"lakeformat.beside": "parquet"})


@each_format
def test_the_command_and_the_procedure_sync(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    instant = table.insert(a_batch(SCHEMA, id=[1], v="a")).instant_time
    assert main(["sync", table.location, "--to", form, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instant_time"] == instant
    table.delete(where="id = 1")
    rows = lakeformat.sql(f"call sync(table => 't', to => '{form}')", t=table).to_arrow()
    assert rows["result"].to_pylist()[0].endswith("1 files added, 1 removed")
    ASSERT_SHOWS[form](table)
