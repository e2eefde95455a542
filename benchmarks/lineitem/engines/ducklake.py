"""DuckDB's DuckLake: its catalog is a DuckDB file beside the data.

DuckDB downloads the extension, or takes it from the package duckdb-ext-ducklake.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import duckdb

from benchmarks.lineitem.steps import FILE_BYTES, KEY_COLUMNS, Step

__all__ = ["DuckLake", "open_engine"]

_SAME_ROW: Final = " and ".join(f"t.{name} = s.{name}" for name in KEY_COLUMNS)


class DuckLake:
    """A DuckLake; its option asks for files of 120 MB."""

    def __init__(self, table: Path) -> None:
        self._database = duckdb.connect()
        self._database.execute(f"load '{_extension()}'")
        table.mkdir(parents=True, exist_ok=True)
        self._database.execute(f"attach 'ducklake:{table}/catalog.ducklake' as lake (data_path '{table}/data')")
        self._database.execute(f"call lake.set_option('target_file_size', '{FILE_BYTES >> 20}MiB')")
        self._database.execute("use lake")

    def load(self, rows: Path) -> None:
        self._database.execute(f"create table lineitem as from '{rows}'")

    def append(self, rows: Path) -> None:
        self._database.execute(f"insert into lineitem from '{rows}'")

    def overwrite(self, rows: Path) -> None:
        with self._database.cursor() as cursor:
            cursor.execute("use lake")
            cursor.execute("begin")
            cursor.execute("delete from lineitem")
            cursor.execute(f"insert into lineitem from '{rows}'")
            cursor.execute("commit")

    def delete(self, step: Step) -> None:
        self._database.execute(f"delete from lineitem where {step.condition()}")

    def merge(self, rows: Path) -> None:
        self._database.execute(_merge(f"'{rows}'"))

    def cdc(self, rows: Path) -> None:
        """Delete and merge in one transaction, because DuckLake's merge takes a single kind of matched action."""
        self._database.execute("begin")
        self._database.execute(f"delete from lineitem t using '{rows}' s where {_SAME_ROW} and s.op = 'D'")
        self._database.execute(_merge(f"(select * exclude (op) from '{rows}' where op <> 'D')"))
        self._database.execute("commit")

    def content(self) -> list[int]:
        row = self._database.execute("select count(*), sum(l_extendedprice * 100), sum(l_orderkey) from lineitem")
        return [int(value) for value in row.fetchone() or ()]

    def versions(self) -> dict[str, str]:
        found = self._database.execute("select extension_version from duckdb_extensions() where loaded "
                                       "and extension_name = 'ducklake'").fetchone()  # fmt: skip
        return {"duckdb": duckdb.__version__, "ducklake": str((found or ("",))[0])}

    def close(self) -> None:
        self._database.close()


def _merge(source: str) -> str:
    return (
        f"merge into lineitem t using {source} s on {_SAME_ROW} "
        "when matched then update when not matched then insert by name"
    )


def _extension() -> str:
    """Return the name or the file of the extension."""
    package = find_spec("duckdb_ext")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for file in Path(folder).rglob(f"v{duckdb.__version__}/*/ducklake.duckdb_extension"):
            return str(file)
    with suppress(duckdb.Error):
        duckdb.sql("install ducklake")
    return "ducklake"


def open_engine(table: Path) -> DuckLake:
    """Return the engine of this module."""
    return DuckLake(table)
