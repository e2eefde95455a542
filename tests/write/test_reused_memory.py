"""The memory pool of the process: overlapping writes share it, and the last one frees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pyarrow as pa

from lakeformat.write.rows.arrow_pool import reuse_memory


def backend() -> str:
    return str(pa.default_memory_pool().backend_name)


def test_overlapping_blocks_restore_the_pool_at_the_last_exit() -> None:
    before = backend()
    first, second = ExitStack(), ExitStack()
    first.enter_context(reuse_memory())
    second.enter_context(reuse_memory())
    first.close()
    assert backend() == "system"
    second.close()
    assert backend() == before != "system"


def test_a_block_that_fails_counts_as_left() -> None:
    before = backend()
    with ExitStack() as outer:
        outer.enter_context(reuse_memory())
        try:
            with reuse_memory():
                raise KeyError
        except KeyError:
            assert backend() == "system"
    assert backend() == before


def test_blocks_in_many_threads() -> None:
    before = backend()

    def use(_: int) -> str:
        with reuse_memory():
            return backend()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(2000))) == {"system"}
    assert backend() == before
