"""Commands that look at a table and its rows, and SQL."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lakeformat.cli.arguments import (
    AsJson,
    AsOf,
    Columns,
    OptionPairs,
    Output,
    RowsFormat,
    ShownFormat,
    StorageOptionPairs,
    TablePath,
    Vertical,
    Where,
    open_table,
    parse_pairs,
    split_names,
)
from lakeformat.cli.output import print_remark, show_json, show_result, show_rows, to_plain
from lakeformat.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeformat.table import Table

__all__ = [
    "bad_rows",
    "changes",
    "count",
    "describe",
    "files",
    "history",
    "layout_report",
    "plan",
    "read",
    "report",
    "schema",
    "sql",
]

#: Rows that ``--format table`` shows by default; characters of an entry of the history.
_SHOWN: Final = 20
_DETAIL: Final = 80
#: Columns of ``files`` in the order in which people look at them: those that are long come last.
_FILE_COLUMNS: Final = ("partition_path", "rows", "size_bytes", "instant_time", "path", "log_files", "file_id")


def describe(
    path: TablePath, as_json: AsJson = False, option: OptionPairs = None, storage_option: StorageOptionPairs = None
) -> None:
    """Describe a table: kind, keys, rows, size, services, what to do next, columns.

    [bold]lakeformat describe /data/flights[/bold]
    """
    table = open_table(path, option, storage_option)
    description = table.describe()
    schema = _columns(table)
    if as_json:
        extra = {"log_share": description.log_share, "advice": description.advice, "columns": schema}
        show_json({**to_plain(description), **extra})
        return
    print(description, end="\n\n")
    _show_columns(schema)


def report(
    path: TablePath,
    output: Annotated[
        str | None, typer.Option("--output", "-o", "-O", help="The file of the page; by default it goes to stdout.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Columns whose layout is shown, commas between them.")] = None,
    check: Annotated[
        bool | None,
        typer.Option(help="Check names, sizes and the timeline; by default for at most 20,000 files."),
    ] = None,
    as_json: AsJson = False,
    option: Annotated[list[str] | None, typer.Option("--option", help="An option of the table, name=value.")] = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Write a report of a table as one HTML page, which needs no server and no network.

    [bold]lakeformat report /data/flights -o report.html[/bold]
    """
    from lakeformat.cli.rows import open_sink

    if output is None and sys.stdout.isatty() and not as_json:
        raise InvalidInputError("the page is HTML; name its file: --output report.html")
    made = open_table(path, option, storage_option).report(split_names(by) or (), check=check)
    page = made.to_html().encode()
    if output is not None or not as_json:
        with open_sink(output, parse_pairs(storage_option)) as sink:
            sink.write(page)
    if as_json:
        show_json({"output": output, "size_bytes": len(page), "missing": made.missing})
    elif output is not None:
        print_remark(f"{made}; {len(page):,} bytes in {output}")


def _columns(table: Table) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type)} for field in table.snapshot().schema or ()]


def _show_columns(columns: Sequence[Mapping[str, str]]) -> None:
    show_rows(("column", "type"), [(column["name"], column["type"]) for column in columns])


def _show_count(rows: int, *, as_json: bool) -> None:
    show_json({"rows": rows}) if as_json else print(rows)


def _kind(format: str, output: str | None, *, as_json: bool) -> str:  # noqa: A002  The usual name of the option.
    """Return the format of the rows: what the options say, else what the name of the output says."""
    from lakeformat.cli.rows import kind_of_output

    return "json" if as_json else kind_of_output(output) if format == "table" and output is not None else format


def _print_rows(
    rows: pa.RecordBatchReader, kind: str, output: str | None, storage_option: Sequence[str] | None, vertical: bool
) -> None:
    from lakeformat.cli.rows import write_rows

    write_rows(rows, kind, output, parse_pairs(storage_option), vertical=vertical)


def history(
    path: TablePath,
    limit: Annotated[int, typer.Option(help="At most this many entries, the newest first; 0 for all.")] = 20,
    commits: Annotated[bool, typer.Option("--commits", help="Only commits: no cleans, rollbacks, savepoints.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Show each write step by step.")] = False,
    as_json: AsJson = False,
    storage_option: StorageOptionPairs = None,
) -> None:
    """List what each commit, clean, rollback, restore and savepoint did, the newest first.

    [bold]lakeformat history /data/flights --limit 5 --steps[/bold]
    """
    from lakeformat.timeline.history import shown_entries

    entries = open_table(path, None, storage_option).history(actions=not commits)
    shown = entries[: limit or None]
    if as_json:
        show_json(shown)
    elif steps:
        print("\n".join(entry.describe() for entry in shown))
    else:
        show_rows(*shown_entries(shown, _DETAIL))
    if len(shown) < len(entries) and not as_json:
        print_remark(f"{len(entries) - len(shown):,} older entries are not shown; --limit 0 shows all")


def read(
    path: TablePath,
    columns: Columns = None,
    where: Where = None,
    as_of: AsOf = None,
    since: Annotated[str | None, typer.Option(help="Only rows that later commits wrote; 000 for everything.")] = None,
    until: Annotated[str | None, typer.Option(help="With --since: up to and including this instant.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most this many rows; --format table shows 20 by default.")
    ] = None,
    meta_columns: Annotated[bool, typer.Option("--meta-columns", help="Also Hudi's five meta columns.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    vertical: Vertical = False,
    format: ShownFormat = "table",  # noqa: A002  The usual name of the option.
    output: Output = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Print rows of a table, or write them to a file.

    [bold]lakeformat read /data/flights --where "month = 3 and distance > 2000" --columns carrier,distance[/bold]

    [bold]lakeformat read /data/flights --as-of 2025-11-20 --format parquet --output flights.parquet[/bold]
    """
    from lakeformat.cli.rows import show_table
    from lakeformat.cli.waiting import show_reading

    kind = _kind(format, output, as_json=as_json)
    table = open_table(path, option, storage_option)
    if since is not None and as_of is not None:
        raise InvalidInputError("--since and --as-of exclude each other; end a range with --until")
    wanted, few = split_names(columns), kind == "table" and limit is None
    how: dict[str, Any] = {"limit": _SHOWN + 1 if few else limit, "meta_columns": meta_columns}
    if count:
        rows = table.changes(since, until).count(where) if since is not None else table.count(where, as_of=as_of)
        rows = rows if limit is None else min(limit, rows)
        _show_count(rows, as_json=as_json)
        return
    if since is not None:
        scan = table.changes(since, until).read(wanted, where=where, **how)
    else:
        scan = table.read(wanted, where=where, as_of=as_of, **how)
    scan = replace(scan, shows_progress=False)  # The command line shows its own.
    if few:
        rows_held = show_reading(scan.to_batches(), hides=True).read_all()
        show_table(rows_held.slice(0, _SHOWN).to_reader(), vertical=vertical)
        if rows_held.num_rows > _SHOWN:
            print_remark(f"the first {_SHOWN} rows; --limit shows more, --count counts all rows")
        return
    _print_rows(scan.to_batches(), kind, output, storage_option, vertical)


def count(
    path: TablePath,
    where: Where = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Count the rows of a table.

    [bold]lakeformat count /data/flights --where "month = 3"[/bold]
    """
    _show_count(open_table(path, option, storage_option).count(where, as_of=as_of), as_json=as_json)


def schema(
    path: TablePath, as_json: AsJson = False, option: OptionPairs = None, storage_option: StorageOptionPairs = None
) -> None:
    """List the columns of a table and their types.

    [bold]lakeformat schema /data/flights[/bold]
    """
    columns = _columns(open_table(path, option, storage_option))
    if as_json:
        show_json(columns)
        return
    _show_columns(columns)


def files(
    path: TablePath,
    as_of: AsOf = None,
    vertical: Vertical = False,
    format: ShownFormat = "table",  # noqa: A002  The usual name of the option.
    output: Output = None,
    as_json: AsJson = False,
    storage_option: StorageOptionPairs = None,
) -> None:
    """List the live files of a table: partition, rows, size, instant, path, log files.

    [bold]lakeformat files /data/flights --format csv[/bold]
    """
    rows = open_table(path, None, storage_option).files(as_of=as_of)
    _print_rows(
        rows.select(_FILE_COLUMNS).to_reader(), _kind(format, output, as_json=as_json), output, storage_option, vertical
    )


def changes(
    path: TablePath,
    since: Annotated[str, typer.Option(help="After this instant; 000 for all commits.")] = "000",
    until: Annotated[str | None, typer.Option(help="Up to and including this instant.")] = None,
    where: Where = None,
    limit: Annotated[
        int | None, typer.Option(help="At most this many changes; --format table shows 20 by default.")
    ] = None,
    vertical: Vertical = False,
    format: ShownFormat = "table",  # noqa: A002  The usual name of the option.
    output: Output = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Print what commits changed: each row with its operation, and its values before and after.

    The table for people shows the values that differ; the other formats have the whole row before and after.

    [bold]lakeformat changes /data/flights --where "id = 7"[/bold]
    """
    from lakeformat.cli.change_lines import change_lines, first_rows

    table, kind = open_table(path, option, storage_option), _kind(format, output, as_json=as_json)
    rows = table.changes(since, until, images=True).to_batches(where=where)
    if kind != "table":
        _print_rows(rows if limit is None else first_rows(rows, limit), kind, output, storage_option, vertical)
        return
    most = _SHOWN if limit is None else limit
    held = first_rows(rows, most + 1).read_all()
    lines = change_lines(held.slice(0, most).to_reader(), table.config.record_fields)
    _print_rows(lines, kind, output, storage_option, vertical)
    if limit is None and held.num_rows > most:
        print_remark(f"the first {most} changes; --limit shows more, --since begins later")


def sql(
    text: Annotated[str, typer.Argument(help="One statement of DuckDB's SQL.", show_default=False)],
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A name in the statement: name=path; may be repeated.")
    ] = None,
    vertical: Vertical = False,
    format: ShownFormat = "table",  # noqa: A002  The usual name of the option.
    output: Output = None,
    as_json: AsJson = False,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Run one SQL statement: a query, or a statement that writes. Needs lakeformat\\[sql].

    [bold]lakeformat sql "select carrier, count(*) n from flights group by carrier" -t flights=/data/flights[/bold]
    """
    import lakeformat

    tables: dict[str, Any] = {name: open_table(path, None, storage_option) for name, path in parse_pairs(table).items()}
    answer = lakeformat.sql(text, **tables)
    if isinstance(answer, lakeformat.WriteResult):
        show_result(answer, as_json=as_json)
        return
    _print_rows(answer.to_reader(), _kind(format, output, as_json=as_json), output, storage_option, vertical)


def bad_rows(
    path: TablePath,
    where: Where = None,
    columns: Columns = None,
    vertical: Vertical = False,
    format: ShownFormat = "table",  # noqa: A002  The usual name of the option.
    output: Output = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Print the rows that writes have put aside (lakeformat.write.bad_rows=aside), with the reasons.

    [bold]lakeformat bad-rows /data/flights --where "reason = 'no_key'" --columns message,row_json[/bold]
    """
    rows = open_table(path, option, storage_option).bad_rows(split_names(columns), where=where)
    _print_rows(rows.to_reader(), _kind(format, output, as_json=as_json), output, storage_option, vertical)


def plan(
    path: TablePath,
    sources: Annotated[
        list[str] | None, typer.Argument(help="Rows to write, as for upsert; without them a read is planned.")
    ] = None,
    operation: Annotated[str, typer.Option(help="upsert, insert or delete.")] = "upsert",
    where: Where = None,
    columns: Columns = None,
    format: RowsFormat = None,  # noqa: A002
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Show what a write of these rows, or a read with this condition, would touch. Nothing is written.

    [bold]lakeformat plan /data/flights changes.parquet[/bold]

    [bold]lakeformat plan /data/flights --where "month = 3"[/bold]
    """
    from lakeformat.cli.rows import open_rows
    from lakeformat.model.operation import Operation

    table = open_table(path, option, storage_option)
    if not sources:
        scan_plan = table.read(split_names(columns), where=where).plan(count_row_groups=True)
        counts = {name: getattr(scan_plan, name) for name in scan_plan.__slots__ if name != "splits"}
        show_json({**counts, "splits": len(scan_plan.splits)}) if as_json else print(scan_plan.describe())
        return
    if operation not in {"upsert", "insert", "delete"}:
        raise InvalidInputError(f"--operation {operation} cannot be planned; give upsert, insert or delete")
    rows = open_rows(sources, table.schema, kind=format, storage_options=parse_pairs(storage_option))
    write = table.plan(rows, Operation(operation))
    show_json(write) if as_json else print(write)


def layout_report(
    path: TablePath,
    by: Annotated[str, typer.Option(help="Columns to lay rows out by, commas between them.")],
    png: Annotated[str | None, typer.Option(help="Draw the range of values of each file into this file.")] = None,
    target_file_bytes: Annotated[int | None, typer.Option(help="Size of the files to judge, in bytes.")] = None,
    selectivity: Annotated[float, typer.Option(help="The share of the rows that each filter matches.")] = 0.01,
    as_json: AsJson = False,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Report the share of files that filters skip now and would skip in other layouts. Nothing is rewritten.

    [bold]lakeformat layout-report /data/flights --by distance,dep_delay --png layout.png[/bold]
    """
    table = open_table(path, None, storage_option)
    report = table.layout_report(split_names(by) or [], target_file_bytes=target_file_bytes, selectivity=selectivity)
    if png is not None:
        report.to_png(png)
        print_remark(f"drawn into {png}")
    if not as_json:
        print(report)
        return
    layouts = [
        {
            "name": layout.name,
            "files": layout.files,
            "skipped": layout.skipped,
            "skipped_together": layout.skipped_together,
        }
        for layout in report.layouts
    ]
    show_json({"rows": report.rows, "files": report.files, "best": report.best, "layouts": layouts})
