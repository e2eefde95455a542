"""The repetition of a statement after a conflict, on the newest rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from lakeformat.errors import WriteConflictError

__all__ = ["run_again_after_conflict"]

_LOG: Final = logging.getLogger("lakeformat.write")
_Result = TypeVar("_Result")


def run_again_after_conflict(run: Callable[[], _Result], forget: Callable[[], object], retries: int) -> _Result:
    """Run a statement. After a conflict, run it again on the newest rows.

    Args:
        run: runs the statement once.
        forget: forgets what the last run has read.
        retries: how often the statement may run again.

    Raises:
        WriteConflictError: the last run had a conflict, too.
    """
    for left in range(retries, 0, -1):
        try:
            return run()
        except WriteConflictError as error:
            _LOG.warning("%s; running the statement again, %d tries left", error, left)
            forget()
    return run()
