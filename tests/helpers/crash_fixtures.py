"""Fixtures of the tests that count calls to storage: one thread, a folder in memory, the small table.

``conftest.py`` of a folder imports them by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.flights import MEMORY_DISK, Model, make_template

__all__ = ["one_thread", "template", "tmp_path"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run Arrow in one thread: calls to storage have one order only if one thread makes them."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    yield
    pa.set_cpu_count(threads)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a new folder, in memory if the machine has such a disk, and delete it after the test."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Return the folder of the small table, and its rows. Copy the folder, never write to it."""
    return make_template(tmp_path_factory.mktemp("template"))
