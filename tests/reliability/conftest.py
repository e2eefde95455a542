"""The small table, made once, and a single thread: calls to storage come in one order only if one makes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.flights import MEMORY_DISK, Model, make_template


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    yield
    pa.set_cpu_count(threads)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Folder of the table, and its rows; copy it, never write to it."""
    return make_template(tmp_path_factory.mktemp("reliability"))
