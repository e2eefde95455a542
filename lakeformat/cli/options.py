"""``lakeformat options``: lists all options, and checks a job's options before the job runs, as its writes do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeformat.cli.arguments import AsJson
from lakeformat.cli.output import USAGE, print_remark, show_entries, show_json, show_rows
from lakeformat.errors import InvalidInputError

if TYPE_CHECKING:
    from lakeformat.config.verdicts import Verdict

__all__ = ["check", "options_group"]

_STDIN: Final = "-"
#: Order of the output: options that need action come first.
_ORDER: Final = ("refused", "misspelt", "incomplete", "ignored", "obeyed")


def options_group() -> typer.Typer:
    """Make the group of the commands ``options`` and ``options check``."""
    group = typer.Typer(help="List all options; check a job's options.", rich_markup_mode="rich")
    group.callback(invoke_without_command=True)(_options)
    group.command("check")(check)
    return group


def _options(context: typer.Context, as_json: AsJson = False) -> None:
    """List every option that is obeyed. Use options check for a job's options, including other options of Hudi."""
    if context.invoked_subcommand is not None:
        return
    from lakeformat.config.registry import OPTIONS

    rows = [(option.key, option.aliases, _default(option.default), option.doc) for option in OPTIONS]
    names = ("option", "short names", "default", "what it does")
    if as_json:
        show_json([dict(zip(names, cells, strict=True)) for cells in rows])
    elif sys.stdout.isatty():
        show_entries(
            (key, (doc, *_named("short names", ", ".join(aliases)), *_named("default", default)))
            for key, aliases, default, doc in rows
        )
    else:
        show_rows(names, rows)


def _named(name: str, text: str) -> tuple[str, ...]:
    return (f"{name}: {text}",) if text else ()


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def check(
    given: Annotated[
        list[str] | None,
        typer.Argument(help="Properties files, name=value, or - for stdin.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell for each option of a job whether it is obeyed, ignored, refused or misspelt; what needs an act comes first.

    What a write needs beside (packages, addresses) is looked for, too. Exit code 2 if a read or write would fail.

    [bold]lakeformat options check job.properties hoodie.index.type=BUCKET[/bold]
    """
    from lakeformat.services.job_check import judge_job

    verdicts = judge_job(_pairs(given or [_STDIN]))
    if as_json:
        show_json([_as_json(verdict) for verdict in verdicts])
    else:
        shown = sorted(verdicts, key=lambda verdict: (not verdict.error, _ORDER.index(verdict.outcome.value)))
        rows = [_row(verdict) for verdict in shown]
        if sys.stdout.isatty():
            show_entries((f"{answer}: {name}{'=' * bool(value)}{value}", (why,)) for name, value, answer, why in rows)
        else:
            show_rows(("option", "value", "answer", "why"), rows)
    if refused := sum(bool(verdict.error) for verdict in verdicts):
        if not as_json:
            print_remark(f"{refused} of {len(verdicts)} options would make a read or write fail")
        raise typer.Exit(USAGE)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """Read names and values from texts, files and stdin. A later value of a name replaces an earlier one."""
    from lakeformat.codec import properties

    values: dict[str, str] = {}
    for text in given:
        if text == _STDIN:
            values |= properties.decode(sys.stdin.buffer.read(), name="stdin")
        elif Path(text).is_file():
            values |= properties.decode(Path(text).read_bytes(), name=text)
        elif "=" in text:
            name, _, value = text.partition("=")
            values[name.strip()] = value.strip()
        else:
            raise InvalidInputError(f"there is no file {text}; give a properties file, name=value, or - for stdin")
    return values


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "option": verdict.name,
        "value": verdict.text,
        "fate": verdict.outcome.value,
        "fails": bool(verdict.error),
        "says": verdict.explanation,
        "cure": verdict.cure,
        "meant": verdict.meant,
    }


def _row(verdict: Verdict) -> tuple[str, str, str, str]:
    says = verdict.explanation
    if verdict.meant:
        says = f"{says}; did you mean {verdict.meant}?"
    elif verdict.cure:
        says = f"{says}; {verdict.cure}"
    return verdict.name, verdict.text, verdict.outcome.value, says
