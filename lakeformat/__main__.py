"""``python -m lakeformat``: the command line, for environments in which the script is not on the path."""

import sys

from lakeformat.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
