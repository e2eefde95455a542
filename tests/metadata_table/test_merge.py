"""Merging of records, compared with Hudi's rule for two records applied one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.metadata_table.merge import Batch, merge_files, merge_newest, merge_statistics

PARTITIONS, FILES = st.sampled_from(["a", "b"]), st.sampled_from(["f1", "f2", "f3"])
ENTRIES = st.dictionaries(FILES, st.tuples(st.integers(0, 9), st.booleans()), max_size=3)
FILE_BATCHES = st.lists(st.dictionaries(PARTITIONS, ENTRIES) | st.sets(PARTITIONS), max_size=6)
FILE_SCHEMA = pa.schema(
    {"key": pa.string(), "file_name": pa.string(), "size_bytes": pa.int64(), "is_deleted": pa.bool_()}
)


def deletes(keys: set[str]) -> Batch:
    return Batch(None, pa.array(sorted(keys), pa.string()))


def files_one_by_one(batches: list[Any]) -> dict[str, dict[str, tuple[int, bool]]]:
    found: dict[str, dict[str, tuple[int, bool]]] = {}
    for batch in batches:
        if isinstance(batch, set):
            for key in batch:
                found.pop(key, None)
            continue
        for key, entries in batch.items():
            own = found.setdefault(key, {})
            for name, (size, is_deleted) in entries.items():
                if name in own and is_deleted and not own[name][1]:
                    del own[name]
                elif name in own and not is_deleted:
                    own[name] = (max(size, own[name][0]) if not own[name][1] else size, False)
                else:
                    own[name] = (size, is_deleted)
    return found


@given(FILE_BATCHES)
def test_files_are_the_union_of_all_records_without_deleted_ones(batches: list[Any]) -> None:
    given_batches = [Batch(FILE_SCHEMA.empty_table())]
    for batch in batches:
        if isinstance(batch, set):
            given_batches.append(deletes(batch))
            continue
        rows = [
            {"key": key, "file_name": name, "size_bytes": size, "is_deleted": is_deleted}
            for key, entries in batch.items()
            for name, (size, is_deleted) in entries.items()
        ]
        given_batches.append(Batch(pa.Table.from_pylist(rows, FILE_SCHEMA)))
    found = {(row["key"], row["file_name"]): row["size_bytes"] for row in merge_files(given_batches).to_pylist()}
    assert found == {
        (key, name): size
        for key, entries in files_one_by_one(batches).items()
        for name, (size, is_deleted) in entries.items()
        if not is_deleted
    }


KEYS = st.sampled_from(["a", "b", "c", "水"])


@given(st.lists(st.dictionaries(KEYS, st.integers(-9, 9)) | st.sets(KEYS), max_size=6))
def test_newest_row_of_a_key_counts(batches: list[Any]) -> None:
    schema = pa.schema({"key": pa.string(), "value": pa.int64()})
    given_batches, expected = [Batch(schema.empty_table())], {}
    for batch in batches:
        if isinstance(batch, set):
            given_batches.append(deletes(batch))
            expected = {key: value for key, value in expected.items() if key not in batch}
        else:
            rows = [{"key": key, "value": value} for key, value in batch.items()]
            given_batches.append(Batch(pa.Table.from_pylist(rows, schema)))
            expected |= batch
    found = merge_newest(given_batches)
    assert dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected


STATISTICS = st.fixed_dictionaries(
    {
        "low": st.integers(-5, 5) | st.none(),
        "count": st.integers(0, 9),
        "is_deleted": st.booleans(),
        "is_tight": st.booleans(),
    }
)


def statistics_row(key: str, facts: dict[str, Any]) -> dict[str, Any]:
    low = facts["low"]
    counts = dict.fromkeys(("values", "nulls", "size_bytes", "unpacked_bytes"), facts["count"])
    bounds = {"min.IntWrapper": low, "max.IntWrapper": None if low is None else low + 1}
    return {"key": key, **counts, **bounds, "is_deleted": facts["is_deleted"], "is_tight": facts["is_tight"]}


STATISTICS_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        **dict.fromkeys(("values", "nulls", "size_bytes", "unpacked_bytes"), pa.int64()),
        "min.IntWrapper": pa.int32(),
        "max.IntWrapper": pa.int32(),
        "is_deleted": pa.bool_(),
        "is_tight": pa.bool_(),
    }
)


def combined(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    if old is None or old["is_deleted"] or new["is_deleted"] or new["is_tight"]:
        return new
    both = dict(new)
    for name in ("values", "nulls", "size_bytes", "unpacked_bytes"):
        both[name] = old[name] + new[name]
    for name, choose in (("min.IntWrapper", min), ("max.IntWrapper", max)):
        both[name] = choose((each[name] for each in (old, new) if each[name] is not None), default=None)
    return both


@given(st.lists(st.dictionaries(KEYS, STATISTICS) | st.sets(KEYS), max_size=6))
def test_statistics_that_are_not_tight_are_merged(batches: list[Any]) -> None:
    given_batches, expected = [Batch(STATISTICS_SCHEMA.empty_table())], {}
    for batch in batches:
        if isinstance(batch, set):
            given_batches.append(deletes(batch))
            expected = {key: row for key, row in expected.items() if key not in batch}
        else:
            rows = [statistics_row(key, facts) for key, facts in batch.items()]
            given_batches.append(Batch(pa.Table.from_pylist(rows, STATISTICS_SCHEMA)))
            for row in rows:
                expected[row["key"]] = combined(expected.get(row["key"]), row)
    assert {row["key"]: row for row in merge_statistics(given_batches).to_pylist()} == expected


def test_bounds_of_merged_bytes_are_not_known() -> None:
    schema = STATISTICS_SCHEMA.append(pa.field("min.BytesWrapper", pa.binary()))
    row = {"key": "a", "values": 1, "nulls": 0, "size_bytes": 0, "unpacked_bytes": 0, "is_tight": False}
    row["is_deleted"] = False
    batches = [Batch(pa.Table.from_pylist([row | {"min.BytesWrapper": raw}], schema)) for raw in (b"\x01", b"\xff")]
    (found,) = merge_statistics(batches).to_pylist()
    assert found["min.BytesWrapper"] is None
    assert found["values"] == 2
