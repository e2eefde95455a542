"""Commands for savepoints, undoing commits, checks and repairs: savepoint, restore, rollback, check, dedupe, repair."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeformat.cli.arguments import AsJson, OptionPairs, StorageOptionPairs, TablePath, find_table, open_table
from lakeformat.cli.output import DUPLICATES, exit_code, print_remark, show_json, show_rows
from lakeformat.errors import CorruptTableError, InvalidInputError

if TYPE_CHECKING:
    from lakeformat.services.savepoint import Savepoint

__all__ = ["check", "dedupe", "repair", "restore", "rollback", "savepoint"]

#: Maximum number of rows that are printed.
_SHOWN: Final = 40


def savepoint(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; the newest by default.")] = None,
    comment: Annotated[str, typer.Option(help="A note, stored with the savepoint.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Only list the savepoints there are.")] = False,
    delete: Annotated[str | None, typer.Option("--delete", help="Delete the savepoint of this commit.")] = None,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Make a savepoint: cleaning leaves the commit readable until the savepoint is deleted.

    [bold]lakeformat savepoint /data/flights --comment "before the migration"[/bold]
    """
    table = open_table(path, option, storage_option)
    if delete is not None:
        table.delete_savepoint(delete)
        show_json({"gone": delete}) if as_json else print(f"the savepoint of {delete} is gone")
    elif show:
        savepoints = table.savepoints()
        show_json(savepoints) if as_json else print("\n".join(map(_savepoint_line, savepoints)) or "no savepoints")
    else:
        made = table.savepoint(instant, comment=comment)
        show_json(made) if as_json else print(_savepoint_line(made))


def restore(
    path: TablePath,
    to: Annotated[str, typer.Argument(help="The commit to go back to: its instant or version number.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without being asked.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Return to a commit: undo everything that came after it. This cannot be undone.

    [bold]lakeformat restore /data/flights 20251120083000123 --yes[/bold]
    """
    table = open_table(path, option, storage_option)
    planned = None if yes else table.restore(to, dry_run=True)
    if planned is not None and planned.undone:
        commits = f"{len(planned.undone):,} commit{'s' * (len(planned.undone) > 1)}"
        times = _first_times(planned.undone)
        _confirm(f"undo {commits} of {path} ({times}) for good, and go back to {planned.target}?")
    result = table.restore(to if planned is None or planned.target is None else planned.target)
    show_json(result) if as_json else print(result)


def rollback(
    path: TablePath,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without being asked.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Undo the newest commit. This cannot be undone.

    [bold]lakeformat rollback /data/flights --yes[/bold]
    """
    table = open_table(path, option, storage_option)
    if not yes:
        would = table.rollback(dry_run=True)
        _confirm(
            f"undo commit {would.undone[0]} of {path} for good, and go back to {would.target or 'an empty table'}?"
        )
    result = table.rollback()
    show_json(result) if as_json else print(result)


def check(
    path: TablePath,
    contents: Annotated[bool, typer.Option(help="Also read the rows of the files.")] = True,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Check for damage: files, keys, column statistics, timeline, archive, index.

    Exit code 5 if anything is wrong; 11 if the only findings are duplicate keys, which inserts allow.

    [bold]lakeformat check /data/flights[/bold]
    """
    findings = find_table(path, option, storage_option).check(contents=contents)
    show_json(findings) if as_json else print(findings)
    if findings:
        raise typer.Exit(exit_code(CorruptTableError("")) if findings.is_damage else DUPLICATES)


def dedupe(
    path: TablePath,
    really: Annotated[bool, typer.Option("--yes", help="Do it; without, only list the rows.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Remove all rows of a key in a partition except the newest row. Without --yes, only list the rows.

    [bold]lakeformat dedupe /data/flights --yes[/bold]
    """
    result = open_table(path, option, storage_option).dedupe(dry_run=not really)
    rows = result.duplicates.to_pylist()
    if as_json:
        show_json({"instant_time": result.instant_time, "keys": result.keys, "rows": result.rows, "duplicates": rows})
        return
    if rows:
        shown = sorted(rows, key=lambda row: (row["partition_path"], row["record_key"], not row["kept"]))[:_SHOWN]
        names = ("partition", "key", "commit", "file", "row")
        show_rows(names, [(*list(row.values())[:-1], "stays" if row["kept"] else "goes") for row in shown])
        if len(rows) > _SHOWN:
            print_remark(f"{len(rows) - _SHOWN:,} more rows are not shown; --json lists all")
    print(result)
    if rows and not really:
        print_remark("nothing was changed; give --yes to remove the rows")


def repair(
    path: TablePath,
    really: Annotated[bool, typer.Option("--yes", help="Do it; without, only list what would be done.")] = False,
    as_json: AsJson = False,
    option: OptionPairs = None,
    storage_option: StorageOptionPairs = None,
) -> None:
    """Repair damage that has exactly one safe repair; without --yes only a list is printed.

    [bold]lakeformat repair /data/flights --yes[/bold]
    """
    findings = find_table(path, option, storage_option).repair(dry_run=not really)
    show_json(findings) if as_json else print(findings)


def _confirm(question: str) -> None:
    """Ask on the terminal. Return only if the answer is yes.

    Raises:
        InvalidInputError: there is no terminal to ask on.
        click.Abort: the user does not answer yes.
    """
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{question} there is no terminal to ask on; give --yes")
    typer.confirm(question, abort=True, err=True)


def _first_times(times: tuple[str, ...]) -> str:
    return ", ".join(times[:3]) + (f" and {len(times) - 3:,} more" if len(times) > 3 else "")


def _savepoint_line(saved: Savepoint) -> str:
    notes = " ".join(filter(None, (saved.user, saved.comment)))
    return f"savepoint {saved.instant_time}: {len(saved.files):,} files{f' ({notes})' if notes else ''}"
