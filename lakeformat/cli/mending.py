"""Commands that keep a table, take it back and look it over: savepoint, restore, rollback, check, repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakeformat.cli.arguments import AsJson, Given, StorageGiven, TablePath, table_at
from lakeformat.cli.exits import exit_code
from lakeformat.cli.output import show_json
from lakeformat.errors import CorruptTableError

if TYPE_CHECKING:
    from lakeformat.services.savepoint.run import Savepoint

__all__ = ["check", "repair", "restore", "rollback", "savepoint"]


def savepoint(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; the newest by default.")] = None,
    comment: Annotated[str, typer.Option(help="Is kept with it.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Only list the savepoints there are.")] = False,
    delete: Annotated[str | None, typer.Option("--delete", help="Let the savepoint of this commit go.")] = None,
    as_json: AsJson = False,
    option: Given = None,
    storage_option: StorageGiven = None,
) -> None:
    """Keep a commit, whatever is cleaned, until the savepoint is deleted.

    [bold]lakeformat savepoint /data/flights --comment "before the migration"[/bold]
    """
    table = table_at(path, option, storage_option)
    if delete is not None:
        table.delete_savepoint(delete)
        show_json({"gone": delete}) if as_json else print(f"the savepoint of {delete} is gone")
    elif show:
        found = table.savepoints()
        show_json(found) if as_json else print("\n".join(map(_line, found)) or "no savepoints")
    else:
        made = table.savepoint(instant, comment=comment)
        show_json(made) if as_json else print(_line(made))


def restore(
    path: TablePath,
    to: Annotated[str, typer.Argument(help="The commit to go back to.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without being asked.")] = False,
    as_json: AsJson = False,
    option: Given = None,
    storage_option: StorageGiven = None,
) -> None:
    """Go back to a commit: undo all that came after it, for good.

    [bold]lakeformat restore /data/flights 20251120083000123 --yes[/bold]
    """
    table = table_at(path, option, storage_option)
    if not yes:
        typer.confirm(f"undo all commits of {path} after {to}, for good?", abort=True, err=True)
    result = table.restore(to)
    show_json(result) if as_json else print(result)


def rollback(
    path: TablePath,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without being asked.")] = False,
    as_json: AsJson = False,
    option: Given = None,
    storage_option: StorageGiven = None,
) -> None:
    """Undo the newest commit, for good.

    [bold]lakeformat rollback /data/flights --yes[/bold]
    """
    table = table_at(path, option, storage_option)
    if not yes:
        typer.confirm(f"undo the newest commit of {path}, for good?", abort=True, err=True)
    result = table.rollback()
    show_json(result) if as_json else print(result)


def check(
    path: TablePath,
    contents: Annotated[bool, typer.Option(help="Read the files, too, not only their footers.")] = True,
    as_json: AsJson = False,
    option: Given = None,
    storage_option: StorageGiven = None,
) -> None:
    """Look for damage: files, keys, statistics, timeline, archive, index. Exit code 5 if any is found.

    [bold]lakeformat check /data/flights[/bold]
    """
    found = table_at(path, option, storage_option).check(contents=contents)
    show_json(found) if as_json else print(found)
    if found:
        raise typer.Exit(exit_code(CorruptTableError("")))


def repair(
    path: TablePath,
    really: Annotated[bool, typer.Option("--yes", help="Do it; without, only tell what would be done.")] = False,
    as_json: AsJson = False,
    option: Given = None,
    storage_option: StorageGiven = None,
) -> None:
    """Mend what can be mended without a guess; without --yes only told.

    [bold]lakeformat repair /data/flights --yes[/bold]
    """
    found = table_at(path, option, storage_option).repair(dry_run=not really)
    show_json(found) if as_json else print(found)


def _line(made: Savepoint) -> str:
    said = " ".join(filter(None, (made.user, made.comment)))
    return f"savepoint {made.instant_time}: {len(made.files):,} files{f' ({said})' if said else ''}"
