"""Two processes write, clean, archive and compact one table at the same time: nothing is lost or left over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lakeformat
from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from tests.helpers import hudi_rs
from tests.helpers.busy_writer import ALWAYS, SCHEMA, first_key

WRITERS: Final = (1, 2)
MERGE_ON_READ: Final[dict[str, Any]] = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": True,
    "hoodie.compact.inline.max.delta.commits": 3,
}
METADATA_TABLE: Final[dict[str, Any]] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.compact.max.delta.commits": 3,
}
RECORD_INDEX: Final[dict[str, Any]] = {
    **METADATA_TABLE,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.record.index.enable": True,
}
BUCKETS: Final[dict[str, Any]] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
KINDS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "v6-cow": (6, {}),
    "v9-mor": (9, MERGE_ON_READ),
    "v6-mor": (6, MERGE_ON_READ),
    "v8-mor": (8, MERGE_ON_READ),
    "v9-cow": (9, {}),
    "v6-cow-metadata-table": (6, METADATA_TABLE),
    "v9-mor-metadata-table": (9, {**MERGE_ON_READ, **METADATA_TABLE}),
    "v9-cow-record-index": (9, RECORD_INDEX),
    "v9-mor-record-index": (9, {**MERGE_ON_READ, **RECORD_INDEX}),
    "v6-mor-buckets": (6, {**MERGE_ON_READ, **BUCKETS}),
    "v9-mor-buckets": (9, {**MERGE_ON_READ, **BUCKETS}),
    "v9-cow-global-index": (9, {"hoodie.index.type": "GLOBAL_BLOOM"}),
    "v6-cow-no-file-index": (6, {"lakeformat.file.index": False}),
}
#: Each kind with the seconds of its life and the number of commits that are retained.
LIVES: Final = [
    *(pytest.param(kind, 20, 6, id=f"{kind}-short", marks=pytest.mark.slow) for kind in ("v6-cow", "v9-mor")),
    *(
        pytest.param(kind, 60, retained, id=f"{kind}-{retained}", marks=[pytest.mark.nightly, pytest.mark.timeout(600)])
        for kind in KINDS
        for retained in (2, 8)
    ),
]
MOST_FILES: Final = 700


def assert_whole_commits(table: lakeformat.Table, seen: dict[int, int]) -> None:
    """Check that each writer's first keys are there once and from one commit, not older than the one seen before."""
    try:
        found = table.to_arrow(columns=["id", "v"])
    except (CorruptTableError, InstantNotAvailableError) as error:
        # More commits than are retained have completed meanwhile.
        if "hoodie.cleaner.commits.retained" not in str(error):
            raise
        return
    rows = found.to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    for writer in WRITERS:
        ids = range(first_key(writer), first_key(writer) + ALWAYS)
        values = [row["v"] for row in rows if row["id"] in ids]
        assert len(values) in ({ALWAYS} if writer in seen else {0, ALWAYS})
        assert len(set(values)) <= 1
        assert min(values, default=0) >= seen.get(writer, 0)
        if values:
            seen[writer] = values[0]


@pytest.mark.parametrize(("kind", "seconds", "retained"), LIVES)
def test_two_writers_and_a_reader_over_many_commits_lose_nothing(
    kind: str, seconds: int, retained: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path, (version, chosen) = tmp_path / "t", KINDS[kind]
    short = {
        "hoodie.clean.commits.retained": retained,
        "hoodie.keep.min.commits": retained + 2,
        "hoodie.keep.max.commits": retained + 4,
        "lakeformat.file.index.commits": 1 + retained // 2,
    }
    options = {**short, **chosen, "hoodie.write.table.version": version}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **options)
    given = json.dumps({name: str(value) for name, value in options.items()})
    command = [sys.executable, "-m", "tests.helpers.busy_writer", str(path)]
    writers = [
        subprocess.Popen(
            [*command, str(writer), str(seconds), given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for writer in WRITERS
    ]
    seen: dict[int, int] = {}
    table = lakeformat.open(path, **options)
    while any(writer.poll() is None for writer in writers):
        assert_whole_commits(table, seen)
    said = [writer.communicate() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    results = [json.loads(out) for out, _ in said]
    held = {int(id_): v for each in results for id_, v in each["held"].items()}

    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == held
    record_property("commits", len(table.history()))
    assert len(table.history()) >= sum(each["done"] - each["refused"] for each in results)
    table.clean()
    table.archive()
    assert not table.check(), str(table.check())
    timeline = table.snapshot().timeline
    assert not timeline.pending
    assert len(timeline.commits) <= short["hoodie.keep.max.commits"]
    assert len(timeline.instants) <= 2 * short["hoodie.keep.max.commits"]  # There are rollbacks between them.
    assert sum(each.is_file() for each in path.rglob("*")) < MOST_FILES
    if table.config.takes_logs:
        table.compact()  # hudi-rs does not read file groups without a base file.
    hudi_rs.assert_same_rows(table)
