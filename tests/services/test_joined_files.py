"""Clusterings without sort columns copy row groups byte for byte: the same rows and statistics as without copies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.files.footers import parse_key_footer
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.metadata_table.test_fixtures import open_table
from tests.services.test_copied_row_groups import counts
from tests.write.test_row_group_copies import (
    GROUP,
    OPTIONS,
    SCHEMA,
    assert_sound,
    base_paths,
    encode_again,
    key,
    listed,
    rows,
    same,
)

#: Each insert makes a file of its own.
FILES: dict[str, Any] = {**OPTIONS, "hoodie.parquet.small.file.limit": 0}
INDEXED: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.column.stats.column.list": "id,v,s,t",
}


def twins(path: Path, sizes: list[int], **options: Any) -> tuple[Table, Table]:
    """Return two copies of a table with files of these row counts: the first copies row groups."""
    both = {**FILES, **options}
    table, start = lakeformat.create(path / "a", SCHEMA, record_key="id", **both), 0
    for edition, size in enumerate(sizes):
        table.insert(rows(range(start, start + size), edition))
        start += size
    shutil.copytree(path / "a", path / "b")
    return (
        lakeformat.open(path / "a", **both),
        lakeformat.open(path / "b", **both, **{"lakeformat.write.copy.row.groups": False}),
    )


def cluster_both(copying: Table, encoding: Table, **arguments: Any) -> Any:
    """Cluster twins and compare them. Return the result of the one that copies."""
    before = [listed(table) for table in (copying, encoding)]
    results = [table.cluster(**arguments) for table in (copying, encoding)]
    assert [bool(result.skipped) for result in results] in ([False, False], [True, True])
    assert results[1].skipped or counts(results[1])["copied_rows"] == 0
    assert results[0].rows == results[1].rows
    for table, rows_before in zip((copying, encoding), before, strict=True):
        assert same(listed(table), rows_before)
    assert same(listed(copying), listed(encoding))
    assert_sound(copying)
    for where in ("f > 3", "f > 1e300", "v is null", "id = 'key-000077'", "s < 'text 3'", "r.x > 50"):
        ours, others = (sorted(t.to_arrow(where=where).to_pylist(), key=lambda r: r["id"]) for t in (copying, encoding))
        assert same(ours, others), where
    return results[0]


def group_rows(table: Table) -> list[list[int]]:
    """Return the row counts of the row groups of each base file."""
    footers = [pq.read_metadata(path) for path in base_paths(table)]
    return [[footer.row_group(at).num_rows for at in range(footer.num_row_groups)] for footer in footers]


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_joining_files_copies_their_row_groups(tmp_path: Path, version: int, kind: str) -> None:
    options = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    copying, encoding = twins(tmp_path, [3 * GROUP, 2 * GROUP, 5, 7, GROUP], **options)
    begin = [table.history()[-1].instant_time for table in (copying, encoding)]
    result = cluster_both(copying, encoding)
    assert counts(result)["copied_rows"] == 6 * GROUP
    assert counts(result)["encoded_rows"] == 12
    assert "copied rows" in result.describe()
    assert sorted(group_rows(copying)[0]) == [12] + [GROUP] * 6
    keys = [
        sorted(t.changes(b).to_arrow().column("id").to_pylist())
        for t, b in zip((copying, encoding), begin, strict=True)
    ]
    assert keys[0] == keys[1] != []
    theirs = hudi_rs.rows_by_key(hudi_rs.read(tmp_path / "a"))
    assert same(theirs, hudi_rs.rows_by_key(copying.to_arrow(meta_columns=True)))
    footers = []
    for table in (copying, encoding):
        [piece] = table.context.snapshot().each_slice()
        assert piece.base is not None
        footer = parse_key_footer(piece.base, pq.read_metadata(base_paths(table)[0]))
        footers.append((footer.rows, footer.minimum, footer.maximum, footer.filter_bytes))
        table.upsert(rows([1, 2, 7 * GROUP + 50], 9))
    assert footers[0] == footers[1]
    assert same(listed(copying), listed(encoding))


@pytest.mark.slow
@settings(max_examples=examples(8), deadline=None, phases=[Phase.reuse, Phase.generate])
@given(
    sizes=st.lists(st.sampled_from([1, 7, GROUP // 2, GROUP, GROUP + 3, 3 * GROUP]), min_size=2, max_size=6),
    target=st.sampled_from([None, 30_000, 60_000, 120_000]),
)
def test_all_sizes_of_files_are_joined(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], target: int | None
) -> None:
    copying, encoding = twins(tmp_path_factory.mktemp("twins"), sizes)
    for table in (copying, encoding):
        table.delete(rows(range(1, sum(sizes), 61), 9))
    cluster_both(copying, encoding, **({"target_file_bytes": target} if target else {}))
    for groups in group_rows(copying):
        small = [rows < GROUP // 2 for rows in groups]
        assert target or sum(small) <= len(groups) // 2 + 1


def test_files_of_another_codec_are_encoded_with_their_small_neighbours(tmp_path: Path) -> None:
    options = {"hoodie.parquet.compression.codec": "gzip"}
    twins(tmp_path, [2 * GROUP], **options)
    table = lakeformat.open(tmp_path / "a", **FILES, **{"hoodie.parquet.compression.codec": "zstd"})
    table.insert(rows(range(1000, 1005), 1))
    table.insert(rows(range(2000, 2000 + 2 * GROUP), 2))
    before = listed(table)
    # The small row group is encoded with the file of the other codec if it lies beside it.
    assert counts(table.cluster())["copied_rows"] in {2 * GROUP, 2 * GROUP + 5}
    assert same(listed(table), before)
    assert_sound(table)


def test_sorted_files_and_slices_with_log_files_are_encoded(tmp_path: Path) -> None:
    merge_on_read = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    copying, encoding = twins(tmp_path, [2 * GROUP, 2 * GROUP], **merge_on_read)
    for table in (copying, encoding):
        table.upsert(rows([3], 5))
    assert counts(cluster_both(copying, encoding))["copied_rows"] == 0
    assert counts(copying.cluster(["v"]))["copied_rows"] == 0


@pytest.mark.parametrize("version", [8, 9])
def test_statistics_in_the_metadata_table_are_the_same(tmp_path: Path, version: int) -> None:
    pair = twins(tmp_path, [2 * GROUP, 9, 2 * GROUP], **INDEXED, **{"hoodie.write.table.version": version})
    assert counts(cluster_both(*pair))["copied_rows"] >= 4 * GROUP
    found = []
    for table in pair:
        [path] = base_paths(table)
        statistics = open_table(Path(table.context.storage.location))
        assert statistics is not None
        stored = statistics.column_stats().drop_columns(["key", "size_bytes", "unpacked_bytes"]).to_pylist()
        found.append({row.pop("column_name"): row for row in stored if row.pop("file_name") == path.name})
        assert found[-1]["id"]["max.StringWrapper"] == key(4 * GROUP + 8)
    assert found[0] == found[1]


def test_page_indexes_are_kept_if_all_copied_row_groups_have_one(tmp_path: Path) -> None:
    copying, encoding = twins(tmp_path, [2 * GROUP, 3, 2 * GROUP])
    form: dict[str, Any] = {"write_page_index": True, "compression": "zstd"}
    encode_again(tmp_path, **form)
    cluster_both(copying, encoding)
    [path] = base_paths(copying)
    footer = pq.read_metadata(path)
    assert [footer.row_group(at).column(0).has_offset_index for at in range(5)] == [True] * 5
