"""Rows that a global index keeps in their folder although they name another: filters use the stored column."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.folder_values import OFF_FOLDER
from lakeformat.storage.port import HOODIE, own_path
from tests.helpers.skipping_tables import SMALL, Reads
from tests.helpers.tables import a_schema, a_table

SCHEMA = a_schema(id="string", p="string", q="int64", v="int64")
FILTERS = [
    "p = 'y'",
    "p = 'x'",
    "p <> 'x'",
    "p > 'x'",
    "p in ('w', 'y')",
    "q = 2",
    "p = 'x' and q = 2",
    "not (p = 'z')",
]


def rows(*given: tuple[str, str, int, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*given, strict=True)], schema=SCHEMA)


def table(kind: str = "GLOBAL_SIMPLE", *, moves: bool = False, **options: Any) -> Table:
    switch = kind.removeprefix("GLOBAL_").lower()
    settings = {**SMALL, f"hoodie.{switch}.index.update.partition.path": moves, **options}
    return a_table(Reads(), schema=SCHEMA, partition_by="p,q", index=kind, **settings)


def forget_index(made: Table) -> None:
    made.context.storage.delete_folder(own_path("index"))


def forget_what_commits_say(made: Table) -> None:
    """Remove our note from the commits, as if another program had committed."""
    storage = made.context.storage
    forget_index(made)
    for entry in storage.list(HOODIE):
        if entry.name.endswith((".commit", ".replacecommit")):
            said = json.loads(storage.read(entry.path))
            del said["extraMetadata"][OFF_FOLDER], said["extraMetadata"][CHECKSUM_KEY]
            storage.replace(entry.path, json.dumps(said).encode())


KNOWN = {"indexed": lambda made: None, "listed": forget_index, "foreign": forget_what_commits_say}


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("kind", ["GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
@pytest.mark.parametrize("hive", [False, True])
def test_rows_outside_the_folder_of_their_partition_value_are_found(kind: str, known: str, hive: bool) -> None:
    made = table(kind, **{"hoodie.datasource.write.hive_style_partitioning": hive})
    made.upsert(rows(("a", "x", 1, 0), ("b", "x", 1, 0), ("c", "y", 1, 0), ("d", "z", 2, 0)))
    made.upsert(rows(("a", "y", 2, 1), ("d", "z", 3, 1)))
    wanted = {"a": ("y", 2), "b": ("x", 1), "c": ("y", 1), "d": ("z", 3)}
    KNOWN[known](made)
    for where in FILTERS:
        everything = made.to_arrow(["id", "p", "q"])
        assert {r["id"]: (r["p"], r["q"]) for r in everything.to_pylist()} == wanted
        unskipped = Table(made.context.storage, resolve({"hoodie.enable.data.skipping": False}))
        assert made.to_arrow(["id"], where=where).sort_by("id") == unskipped.to_arrow(["id"], where=where).sort_by(
            "id"
        ), where
        assert made.to_arrow(["id"], where=where, verify=True).num_rows == made.to_arrow(["id"], where=where).num_rows
    assert made.update({"v": 7}, where="q = 2").report["rows"]["updated"] == 1
    assert made.delete(where="p = 'y'").report["rows"]["deleted"] == 2
    assert sorted(made.to_arrow(["id"])["id"].to_pylist()) == ["b", "d"]


@pytest.mark.parametrize("known", KNOWN)
def test_tables_with_all_rows_in_their_folders_are_pruned_by_name(known: str) -> None:
    made = table("SIMPLE")
    made.insert(rows(("a", "x", 1, 0), ("b", "y", 1, 0)))
    made.insert(rows(("c", "x", 1, 0), ("d", "y", 2, 0)))
    KNOWN[known](made)
    storage = made.context.storage
    assert isinstance(storage, Reads)
    storage.opened.clear()
    assert made.to_arrow(["id"], where="p = 'x'").num_rows == 2
    assert {path.split("/")[0] for path in storage.opened if not path.startswith(HOODIE)} == {"x"}


def test_folders_proven_by_commits_are_pruned_and_others_are_read() -> None:
    made = table("SIMPLE")
    made.insert(rows(("a", "x", 1, 0), ("b", "y", 1, 0), ("c", "z", 1, 0)))
    made.upsert(rows(("b", "y", 1, 1)))
    storage = made.context.storage
    assert isinstance(storage, Reads)
    for forget, opened in ((forget_index, {"x"}), (forget_what_commits_say, {"x", "y"})):
        forget(made)
        storage.opened.clear()
        assert made.to_arrow(["id"], where="p = 'x'").num_rows == 1
        assert {path.split("/")[0] for path in storage.opened if not path.startswith(HOODIE)} == opened


def test_folder_is_pruned_once_its_rows_have_moved_back() -> None:
    made = table()
    storage = made.context.storage
    assert isinstance(storage, Reads)
    made.upsert(rows(("a", "x", 1, 0)))
    for home, found in (("y", 1), ("x", 0)):
        made.upsert(rows(("a", home, 1, 1)))
        storage.opened.clear()
        assert made.to_arrow(["id"], where="p = 'y'").num_rows == found
        assert any(not path.startswith(HOODIE) for path in storage.opened) == bool(found)
