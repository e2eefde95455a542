"""The bucket index with consistent hashing: rings against those of Hudi, writes to buckets, refusals."""

from __future__ import annotations

import itertools
import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeformat
from lakeformat.codec.hashing_metadata import decode_nodes, decode_ring, encode_nodes, encode_ring
from lakeformat.errors import CorruptTableError, InvalidOptionError, UnsupportedTableError, WriteConflictError
from lakeformat.file_system_view.hashing_rings import load_rings
from lakeformat.index.consistent_hashing import ConsistentIndex
from lakeformat.index.port import IndexSettings
from lakeformat.index.stored_keys import read_slice_keys
from lakeformat.model.hashing_metadata import MOST_HASH, HashNode, HashRing, NodeTag, make_first_ring
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, FaultyStorage
from tests.helpers.fixture_tables import unpack
from tests.helpers.tables import a_batch, a_table

FIXTURE: Final = "own_kinds/v9_hashing_mor"
INDEX: Final[dict[str, Any]] = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 3,
}
METADATA: Final = ".hoodie/.bucket_index/consistent_hashing_metadata"


def ring_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / METADATA).rglob("*.hashing_meta"))


def bucket_table(folder: Path, **options: Any) -> lakeformat.Table:
    """Return a merge-on-read table with consistent hashing and 60 rows in two partitions."""
    rows = a_batch(id=range(60), p=["x", "y"] * 30, v=0)
    return a_table(folder, rows=rows, partition_by="p", merge_on_read=True, **{**INDEX, **options})


def check_homes(table: lakeformat.Table) -> None:
    """Check that each key is in the file group of the node that owns its hash, and in no other."""
    snapshot, storage = table.snapshot(), table.context.storage
    settings = IndexSettings("BUCKET", engine="CONSISTENT_HASHING", hash_fields=snapshot.config.record_fields)
    hashing = ConsistentIndex(settings).hash(storage, snapshot)
    for path, pieces in snapshot.slices.items():
        buckets = hashing.of(path)
        for piece in pieces:
            numbers = {*buckets.numbers(read_slice_keys(storage, snapshot, piece).keys).tolist()}
            assert numbers <= {buckets.bucket_of(piece.group.file_id)}


# --- Hudi's rings -------------------------------------------------------------------------------------


def test_keys_are_in_the_buckets_that_hudi_chose(tmp_path: Path) -> None:
    """The fixture's buckets were split and merged by Hudi; its keys have two fields."""
    table = lakeformat.open(unpack(FIXTURE, tmp_path))
    assert {len(pieces) for pieces in table.snapshot().slices.values()} == {2}
    check_homes(table)


def test_first_ring_is_that_of_hudi(tmp_path: Path) -> None:
    for file in ring_files(unpack(FIXTURE, tmp_path)):
        if file.name.startswith("0000"):
            path = file.parent.name
            assert make_first_ring(path, 3) == decode_ring(file.read_bytes(), name=str(file))
            assert json.loads(encode_ring(make_first_ring(path, 3))) == json.loads(file.read_bytes())


def test_rings_of_hudi_follow_from_its_plans(tmp_path: Path) -> None:
    folder = unpack(FIXTURE, tmp_path)
    table = lakeformat.open(folder)
    rings = {
        (file.parent.name, file.stem): decode_ring(file.read_bytes(), name=str(file)) for file in ring_files(folder)
    }
    store = table.context.store
    times = sorted({time for _, time in rings})
    for before, time in itertools.pairwise(times):
        requested = store.read_requested_replace(next(i for i in store.load().instants if i.time == time))
        assert requested is not None
        assert requested.plan is not None
        children: dict[str, list[HashNode]] = {}
        for group in requested.plan.groups:
            nodes = decode_nodes(group.extra["clustering.group.child.node"], name="plan")
            assert decode_nodes(encode_nodes(nodes), name="again") == nodes
            children.setdefault(group.extra["clustering.group.partition"], []).extend(nodes)
        for path, nodes in children.items():
            assert rings[path, before].resized(time, nodes) == rings[path, time]


def test_writes_go_on_in_a_table_of_hudi(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(FIXTURE, tmp_path))
    rows = table.to_arrow()
    table.upsert(rows.slice(0, 40))
    assert table.count() == rows.num_rows
    table.delete(rows.slice(0, 5))
    assert table.count() == rows.num_rows - 5
    check_homes(table)
    hudi_rs.assert_same_rows(table)


# --- the ring -----------------------------------------------------------------------------------------


def names(start: int = 0) -> Any:
    numbers = iter(range(start, start + 1000))
    return lambda: f"n{next(numbers)}"


@given(st.integers(1, 9), st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=12), st.data())
def test_each_hash_has_one_owner_through_all_resizings(
    buckets: int, steps: list[tuple[bool, int]], data: st.DataObject
) -> None:
    """A split or merge moves hash values only between the buckets that it changes."""
    ring, new_prefix = make_first_ring("p", buckets), names()
    hashes = [0, MOST_HASH, *data.draw(st.lists(st.integers(0, MOST_HASH), max_size=20))]
    for splits, where in steps:
        count = len(ring.nodes)
        at = where % count
        positions = (at,) if splits else (at, (at + 1) % count)
        if not splits and count == 1:
            continue
        children = ring.split(at, new_prefix) if splits else ring.merge(positions, new_prefix)
        after = ring.resized("1", children)
        assert len(after.nodes) == count + (1 if splits and children else 0 if splits else -1)
        changed = {ring.nodes[at].prefix for at in positions}
        made = {child.prefix for child in children if child.tag is NodeTag.REPLACE}
        for hash_ in hashes:
            old, new = ring.owner_of(hash_).prefix, after.owner_of(hash_).prefix
            assert (new in made) if old in changed and children else new == old
        ring = after


def test_bucket_with_one_hash_value_is_not_split() -> None:
    ring = HashRing("p", "1", 2, 0, (HashNode(4, "a"), HashNode(5, "b"), HashNode(7, "c")))
    assert ring.split(1, names()) == ()
    assert [node.value for node in ring.split(2, names())] == [6, 7]
    assert [node.value for node in ring.split(0, names())] == [(7 + (MOST_HASH + 1 - 3) // 2) & MOST_HASH, 4]


def test_damaged_ring_is_one_clear_line() -> None:
    good = json.loads(encode_ring(make_first_ring("p", 2)))
    node = good["nodes"][0]
    for change in (
        {"nodes": []},
        {"nodes": [{**node, "value": -1}]},
        {"nodes": [{**node, "fileIdPrefix": None}]},
        {"nodes": [{**node, "fileIdPrefix": "a/../b"}]},
        {"nodes": [{**node, "tag": "OTHER"}]},
        {"version": 3},
        {"seqNo": "1"},
        {"instant": None},
    ):
        with pytest.raises(CorruptTableError, match="the-name"):
            decode_ring(json.dumps({**good, **change}).encode(), name="the-name")
    with pytest.raises(CorruptTableError, match="the-name"):
        decode_ring(b"{", name="the-name")


# --- tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["6", "9"])
def test_writer_that_names_no_index_goes_on(version: str, tmp_path: Path) -> None:
    bucket_table(tmp_path / "t", **{"hoodie.write.table.version": version})
    table = lakeformat.open(tmp_path / "t")
    model = dict.fromkeys(range(60), 0)
    draw = random.Random(1)
    for edition in range(1, 6):
        ids = draw.sample(range(100), 30)
        table.upsert(a_batch(id=ids, p=["xy"[n % 2] for n in ids], v=edition))
        model |= dict.fromkeys(ids, edition)
        gone = draw.sample(range(100), 5)
        table.delete(pa.table({"id": pa.array(gone, pa.int64()), "p": ["xy"[n % 2] for n in gone]}))
        model = {n: v for n, v in model.items() if n not in gone}
        assert {row["id"]: row["v"] for row in hudi_rs.assert_same_rows(table)} == model
    check_homes(table)
    assert str(table.check()) == "nothing is wrong"
    table.upsert(a_batch(id=range(100, 160), p="new", v=9))
    assert len(table.snapshot().slices["new"]) == 3


def test_replaced_partition_gets_new_buckets(tmp_path: Path) -> None:
    table = bucket_table(tmp_path / "t")
    old = {piece.group.file_id for piece in table.snapshot().slices["x"]}
    table.insert_overwrite(a_batch(id=[0, 2], p="x", v=1))
    table.upsert(a_batch(id=range(0, 20, 2), p="x", v=2))
    assert old.isdisjoint(piece.group.file_id for piece in table.snapshot().slices["x"])
    table.delete_partitions("y")
    table.upsert(a_batch(id=[1, 3], p="y", v=3))
    expected = {**dict.fromkeys(range(0, 20, 2), 2), 1: 3, 3: 3}
    assert {row["id"]: row["v"] for row in hudi_rs.assert_same_rows(table)} == expected
    check_homes(table)


def test_buckets_are_back_after_a_rollback_of_the_commit_that_replaced_them(tmp_path: Path) -> None:
    table = bucket_table(tmp_path / "t")
    first = table.history()[0].instant_time
    rings = load_rings(table.context.storage, table.snapshot(), ["x"])
    table.insert_overwrite(a_batch(id=[0, 2], p="x", v=1))
    table.restore(first)
    assert load_rings(table.context.storage, table.snapshot(), ["x"]) == rings
    assert [file.name for file in ring_files(tmp_path / "t")] == ["00000000000000.hashing_meta"] * 2
    table.upsert(a_batch(id=range(60), p=["x", "y"] * 30, v=5))
    assert {row["id"]: row["v"] for row in hudi_rs.assert_same_rows(table)} == dict.fromkeys(range(60), 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hoodie.index.type": "BLOOM"}, "hoodie.index.type=BLOOM, but"),
        ({"hoodie.index.bucket.engine": "SIMPLE"}, "hoodie.index.bucket.engine=SIMPLE, but"),
    ],
)
def test_options_of_another_index_are_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    bucket_table(tmp_path / "t")
    table = lakeformat.open(tmp_path / "t", **options)
    for write in (table.upsert, table.insert_overwrite):
        with pytest.raises(InvalidOptionError, match=message):
            write(a_batch(id=1, p="x", v=1))


def test_other_tables_do_not_become_consistent(tmp_path: Path) -> None:
    simple = a_table(tmp_path / "simple", rows=a_batch(id=range(9), p="x", v=0), merge_on_read=True)
    with pytest.raises(InvalidOptionError, match=r"was not written with .*CONSISTENT_HASHING"):
        lakeformat.open(tmp_path / "simple", **INDEX).upsert(a_batch(id=1, p="x", v=1))
    assert simple.count() == 9
    with pytest.raises(InvalidOptionError, match="does not work with a copy-on-write table"):
        a_table(tmp_path / "cow", rows=a_batch(id=range(9), p="x", v=0), **INDEX)


def test_other_hash_field_is_refused(tmp_path: Path) -> None:
    rows = a_batch(id=range(40), p="x", v=range(40))
    fields = ("id", "v")
    a_table(
        tmp_path / "t", rows=rows, keys=fields, merge_on_read=True, **INDEX, **{"hoodie.bucket.index.hash.field": "id"}
    )
    with pytest.raises(InvalidOptionError, match="holds keys of other buckets"):
        lakeformat.open(tmp_path / "t").upsert(rows)
    lakeformat.open(tmp_path / "t", **{"hoodie.bucket.index.hash.field": "id"}).upsert(rows)


def test_file_group_outside_the_ring_is_refused(tmp_path: Path) -> None:
    """Hudi's insert_overwrite writes such file groups. Our insert_overwrite makes the partition right again."""
    table = bucket_table(tmp_path / "t")
    ring = ring_files(tmp_path / "t")[0]
    ring.write_bytes(encode_ring(make_first_ring(ring.parent.name, 5)))
    (finding,) = table.check().of(Kind.BUCKETS)
    assert "insert_overwrite" in finding.cure
    with pytest.raises(CorruptTableError, match=r"belongs to no bucket .* insert_overwrite"):
        table.upsert(a_batch(id=[0, 2], p=ring.parent.name, v=1))
    table.insert_overwrite(a_batch(id=[0, 2], p=ring.parent.name, v=1))
    table.upsert(a_batch(id=[0, 4], p=ring.parent.name, v=2))
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist() if row["p"] == ring.parent.name} == {
        0: 2,
        2: 1,
        4: 2,
    }


@pytest.mark.parametrize("change", ["cluster", "insert_overwrite", "delete_partitions"])
def test_write_beside_a_change_of_its_buckets_is_done_again(change: str, tmp_path: Path) -> None:
    """Also a bucket that the write opens may be in another file group since."""
    resizes = {"hoodie.bucket.index.max.num.buckets": 9, "hoodie.parquet.max.file.size": 100}
    bucket_table(tmp_path / "t", **{"hoodie.bucket.index.num.buckets": 16})
    other = lakeformat.open(tmp_path / "t", **INDEX, **resizes)
    kept = {1, 3, 5} if change == "insert_overwrite" else set(range(1, 60, 2)) if change == "cluster" else set[int]()
    acts = {
        "cluster": lambda: other.cluster("v"),
        "insert_overwrite": lambda: other.insert_overwrite(a_batch(id=[1, 3, 5], p="y", v=1)),
        "delete_partitions": lambda: other.delete_partitions("y"),
    }
    done, once = list[object](), threading.Lock()

    def interfere(call: Call) -> None:
        if call.name == "open_output" and ".log." in call.path and once.acquire(blocking=False):
            done.append(acts[change]())

    table = lakeformat.Table(FaultyStorage(LocalStorage(str(tmp_path / "t")), meanwhile=interfere))
    table.upsert(a_batch(id=range(61, 161, 2), p="y", v=2))
    assert len(done) == 1
    found = {row["id"] for row in hudi_rs.assert_same_rows(other) if row["p"] == "y"}
    assert found == kept | {*range(61, 161, 2)}
    check_homes(table)
    assert str(table.check()) == "nothing is wrong"


@pytest.mark.parametrize("retries", [0, 1])
def test_writer_of_other_buckets_does_not_commit(retries: int, tmp_path: Path) -> None:
    """Another writer has begun the partition with another number of buckets. The write is refused, or done again."""
    a_table(tmp_path / "t", rows=a_batch(id=1, p="y", v=0), partition_by="p", merge_on_read=True, **INDEX)
    file = tmp_path / "t" / METADATA / "x" / "00000000000000.hashing_meta"

    def interfere(*_: object) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(encode_ring(make_first_ring("x", 2)))

    table = lakeformat.open(tmp_path / "t", **INDEX, **{"lakeformat.write.retries": retries})
    rows = a_batch(id=range(60), p="x", v=0)
    if retries:
        table.upsert(rows, validators=[interfere])
        assert len(table.snapshot().slices["x"]) == 2
        check_homes(table)
        assert table.count() == 61
        return
    with pytest.raises(WriteConflictError, match="were changed by another writer"):
        table.upsert(rows, validators=[interfere])
    assert table.count() == 1


def test_clustering_class_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    key = "hoodie.clustering.plan.strategy.class"
    bucket_table(tmp_path / "t")
    other = lakeformat.open(tmp_path / "t", **{key: "SparkSizeBasedClusteringPlanStrategy"})
    with pytest.raises(InvalidOptionError, match=r"t has consistent hashing; leave the option out"):
        other.cluster()
    a_table(tmp_path / "plain", rows=a_batch(id=1, p="x", v=0))
    plain = lakeformat.open(tmp_path / "plain", **{key: "SparkConsistentBucketClusteringPlanStrategy"})
    with pytest.raises(InvalidOptionError, match=r"plain does not have consistent hashing; leave the option out"):
        plain.cluster("id")


def test_inline_clustering_splits_buckets(tmp_path: Path) -> None:
    inline = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
    limits = {"hoodie.bucket.index.max.num.buckets": 6, "hoodie.parquet.max.file.size": 100}
    table = bucket_table(tmp_path / "t", **inline, **limits)
    assert [commit.operation for commit in table.history()] == ["cluster", "insert"]
    assert {len(pieces) for pieces in table.snapshot().slices.values()} == {6}
    check_homes(table)
    first = table.history()[1].instant_time
    assert table.to_arrow(as_of=first).num_rows == table.count() == 60


def test_plan_for_other_buckets_is_refused(tmp_path: Path) -> None:
    """Another program has changed the ring although a plan was pending."""
    limits = {"hoodie.bucket.index.max.num.buckets": 6, "hoodie.parquet.max.file.size": 100}
    table = bucket_table(tmp_path / "t", **limits)
    planned = table.schedule_clustering()
    for file in ring_files(tmp_path / "t"):
        ring = decode_ring(file.read_bytes(), name=file.name)
        file.write_bytes(encode_ring(replace(ring, sequence=7)))
    with pytest.raises(UnsupportedTableError, match=rf"clustering {planned} was planned for other buckets"):
        table.run_clustering()
    table.cancel_clustering(str(planned))
    assert not table.cluster().skipped
    check_homes(table)
