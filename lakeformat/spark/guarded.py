"""Reads through the data source whose ordinary filters may skip files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["guarded_frame"]


def guarded_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """``load(location)`` with these read options (``as.of.instant``, ``columns``, ``where`` …)."""
    return spark.read.format("lakehouse").options(**options).load(location)
