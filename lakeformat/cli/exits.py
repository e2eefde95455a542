"""Exit codes, one for each kind of result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat import errors

__all__ = ["DUPLICATES", "EXITS", "STOPPED", "UNEXPECTED", "USAGE", "exit_code", "exits_text"]

UNEXPECTED: Final = 1
USAGE: Final = 2
#: Only from ``check``: keys occur twice, which inserts allow, and nothing is damaged.
DUPLICATES: Final = 11
STOPPED: Final = 130
_CHANGE_THE_CALL: Final = "change the command, its options or the rows"

#: Code -> its error classes, and what to do. The first match counts.
EXITS: Final[Mapping[int, tuple[tuple[type[Exception], ...], str]]] = {
    2: ((errors.InvalidOptionError, errors.InvalidInputError), _CHANGE_THE_CALL),
    3: ((errors.TableNotFoundError,), "there is no table: check the path, or create it"),
    4: ((errors.UnsupportedTableError,), "the table uses a feature that is not built"),
    5: (
        (errors.CorruptTableError,),
        "a file of the table is damaged: check names it, bring it back from a copy",
    ),
    6: ((errors.WriteConflictError, errors.LockTimeoutError), "another writer was in the way: run it again"),
    7: ((errors.ValidationFailedError,), "a validator refused the write"),
    8: ((errors.InstantNotAvailableError,), "no such instant, or it was cleaned"),
    9: ((errors.CommitStateUnknownError,), "it is not known whether the commit is visible: look at the history"),
    10: ((errors.StorageError, OSError), "the storage failed: permissions, space, network"),
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error; 1 for an unexpected one."""
    return next((code for code, (kinds, _) in EXITS.items() if isinstance(error, kinds)), UNEXPECTED)


def exits_text() -> str:
    """Return the list of exit codes for the help page."""
    lines = [f"{code} {meaning}" for code, (_, meaning) in EXITS.items()]
    lines += [f"{DUPLICATES} check found keys that come twice, and no damage: lakeformat dedupe", f"{STOPPED} stopped"]
    return "Exit codes: 0 done; 1 unexpected; " + "; ".join(lines) + "."
