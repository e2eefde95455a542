"""Merges that copy row groups byte for byte: the same rows, statistics and counts as merges that encode all rows."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.codec.bloom import BloomFilter, hash_chain
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, MAX_KEY, MIN_KEY, group_bytes
from lakeformat.model.record import META_COLUMNS
from lakeformat.write.handles.row_group_copies import choose_copies
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema
from tests.metadata_table.test_fixtures import open_table

GROUP = 40
SCHEMA = a_schema(
    id="string",
    v="int64",
    f="float64",
    s="string",
    l=pa.list_(pa.int32()),
    r=pa.struct({"x": pa.int64(), "y": pa.string()}),
    m=pa.map_(pa.string(), pa.int64()),
    t=pa.timestamp("us", "UTC"),
    d=pa.decimal128(12, 2),
)
OPTIONS: dict[str, Any] = {"lakeformat.parquet.row.group.rows": GROUP, "hoodie.metadata.enable": False}


def key(number: int) -> str:
    return f"key-{number:06d}"


def rows(numbers: Any, edition: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return one row per number. Some values are null, and some floats are NaN."""
    listed = [
        {
            "id": key(number),
            "v": None if number % 11 == 0 else number * 100 + edition,
            "f": float("nan") if number % 13 == edition % 13 else number / 7,
            "s": None if number % 5 == 0 else f"text {number % 17} of {edition}",
            "l": None if number % 6 == 0 else [edition] * (number % 4),
            "r": None if number % 7 == 0 else {"x": number, "y": None if number % 2 else "y"},
            "m": [("a", number), ("b", None)][: number % 3],
            "t": 1_700_000_000_000_000 + number,
            "d": None,
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(listed, SCHEMA).select(schema.names)


def new_table(path: Path, count: int = 10 * GROUP, **options: Any) -> Table:
    table = lakeformat.create(path, SCHEMA, record_key="id", **{**OPTIONS, **options})
    table.insert(rows(range(count), 0))
    return table


def twins(path: Path, **options: Any) -> tuple[Table, Table]:
    """Return two copies of one table: the first copies row groups, the second encodes all rows."""
    new_table(path / "a", **options)
    shutil.copytree(path / "a", path / "b")
    both = {**OPTIONS, **options}
    return (
        lakeformat.open(path / "a", **both),
        lakeformat.open(path / "b", **both, **{"lakeformat.write.copy.row.groups": False}),
    )


def counts(result: Any) -> dict[str, int]:
    [step] = [step for step in result.report["steps"] if step["step"] == "write"]
    return {name: step.get(name, 0) for name in ("copied_rows", "encoded_rows", "copied_bytes", "encoded_bytes")}


def listed(table: Table) -> list[dict[str, Any]]:
    """Return all rows with their meta columns; its instants become numbers of commits."""
    numbers = {commit.instant_time: f"commit {at}" for at, commit in enumerate(reversed(table.history()))}
    found = table.to_arrow(meta_columns=True).sort_by("id").to_pylist()
    for row in found:
        del row["_hoodie_file_name"]
        instant = row["_hoodie_commit_time"]
        row["_hoodie_commit_time"] = numbers[instant]
        row["_hoodie_commit_seqno"] = row["_hoodie_commit_seqno"].replace(instant, numbers[instant])
    return found


def same(one: Any, other: Any) -> bool:
    """Compare values; NaN equals NaN."""
    return repr(one) == repr(other)


def base_paths(table: Table) -> list[Path]:
    root = Path(table.context.storage.location)
    return [root / piece.base.path for piece in table.context.snapshot().each_slice() if piece.base is not None]


def assert_sound(table: Table) -> None:
    """Check each base file against its rows: file names, bloom filter, key range, checksums, statistics."""
    for path in base_paths(table):
        stored = pq.ParquetFile(path, page_checksum_verification=True)
        found = stored.read()
        assert set(found.column("_hoodie_file_name").to_pylist()) == {path.name}
        entries = stored.metadata.metadata
        keys = found.column("_hoodie_record_key").to_pylist()
        assert entries[MIN_KEY].decode() <= min(keys)
        assert entries[MAX_KEY].decode() >= max(keys)
        assert entries[BLOOM]
        assert stored.metadata.num_rows == len(keys)
        for at in range(stored.metadata.num_row_groups):
            group = stored.read_row_group(at)
            for leaf in range(stored.metadata.num_columns):
                chunk = stored.metadata.row_group(at).column(leaf)
                if chunk.statistics is None or "." in chunk.path_in_schema or chunk.path_in_schema == "f":
                    continue
                values = [each for each in group.column(chunk.path_in_schema).to_pylist() if each is not None]
                assert chunk.statistics.null_count == len(group) - len(values)
                if values:
                    assert (chunk.statistics.min, chunk.statistics.max) == (min(values), max(values))
        bloom = BloomFilter.decode(entries[BLOOM], entries.get(BLOOM_TYPE, b"").decode() or None)
        chain = hash_chain(found.column("_hoodie_record_key").combine_chunks(), bloom.hashes)
        assert bloom.might_contain(chain).all()


def encode_again(path: Path, **options: Any) -> None:
    """Write all base files of two twins again, with the same rows and entries but other options of the writer."""
    for file in path.glob("*/*.parquet"):
        stored = pq.ParquetFile(pa.BufferReader(file.read_bytes()))
        entries = {name: value for name, value in stored.metadata.metadata.items() if name != b"ARROW:schema"}
        with pq.ParquetWriter(file, stored.schema_arrow, store_schema=False, **options) as writer:
            for at in range(stored.metadata.num_row_groups):
                writer.write_table(stored.read_row_group(at))
            writer.add_key_value_metadata(entries)


#: Base files as other pyarrow writers may have made them.
FORMS: dict[str, dict[str, Any] | None] = {
    "ours": None,
    "page index": {"write_page_index": True, "compression": "zstd", "data_page_size": 64, "write_batch_size": 5},
    "version 2 pages": {"data_page_version": "2.0", "compression": "zstd", "write_page_checksum": True},
    "sorting columns": {"sorting_columns": [pq.SortingColumn(2)], "compression": "none"},
    "no dictionaries": {"use_dictionary": False, "compression": "zstd"},
}


@pytest.mark.parametrize("form", FORMS)
def test_upsert_copies_the_row_groups_that_it_does_not_touch(tmp_path: Path, form: str) -> None:
    copying, encoding = twins(tmp_path)
    if FORMS[form] is not None:
        encode_again(tmp_path, **FORMS[form])
    before = {row["id"]: row for row in copying.to_arrow(meta_columns=True).to_pylist()}
    changed = rows(range(2 * GROUP + 3, 2 * GROUP + 9), 1)
    results = [table.upsert(changed) for table in (copying, encoding)]
    assert counts(results[0])["copied_rows"] == 9 * GROUP
    assert counts(results[0])["encoded_rows"] == GROUP
    assert counts(results[1])["copied_rows"] == 0
    assert results[0].rows == results[1].rows
    assert same(listed(copying), listed(encoding))
    for row in copying.to_arrow(meta_columns=True).to_pylist():
        if row["id"] not in set(changed.column("id").to_pylist()):
            old = before[row["id"]]
            assert same({**row, "_hoodie_file_name": ""}, {**old, "_hoodie_file_name": ""})
    assert_sound(copying)
    [path] = base_paths(copying)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    assert chunk.has_offset_index == pq.read_metadata(path).row_group(2).column(0).has_offset_index
    assert chunk.has_offset_index == (form == "page index")
    theirs, ours = hudi_rs.rows_by_key(hudi_rs.read(tmp_path / "a")), copying.to_arrow(meta_columns=True)
    assert same(theirs, hudi_rs.rows_by_key(ours))


#: Statements that choose rows by a condition.
CONDITIONS: dict[str, Any] = {
    "delete": lambda table, where, _: table.delete(where=where),
    "update": lambda table, where, edition: table.update({"s": f"new {edition}", "f": None}, where=where),
    "compute": lambda table, where, _: table.update({"v": lambda rows: pc.add(rows["v"], 1)}, where=where),
    "set nested": lambda table, where, edition: table.update({"r": {"x": edition, "y": "z"}}, where=where),
    "set to what is": lambda table, where, _: table.update({"d": None}, where=where),
}
WHERE = ["v > 20000", "v between 8000 and 12500", "f > 3", "s = 'text 3 of 0'", "v is null", "r.x < 45", "true"]


@pytest.mark.parametrize(
    ("where", "copied", "encoded"),
    [
        ("id >= 'key-000120' and id < 'key-000160'", 9 * GROUP, 0),  # A whole row group goes.
        ("v >= 12000 and v < 16000", 9 * GROUP, 4),
        ("v = 16100", 9 * GROUP, GROUP - 1),
        ("s = 'text 3 of 0' and v < 8000", 8 * GROUP, 2 * GROUP - 4),
        ("s = 'text 33'", 10 * GROUP, 0),  # The statistics of each row group allow the text, but no row has it.
    ],
)
def test_delete_by_condition_copies_row_groups_without_a_match(
    tmp_path: Path, where: str, copied: int, encoded: int
) -> None:
    copying, encoding = twins(tmp_path)
    results = [table.delete(where=where) for table in (copying, encoding)]
    assert results[0].rows == results[1].rows
    assert same(listed(copying), listed(encoding))
    assert_sound(copying)
    if results[0].rows.deleted:
        assert (counts(results[0])["copied_rows"], counts(results[0])["encoded_rows"]) == (copied, encoded)


@pytest.mark.parametrize("form", FORMS)
def test_update_of_one_column_copies_the_other_columns(tmp_path: Path, form: str) -> None:
    copying, encoding = twins(tmp_path)
    if FORMS[form] is not None:
        encode_again(tmp_path, **FORMS[form])
    [old] = base_paths(copying)
    before = pq.ParquetFile(pa.BufferReader(old.read_bytes())).metadata
    results = [table.update({"d": 3}, where="v >= 16000") for table in (copying, encoding)]
    assert results[0].rows == results[1].rows
    assert same(listed(copying), listed(encoding))
    assert_sound(copying)
    [path] = base_paths(copying)
    after = pq.read_metadata(path)
    found = counts(results[0])
    unchanged = {"_hoodie_record_key", "_hoodie_partition_path", "id", "s", "l.list.element", "r.y"}
    for at in range(4, 10):
        chunks = [
            {c.path_in_schema: c for c in map(of.row_group(at).column, range(of.num_columns))} for of in (before, after)
        ]
        for name in unchanged:
            one, other = (each[name].to_dict() for each in chunks)
            assert one["statistics"] == other["statistics"]
            assert one["total_compressed_size"] == other["total_compressed_size"]
    assert found["copied_rows"] == 4 * GROUP
    whole = sum(group_bytes(before, at) for at in range(4))
    assert whole * 1.5 < found["copied_bytes"] < whole * 2.5
    theirs = hudi_rs.rows_by_key(hudi_rs.read(tmp_path / "a"))
    assert same(theirs, hudi_rs.rows_by_key(copying.to_arrow(meta_columns=True)))


def test_upsert_copies_columns_with_the_same_values(tmp_path: Path) -> None:
    """An upsert of whole rows that change one column encodes that column, and the meta columns."""
    copying, encoding = twins(tmp_path)
    stored = copying.to_arrow(where="v between 4000 and 4500")
    changed = stored.set_column(1, SCHEMA.field("v"), pc.add(stored.column("v"), 7))
    results = [table.upsert(changed) for table in (copying, encoding)]
    assert results[0].rows == results[1].rows
    assert same(listed(copying), listed(encoding))
    assert_sound(copying)
    found = counts(results[0])
    assert found["copied_rows"] == 9 * GROUP
    [path] = base_paths(copying)
    copied_groups = sum(pq.read_metadata(path).row_group(at).total_byte_size for at in (0, 2, 3, 4, 5, 6, 7, 8, 9))
    assert found["copied_bytes"] > copied_groups * 0.5


def test_floats_that_differ_in_bits_are_changes(tmp_path: Path) -> None:
    copying, _ = twins(tmp_path)
    copying.update({"f": 0.0}, where="v between 4000 and 4500")
    copying.update({"f": -0.0}, where="v between 4000 and 4200")
    found = copying.to_arrow(["f"], where="v between 4000 and 4500").column("f").to_pylist()
    assert sorted({str(value) for value in found}) == ["-0.0", "0.0"]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_merge_statement_copies_row_groups(tmp_path: Path, kind: str) -> None:
    copying, encoding = twins(tmp_path, **{"hoodie.datasource.write.table.type": kind})
    results = []
    for table in (copying, encoding):
        merge = table.merge(rows([45, 47, 9000], 3)).when_matched_update({"s": "merged"}).when_not_matched_insert()
        results.append(merge.execute())
    assert results[0].rows == results[1].rows
    assert same(listed(copying), listed(encoding))


@pytest.mark.slow
@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_histories_with_and_without_copies_are_alike(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.mktemp("twins")
    copying, encoding = twins(path)
    for edition in range(1, data.draw(st.integers(2, 4))):
        start = data.draw(st.integers(0, 12 * GROUP), "start")
        numbers = range(start, start + data.draw(st.integers(1, 3 * GROUP), "count"), data.draw(st.integers(1, 30)))
        verb = data.draw(st.sampled_from(["upsert", "delete", "insert", *CONDITIONS]))
        if verb == "insert":
            numbers = range(100_000 * edition, 100_000 * edition + len(numbers))
        if verb in CONDITIONS:
            where = data.draw(st.sampled_from(WHERE))
            results = [CONDITIONS[verb](table, where, edition) for table in (copying, encoding)]
        else:
            results = [getattr(table, verb)(rows(numbers, edition)) for table in (copying, encoding)]
        assert results[0].rows == results[1].rows
        assert same(listed(copying), listed(encoding))
        assert_sound(copying)
        filters = ["f > 3", "f > 1e300", "v is null", "id = 'key-000077'", "s < 'text 3'"]
        for where in filters:
            ours, others = (
                sorted(t.to_arrow(where=where).to_pylist(), key=lambda r: r["id"]) for t in (copying, encoding)
            )
            assert same(ours, others), where


def test_files_of_another_codec_are_encoded(tmp_path: Path) -> None:
    copying, encoding = twins(tmp_path)
    encode_again(tmp_path, compression="gzip")
    results = [table.upsert(rows([1], 1)) for table in (copying, encoding)]
    assert counts(results[0])["copied_rows"] == 0
    assert same(listed(copying), listed(encoding))


def test_files_that_lack_a_column_are_encoded(tmp_path: Path) -> None:
    copying, encoding = twins(tmp_path)
    wider = SCHEMA.append(pa.field("late", pa.int64()))
    for table in (copying, encoding):
        changed = rows([1], 1).append_column(wider.field("late"), pa.array([7]))
        assert counts(table.upsert(changed))["copied_rows"] == 0
    assert same(listed(copying), listed(encoding))
    for table in (copying, encoding):
        changed = rows([2], 2).append_column(wider.field("late"), pa.array([8]))
        copied = counts(table.upsert(changed))["copied_rows"]
        assert copied == (9 * GROUP if table is copying else 0)
    assert same(listed(copying), listed(encoding))


def test_keys_without_an_inherited_filter_are_read(tmp_path: Path) -> None:
    """Inserts that do not fit into the stored filter make a new one, of all keys."""
    copying, encoding = twins(tmp_path)
    added = rows(range(1_000, 1_000 + 8 * GROUP), 1)
    results = [table.insert(added) for table in (copying, encoding)]
    assert counts(results[0])["copied_rows"] == 10 * GROUP
    assert same(listed(copying), listed(encoding))
    assert_sound(copying)


@pytest.mark.parametrize("repeats", [False, True])
def test_change_data_is_the_same(tmp_path: Path, repeats: bool) -> None:
    """The same holds where inserts have stored a key twice."""
    copying, encoding = twins(tmp_path, **{"hoodie.table.cdc.enabled": True})
    results = []
    for table in (copying, encoding):
        if repeats:
            again = pa.concat_tables([rows(range(400, 430), 0)] * 2)
            table.insert(again)
            assert table.count() == 460
        begin = table.history()[0].instant_time
        table.update({"s": "changed"}, where="id >= 'key-000410' or id = 'key-000007'")
        table.upsert(rows([411, 412, 413, 90], 5))
        table.upsert(rows([3, 4, 5000], 1))
        table.delete(rows([6, 200], 1))
        listed_changes = table.changes(begin, images=True).to_arrow().to_pylist()
        for change in listed_changes:
            change.pop("ts_ms", None)
        results.append(sorted(repr(change) for change in listed_changes))
    assert same(listed(copying), listed(encoding))
    assert results[0] == results[1]
    assert len(results[0]) == (53 if repeats else 10)


def test_a_plan_tells_what_a_write_copies(tmp_path: Path) -> None:
    copying, encoding = twins(tmp_path)
    changed = rows([5, 6, 7], 1)
    planned = copying.plan_upsert(changed)
    assert "copied" in str(planned)
    assert "copied" not in str(encoding.plan_upsert(changed))
    done = counts(copying.upsert(changed))
    [file] = planned.files
    assert file.copied_rows == done["copied_rows"]
    assert 0 < planned.copied_bytes <= done["copied_bytes"]


@pytest.mark.parametrize(
    ("rewritten", "small", "appends", "copied"),
    [
        ("0100", "0000", False, "1011"),
        ("0100", "1000", False, "0011"),
        ("0000", "0100", False, "1111"),
        ("0000", "0110", False, "1001"),
        ("0000", "0001", True, "1110"),
        ("0000", "0001", False, "1111"),
        ("1111", "0000", True, "0000"),
    ],
)
def test_small_row_groups_join_neighbours(rewritten: str, small: str, appends: bool, copied: str) -> None:
    flags = [[each == "1" for each in text] for text in (rewritten, small)]
    assert "".join(str(int(each)) for each in choose_copies(*flags, appended=int(appends))) == copied


@pytest.mark.parametrize(
    ("groups", "rewritten", "appended", "copied"),
    [
        ([100, 8], "00", 4, "11"),
        ([100, 8], "00", 8, "10"),
        ([100, 8, 4, 2, 1], "00000", 0, "11111"),
        ([100, 8, 4, 2, 1], "00000", 1, "10000"),
        ([100, 8, 4, 1], "0000", 1, "1110"),
        ([100, 4, 4], "000", 0, "100"),
        ([100, 4, 8], "000", 0, "100"),
        ([100, 8, 4, 2], "0010", 0, "1100"),
        ([100, 8, 4, 2], "0100", 0, "1000"),
        ([8, 100, 8], "010", 0, "000"),
        ([100, 8], "00", 200, "10"),
        ([100, 60], "00", 60, "11"),
    ],
)
def test_small_row_groups_grow_like_the_rows_that_join_them(
    groups: list[int], rewritten: str, appended: int, copied: str
) -> None:
    found = choose_copies([each == "1" for each in rewritten], [n < 50 for n in groups], groups, appended=appended)
    assert "".join(str(int(each)) for each in found) == copied


@pytest.mark.parametrize("rows", [1, 7, 49])
def test_many_appends_encode_each_row_a_few_times(rows: int) -> None:
    groups: list[int] = []
    encoded = 0
    for _ in range(400):
        small = [n < 50 for n in groups]
        found = choose_copies([False] * len(groups), small, groups, appended=rows)
        kept = [n for n, is_copied in zip(groups, found, strict=True) if is_copied]
        added = sum(groups) - sum(kept) + rows
        encoded += added
        groups = [*kept, *([100] * (added // 100)), *([added % 100] if added % 100 else [])]
        assert sum(n < 50 for n in groups) <= math.log2(100)
    assert encoded <= (1 + math.log2(100)) * 400 * rows


def test_meta_columns_are_all_there(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    table.upsert(rows([5], 1))
    assert [*META_COLUMNS] == pq.read_schema(base_paths(table)[0]).names[:5]


def test_statistics_in_the_metadata_table_are_the_same(tmp_path: Path) -> None:
    indexed = {
        "hoodie.write.table.version": 9,
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.column.stats.column.list": "id,v,s,t",
    }
    one, other = twins(tmp_path, **indexed)
    found = []
    for table in (one, other):
        result = table.upsert(rows([5, 7, 401], 1))
        assert (counts(result)["copied_rows"] > 0) == (table is one)
        [path] = base_paths(table)
        statistics = open_table(Path(table.context.storage.location))
        assert statistics is not None
        stored = statistics.column_stats().drop_columns(["key", "size_bytes", "unpacked_bytes"]).to_pylist()
        found.append({row.pop("column_name"): row for row in stored if row.pop("file_name") == path.name})
        assert found[-1]["id"]["max.StringWrapper"] == key(401)
    for each in found:
        each.pop("_hoodie_commit_time", None)
    assert found[0] == found[1]
