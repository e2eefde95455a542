"""Commands for the indexes of a table: index create, index drop, index list."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeformat.cli.arguments import AsJson, OptionPairs, StorageOptionPairs, TablePath, open_table, split_names
from lakeformat.cli.output import show_json

__all__ = ["create", "drop", "show"]


def create(
    path: TablePath,
    name: Annotated[
        str,
        typer.Argument(
            help="record_index, column_stats, partition_stats, bloom_filters, files, or a new name with one column."
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of column_stats, commas between them, or the column of a secondary index."),
    ] = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Make an index from all files of the table. Other writers wait meanwhile; later writes keep it.

    [bold]lakeformat index create /data/flights record_index[/bold]
    [bold]lakeformat index create /data/flights by_carrier --columns carrier[/bold]
    """
    made = open_table(path, option, storage_option).create_index(name, split_names(columns))
    show_json(made) if as_json else print(made)


def drop(
    path: TablePath,
    name: Annotated[str, typer.Argument(help="The index; files drops the whole metadata table.")],
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Drop an index of the table.

    [bold]lakeformat index drop /data/flights record_index[/bold]
    """
    gone = open_table(path, option, storage_option).drop_index(name)
    show_json({"gone": gone}) if as_json else print(f"dropped {', '.join(gone)}")


def show(
    path: TablePath,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """List the indexes of the table, with their file groups and bytes.

    [bold]lakeformat index list /data/flights[/bold]
    """
    indexes = open_table(path, option, storage_option).indexes()
    show_json(indexes) if as_json else print("\n".join(map(str, indexes)) or "no indexes")
