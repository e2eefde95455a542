"""Hadoop's file system of S3 for a Spark of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyspark

__all__ = ["s3a_jars"]

_JARS: Final = Path(__file__).resolve().parents[2] / ".cache" / "jars"


def s3a_jars() -> list[Path]:
    """Return the jars that ``tools/setup_hadoop_aws.py`` has downloaded for this PySpark; [] if there are none."""
    (api,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = api.stem.removeprefix("hadoop-client-api-")
    return sorted((_JARS / f"s3a-{version}").glob("*.jar"))
