"""The command line, ``lakeformat``: what a table is, its rows, writes from files, and its care.

Answers go to stdout, everything else to stderr; errors are one line, and exit codes tell
their kind (`lakeformat.cli.exits`).
"""

from lakeformat.cli.main import main

__all__ = ["main"]
