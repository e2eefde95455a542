"""Fixtures of the tests that count calls to storage: one thread, the small table.

``conftest.py`` of a folder imports them by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.flights import Model, make_template

__all__ = ["one_thread", "template"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run Arrow in one thread: calls to storage have one order only if one thread makes them."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    yield
    pa.set_cpu_count(threads)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Return the folder of the small table, and its rows. Copy the folder, never write to it."""
    return make_template(tmp_path_factory.mktemp("template"))
