"""The client of ``hudi_server.py``: Apache Hudi on Spark as an object that reads, writes and deletes."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-interop" / "bin" / "python"

#: Options of every write: keys are found only by the Bloom filters in the files. If small files were filled up, the
#: insert of a key that a filter missed could meet the key's old row by chance.
BLOOM_ONLY: Final[Mapping[str, str]] = {
    "hoodie.index.type": "BLOOM",
    "hoodie.parquet.small.file.limit": "0",
    **{
        f"hoodie.{step}.parallelism": "2"
        for step in (
            "upsert.shuffle",
            "insert.shuffle",
            "delete.shuffle",
            "bulkinsert.shuffle",
            "bloom.index",
        )
    },
}

#: Options that a version adds to every write: without them, 1.x would upgrade the table.
VERSION_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "0.15.0": {},
    "1.2.0": {"hoodie.write.table.version": "6"},
}

#: Table property -> write option, for properties that a writer needs as options.
REMEMBERED: Final[Mapping[str, str]] = {
    "hoodie.table.name": "hoodie.table.name",
    "hoodie.table.recordkey.fields": "hoodie.datasource.write.recordkey.field",
    "hoodie.table.precombine.field": "hoodie.datasource.write.precombine.field",
    "hoodie.table.partition.fields": "hoodie.datasource.write.partitionpath.field",
    "hoodie.table.keygenerator.class": "hoodie.datasource.write.keygenerator.class",
    "hoodie.datasource.write.hive_style_partitioning": "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode": "hoodie.datasource.write.partitionpath.urlencode",
}


def the_rest_by_night(cases: Iterable[Any], on_every_run: Container[str]) -> list[Any]:
    """Return the cases as parameters: these names run every time, the others only in `make nightly`."""
    marks = {True: (), False: (pytest.mark.nightly,)}
    named = [(case, getattr(case, "name", case)) for case in cases]
    return [pytest.param(case, id=name, marks=marks[name in on_every_run]) for case, name in named]


def bundle_path(version: str) -> Path:
    """Return the jar of that Hudi version, made by ``tools/interop_setup.py``."""
    return ROOT / ".cache" / "jars" / f"hudi-spark3.5-bundle_2.12-{version}.jar"


def missing_parts(version: str) -> list[str]:
    """Return the missing parts of the interop set-up, as paths below the root of the project."""
    return [str(part.relative_to(ROOT)) for part in (PYTHON, bundle_path(version)) if not part.exists()]


def table_properties(table: Path) -> dict[str, str]:
    """Return ``hoodie.properties`` as Java reads it, without line continuations; nothing if there is no table."""
    file = table / ".hoodie" / "hoodie.properties"
    lines = file.read_text(encoding="latin-1").splitlines() if file.exists() else []
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] not in "#!")
    return {key: re.sub(r"\\(.)", r"\1", value) for key, value in pairs}


class HudiError(AssertionError):
    """The error of a request that Hudi refused or failed; the message is that of the JVM."""


class Hudi:
    """One Spark session with one Hudi version; a context manager that stops it at the end.

    Attributes:
        version: the Hudi version, such as ``"0.15.0"``.
    """

    def __init__(self, version: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Start the session.

        Args:
            folder: takes the rows in transit and ``server.log``.
            settings: more settings of Spark; jars and JVM options are added to the session's own.
        """
        self.version = version
        self._folder = folder
        self._numbers = itertools.count()
        self._log_path = folder / "server.log"
        with self._log_path.open("wb") as log:
            self._server = subprocess.Popen(
                [
                    PYTHON,
                    Path(__file__).with_name("hudi_server.py"),
                    bundle_path(version),
                    folder,
                    json.dumps(dict(settings or {})),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=folder,
                env={k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))},
            )

    def __enter__(self) -> Hudi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate(timeout=60)

    def read(self, table: Path | str, as_of: str | None = None, options: Mapping[str, str] | None = None) -> pa.Table:
        """Return the rows, meta columns included, now or at the instant ``as_of``. Raise `HudiError` if Hudi fails."""
        asked = dict(options or {}) | ({} if as_of is None else {"as.of.instant": as_of})
        return self._fetch({"command": "read", "path": str(table), "options": asked})

    def sql(self, statement: str) -> pa.Table:
        """Return the rows of a Spark SQL statement. Raise `HudiError` if Hudi fails."""
        return self._fetch({"command": "sql", "statement": statement})

    def run(self, *statements: str, settings: Mapping[str, str] | None = None) -> None:
        """Run Spark SQL statements with Hudi's options as settings of the session. Raise `HudiError` if Hudi fails."""
        self._ask({"command": "run", "statements": statements, "settings": dict(settings or {})})

    def write(self, table: Path | str, rows: pa.Table, operation: str, *, mode: str = "append", **options: str) -> None:
        """Write ``rows`` into a table with index BLOOM and without small files. Raise `HudiError` if Hudi fails.

        The table is created if there is none. ``options`` have Hudi's own names and override the table's properties and
        `BLOOM_ONLY`. If ``table`` is a URL, they must name the table and its fields.
        """
        file = self._folder / f"{next(self._numbers)}.parquet"
        pq.write_table(rows, file)
        properties = table_properties(table) if isinstance(table, Path) else {}
        remembered = {option: properties[key] for key, option in REMEMBERED.items() if properties.get(key)}
        timebased = {k: v for k, v in properties.items() if k.startswith("hoodie.keygen.timebased.")}
        asked = {
            **BLOOM_ONLY,
            **VERSION_OPTIONS.get(self.version, {}),
            **remembered,
            **timebased,
            "hoodie.datasource.write.operation": operation,
            **options,
        }
        self._ask({"command": "write", "path": str(table), "options": asked, "rows": str(file), "mode": mode})

    def delete(self, table: Path, rows: pa.Table, **options: str) -> None:
        """Delete the keys of ``rows``, which have at least the key, partition and ordering columns."""
        self.write(table, rows, "delete", **options)

    def _fetch(self, request: dict[str, Any]) -> pa.Table:
        into = self._folder / str(next(self._numbers))
        self._ask({**request, "into": str(into)})
        return pq.read_table(into, partitioning=None)

    def _ask(self, request: dict[str, Any]) -> None:
        pipes = self._server.stdin, self._server.stdout
        assert pipes[0] is not None
        assert pipes[1] is not None
        pipes[0].write(json.dumps(request) + "\n")
        pipes[0].flush()
        try:
            line = pipes[1].readline()
        except BaseException:  # The answer, if it still came, would be taken for that of the next request.
            self._server.kill()
            raise
        if not line:
            raise HudiError(f"the Spark session of Hudi {self.version} ended; see {self._log_path}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise HudiError(f"Hudi {self.version}, {request['command']}: {answer['error']}")
