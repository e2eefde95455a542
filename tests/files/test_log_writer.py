"""fastavro, hudi-rs and our own reader read from written blocks what the writer was given."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import SchemaMismatchError
from lakeformat.files.log_reader import read_parts
from lakeformat.files.log_writer import encode_delete_block, encode_parquet_block, encode_rollback_block
from lakeformat.merge.versions import LogDeletes
from lakeformat.model.files import BaseFileName, LogFileName
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import unpack
from tests.helpers.log_blocks import COMMAND, DELETE, DELETES, ROWS, block, box_ordering_value, split_blocks, store_logs

LONGS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=70)
WHATEVER = ("IntWrapper", 0)


def deletes(keys: list[str], *ordering: pa.Array) -> bytes:
    return encode_delete_block(
        pa.array(keys, pa.string()), partition_path="p", instant_time="7", schema=ROWS, ordering=ordering
    )


def by_fastavro(data: bytes) -> list[tuple[str, Any]]:
    ((kind, header, content),) = split_blocks(data)
    assert (kind, header) == (DELETE, {0: "7", 2: ROWS})
    found: Any = fastavro.schemaless_reader(io.BytesIO(content[8:]), DELETES, None, return_record_name=True)
    return [(one["recordKey"], one["orderingVal"]) for one in found["deleteRecordList"]]


@given(st.lists(st.tuples(TEXTS, LONGS)))
def test_fastavro_reads_the_deletes(values: list[tuple[str, int | None]]) -> None:
    data = deletes([key for key, _ in values], pa.array([one for _, one in values], pa.int64()))
    expected = [(key, box_ordering_value(*(WHATEVER if one is None else ("LongWrapper", one)))) for key, one in values]
    assert by_fastavro(data) == expected


@pytest.mark.parametrize(
    ("kind", "value", "name", "stands"),
    [
        (pa.int32(), -300, "IntWrapper", -300),
        (pa.timestamp("us", "UTC"), 10**15, "LongWrapper", 10**15),
        (pa.float64(), 0.25, "DoubleWrapper", 0.25),
        (pa.float32(), 0.25, "FloatWrapper", 0.25),
        (pa.bool_(), True, "BooleanWrapper", True),
        (pa.string(), "ä" * 90, "StringWrapper", "ä" * 90),
        (pa.date32(), dt.date(1970, 1, 11), "IntWrapper", 10),
        (pa.decimal128(10, 2), Decimal("-103.25"), "DecimalWrapper", Decimal("-103.25")),
        (pa.decimal128(30, 15), Decimal("9" * 15), "DecimalWrapper", Decimal("9" * 15)),
        (pa.decimal128(38, 20), Decimal("0.5"), "DecimalWrapper", Decimal("0.5")),
    ],
)
def test_wrappers_of_ordering_values(kind: pa.DataType, value: Any, name: str, stands: Any) -> None:
    assert by_fastavro(deletes(["a", "b"], pa.array([value, None], kind))) == [
        ("a", box_ordering_value(name, stands)),
        ("b", box_ordering_value(*WHATEVER)),
    ]


def test_deletes_with_several_ordering_fields_are_written() -> None:
    columns = [pa.array([1, None, None], pa.int64()), pa.array(["x", "y", None])]
    data = deletes(["a", "b", "c"], *columns)
    storage, logs = store_logs(data)
    (part,) = read_parts(storage, logs, is_committed=lambda _: True)
    assert isinstance(part, LogDeletes)
    assert [column.to_pylist() for column in part.ordering] == [[1, None, None], ["x", "y", None]]
    assert by_fastavro(data)[2] == ("c", box_ordering_value(*WHATEVER))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([b"x"], pa.binary()), "type binary has no known form"),
        (pa.array([Decimal(10**15)], pa.decimal128(38, 10)), "more than 15 digits on one side of the point"),
        (pa.array([Decimal("1e-16")], pa.decimal128(38, 20)), "more than 15 digits on one side of the point"),
    ],
)
def test_ordering_values_that_avro_cannot_hold_are_refused(values: pa.Array, reason: str) -> None:
    with pytest.raises(SchemaMismatchError, match=reason):
        deletes(["a"], values)


def test_block_bytes_equal_a_hand_made_block() -> None:
    assert encode_rollback_block(instant_time="9", target="7") == block(COMMAND, {0: "9", 1: "7", 3: "0"})
    assert deletes([]) == block(DELETE, {0: "7", 2: ROWS}, b"\0\0\0\x03\0\0\0\x01\0")


def test_hudi_rs_reads_appended_blocks(tmp_path: Path) -> None:
    table = unpack("hudi_mor_v6/mor6_avro_default", tmp_path)
    before = hudi_rs.rows_by_key(hudi_rs.read(table))
    base = max(path for path in table.glob("*.parquet"))
    changed, gone = before[0], before[1]
    last = max(path for path in (table / ".hoodie").iterdir() if path.name.endswith(".deltacommit"))
    commit = json.loads(last.read_text())
    schema = json.loads(commit["extraMetadata"]["schema"])
    meta = [
        {"name": name, "type": ["null", "string"], "default": None} for name in changed if name.startswith("_hoodie")
    ]
    schema["fields"] = [*meta, *schema["fields"]]
    time = "20991231000000000"
    rows = pa.Table.from_pylist([{**changed, "_hoodie_commit_time": time, "name": "appended"}], pq.read_schema(base))
    file = io.BytesIO()
    pq.write_table(rows, file)
    name = BaseFileName.parse(base.name)
    log = LogFileName(name.file_id, name.instant_time, 9, "0-0-0")
    keys = pa.array([gone["_hoodie_record_key"]])
    blocks = encode_parquet_block(file.getvalue(), instant_time=time, schema=json.dumps(schema)) + encode_delete_block(
        keys, partition_path="", instant_time=time, schema=json.dumps(schema)
    )
    (table / str(log)).write_bytes(blocks)
    stat = {"fileId": name.file_id, "path": str(log), "partitionPath": "", "prevCommit": name.instant_time,
            "fileSizeInBytes": len(blocks), "baseFile": base.name, "logFiles": [str(log)]}  # fmt: skip
    done = {**commit, "partitionToWriteStats": {"": [stat]}}
    (table / ".hoodie" / f"{time}.deltacommit").write_text(json.dumps(done))
    after = hudi_rs.rows_by_key(hudi_rs.read(table))
    assert [row for row in after if row["name"] == "appended"] == [
        {**changed, "_hoodie_commit_time": time, "name": "appended"}
    ]
    assert [row for row in after if row["name"] != "appended"] == before[2:]
