"""A count or a length in a damaged file never decides how much memory is taken."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.bombs import BOMBS, Measured

#: Megabytes beside what the true rows take.
_BOUND = 256
#: Bombs that come to nothing, because what they say is ignored: keys decide instead of positions, folders instead of
#: the file index.
_IGNORED = {name for name in BOMBS if name.startswith(("positions: ", "file index: "))}
_IGNORED -= {"positions: runs", "positions: in a table"}
_ERRORS = {"CorruptTableError", "UnsupportedTableError", "InvalidOptionError"}


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    """Decode all bombs in one other process, whose address space is limited."""
    run = subprocess.run([sys.executable, "-m", "tests.helpers.bombs"], capture_output=True, text=True, check=True)
    found: dict[str, Measured] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("place", BOMBS)
def test_bomb_is_refused_in_one_line_and_in_the_memory_of_the_true_rows(
    place: str, measured: dict[str, Measured]
) -> None:
    error, megabytes = measured[place]
    assert megabytes < _BOUND
    assert error in ({""} if place in _IGNORED else _ERRORS)
