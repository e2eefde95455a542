"""Commands that run table services: cluster, compact, clean, archive, expire-partitions, upgrade, sync."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeformat.cli.arguments import AsJson, OptionPairs, StorageOptionPairs, TablePath, open_table, split_names
from lakeformat.cli.output import human_bytes, print_remark, show_json, show_result, to_plain
from lakeformat.errors import InvalidInputError

__all__ = ["archive", "clean", "cluster", "compact", "expire_partitions", "sync", "upgrade"]

_Schedule = Annotated[bool, typer.Option("--schedule", help="Only make a plan; it waits on the timeline.")]
_Run = Annotated[str | None, typer.Option("--run", help="Carry out the plan of this instant time.")]
_Cancel = Annotated[str | None, typer.Option("--cancel", help="Remove the plan of this instant time.")]


def cluster(
    path: TablePath,
    by: Annotated[
        str | None, typer.Option(help="Columns to sort by, commas between them; without, small files are joined.")
    ] = None,
    curve: Annotated[str | None, typer.Option(help="hilbert, z-order or linear.")] = None,
    partitions: Annotated[str | None, typer.Option(help="Partition paths, * for any text.")] = None,
    target_file_bytes: Annotated[int | None, typer.Option(help="Size of the new files.")] = None,
    schedule: _Schedule = False,
    run: _Run = None,
    cancel: _Cancel = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Rewrite files in an order that lets reads skip most of them.

    [bold]lakeformat cluster /data/flights --by distance,dep_delay --curve hilbert[/bold]
    """
    table = open_table(path, option, storage_option)
    how: dict[str, Any] = {
        "curve": curve,
        "partitions": split_names(partitions),
        "target_file_bytes": target_file_bytes,
    }
    _check_exclusive(schedule=schedule, run=run, cancel=cancel)
    if schedule:
        _show_planned(table.schedule_clustering(split_names(by), **how), as_json)
    elif cancel is not None:
        table.cancel_clustering(cancel)
        _show_cancelled(cancel, as_json)
    else:
        result = table.run_clustering(run) if run is not None else table.cluster(split_names(by), **how)
        show_result(result, as_json=as_json)


def compact(
    path: TablePath,
    schedule: _Schedule = False,
    run: _Run = None,
    cancel: _Cancel = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Merge log files into base files (merge-on-read tables).

    [bold]lakeformat compact /data/flights[/bold]
    """
    table = open_table(path, option, storage_option)
    _check_exclusive(schedule=schedule, run=run, cancel=cancel)
    if schedule:
        _show_planned(table.schedule_compaction(), as_json)
    elif cancel is not None:
        table.cancel_compaction(cancel)
        _show_cancelled(cancel, as_json)
    else:
        show_result(table.run_compaction(run) if run is not None else table.compact(), as_json=as_json)


def clean(
    path: TablePath,
    commits: Annotated[int | None, typer.Option(help="Keep this many commits readable as they were.")] = None,
    hours: Annotated[int | None, typer.Option(help="Keep the commits of this many hours.")] = None,
    versions: Annotated[int | None, typer.Option(help="Keep this many versions of each file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, list what would be deleted.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Delete files that are needed only to read older commits.

    [bold]lakeformat clean /data/flights --commits 10 --dry-run[/bold]
    """
    table = open_table(path, option, storage_option)
    result = table.clean(commits=commits, hours=hours, versions=versions, dry_run=dry_run)
    if as_json:
        show_json(result)
        return
    if dry_run:
        for file in result.files:
            print(f"{human_bytes(file.size_bytes):>12}  {file.path}")
    print(result)


def archive(
    path: TablePath,
    min_commits: Annotated[int | None, typer.Option(help="Leave this many commits on the timeline.")] = None,
    max_commits: Annotated[int | None, typer.Option(help="Archive only if the timeline has more commits.")] = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Move old commits from the timeline into the archive.

    [bold]lakeformat archive /data/flights --min-commits 20[/bold]
    """
    result = open_table(path, option, storage_option).archive(min_commits=min_commits, max_commits=max_commits)
    show_json(result) if as_json else print(result)


def expire_partitions(
    path: TablePath,
    days: Annotated[int | None, typer.Option(help="Age in days; by default, the one that the options set.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, list what would be deleted.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Delete the partitions that are older than their retention.

    [bold]lakeformat expire-partitions /data/flights --days 365 --dry-run[/bold]
    """
    result = open_table(path, option, storage_option).expire_partitions(days=days, dry_run=dry_run)
    show_json(result) if as_json else print(result)


def upgrade(
    path: TablePath,
    to: Annotated[int, typer.Argument(help="The table version to move to: 6, 8 or 9.")],
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Move the table to a later table version, or to an earlier one. Rows and files stay.

    [bold]lakeformat upgrade /data/flights 9[/bold]
    """
    table = open_table(path, option, storage_option)
    result = table.downgrade(to) if to < table.config.version else table.upgrade(to)
    show_json(result) if as_json else print(result)


def sync(
    path: TablePath,
    to: Annotated[str, typer.Option(help="The format: delta or iceberg.", show_default=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete metadata of the format first that another program wrote.")
    ] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Let readers of another format read the table: bring that format's metadata beside it up to date.

    [bold]lakeformat sync /data/flights --to delta[/bold]
    """
    result = open_table(path, option, storage_option).sync(to, replace=replace)
    show_json(result) if as_json else print(result)


def _check_exclusive(**actions: Any) -> None:
    given = [name for name, value in actions.items() if value]
    if len(given) > 1:
        raise InvalidInputError(f"--{' and --'.join(given)} exclude each other; give one")


def _show_planned(instant_time: str | None, as_json: bool) -> None:
    if as_json:
        show_json({"planned": to_plain(instant_time)})
    elif instant_time is None:
        print_remark("there is nothing to do")
    else:
        print(instant_time)


def _show_cancelled(instant_time: str, as_json: bool) -> None:
    show_json({"gone": instant_time}) if as_json else print(f"{instant_time} is gone")
