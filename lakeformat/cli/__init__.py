"""The command line, ``lakeformat``: describe, read, write from files and maintain tables.

Results go to stdout, everything else to stderr. Errors are one line; `lakeformat.cli.output` has the exit codes.
"""

from lakeformat.cli.main import main

__all__ = ["main"]
