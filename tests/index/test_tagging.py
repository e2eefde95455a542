"""Tagging against brute force: a stored key is never taken for new, and a new key is never lost."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.errors import CorruptTableError
from lakeformat.files.footers import read_key_footer
from lakeformat.index.port import Tagged
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from tests.helpers.base_files import FOOTERS, POOL, rewrite, write_file
from tests.helpers.examples import examples
from tests.helpers.fixture_tables import names, unpack

FLAGS = (True, False)
ALL_SETTINGS = [
    TagSettings(kind, ranges, tree, exact)
    for kind in ("AUTO", "BLOOM", "SIMPLE")
    for ranges, tree, exact in itertools.product(FLAGS, FLAGS, FLAGS)
]


def locations(tagged: Tagged) -> set[tuple[int, int]]:
    pairs = list(zip(tagged.keys.tolist(), tagged.files.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def check(
    storage: Storage, files: Sequence[BaseFile], held: Sequence[set[str]], keys: list[str], **bounds: int
) -> None:
    """Compare all settings with a loop over all keys and files."""
    column = pa.chunked_array([keys[: len(keys) // 2], keys[len(keys) // 2 :]], pa.string())
    truth = {(at, file) for at, key in enumerate(keys) for file, own in enumerate(held) if key in own}
    for setting in (replace(each, **bounds) for each in ALL_SETTINGS):
        tagged = tag_files(storage, files, column, setting, POOL)
        found = locations(tagged)
        assert truth <= found, "a key that is there was taken for a new one"
        there, candidates = {at for at, _ in truth}, Counter(at for at, _ in found)
        # A key may keep one wrong candidate, into which it is then inserted, but never several.
        assert {candidates[at] for at in candidates.keys() - there} <= {1}
        assert {(at, file) for at, file in found if at in there} == truth
        if setting.kind == "SIMPLE" or setting.exact:
            assert found == truth
        assert sorted([*tagged.new.tolist(), *candidates]) == list(range(len(keys)))
        in_order = [keys[at].encode() for at in tagged.new]
        assert in_order == sorted(in_order)
        counts = tagged.counts
        assert (counts.keys, counts.files) == (len(keys), len(files))
        assert len(truth) <= counts.after_filters <= counts.after_ranges <= len(keys) * len(files)
        if not setting.use_ranges:
            assert counts.after_ranges == len(keys) * sum(bool(own) for own in held)
        if setting.kind == "SIMPLE":
            assert counts.after_filters == counts.after_ranges


#: Texts whose order differs in UTF-8 and in UTF-16 (Java): characters beyond U+FFFF against U+E000 and up.
ODD = "a\ue000\uffff\U00010000\U0010ffff"
KEYS = st.one_of(
    st.integers(0, 60).map(lambda n: f"key-{n:03}"),
    st.integers(0, 60).map(lambda n: str(n * n)),
    st.text(st.sampled_from(ODD), min_size=1, max_size=3),
    st.text(min_size=1, max_size=6).filter(lambda text: not any(0xD800 <= ord(c) <= 0xDFFF for c in text)),
)


#: Limits that choose the algorithm: the defaults, and some so small that a few keys and files exceed them.
BOUNDS = {"as they are": {}, "small": {"many_keys": 0, "block_keys": 5, "block_rows": 7}}
FILES = st.tuples(st.sets(KEYS, max_size=12), st.sampled_from(sorted(FOOTERS)), st.booleans())


@pytest.mark.parametrize("bounds", BOUNDS)
@settings(max_examples=examples(40))
@given(
    files=st.lists(FILES, max_size=5),
    more=st.sets(KEYS, max_size=30),
    random=st.randoms(use_true_random=False),
)
def test_tagging_finds_any_keys_over_any_files(
    bounds: str,
    files: list[tuple[set[str], str, bool]],
    more: set[str],
    random: Any,
) -> None:
    storage = MemoryStorage()
    written = []
    for number, (keys, footer, statistics) in enumerate(files):
        file = write_file(storage, number, sorted(keys, key=lambda key: random.random()), fpp=0.3)
        rewrite(storage, file, FOOTERS[footer], statistics=statistics)
        written.append(file)
    held = [keys for keys, _, _ in files]
    wanted = sorted(more | {key for keys in held for key in sorted(keys) if random.random() < 0.5})
    random.shuffle(wanted)
    check(storage, written, held, wanted, **BOUNDS[bounds])


#: The footers of every run. `test_tagging_finds_any_keys_over_any_files` draws from all, and nights test all here.
FIRST_FOOTERS = ("as written", "cut filter", "half a range", "nothing")


@pytest.mark.parametrize(
    "footer", [name if name in FIRST_FOOTERS else pytest.param(name, marks=pytest.mark.nightly) for name in FOOTERS]
)
def test_tagging_finds_many_keys_over_overlapping_files(footer: str) -> None:
    storage, random = MemoryStorage(), np.random.default_rng(7)
    held = [{f"k{n:05}" for n in random.integers(0, 6000, 400)} for _ in range(6)]
    files = [write_file(storage, number, sorted(keys)) for number, keys in enumerate(held)]
    if footer != "as written":
        rewrite(storage, files[0], FOOTERS[footer])
        rewrite(storage, files[3], FOOTERS[footer])
    check(storage, files, held, [f"k{n:05}" for n in range(0, 6000, 7)])


def test_ranges_and_filters_save_reading_files() -> None:
    storage = MemoryStorage()
    held = [[f"k{n:05}" for n in range(start, start + 1000)] for start in range(0, 5000, 1000)]
    files = [write_file(storage, number, keys, fpp=1e-6) for number, keys in enumerate(held)]
    keys = pa.chunked_array([[f"k{n:05}" for n in range(1500, 1510)]])
    counts = tag_files(storage, files, keys, TagSettings("BLOOM"), POOL).counts
    assert (counts.after_ranges, counts.after_filters, counts.files_read, counts.bytes_read) == (10, 10, 0, 0)
    counts = tag_files(storage, files, keys, TagSettings("SIMPLE"), POOL).counts
    assert (counts.after_ranges, counts.files_read) == (10, 1)
    assert 0 < counts.bytes_read < files[1].size_bytes


def test_empty_file_is_never_a_candidate() -> None:
    storage = MemoryStorage()
    files = [write_file(storage, 0, []), write_file(storage, 1, ["b"])]
    for setting in ALL_SETTINGS:
        tagged = tag_files(storage, files, pa.chunked_array([["a", "b"]]), setting, POOL)
        assert (1, 1) in locations(tagged)
        assert 0 not in tagged.files


def test_tagging_without_files_or_keys_finds_nothing() -> None:
    storage = MemoryStorage()
    nothing = pa.chunked_array([], pa.string())
    for setting in ALL_SETTINGS:
        tagged = tag_files(storage, [], pa.chunked_array([["b", "a"]]), setting, POOL)
        assert tagged.new.tolist() == [1, 0]
        tagged = tag_files(storage, [write_file(storage, 0, ["a"])], nothing, setting, POOL)
        assert (len(tagged.keys), len(tagged.new)) == (0, 0)


def test_file_without_key_column_is_named() -> None:
    storage = MemoryStorage()
    file = write_file(storage, 0, ["a"])
    with storage.open_output(file.path) as sink:
        pq.write_table(pa.table({"v": [1]}), sink)
    with pytest.raises(CorruptTableError, match=r"file-0_0-0-0_\d+\.parquet has no column _hoodie_record_key"):
        tag_files(storage, [file], pa.chunked_array([["a"]]), TagSettings("SIMPLE"), POOL)


@pytest.mark.parametrize("name", names("hudi_v6"))
def test_tagging_finds_every_key_in_hudi_files(name: str, tmp_path: Path) -> None:
    """Filters and ranges that Hudi wrote, SIMPLE and DYNAMIC, lead to the keys of every partition of a table."""
    table = lakeformat.open(unpack(name, tmp_path))
    storage = LocalStorage(str(tmp_path / Path(name).name))
    for files in table.snapshot().by_partition.values():
        held = []
        for file in files:
            with storage.open_input(file.path) as source:
                held.append(set(pq.read_table(source, columns=[RECORD_KEY])[RECORD_KEY].to_pylist()))
            footer = read_key_footer(storage, file)
            assert not held[-1] or (footer.minimum == min(held[-1]) and footer.maximum == max(held[-1]))
            assert footer.bloom(storage) is not None
        known = sorted(set().union(*held))
        check(storage, files, held, [*known, *(f"{key}-absent" for key in known[:5])])
