"""A replica that applies change images in their order, by key, equals the table after each commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import LakeformatError, Table
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", ts="int64", v="string")
IDS, PARTS = st.integers(0, 5), st.sampled_from("abc")
ROWS = st.lists(st.tuples(IDS, PARTS, st.integers(0, 9), st.sampled_from([None, "x", "y"])), max_size=5)
OVER = ["upsert", "delete", "overwrite", "insert_overwrite", "delete_partitions", "update", "delete_where", "merge"]
SERVICES = ["cluster", "compact", "restore"]
STEPS = st.lists(st.tuples(st.sampled_from([*OVER, *OVER, *SERVICES, "insert"]), ROWS), min_size=1, max_size=7)
INDEXES: dict[str, dict[str, Any]] = {
    "bloom": {},
    "global": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2},
}
KINDS = st.fixed_dictionaries(
    {
        "version": st.sampled_from([6, 8, 9]),
        "table_type": st.sampled_from(["COPY_ON_WRITE", "MERGE_ON_READ"]),
        "index": st.sampled_from(list(INDEXES)),
        "cdc": st.sampled_from(["", "op_key_only", "data_before", "data_before_after"]),
        "ordering": st.booleans(),
        "small": st.sampled_from([0, 1 << 20]),
    }
)


def options_of(kind: dict[str, Any]) -> dict[str, Any]:
    logged = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": kind["cdc"]}
    return {
        "hoodie.write.table.version": kind["version"],
        "table_type": kind["table_type"],
        "hoodie.parquet.small.file.limit": kind["small"],
        "hoodie.clean.automatic": False,
        **INDEXES[kind["index"]],
        **(logged if kind["cdc"] else {}),
        **({"ordering": "ts"} if kind["ordering"] else {}),
    }


def arrow(rows: list[tuple[Any, ...]], key: Callable[[tuple[Any, ...]], Any]) -> pa.Table:
    """Return the last row of each key as an Arrow table."""
    kept = {key(row): row for row in rows}
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in kept.values()], SCHEMA)


def texts(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def merge(table: Table, rows: pa.Table) -> Any:
    merged = table.merge(rows, on=["id", "p"]).when_matched_delete("source.v = 'x'").when_matched_update()
    return merged.when_not_matched_insert().execute()


def run_step(table: Table, verb: str, rows: pa.Table) -> None:
    """Run one step. A service or a step that a pending plan forbids changes nothing."""
    deeds: dict[str, Callable[[], Any]] = {
        "delete": lambda: table.delete(rows.select(["id", "p"])),
        "delete_partitions": lambda: table.delete_partitions(rows["p"].unique().to_pylist()),
        "update": lambda: table.update({"v": "z"}, where="ts > 4"),
        "delete_where": lambda: table.delete(where="ts < 4"),
        "merge": lambda: merge(table, rows),
        "cluster": lambda: table.cluster(by=["ts"]),
        "compact": table.compact,
    }
    do = deeds.get(verb) or (lambda: getattr(table, verb)(rows))
    try:
        do()
    except LakeformatError:
        assert verb in {"delete_partitions", "compact", "cluster", "merge"}


def replayed(replica: Counter[str], images: list[dict[str, Any]]) -> Counter[str]:
    """Return the rows after the changes, applied one by one. Check that each row before a change exists."""
    after = Counter(replica)
    for image in images:
        if image["before"] is not None:
            before = json.dumps(image["before"], sort_keys=True)
            assert after[before] > 0, image
            after[before] -= 1
        if image["after"] is not None:
            after[json.dumps(image["after"], sort_keys=True)] += 1
    return +after


def apply_by_key(replica: dict[Any, Any], images: list[dict[str, Any]], key: Callable[[Any], Any]) -> dict[Any, Any]:
    """Return the rows by key after the changes, like a sink that ignores the row before an update of the same key."""
    after = dict(replica)
    for image in images:
        old, new = image["before"], image["after"]
        if old is not None and (new is None or key(old) != key(new)):
            after.pop(key(old), None)
        if new is not None:
            after[key(new)] = new
    return after


@settings(max_examples=examples(30))
@given(STEPS, KINDS)
def test_change_images_applied_in_order_give_the_table(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], kind: dict[str, Any]
) -> None:
    table = lakeformat.create(
        tmp_path_factory.mktemp("replay") / "t", SCHEMA, record_key="id", partition_by="p", **options_of(kind)
    )

    def key(row: Any) -> Any:
        return row["id"] if kind["index"] == "global" else (row["p"], row["id"])

    of_tuple = (lambda row: row[0]) if kind["index"] == "global" else (lambda row: (row[1], row[0]))
    states: list[tuple[str, list[dict[str, Any]]]] = [("000", [])]
    doubled = False
    for verb, batch in steps:
        commits = table.snapshot().timeline.commits
        if verb == "restore" and commits:
            table.restore(commits[-1 - len(batch) % len(commits)].time)
            del states[1:]
        elif batch and verb != "restore":
            run_step(table, verb, arrow(batch, of_tuple))
        rows = table.to_arrow(meta_columns=False).to_pylist()
        doubled |= len({key(row) for row in rows}) < len(rows)  # Inserts and overwrites look up no key.
        until = table.changes("000", images=True).until or "000"
        states.append((until, rows))
    for since, rows in states[-4:]:
        images = table.changes(since, images=True).to_arrow().to_pylist()
        assert replayed(texts(rows), images) == texts(states[-1][1])
        if not doubled:
            wanted = {key(row): row for row in states[-1][1]}
            assert apply_by_key({key(row): row for row in rows}, images, key) == wanted
            seen = Counter((image["ts_ms"], key(image["after"] or image["before"])) for image in images)
            assert not seen or max(seen.values()) == 1, "a key has several images in a commit"
