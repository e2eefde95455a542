"""The parser of the user's options: all refused options go into one error, ignored ones into warnings.

The options of a table also hold those of its file system, because Spark passes only texts to a source.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.config.clustering_options import ClusteringOptions
from lakeformat.config.hudi_support import BY_NAME, TIMESTAMP_PREFIXES
from lakeformat.config.option import Effect
from lakeformat.config.read_options import ReadOptions
from lakeformat.config.table_options import MergeOptions
from lakeformat.config.verdicts import judge
from lakeformat.config.write_options import WriteOptions
from lakeformat.errors import InvalidOptionError

__all__ = ["TIMESTAMP_PREFIXES", "Options", "resolve", "spark_storage_options", "storage_options_of"]

_LOG: Final = logging.getLogger("lakeformat.config")

#: (table, warning) pairs that this process has already logged.
_WARNED: Final[set[tuple[str, str]]] = set()
_MOST_WARNED: Final = 10_000


@dataclass(frozen=True)
class Options:
    """Parsed options. `read`, `write`, `merge` and `clustering` are typed; any option can be read by its key.

    Attributes:
        values: parsed values by key, of the options that the user gave; `is_set` tests for one.
        extra_metadata: entries of the commit's extra metadata.
        timestamp: options of the timestamp-based key generator.
    """

    values: Mapping[str, Any]
    extra_metadata: Mapping[str, str]
    timestamp: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return BY_NAME[key.lower()].default

    @cached_property
    def read(self) -> ReadOptions:
        """Return the options of reading."""
        return ReadOptions.of(self.__getitem__)

    @cached_property
    def write(self) -> WriteOptions:
        """Return the options of writing."""
        return WriteOptions.of(self.__getitem__)

    @cached_property
    def merge(self) -> MergeOptions:
        """Return the options of the merge rule."""
        return MergeOptions.of(self.__getitem__)

    @cached_property
    def clustering(self) -> ClusteringOptions:
        """Return the options of clustering."""
        return ClusteringOptions.of(self.__getitem__, self.is_set)

    @property
    def lock_seconds(self) -> float:
        """Return the seconds that a write waits for the table's lock."""
        return float(self["hoodie.write.lock.wait_time_ms"]) / 1000

    def is_set(self, key: str) -> bool:
        """Tell whether the user set the option."""
        return key in self.values

    def with_values(self, **values: Any) -> Options:
        """Return a copy with some values set. Keyword names are full option keys."""
        return Options({**self.values, **values}, self.extra_metadata, self.timestamp)


def resolve(
    raw: Mapping[str, Any], *, effects: Iterable[Effect] = tuple(Effect), table: str = "", reads: bool = False
) -> Options:
    """Parse options given under Hudi's names or short aliases, in any case.

    Args:
        table: the table's path; each warning is logged once per table and process.
        reads: whether the options are for a read alone: then warnings about writes are not logged.

    Raises:
        InvalidOptionError: names every refused option with its cure: a bad value; an unknown option (with the nearest
            known one); one option given twice with different values; an option that requests an unsupported feature; a
            name similar to that of the record key, partition or ordering option if that option is not given. Any other
            unknown ``hoodie.*`` option only logs a warning, so that jobs written for other releases run.
    """
    judged = judge(raw, effects=frozenset(effects))
    errors = [verdict.error for verdict in judged.verdicts if verdict.error]
    if errors:
        raise InvalidOptionError(errors[0] if len(errors) == 1 else _join_errors(errors))
    for verdict in judged.verdicts:
        if verdict.warning:
            _warn_once(table, verdict.name.lower(), verdict.warning)
    if not reads:
        for explanation, names in judged.without_effect.items():
            _warn_once(table, explanation, f"no effect of {', '.join(names)}: {explanation}")
    return Options(judged.values, judged.extra_metadata, judged.timestamp)


def _join_errors(errors: Sequence[str]) -> str:
    numbered = "; ".join(f"({number}) {error}" for number, error in enumerate(errors, 1))
    return (
        f"{len(errors)} options are refused: {numbered}; to check options before a job runs: lakeformat options check"
    )


def _warn_once(table: str, topic: str, text: str) -> None:
    if table:
        known = (table.rstrip("/"), topic)
        if known in _WARNED:
            return
        if len(_WARNED) >= _MOST_WARNED:
            _WARNED.clear()
        _WARNED.add(known)
        text = f"table {table}: {text}"
    _LOG.warning("%s", text)


#: All of fsspec's ``storage_options`` as JSON. Spark redacts options whose names hold "secret".
_WHOLE: Final = "fs.secret_storage_options"
#: Names of Hadoop's S3A file system (``org.apache.hadoop.fs.s3a.Constants``) -> those of s3fs.
_S3A: Final[Mapping[str, str]] = {
    "fs.s3a.access.key": "key",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.session.token": "token",
    "fs.s3a.endpoint": "endpoint_url",
}


def storage_options_of(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file system options among a table's options; none for local paths.

    ``fs.key`` is fsspec's ``key``. ``fs.s3a.access.key``, ``.secret.key``, ``.session.token`` and ``.endpoint`` are
    used for S3. Hadoop's other names are ignored.

    >>> storage_options_of("s3://b/t", {"fs.s3a.access.key": "k", "fs.anon": "false", "fs.gs.project.id": "p"})
    {'key': 'k', 'anon': False}
    """
    scheme = urlsplit(path).scheme
    if len(scheme) < 2 or scheme == "file":
        return {}
    storage_options: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower()
        if key == _WHOLE:
            storage_options |= json.loads(value)
        elif key in _S3A:
            if scheme in {"s3", "s3a"}:
                storage_options[_S3A[key]] = value
        elif key.startswith("fs.") and key.count(".") == 1:
            text = str(value).lower()
            storage_options[key[3:]] = text == "true" if text in {"true", "false"} else value
    return storage_options


def spark_storage_options(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """Make one Spark option that holds all file system options, or none; the inverse of `storage_options_of`."""
    return {_WHOLE: json.dumps(dict(storage_options))} if storage_options else {}
