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
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="int64", region="string", v="int64")
#: Keys of each writer. The first few of them are in each of its commits, with one value.
ALWAYS, KEYS = 4, 40
SHORT: Final[dict[str, Any]] = {
    "hoodie.clean.commits.retained": 6,
    "hoodie.keep.min.commits": 8,
    "hoodie.keep.max.commits": 10,
}
MOST_FILES: Final = 700

#: A program that prints the value before and after each commit, so that a reader knows both.
SCRIPT: Final = """
import json, random, sys, time
import pyarrow as pa
import lakeformat
from lakeformat.errors import LockTimeoutError, WriteConflictError

path, writer, seconds, options = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
table, dice = lakeformat.open(path, **options), random.Random(writer)
mine, held, refused, done, until = 1000 * writer, {}, 0, 0, time.monotonic() + seconds
merges = table.config.table_type.value == "MERGE_ON_READ"
services = [lambda: table.clean(commits=6), lambda: table.archive(min_commits=8), lambda: table.cluster(by="v")]
services += [table.compact, lambda: table.run_compaction()] if merges else []

def rows(ids, value):
    return pa.table({"id": ids, "region": [f"r{id % 3}" for id in ids], "v": [value] * len(ids)})

def tried(verb):
    global refused
    try:
        verb()
    except (LockTimeoutError, WriteConflictError):
        refused += 1
        return False
    return True

while time.monotonic() < until:
    done += 1
    ids = [mine + n for n in range(ALWAYS)] + [mine + n for n in dice.sample(range(ALWAYS, KEYS), 5)]
    if tried(lambda: table.upsert(rows(ids, done))):
        held |= dict.fromkeys(ids, done)
    if done % 3 == 0:
        gone = [mine + n for n in dice.sample(range(ALWAYS, KEYS), 4)]
        if tried(lambda: table.delete(rows(gone, 0))):
            held = {id: v for id, v in held.items() if id not in gone}
    if done % 4 == writer % 4:
        tried(dice.choice(services))
print(json.dumps({"held": held, "refused": refused, "done": done}))
""".replace("ALWAYS", str(ALWAYS)).replace("KEYS", str(KEYS))

LENGTHS: Final = [
    pytest.param(20, id="short", marks=pytest.mark.slow),
    pytest.param(600, id="long", marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
]
KINDS: Final = {
    "v6-cow": {"hoodie.write.table.version": 6},
    "v9-mor": {
        "hoodie.write.table.version": 9,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": True,
        "hoodie.compact.inline.max.delta.commits": 3,
    },
}


def assert_whole_commits(table: lakeformat.Table, seen: dict[int, int]) -> None:
    """Check that the first keys of every writer come from one commit, which is not older than one seen before."""
    try:
        found = table.to_arrow(columns=["id", "v"])
    except (CorruptTableError, InstantNotAvailableError) as error:
        # More commits than are retained have completed meanwhile.
        if "hoodie.cleaner.commits.retained" not in str(error):
            raise
        return
    for writer in (1, 2):
        ids = range(1000 * writer, 1000 * writer + ALWAYS)
        values = {row["v"] for row in found.to_pylist() if row["id"] in ids}
        assert len(values) <= 1
        seen[writer] = max([seen.get(writer, 0), *values])
        assert not values or values == {seen[writer]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_two_writers_and_a_reader_over_many_commits_lose_nothing(
    seconds: int, kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "t"
    options = {**SHORT, **KINDS[kind]}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **options)
    given = json.dumps({name: str(value) for name, value in options.items()})
    command = [sys.executable, "-c", SCRIPT, str(path)]
    writers = [
        subprocess.Popen(
            [*command, str(writer), str(seconds), given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for writer in (1, 2)
    ]
    seen: dict[int, int] = {}
    table = lakeformat.open(path, **SHORT)
    while any(writer.poll() is None for writer in writers):
        assert_whole_commits(table, seen)
    said = [writer.communicate() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    results = [json.loads(out) for out, _ in said]
    held = {int(id_): v for each in results for id_, v in each["held"].items()}

    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == held
    hudi_rs.assert_same_rows(table)
    record_property("commits", len(table.history()))
    assert len(table.history()) >= sum(each["done"] - each["refused"] for each in results)
    table.clean()
    table.archive()
    assert not table.check(), str(table.check())
    timeline = table.snapshot().timeline
    assert not timeline.pending
    assert len(timeline.commits) <= SHORT["hoodie.keep.max.commits"]
    assert len(timeline.instants) <= 2 * SHORT["hoodie.keep.max.commits"]  # There are rollbacks between them.
    assert sum(each.is_file() for each in path.rglob("*")) < MOST_FILES
