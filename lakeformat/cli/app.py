"""The Typer application with all commands. Heavy modules are imported only when a command runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from lakeformat.cli import catalogs, indexes, inspect, recovery, services, write
from lakeformat.cli import show as showing
from lakeformat.cli.options import options_group
from lakeformat.cli.output import exits_text

__all__ = ["app", "version"]

_HELP: Final = """Apache Hudi tables without Spark or Java: look, read, write and keep in order.

A table is a folder or any URL that fsspec knows: /data/flights, s3://bucket/flights, gs://..., abfs://...
"""

_MANUAL: Final[Mapping[str, Any]] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def version() -> None:
    """Print the version."""
    import lakeformat

    print(f"lakeformat {lakeformat.__version__}")


def _version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def _root(
    shows_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_COMMANDS: Final[Sequence[Callable[..., None]]] = (
    inspect.describe,
    inspect.report,
    inspect.history,
    inspect.read,
    inspect.count,
    inspect.schema,
    inspect.files,
    inspect.changes,
    inspect.sql,
    inspect.bad_rows,
    inspect.plan,
    inspect.layout_report,
    write.create,
    write.convert,
    write.upsert,
    write.insert,
    write.overwrite,
    write.delete,
    write.alter,
    services.cluster,
    services.compact,
    services.clean,
    services.archive,
    services.expire_partitions,
    services.upgrade,
    services.sync,
    recovery.savepoint,
    recovery.restore,
    recovery.rollback,
    recovery.check,
    recovery.dedupe,
    recovery.repair,
    version,
)
_SHOWS: Final[Sequence[Callable[..., None]]] = (showing.slices, showing.timeline, showing.commit, showing.plan)


def _make_app() -> typer.Typer:
    application = typer.Typer(help=_HELP, epilog=exits_text(), pretty_exceptions_enable=False, **_MANUAL)
    application.callback(help=_HELP, epilog=exits_text())(_root)
    show = typer.Typer(help="Show what is stored: slices, timeline, a commit, a plan.", **_MANUAL)
    for into, commands in ((application, _COMMANDS), (show, _SHOWS)):
        for command in commands:
            into.command(command.__name__.replace("_", "-"))(command)
    index = typer.Typer(help="Make, drop and list indexes of the metadata table.", **_MANUAL)
    for name, command in (("create", indexes.create), ("drop", indexes.drop), ("list", indexes.show)):
        index.command(name)(command)
    catalog = typer.Typer(help="Register tables in AWS Glue and Hive metastores.", **_MANUAL)
    catalog.callback()(lambda: None)
    catalog.command("register")(catalogs.register)
    application.add_typer(show, name="show")
    application.add_typer(index, name="index")
    application.add_typer(catalog, name="catalog")
    application.add_typer(options_group(), name="options")
    return application


app: Final = _make_app()
