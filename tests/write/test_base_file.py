"""The contents of a base file besides the rows: key range, filter, checksums, schema."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat import Table
from lakeformat.codec.bloom import BloomFilter, hash_chain
from lakeformat.config.resolve import resolve
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, MAX_KEY, MIN_KEY, KeyRange
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.model.record import META_COLUMNS, RECORD_KEY
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.write.intake import create_table
from tests.helpers.examples import examples
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="string", v="int64")


def new_table(**options: Any) -> Table:
    return a_table(schema=SCHEMA, **options)


def rows(keys: list[str]) -> pa.Table:
    return a_batch(SCHEMA, id=keys, v=range(len(keys)))


def only_file(table: Table) -> pq.ParquetFile:
    (file,) = table.snapshot().files
    return pq.ParquetFile(table.context.storage.open_input(file.path))


def java_order(text: str) -> bytes:
    """Return a key that orders texts as Java does: by UTF-16 units."""
    return text.encode("utf-16-be")


@given(
    st.integers(0, 7).flatmap(lambda digits: st.integers(max(0, 10**digits - 12_000), 10**digits + 100)),
    st.integers(0, 25_000),
)
def test_sequence_numbers_continue_within_a_commit(first: int, count: int) -> None:
    found = make_seqnos("20251120083000123", 7, first, count)
    found.validate(full=True)
    assert found.to_pylist() == [f"20251120083000123_7_{number}" for number in range(first, first + count)]


TEXTS = st.text(st.sampled_from("az~é\u07ff\ud7ff\ue000\uffff\U00010000\U0010ffff"), min_size=1, max_size=4)


@given(st.lists(st.lists(TEXTS, max_size=5), max_size=4))
def test_key_range_is_in_javas_order(parts: list[list[str]]) -> None:
    found = KeyRange()
    for part in parts:
        found.add(pa.chunked_array([part], pa.string()))
    keys = [key for part in parts for key in part]
    wanted = (min(keys, key=java_order), max(keys, key=java_order)) if keys else (None, None)
    assert (found.minimum, found.maximum) == wanted


@settings(max_examples=examples(80))
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=12, unique=True), min_size=1, max_size=4))
def test_filter_and_range_hold_every_key_after_any_merges(batches: list[list[str]]) -> None:
    table = new_table()
    for keys in batches:
        table.upsert(rows(keys))
    parquet = only_file(table)
    footer = parquet.metadata.metadata
    keys = parquet.read([RECORD_KEY]).column(0)
    listed = keys.to_pylist()
    assert sorted(listed) == sorted({key for batch in batches for key in batch})
    assert footer[MIN_KEY].decode() == min(listed, key=java_order)
    assert footer[MAX_KEY].decode() == max(listed, key=java_order)
    bloom = BloomFilter.decode(footer[BLOOM], footer[BLOOM_TYPE].decode())
    assert bloom.might_contain(hash_chain(keys, bloom.hashes)).all()
    assert bloom.used >= len(listed)


def test_the_filter_is_sized_by_the_rows_and_keeps_its_rate() -> None:
    table = new_table(**{"hoodie.index.bloom.fpp": 0.01})
    sizes = []
    for number in range(6):
        table.upsert(rows([f"k{n}" for n in range(number * 500, number * 500 + 500)]))
        footer = only_file(table).metadata.metadata
        bloom = BloomFilter.decode(footer[BLOOM], footer[BLOOM_TYPE].decode())
        sizes.append(len(footer[BLOOM]))
        absent = pa.array([f"absent-{n}" for n in range(2000)])
        assert bloom.might_contain(hash_chain(absent, bloom.hashes)).mean() < 0.03
    assert sizes[0] < 1_500
    assert sizes[-1] < 6 * 1_500


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
def test_file_has_hudis_columns_and_footer(codec: str) -> None:
    table = new_table(**{"hoodie.parquet.compression.codec": codec})
    table.bulk_insert(rows(["a", "b"]))
    parquet = only_file(table)
    assert parquet.schema_arrow.names == [*META_COLUMNS, *SCHEMA.names]
    assert parquet.schema_arrow.metadata is None or b"ARROW:schema" not in parquet.schema_arrow.metadata
    chunk = parquet.metadata.row_group(0).column(0)
    assert chunk.compression == codec.upper()
    avro = json.loads(parquet.metadata.metadata[b"parquet.avro.schema"])
    assert [field["name"] for field in avro["fields"]] == [*META_COLUMNS, *SCHEMA.names]
    names = set(parquet.read(["_hoodie_file_name"]).column(0).to_pylist())
    assert names == {str(table.snapshot().files[0].name)}


def test_a_file_without_rows_has_no_range() -> None:
    table = new_table()
    table.upsert(rows(["a"]))
    table.delete(rows(["a"]))
    metadata = only_file(table).metadata
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)
    assert BLOOM in metadata.metadata
    assert MIN_KEY not in metadata.metadata


def codecs(table: Table) -> dict[str, str]:
    group = only_file(table).metadata.row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    return {chunk.path_in_schema: chunk.compression for chunk in chunks}


def test_incompressible_columns_stay_uncompressed_without_a_codec_option() -> None:
    random_keys = [hashlib.sha256(str(at).encode()).hexdigest() for at in range(2000)]
    chosen, asked = new_table(), new_table(**{"hoodie.parquet.compression.codec": "zstd"})
    for table in (chosen, asked):
        table.insert(rows(random_keys))
    assert {name for name, codec in codecs(chosen).items() if codec == "UNCOMPRESSED"} == {RECORD_KEY, "id"}
    assert set(codecs(asked).values()) == {"ZSTD"}
    ordered = new_table()
    ordered.insert(rows([f"{at:08}" for at in range(2000)]))
    assert set(codecs(ordered).values()) == {"ZSTD"}


def test_repeated_text_stays_in_dictionaries_through_merges_and_keeps_its_values() -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.string())])
    table = Table(MemoryStorage(), resolve({"recordkey": "id", "name": "t"}))
    create_table(table.context.store, table.options, schema, SystemClock())
    expected = {str(at): (None if at % 7 == 0 else f"city {at % 5}") for at in range(1000)}
    changes = {str(at): (None if at % 2 else f"town {at % 3}") for at in range(990, 1010)}
    for part in (expected, changes):
        table.upsert(pa.table({"id": list(part), "v": list(part.values())}, schema=schema))
    group = only_file(table).metadata.row_group(0)
    values = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == "v")
    assert values.has_dictionary_page
    found = table.to_arrow(columns=["id", "v"])
    assert dict(zip(*(found[name].to_pylist() for name in ("id", "v")), strict=True)) == {**expected, **changes}
