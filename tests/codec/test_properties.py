"""Java properties text: the rules of java.util.Properties, as examples and as laws."""

from __future__ import annotations

import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec import properties
from lakeformat.errors import CorruptTableError, InvalidInputError
from tests.helpers.fixture_tables import FIXTURES, names, read_expectations

TABLES = [name for group in ("hudi_v6", "hudi_mor_v6", "hudi_v8_v9") for name in names(group)]

# java.util.Properties.load read each pair with this result.
LOADED = [
    (b"", {}),
    (b"a=b", {"a": "b"}),
    (b"a = b \n", {"a": "b "}),
    (b"a:b\nc d\n", {"a": "b", "c": "d"}),
    (b"a  =  :b", {"a": ":b"}),
    (b"a==b", {"a": "=b"}),
    (b"a : = b", {"a": "= b"}),
    (b"key", {"key": ""}),
    (b"=v", {"": "v"}),
    (b"# c\n! c\n  # c\n\n \t\f\na=1", {"a": "1"}),
    (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    (b"a=1\na=2", {"a": "2"}),
    (b"a=x\\\n   y\\\r\n\tz", {"a": "xyz"}),
    (b"a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
    (b"a=x\\\n# no comment", {"a": "x# no comment"}),
    (b"a=x\\\n\nb=1", {"a": "x", "b": "1"}),
    (b"a=x\\", {"a": "x"}),
    (b"\\\n# comment\na=1", {"a": "1"}),
    (b"# comment \\\na=1", {"a": "1"}),
    (b"a\\ b\\=\\:=c", {"a b=:": "c"}),
    (b"a=\\t\\n\\r\\f\\q\\#", {"a": "\t\n\r\fq#"}),
    (b"a=\\u00e9\\u20AC\\ud83d\\ude00", {"a": "é€😀"}),
    (b"a=\xe9", {"a": "é"}),
    (b"\\u0061=1", {"a": "1"}),
]

REFUSED = [
    (b"a=\\u12", "malformed"),
    (b"a=\\uzzzz", "malformed"),
    (b"\\u1=b", "malformed"),
    (b"a=\\ud83d", "surrogate"),
    (b"a=\\ude00\\ud83d", "surrogate"),
    (b"a=b\0\0\0", "NUL"),
    (b"\0" * 4096, "NUL"),
]

# java.util.Properties.store wrote each line.
STORED = [
    ("a", "b", b"a=b\n"),
    ("a b", "c d", b"a\\ b=c d\n"),
    (" a", "  b ", b"\\ a=\\  b \n"),
    ("k=:#!", "v=:#!", b"k\\=\\:\\#\\!=v\\=\\:\\#\\!\n"),
    ("a", "\\ \t\n\r\f", b"a=\\\\ \\t\\n\\r\\f\n"),
    ("é", "€😀~\x7f\x01\0", b"\\u00E9=\\u20AC\\uD83D\\uDE00~\\u007F\\u0001\\u0000\n"),
    ("", "", b"=\n"),
]


@pytest.mark.parametrize(("data", "entries"), LOADED)
def test_decode_equals_java(data: bytes, entries: dict[str, str]) -> None:
    assert properties.decode(data, name="x") == entries


@pytest.mark.parametrize(("data", "why"), REFUSED)
def test_refuses_damage_by_name(data: bytes, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why) as caught:
        properties.decode(data, name="t/.hoodie/hoodie.properties")
    assert "t/.hoodie/hoodie.properties" in str(caught.value)


@pytest.mark.parametrize(("key", "value", "line"), STORED)
def test_encode_equals_java(key: str, value: str, line: bytes) -> None:
    assert properties.encode({key: value}, comments=[]) == line


def test_writes_comments_first_and_keys_in_order() -> None:
    written = properties.encode({"b": "2", "a": "1"}, comments=["Updated at now", "two\nlines €\0"])
    assert written == b"#Updated at now\n#two\n#lines \\u20AC\\u0000\na=1\nb=2\n"
    assert properties.decode(written, name="x") == {"a": "1", "b": "2"}


def test_refuses_to_write_half_a_surrogate_pair() -> None:
    with pytest.raises(InvalidInputError, match="surrogate"):
        properties.encode({"a": "\ud83d"}, comments=[])


# Texts of characters that have a meaning in the syntax, and of any other characters.
TEXTS = st.text(st.one_of(st.sampled_from(" \t\f\r\n\\=:#!u0a"), st.characters(exclude_categories=["Cs"])))


@given(st.dictionaries(TEXTS, TEXTS), st.lists(TEXTS))
def test_any_properties_round_trip(values: dict[str, str], comments: list[str]) -> None:
    written = properties.encode(values, comments=comments)
    assert properties.decode(written, name="x") == values
    assert properties.encode(dict(reversed(values.items())), comments=comments) == written


@given(st.one_of(st.binary(), st.text("a\\u0=: \n\r#!").map(str.encode)))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        entries = properties.decode(data, name="x")
    except CorruptTableError:
        return
    assert properties.decode(properties.encode(entries, comments=[]), name="x") == entries


@pytest.mark.parametrize("table", TABLES)
def test_reads_the_files_of_hudi(table: str) -> None:
    base = table.rpartition("/")[2]
    with zipfile.ZipFile(FIXTURES / f"{table}.zip") as archive:
        texts = {
            name: archive.read(name)
            for name in archive.namelist()
            if name.endswith(("/hoodie.properties", "/.hoodie_partition_metadata"))
        }
    read = {name: properties.decode(data, name=name) for name, data in texts.items()}
    settings = read.pop(f"{base}/.hoodie/hoodie.properties")
    stated = read_expectations(table).get("properties", {})
    assert settings == {**settings, **stated}
    for name, data in texts.items():
        entries = properties.decode(data, name=name)
        # Our lines equal Java's byte for byte, except for their order.
        lines = [line for line in data.splitlines(keepends=True) if not line.startswith(b"#")]
        assert sorted(lines) == sorted(properties.encode(entries, comments=[]).splitlines(keepends=True))
    partitions = [entries for name, entries in read.items() if name.endswith("_partition_metadata")]
    assert all(set(entries) == {"commitTime", "partitionDepth"} for entries in partitions)
