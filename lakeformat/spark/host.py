"""What reader and writer share: options to storage, and errors that arrive as one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakeformat.config.resolve import Options, resolve
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.table_state.engine import Engine, open_engine

__all__ = ["asked_engine", "plain_errors"]


def asked_engine(options: Mapping[str, str], *, reads: bool = False) -> tuple[Engine, Options]:
    """The table's engine and the parsed options; a read is not told what a write would not do."""
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if not path and "paths" in {key.lower() for key in options}:
        raise InvalidOptionError("several paths given; one load reads one table, so load each and union the frames")
    if not path:
        raise InvalidOptionError("no path given; write .load(path) or .save(path)")
    resolved = resolve(options, table=path, reads=reads)
    return open_engine(path, resolved), resolved


@contextmanager
def plain_errors() -> Iterator[None]:
    """Spark shows the last line of a traceback: make sure that it is ours, with nothing chained to it."""
    try:
        yield
    except LakeformatError as error:
        raise error.with_traceback(None) from None
