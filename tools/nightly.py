"""Run what is too slow for CI: ``python tools/nightly.py [ARGUMENT ...]``, which `make nightly` calls.

All parts run even if one fails. The last lines show the result of each part and its time. The exit code is 1 if any
failed. With arguments, only the nightly tests run, and pytest gets the arguments.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TODAY: Final = datetime.datetime.now(datetime.UTC).date()
_PYTEST: Final = (sys.executable, "-m", "pytest", "-n", "auto", "--maxprocesses")
#: The part that takes the arguments.
TESTS: Final = "nightly tests"
#: Name of a part -> its command, in the order in which they run.
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "every PySpark": (sys.executable, "tools/matrix.py"),
    TESTS: (
        *(*_PYTEST, "2", "-m", "nightly and not (rest and hypothesis)"),
        *("--hypothesis-profile=nightly", f"--night={TODAY.isoweekday()}"),
    ),
    "examples": (
        *(*_PYTEST, "4", "-m", "hypothesis and not interop and (rest or not nightly)"),
        *("--hypothesis-profile=whole", f"--hypothesis-seed={TODAY:%Y%m%d}"),
    ),
    "engines": (".venv-engines/bin/python", "-m", "pytest", "-m", "nightly", "tests/integrations"),
    "mutants": (sys.executable, "tools/mutants.py", "--share", "0.05", "--seed", f"{TODAY:%Y%m%d}"),
}


def main() -> int:
    """Run the parts, then print one line for each. Return 1 if any failed."""
    arguments = sys.argv[1:]
    lines: list[str] = []
    failed = False
    for name in (TESTS,) if arguments else PARTS:
        print(f"=== {name}", flush=True)
        started = time.monotonic()
        code = subprocess.run([*PARTS[name], *arguments], cwd=ROOT, check=False).returncode
        failed = failed or code != 0
        result = f"failed (exit code {code})" if code else "passed"
        lines.append(f"{name:<16} {result:<24} {time.monotonic() - started:6.0f} s")
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
