"""Registration of a table when it is asked for, and after each write."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, Protocol

import pyarrow as pa

from lakeformat.catalog.metastore_address import NO_ADDRESS, find_address
from lakeformat.catalog.session import CatalogSession, Registration, check_client, connect
from lakeformat.catalog.types import hive_type
from lakeformat.config.catalog_options import METASTORE_URIS, CatalogOptions
from lakeformat.config.option import Effect
from lakeformat.config.resolve import Options, resolve, storage_options_of
from lakeformat.errors import CatalogError, InvalidOptionError, nearest
from lakeformat.file_system_view.context import TableContext, open_context
from lakeformat.public import public
from lakeformat.telemetry import Operation
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["Registering", "check_catalogs", "register", "register_after_commit", "register_result", "registration_note"]

_LOG: Final = logging.getLogger("lakeformat.catalog")
_CATALOGS: Final = ("glue", "hive")
_DATABASE: Final = "hoodie.datasource.hive_sync.database"
_TABLE: Final = "hoodie.datasource.hive_sync.table"


class _RegisteredTable(Protocol):
    """A `lakeformat.Table` or `lakeformat.spark.LakehouseTable`."""

    context: TableContext
    options: Options


def register(
    table: _RegisteredTable | str | os.PathLike[str],
    catalog: str,
    *,
    database: str | None = None,
    name: str | None = None,
    full: bool = False,
    **options: Any,
) -> Registration:
    """Register a table in AWS Glue or a Hive metastore, or bring its entry up to date; see `Registering.register`.

    Args:
        table: a table, or its path or URL. Then ``storage_options`` may have the credentials of the URL.
    """
    if isinstance(table, (str, os.PathLike)):
        path, given = os.fspath(table), dict(options)
        said = given.pop("storage_options", None)
        resolved = resolve(given, table=path)
        context = open_context(path, resolved, **storage_options_of(path, given, said))
        return _register(context, resolved, catalog, database, name, full=full)
    return _register(table.context, _add_options(table.options, options), catalog, database, name, full=full)


def _add_options(options: Options, more: Mapping[str, Any]) -> Options:
    return options.with_values(**resolve(more, effects=(Effect.WRITE,)).values) if more else options


def _register(
    context: TableContext, options: Options, catalog: str, database: str | None, name: str | None, *, full: bool
) -> Registration:
    if catalog not in _CATALOGS:
        raise InvalidOptionError(
            f"catalog={catalog!r} is not known{nearest(str(catalog), _CATALOGS)}; give 'glue' or 'hive'"
        )
    names = {key: value for key, value in ((_DATABASE, database), (_TABLE, name)) if value is not None}
    settings = options.with_values(**names).catalog(catalog)
    check_client(catalog)
    if catalog == "hive" and not settings.uris and find_address() is None:
        raise InvalidOptionError(NO_ADDRESS)
    return _run(context, settings, catalog, full=full, again=True)


def _run(
    context: TableContext, settings: CatalogOptions, catalog: str, *, full: bool = False, again: bool = False
) -> Registration:
    operation = Operation("register", context.storage.location)
    try:
        with closing(connect(catalog, settings)) as client:
            result = CatalogSession(context, settings, catalog, client).register(full=full, again=again)
    except Exception as error:
        operation.end({"catalog": catalog}, error=error)
        raise
    operation.end({name: count for name, count in result.as_step().items() if name not in {"step", "seconds"}})
    _LOG.info("%s: %s", context.storage.location, result)
    return result


@public
class Registering:
    """The method that registers a table in a catalog. Subclasses set the attributes."""

    context: TableContext
    options: Options

    def register(
        self,
        catalog: str,
        *,
        database: str | None = None,
        name: str | None = None,
        full: bool = False,
        **options: Any,
    ) -> Registration:
        """Register the table in AWS Glue or a Hive metastore, or bring its entry up to date.

        Writes do the same if ``hoodie.datasource.hive_sync.enable`` or ``hoodie.datasource.meta.sync.enable`` is true.
        A merge-on-read table gets three entries: ``name``, ``name_rt`` and the read-optimized ``name_ro``.

        Args:
            catalog: ``glue`` or ``hive``.
            database: by default ``hoodie.datasource.hive_sync.database``, else the table's own, else ``default``. It
                is created if it does not exist.
            name: name in the catalog; by default ``hoodie.datasource.hive_sync.table``, else the table's name.
            full: whether all partitions are compared, not only those of commits since the last registration.
            options: more options by Hudi's names, such as ``hoodie.datasource.hive_sync.metastore.uris``.

        Returns:
            The tables of the catalog, and the numbers of partitions that were added, changed and dropped.

        Raises:
            InvalidOptionError: an option is unknown or bad, or the catalog needs a package that is not installed.
            InvalidInputError: the table has no columns, or a partition path does not fit the partition fields.
            CatalogError: the catalog refuses a change, or cannot be reached.
        """
        given = _add_options(self.options, options)
        if catalog == "hive" and not given.metastore_uris and (uris := self._metastore_uris()):
            given = given.with_values(**{METASTORE_URIS: uris})
        return _register(self.context, given, catalog, database, name, full=full)

    def _metastore_uris(self) -> str:
        """Return the address of the Hive metastore that the host of this table knows; "" if it knows none."""
        return ""


def check_catalogs(options: Options, schema: pa.Schema) -> None:
    """Check that a write can be registered as the options say. Call it before the write starts.

    Args:
        schema: the table's columns after the write.

    Raises:
        InvalidOptionError: an option contradicts another one.
        SchemaMismatchError: a catalog has no type for a column.
    """
    settings = options.catalog()
    if note := registration_note(options):
        _LOG.warning("the write will be complete, but not registered in Hive: %s", note)
    if settings.catalogs:
        for field in schema:
            hive_type(field.type, has_timestamps=settings.has_timestamps)


def registration_note(options: Options) -> str:
    """Return why the registration after a write will fail, if it is known before; "" if it may succeed.

    The write itself succeeds, unless the options ask for an error.
    """
    return NO_ADDRESS if options.lacks_metastore and find_address() is None else ""


def register_result(result: WriteResult, context: TableContext, options: Options) -> WriteResult:
    """Register a table after a write. Return the write's result, with a step ``sync`` for each catalog.

    Raises:
        CatalogError: a registration has failed, and the options ask for an error.
    """
    return result.with_steps(register_after_commit(context, options, result.instant_time))


def register_after_commit(context: TableContext, options: Options, instant_time: str) -> list[dict[str, Any]]:
    """Register a table in the catalogs that the options name, after a commit.

    Return a step of the write's report for each catalog. If a registration fails, log a warning, and put the error
    into the step.

    Raises:
        CatalogError: a registration has failed, and the options ask for an error.
    """
    settings = options.catalog()
    steps: list[dict[str, Any]] = []
    failed = ""
    for catalog in settings.catalogs:
        start = context.clock.seconds()
        try:
            steps.append(_run(context, settings, catalog).as_step())
        except Exception as error:  # The commit is visible: its writer must not believe that it failed.
            text = str(error) if isinstance(error, CatalogError) else f"{type(error).__name__}: {error}"
            seconds = round(context.clock.seconds() - start, 4)
            steps.append({"step": "sync", "seconds": seconds, "catalog": catalog, "error": text})
            failed = failed or f"{catalog}: {text}"
            _LOG.warning(
                "commit %s of %s is complete, but it is not registered in the catalog %s: %s",
                instant_time,
                context.storage.location,
                catalog,
                text,
            )
    if failed and settings.fails:
        raise CatalogError(
            f"commit {instant_time} of {context.storage.location} IS visible, only its registration failed: {failed}; "
            "do not write the rows again, but call register(), or let the next write register them"
        )
    return steps
