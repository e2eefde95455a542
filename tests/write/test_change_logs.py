"""Tables with hoodie.table.cdc.enabled: the content of the change data that we write. The oracle is a dict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table
from lakeformat.model.operation import Operation
from tests.helpers.change_files import read_logged_changes
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.local_shuffle import write_shuffled
from tests.helpers.tables import a_schema

CDC: Final = "hoodie.table.cdc.enabled"
MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
MODES: Final = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
KINDS: Final = [(version, kind) for version in ("6", "8", "9") for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]
SCHEMA: Final = a_schema(id="string", region="string", ts="int64", v="int64")
Model = dict[str, dict[str, Any]]


def row(key: str, ts: int, v: int | None) -> dict[str, Any]:
    return {"id": key, "region": "r1" if key in "abcxyz" else "r2", "ts": ts, "v": v}


def rows(keys: str, ts: int, v: int | None) -> pa.Table:
    return pa.Table.from_pylist([row(key, ts, v) for key in keys], SCHEMA)


def make_table(folder: Path, version: str, kind: str, mode: str, **more: str) -> Table:
    options = {"hoodie.write.table.version": version, "table_type": kind, CDC: "true", MODE: mode, **more}
    return lakeformat.create(folder, SCHEMA, record_key="id", partition_by="region", ordering="ts", **options)


def run_merge(table: Table) -> None:
    source = rows("ay", 9, 90)
    table.merge(source).when_matched_delete("source.id = 'a'").when_not_matched_insert().execute()


#: Writes, and their effect on the rows: all ways in which a base file is rewritten.
STEPS: Final[list[tuple[Callable[[Table], Any], Callable[[Model], Model]]]] = [
    (lambda t: t.insert(rows("abde", 5, 1)), lambda m: {k: row(k, 5, 1) for k in "abde"}),
    (lambda t: t.upsert(rows("ac", 6, None)), lambda m: m | {k: row(k, 6, None) for k in "ac"}),
    (lambda t: t.upsert(rows("bd", 4, 3)), lambda m: m),  # The rows are late: the stored ones stay.
    (lambda t: t.insert(rows("xf", 7, 4)), lambda m: m | {k: row(k, 7, 4) for k in "xf"}),
    (lambda t: t.delete(where="id = 'b'"), lambda m: {k: r for k, r in m.items() if k != "b"}),
    (lambda t: t.update({"v": 7}, where="region = 'r1'"), lambda m: m | {k: {**m[k], "v": 7} for k in m if k in "acx"}),
    (run_merge, lambda m: {k: r for k, r in m.items() if k != "a"} | {"y": row("y", 9, 90)}),
    (lambda t: t.delete(rows("cqxy", 9, 0).select(["id", "region"])), lambda m: {k: m[k] for k in "def"}),
    (lambda t: t.insert_overwrite(rows("z", 9, 9)), lambda m: {k: m[k] for k in "def"} | {"z": row("z", 9, 9)}),
]  # fmt: skip


def list_changes(before: Model, after: Model) -> list[tuple[str, str, Any, Any]]:
    ops = {(False, True): "i", (True, True): "u", (True, False): "d"}
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return sorted((ops[key in before, key in after], key, before.get(key), after.get(key)) for key in keys)


def read_changes(table: Table, columns: list[str] | None = None) -> list[str]:
    found = table.changes("000", images=True).to_arrow(columns).to_pylist()
    for change in found:
        for image in (change["before"] or {}, change["after"] or {}):
            image.pop("_hoodie_record_key", None)
    return sorted(json.dumps(change) for change in found)


@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow), MODES[2]])
@pytest.mark.parametrize(("version", "kind"), KINDS, ids=str)
def test_every_write_logs_its_changes(version: str, kind: str, mode: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", version, kind, mode)
    before: Model = {}
    for at, (write, applied) in enumerate(STEPS):
        write(table)
        time = table.history()[0].instant_time
        after = applied(before)
        records = [record for instant, _, record in read_logged_changes(tmp_path / "t") if instant == time]
        if kind == "COPY_ON_WRITE":  # New and replaced file groups need no change data.
            wanted = list_changes(before, after) if at not in {0, len(STEPS) - 1} else []
            assert sorted(as_logged(one, mode, time) for one in wanted) == sorted(map(text, records)), at
        before = after
    assert {r["id"]: r for r in table.to_arrow(meta_columns=False).to_pylist()} == before
    # If the key is selected, images come from the file slices, not from the change data.
    assert read_changes(table) == read_changes(table, [*SCHEMA.names, "_hoodie_record_key"])
    assert read_logged_changes(tmp_path / "t")


def text(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


def as_logged(change: tuple[str, str, Any, Any], mode: str, time: str) -> str:
    op, key, before, after = change
    if mode == "DATA_BEFORE_AFTER":
        return text({"op": op, "ts_ms": time, "before": before, "after": after})
    return text({"op": op, "record_key": key, **({} if mode == "OP_KEY_ONLY" else {"before": before})})


@pytest.mark.parametrize("name", [name for name in names("hudi_changes") if "_cdc" in name])
def test_writes_to_hudi_tables_log_changes(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    known = table.to_arrow(meta_columns=False)
    since = table.changes("000").until
    logged = {file.name for file in folder.rglob("*.cdc")}
    key = table.config.record_fields[0]
    column = next(
        c for c in known.column_names if c not in {key, *table.config.partition_fields, *table.config.ordering_fields}
    )
    table.update({column: None}, where=f"_hoodie_record_key = '{known.column(key)[0]}'")
    (change,) = table.changes(since, images=True).to_arrow().to_pylist()
    assert (change["op"], change["before"][key]) == ("u", known.column(key)[0].as_py())
    assert change["after"] == {**change["before"], column: None}
    new = {file.name for file in folder.rglob("*.cdc")} - logged
    assert len(new) == (0 if table.config.takes_logs else 1)


def test_change_log_options_are_stored_in_the_table(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", "9", "COPY_ON_WRITE", "data_before")
    properties = (tmp_path / "t/.hoodie/hoodie.properties").read_text()
    assert f"{CDC}=true\n" in properties
    assert f"{MODE}=DATA_BEFORE\n" in properties
    for option in ({CDC: "false"}, {MODE: "OP_KEY_ONLY"}):
        with pytest.raises(InvalidOptionError, match=r"contradicts .* settings of a table are fixed"):
            lakeformat.open(tmp_path / "t", **option).upsert(rows("a", 1, 1))
    plain = lakeformat.create(tmp_path / "plain", SCHEMA, record_key="id")
    with pytest.raises(InvalidOptionError, match=r"contradicts 'false'"):
        lakeformat.open(tmp_path / "plain", **{CDC: "true"}).upsert(rows("a", 1, 1))
    assert (table.history(), plain.history()) == ([], [])


def test_large_changes_make_several_blocks(tmp_path: Path) -> None:
    options = {"hoodie.parquet.block.size": "20000"}
    make_table(tmp_path / "t", "9", "COPY_ON_WRITE", "DATA_BEFORE_AFTER")
    table = lakeformat.open(tmp_path / "t", **options)
    for v in range(2):
        table.upsert(
            pa.table([[f"a{n:05}" for n in range(1000)], ["r1"] * 1000, [v] * 1000, [v] * 1000], schema=SCHEMA)
        )
    (file,) = tmp_path.rglob("*.cdc")
    assert file.read_bytes().count(b"#HUDI#") > 2
    assert len(read_logged_changes(tmp_path / "t")) == 1000
    assert read_changes(table) == read_changes(table, [*SCHEMA.names, "_hoodie_record_key"])


@pytest.mark.parametrize("version", ["6", "9"])
def test_rollback_and_cleaning_delete_change_data(version: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", version, "COPY_ON_WRITE", "DATA_BEFORE_AFTER")
    for v in range(3):
        table.upsert(rows("ade", v, v))
    files = {file.name for file in tmp_path.rglob("*.cdc")}
    assert len(files) == 4
    undone = table.history()[0].instant_time
    table.rollback()
    left = {file.name for file in tmp_path.rglob("*.cdc")}
    assert left == {name for name in files if undone not in name}
    for v in range(3, 6):
        table.upsert(rows("ade", v, v))
    lakeformat.open(tmp_path / "t", **{"hoodie.cleaner.commits.retained": "1"}).clean()
    assert len({name.partition(".log")[0][-17:] for name in map(str, tmp_path.rglob("*.cdc"))}) == 2
    logged_changes_of_newest = {file.name for file in tmp_path.rglob("*.cdc")}
    assert not logged_changes_of_newest & left


def test_change_data_of_tasks_is_moved_with_their_files(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", "9", "COPY_ON_WRITE", "DATA_BEFORE_AFTER")
    table.insert(rows("abde", 1, 1))
    write_shuffled(table, [rows("ad", 2, 2), rows("fx", 2, 2)], Operation.UPSERT)
    wanted = sorted(f"{op} {key}" for op, key in zip("uuii", "adfx", strict=True))
    found = [record for _, _, record in read_logged_changes(tmp_path / "t")]
    assert sorted(f"{one['op']} {one['after']['id']}" for one in found) == wanted
    assert read_changes(table) == read_changes(table, [*SCHEMA.names, "_hoodie_record_key"])
