"""Damage in each kind of file in ``.hoodie``: the rows stay the same, or an error or a warning names the damage."""

from __future__ import annotations

import logging
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import LakeformatError
from tests.helpers.damage import flip
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", ts="int64")
#: Few commits stay on the timeline, so the archive has several files.
SHORT = {"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5, "hoodie.clean.commits.retained": 3}


def grow_table(path: Path, version: int, kind: str) -> Path:
    table = lakeformat.create(
        path,
        SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=kind,
        **{"hoodie.write.table.version": version, **SHORT},
    )
    for at in range(12):
        table.upsert(pa.table([[at, at + 1], ["a", "b"], [at, at]], schema=SCHEMA))
        if at == 9:
            table.savepoint()
    return path


def questions(path: Path) -> dict[str, Callable[[], list[str]]]:
    def rows(table: pa.Table) -> list[str]:
        return sorted(map(str, table.to_pylist()))

    return {
        "read": lambda: rows(lakeformat.open(path).to_arrow()),
        "without the index": lambda: rows(lakeformat.open(path, **{"lakeformat.file.index": False}).to_arrow()),
        "changes": lambda: rows(lakeformat.open(path).changes(since="000").to_arrow()),
        "history": lambda: [each.instant_time for each in lakeformat.open(path).history()],
    }


def files_by_kind(path: Path) -> list[Path]:
    """Return the newest file of each kind. A kind is a name without its numbers."""
    kinds: dict[str, Path] = {}
    for file in sorted((path / ".hoodie").rglob("*")):
        if file.is_file() and file.stat().st_size:
            name = str(file.relative_to(path))
            kinds[re.sub(r"[0-9a-f-]{8,}|\d+", "#", name)] = file.relative_to(path)
    return list(kinds.values())


def damages(data: bytes) -> dict[str, bytes]:
    bit = random.Random(len(data)).randrange(8 * len(data))
    return {"empty": b"", "torn": data[: len(data) // 2], f"bit {bit}": flip(data, bit)}


@pytest.mark.parametrize(
    ("version", "kind"), [pytest.param(6, "COPY_ON_WRITE", marks=pytest.mark.slow), (9, "MERGE_ON_READ")]
)
def test_damage_in_the_hoodie_folder_is_never_silent(
    version: int, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = grow_table(tmp_path / "t", version, kind)
    whole = {name: ask() for name, ask in questions(path).items()}
    outcomes = defaultdict[str, int](int)
    for number, file in enumerate(files_by_kind(path)):
        for how, data in damages((path / file).read_bytes()).items():
            copy = tmp_path / f"{number}-{how}"
            shutil.copytree(path, copy)
            (copy / file).write_bytes(data)
            for name, ask in questions(copy).items():
                caplog.clear()
                try:
                    found = ask()
                except LakeformatError:
                    outcomes["refused"] += 1
                    continue
                is_told = any(record.levelno >= logging.WARNING for record in caplog.records)
                assert found == whole[name] or is_told, (file, how, name)
                outcomes["same" if found == whole[name] else "told"] += 1
            shutil.rmtree(copy)
    assert outcomes["same"] > outcomes["refused"] > 0
