"""The command that registers a table in a catalog: catalog register."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli.arguments import AsJson, OptionPairs, StorageOptionPairs, TablePath, open_table
from lakeformat.cli.output import show_json

__all__ = ["register"]


def register(
    path: TablePath,
    catalog: Annotated[str, typer.Argument(help="glue or hive.", show_default=False)],
    database: Annotated[str | None, typer.Option(help="Database; by default that of the table, else default.")] = None,
    name: Annotated[str | None, typer.Option(help="Name in the catalog; by default the table's name.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare all partitions, not only those of new commits.")
    ] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Register the table in AWS Glue or a Hive metastore, or bring its entry up to date.

    [bold]lakeformat catalog register s3://bucket/flights glue --database air[/bold]
    """
    result = open_table(path, option, storage_option).register(catalog, database=database, name=name, full=full)
    show_json(result) if as_json else print(result)
