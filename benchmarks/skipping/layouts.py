"""``python -m benchmarks.skipping.layouts <engine> …``: one engine lays out tables in a process of its own.

For each case it makes a table of the input files, lays it out by all the columns of the case, and writes the paths of
the live files as JSON beside the table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

from benchmarks.skipping.data import Case

FILES: Final = 256
#: A table is laid out again if its number of files differs from `FILES` by more than this share.
_TOLERANCE: Final = 0.03
_ATTEMPTS: Final = 3

#: (case, input files, path of the table, wanted bytes of a file or None if not known yet) -> files of the table.
LayOut = Callable[[Case, list[Path], Path, float], list[Path]]


def lakeformat_hilbert() -> Iterator[LayOut]:
    """Yield lakeformat's layout along Hilbert's curve."""
    yield _lakeformat("hilbert")


def lakeformat_zorder() -> Iterator[LayOut]:
    """Yield lakeformat's z-ordered layout."""
    yield _lakeformat("z-order")


def _lakeformat(curve: str) -> LayOut:
    import pyarrow.dataset as ds

    import lakeformat

    def lay_out(case: Case, rows: list[Path], table: Path, scale: float) -> list[Path]:
        source = ds.dataset(rows)
        created = lakeformat.create(str(table), source.schema, record_key="id")
        created.bulk_insert(source.scanner().to_reader())
        size = sum(file.size_bytes for file in created.snapshot().files)
        created.cluster(by=case.names, curve=curve, target_file_bytes=int(size / FILES * scale))
        return [table / file.path for file in created.snapshot().files]

    return lay_out


def delta() -> Iterator[LayOut]:
    """Yield the layout by Delta Lake's ``OPTIMIZE … ZORDER BY``."""
    from benchmarks.engines.delta import PACKAGE, SETTINGS
    from benchmarks.engines.spark_session import open_spark

    spark = open_spark(Path.cwd() / ".work" / "skipping" / "delta", PACKAGE, SETTINGS)

    def lay_out(case: Case, rows: list[Path], table: Path, scale: float) -> list[Path]:
        spark.read.parquet(*map(str, rows)).write.format("delta").save(str(table))
        size = sum(path.stat().st_size for path in table.glob("*.parquet"))
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(int(size / FILES * scale)))
        spark.sql(f"optimize delta.`{table}` zorder by ({', '.join(case.names)})")
        return _local(spark.read.format("delta").load(str(table)).inputFiles())

    yield lay_out
    spark.stop()


def iceberg() -> Iterator[LayOut]:
    """Yield the layout by Iceberg's ``rewrite_data_files`` with ``zorder``."""
    from benchmarks.engines.iceberg import PACKAGE, SETTINGS
    from benchmarks.engines.spark_session import open_spark

    warehouse = Path.cwd() / ".work" / "skipping" / "iceberg-warehouse"
    spark = open_spark(warehouse, PACKAGE, {**SETTINGS, "spark.sql.catalog.bench.warehouse": str(warehouse)})

    def lay_out(case: Case, rows: list[Path], table: Path, scale: float) -> list[Path]:
        name = f"`{case.name}`"
        spark.sql(f"drop table if exists bench.{name} purge")
        spark.read.parquet(*map(str, rows)).writeTo(f"bench.{name}").using("iceberg").create()

        def files() -> Any:
            return spark.table(f"bench.{name}.files")

        size = files().selectExpr("sum(file_size_in_bytes)").first()[0]
        spark.sql(
            f"call bench.system.rewrite_data_files(table => '{name}', strategy => 'sort', "
            f"sort_order => 'zorder({', '.join(case.names)})', "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{int(size / FILES * scale)}'))"
        )
        return _local([row[0] for row in files().select("file_path").collect()])

    yield lay_out
    spark.stop()


LAYOUTS: Final[dict[str, Callable[[], Iterator[LayOut]]]] = {
    "lakeformat-hilbert": lakeformat_hilbert,
    "lakeformat-zorder": lakeformat_zorder,
    "delta": delta,
    "iceberg": iceberg,
}


def _local(paths: list[str]) -> list[Path]:
    """Convert paths or URLs, as Spark returns them, to local paths."""
    return [Path(unquote(urlparse(path).path)) for path in paths]


def run(engine: str, folder: Path, cases: list[Case]) -> None:
    """Lay out every case. Repeat with another file size while the number of files is too far from `FILES`."""
    import shutil

    opened = LAYOUTS[engine]()
    lay_out = next(opened)
    for case in cases:
        table, scale = folder / case.name / engine, 1.0
        rows = sorted((folder / case.name / "input").glob("*.parquet"))
        best: dict[str, Any] = {"files": []}
        for _ in range(_ATTEMPTS):
            shutil.rmtree(table, ignore_errors=True)
            started = time.perf_counter()
            files = lay_out(case, rows, table, scale)
            found = {"seconds": time.perf_counter() - started, "files": [str(path) for path in files]}
            best = found
            if abs(len(files) / FILES - 1) <= _TOLERANCE:
                break
            scale *= len(files) / FILES
        (folder / case.name / f"{engine}.json").write_text(json.dumps(best))
        print(f"{engine} {case.name}: {len(best['files'])} files, {best['seconds']:.1f} s", flush=True)
    next(opened, None)


def main() -> None:
    """Parse the arguments of the engine's process and run the layouts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skipping.layouts")
    parser.add_argument("engine", choices=LAYOUTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cases", required=True)
    arguments = parser.parse_args()
    run(arguments.engine, arguments.folder, [Case.parse(name) for name in arguments.cases.split(",")])


if __name__ == "__main__":
    main()
