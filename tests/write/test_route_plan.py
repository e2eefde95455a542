"""The driver's plan of a shuffled write, by examples: the units of key lookup, and which bucket takes which rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import mmh3
import pyarrow as pa
import pytest

from lakeformat.codec.key_fields import FieldRule
from lakeformat.index.bucket import BucketHash
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.write.rows.prepare import ANY_PARTITION
from lakeformat.write.workload.buckets import AppendRules, Bucket, FileSizing, LogPlace, derive_file_id
from lakeformat.write.workload.global_units import plan_global_units, plan_index_units
from lakeformat.write.workload.shuffle_plan import (
    HashedRoute,
    KeyUse,
    PartitionRoute,
    TagResult,
    TagUnit,
    assign_to_tasks,
    cut_key_ranges,
    find_shuffle_values,
    may_skip_shuffle,
    plan_routes,
    plan_units,
    split_by_bytes,
)

TIME = "20240101000000000"
HASH = BucketHash(("id",), 4, FieldRule.HUDI_1)
SIZING = FileSizing(row_bytes=1.0, max_file_bytes=1_000, small_file_bytes=800)
APPENDS = AppendRules(takes_logs=True)
LOOKS_UP, SAMPLES = KeyUse(looks_up=True), KeyUse(looks_up=False)
HASHED = KeyUse(looks_up=True, hashing=HASH)
#: What a unit gets with its slices: log files with keys of those that have any, and all as slices that may delete.
FINDERS: Any = {"logs_of": lambda piece: piece.logs or None, "deleting_of": lambda of: dict(enumerate(of))}


def a_slice(file_id: str, size: int | None = 1_000, *, path: str = "p", log_bytes: int = 0) -> FileSlice:
    base = None if size is None else BaseFile(path, BaseFileName(file_id, "0-0-0", TIME), size)
    log = LogFile(path, LogFileName(file_id, TIME, 1, "0-0-0"), log_bytes)
    return FileSlice(FileGroupId(path, file_id), TIME, base, (log,) if log_bytes else ())


def of_bucket(bucket: int, file_id: str = "x", **more: Any) -> FileSlice:
    return a_slice(f"{bucket:08}-{file_id}", **more)


def a_unit(path: str = "p", slices: Sequence[FileSlice] = (), first: int = 0) -> TagUnit:
    return TagUnit(path, path, tuple(slices), first, 0, exact=False)


# --- units of key lookup --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "most", "ranges"),
    [
        ([], 10, []),
        ([5], 10, [(0, 1)]),
        ([5, 5, 1], 10, [(0, 2), (2, 3)]),
        ([5, 6, 4], 10, [(0, 1), (1, 3)]),
        ([99, 1, 99], 10, [(0, 1), (1, 2), (2, 3)]),
        ([10, 10, 10], 10, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_slices_are_split_at_a_number_of_bytes(sizes: list[int], most: int, ranges: list[tuple[int, int]]) -> None:
    assert [*split_by_bytes([a_slice("f", size) for size in sizes], most)] == ranges


def units_of(
    incoming: Mapping[str, int],
    slices: Sequence[FileSlice],
    keys: KeyUse,
    sizing: FileSizing | None = SIZING,
    **more: Any,
) -> list[tuple[str, list[str], int, int, bool]]:
    """Return partition, file ids, first slice, sample step and exactness of the planned units."""
    found = plan_units(
        incoming,
        {"p": slices},
        keys=keys,
        sizing=sizing,
        closed_groups=more.pop("closed_groups", frozenset()),
        unit_bytes=2_000,
        **more,
    )
    ids = [[piece.group.file_id for piece in unit.slices] for unit in found]
    return [
        (unit.partition_path, own, unit.first_slice, unit.sample_step, unit.exact)
        for unit, own in zip(found, ids, strict=True)
    ]


THREE = [a_slice(each) for each in "abc"]


@pytest.mark.parametrize(
    ("rows", "keys", "sizing", "more", "expected"),
    [
        (10, LOOKS_UP, SIZING, {}, [("p", ["a", "b"], 0, 0, True), ("p", ["c"], 2, 0, True)]),
        (40_000, LOOKS_UP, None, {}, [("p", ["a", "b"], 0, 0, True), ("p", ["c"], 2, 0, True)]),
        (1_001, LOOKS_UP, SIZING, {}, [("p", ["a", "b"], 0, 1, True), ("p", ["c"], 2, 1, True)]),
        (10, SAMPLES, SIZING, {}, []),
        (1_000, SAMPLES, SIZING, {}, []),
        (1_001, SAMPLES, SIZING, {}, [("p", [], 0, 1, False)]),
        # The sample has about 1,024 keys, or 64 keys for each file.
        (10_240, SAMPLES, SIZING, {}, [("p", [], 0, 10, False)]),
        (10_239, SAMPLES, SIZING, {}, [("p", [], 0, 9, False)]),
        (40_000, SAMPLES, SIZING, {}, [("p", [], 0, 15, False)]),
    ],
)
def test_units_have_the_slices_of_their_partition_and_the_step_of_the_sample(
    rows: int, keys: KeyUse, sizing: FileSizing | None, more: dict[str, Any], expected: list[Any]
) -> None:
    assert units_of({"p": rows}, THREE, keys, sizing, **more) == expected


@pytest.mark.parametrize(
    ("size", "closed", "rules", "step"),
    [
        (799, "", AppendRules(), 1),  # 201 rows fill the small file, the others fill a new one.
        (799, "s", AppendRules(), 0),
        (800, "", AppendRules(), 0),
        (799, "", APPENDS, 1),
    ],
)
def test_a_small_file_takes_rows_unless_its_group_is_closed(
    size: int, closed: str, rules: AppendRules, step: int
) -> None:
    groups = frozenset(FileGroupId("p", each) for each in closed)
    [unit] = units_of({"p": 999}, [a_slice("s", size)], LOOKS_UP, closed_groups=groups, append_rules=rules)
    assert unit == ("p", ["s"], 0, step, rules.takes_logs)


def test_one_unit_is_exact_if_the_write_appends_or_drops_stored_keys() -> None:
    def exact(keys: KeyUse = LOOKS_UP, **more: Any) -> bool:
        return units_of({"p": 1}, THREE[:2], keys, **more)[0][4]

    assert not exact()
    assert exact(append_rules=APPENDS)
    assert exact(KeyUse(looks_up=True, drops_stored=True))


def test_rows_of_any_partition_are_looked_up_in_each() -> None:
    slices = {path: [a_slice("f", path=path)] for path in ("b", "a")}
    given: Any = {"keys": LOOKS_UP, "sizing": None, "closed_groups": frozenset(), "unit_bytes": 1, "index": "index"}
    units = plan_units({ANY_PARTITION: 5}, slices, decides=True, **given)
    assert [(unit.partition_path, unit.source, unit.index, unit.decides) for unit in units] == [
        ("a", ANY_PARTITION, None, True),
        ("b", ANY_PARTITION, None, True),
    ]
    found: Any = plan_units({"b": 5, "c": 5, "a": 5}, slices, **given)
    assert [(unit.partition_path, unit.source, unit.index) for unit in found] == [
        ("a", "a", "index"),
        ("b", "b", "index"),
    ]


def test_a_partition_without_slices_asks_no_index() -> None:
    given: Any = {"sizing": SIZING, "closed_groups": frozenset(), "unit_bytes": 1, "index": "index"}
    [unit] = plan_units({"p": 5_000}, {}, keys=LOOKS_UP, **given)
    assert (unit.slices, unit.index, unit.exact) == ((), None, False)


@pytest.mark.parametrize("drops", [False, True])
def test_units_of_a_bucket_index_look_up_keys_only_for_a_duplicate_policy(drops: bool) -> None:
    keys = KeyUse(looks_up=drops, hashing=HASH, drops_stored=drops)
    slices = [of_bucket(1, size=2_000), of_bucket(2)]
    given: Any = {"sizing": None, "closed_groups": frozenset(), "unit_bytes": 2_000}
    deleting: Any = lambda of: {0: of[0]}  # noqa: E731
    found: Any = plan_units({"p": 5}, {"p": slices}, keys=keys, deleting_of=deleting, **given)
    assert {unit.hashing for unit in found} == {HASH}
    assert [unit.slices for unit in found] == ([(slices[0],), (slices[1],)] if drops else [()])
    assert [(unit.exact, unit.finds_deleted) for unit in found] == ([(True, True)] * 2 if drops else [(False, False)])
    assert [unit.deleting for unit in found] == ([{0: slices[0]}, {0: slices[1]}] if drops else [{}])
    [unit] = plan_units({"p": 5}, {}, keys=keys, **given)
    assert (unit.slices, unit.first_slice, unit.sample_step, unit.hashing) == ((), 0, 0, HASH)


def test_units_carry_the_log_files_with_keys_by_the_position_of_their_slice() -> None:
    slices = [a_slice("a"), a_slice("b", log_bytes=5), a_slice("c", log_bytes=5)]
    given: Any = {"sizing": None, "closed_groups": frozenset(), "unit_bytes": 2_005, **FINDERS}
    found: Any = plan_units({"p": 5}, {"p": slices}, keys=LOOKS_UP, **given)
    assert [(unit.logs, unit.deleting) for unit in found] == [({1: slices[1].logs}, {}), ({0: slices[2].logs}, {})]
    assert [unit.bases for unit in found] == [(slices[0].base, slices[1].base), (slices[2].base,)]


def test_units_of_a_global_index_have_slices_of_any_partitions() -> None:
    slices = [a_slice("a", path="x"), a_slice("b", path="y", log_bytes=5), a_slice("c", None, path="y", log_bytes=9)]
    found: Any = plan_global_units(slices, unit_bytes=2_005, **FINDERS)
    common: Any = {"sample_step": 0, "exact": True, "finds_deleted": True}
    parts: list[Any] = [
        {"slices": tuple(slices[:2]), "first_slice": 0, "logs": {1: slices[1].logs}},
        {"slices": tuple(slices[2:]), "first_slice": 2, "logs": {0: slices[2].logs}},
    ]
    assert found == tuple(
        TagUnit(ANY_PARTITION, ANY_PARTITION, deleting=dict(enumerate(part["slices"])), **part, **common)
        for part in parts
    )
    assert found[1].bases == ()


@pytest.mark.parametrize(
    ("rows", "stages"),
    [
        ([10], [(0,)]),
        ([499_999, 1, 1], [(0, 1), (2,)]),
        ([500_000, 2_000_000, 1, 5], [(0,), (1,), (2, 3)]),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_units_of_a_record_index_have_whole_stage_files(rows: list[int], stages: list[Any], exact: bool) -> None:
    slices = [a_slice("a"), a_slice("b", log_bytes=5)]
    index: Any = "index"
    found: Any = plan_index_units(slices, rows, index, exact=exact, **FINDERS)
    logs: Any = {1: slices[1].logs}
    deleting: Any = dict(enumerate(slices))
    common: Any = {"logs": logs, "finds_deleted": True, "deleting": deleting, "index": index}
    assert found == tuple(
        TagUnit(ANY_PARTITION, ANY_PARTITION, tuple(slices), 0, 0, exact, stages=each, **common) for each in stages
    )


# --- routes ---------------------------------------------------------------------------------------------------


def result(hits: Mapping[int, int], located: int | None = None, **more: Any) -> TagResult:
    return TagResult("tags", (), hits, sum(hits.values()) if located is None else located, **more)


def new_id(number: int) -> str:
    return derive_file_id("w", -1, number)


def test_updates_go_to_their_files_and_new_keys_fill_small_files_first() -> None:
    slices = [a_slice("a"), a_slice("b", 700), a_slice("c"), a_slice("d", 600)]
    sample = tuple(f"k{number:02}" for number in reversed(range(23)))
    results = [result({2: 5}, sample=sample, sample_hits=(0, 22)), result({3: 1})]
    units = [a_unit("p", slices[:3]), a_unit("p", slices[3:], 3)]
    plan = plan_routes({"p": 2_106}, units, results, {"p": slices}, SIZING, frozenset(), "w")
    assert [(each.file_id, each.base, each.updates, each.inserts) for each in plan.buckets] == [
        ("b", slices[1].base, 0, 300),
        ("c", slices[2].base, 5, 0),
        ("d", slices[3].base, 1, 400),
        (new_id(0), None, 0, 700),
        (new_id(1), None, 0, 700),
    ]
    # "k01" to "k21" are new; 4, 7 and 14 of the 21 keys are below the cuts.
    assert plan.routes == {"p": PartitionRoute({1: 0, 2: 1, 3: 2}, ("k05", "k08", "k15"), (2, 0, 3, 4))}


def test_new_keys_without_a_sample_go_to_the_largest_share() -> None:
    slices = [a_slice("a", 700)]
    plan = plan_routes({"p": 1_500}, [a_unit("p", slices)], [result({})], {"p": slices}, SIZING, frozenset(), "w")
    assert [(each.file_id, each.inserts) for each in plan.buckets] == [(new_id(0), 600)]
    assert plan.routes == {"p": PartitionRoute({}, (), (0,))}


@pytest.mark.parametrize(
    ("results", "inserts"),
    [
        ([result({0: 3})], []),
        ([result({0: 3}, located=2)], [1]),
        # Two units may count a row twice, so that one row may be new.
        ([result({0: 2}), result({1: 2})], [1]),
    ],
)
def test_a_bucket_takes_new_keys_if_there_may_be_any(results: list[TagResult], inserts: list[int]) -> None:
    slices = [a_slice("a"), a_slice("b")]
    units = [a_unit("p", slices[at : at + 1], at) for at in range(len(results))]
    plan = plan_routes({"p": 3}, units, results, {"p": slices}, SIZING, frozenset(), "w")
    assert [each.inserts for each in plan.buckets if each.inserts] == inserts
    assert len(plan.routes["p"].inserts) == len(inserts)
    dropped = plan_routes({"p": 3}, units, results, {"p": slices}, None, frozenset(), "w")
    assert (dropped.routes["p"].inserts, dropped.routes["p"].cuts) == ((), ())


def test_partitions_are_planned_in_their_order_and_keep_their_buckets_apart() -> None:
    slices = {path: [a_slice("f", path=path)] for path in "ab"}
    incoming = {"b": 4, "c": 2, "a": 3, ANY_PARTITION: 9}
    units = [a_unit("b", slices["b"]), a_unit("a", slices["a"])]
    plan = plan_routes(incoming, units, [result({0: 4}), result({0: 1})], slices, SIZING, frozenset(), "w")
    assert [(each.partition_path, each.file_id, each.updates, each.inserts) for each in plan.buckets] == [
        ("a", "f", 1, 0),
        ("a", new_id(0), 0, 2),
        ("b", "f", 4, 0),
        ("c", new_id(1), 0, 2),
    ]
    assert plan.routes == {
        "a": PartitionRoute({0: 0}, (), (1,)),
        "b": PartitionRoute({0: 2}, (), ()),
        "c": PartitionRoute({}, (), (3,)),
    }
    assert [each.opened_at for each in plan.buckets] == [TIME, None, TIME, None]


def test_closed_groups_take_no_new_keys() -> None:
    slices = [a_slice("a", 10)]
    units, results = [a_unit("p", slices)], [result({})]
    closed = frozenset({slices[0].group})
    plan = plan_routes({"p": 3}, units, results, {"p": slices}, SIZING, closed, "w")
    assert [each.file_id for each in plan.buckets] == [new_id(0)]
    plan = plan_routes({"p": 3}, units, results, {"p": slices}, SIZING, frozenset(), "w")
    assert [each.file_id for each in plan.buckets] == ["a"]


def test_rows_are_appended_where_no_new_row_goes_into_the_base_file() -> None:
    slices = [a_slice("a"), a_slice("b", 10), a_slice("c")]
    plan = plan_routes(
        {"p": 5}, [a_unit("p", slices)], [result({0: 1, 1: 1})], {"p": slices}, SIZING, frozenset(), "w", APPENDS
    )
    places = [each.log_place for each in plan.buckets]
    assert places == [LogPlace(TIME, 1, TIME, slices[0]), None]


def test_deleting_slices_are_named_where_rows_were_found() -> None:
    slices = [a_slice("a"), a_slice("b", log_bytes=1), a_slice("c", log_bytes=1)]
    units, hits = [a_unit("p", slices)], [result({0: 5, 1: 4}, deleted={1: 2})]
    of: Any = {"deleting_of": lambda own: {1: own[1], 2: own[2]}}
    plan: Any = plan_routes({"p": 9}, units, hits, {"p": slices}, SIZING, frozenset(), "w", **of)
    assert plan.routes["p"].deleting == {1: slices[1]}
    # A duplicate policy has found the deleted rows, and only these are written.
    keys = KeyUse(looks_up=True, drops_stored=True)
    plan = plan_routes({"p": 9}, units, hits, {"p": slices}, SIZING, frozenset(), "w", keys=keys, **of)
    assert plan.routes["p"] == PartitionRoute({1: 0}, (), (), drops_stored=True)
    assert [(each.file_id, each.updates) for each in plan.buckets] == [("b", 2)]


BUCKETS = [of_bucket(2), of_bucket(0, log_bytes=5)]


@pytest.mark.parametrize(
    ("keys", "results", "buckets", "stored"),
    [
        # Each unit counts all rows but those that it has found itself, so the least count is right.
        (HASHED, [{0: 4, 1: 3, 2: 2}], [(0, 4, 0), (1, 0, 3), (2, 2, 0)], {0, 2}),
        (HASHED, [{0: 4, 1: 3, 2: 2}, {0: 1, 1: 5, 3: 7}], [(0, 1, 0), (1, 0, 3)], {0}),
        (HASHED, [], [], set()),
        (KeyUse(looks_up=True, hashing=HASH, drops_new=True), [{0: 4, 1: 3}], [(0, 4, 0)], {0}),
        (KeyUse(looks_up=False, hashing=HASH), [{0: 4, 1: 3}], [(0, 0, 4), (1, 0, 3)], set()),
    ],
)
def test_rows_of_a_bucket_index_are_counted_by_bucket(
    keys: KeyUse, results: list[dict[int, int]], buckets: list[tuple[int, int, int]], stored: set[int]
) -> None:
    units = [a_unit("p", BUCKETS[at : at + 1], at) for at in range(len(results))]
    found = [result({}, buckets=each) for each in results]
    incoming = {"a": 0, "p": 9}
    plan = plan_routes(incoming, units, found, {"p": BUCKETS}, SIZING, frozenset(), "w", keys=keys)
    assert [(HASH.bucket_of(each.file_id), each.updates, each.inserts) for each in plan.buckets] == buckets
    bases = {0: BUCKETS[1].base, 2: BUCKETS[0].base}
    assert [each.base for each in plan.buckets] == [bases.get(bucket) for bucket, *_ in buckets]
    by_bucket = {bucket: at for at, (bucket, *_) in enumerate(buckets)}
    hashed = HashedRoute(HASH, by_bucket, frozenset(stored))
    assert plan.routes["p"] == PartitionRoute({}, (), (), drops_stored=False, hashed=hashed)
    fresh = [each.file_id for each in plan.buckets if each.base is None]
    assert fresh == [HASH.new_file_id(1, new_id(0))][: len(fresh)]


def test_with_a_duplicate_policy_a_bucket_updates_the_rows_that_logs_have_deleted() -> None:
    keys = KeyUse(looks_up=True, hashing=HASH, drops_stored=True)
    found = [result({0: 1}, buckets={0: 4, 2: 2}, deleted={0: 2}), result({1: 1}, buckets={0: 3, 2: 2})]
    units = [a_unit("p", BUCKETS[at : at + 1], at) for at in range(2)]
    plan = plan_routes({"p": 9}, units, found, {"p": BUCKETS}, SIZING, frozenset(), "w", keys=keys)
    assert [(each.file_id, each.updates, each.inserts) for each in plan.buckets] == [
        ("00000000-x", 0, 3),
        ("00000002-x", 2, 0),
    ]
    hashed = HashedRoute(HASH, {0: 0, 2: 1}, frozenset())
    assert plan.routes["p"] == PartitionRoute({}, (), (), drops_stored=True, hashed=hashed)


@pytest.mark.parametrize("opens", [True, False])
def test_buckets_of_two_partitions_are_numbered_through_and_appended(opens: bool) -> None:
    rules = AppendRules(takes_logs=True, has_buckets=True, opens_logs=opens)
    slices = {path: [of_bucket(0, path=path)] for path in "ab"}
    units, found = [a_unit(path, slices[path]) for path in "ab"], [result({}, buckets={0: 2, 3: 1})] * 2
    plan = plan_routes({"a": 3, "b": 3}, units, found, slices, SIZING, frozenset(), "w", rules, HASHED)
    stored = frozenset({0})
    assert [plan.routes[path].hashed for path in "ab"] == [
        HashedRoute(HASH, {0: 0, 3: 1}, stored),
        HashedRoute(HASH, {0: 2, 3: 3}, stored),
    ]
    fresh = LogPlace() if opens else None
    assert [each.log_place for each in plan.buckets] == [
        LogPlace(TIME, 1, TIME, slices["a"][0]),
        fresh,
        LogPlace(TIME, 1, TIME, slices["b"][0]),
        fresh,
    ]


@pytest.mark.parametrize(
    ("sample", "rows", "cuts"),
    [
        ("abcd", [10, 10], ("c",)),
        ("abcd", [1, 3], ("b",)),
        ("abcdefgh", [2, 1, 1], ("e", "g")),
        ("abcd", [10], ()),
        ("abcd", [], ()),
        ("", [1, 1], ()),
    ],
)
def test_cuts_divide_the_sample_as_the_rows(sample: str, rows: list[int], cuts: tuple[str, ...]) -> None:
    assert cut_key_ranges(pa.array([*sample], pa.string()), rows) == cuts


# --- tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "task_weight", "least", "tasks"),
    [
        ([1, 9, 4, 4], 9, 1, [1, 0, 1, 1]),
        ([1, 9, 4, 4], 18, 1, [0, 0, 0, 0]),
        ([1, 9, 4, 4], 17, 1, [1, 0, 1, 1]),
        ([0, 0, 0, 0], 5, 2, [0, 1, 0, 1]),
        ([5, 5], 100, 9, [0, 1]),
        ([0, 0, 1], 5, 2, [1, 0, 0]),
    ],
)
def test_the_heaviest_piece_goes_to_the_task_with_the_least_weight(
    weights: list[int], task_weight: int, least: int, tasks: list[int]
) -> None:
    assert assign_to_tasks(weights, task_weight=task_weight, at_least=least) == tasks


@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 40])
def test_spark_sends_each_value_to_its_task(tasks: int) -> None:
    values = find_shuffle_values(tasks)
    assert [mmh3.hash(struct.pack("<i", value), 42) % tasks for value in values] == list(range(tasks))
    assert 0 in values or not tasks


def a_bucket(path: str, rows: int, inserts: int = 0) -> Bucket:
    return Bucket(path, "f", None, rows, inserts)


@pytest.mark.parametrize(
    ("stages", "buckets", "tasks", "most_rows", "skips"),
    [
        ([{"a": 5}], [a_bucket("a", 3, 2)], [0], 5, True),
        ([{"a": 5}], [a_bucket("a", 3, 2)], [0], 4, False),
        ([{"a": 5}], [a_bucket("a", 3), a_bucket("a", 2)], [0, 0], 4, False),
        ([{"a": 5, "b": 1}], [a_bucket("a", 5), a_bucket("b", 1)], [0, 1], 4, False),
        # Three tasks read all rows, and three times is the most.
        ([{"a": 9}], [a_bucket("a", 3)] * 3, [0, 1, 2], 9, True),
        ([{"a": 9}], [a_bucket("a", 3)] * 4, [0, 1, 2, 3], 9, False),
        # A task reads only its own partitions, and the rows whose partition is not known.
        ([{"a": 9, "b": 1}], [*[a_bucket("a", 3)] * 3, a_bucket("b", 1)], [0, 1, 2, 3], 9, True),
        ([{"a": 9, ANY_PARTITION: 9}], [*[a_bucket("a", 3)] * 4], [0, 1, 2, 3], 9, False),
        # A task opens each stage file once for each of its partitions.
        ([{"a": 1}] * 1_024, [a_bucket("a", 1_024)], [0], 9_999, True),
        ([{"a": 1}] * 1_025, [a_bucket("a", 1_025)], [0], 9_999, False),
        ([{"a": 1, "b": 1}] * 513, [a_bucket("a", 513), a_bucket("b", 513)], [0, 0], 9_999, False),
        ([{"a": 1, "b": 1}] * 512, [a_bucket("a", 512), a_bucket("b", 512)], [0, 1], 9_999, True),
        ([{"a": 1, "b": 1}] * 513, [a_bucket("a", 513), a_bucket("b", 513)], [0, 1], 9_999, False),
        ([], [], [], 0, True),
    ],
)
def test_tasks_read_the_stage_files_themselves_if_that_is_less_work(
    stages: list[dict[str, int]], buckets: list[Bucket], tasks: list[int], most_rows: int, skips: bool
) -> None:
    assert may_skip_shuffle(stages, buckets, tasks, most_rows=most_rows) == skips
