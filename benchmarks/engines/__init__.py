"""The engines by name: where each one's code, environment and steps are.

Only standard-library imports here: the orchestrator reads this table without having any engine installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WRITES: Final = ("load", "u1", "u5", "d1")
_READS: Final = ("point", "scan", "agg")
_TAGS: Final = ("tag", "tag-auto", "tag-bloom", "tag-simple")
_SIZES: Final = ("u5all", "u50")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One column of the result table.

    ``module`` defines ``open_engine(dataset, table)``. ``venv`` is the environment's folder below the
    project root ("" for the one that runs the benchmark) and ``requirements`` what it must hold. ``peer``
    engines run on demand.
    """

    name: str
    title: str
    module: str
    steps: tuple[str, ...]
    venv: str = ""
    requirements: tuple[str, ...] = ()
    peer: bool = False


_SPARK_40: Final = ("pyspark==4.0.1",)

ENGINES: Final = {
    spec.name: spec
    for spec in (
        EngineSpec("floor", "pyarrow floor", "floor", (*_WRITES, "keys", *_READS, "count", *_SIZES)),
        EngineSpec(
            "lakeformat",
            "lakeformat",
            "lakeformat_python",
            (*_WRITES, "keys", *_TAGS, "zorder", *_READS, *_SIZES, "inserts50"),
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
        EngineSpec("spark-parquet", "Spark Parquet", "spark_parquet", ("load", "scan", "agg", "count")),
        EngineSpec(
            "lakeformat-spark",
            "lakeformat on Spark",
            "lakeformat_spark",
            (*_WRITES, "zorder", *_READS, "native", "count", "fresh", *_SIZES),
        ),
        EngineSpec(
            "lakeformat-exchanged", "lakeformat exchanged", "lakeformat_exchanged", (*_WRITES, "fresh", *_SIZES)
        ),
        EngineSpec(
            "delta",
            "Delta",
            "delta",
            (*_WRITES, "zorder", *_READS, "count", "fresh"),
            ".venv-spark40",
            (*_SPARK_40, "pyarrow", "numpy"),
            peer=True,
        ),
        EngineSpec(
            "iceberg",
            "Iceberg",
            "iceberg",
            (*_WRITES, "zorder", *_READS, "count", "fresh"),
            ".venv-spark40",
            (*_SPARK_40, "pyarrow", "numpy"),
            peer=True,
        ),
        EngineSpec(
            "hudi",
            "Hudi",
            "hudi",
            (*_WRITES, "zorder", *_READS, "count", "fresh"),
            ".venv-interop",
            ("pyarrow", "numpy"),
            peer=True,
        ),
    )
}
