"""Settings of all simulated runs: quiet logs, and one thread of pyarrow, so that small writes cost little."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    pa.set_cpu_count(threads)
