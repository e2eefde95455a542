"""Compactions that copy row groups byte for byte: the same rows, statistics and counts as without copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.files.footers import parse_key_footer
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.metadata_table.test_fixtures import open_table
from tests.write.test_row_group_copies import (
    GROUP,
    OPTIONS,
    assert_sound,
    base_paths,
    key,
    listed,
    rows,
    same,
    twins,
)

VERSIONS = (6, 8, 9)
MOR: dict[str, Any] = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
#: New keys go to log files, too.
BUCKETS: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}


def counts(result: Any) -> dict[str, int]:
    """Return what a service has copied and encoded."""
    [step] = [step for step in result.report["steps"] if step["step"] == "rewrite"]
    return {name: step.get(name, 0) for name in ("copied_rows", "encoded_rows", "copied_bytes", "encoded_bytes")}


def stat_of(table: Table) -> dict[str, Any]:
    """Return the counts of the newest commit's only file."""
    store = table.context.store
    [stat] = store.read_commit(store.load().commits[-1]).all_stats()
    names = ("num_writes", "num_deletes", "num_updates", "num_inserts")
    return {name: getattr(stat, name) for name in names}


def merge_on_read_twins(path: Path, index: dict[str, Any], version: int) -> tuple[Table, Table]:
    """Return twins with one base file of ten row groups. A table with a bucket index begins with log files."""
    found = twins(path, **MOR, **index, **{"hoodie.write.table.version": version})
    for table in found if index else ():
        table.compact()
    return found


def compact_both(copying: Table, encoding: Table) -> Any:
    """Compact twins and compare them. Return the result of the one that copies."""
    before = listed(copying)
    results = [table.compact() for table in (copying, encoding)]
    assert counts(results[1])["copied_rows"] == 0
    assert stat_of(copying) == stat_of(encoding)
    for table in (copying, encoding):
        assert not table.snapshot().live.has_logs
        assert same(listed(table), before)
    assert_sound(copying)
    facts = []
    for table in (copying, encoding):
        [piece] = table.context.snapshot().each_slice()
        assert piece.base is not None
        footer = parse_key_footer(piece.base, pq.read_metadata(base_paths(table)[0]))
        facts.append((footer.rows, footer.minimum, footer.maximum))
    assert facts[0] == facts[1]
    for where in ("f > 3", "f > 1e300", "v is null", "id = 'key-000077'", "s < 'text 3'", "r.x > 50"):
        ours, others = (sorted(t.to_arrow(where=where).to_pylist(), key=lambda r: r["id"]) for t in (copying, encoding))
        assert same(ours, others), where
    return results[0]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", [{}, BUCKETS], ids=["bloom", "bucket"])
def test_compaction_copies_the_row_groups_that_no_log_row_changes(
    tmp_path: Path, version: int, index: dict[str, Any]
) -> None:
    copying, encoding = merge_on_read_twins(tmp_path, index, version)
    begin = copying.history()[0].instant_time, encoding.history()[0].instant_time
    for table in (copying, encoding):
        table.upsert(rows(range(2 * GROUP + 3, 2 * GROUP + 9), 1))
        table.delete(rows([4 * GROUP + 1], 2))
        table.upsert(rows([2 * GROUP + 5], 3, rows([], 0).select(["id", "v"]).schema), partial_update=["v"])
        if index:
            table.upsert(rows([10 * GROUP, 10 * GROUP + 1], 4))
        assert table.snapshot().live.has_logs
    result = compact_both(copying, encoding)
    done = counts(result)
    assert done["copied_rows"] == 8 * GROUP
    assert done["encoded_rows"] == 2 * GROUP - 1 + (2 if index else 0)
    assert "copied rows" in result.describe()
    changes = [
        sorted(table.changes(start).to_arrow().column("id").to_pylist())
        for table, start in zip((copying, encoding), begin, strict=True)
    ]
    assert changes[0] == changes[1] != []
    theirs = hudi_rs.rows_by_key(hudi_rs.read(tmp_path / "a"))
    assert same(theirs, hudi_rs.rows_by_key(copying.to_arrow(meta_columns=True)))
    for table in (copying, encoding):
        table.upsert(rows([7], 5))
    assert counts(compact_both(copying, encoding))["copied_rows"] >= 9 * GROUP - 1


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_histories_with_and_without_copies_are_alike(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    version, index = data.draw(st.sampled_from(VERSIONS)), data.draw(st.sampled_from([{}, BUCKETS]))
    copying, encoding = merge_on_read_twins(tmp_path_factory.mktemp("twins"), index, version)
    for edition in range(1, data.draw(st.integers(2, 5))):
        start = data.draw(st.integers(0, 11 * GROUP), "start")
        numbers = range(start, start + data.draw(st.integers(1, 2 * GROUP), "count"), data.draw(st.integers(1, 60)))
        verb = data.draw(st.sampled_from(["upsert", "delete", "partial", "compact"]))
        if verb == "compact":
            if copying.snapshot().live.has_logs:
                compact_both(copying, encoding)
            continue
        for table in (copying, encoding):
            if verb == "partial":
                stored = [number for number in numbers if number < 10 * GROUP] or [1]
                table.upsert(rows(stored, edition).select(["id", "v", "f"]), partial_update=["v", "f"])
            else:
                getattr(table, verb)(rows(numbers, edition))
    if copying.snapshot().live.has_logs:
        compact_both(copying, encoding)


def test_files_of_another_codec_are_encoded(tmp_path: Path) -> None:
    twins(tmp_path, **MOR, **{"hoodie.parquet.compression.codec": "gzip"})
    table = lakeformat.open(tmp_path / "a", **OPTIONS, **{"hoodie.parquet.compression.codec": "zstd"})
    table.upsert(rows([1], 1))
    before = listed(table)
    assert counts(table.compact())["copied_rows"] == 0
    assert same(listed(table), before)


def test_slices_whose_files_lack_a_column_are_encoded(tmp_path: Path) -> None:
    copying, encoding = twins(tmp_path, **MOR)
    for table in (copying, encoding):
        changed = rows([1], 1)
        table.upsert(changed.append_column("late", changed.column("v")))
    assert counts(compact_both(copying, encoding))["copied_rows"] == 0


@pytest.mark.parametrize("version", [8, 9])
def test_statistics_in_the_metadata_table_are_the_same(tmp_path: Path, version: int) -> None:
    indexed = {
        "hoodie.write.table.version": version,
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.column.stats.column.list": "id,v,s,t",
    }
    found = []
    for table in (pair := twins(tmp_path, **MOR, **indexed)):
        table.upsert(rows([5, 7, 9], 1))
        result = table.compact()
        assert (counts(result)["copied_rows"] > 0) == (table is pair[0])
        [path] = base_paths(table)
        statistics = open_table(Path(table.context.storage.location))
        assert statistics is not None
        stored = statistics.column_stats().drop_columns(["key", "size_bytes", "unpacked_bytes"]).to_pylist()
        found.append({row.pop("column_name"): row for row in stored if row.pop("file_name") == path.name})
        assert found[-1]["id"]["max.StringWrapper"] == key(10 * GROUP - 1)
    for each in found:
        each.pop("_hoodie_commit_time", None)
    assert found[0] == found[1]
