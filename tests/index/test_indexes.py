"""One law for every index: it finds each key in the files in which a loop over all keys and files finds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.config.option import INDEX_TYPES
from lakeformat.errors import InvalidOptionError
from lakeformat.file_system_view.live_files import ListedFiles
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.bloom import GlobalIndex, find_possible_files
from lakeformat.index.bucket import bucket_file_id
from lakeformat.index.factory import INDEXES, make_index
from lakeformat.index.port import Index, IndexSettings, Tagged
from lakeformat.index.record_index import RecordIndex
from lakeformat.model.files import BaseFile
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import ColumnBounds
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.timeline import Timeline
from tests.helpers import hudi_rs
from tests.helpers.base_files import FOOTERS, rewrite, write_file
from tests.helpers.examples import examples
from tests.helpers.tables import a_batch, a_schema

#: Texts whose order differs in UTF-8 and in UTF-16 (Java): characters beyond U+FFFF against U+E000 and up.
KEYS = st.one_of(
    st.integers(0, 40).map(lambda n: f"key-{n:03}"),
    st.text(st.sampled_from("a:,\ue000\uffff\U00010000\U0010ffff"), min_size=1, max_size=3),
)
PARTITIONS = ("", "p", "q")
Held = Mapping[BaseFile, set[str]]
FILES = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), st.sets(KEYS, max_size=8), st.sampled_from(sorted(FOOTERS)), st.booleans()),
    max_size=6,
)
WANTED = st.dictionaries(st.sampled_from([*PARTITIONS, "new"]), st.sets(KEYS, max_size=12), max_size=4)


def snapshot_of(files: Held) -> Snapshot:
    listed = sorted(files, key=lambda file: (file.partition_path, file.name.file_id))
    return Snapshot(TableConfig({}), Timeline(()), None, None, ListedFiles(tuple(listed)))


def columns_of(wanted: Mapping[str, set[str]]) -> dict[str, pa.ChunkedArray]:
    return {path: pa.chunked_array([sorted(keys, reverse=True)], pa.string()) for path, keys in wanted.items()}


def places(tagged: Tagged, keys: list[str]) -> dict[str, set[BaseFile]]:
    found = defaultdict(set)
    for at, file in zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True):
        found[keys[at]].add(tagged.searched[file].base)
    assert sorted([*{*tagged.keys.tolist()}, *tagged.new.tolist()]) == list(range(len(keys)))
    new = [keys[at].encode() for at in tagged.new.tolist()]
    assert new == sorted(new)
    return dict(found)


def check(index: Index, storage: MemoryStorage, held: Held, wanted: Mapping[str, set[str]], *, exact: bool) -> None:
    """Compare with the loop. A key may have one wrong candidate, in its own partition, unless ``exact``."""
    columns = columns_of(wanted)
    located = index.locate(storage, snapshot_of(held), columns)
    assert set(located) == set(columns)
    is_global = isinstance(index, (GlobalIndex, RecordIndex))
    for path, column in columns.items():
        keys = column.to_pylist()
        found = places(located[path], keys)
        for key in keys:
            truth = {f for f, own in held.items() if key in own and (is_global or f.partition_path == path)}
            if truth or exact or is_global:
                assert found.get(key, set()) == truth
            else:
                assert len(found.get(key, set())) <= 1
        if not is_global:
            assert {file.partition_path for files in found.values() for file in files} <= {path}


STATELESS = [kind for kind in INDEXES if kind != "BUCKET"]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", STATELESS)
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FILES, wanted=WANTED, ranges=st.booleans(), tree=st.booleans())
def test_every_index_finds_every_key(
    kind: str,
    exact: bool,
    files: list[tuple[str, set[str], str, bool]],
    wanted: Mapping[str, set[str]],
    ranges: bool,
    tree: bool,
) -> None:
    storage = MemoryStorage()
    held = {}
    for number, (partition, keys, footer, statistics) in enumerate(files):
        file = write_file(storage, number, sorted(keys), fpp=0.3, partition=partition)
        rewrite(storage, file, FOOTERS[footer], statistics=statistics)
        held[file] = keys
    index = make_index(IndexSettings(kind, ranges, tree, exact))
    check(index, storage, held, wanted, exact=exact or kind in {"INMEMORY", "SIMPLE"})


@pytest.mark.parametrize("exact", [True, False])
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=st.dictionaries(st.sampled_from(PARTITIONS), st.sets(KEYS, max_size=20), max_size=3),
    wanted=WANTED,
    buckets=st.integers(1, 4),
)
def test_every_key_is_found_in_its_bucket(
    exact: bool, stored: Mapping[str, set[str]], wanted: Mapping[str, set[str]], buckets: int
) -> None:
    storage, held = MemoryStorage(), {}
    index = make_index(IndexSettings("BUCKET", exact=exact, buckets=buckets, hash_fields=("id",)))
    columns = columns_of(stored)
    for path, placed in index.place(storage, snapshot_of({}), columns).items():
        assert placed.new_buckets is not None
        keys = columns[path].take(pa.array(placed.new)).to_pylist()
        for bucket in set(placed.new_buckets.tolist()):
            mine = [key for key, its in zip(keys, placed.new_buckets.tolist(), strict=True) if its == bucket]
            file_id = bucket_file_id(bucket, f"{bucket:08}-0000")
            held[write_file(storage, bucket, mine, partition=path, file_id=file_id)] = set(mine)
    check(index, storage, held, wanted, exact=exact)


@given(before=FILES, after=FILES, wanted=WANTED)
@settings(max_examples=examples(30))
def test_memory_index_follows_changes_of_the_files(
    before: list[tuple[str, set[str], str, bool]],
    after: list[tuple[str, set[str], str, bool]],
    wanted: Mapping[str, set[str]],
) -> None:
    storage, index = MemoryStorage(), make_index(IndexSettings("INMEMORY"))
    first = {write_file(storage, n, sorted(keys), partition=p): keys for n, (p, keys, _, _) in enumerate(before)}
    check(index, storage, first, wanted, exact=True)
    # Another program rewrites some file groups, drops others and adds new ones.
    second = {
        write_file(storage, n, sorted(keys), partition=p, instant="20250101000000000"): keys
        for n, (p, keys, _, _) in enumerate(after)
    }
    kept = {file: keys for at, (file, keys) in enumerate(first.items()) if at % 2}
    check(index, storage, second | kept, wanted, exact=True)
    check(index, storage, first, wanted, exact=True)


SCHEMA = a_schema(id="string", part="string", v="int64")


def rows(numbers: Any, v: int) -> pa.Table:
    return a_batch(SCHEMA, id=[f"k{n}" for n in numbers], part=[f"p{n % 2}" for n in numbers], v=v)


def test_memory_index_reads_each_file_version_once(tmp_path: Path) -> None:
    asked = {"hoodie.index.type": "INMEMORY", "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="part", **asked)

    def files_read(result: Any) -> int:
        (tag,) = (step for step in result.report["steps"] if step["step"] == "tag")
        return int(tag["files_read"])

    assert files_read(table.upsert(rows(range(100), 1))) == 0
    assert files_read(table.upsert(rows([*range(0, 10, 2), 200], 2))) == 2
    # Of those partitions, one group was merged, and one group is new.
    assert files_read(lakeformat.open(tmp_path / "t", **asked).upsert(rows([1], 3))) == 2
    # Another writer updates a row and tops up the smallest file of each partition; p1 has only one file.
    lakeformat.open(tmp_path / "t").upsert(rows([1, 300, 301], 4))
    assert files_read(table.upsert(rows([1, 300, 301, 302], 5))) == 2
    found = {row["id"]: row["v"] for row in hudi_rs.assert_same_rows(table)}
    assert len(found) == table.to_arrow().num_rows == 104
    assert [found[f"k{n}"] for n in (0, 1, 3, 200, 300, 302)] == [2, 5, 1, 2, 5, 5]


def test_every_index_type_is_registered() -> None:
    assert set(INDEX_TYPES) == set(INDEXES)


@pytest.mark.parametrize("kind", ["FLINK_STATE", "HBASE"])
def test_unsupported_index_type_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    said = rf"hoodie\.index\.type='{kind}' is not valid: that index is not built; write one of AUTO, BLOOM"
    with pytest.raises(InvalidOptionError, match=said):
        lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"hoodie.index.type": kind})
    with pytest.raises(InvalidOptionError, match="write one of AUTO, BLOOM"):
        lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"hoodie.index.type": "BLOOMY"})


@given(
    st.lists(st.tuples(st.text("abé￿", max_size=2), st.text("abé￿", max_size=2)) | st.none(), max_size=8),
    st.lists(st.text("abé￿", max_size=3), min_size=1, max_size=6, unique=True),
)
def test_file_is_candidate_if_its_range_holds_a_key(ranges: list[tuple[str, str] | None], keys: list[str]) -> None:
    ends = [None if pair is None else sorted(pair, key=str.encode) for pair in ranges]
    lows, highs = (pa.array([None if pair is None else pair[at] for pair in ends], pa.string()) for at in (0, 1))
    known = ColumnBounds(lows, highs, pa.nulls(len(ends), pa.int64()))
    wanted = [
        at
        for at, pair in enumerate(ends)
        if pair is None or any(pair[0].encode() <= key.encode() <= pair[1].encode() for key in keys)
    ]
    assert find_possible_files(known, pa.chunked_array([keys], pa.string())).tolist() == wanted
