"""Entry point of the command line: it runs a command and turns errors into one line and an exit code."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any, Final

from lakeformat.cli.output import STOPPED, UNEXPECTED, USAGE, exit_code
from lakeformat.extras import install_line

__all__ = ["main"]

#: Arguments of commands that need no pyarrow.
_HELP: Final = frozenset({"--help", "-h", "--version"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code. ``LAKEFORMAT_TRACEBACK=1`` shows the traceback of an error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from lakeformat.cli.app import app
    except ImportError as error:
        if error.name not in {"typer", "rich"}:
            raise
        print(f"lakeformat: the command line needs typer and rich; {install_line('cli')}", file=sys.stderr)
        return USAGE
    if arguments is None and not _HELP.intersection(given):
        _spare_pandas()
    try:
        code = int(app(given, prog_name="lakeformat", standalone_mode=False) or 0)
        if code == STOPPED:  # typer returns it for Ctrl-C.
            raise KeyboardInterrupt
        return code
    except BrokenPipeError:  # A reader such as ``head`` has closed stdout: this is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _print_error("stopped", "KeyboardInterrupt", STOPPED, given)
    except Exception as error:
        if os.environ.get("LAKEFORMAT_TRACEBACK"):
            raise
        return _report_error(error, given)


class _NoPandas(MetaPathFinder):
    """A finder that says that pandas is not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raise the error of a missing package if pandas is imported."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def _spare_pandas() -> None:
    """Let pyarrow look for pandas in vain, once. Otherwise its first scalar or array imports pandas, for half a second.

    Its conversions from and to pandas look again. Only a process of our own may do this: until such a conversion,
    ``pyarrow.array`` takes a series for any sequence, and so NaN for a value.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


def _report_error(error: Exception, arguments: Sequence[str]) -> int:
    kind = type(error).__name__
    if kind == "Abort":
        return _print_error("stopped", kind, STOPPED, arguments)
    if kind == "NoArgsIsHelpError":
        return USAGE  # typer has printed the help.
    if hasattr(error, "format_message"):  # typer found a wrong command or argument.
        text = _hint(error.format_message().rstrip(".?"), getattr(error, "ctx", None))
        usage = f"{text}; see lakeformat {'' if text.startswith('No such command') else _command(arguments)}--help"
        return _print_error(usage, "UsageError", USAGE, arguments)
    code = exit_code(error)
    unexpected = f"{kind}: {error}; set LAKEFORMAT_TRACEBACK=1 to see where" if code == UNEXPECTED else str(error)
    return _print_error(unexpected, kind, code, arguments)


def _hint(text: str, context: Any) -> str:
    """Name lakeformat's command or option where the message is about one of another program."""
    from lakeformat.config.foreign_names import own_command, own_flag

    if asked := re.match(r"No such command '([^']*)'", text):
        own = own_command(asked[1])
    elif asked := re.match(r"No such option: (\S+)", text):
        own = own_flag(asked[1], [name for option in context.command.params for name in option.opts])
    else:
        own = None
    return text if asked is None or own is None else f"{asked[0]}; {own}"


def _command(arguments: Sequence[str]) -> str:
    words = [word for word in arguments[:1] if not word.startswith("-")]
    return "".join(f"{word} " for word in words)


def _print_error(message: str, kind: str, code: int, arguments: Sequence[str]) -> int:
    line = " ".join(message.split())
    if "--json" in arguments:
        print(json.dumps({"error": kind, "message": line, "exit_code": code}), file=sys.stderr)
    else:
        print(f"lakeformat: {line}", file=sys.stderr)
    return code
