"""Log files with row positions in the base file: the rows that are read equal a dict, and the positions are right."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Table
from lakeformat.codec.log_blocks import HeaderKey, decode_positions
from lakeformat.files.log_reader import decode_blocks, read_blocks
from lakeformat.merge.versions import LogRows
from tests.helpers.tables import a_schema, a_table

KEY = "_hoodie_record_key"
SCHEMA = a_schema(id="string", ts="int64", part="string", v="int64")
Model = dict[str, tuple[int, str, int]]


def new_table(version: int, **options: Any) -> Table:
    ordering = options.pop("hoodie.datasource.write.precombine.field", "ts")
    kind = {"partition_by": "part", "ordering": ordering, "merge_on_read": True, "version": version}
    few_rows = {"lakeformat.parquet.row.group.rows": 7, "hoodie.compact.inline": False}
    return a_table(schema=SCHEMA, **kind, **{**few_rows, **options})


def rows(values: Model) -> pa.Table:
    listed = [{"id": key, "ts": ts, "part": part, "v": v} for key, (ts, part, v) in values.items()]
    return pa.Table.from_pylist(listed, SCHEMA)


def check_rows(table: Table, model: Model) -> None:
    """Check all columns, and reads that need neither keys nor ordering values."""
    whole = {row["id"]: (row["ts"], row["part"], row["v"]) for row in table.to_arrow().to_pylist()}
    assert whole == model
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == sorted(v for _, _, v in model.values())
    assert table.read(columns=["part"]).to_arrow().num_rows == len(model)
    some = sorted(table.to_arrow(["v"], where="v > 500")["v"].to_pylist())
    assert some == sorted(v for _, _, v in model.values() if v > 500)


def positioned_blocks(table: Table) -> int:
    """Count blocks that point to rows of their base file, and check that each row has the key of its record."""
    storage, count = table.context.storage, 0
    for piece in table.snapshot().each_slice():
        if piece.base is None:
            continue
        with storage.open_input(piece.base.path) as source:
            stored = pq.read_table(source, columns=[KEY])[KEY].to_pylist()
        blocks = [block for log in piece.logs for block in read_blocks(storage, log)]
        for block, part in zip(blocks, decode_blocks(storage, blocks, base_instant=piece.base_instant), strict=True):
            if part.positions is None:
                continue
            count += 1
            found = decode_positions(block.header[HeaderKey.RECORD_POSITIONS])
            assert found is not None
            assert found.rows.tolist() == part.positions.tolist()
            keys = part.rows[KEY] if isinstance(part, LogRows) else part.keys
            assert [stored[at] for at in part.positions.tolist()] == keys.to_pylist()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("seed", range(3))
def test_histories_read_alike_by_position_and_by_key(version: int, seed: int) -> None:
    """Updates with greater, equal and smaller ordering values, deletes, new keys and keys that come back."""
    chosen, model = random.Random(seed), Model()
    table = new_table(version, **{"hoodie.index.type": chosen.choice(["BLOOM", "SIMPLE", "AUTO"])})
    model = {f"k{at:03d}": (10, f"p{at % 2}", at) for at in range(60)}
    table.bulk_insert(rows(model))
    voided = set[str]()
    for step in range(1, 7):
        keys = chosen.sample(sorted(model), 8)
        changed = {
            key: (10 + chosen.choice([-3, 0, step]), model[key][1], 100 * step + at) for at, key in enumerate(keys)
        }
        table.upsert(rows(changed))
        for key, row in changed.items():
            if row[0] >= model[key][0]:
                model[key] = row
        gone = chosen.sample(sorted(model), 4)
        table.delete(pa.table({"id": gone, "part": [model[key][1] for key in gone]}))
        voided.update(gone)
        for key in gone:
            del model[key]
        if step == 4:
            back = {key: (50, f"p{int(key[1:]) % 2}", 900) for key in sorted(voided)[:2] if key not in model}
            fresh = {f"n{at:03d}": (50, "p0", 901) for at in range(3)}
            table.upsert(rows(back | fresh))
            model |= back | fresh
        check_rows(table, model)
    assert positioned_blocks(table) > 6
    table.compact()
    check_rows(table, model)


@pytest.mark.parametrize("version", [6, 9])
def test_log_rows_during_a_pending_compaction_carry_no_positions(version: int) -> None:
    model: Model = {f"k{at:03d}": (0, "p", at) for at in range(40)}
    table = new_table(version)
    table.bulk_insert(rows(model))
    table.delete(pa.table({"id": ["k000", "k001", "k020"], "part": ["p"] * 3}))
    for key in ("k000", "k001", "k020"):
        del model[key]  # In the base file of the compaction, all later rows move up.
    table.schedule_compaction()
    changed: Model = {f"k{at:03d}": (5, "p", 700 + at) for at in (2, 19, 21, 39)}
    table.upsert(rows(changed))
    model |= changed
    check_rows(table, model)
    table.run_compaction()
    check_rows(table, model)
    assert positioned_blocks(table) == 0
    later: Model = {f"k{at:03d}": (6, "p", 800 + at) for at in (3, 19, 22)}
    table.upsert(rows(later))
    check_rows(table, model | later)
    assert positioned_blocks(table) == 1


def test_duplicate_key_of_a_base_file_is_changed_in_both_rows() -> None:
    table = new_table(6)
    table.insert(pa.concat_tables([rows({"a": (0, "p", 1), "b": (0, "p", 2)}), rows({"a": (0, "p", 3)})]))
    table.upsert(rows({"a": (1, "p", 9), "b": (1, "p", 8)}))
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [8, 9, 9]
    assert positioned_blocks(table) == 0


@pytest.mark.parametrize("ordering", ["ts", ""])
def test_blocks_with_and_without_positions_merge(ordering: str) -> None:
    """If one block lost its positions, keys decide.

    This holds even if the read does not select the keys and the headers announce positions.
    """
    table = new_table(9, **{"hoodie.datasource.write.precombine.field": ordering})
    model: Model = {f"k{at:03d}": (0, "p", at) for at in range(40)}
    table.bulk_insert(rows(model))
    for step in range(1, 4):
        changed: Model = {f"k{at:03d}": (step, "p", 600 + 10 * step + at) for at in (3, 7 * step, 39)}
        table.upsert(rows(changed))
        model |= changed
    storage, piece = table.context.storage, next(iter(table.snapshot().each_slice()))
    (block,) = read_blocks(storage, piece.logs[1])
    encoded = block.header[HeaderKey.RECORD_POSITIONS].encode()
    storage.replace(block.path, storage.read(block.path).replace(encoded, b"?" * len(encoded)))
    assert positioned_blocks(table) == 2
    check_rows(table, model)
