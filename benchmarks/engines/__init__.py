"""The engines by name: the module, the environment and the steps of each.

This module imports only the standard library, because the orchestrator reads it without having any engine installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WRITES: Final = ("load", "u1", "u5", "d1")
_READS: Final = ("point", "scan", "agg")
_QUERIES: Final = ("count", "group", "key", "partition")
_TAGS: Final = ("tag", "tag-auto", "tag-bloom", "tag-simple")
_SIZES: Final = ("u5all", "u50")
_ROUNDS: Final = ("u20", "dc50")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One column of the result table.

    ``module`` defines ``open_engine(dataset, table)``. ``venv`` is the environment's folder below the project root (""
    for the environment of the benchmark) and ``requirements`` the packages that it must have. ``peer`` engines run on
    demand. ``by_name`` engines run if they are named or ``--reads`` is given.
    """

    name: str
    title: str
    module: str
    steps: tuple[str, ...]
    venv: str = ""
    requirements: tuple[str, ...] = ()
    peer: bool = False
    by_name: bool = False


_SPARK_41: Final = ("pyspark==4.1.4", "pyarrow", "numpy")

ENGINES: Final = {
    spec.name: spec
    for spec in (
        EngineSpec("floor", "pyarrow floor", "floor", (*_WRITES, "keys", *_READS, "count", *_SIZES)),
        EngineSpec(
            "lakeformat",
            "lakeformat",
            "lakeformat_python",
            (*_WRITES, "keys", *_TAGS, "zorder", *_READS, *_SIZES, "inserts50", *_ROUNDS),
        ),
        EngineSpec(
            "lakeformat-mor",
            "lakeformat, merge-on-read",
            "lakeformat_mor",
            (*_WRITES, "keys", *_READS, "compact", *_ROUNDS),
            by_name=True,
        ),
        EngineSpec(
            "delta-rs",
            "delta-rs",
            "delta_rs",
            (*_WRITES, "zorder", *_READS, *_SIZES, "inserts50"),
            ".venv-delta-rs",
            ("deltalake>=1.6.6", "pyarrow", "numpy"),
            peer=True,
        ),
        EngineSpec("spark-parquet", "Spark Parquet", "spark_parquet", ("load", *_READS, *_QUERIES)),
        EngineSpec(
            "lakeformat-spark",
            "lakeformat on Spark, read()",
            "lakeformat_spark",
            (*_WRITES, "zorder", *_READS, "native", *_QUERIES, "fresh", *_SIZES, *_ROUNDS),
        ),
        EngineSpec(
            "lakeformat-spark-mor",
            "lakeformat on Spark, merge-on-read",
            "lakeformat_spark_mor",
            (*_WRITES, *_READS, "compact", *_ROUNDS),
            by_name=True,
        ),
        EngineSpec(
            "lakeformat-load",
            "lakeformat on Spark, load()",
            "lakeformat_load",
            ("load", "zorder", *_READS, *_QUERIES),
            by_name=True,
        ),
        EngineSpec(
            "lakeformat-todf",
            'lakeformat on Spark, read(via="native")',
            "lakeformat_todf",
            ("load", "zorder", *_READS, *_QUERIES),
            by_name=True,
        ),
        EngineSpec(
            "lakeformat-exchanged", "lakeformat exchanged", "lakeformat_exchanged", (*_WRITES, "fresh", *_SIZES)
        ),
        EngineSpec(
            "delta",
            "Delta",
            "delta",
            (*_WRITES, "zorder", *_READS, *_QUERIES, "fresh"),
            ".venv-spark-4.1.4",
            _SPARK_41,
            peer=True,
        ),
        EngineSpec(
            "iceberg",
            "Iceberg",
            "iceberg",
            (*_WRITES, "zorder", *_READS, *_QUERIES, "fresh"),
            ".venv-spark-4.1.4",
            _SPARK_41,
            peer=True,
        ),
        EngineSpec(
            "hudi",
            "Hudi",
            "hudi",
            (*_WRITES, "zorder", *_READS, *_QUERIES, "fresh"),
            ".venv-interop",
            ("pyarrow", "numpy"),
            peer=True,
        ),
        EngineSpec(
            "delta-dv",
            "Delta, deletion vectors",
            "delta_dv",
            (*_WRITES, *_READS, "compact"),
            ".venv-spark-4.1.4",
            _SPARK_41,
            peer=True,
            by_name=True,
        ),
        EngineSpec(
            "iceberg-mor",
            "Iceberg, merge-on-read",
            "iceberg_mor",
            (*_WRITES, *_READS, "compact", "u20"),
            ".venv-spark-4.1.4",
            _SPARK_41,
            peer=True,
            by_name=True,
        ),
        EngineSpec(
            "hudi-mor",
            "Hudi, merge-on-read",
            "hudi_mor",
            (*_WRITES, *_READS, "compact", "u20"),
            ".venv-interop",
            ("pyarrow", "numpy"),
            peer=True,
            by_name=True,
        ),
    )
}
