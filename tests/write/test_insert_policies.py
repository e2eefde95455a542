"""insert's duplicate policy, and the rows that overwrites replace. The oracles are sets of keys and hudi-rs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeformat import DuplicateKeyError, InvalidOptionError, Table
from lakeformat.config.resolve import resolve
from lakeformat.model.operation import Operation
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.write.intake import create_table
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", p="string", ts="int64", v="string")
POLICY = "hoodie.datasource.insert.dup.policy"


def rows(keys: Any, partition: str = "x", ts: int = 1, v: str = "old") -> pa.Table:
    return a_batch(SCHEMA, id=list(keys), p=partition, ts=ts, v=v)


def new_table(folder: Path, first: pa.Table | None = None, **options: Any) -> Table:
    commits = [] if first is None else [first]
    kind = {"partition_by": "p", "ordering": "ts", "operation": "upsert"}
    return a_table(folder / "t", schema=SCHEMA, rows=commits, **kind, **options)


def count_rows(table: Table) -> Counter[tuple[int, str, str]]:
    """Count the rows (key, partition, value). Check that hudi-rs reads the same."""
    return Counter((row["id"], row["p"], row["v"]) for row in hudi_rs.assert_same_rows(table))


def test_policy_none_inserts_duplicates(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(range(10)))
    table.insert(rows(range(5, 12), v="new"))
    assert Counter(key for key, _, _ in count_rows(table)) == Counter([*range(10), *range(5, 12)])


@pytest.mark.parametrize("index", ["AUTO", "BLOOM", "SIMPLE", "INMEMORY"])
@pytest.mark.parametrize(
    "how", [{POLICY: "drop"}, {POLICY: "DROP"}, {"hoodie.datasource.write.insert.drop.duplicates": "true"}]
)
def test_policy_drop_keeps_the_stored_row(how: dict[str, str], index: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(range(100)), **how, **{"hoodie.index.type": index})
    table.insert(rows(range(90, 120), ts=9, v="new"))
    wanted = {(key, "x", "old" if key < 100 else "new"): 1 for key in range(120)}
    assert count_rows(table) == wanted
    table.insert(rows(range(120), ts=9, v="newer"))
    assert count_rows(table) == wanted


def test_policies_compare_keys_within_a_partition(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(range(10)), **{POLICY: "fail"})
    table.insert(rows(range(10), partition="y"))
    assert len(count_rows(table)) == 20


def test_policy_drop_keeps_one_row_of_a_batch(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{POLICY: "drop"})
    table.insert(pa.concat_tables([rows([1, 2], ts=5, v="late"), rows([2, 3], ts=1, v="early")]))
    assert count_rows(table) == {(1, "x", "late"): 1, (2, "x", "late"): 1, (3, "x", "early"): 1}


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (rows([50, 7, 51]), "are in the table already, e.g. '7' in partition 'x'"),
        (rows([50, 51, 50]), "come more than once in the input, e.g. '50' in partition 'x'"),
    ],
)
def test_policy_fail_refuses_and_publishes_nothing(batch: pa.Table, words: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(range(10)), **{POLICY: "fail"})
    before = count_rows(table)
    with pytest.raises(DuplicateKeyError, match=words):
        table.insert(batch)
    assert count_rows(table) == before
    assert len(table.history()) == 1
    table.insert(rows([50, 51]))
    assert len(count_rows(table)) == 12


def test_policy_fail_after_deduplication_checks_the_table_only(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows([1]), **{POLICY: "fail", "hoodie.combine.before.insert": True})
    table.insert(rows([2, 2, 3]))
    assert len(count_rows(table)) == 3
    with pytest.raises(DuplicateKeyError):
        table.insert(rows([1]))


def test_bulk_insert_with_a_policy_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{POLICY: "drop"})
    with pytest.raises(InvalidOptionError, match="use operation insert"):
        table.bulk_insert(rows([1]))
    table.upsert(rows([1]))
    table.upsert(rows([1], ts=2, v="new"))
    assert count_rows(table) == {(1, "x", "new"): 1}


KEYS = st.lists(st.integers(0, 12), max_size=12)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["drop", "fail"]), KEYS), min_size=1, max_size=4))
def test_drop_and_fail_never_store_a_key_twice(batches: list[tuple[str, list[int]]]) -> None:
    storage = MemoryStorage()
    base = {"recordkey": "id", "partitionpath": "p", "name": "t"}
    create_table(Table(storage).context.store, resolve(base), SCHEMA, SystemClock())
    model: set[int] = set()
    for policy, keys in batches:
        table = Table(storage, resolve({POLICY: policy}))
        if policy == "fail" and (len(set(keys)) < len(keys) or model & set(keys)):
            with pytest.raises(DuplicateKeyError):
                table.insert(rows(keys))
        else:
            table.insert(rows(keys))
            model |= set(keys)
        assert sorted(Table(storage).to_arrow(["id"])["id"].to_pylist()) == sorted(model)


# --- overwrites ------------------------------------------------------------------------------------------

FIRST = pa.concat_tables([rows(range(5), "x"), rows(range(5), "y"), rows(range(5), "z")])


def test_insert_overwrite_replaces_the_partitions_of_its_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, FIRST)
    table.insert_overwrite(pa.concat_tables([rows([7, 7], "x", v="new"), rows([8], "w", v="new")]))
    kept = {(key, p, "old"): 1 for key in range(5) for p in ("y", "z")}
    assert count_rows(table) == {**kept, (7, "x", "new"): 1, (8, "w", "new"): 1}
    assert table.history()[0].operation == "insert_overwrite"


@pytest.mark.parametrize("combine", [False, True])
def test_insert_overwrite_deduplicates_only_on_request(combine: bool, tmp_path: Path) -> None:
    table = new_table(tmp_path, FIRST, **{"hoodie.combine.before.insert": combine})
    for operation in (Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE):
        table.write(rows([7, 7], "x", v="new"), operation)
        assert count_rows(table)[7, "x", "new"] == (1 if combine else 2)


def test_no_rows_replace_no_partition_but_the_whole_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, FIRST)
    before = count_rows(table)
    table.insert_overwrite(FIRST.slice(0, 0))
    assert count_rows(table) == before
    table.overwrite(FIRST.slice(0, 0))
    assert not count_rows(table)
    table.insert(FIRST)
    assert count_rows(table) == before
