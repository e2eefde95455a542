"""Records of Hudi's metadata tables, decoded and encoded again, are the same records."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.codec.avro.encode import decimal_bytes, prefix_length
from lakeformat.codec.hfile import HFile
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.names import FIXED_PARTITIONS, FOLDER, MetadataPartition
from lakeformat.metadata_table.parts import decode_parts
from tests.helpers.fixture_tables import names, unpack


def hfiles_of(folder: Path, partition: MetadataPartition) -> Iterator[HFile]:
    for path in sorted((folder / FOLDER / partition.value).glob("*.hfile")):
        yield HFile(pa.OSFile(str(path)), path.name, lambda _: None)


def encode_string(text: str) -> bytes:
    encoded: bytes = prefix_length(pa.array([text]))[0].as_py()
    return encoded


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(column, "ascending") for column in ("key", "file_name") if column in rows.column_names])


@pytest.mark.parametrize("name", names("hudi_metadata"))
def test_records_of_hudi_become_the_same_bytes_again(name: str, tmp_path: Path) -> None:
    folder, seen = unpack(name, tmp_path), set()
    for partition in FIXED_PARTITIONS:
        for file in hfiles_of(folder, partition):
            cells, schema = file.read(), file.info["schema"].decode()
            rows = decode_parts(partition, cells, schema, file.name)
            again = encode_parts(partition, rows, schema).sort_by("key")
            assert in_order(decode_parts(partition, again, schema, file.name)).equals(in_order(rows))
            if partition is not MetadataPartition.FILES:  # In a map, entries have no order.
                assert again["key"].to_pylist() == cells["key"].to_pylist()
                named = b"\0\0\0\0\2" + encode_string(file.name)
                values = [value.replace(named, bytes(5)) for value in cells["value"].to_pylist()]
                assert again["value"].to_pylist() == values  # Compacted files have their name in each record.
            seen |= {partition} if len(rows) else set()
    assert MetadataPartition.COLUMN_STATS in seen


def test_a_row_without_a_file_makes_a_record_without_files(tmp_path: Path) -> None:
    file = next(hfiles_of(unpack("hudi_metadata/v9_mor_compacted", tmp_path), MetadataPartition.FILES))
    schema = file.info["schema"].decode()
    rows = pa.table({"key": ["b", "a", "a"], "file_name": [None, "one", "two"], "size_bytes": [None, 1, 0]})
    rows = rows.append_column("is_deleted", pa.array([None, False, True]))
    cells = encode_parts(MetadataPartition.FILES, rows, schema)
    assert cells["key"].to_pylist() == ["a", "b"]
    assert decode_parts(MetadataPartition.FILES, cells, schema, "").to_pylist() == rows.slice(1).to_pylist()


def test_a_decimal_has_as_few_bytes_as_its_sign_allows() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**29, -(10**29), None]
    column = pa.array([None if number is None else Decimal(number) for number in numbers], pa.decimal128(30, 0))
    for values in (column, column.slice(3)):
        raw = decimal_bytes(values).to_pylist()
        assert [None if each is None else int.from_bytes(each, "big", signed=True) for each in raw] == [
            None if each is None else int(each) for each in values.to_pylist()
        ]
    sizes = [len(raw) for raw in decimal_bytes(column.slice(0, 9)).to_pylist()]
    assert sizes == [1, 1, 1, 1, 2, 1, 2, 2, 2]
