"""What reader and writer share: options to storage, and errors that arrive as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from lakeformat.config.resolve import Options, resolve
from lakeformat.config.storage_options import spark_storage_options, storage_options_of
from lakeformat.errors import InvalidOptionError, LakeformatError
from lakeformat.storage import FsspecStorage
from lakeformat.table_state.engine import Engine, open_engine

__all__ = ["asked_engine", "plain_errors", "storage_secrets"]

#: Programs of PySpark that end with the first error they tell the JVM of: what is set then meets no other.
_WORKERS: Final = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


def asked_engine(options: Mapping[str, str], *, reads: bool = False) -> tuple[Engine, Options]:
    """The table's engine and the parsed options; a read is not told what a write would not do."""
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if not path and "paths" in {key.lower() for key in options}:
        raise InvalidOptionError("several paths given; one load reads one table, so load each and union the frames")
    if not path:
        raise InvalidOptionError("no path given; write .load(path) or .save(path)")
    resolved = resolve(options, table=path, reads=reads)
    return open_engine(path, resolved, **storage_options_of(path, options)), resolved


def storage_secrets(engine: Engine) -> dict[str, str]:
    """Options by which another relation of Spark opens the same file system."""
    storage = engine.storage
    return spark_storage_options(storage.options) if isinstance(storage, FsspecStorage) else {}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Of our errors Spark is told class and words alone: no traceback of its worker, and nothing chained to them."""
    try:
        yield
    except LakeformatError as error:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Read by pyspark.util.handle_worker_exception.
        raise error.with_traceback(None) from None


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)
