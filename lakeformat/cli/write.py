"""Commands that write rows: create, convert, insert, upsert, overwrite and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeformat.cli.arguments import (
    AsJson,
    OptionPairs,
    RowsFormat,
    StorageOptionPairs,
    TablePath,
    Where,
    open_table,
    parse_pairs,
    split_names,
)
from lakeformat.cli.output import print_remark, show_json, show_result
from lakeformat.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["alter", "convert", "create", "delete", "insert", "overwrite", "upsert"]

_Sources = Annotated[
    list[str],
    typer.Argument(
        help="Rows in Parquet, CSV, JSON or Arrow: files, folders, patterns such as 'data/*.csv', URLs, or - for stdin."
    ),
]


def create(
    path: TablePath,
    like: Annotated[
        str | None, typer.Option(help="A file or folder whose columns the table gets. No row is written.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column as name:type, with a type of SQL or Arrow; repeatable. It replaces one of --like."),
    ] = None,
    record_key: Annotated[str, typer.Option(help="Columns that identify a row, commas between them.")] = "",
    partition_by: Annotated[str, typer.Option(help="Columns by which rows are put into folders.")] = "",
    ordering: Annotated[
        str | None, typer.Option(help="Of two rows of a key, the greater value of this column wins.")
    ] = None,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Make an empty table.

    [bold]lakeformat create /data/flights --like flights.parquet --record-key id --partition-by month[/bold]

    [bold]lakeformat create /data/sales --column id:bigint --column day:date --column "price:decimal(10, 2)"[/bold]
    """
    import lakeformat

    storage = parse_pairs(storage_option)
    columns = _columns(like, column or (), format, storage)
    named: dict[str, Any] = {
        "record_key": split_names(record_key) or (),
        "partition_by": split_names(partition_by) or (),
    }
    table = lakeformat.create(
        path, columns, ordering=ordering, if_exists="error", storage_options=storage, **{**named, **parse_pairs(option)}
    )
    location = table.context.storage.location
    show_json({"location": location}) if as_json else print(f"made an empty table at {location}")


def _columns(like: str | None, named: Sequence[str], kind: str | None, storage: dict[str, str]) -> pa.Schema:
    """Return the columns of a file, then those that are named. A named column replaces one of the file."""
    import pyarrow as pa

    from lakeformat.cli.rows import open_rows

    if like is None and not named:
        raise InvalidInputError("create needs columns; give --like FILE or --column NAME:TYPE")
    stored = pa.schema([]) if like is None else open_rows([like], None, kind=kind, storage_options=storage).schema
    fields = {field.name: field for field in stored}
    given = [_parse_column(text) for text in named]
    for number, field in enumerate(given):
        if field.name in {earlier.name for earlier in given[:number]}:
            raise InvalidInputError(f"column {field.name!r} is given twice; give it once")
    return pa.schema({**fields, **{field.name: field for field in given}}.values())


def _parse_column(text: str) -> pa.Field:
    """Return the column of ``name:type``, with a type of Arrow such as ``int64``, or of SQL such as ``bigint``."""
    import pyarrow as pa

    from lakeformat.sql_statements.ddl import parse_type

    name, _, kind = (part.strip() for part in text.partition(":"))
    if not name or not kind:
        raise InvalidInputError(f"column {text!r} has no type; write name:type, such as id:bigint or day:date")
    try:
        return pa.field(name, pa.type_for_alias(kind))
    except ValueError:
        pass
    try:
        return pa.field(name, parse_type(kind))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"column {text!r}: {kind!r} is no type ({error}); write bigint, date, string ..."
        ) from None


def convert(
    path: TablePath,
    record_key: Annotated[str, typer.Option(help="Columns that identify a row, commas between them.")] = "",
    partition_by: Annotated[
        str | None, typer.Option(help="Columns by which the folders are made, as they are now.")
    ] = None,
    ordering: Annotated[
        str | None, typer.Option(help="Of two rows of a key, the greater value of this column wins.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Folder or URL of a copy, if the source is a Delta or Iceberg table.")
    ] = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Make a table of a folder of plain Parquet files, or of a Delta or Iceberg table.

    Without --to it takes the folder, and the files there are moved aside, not deleted. With --to the source stays.

    [bold]lakeformat convert /data/flights --record-key id[/bold]

    [bold]lakeformat convert /data/old_delta --to /data/flights --record-key id[/bold]
    """
    import lakeformat

    named: dict[str, Any] = {"record_key": split_names(record_key) or (), "partition_by": split_names(partition_by)}
    named["storage_options"] = parse_pairs(storage_option)
    named |= {"ordering": ordering, **parse_pairs(option)}
    table = lakeformat.convert(path, to, **named)
    facts = {"location": table.context.storage.location, "files": len(table.snapshot().files)}
    show_json(facts) if as_json else print(f"{facts['location']} is a table now: {facts['files']:,} files")


def upsert(
    path: TablePath,
    sources: _Sources,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Update the rows whose keys exist, insert the others.

    [bold]lakeformat upsert /data/flights changes.parquet[/bold]

    [bold]lakeformat upsert /data/flights 'changes/*.csv'[/bold]

    [bold]zcat changes.csv.gz | lakeformat upsert /data/flights - --format csv[/bold]
    """
    _write("upsert", path, sources, format, as_json, option, storage_option)


def insert(
    path: TablePath,
    sources: _Sources,
    bulk: Annotated[
        bool, typer.Option("--bulk", help="Write new files only, batch by batch: for first loads.")
    ] = False,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Add rows; keys are not looked up.

    [bold]lakeformat insert /data/flights flights.parquet --bulk[/bold]
    """
    _write("bulk_insert" if bulk else "insert", path, sources, format, as_json, option, storage_option)


def overwrite(
    path: TablePath,
    sources: _Sources,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Replace only the partitions of these rows.")
    ] = False,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Replace the contents of the table, or of partitions, in one step.

    [bold]lakeformat overwrite /data/flights march.parquet --partitions[/bold]
    """
    _write("insert_overwrite" if partitions else "overwrite", path, sources, format, as_json, option, storage_option)


def delete(
    path: TablePath,
    sources: Annotated[
        list[str] | None, typer.Argument(help="Keys: files, folders or patterns with the key columns, or - for stdin.")
    ] = None,
    where: Where = None,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Delete rows by keys or by a condition.

    [bold]lakeformat delete /data/flights --where "cancelled and month = 3"[/bold]

    [bold]lakeformat delete /data/flights keys.csv[/bold]
    """
    if bool(sources) == (where is not None):
        raise InvalidInputError("delete takes keys or a condition: give a file, or --where '...'")
    if sources:
        _write("delete", path, sources, format, as_json, option, storage_option)
        return
    show_result(open_table(path, option, storage_option).delete(where=where), as_json=as_json)


def alter(
    path: TablePath,
    changes: Annotated[
        list[str], typer.Argument(help="Changes as in SQL's alter table, each made in a commit of its own.")
    ],
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Rename, drop, move, widen and add columns. No file is rewritten.

    [bold]lakeformat alter /data/flights "rename column name to title" "drop column note"[/bold]
    """
    from lakeformat.sql_statements.alter import read_alter
    from lakeformat.sql_statements.run_maintenance import run_on_table

    table = open_table(path, option, storage_option)
    statements = [read_alter(f"alter table t {change}") for change in changes]
    done = [run_on_table(statement, table).to_pylist()[0] for statement in statements]
    show_json(done) if as_json else print(*(change["result"] for change in done), sep="\n")


def _write(
    verb: str,
    path: str,
    sources: Sequence[str],
    kind: str | None,
    as_json: bool,
    option: list[str] | None,
    storage_option: list[str] | None,
) -> None:
    from lakeformat.cli.rows import FileRows, open_rows

    table = open_table(path, option, storage_option)
    storage = parse_pairs(storage_option)
    fills = verb == "delete" or table.options.write.fill_missing
    rows: Any
    if table.options.write.bad_rows == "aside":
        rows = FileRows(sources, table.schema, kind, storage, fills=fills)
    else:
        rows = open_rows(sources, table.schema, kind=kind, storage_options=storage, fills=fills)
    result = getattr(table, verb)(rows)
    if result.skipped and not as_json:
        print_remark("nothing was written")
    show_result(result, as_json=as_json)
