"""Parsing of the options of a call. One error lists all refused options; ignored options are logged as warnings.

The options may include those of the file system, because Spark passes all options to a data source in one map.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.concurrency import Patience
from lakeformat.config.beside_options import BesideOptions, find_beside_errors
from lakeformat.config.catalog_options import (
    METASTORE_URIS,
    CatalogOptions,
    fails_on_error,
    find_catalog_errors,
    wanted_catalogs,
)
from lakeformat.config.clustering_options import ClusteringOptions
from lakeformat.config.hudi_support import BY_NAME
from lakeformat.config.lock_options import RETRIES, RETRY_SECONDS, LockSettings, find_lock_errors
from lakeformat.config.metadata_options import MetadataOptions
from lakeformat.config.option import Effect
from lakeformat.config.packages import find_missing_packages
from lakeformat.config.problems import Problem, join_errors
from lakeformat.config.read_options import ReadOptions
from lakeformat.config.table_options import KeyOptions, MergeOptions
from lakeformat.config.verdicts import judge
from lakeformat.config.write_options import WriteOptions
from lakeformat.errors import InvalidOptionError

__all__ = ["Options", "find_contradictions", "resolve", "spark_storage_options", "storage_options_of"]

_LOG: Final = logging.getLogger("lakeformat.config")

#: Pairs (table, topic of a warning) that this process has already logged.
_WARNED: Final[set[tuple[str, str]]] = set()
#: Maximum size of the set of logged warnings. A full set is emptied, to limit its memory.
_MOST_WARNED: Final = 10_000


@dataclass(frozen=True)
class Options:
    """Parsed options of a call.

    ``options[key]`` returns the value of any option, or its default. The properties `read`, `write`, `merge` and
    `clustering` return typed groups of options.

    Attributes:
        values: Maps the keys of the options that the user gave to their parsed values.
        extra_metadata: Entries for the extra metadata of the commit.
        timestamp: Options of the timestamp-based key generator, by name, as texts.
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
        """Return the options of a read as a typed value."""
        return ReadOptions.of(self.__getitem__)

    @cached_property
    def write(self) -> WriteOptions:
        """Return the options of a write as a typed value."""
        return WriteOptions.of(self.__getitem__)

    @cached_property
    def merge(self) -> MergeOptions:
        """Return the options of the merge rule as a typed value."""
        return MergeOptions.of(self.__getitem__)

    @cached_property
    def keys(self) -> KeyOptions:
        """Return the options of the forms of keys and folders as a typed value."""
        return KeyOptions.of(self.__getitem__)

    @cached_property
    def clustering(self) -> ClusteringOptions:
        """Return the options of clustering as a typed value."""
        return ClusteringOptions.of(self.__getitem__, self.is_set)

    @cached_property
    def metadata(self) -> MetadataOptions:
        """Return the options of the metadata table as a typed value."""
        return MetadataOptions.of(self.__getitem__, self.is_set)

    @cached_property
    def beside(self) -> BesideOptions:
        """Return the options of the metadata of other formats as a typed value."""
        return BesideOptions.of(self.__getitem__)

    def catalog(self, name: str = "") -> CatalogOptions:
        """Return the options of the registration in a catalog as a typed value.

        Args:
            name: ``hive`` or ``glue``; "" for the catalogs that the options name.

        Raises:
            InvalidOptionError: an option that the catalog needs is missing or contradicts another one.
        """
        return CatalogOptions.of(self.__getitem__, self.is_set, name) if name else self._registration

    @cached_property
    def _registration(self) -> CatalogOptions:
        return CatalogOptions.of(self.__getitem__, self.is_set)

    @property
    def lacks_metastore(self) -> bool:
        """Tell whether writes register the table in a Hive metastore whose address is not among the options."""
        return "hive" in wanted_catalogs(self.__getitem__) and not self.metastore_uris

    @property
    def metastore_uris(self) -> str:
        """Return the address of the Hive metastore; "" if it is not given."""
        return self[METASTORE_URIS] or ""

    @property
    def fails_without_registration(self) -> bool:
        """Tell whether a write whose registration in a catalog fails raises an error."""
        return fails_on_error(self.__getitem__, self.is_set)

    @property
    def lock_seconds(self) -> float:
        """Return the maximum number of seconds that a write waits for the lock of the table."""
        return float(self["hoodie.write.lock.wait_time_ms"]) / 1000

    @cached_property
    def lock(self) -> LockSettings:
        """Return the settings of the table's lock."""
        return LockSettings.of(self.__getitem__, self.is_set)

    @property
    def patience(self) -> Patience:
        """Return how long a write is repeated after conflicts."""
        name = "hoodie.write.num.retries.on.conflict.failures"
        return Patience(self[RETRY_SECONDS], self[name] if self.is_set(name) else self[RETRIES])

    @property
    def heartbeat_ms(self) -> int:
        """Return the number of milliseconds between two heartbeats of a writer, as other writers expect them."""
        return int(self["hoodie.client.heartbeat.interval_in_ms"])

    @property
    def heartbeat_misses(self) -> int:
        """Return the number of missed heartbeats after which a writer counts as dead."""
        return int(self["hoodie.client.heartbeat.tolerable.misses"])

    def is_set(self, key: str) -> bool:
        """Tell whether the user gave the option, even with its default as value."""
        return key in self.values

    def with_values(self, **values: Any) -> Options:
        """Return a copy with other values of some options. ``values`` maps full option keys to parsed values."""
        return Options({**self.values, **values}, self.extra_metadata, self.timestamp)


def resolve(
    raw: Mapping[str, Any], *, effects: Iterable[Effect] = tuple(Effect), table: str = "", reads: bool = False
) -> Options:
    """Parse options that are given by full name or alias, in any letter case.

    An unknown option ``hoodie.*`` is only logged as a warning, so that jobs written for other releases run.

    Args:
        raw: Maps the given names to values.
        effects: The actions to parse options for. Options that affect only other actions are skipped.
        table: The table's path. Each warning is logged once per table and process.
        reads: Whether the options are for a read alone. Then warnings that an option has no effect are not logged.

    Raises:
        InvalidOptionError: At least one option is refused. The message lists every refused option with advice. An
            option is refused if its value is not valid, if it is unknown (the message names the nearest known option),
            if it is given twice with different values, or if it requests an unsupported feature. It is also refused if
            its name resembles the option of the record key, the partitions or the ordering field, and that option is
            not given.
    """
    judged = judge(raw, effects=frozenset(effects))
    options = Options(judged.values, judged.extra_metadata, judged.timestamp)
    errors = [verdict.error for verdict in judged.verdicts if verdict.error]
    problems = find_contradictions(options)
    if errors or problems:  # The call fails in any case, so say also what its writes would need.
        problems += find_missing_packages(options.__getitem__)
        raise InvalidOptionError(join_errors([*errors, *(problem.text for problem in problems)]))
    for verdict in judged.verdicts:
        if verdict.warning:
            _warn_once(table, verdict.name.lower(), verdict.warning)
    if not reads:
        for explanation, names in judged.without_effect.items():
            _warn_once(table, explanation, f"no effect of {', '.join(names)}: {explanation}")
    return options


def find_contradictions(options: Options) -> list[Problem]:
    """Find options that contradict each other, and options that others need."""
    locks = find_lock_errors(options.__getitem__)
    catalogs = find_catalog_errors(options.__getitem__, options.is_set)
    return [*locks, *catalogs, *find_beside_errors(options.__getitem__)]


def _warn_once(table: str, topic: str, text: str) -> None:
    if table:
        warning = (table.rstrip("/"), topic)
        if warning in _WARNED:
            return
        if len(_WARNED) >= _MOST_WARNED:
            _WARNED.clear()
        _WARNED.add(warning)
        text = f"table {table}: {text}"
    _LOG.warning("%s", text)


#: Option with all of fsspec's ``storage_options`` as JSON. Its name contains "secret" so that Spark redacts it in logs.
_WHOLE: Final = "fs.secret_storage_options"
#: Options of Hadoop's file system of S3 that are storage options (``org.apache.hadoop.fs.s3a.Constants``).
_S3A: Final = frozenset({"fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.endpoint"})


def storage_options_of(path: str, options: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the storage options among a table's options, and those of ``given``. For local paths only ``given``.

    An option ``fs.x`` becomes the storage option ``x``. For S3, ``fs.s3a.access.key``, ``fs.s3a.secret.key``,
    ``fs.s3a.session.token`` and ``fs.s3a.endpoint`` keep their names, which the storage knows. Other options of Hadoop
    are ignored.

    >>> storage_options_of("s3://b/t", {"fs.s3a.access.key": "k", "fs.anon": "false", "fs.gs.project.id": "p"})
    {'fs.s3a.access.key': 'k', 'anon': False}

    Args:
        given: the argument ``storage_options`` of a call.

    Raises:
        InvalidOptionError: an option ``fs.x`` and the storage option ``x`` differ, or ``given`` is not a dictionary.
    """
    scheme = urlsplit(path).scheme
    if given is not None and not isinstance(given, Mapping):
        raise InvalidOptionError(
            f"storage_options is of type {type(given).__name__}; write a dictionary of name and value"
        )
    given = dict(given or {})
    if len(scheme) < 2 or scheme == "file":
        return given
    storage_options: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower()
        if key == _WHOLE:
            storage_options |= json.loads(value)
        elif key in _S3A:
            if scheme in {"s3", "s3a"}:
                storage_options[key] = value
        elif key.startswith("fs.") and key.count(".") == 1:
            text = str(value).lower()
            storage_options[key[3:]] = text == "true" if text in {"true", "false"} else value
    differing = [name for name in given if name in storage_options and str(storage_options[name]) != str(given[name])]
    if differing:
        twice = ", ".join(f"fs.{name} and storage_options[{name!r}]" for name in differing)
        raise InvalidOptionError(f"{twice} mean the same and differ; give one of them")
    return storage_options | given


def spark_storage_options(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return fsspec options as one Spark option, {} if there are none. Invert `storage_options_of`."""
    return {_WHOLE: json.dumps(dict(storage_options))} if storage_options else {}
