"""Settings that every test needs, however pytest is started."""

from __future__ import annotations

import os
import sys

from hypothesis import settings

# Spark starts its Python workers by name: they must be this interpreter, not the first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# A host whose name does not resolve still runs local Spark.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
