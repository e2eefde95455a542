"""Spark's host: ``register(spark)`` makes ``format("lakehouse")`` known to a session."""

from __future__ import annotations

from lakeformat.spark.register import register

__all__ = ["register"]
