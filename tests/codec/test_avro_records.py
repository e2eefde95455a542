"""Avro timeline files: Hudi's own files and fastavro are the oracles, and damage is refused."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.avro import container
from lakeformat.codec.timeline_files import clean as clean_files
from lakeformat.codec.timeline_files import commit, service_plans
from lakeformat.codec.timeline_files import recovery as codec
from lakeformat.errors import CorruptTableError
from tests.helpers.fixture_tables import FIXTURES, names

NAMESPACE = "org.apache.hudi.avro.model"
PLAN = "HoodieRollbackPlan"
TEXT = {"type": "string", "avro.java.string": "String"}
VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
GROUPS = ("hudi_v6", "hudi_mor_v6", "hudi_v8_v9", "hudi_life", "hudi_upgraded")
TIMELINE_FILE = re.compile(
    r".*/\d+(_\d+)?\.(clean|rollback|commit|deltacommit|replacecommit|savepoint|restore)(\.requested)?"
)


def avro_files() -> dict[str, bytes]:
    """Return path and bytes of every Avro container on the timelines of all fixture tables."""
    found: dict[str, bytes] = {}
    for table in [name for group in GROUPS for name in names(group)]:
        with zipfile.ZipFile(FIXTURES / f"{table}.zip") as archive:
            for path in filter(TIMELINE_FILE.fullmatch, archive.namelist()):
                if (data := archive.read(path)).startswith(b"Obj"):
                    found[path] = data
    return found


FILES = avro_files()


def header_of(data: bytes) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])
    return schema


def oracle(data: bytes) -> Any:
    """Return the only record, as fastavro alone reads it."""
    (record,) = fastavro.reader(io.BytesIO(data))
    return record


def files_of(record: str) -> dict[str, bytes]:
    return {path: data for path, data in FILES.items() if header_of(data)["name"] == record}


def without_docs(schema: Any) -> Any:
    match schema:
        case dict():
            return {key: without_docs(value) for key, value in schema.items() if key != "doc"}
        case list():
            return [without_docs(item) for item in schema]
    return schema


def write_container(schema: dict[str, Any], record: Any, codec_name: str = "null") -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, [record], codec=codec_name)
    return file.getvalue()


OURS = {
    PLAN: codec.ROLLBACK_PLAN,
    "HoodieRollbackMetadata": codec.ROLLBACK_METADATA,
    "HoodieRequestedReplaceMetadata": service_plans.REQUESTED_REPLACE,
}


@pytest.mark.parametrize("name", OURS)
def test_writer_schemas_are_hudis(name: str) -> None:
    by_version_6 = [data for path, data in files_of(name).items() if "/timeline/" not in path]
    assert by_version_6
    for data in by_version_6:
        assert without_docs(header_of(data)) == OURS[name]


@pytest.mark.parametrize("schema", [commit.COMMIT_METADATA, commit.REPLACE_METADATA], ids=lambda s: s["name"])
def test_schemas_of_commits_are_hudis(schema: dict[str, Any]) -> None:
    found = files_of(schema["name"])
    assert found
    for data in found.values():
        assert without_docs(header_of(data)) == schema


@pytest.mark.parametrize("path", files_of(PLAN))
def test_hudi_rollback_plans_round_trip(path: str) -> None:
    data = FILES[path]
    plan = codec.decode_rollback_plan(data, name=path)
    ours = codec.encode_rollback_plan(plan)
    assert oracle(ours) == oracle(data)
    assert codec.decode_rollback_plan(ours, name=path) == plan
    (resolved,) = fastavro.reader(io.BytesIO(ours), reader_schema=header_of(data))
    assert resolved == oracle(data)


@pytest.mark.parametrize("path", files_of("HoodieRollbackMetadata"))
def test_hudi_rollbacks_round_trip(path: str) -> None:
    data = FILES[path]
    metadata = codec.decode_rollback(data, name=path)
    ours = codec.encode_rollback(metadata)
    assert codec.decode_rollback(ours, name=path) == metadata
    (resolved,) = fastavro.reader(io.BytesIO(ours), reader_schema=header_of(data))
    assert resolved == oracle(data)


def test_reads_the_rollback_of_a_deltacommit() -> None:
    (path,) = [path for path in files_of(PLAN) if path.startswith("mor6_rollback/")]
    plan = codec.decode_rollback_plan(FILES[path], name=path)
    assert (plan.instant_time, plan.action) == ("20261121003938145", "deltacommit")
    (request,) = plan.requests
    assert (request.file_id, request.latest_base_instant) == (
        "bbf3d1c3-6e7d-4777-a6ac-057a47efec73-0",
        "20261121003931353",
    )
    assert list(request.log_blocks_to_delete.values()) == [1017]
    done = codec.decode_rollback(FILES[path.removesuffix(".requested")], name=path)
    assert done.instants == ((plan.instant_time, plan.action),)
    assert [list(part.rollback_log_files.values()) for part in done.partitions] == [[105]]


def test_requested_replace_of_an_overwrite_equals_hudis() -> None:
    ours = service_plans.encode_requested_replace()
    (path, *_) = [p for p in FILES if p.startswith("cow_insert_overwrite_and") and p.endswith(".requested")]
    assert len(ours) == len(FILES[path]) == 2522
    assert oracle(ours) == oracle(FILES[path])
    assert service_plans.decode_requested_replace(ours, name="x") == service_plans.RequestedReplace(None)
    assert ours == service_plans.encode_requested_replace()


@pytest.mark.parametrize("path", files_of("HoodieRequestedReplaceMetadata"))
def test_requested_replaces_equal_the_oracle(path: str) -> None:
    read = service_plans.decode_requested_replace(FILES[path], name=path)
    truth = oracle(FILES[path])
    assert read is not None
    groups = (truth["clusteringPlan"] or {"inputGroups": []})["inputGroups"]
    slices = [(one["partitionPath"], one["fileId"]) for group in groups for one in group["slices"]]
    assert read.operation == truth["operationType"]
    assert [(group.partition_path, group.file_id) for group in read.file_groups] == slices
    assert bool(slices) == (read.operation == "CLUSTER") == (read.plan is not None)


@pytest.mark.parametrize("path", [path for path in files_of("HoodieRequestedReplaceMetadata") if "clustered" in path])
def test_hudi_clustering_plans_round_trip(path: str) -> None:
    read = service_plans.decode_requested_replace(FILES[path], name=path)
    assert read is not None
    assert read.plan is not None
    ours = service_plans.encode_clustering(read.plan)
    assert service_plans.decode_requested_replace(ours, name=path) == read
    truth = oracle(FILES[path])
    truth["clusteringPlan"].pop("missingSchedulePartitions", None)  # Version 9 has this field.
    assert oracle(ours) == truth


def test_empty_requested_replace_decodes_to_none() -> None:
    assert service_plans.decode_requested_replace(b"", name="x") is None


def strip_docs(schema: Any) -> Any:
    """Return a schema without docs and defaults, with types by their unqualified names."""
    if isinstance(schema, dict):
        return {key: strip_docs(value) for key, value in schema.items() if key not in {"doc", "default"}}
    if isinstance(schema, list):
        return [strip_docs(branch) for branch in schema]
    return schema.rpartition(".")[2] if isinstance(schema, str) else schema


@pytest.mark.parametrize("path", files_of("HoodieCleanMetadata"))
def test_cleans_equal_the_oracle(path: str) -> None:
    truth = oracle(FILES[path])
    clean = clean_files.decode_clean(FILES[path], name=path)
    assert (clean.start_time, clean.earliest_commit_to_retain) == (
        truth["startCleanTime"],
        truth["earliestCommitToRetain"],
    )
    rest = {"version", "bootstrapPartitionMetadata"}  # Fields of old releases or of bootstrapped tables.
    ours = oracle(clean_files.encode_clean(clean))
    assert {**ours, **dict.fromkeys(rest)} == {**truth, **dict.fromkeys(rest)}
    assert strip_docs(header_of(clean_files.encode_clean(clean))) == strip_docs(header_of(FILES[path]))


@pytest.mark.parametrize("path", files_of("HoodieCleanerPlan"))
def test_clean_plans_are_written_as_hudi_does(path: str) -> None:
    truth = oracle(FILES[path])
    plan = clean_files.decode_clean_plan(FILES[path], name=path)
    paths = [info["filePath"] for infos in truth["filePathsToBeDeletedPerPartition"].values() for info in infos]
    partition, names = next(iter(plan.files.items()))
    location = paths[0].removesuffix(f"/{names[0]}").removesuffix(f"/{partition}").removeprefix("file:")
    ours = clean_files.encode_clean_plan(plan, location)
    assert oracle(ours) == truth
    assert strip_docs(header_of(ours)) == strip_docs(header_of(FILES[path]))


@pytest.mark.parametrize("path", [*files_of("HoodieSavepointMetadata"), *files_of("HoodieRestoreMetadata")])
def test_reads_savepoints_and_restores_of_hudi(path: str) -> None:
    truth = oracle(FILES[path])
    if path.endswith(".savepoint"):
        files = {name: tuple(part["savepointDataFile"]) for name, part in truth["partitionMetadata"].items()}
        saved = truth["savepointedBy"], truth["savepointedAt"], truth["comments"]
        assert codec.decode_savepoint(FILES[path], name=path) == codec.SavepointMetadata(*saved, files)
    else:
        undone = truth["startRestoreTime"], tuple(truth["instantsToRollback"])
        assert codec.decode_restore(FILES[path], name=path) == codec.RestoreMetadata(*undone)


def record_schema(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


SAVEPOINT = record_schema(
    "HoodieSavepointMetadata",
    {"name": "savepointedBy", "type": TEXT},
    {"name": "savepointedAt", "type": "long"},
    {"name": "comments", "type": TEXT},
    {
        "name": "partitionMetadata",
        "type": {
            "type": "map",
            "values": record_schema(
                "HoodieSavepointPartitionMetadata",
                {"name": "partitionPath", "type": TEXT},
                {"name": "savepointDataFile", "type": {"type": "array", "items": TEXT}},
            ),
        },
    },
    VERSION,
)


def test_savepoints_equal_the_oracle() -> None:
    parts = {"p=a": {"partitionPath": "p=a", "savepointDataFile": ["f1.parquet", "f2.parquet"]}}
    record = {"savepointedBy": "me", "savepointedAt": 17, "comments": "", "partitionMetadata": parts}
    read = codec.decode_savepoint(write_container(SAVEPOINT, record), name="x")
    assert read == codec.SavepointMetadata("me", 17, "", {"p=a": ("f1.parquet", "f2.parquet")})


def test_reads_restores_with_all_their_rollbacks() -> None:
    rollback = json.loads(json.dumps(codec.ROLLBACK_METADATA))
    schema = record_schema(
        "HoodieRestoreMetadata",
        {"name": "startRestoreTime", "type": TEXT},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "instantsToRollback", "type": {"type": "array", "items": TEXT}},
        {
            "name": "hoodieRestoreMetadata",
            "type": {"type": "map", "values": {"type": "array", "items": rollback}},
        },
        VERSION,
        {
            "name": "restoreInstantInfo",
            "type": {"type": "array", "items": "HoodieInstantInfo"},
            "default": [],
        },
    )
    undone = oracle(codec.encode_rollback(codec.RollbackMetadata("5", 1, (("4", "commit"),))))
    record = {
        "startRestoreTime": "6",
        "timeTakenInMillis": 2,
        "instantsToRollback": ["4", "3"],
        "hoodieRestoreMetadata": {"4": [undone]},
        "restoreInstantInfo": [{"commitTime": "4", "action": "commit"}],
    }
    read = codec.decode_restore(write_container(schema, record), name="x")
    assert read == codec.RestoreMetadata("6", ("4", "3"))


def test_fields_are_found_by_name() -> None:
    schema = record_schema(
        PLAN,
        {"name": "new", "type": {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}}},
        {"name": "version", "type": "int"},
        {
            "name": "instantToRollback",
            "type": record_schema(
                "HoodieInstantInfo",
                {"name": "action", "type": "string"},
                {"name": "id", "type": {"type": "fixed", "name": "id", "size": 2}},
                {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
                {"name": "commitTime", "type": "string"},
            ),
        },
    )
    instant = {"action": "commit", "commitTime": "7", "id": b"ab", "kind": "B"}
    data = write_container(schema, {"new": [], "version": 3, "instantToRollback": instant})
    assert codec.decode_rollback_plan(data, name="x") == codec.RollbackPlan("7", "commit")


def test_rollbacks_of_old_hudi_have_no_action() -> None:
    fields = [field for field in codec.ROLLBACK_METADATA["fields"] if field["name"] != "instantsRollback"]
    record = {
        "startRollbackTime": "2",
        "timeTakenInMillis": 0,
        "totalFilesDeleted": 0,
        "commitsRollback": ["1"],
        "partitionMetadata": {},
    }
    read = codec.decode_rollback(write_container(record_schema("HoodieRollbackMetadata", *fields), record), name="x")
    assert read == codec.RollbackMetadata("2", 0, (("1", ""),))


def snappy(plain: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(plain, asbytes=True)) + zlib.crc32(plain).to_bytes(4, "big")


def deflate(plain: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(plain) + packer.flush()


def make_container(
    schema: Any, block: bytes, *, compression: str = "null", count: int = 1, sync: bytes = b"s" * 16
) -> bytes:
    """Return a container with any schema and any block in it."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    file = io.BytesIO()
    meta = {"avro.schema": text.encode(), "avro.codec": compression.encode()}
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, meta)
    head = b"Obj\x01" + file.getvalue() + b"s" * 16
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", count)
    fastavro.schemaless_writer(file, "bytes", block)
    return head + file.getvalue() + sync


PLAN_BLOCK = bytes([2, 2, ord("7"), 2, ord("c"), 0, 0, 2])


@pytest.mark.parametrize(("compression", "pack"), [("null", bytes), ("deflate", deflate), ("snappy", snappy)])
def test_every_compression_codec_is_read(compression: str, pack: Callable[[bytes], bytes]) -> None:
    data = make_container(codec.ROLLBACK_PLAN, pack(PLAN_BLOCK), compression=compression)
    assert codec.decode_rollback_plan(data, name="x") == codec.RollbackPlan("7", "c")


def plan_with(extra: Any) -> dict[str, Any]:
    return record_schema(PLAN, {"name": "extra", "type": extra})


def chain(levels: int) -> dict[str, Any]:
    """Return nested records, each of two of the record before: 2**levels fields in no bytes at all."""
    fields: list[Any] = [{"name": "x", "type": record_schema("r0")}]
    for level in range(1, levels):
        pair = [{"name": side, "type": f"r{level - 1}"} for side in "ab"]
        fields.append({"name": f"x{level}", "type": record_schema(f"r{level}", *pair)})
    return record_schema(PLAN, *fields)


def deep(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


BOMBS = {
    "snappy that lies": make_container(codec.ROLLBACK_PLAN, b"\xff\xff\xff\xff\x0f" + b"\0" * 9, compression="snappy"),
    "array of nothing": make_container(
        plan_with({"type": "array", "items": "null"}), b"\xfe\xff\xff\xff\xff\xff\x01\0"
    ),
    "array of empty records": make_container(
        plan_with({"type": "array", "items": record_schema("e")}), b"\xfe\xff\xff\x7f\0"
    ),
    "record in itself": make_container(plan_with(["null", PLAN]), b"\x02" * 1_000_000),
    "array in itself": make_container(plan_with({"type": "array", "items": PLAN}), b"\x02" * 1_000_000),
    "references": make_container(chain(40), b""),
    "deep": make_container(plan_with(deep(100)), b"\x02" * 200),
    "deeper": make_container('{"name":"HoodieRollbackPlan","type":' + "[" * 100_000, b""),
    "string": make_container(codec.ROLLBACK_PLAN, b"\x02\xfe\xff\xff\xff\xff\xff\xff\x01a"),
}
DAMAGED = {
    "empty": b"",
    "json": b'{"a" : 1}',
    "magic only": b"Obj\x01",
    "another record": codec.encode_rollback(codec.RollbackMetadata("1", 0, ())),
    "no instant": make_container(codec.ROLLBACK_PLAN, b"\0\0\0\2"),
    "two records": make_container(codec.ROLLBACK_PLAN, PLAN_BLOCK * 2, count=2),
    "end mark": make_container(codec.ROLLBACK_PLAN, PLAN_BLOCK, sync=b"t" * 16),
    "left over": make_container(codec.ROLLBACK_PLAN, PLAN_BLOCK + b"\0"),
    "codec": make_container(codec.ROLLBACK_PLAN, PLAN_BLOCK, compression="zstandard"),
    "deflate": make_container(codec.ROLLBACK_PLAN, deflate(PLAN_BLOCK)[:-2], compression="deflate"),
    "deflate garbage": make_container(codec.ROLLBACK_PLAN, b"\xff" * 9, compression="deflate"),
    "snappy checksum": make_container(codec.ROLLBACK_PLAN, snappy(PLAN_BLOCK)[:-1] + b"x", compression="snappy"),
    "snappy garbage": make_container(codec.ROLLBACK_PLAN, b"\x09\xff\xff\xff\xff\xff", compression="snappy"),
    "snappy empty": make_container(codec.ROLLBACK_PLAN, b"", compression="snappy"),
    "schema": make_container([7], PLAN_BLOCK),
    "type": make_container(plan_with("no_such"), PLAN_BLOCK),
    "field": make_container(record_schema(PLAN, {"name": 7, "type": "int"}), b"\0"),
    "instant of another type": make_container(record_schema(PLAN, {"name": "instantToRollback", "type": "int"}), b"\2"),
    "not utf-8": make_container(codec.ROLLBACK_PLAN, PLAN_BLOCK.replace(b"7", b"\xff")),
}


@pytest.mark.parametrize("data", [*BOMBS.values(), *DAMAGED.values()], ids=[*BOMBS, *DAMAGED])
def test_refuses_bombs_and_damage_by_name(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"t/1\.rollback\.requested") as caught:
        codec.decode_rollback_plan(data, name="t/1.rollback.requested")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("compression", "pack"), [("null", bytes), ("deflate", deflate), ("snappy", snappy)])
def test_content_larger_than_the_limit_is_refused(compression: str, pack: Callable[[bytes], bytes]) -> None:
    data = make_container(codec.ROLLBACK_PLAN, pack(bytes(container.MAX_BYTES + 1)), compression=compression)
    with pytest.raises(CorruptTableError, match=r"x is not .* (67108\d\d\d|8388608) ?"):
        codec.decode_rollback_plan(data, name="x")


DECODERS: dict[str, Callable[..., object]] = {
    PLAN: codec.decode_rollback_plan,
    "HoodieRollbackMetadata": codec.decode_rollback,
    "HoodieRequestedReplaceMetadata": service_plans.decode_requested_replace,
    "HoodieCleanMetadata": clean_files.decode_clean,
    "HoodieCleanerPlan": clean_files.decode_clean_plan,
}
SAMPLES = {name: min(files_of(name).values(), key=len) for name in DECODERS}


@pytest.mark.parametrize("name", DECODERS)
def test_every_truncation_is_refused(name: str) -> None:
    for size in range(1, len(SAMPLES[name])):
        with pytest.raises(CorruptTableError):
            DECODERS[name](SAMPLES[name][:size], name="x")


@given(
    st.sampled_from(sorted(DECODERS)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=6))),
)
def test_any_bytes_are_read_or_refused(name: str, patches: list[tuple[float, bytes]]) -> None:
    data = bytearray(SAMPLES[name])
    for where, patch in patches:
        at = int(where * len(data))
        data[at : at + len(patch)] = patch
    try:
        read = DECODERS[name](bytes(data), name="x")
    except CorruptTableError:
        return
    assert read is not None


TEXTS = st.text(max_size=8)
SIZES = st.dictionaries(TEXTS, st.integers(0, 2**62), max_size=2)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
REQUESTS = st.builds(codec.RollbackRequest, TEXTS, st.none() | TEXTS, st.none() | TEXTS, LISTS, SIZES)
PARTITIONS = st.builds(codec.RollbackPartition, TEXTS, LISTS, LISTS, SIZES, SIZES)


@given(st.builds(codec.RollbackPlan, TEXTS, TEXTS, st.lists(REQUESTS, max_size=3).map(tuple)))
def test_any_rollback_plan_round_trips(plan: codec.RollbackPlan) -> None:
    data = codec.encode_rollback_plan(plan)
    assert codec.decode_rollback_plan(data, name="x") == plan
    assert oracle(data)["instantToRollback"]["commitTime"] == plan.instant_time


@given(
    st.builds(
        codec.RollbackMetadata,
        TEXTS,
        st.integers(0, 2**40),
        st.lists(st.tuples(TEXTS, TEXTS), max_size=3, unique_by=lambda instant: instant[0]).map(tuple),
        st.lists(PARTITIONS, max_size=3, unique_by=lambda part: part.partition_path).map(tuple),
    )
)
def test_any_rollback_round_trips(metadata: codec.RollbackMetadata) -> None:
    data = codec.encode_rollback(metadata)
    assert codec.decode_rollback(data, name="x") == metadata
    assert oracle(data)["totalFilesDeleted"] == metadata.deleted_file_count
