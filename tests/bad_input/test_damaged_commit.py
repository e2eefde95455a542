"""Damage in a completed commit: it is refused by name, or what the commit says stays the same."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import CorruptTableError, LakeformatError
from lakeformat.codec.timeline_files.commit import (
    CHECKSUM_KEY,
    commit_to_avro,
    commit_to_json,
    decode_commit,
    encode_commit_json,
)
from lakeformat.model.commit import CommitMetadata, WriteStat
from tests.helpers.damage import flip
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", ts="int64")


def without_errors(commit: CommitMetadata) -> dict[str, list[WriteStat]]:
    """Return the write stats without the numbers of refused rows, which no checksum covers and no row depends on."""
    return {path: [replace(stat, write_errors=0) for stat in stats] for path, stats in commit.stats.items()}


def grow(path: Path, version: int, kind: str) -> Path:
    """Write three commits. Return the file of the newest one, which has replaced file groups of two partitions."""
    table = lakeformat.create(
        path,
        SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=kind,
        **{"hoodie.write.table.version": version},
    )
    for at in range(2):
        table.upsert(pa.table([[at, at + 1], ["b", "c"], [at, at]], schema=SCHEMA))
    if kind == "COPY_ON_WRITE":
        table.insert_overwrite(pa.table([[7, 8], ["b", "c"], [7, 8]], schema=SCHEMA))
    folder = path / ".hoodie" / ("timeline" if version > 6 else "")
    return max(folder.glob("*commit"), key=lambda file: file.name)


def rows(path: Path) -> list[str]:
    return sorted(map(str, lakeformat.open(path, **{"lakeformat.file.index": False}).to_arrow().to_pylist()))


@pytest.mark.parametrize(
    ("version", "kind", "step"),
    [
        (6, "COPY_ON_WRITE", 1),
        (6, "MERGE_ON_READ", 7),
        (9, "MERGE_ON_READ", 29),
        pytest.param(9, "COPY_ON_WRITE", 1, marks=pytest.mark.slow),
        pytest.param(9, "MERGE_ON_READ", 1, marks=pytest.mark.slow),
    ],
)
def test_flipped_bit_in_a_commit_never_changes_the_rows_silently(
    version: int, kind: str, step: int, tmp_path: Path
) -> None:
    """Every ``step``-th bit is flipped; if the file still decodes to something else, the table is read, too."""
    file = grow(tmp_path / "t", version, kind)
    data = file.read_bytes()
    commit, wanted = decode_commit(data, name="c"), rows(tmp_path / "t")
    outcomes, unhelpful = Counter[str](), 0
    for bit in range(0, 8 * len(data), step):
        damaged = flip(data, bit)
        try:
            found = decode_commit(damaged, name="t/x.commit")
        except CorruptTableError as error:
            outcomes["refused"] += 1
            unhelpful += "t/x.commit" not in str(error) or "restore" not in str(error)
            continue
        if found == commit:
            outcomes["same"] += 1
            continue
        outcomes["other"] += 1
        assert (without_errors(found), found.replaced) == (without_errors(commit), commit.replaced), bit
        file.write_bytes(damaged)
        os.utime(file, (bit, bit))  # Commits are cached by size and time.
        try:
            assert rows(tmp_path / "t") == wanted, bit
        except LakeformatError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > outcomes["same"] + outcomes["other"] > 0
    assert not unhelpful


STAT = {
    "fileId": "f-0",
    "path": "2025/11/20/f-0_0-1-2_20251120083000123.parquet",
    "prevCommit": "null",
    "partitionPath": "2025/11/20",
    "numWrites": 3,
    "numDeletes": 0,
    "numUpdateWrites": 0,
    "numInserts": 3,
    "totalWriteBytes": 500,
    "fileSizeInBytes": 500,
    "cdcStats": None,
}
#: A commit of another program: it has no checksum.
THEIRS: dict[str, Any] = {
    "partitionToWriteStats": {"2025/11/20": [STAT]},
    "compacted": False,
    "extraMetadata": {"schema": "{}"},
    "operationType": "UPSERT",
    "partitionToReplaceFileIds": {"2025/11/20": ["g-0"]},
}
CONTRADICTIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "other partition": (lambda t: t.replace('{"2025/11/20": [{', '{"2025/11/21": [{'), "partitionPath '2025/11/20'"),
    "other folder": (lambda t: t.replace('"2025/11/20/f-0', '"2025/11/21/f-0'), "does not lie in its partition"),
    "other file id": (lambda t: t.replace('"fileId": "f-0"', '"fileId": "f-1"'), "has not the fileId 'f-1'"),
    "other name": (lambda t: t.replace(".parquet", ".parqufu"), "neither a base file nor a log file"),
    "stats twice": (lambda t: t.replace('"compacted": false', '"partitionToWriteStats": {}'), "twice"),
    **{
        name: (lambda t, name=name: t.replace(f'"{name}"', f'"{name[:-1]}~"'), f"'{name[:-1]}~' where {name!r}")
        for name in (*THEIRS, *STAT, "schema")
        if name != "partitionToWriteStats"
    },
    "partitionToWriteStats": (lambda t: t.replace("ToWrite", "ToWrit~"), "has no partitionToWriteStats"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_commit_of_another_program_that_contradicts_itself_is_refused(case: str) -> None:
    change, reason = CONTRADICTIONS[case]
    with pytest.raises(CorruptTableError, match=r"^t/x.commit is .*; restore it from a copy") as caught:
        decode_commit(change(json.dumps(THEIRS)).encode(), name="t/x.commit")
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", [name for name in (*THEIRS, *STAT) if name not in {"partitionToReplaceFileIds"}])
def test_damaged_name_in_the_schema_of_an_avro_commit_is_refused(name: str) -> None:
    data = commit_to_avro(json.dumps(THEIRS).encode(), replace=True, name="x")
    assert decode_commit(data, name="x") == decode_commit(json.dumps(THEIRS).encode(), name="x")
    quoted = f'"{name}"'.encode()
    assert quoted in data
    with pytest.raises(CorruptTableError, match=f"t/x.commit .*'{name[:-1]}y' where '{name}' is missing; restore"):
        decode_commit(data.replace(quoted, f'"{name[:-1]}y"'.encode()), name="t/x.commit")


def test_fields_of_a_newer_release_are_skipped() -> None:
    newer = {
        **THEIRS,
        "partitionToWriteStats": {"2025/11/20": [{**STAT, "paths": 1, "file": 2}]},
        "somethingNew": 3,
    }
    assert decode_commit(json.dumps(newer).encode(), name="x") == decode_commit(json.dumps(THEIRS).encode(), name="x")
    older = {name: value for name, value in THEIRS.items() if name not in {"compacted", "operationType"}}
    assert decode_commit(json.dumps(older).encode(), name="x").operation == "UNKNOWN"


def test_checksum_survives_every_conversion() -> None:
    """An upgrade changes the encoding and the order of the maps; Hudi adds an entry to the extra metadata, too."""
    commit = decode_commit(json.dumps(THEIRS).encode(), name="x")
    data = encode_commit_json(commit, replace=True)
    document = json.loads(data)
    assert len(document["extraMetadata"][CHECKSUM_KEY]) == 8
    document["extraMetadata"] = {"ROLLING_STAT": "", **dict(reversed(document["extraMetadata"].items()))}
    for stats in document["partitionToWriteStats"].values():
        stats[:] = [{**stat, "minEventTime": None, "newer": 1} for stat in stats]
    recoded = commit_to_json(commit_to_avro(data, replace=True, name="x"), replace=True, name="x")
    for each in (json.dumps(document).encode(), recoded, commit_to_avro(recoded, replace=True, name="x")):
        found = decode_commit(each, name="x")
        assert (found.stats, found.replaced) == (commit.stats, commit.replaced)
        assert CHECKSUM_KEY not in found.extra


def test_contents_that_do_not_have_their_checksum_are_refused() -> None:
    data = encode_commit_json(CommitMetadata("UPSERT", {}, {"schema": "x", "job": "a"}))
    with pytest.raises(CorruptTableError, match=r"t/x.commit is damaged: .*checksum.*restore it from a copy"):
        decode_commit(data.replace(b'"a"', b'"b"'), name="t/x.commit")
