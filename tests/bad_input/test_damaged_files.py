"""Torn, empty, missing or altered files of the table are named in an error, and never overwritten."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import CorruptTableError, LakeformatError, Table, TableNotFoundError, UnsupportedTableError
from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY
from lakeformat.files.footers import BLOOM, MIN_KEY
from tests.helpers.refusal import ROWS, check_message, new_table, tree

Damage = Callable[[bytes], bytes]
HOODIE = ".hoodie"


def ask(path: Path) -> dict[str, Callable[[], Any]]:
    return {
        "read": lambda: lakeformat.open(path).to_arrow(),
        "upsert": lambda: lakeformat.open(path).upsert(ROWS),
        "delete": lambda: lakeformat.open(path).delete(ROWS.select(["id"])),
    }


def assert_refused(path: Path, error: type[LakeformatError], *parts: str, only: tuple[str, ...] = ()) -> None:
    """Check that reads and writes fail with this error and change not a byte of the table."""
    before = tree(path)
    for name, call in ask(path).items():
        if only and name not in only:
            continue
        with pytest.raises(LakeformatError) as caught:
            call()
        check_message(caught, error, *parts)
        assert tree(path) == before


def newest_commit(folder: Path) -> Path:
    return sorted(folder.glob(f"{HOODIE}/*.commit"))[-1]


def base_file(folder: Path) -> Path:
    return sorted(folder.glob("x/*.parquet"))[0]


def damaged(path: Path, damage: Damage) -> Path:
    path.write_bytes(damage(path.read_bytes()))
    return path


COMMITS: dict[str, tuple[Damage, str]] = {
    "empty": (lambda _: b"", "is empty"),
    "torn": (lambda data: data[: len(data) // 2], "JSON"),
    "zeros": (lambda data: b"\0" * len(data), "JSON"),
    "text": (lambda _: b"hello", "JSON"),
    "NaN": (lambda _: b'{"a": NaN}', "NaN is not a JSON number"),
    "nested by the thousand": (lambda _: b"[" * 100_000, "JSON"),
    "a list": (lambda _: b"[]", "no JSON object"),
    "no file id": (lambda _: b'{"partitionToWriteStats": {"x": [{"path": "y"}]}}', "fileId"),
    "no stats": (lambda _: b'{"extraMetadata": {}}', "has no partitionToWriteStats"),
    "no path": (lambda _: b'{"partitionToWriteStats": {"x": [{"fileId": "y"}]}}', "a write stat has no path"),
    "stats are a list": (lambda _: b'{"partitionToWriteStats": [1]}', "is damaged"),
    "counts are texts": (
        lambda _: (
            b'{"partitionToWriteStats": {"x": [{"fileId": "f", "path": "", "partitionPath": "x", '
            b'"numWrites": "many"}]}}'
        ),
        "'many'",
    ),
    "replaced are a number": (
        lambda _: b'{"partitionToWriteStats": {}, "partitionToReplaceFileIds": {"x": 5}}',
        "not commit metadata",
    ),
    "schema is no JSON": (
        lambda _: b'{"partitionToWriteStats": {}, "extraMetadata": {"schema": "{"}}',
        "Avro schema",
    ),
    "schema is no record": (
        lambda _: b'{"partitionToWriteStats": {}, "extraMetadata": {"schema": "\\"int\\""}}',
        "not a record",
    ),
}


@pytest.mark.parametrize("case", COMMITS)
def test_unreadable_commit_is_refused_by_name(case: str, tmp_path: Path) -> None:
    damage, reason = COMMITS[case]
    new_table(tmp_path)
    folder = tmp_path / "table"
    commit = damaged(newest_commit(folder), damage)
    assert_refused(folder, CorruptTableError, f"{HOODIE}/{commit.name}", reason, "restore")


PROPERTIES: dict[str, tuple[Damage, type[LakeformatError], str]] = {
    "empty": (lambda _: b"", CorruptTableError, "is empty"),
    "blank": (lambda _: b"\n \n", CorruptTableError, "is empty"),
    "zeros": (lambda data: b"\0" * len(data), CorruptTableError, "NUL bytes"),
    "torn": (lambda data: data[:200], CorruptTableError, "has no hoodie.table.name"),
    "bad escape": (lambda data: data + b"x=\\u12\n", CorruptTableError, "\\uXXXX"),
    "checksum": (
        lambda data: data.replace(b"checksum=", b"checksum=1"),
        CorruptTableError,
        "hoodie.table.checksum does not fit",
    ),
    "layout 2": (
        lambda data: data.replace(b"layout.version=1", b"layout.version=2"),
        UnsupportedTableError,
        "hoodie.timeline.layout.version=2",
    ),
    "version 7": (
        lambda data: data.replace(b"table.version=6", b"table.version=7"),
        UnsupportedTableError,
        "hoodie.table.version=7 is not supported, only 6, 8, 9, 10 are",
    ),
    "version 9 with the timeline of version 6": (
        lambda data: data.replace(b"table.version=6", b"table.version=9"),
        UnsupportedTableError,
        "hoodie.timeline.layout.version=1",
    ),
    "ORC": (lambda data: data.replace(b"=PARQUET", b"=ORC"), UnsupportedTableError, "base.file.format=ORC"),
}


def without(key: str) -> Damage:
    return lambda data: data.replace(key.encode() + b"=", b"x=")


for _key in ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version"):
    PROPERTIES[f"without {_key}"] = (without(_key), CorruptTableError, f"has no {_key}")


@pytest.mark.parametrize("case", PROPERTIES)
def test_damaged_table_properties_are_refused(case: str, tmp_path: Path) -> None:
    damage, error, reason = PROPERTIES[case]
    new_table(tmp_path)
    folder = tmp_path / "table"
    damaged(folder / HOODIE / "hoodie.properties", damage)
    assert_refused(folder, error, f"{HOODIE}/hoodie.properties", reason)


NOT_FOR_WRITING: dict[str, tuple[Damage, type[LakeformatError], str]] = {
    "no record key": (
        lambda data: data.replace(b"recordkey.fields=id", b"recordkey.fields="),
        UnsupportedTableError,
        "hoodie.table.recordkey.fields",
    ),
    "change data of a kind that is not known": (
        lambda data: data + b"hoodie.table.cdc.enabled=true\nhoodie.table.cdc.supplemental.logging.mode=ALL\n",
        UnsupportedTableError,
        "hoodie.table.cdc.supplemental.logging.mode=ALL",
    ),
    "no partition fields": (
        lambda data: data.replace(b"hoodie.table.partition.fields", b"x"),
        CorruptTableError,
        "hoodie.table.partition.fields",
    ),
    "a payload class of somebody's own": (
        lambda data: data.replace(b"DefaultHoodieRecordPayload", b"MyPayload"),
        UnsupportedTableError,
        "MyPayload",
    ),
    "a merge mode of somebody's own": (
        lambda data: data + b"hoodie.record.merge.mode=CUSTOM\n",
        UnsupportedTableError,
        "hoodie.record.merge.mode=CUSTOM",
    ),
}


@pytest.mark.parametrize("case", NOT_FOR_WRITING)
def test_table_with_unsupported_properties_is_read_and_not_written(case: str, tmp_path: Path) -> None:
    damage, error, reason = NOT_FOR_WRITING[case]
    table = new_table(tmp_path)
    rows = table.to_arrow(meta_columns=False)
    folder = tmp_path / "table"
    damaged(folder / HOODIE / "hoodie.properties", damage)
    assert lakeformat.open(folder).to_arrow(meta_columns=False).equals(rows)
    assert_refused(folder, error, "hoodie.properties", reason, only=("upsert",))


def test_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(LakeformatError) as caught:
            lakeformat.open(path)
        check_message(caught, TableNotFoundError, str(path), ".hoodie/hoodie.properties", "check the path")
    assert list(tmp_path.iterdir()) == []


def flipped_tail(data: bytes) -> bytes:
    return data[:-4] + b"XXXX"


def scrambled_footer(data: bytes) -> bytes:
    return data[:-300] + bytes(byte ^ 0x55 for byte in data[-300:-8]) + data[-8:]


def broken_name(data: bytes) -> bytes:
    return data[:-2500] + data[-2500:].replace(b"_hoodie_record_key", b"_hoodie_record_\xff\xfey", 1)


#: The file index does not read the files that it knows; tests/file_index tests damage for that case.
LISTED = {"lakeformat.file.index": False}
BASE_FILES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "no magic": (flipped_tail, ("cannot be read as Parquet",)),
    "scrambled footer": (scrambled_footer, ("cannot be read as Parquet",)),
    "footer longer than the file": (
        lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        ("cannot be read as Parquet",),
    ),
    "a name that is no UTF-8": (broken_name, ("cannot be read as Parquet",)),
    "truncated": (lambda data: data[:100], ("has 100 bytes", "wrote")),
    "empty": (lambda _: b"", ("has 0 bytes", "wrote")),
    "longer": (lambda data: data + b"\0", ("bytes where instant",)),
}


@pytest.mark.parametrize("case", BASE_FILES)
def test_damaged_base_file_is_refused_by_name(case: str, tmp_path: Path) -> None:
    damage, parts = BASE_FILES[case]
    new_table(tmp_path, **LISTED)
    folder = tmp_path / "table"
    assert damaged(base_file(folder), damage).exists()
    assert_refused(folder, CorruptTableError, str(base_file(folder)), *parts, "restore it from a copy")


def test_missing_base_file_is_refused_by_name(tmp_path: Path) -> None:
    table = new_table(tmp_path, **LISTED)
    base = base_file(tmp_path / "table")
    base.unlink()
    assert_refused(tmp_path / "table", CorruptTableError, f"x/{base.name}", "is missing", "restore it")
    with pytest.raises(LakeformatError) as caught:
        table.to_arrow(as_of=table.context.store.load().commits[0].time)
    check_message(caught, lakeformat.InstantNotAvailableError, base.name, "cleaned")


def test_flipped_bit_in_a_data_page_is_always_noticed(tmp_path: Path) -> None:
    count = 300
    columns = {
        "id": [f"k{n}" for n in range(count)],
        "n": pa.array([n if n % 7 else None for n in range(count)], pa.int32()),
        "ts": [1] * count,
        "p": ["x"] * count,
        "v": [n / 3 for n in range(count)],
    }
    table = new_table(tmp_path, rows=pa.table(columns))
    wanted = table.to_arrow(meta_columns=True)
    base = base_file(tmp_path / "table")
    whole = base.read_bytes()
    pages_end = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    # Page headers have no checksum. A damaged count of values, for example, must not end a file early without an error.
    noticed = [at for at in range(4, pages_end, 37) if is_noticed(table, base, whole, at, wanted)]
    assert len(noticed) > 0.8 * (pages_end // 37)


def is_noticed(table: Table, base: Path, whole: bytes, at: int, wanted: pa.Table) -> bool:
    """Tell whether a bit flipped at this byte makes the read fail. If the read succeeds, its rows must be right."""
    base.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
    try:
        rows = table.to_arrow(meta_columns=True)
    except CorruptTableError as error:
        return base.name in str(error)
    assert rows.equals(wanted), f"byte {at}"
    return False


@pytest.mark.parametrize("index", ["AUTO", "BLOOM", "SIMPLE"])
def test_damaged_page_stops_the_merge_of_its_file(index: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.index.type": index})
    rows = table.to_arrow()
    base = base_file(tmp_path / "table")
    whole = base.read_bytes()
    chunk = pq.ParquetFile(base).metadata.row_group(0).column(9)
    at = chunk.data_page_offset + chunk.total_compressed_size - 3
    base.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    files = sorted(path.name for path in base.parent.glob("*.parquet"))
    with pytest.raises(LakeformatError) as caught:
        table.upsert(ROWS)
    check_message(caught, CorruptTableError, str(base), "CRC", "restore it from a copy")
    assert sorted(path.name for path in base.parent.glob("*.parquet")) == files
    base.write_bytes(whole)
    assert table.to_arrow().equals(rows)


def rewrite_footer(base: Path, change: dict[bytes, bytes | None]) -> None:
    """Write the base file with other key-values in its footer, and update its size in the commit."""
    found = pq.ParquetFile(base)
    rows, footer = found.read(), {**found.metadata.metadata, **change}
    with pq.ParquetWriter(base, rows.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(rows.replace_schema_metadata(None))
        writer.add_key_value_metadata({name: value for name, value in footer.items() if value is not None})
    commit = newest_commit(base.parent.parent)
    document = json.loads(commit.read_text())
    for stats in document["partitionToWriteStats"].values():
        for stat in stats:
            if stat["path"].endswith(base.name):
                stat["fileSizeInBytes"] = base.stat().st_size
    del document["extraMetadata"][CHECKSUM_KEY]
    commit.write_text(json.dumps(document))


@pytest.mark.parametrize("index", ["AUTO", "BLOOM", "SIMPLE"])
@pytest.mark.parametrize(
    "change",
    [{BLOOM: b"%%%"}, {BLOOM: b"AAAA"}, {BLOOM: None}, {MIN_KEY: None}, {MIN_KEY: b"\xff"}],
    ids=["no base64", "cut", "none", "half a range", "a range of bytes"],
)
def test_damaged_bloom_filter_costs_only_a_read_of_the_keys(
    change: dict[bytes, bytes | None], index: str, tmp_path: Path
) -> None:
    new_table(tmp_path)
    rewrite_footer(base_file(tmp_path / "table"), change)
    table = lakeformat.open(tmp_path / "table", **{"hoodie.index.type": index})
    result = table.upsert(ROWS)
    assert result.report["rows"] == {"incoming": 2, "inserted": 0, "updated": 2, "deleted": 0}
    assert table.to_arrow().num_rows == 2


HOSTILE = ["..", "../../outside", "/etc", "a/../..", "x\0y", "C:\\x"]


def make_outside_file(tmp_path: Path) -> tuple[Path, bytes]:
    """Return a file beside the table that a path with dots would reach, and its content."""
    victim = tmp_path / "outside" / "z-0_0-0-0_20240101000000000.parquet"
    victim.parent.mkdir(exist_ok=True)
    victim.write_bytes(b"not yours")
    return victim, victim.read_bytes()


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("place", ["path", "partition", "replaced partition", "replaced file"])
def test_paths_in_a_commit_never_lead_out_of_the_table(place: str, path: str, tmp_path: Path) -> None:
    """Paths in a commit are only compared with a listing: no file is opened or deleted by them."""
    table = new_table(tmp_path, **LISTED)
    rows = table.to_arrow()
    victim, content = make_outside_file(tmp_path)
    commit = newest_commit(tmp_path / "table")
    document = json.loads(commit.read_text())
    stats = [stat for part in document["partitionToWriteStats"].values() for stat in part]
    match place:
        case "path":
            for stat in stats:
                stat["path"] = f"{path}/{Path(stat['path']).name}"
        case "partition":
            document["partitionToWriteStats"] = {path: [{**stat, "partitionPath": path} for stat in stats]}
        case "replaced partition":
            document["partitionToReplaceFileIds"] = {path: ["f-0"]}
        case _:
            document["partitionToReplaceFileIds"] = {"x": [f"{path}/f-0"]}
    del document["extraMetadata"][CHECKSUM_KEY]
    commit.write_text(json.dumps(document))
    before = tree(tmp_path / "table")
    for call in ask(tmp_path / "table").values():
        if place in {"path", "partition"}:
            with pytest.raises(LakeformatError) as caught:
                call()
            check_message(caught, CorruptTableError, "restore")
            assert tree(tmp_path / "table") == before
        else:
            call()
    if place not in {"path", "partition"}:
        assert rows.num_rows == 2
        assert table.to_arrow().num_rows == 0  # All rows were found and deleted.
    assert victim.read_bytes() == content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside", "table"]


def pending_rollback(table: Table, partition: str, names: tuple[str, ...]) -> str:
    """Put a rollback of a dead writer on the timeline, with a plan that names these files."""
    from lakeformat.codec.timeline_files.recovery import RollbackPlan, RollbackRequest, encode_rollback_plan

    time = "20200101000000000"
    plan = RollbackPlan("20200101000000001", "commit", (RollbackRequest(partition, files_to_delete=names),))
    storage = table.context.storage
    storage.create(f"{HOODIE}/.lakeformat/pending/{time}", b'{"kind": "lock"}')
    storage.create(f"{HOODIE}/{time}.rollback.requested", encode_rollback_plan(plan))
    return time


@pytest.mark.parametrize("partition", ["..", "../outside", "/etc", "x/../../outside", "a\0b"])
def test_partitions_in_a_rollback_plan_never_lead_out_of_the_table(partition: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    victim, content = make_outside_file(tmp_path)
    pending_rollback(table, partition, (victim.name,))
    rows = table.to_arrow()
    with pytest.raises(LakeformatError) as caught:
        table.upsert(ROWS)
    check_message(caught, CorruptTableError, repr(f"{partition}/{victim.name}"), "leads out of the table")
    assert victim.read_bytes() == content
    assert table.to_arrow().equals(rows)


def test_files_in_a_rollback_plan_must_be_plain_names(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    victim, content = make_outside_file(tmp_path)
    orphan = tmp_path / "table/x" / victim.name
    orphan.write_bytes(b"left by the dead writer")
    pending_rollback(table, "x", (f"../../outside/{victim.name}", str(victim)))
    table.upsert(ROWS)
    assert not orphan.exists()
    assert victim.read_bytes() == content


@pytest.mark.parametrize("data", [b"", b"Obj", b"not avro at all", b"Obj\x01\xff\xff\xff\xff\xff\xff"])
def test_unreadable_rollback_plan_is_refused_by_name(data: bytes, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    time = pending_rollback(table, "x", ())
    table.context.storage.replace(f"{HOODIE}/{time}.rollback.requested", data)
    rows = table.to_arrow()
    with pytest.raises(LakeformatError) as caught:
        table.upsert(ROWS)
    check_message(caught, CorruptTableError, f"{time}.rollback.requested")
    assert table.to_arrow().equals(rows)


@pytest.mark.parametrize("data", [b"Obj", b"not avro at all", b"Obj\x01\xff\xff\xff\xff\xff\xff"])
def test_unreadable_clean_stops_only_time_travel(data: bytes, tmp_path: Path) -> None:
    """The clean hides which past files exist, so only time travel is refused."""
    table = new_table(tmp_path)
    time = table.history()[0].instant_time
    name = f"{int(time) + 1}.clean"
    table.context.storage.create(f"{HOODIE}/{name}", data)
    with pytest.raises(LakeformatError) as caught:
        table.to_arrow(as_of=time)
    check_message(caught, CorruptTableError, name)
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("data", [b"Obj", b"not avro at all"])
def test_unreadable_clustering_plan_stops_writers(data: bytes, tmp_path: Path) -> None:
    """The plan hides which file groups must not be written, so every write is refused."""
    table = new_table(tmp_path)
    rows = table.to_arrow()
    name = f"{int(table.history()[0].instant_time) + 1}.replacecommit.requested"
    table.context.storage.create(f"{HOODIE}/{name}", data)
    with pytest.raises(LakeformatError) as caught:
        table.upsert(ROWS)
    check_message(caught, CorruptTableError, name)
    assert table.to_arrow().equals(rows)
