"""Row groups copied byte for byte: the spliced file reads like one that pyarrow writes of the same rows.

The stored files have random columns and come from pyarrow, DuckDB, polars and Apache Hudi.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakeformat.files.splice.stored_groups import find_stored_groups, is_same_schema, read_footer
from lakeformat.files.splice.thrift_tree import Field, SpliceError, encode_struct, parse_struct
from tests.helpers import fixture_tables
from tests.helpers.examples import examples
from tests.helpers.spliced_files import splice, spliced_and_rewritten, tables, writer_options


def footer_tree(data: bytes) -> Any:
    return read_footer(pa.BufferReader(data)).tree


def empty_file(schema: pa.Schema, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, **options).close()
    written: bytes = sink.getvalue().to_pybytes()
    return written


def assert_alike(spliced: bytes, rewritten: bytes, folder: Path) -> None:
    """Check that pyarrow, DuckDB and polars read the same from both files, and that the footer is true."""
    paths = [folder / "spliced.parquet", folder / "rewritten.parquet"]
    for path, data in zip(paths, (spliced, rewritten), strict=True):
        path.write_bytes(data)
    theirs, ours = (pq.ParquetFile(path, page_checksum_verification=True) for path in paths)
    assert ours.schema_arrow.equals(theirs.schema_arrow)
    rows, expected = (each.read().unify_dictionaries().combine_chunks() for each in (ours, theirs))
    assert rows.equals(expected)
    one, other = (duckdb.read_parquet(str(path)).fetchall() for path in paths)
    assert one == other
    if not any(pa.types.is_map(field.type) for field in _all_fields(ours.schema_arrow)):
        frames = [pl.read_parquet(path, use_pyarrow=False) for path in paths]
        assert frames[0].equals(frames[1])
    check_footer(spliced, theirs)


def _all_fields(schema: Any) -> Iterable[pa.Field]:
    for field in schema:
        yield field
        kind = field.type
        if pa.types.is_nested(kind):
            yield from _all_fields([kind.field(at) for at in range(kind.num_fields)])


def check_footer(data: bytes, stored: pq.ParquetFile) -> None:
    """Check row counts, positions, sizes and statistics of a footer against the file's content."""
    metadata, ends = stored.metadata, 4
    assert metadata.num_rows == sum(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))
    for at in range(metadata.num_row_groups):
        group, tree = metadata.row_group(at), read_footer(pa.BufferReader(data)).groups[at]
        chunks = [group.column(leaf) for leaf in range(group.num_columns)]
        starts = [min(c.dictionary_page_offset or c.data_page_offset, c.data_page_offset) for c in chunks]
        for start, chunk in zip(starts, chunks, strict=True):
            assert start >= ends
            ends = start + chunk.total_compressed_size
        assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
        assert tree[5].value == starts[0]
        assert tree[6].value == sum(chunk.total_compressed_size for chunk in chunks)
        assert tree[7].value == at
        for chunk in tree[1].value[1]:
            for offset, length, fields in ((4, 5, {1, 2}), (6, 7, set(range(1, 8)))):
                if offset in chunk:
                    place = chunk[offset].value
                    index, used = parse_struct(data[place : place + chunk[length].value])
                    assert used == chunk[length].value
                    assert index.keys() <= fields
            if 4 in chunk:
                meta, place = chunk[3].value, chunk[4].value
                index, _ = parse_struct(data[place : place + chunk[5].value])
                pages = [page[1].value for page in index[1].value[1]]
                assert pages[0] == meta[9].value
                for page in pages:  # A page header begins there: its first field is the type, a data page.
                    header, _ = parse_struct(data[page : page + 400])
                    assert header[1].value in {0, 3}


_SLOW = settings(max_examples=examples(60), deadline=None, suppress_health_check=[*HealthCheck])


@_SLOW
@given(table=tables(), stored=writer_options(), fresh=writer_options(), data=st.data())
def test_spliced_files_of_pyarrow_read_like_rewritten_ones(
    tmp_path_factory: pytest.TempPathFactory,
    table: pa.Table,
    stored: dict[str, Any],
    fresh: dict[str, Any],
    data: Any,
) -> None:
    assert_alike(*spliced_and_rewritten(data, table, stored, fresh), tmp_path_factory.mktemp("spliced"))


def _write_duckdb(table: pa.Table, path: Path) -> None:
    connection = duckdb.connect()
    connection.execute("SET threads=1")
    connection.register("rows", table)
    connection.execute(f"COPY (FROM rows) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION zstd)")


def _write_polars(table: pa.Table, path: Path) -> None:
    pl.from_arrow(table).write_parquet(path, row_group_size=1500, compression="zstd")


@pytest.mark.parametrize("write", [_write_duckdb, _write_polars])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[*HealthCheck])
@given(table=tables(depth=0), data=st.data())
def test_spliced_files_of_other_writers_read_like_rewritten_ones(
    tmp_path_factory: pytest.TempPathFactory, write: Callable[[pa.Table, Path], None], table: pa.Table, data: Any
) -> None:
    """All row groups are copied into a file of the same columns; files that store columns otherwise are recognized."""
    folder = tmp_path_factory.mktemp("others")
    plain = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    rows = pa.concat_tables([table.cast(pa.schema(plain))] * (4000 // table.num_rows + 1))
    write(rows, folder / "stored.parquet")
    file = (folder / "stored.parquet").read_bytes()
    source = pq.ParquetFile(pa.BufferReader(file))
    schema = source.schema_arrow.remove_metadata()
    assume(is_same_schema(footer_tree(file), footer_tree(empty_file(schema, store_schema=False))))
    order = data.draw(st.permutations([-1, *range(source.metadata.num_row_groups)]))
    new = source.read().slice(0, 7).cast(schema)
    spliced = splice(file, {*order} - {-1}, new, order, store_schema=False)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        for at in order:
            writer.write_table(new if at < 0 else source.read_row_group(at).cast(schema))
    assert_alike(spliced, sink.getvalue().to_pybytes(), folder)


@pytest.mark.slow
@pytest.mark.parametrize("collection", ["hudi_v6", "hudi_v8_v9", "own_kinds"])
def test_files_of_hudi_are_copied_whole(tmp_path: Path, collection: str) -> None:
    """Each base file of the fixtures is copied into a file of the same columns, or its columns are recognized."""
    copied = 0
    for name in fixture_tables.names(collection):
        for path in fixture_tables.unpack(name, tmp_path).rglob("*.parquet"):
            if ".hoodie" in path.parts:
                continue
            file = path.read_bytes()
            source = pq.ParquetFile(pa.BufferReader(file))
            schema = source.schema_arrow.remove_metadata()
            plain = footer_tree(empty_file(schema, store_schema=False))
            if not (source.metadata.num_rows and is_same_schema(footer_tree(file), plain)):
                continue
            groups = [*range(source.metadata.num_row_groups)]
            new = source.read().cast(schema)
            spliced = splice(file, groups, new, [*groups, -1], store_schema=False)
            sink = pa.BufferOutputStream()
            with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
                writer.write_table(new)
                writer.write_table(new)
            assert_alike(spliced, sink.getvalue().to_pybytes(), tmp_path)
            copied += 1
    assert copied


def _row_groups_by_bloom_filter(path: Path, value: str) -> set[int]:
    """Return the row groups that may have the value in column ``a``; one without a bloom filter may."""
    found = duckdb.execute(
        "select row_group_id, bloom_filter_excludes from parquet_bloom_probe(?, 'a', ?)", [str(path), value]
    )
    return {at for at, excluded in found.fetchall() if not excluded}


def test_bloom_filters_of_parquet_are_copied(tmp_path: Path) -> None:
    """DuckDB writes a bloom filter of each dictionary, and leaves out row groups by it."""
    stored, spliced = tmp_path / "stored.parquet", tmp_path / "spliced.parquet"
    texts = pa.array([f"text {row % 50 + row // 2048 * 100}" for row in range(8192)])
    _write_duckdb(pa.table({"a": texts, "b": range(8192)}), stored)
    rows = pq.read_table(stored).slice(0, 3)
    order = [2, -1, 0, 3, 1]
    spliced.write_bytes(splice(stored.read_bytes(), range(4), rows, order, store_schema=False))
    for value, number in (("text 49", 0), ("text 249", 2), ("text 250", None), ("none", None)):
        before, after = (_row_groups_by_bloom_filter(path, value) for path in (stored, spliced))
        assert before == ({number} if number is not None else set())
        assert after == {place for place, at in enumerate(order) if at == number or at < 0}


class _Keys(pe.KmsClient):  # type: ignore[misc]
    """A key service for encrypted files that wraps nothing."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return key_bytes.hex().encode()

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return bytes.fromhex(wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files_are_refused(tmp_path: Path, plaintext_footer: bool) -> None:
    settings_ = pe.EncryptionConfiguration(
        footer_key="k", column_keys={"c": ["a"]}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    properties = pe.CryptoFactory(_Keys).file_encryption_properties(pe.KmsConnectionConfig(), settings_)
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    pq.write_table(table, tmp_path / "secret.parquet", encryption_properties=properties)
    with pa.memory_map(str(tmp_path / "secret.parquet")) as source, pytest.raises(SpliceError, match="encrypted"):
        find_stored_groups(source, read_footer(source), [0])


def _sample_file() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [*range(100)], "b": [str(n % 5) for n in range(100)]})
    pq.write_table(table, sink, row_group_size=50, write_page_index=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _with_footer(data: bytes, tree: Any) -> bytes:
    footer = encode_struct(tree)
    return data[: read_footer(pa.BufferReader(data)).start] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _edit(change: Callable[[Any], None]) -> bytes:
    data = _sample_file()
    tree = footer_tree(data)
    change(tree[4].value[1][0])
    return _with_footer(data, tree)


def _set(tree: Any, number: int, kind: int, value: Any) -> None:
    tree[number] = Field(kind, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda group: _set(group, 99, 8, 1),
        lambda group: _set(group[1].value[1][0], 1, 11, b"other.parquet"),
        lambda group: _set(group[1].value[1][0], 9, 11, b"cipher"),
        lambda group: _set(group[1].value[1][0][3].value, 30, 8, 1),
        lambda group: _set(group[1].value[1][0][3].value, 9, 10, 10**9),
        lambda group: _set(group[1].value[1][0][3].value, 7, 10, 10**9),
        lambda group: _set(group[1].value[1][0][3].value, 7, 10, -1),
        lambda group: _set(group[1].value[1][0][3].value, 10, 10, 44),
        lambda group: group[1].value[1][1][3].value.pop(11),
        lambda group: _set(group[1].value[1][1][3].value, 11, 10, 4),
        lambda group: group[1].value[1].pop(),
        lambda group: _set(group[1].value[1][0], 5, 8, 10**9),
        lambda group: _set(group[1].value[1][0], 4, 10, 4),
        lambda group: group.pop(3),
    ],
)
def test_footers_that_are_not_understood_are_refused(change: Callable[[Any], None]) -> None:
    source = pa.BufferReader(_edit(change))
    with pytest.raises(SpliceError):
        find_stored_groups(source, read_footer(source), [0])


@given(at=st.integers(1, 400), byte=st.integers(0, 255))
def test_damaged_footers_are_refused_or_parsed(at: int, byte: int) -> None:
    """A damaged footer raises no other error."""
    data = bytearray(_sample_file())
    data[-at] = byte
    source = pa.BufferReader(bytes(data))
    try:
        footer = read_footer(source)
        find_stored_groups(source, footer, range(len(footer.groups)))
    except SpliceError:
        pass


def test_trees_keep_unknown_fields() -> None:
    tree = {1: Field(10, -5), 30_000: Field(11, b"x"), 4: Field(15, (2, [True, False])), 5: Field(4, 0.5)}
    encoded = encode_struct(tree)
    assert parse_struct(encoded + b"more") == (tree, len(encoded))


def _apache_thrift() -> Any:
    from thrift.protocol.TCompactProtocol import TCompactProtocol
    from thrift.transport.TTransport import TMemoryBuffer

    buffer = TMemoryBuffer()
    return buffer, TCompactProtocol(buffer)


NAMES = {2: "Bool", 3: "Byte", 4: "Double", 6: "I16", 8: "I32", 10: "I64", 11: "Binary"}
SCALARS = {
    2: st.booleans(),
    3: st.integers(-(2**7), 2**7 - 1),
    4: st.floats(allow_nan=False),
    6: st.integers(-(2**15), 2**15 - 1),
    8: st.integers(-(2**31), 2**31 - 1),
    10: st.integers(-(2**63), 2**63 - 1),
    11: st.binary(max_size=200),
}


def _values(kinds: st.SearchStrategy[tuple[int, Any]]) -> st.SearchStrategy[tuple[int, Any]]:
    """Return lists and structs of values, as pairs of the kind and the value."""
    lists = st.sampled_from(sorted(SCALARS)).flatmap(
        lambda kind: st.lists(SCALARS[kind], max_size=20).map(lambda items: (15, (kind, items)))
    )
    structs = st.dictionaries(st.integers(1, 2**15 - 1), kinds.map(lambda pair: Field(*pair)), max_size=5)
    return st.one_of(lists, structs.map(lambda tree: (12, tree)))


VALUES = st.recursive(
    st.one_of(*(values.map(lambda value, kind=kind: (kind, value)) for kind, values in SCALARS.items())), _values
)
TREES = st.dictionaries(st.integers(1, 2**15 - 1), VALUES.map(lambda pair: Field(*pair)), max_size=20)


def _write(protocol: Any, kind: int, value: Any) -> None:
    """Write a value by Apache Thrift's own library."""
    if kind == 12:
        protocol.writeStructBegin("")
        for number in sorted(value):
            protocol.writeFieldBegin("", value[number].kind, number)
            _write(protocol, *value[number])
            protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()
    elif kind == 15:
        protocol.writeListBegin(value[0], len(value[1]))
        for item in value[1]:
            _write(protocol, value[0], item)
        protocol.writeListEnd()
    else:
        getattr(protocol, f"write{NAMES[kind]}")(value)


@given(tree=TREES)
def test_trees_are_encoded_as_apache_thrift_encodes_them(tree: dict[int, Field]) -> None:
    buffer, protocol = _apache_thrift()
    _write(protocol, 12, tree)
    encoded = encode_struct(tree)
    assert encoded == buffer.getvalue()
    assert parse_struct(encoded + b"more") == (tree, len(encoded))


@pytest.mark.parametrize(
    "damage", [b"", b"\x15", b"\x18\x05ab", b"\x1a", b"\x1b\x01", b"\x1d", b"\x15\xff\xff", b"\x1c" * 9999]
)
def test_damaged_structs_are_refused(damage: bytes) -> None:
    with pytest.raises(SpliceError, match="a Thrift struct"):
        parse_struct(damage)
