"""From the user's option mapping to parsed values: all that is refused in one error, what is ignored in warnings.

Options of a file system among those of a table: Spark hands a source nothing but texts.
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

#: Of which table what has been told already; in this process.
_TOLD: Final[set[tuple[str, str]]] = set()
_TOLD_AT_MOST: Final = 10_000


@dataclass(frozen=True)
class Options:
    """Parsed options: `read` and `write`, typed; any by its key, said or its default; `given` tells which were said."""

    values: Mapping[str, Any]
    extra_metadata: Mapping[str, str]
    timestamp: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return BY_NAME[key.lower()].default

    @cached_property
    def read(self) -> ReadOptions:
        """How a read works."""
        return ReadOptions.of(self.__getitem__)

    @cached_property
    def write(self) -> WriteOptions:
        """How a write works."""
        return WriteOptions.of(self.__getitem__)

    @cached_property
    def merge(self) -> MergeOptions:
        """Which merge rule is asked for."""
        return MergeOptions.of(self.__getitem__)

    @cached_property
    def clustering(self) -> ClusteringOptions:
        """What is clustered, and in what portions."""
        return ClusteringOptions.of(self.__getitem__, self.given)

    @property
    def lock_seconds(self) -> float:
        """How long a write waits for the table's lock."""
        return float(self["hoodie.write.lock.wait_time_ms"]) / 1000

    def given(self, key: str) -> bool:
        """Whether the user set the option."""
        return key in self.values

    def with_values(self, **values: Any) -> Options:
        """A copy with some values set; keyword names are full option keys."""
        return Options({**self.values, **values}, self.extra_metadata, self.timestamp)


def resolve(
    raw: Mapping[str, Any], *, effects: Iterable[Effect] = tuple(Effect), table: str = "", reads: bool = False
) -> Options:
    """Parse options given under Hudi's names or short aliases, in any case.

    Args:
        table: the table's path; of one table the same is told once per process.
        reads: for a read alone: what a write would not do is not told.

    Raises:
        InvalidOptionError: names every option that is refused, each with its cure: a bad value, an unknown option of
            ours (with the nearest known), one option given twice with different values, an option that asks for what is
            not built, or a name like that of the record key's, partitions' or ordering option where that is not given.
            Any other unknown ``hoodie.*`` option only logs a warning, so that jobs written for other releases run.
    """
    judged = judge(raw, effects=frozenset(effects))
    errors = [verdict.error for verdict in judged.verdicts if verdict.error]
    if errors:
        raise InvalidOptionError(errors[0] if len(errors) == 1 else _joined(errors))
    for verdict in judged.verdicts:
        if verdict.warning:
            _tell(table, verdict.name.lower(), verdict.warning)
    if not reads:
        for says, names in judged.without_effect.items():
            _tell(table, says, f"no effect of {', '.join(names)}: {says}")
    return Options(judged.values, judged.extra_metadata, judged.timestamp)


def _joined(errors: Sequence[str]) -> str:
    numbered = "; ".join(f"({number}) {error}" for number, error in enumerate(errors, 1))
    return f"{len(errors)} options are refused: {numbered}; to ask before a job runs: lakeformat options check"


def _tell(table: str, about: str, text: str) -> None:
    if table:
        known = (table.rstrip("/"), about)
        if known in _TOLD:
            return
        if len(_TOLD) >= _TOLD_AT_MOST:
            _TOLD.clear()
        _TOLD.add(known)
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
    """What options say to the file system of a table; of local paths nothing.

    ``fs.key`` is fsspec's ``key``; ``fs.s3a.access.key``, ``.secret.key``, ``.session.token`` and ``.endpoint`` are
    taken for S3. Other names of Hadoop's are for Hadoop alone.

    >>> storage_options_of("s3://b/t", {"fs.s3a.access.key": "k", "fs.anon": "false", "fs.gs.project.id": "p"})
    {'key': 'k', 'anon': False}
    """
    scheme = urlsplit(path).scheme
    if len(scheme) < 2 or scheme == "file":
        return {}
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower()
        if key == _WHOLE:
            found |= json.loads(value)
        elif key in _S3A:
            if scheme in {"s3", "s3a"}:
                found[_S3A[key]] = value
        elif key.startswith("fs.") and key.count(".") == 1:
            text = str(value).lower()
            found[key[3:]] = text == "true" if text in {"true", "false"} else value
    return found


def spark_storage_options(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """The inverse for Spark: one option that holds all, or none."""
    return {_WHOLE: json.dumps(dict(storage_options))} if storage_options else {}
