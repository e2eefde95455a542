"""Stored bloom filters are asked before files are opened, and a preview counts what an upsert would do.

The oracles are the files themselves: their key columns and footers, and the calls to storage.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import FaultyStorage
from tests.helpers.local_shuffle import write_shuffled
from tests.index.test_new_keys import SCHEMA, count, count_false_positives, keys, keys_of, rows

FILES, ROWS = 12, 40
OPTIONS: Final[Mapping[str, Any]] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.parquet.small.file.limit": 0,
}
ASKED: Final = {"hoodie.bloom.index.use.metadata": True}
WAYS: Final[Mapping[str, Callable[[lakeformat.Table, pa.Table], Any]]] = {
    "upsert": lambda table, new: table.upsert(new),
    "exchanged": lambda table, new: write_shuffled(table, [new], Operation.UPSERT, unit_bytes=1 << 40),
    "merge": lambda table, new: table.merge(new).when_matched_update().when_not_matched_insert().execute(),
    "delete": lambda table, new: table.delete(new.select(["id"])),
    "plan": lambda table, new: table.plan_upsert(new),
}


def filled(path: Path, files: int = FILES, **options: Any) -> lakeformat.Table:
    """Return a table of files of random keys: every range holds nearly every key."""
    table = lakeformat.create(path, SCHEMA, record_key="id", **OPTIONS, **options)
    for number in range(files):
        table.insert(rows(keys(number, ROWS)))
    return table


def opened_files(storage: FaultyStorage) -> set[str]:
    return {call.path for call in storage.calls if call.name == "open_input" and call.path.endswith(".parquet")}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored_filters") / "t"
    filled(path)
    return path


#: Each way, and each kind of index.
CASES: Final = [
    *((way, "BLOOM") for way in WAYS),
    ("upsert", "GLOBAL_BLOOM"),
    ("exchanged", "GLOBAL_BLOOM"),
    ("upsert", "AUTO"),
]


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_files_without_the_keys_are_not_opened(way: str, kind: str, template: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(template, path)
    table = lakeformat.open(path)
    holder = table.snapshot().files[7]
    all_files = {file.path for file in table.snapshot().files}
    probed = {next(iter(table.snapshot().each_file())).path}  # Its first key shows how keys are spelt.
    assert holder.path not in probed
    known, new = keys_of(table, 7)[:3], keys(99, 4)
    options = {**OPTIONS, "hoodie.index.type": kind}
    storage = FaultyStorage(LocalStorage(str(path)))
    WAYS[way](lakeformat.Table(storage, resolve({**options, **ASKED})), rows([*known, *new], 1))
    stored = lakeformat.open(path).to_arrow()["id"].to_pylist()
    assert len(set(stored)) == len(stored)
    assert len({*known, *new} & set(stored)) == {"plan": 3, "delete": 0}.get(way, 7)
    assert opened_files(storage) & all_files - probed == {holder.path}


def test_without_filters_in_the_metadata_table_the_footers_are_asked(tmp_path: Path, caplog: Any) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"hoodie.index.type": "BLOOM"}, **ASKED)
    table.insert(rows(keys(0, ROWS)))
    result = table.upsert(rows(keys(0, ROWS)[:2], 1))
    assert result.rows.updated == 2
    assert "the table has no bloom filters" in caplog.text


def test_a_plan_counts_the_files_that_stored_filters_leave_out(template: Path) -> None:
    """Their ranges are not known, so each key may be in each of them."""
    table = lakeformat.open(template, **{**OPTIONS, "hoodie.index.type": "BLOOM", **ASKED})
    tagging = table.plan_upsert(rows(keys(99, 4))).tagging
    assert (tagging["files"], tagging["after_ranges"], tagging["files_read"]) == (FILES, 4 * FILES, 0)


def test_a_plan_counts_no_mistake_of_a_filter_as_an_update(tmp_path: Path) -> None:
    options = {"hoodie.index.bloom.fpp": 0.1, "hoodie.index.type": "BLOOM"}
    table = filled(tmp_path / "t", **options)
    known, new = [key for at in (2, 5) for key in keys_of(table, at)[:20]], keys(99, 60)
    wrong = count_false_positives(table, [*known, *new])
    assert sum(wrong) > 20
    plan = table.plan_upsert(rows([*known, *new], 1))
    assert (plan.updates, plan.inserts) == (len(known), len(new))
    assert {file.file_id for file in plan.files if file.updates} == {
        table.snapshot().files[at].group.file_id for at in (2, 5)
    }
    assert plan.tagging["after_filters"] == len(known) + sum(wrong)
    assert plan.tagging["false_positives"] == sum(wrong)


def test_candidates_after_filters_are_counted_where_a_filter_lets_more_through_than_its_file_holds(
    tmp_path: Path,
) -> None:
    options = {"hoodie.index.bloom.fpp": 0.2, "hoodie.index.type": "BLOOM", "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    for number in range(6):
        table.insert(rows(keys(number, 2)))
    known, new = keys_of(table, 3), keys(99, 400)
    wrong = count_false_positives(table, [*known, *new])
    assert max(wrong) > 2
    result = table.upsert(rows([*known, *new], 1))
    assert count(result, "tag", "after_filters") == len(known) + sum(wrong) < count(result, "tag", "after_ranges")
    assert result.rows.updated == 2
