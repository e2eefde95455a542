"""Locks and forks: a lock belongs to the process that took it, not to its children, and ends with the process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import LockTimeoutError
from tests.helpers.flights import NEXT, SCHEMA, Model, Write, copy_of, leftovers, open_at, rows_of

UPSERT = Write("upsert", (1, 3, 4, 21, 24), "upserted")
AT_ONCE = {"hoodie.write.lock.wait_time_ms": 1}

#: A program that forks in the middle of its write, prints the child's number, and stays there.
FORKS_AND_WAITS = """
import os, signal, sys
import pyarrow as pa
import lakeformat

def fork(_):
    child = os.fork()
    if not child:
        signal.pause()
    print(child, flush=True)
    signal.pause()

schema = pa.schema({"id": pa.int64(), "region": pa.string(), "v": pa.string()})
rows = pa.table([[1], ["r1"], ["dead"]], schema=schema)
lakeformat.open(sys.argv[1]).upsert(rows, validators=[fork])
"""


@contextmanager
def ended(child: int) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def forked_by_python() -> int:
    child = os.fork()
    if not child:
        signal.pause()
    return child


def forked_by_a_library() -> int:
    """Fork like a C library, without Python's knowledge. Return the child's number."""
    child = int(ctypes.PyDLL(None).fork())
    if not child:
        signal.pause()
    return child


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("fork", [forked_by_python, forked_by_a_library])
def test_child_of_a_writer_does_not_keep_the_lock(
    fork: Callable[[], int], template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    children: list[int] = []

    def forks(_: object) -> bool:
        children.append(fork())
        return True

    lakeformat.Table(storage).upsert(UPSERT.rows, validators=[forks])
    with ended(children[0]):
        NEXT.run(open_at(storage, "next", AT_ONCE))
    os.waitpid(children[0], 0)
    assert rows_of(storage) == NEXT.applied(UPSERT.applied(before))


def test_a_child_of_a_killed_writer_does_not_keep_the_lock(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The writer dies and its child lives on: the next writer continues at once."""
    path, before = template
    storage = copy_of(path, tmp_path)
    command = [sys.executable, "-W", "ignore", "-c", FORKS_AND_WAITS, storage.root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        with ended(writer.pid), ended(int(writer.stdout.readline())):
            with pytest.raises(LockTimeoutError, match=rf"\(process {writer.pid} on .*\); run the write again"):
                NEXT.run(open_at(storage, "next", AT_ONCE))
            writer.kill()
            writer.wait()
            NEXT.run(open_at(storage, "next", AT_ONCE))
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_process_that_exits_releases_no_lock(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The child has no lock.

    It must neither free its parent's nor close a file of its own with the lock's old number.
    """
    storage = copy_of(template[0], tmp_path)
    parent, reader_writer = os.getpid(), os.pipe()

    def leave() -> None:
        if not os.fork():
            kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
            raise KeyboardInterrupt(kept)
        answer = os.read(reader_writer[0], 1)
        with pytest.raises(LockTimeoutError), storage.lock(0):
            pass
        assert answer == b"1"

    try:
        with storage.lock(0):
            leave()
    except KeyboardInterrupt as interrupt:
        alive = all(os.fstat(number) for number in interrupt.args[0])
        os.write(reader_writer[1], b"1" if alive else b"0")
        os._exit(0)
    assert os.getpid() == parent


def test_closing_the_lock_file_elsewhere_in_the_process_keeps_the_lock(
    template: tuple[Path, Model], tmp_path: Path
) -> None:
    """A backup in the same process reads the lock's file, too."""
    storage = copy_of(template[0], tmp_path)
    refused: list[str] = []

    def back_up(_: object) -> bool:
        copy_of(Path(storage.root), tmp_path)
        try:
            NEXT.run(open_at(storage, "next", AT_ONCE))
        except LockTimeoutError as error:
            refused.append(str(error))
        return True

    lakeformat.Table(storage).upsert(pa.table([[1], ["r1"], ["x"]], schema=SCHEMA), validators=[back_up])
    assert len(refused) == 1
