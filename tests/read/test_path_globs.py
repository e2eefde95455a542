"""The option ``hoodie.datasource.read.incr.path.glob``: an incremental query of some of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.config.read_options import PATH_GLOB
from lakeformat.model.path_glob import compile_glob
from tests.helpers.tables import a_table
from tests.read.test_unmerged_logs import BASE, batch_of, logged_table, rows_of

FILE = "s3://bucket/t/p=a/b,c/0f-0_1.parquet"


@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        ("*", True),
        ("p=a/*", True),
        ("/p=a/*", True),
        ("p=a", False),
        ("p=?/b,c/*", True),
        ("p=[ab]/*", True),
        ("p=[!ab]/*", False),
        ("p=[^ab]/*", False),
        ("{p=b,p=a}/*", True),
        ("{p=b,p=c}/*", False),
        ("*.parquet", True),
        ("*xparquet", False),
        ("b,c/*", True),
        (r"\\*", False),
        (r"p\=a/*", True),
        ("(p=a)/*", False),
    ],
)
def test_a_glob_matches_the_end_of_a_path(glob: str, matches: bool) -> None:
    assert (compile_glob(glob).fullmatch(FILE) is not None) is matches


@pytest.mark.parametrize("glob", ["{a", "a}", "[a", "[z-a]/*", "}{"])
def test_a_glob_that_is_not_well_formed_is_refused(glob: str, tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=batch_of(*BASE), partition_by="p", ordering="ts")
    with pytest.raises(lakeformat.InvalidOptionError, match=r"path\.glob"):
        lakeformat.open(tmp_path / "t", **{PATH_GLOB: glob}).changes("000").to_arrow()


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_only_changes_in_matching_files_are_read(merge_on_read: bool, tmp_path: Path) -> None:
    path = tmp_path / "t"
    if merge_on_read:
        logged_table(path, 9)
    else:
        a_table(path, rows=batch_of(*BASE), partition_by="p", ordering="ts")
    selected = {glob: lakeformat.open(path, **{PATH_GLOB: glob}).changes("000").to_arrow() for glob in ("b/*", "a/*")}
    assert rows_of(selected["b/*"]) == BASE[2:]
    assert {row[3] for row in rows_of(selected["a/*"])} == {"a"}
    assert lakeformat.open(path, **{PATH_GLOB: "b/*"}).to_arrow().num_rows == lakeformat.open(path).to_arrow().num_rows
