"""New keys rewrite no file: the false positives of a filter are found before the merge.

The oracle is the files themselves: every key column, and every filter, tested key by key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.codec.bloom import hash_chain
from lakeformat.files.footers import read_key_footer
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.operation import Operation
from lakeformat.storage import MemoryStorage
from tests.helpers.base_files import POOL, write_file
from tests.helpers.local_shuffle import write_shuffled
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="string", v="int64")
FILES, ROWS, NEW, RATE = 30, 500, 400, 3e-3
OPTIONS: Final[Mapping[str, Any]] = {"hoodie.index.bloom.fpp": RATE, "hoodie.parquet.small.file.limit": 0}


def keys(seed: int, count: int) -> list[str]:
    """Return random keys, the same for the same seed."""
    return [f"{number:016x}" for number in np.random.default_rng(seed).integers(0, 2**62, count).tolist()]


def rows(ids: Sequence[str], v: int = 0) -> pa.Table:
    return pa.table([pa.array(ids, pa.string()), pa.array([v] * len(ids), pa.int64())], schema=SCHEMA)


def count_false_positives(table: lakeformat.Table, ids: Sequence[str]) -> list[int]:
    """Return, for each file, the number of keys that its range and its filter let through by mistake."""
    found = []
    for number, file in enumerate(table.snapshot().files):
        bloom = read_key_footer(table.context.storage, file).bloom(table.context.storage)
        assert bloom is not None
        held = set(keys_of(table, number))
        within = [key for key in ids if min(held) <= key <= max(held)]
        passed = bloom.might_contain(hash_chain(pa.array(within), bloom.hashes))
        found.append(sum(bool(flag) and key not in held for key, flag in zip(within, passed, strict=True)))
    return found


def keys_of(table: lakeformat.Table, number: int) -> list[str]:
    file = table.snapshot().files[number]
    with table.context.storage.open_input(file.path) as source:
        return list(pq.read_table(source, columns=["id"])["id"].to_pylist())


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of files of random keys, so that every range holds nearly every key."""
    path = tmp_path_factory.mktemp("new_keys") / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id", **OPTIONS)
    for number in range(FILES):
        table.insert(rows(keys(number, ROWS)))
    return path


def copied(path: Path, to: Path, kind: str) -> lakeformat.Table:
    shutil.copytree(path, to)
    return lakeformat.open(to, **OPTIONS, **{"hoodie.index.type": kind})


def count(result: lakeformat.WriteResult, step: str, name: str) -> int:
    return sum(int(each.get(name, 0)) for each in result.report["steps"] if each["step"] == step)


WAYS: Final[Mapping[str, Callable[[lakeformat.Table, pa.Table], lakeformat.WriteResult]]] = {
    "upsert": lambda table, new: table.upsert(new),
    "exchanged": lambda table, new: write_shuffled(table, [new], Operation.UPSERT, unit_bytes=1 << 40),
    "merge": lambda table, new: table.merge(new).when_matched_update().when_not_matched_insert().execute(),
    "delete": lambda table, new: table.delete(new.select(["id"])),
}


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), [*((way, "AUTO") for way in WAYS), ("upsert", "BLOOM")])
def test_new_keys_rewrite_no_file(way: str, kind: str, overlapping: Path, tmp_path: Path) -> None:
    table = copied(overlapping, tmp_path / "t", kind)
    new = rows(keys(99, NEW), 1)
    wrong = count_false_positives(table, new["id"].to_pylist())
    assert sum(map(bool, wrong)) > 5, "filters err often enough to tell something"
    before = {file.path for file in table.snapshot().files}
    if way == "upsert":
        plan = table.plan_upsert(new)
        assert (plan.updates, plan.inserts, [file.file_id for file in plan.files]) == (0, NEW, [None])
    result = WAYS[way](table, new)
    after = {file.path for file in table.snapshot().files}
    assert before <= after
    assert count(result, "tag", "false_positives") == sum(wrong)
    assert result.report["rows"].get("updated", 0) == 0
    assert table.to_arrow().num_rows == FILES * ROWS + (0 if way == "delete" else NEW)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["upsert", "exchanged", "merge"])
def test_among_updates_only_their_files_are_rewritten(way: str, overlapping: Path, tmp_path: Path) -> None:
    table = copied(overlapping, tmp_path / "t", "AUTO")
    touched = {at: table.snapshot().files[at] for at in (3, 17)}
    known = [key for at in touched for key in keys_of(table, at)[:50]]
    new = keys(99, NEW)
    wrong = count_false_positives(table, [*known, *new])
    result = WAYS[way](table, rows([*known, *new], 1))
    after = {file.path for file in table.snapshot().files}
    assert {file.path for file in touched.values()}.isdisjoint(after)
    assert len(after) == FILES + 1
    assert result.report["rows"]["updated"] == len(known)
    assert result.report["rows"]["inserted"] == NEW
    found = table.to_arrow(where="v = 1")["id"].to_pylist()
    assert sorted(found) == sorted([*known, *new])
    reported = count(result, "tag", "false_positives") + count(result, "write", "false_positives")
    assert reported == sum(wrong)


@pytest.mark.parametrize("new", [20, 3_000])
def test_few_new_keys_are_looked_up_like_many(new: int) -> None:
    """If a batch has one false positive and only new keys otherwise, that one is verified, too."""
    storage = MemoryStorage()
    files = [write_file(storage, number, keys(number, ROWS), fpp=1e-3) for number in range(10)]
    wrong = 0
    for seed in range(100, 100 + 6_000 // new):
        tagged = tag_files(storage, files, pa.chunked_array([keys(seed, new)]), TagSettings("BLOOM"), POOL)
        assert len(tagged.new) == new
        wrong += tagged.counts.false_positives
    assert wrong > 2


def test_updates_do_not_pay_for_the_check() -> None:
    storage = MemoryStorage()
    held = [keys(number, ROWS) for number in range(FILES)]
    files = [write_file(storage, number, own, fpp=1e-4) for number, own in enumerate(held)]
    for each in (10, 100):
        wanted = pa.chunked_array([[key for own in held for key in own[:each]]])
        counts = tag_files(storage, files, wanted, TagSettings("BLOOM"), POOL).counts
        assert counts.files_read <= 2 * (counts.after_filters - len(wanted)), "only of two candidates for one key"
    # By mistake, one key in three thousand has a candidate: such keys are too rare to verify.
    counts = tag_files(storage, files, pa.chunked_array([held[7][:1]]), TagSettings("BLOOM"), POOL).counts
    assert counts.files_read == 0


def test_the_check_reads_only_row_groups_in_question() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, sorted(keys(1, 10_000)), fpp=5e-3, row_group_rows=100)
    counts = tag_files(storage, [file], pa.chunked_array([keys(2, 1_000)]), TagSettings("BLOOM"), POOL).counts
    assert 0 < counts.false_positives == counts.checked < 20
    whole = tag_files(storage, [file], pa.chunked_array([keys(2, 1_000)]), TagSettings("SIMPLE"), POOL).counts
    assert 0 < counts.bytes_read < 0.3 * whole.bytes_read
