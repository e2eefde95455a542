"""Print what the tests cost: ``python tools/durations.py`` reads the processor seconds that the test runs recorded.

The tests record them in ``build/durations.json`` (`tests.helpers.durations`). ``--update`` writes the functions that
cost most to ``tests/durations.tsv``, which `conftest.py` reads: it spreads the tests over the workers by these seconds.
A slow machine's seconds are divided by the factor by which it is slow, so that the list says the same on each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.helpers.durations import slowness  # noqa: E402

RECORDED: Final = ROOT / "build" / "durations.json"
LISTED: Final = ROOT / "tests" / "durations.tsv"
#: Least seconds of a function of the list: those of a case if the function has many cases, those of all its cases.
_OF_A_CASE: Final = 0.02
_OF_ALL_CASES: Final = 1.0
#: A function with more cases than this has many.
_FEW: Final = 4


def group_by(seconds: dict[str, float], levels: str) -> dict[str, list[float]]:
    """Return the seconds of the cases of each ``folder``, ``file`` or ``function``."""
    found: dict[str, list[float]] = defaultdict(list)
    for test, cost in seconds.items():
        function = test.partition("[")[0]
        file = function.partition("::")[0]
        found[{"folder": str(Path(file).parent), "file": file, "function": function}[levels]].append(cost)
    return found


def report(seconds: dict[str, float], top: int) -> str:
    """Return a table of the folders, one of the files and one of the functions that cost most."""
    lines = [f"{sum(seconds.values()):.0f} processor seconds of {len(seconds)} tests"]
    for level in ("folder", "file", "function"):
        groups = sorted(group_by(seconds, level).items(), key=lambda group: -sum(group[1]))
        lines += ["", f"{'seconds':>8} {'tests':>6}  {level}"]
        lines += [f"{sum(costs):8.1f} {len(costs):6}  {name}" for name, costs in groups[:top]]
    return "\n".join(lines)


def listed(seconds: dict[str, float], former: dict[str, str]) -> str:
    """Return the lines of the list: the mean seconds of a case, and the function.

    A function that was not measured now keeps its former line.
    """
    functions = group_by(seconds, "function")
    lines = {name: mean for name, mean in former.items() if name not in functions}
    for name, costs in functions.items():
        mean = sum(costs) / len(costs)
        if sum(costs) > _OF_ALL_CASES or (mean > _OF_A_CASE and (len(costs) > _FEW or name in former)):
            lines[name] = f"{mean:.2g}"
    return "".join(f"{mean}\t{name}\n" for name, mean in sorted(lines.items()))


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--top", type=int, default=25, help="number of lines of each table")
    parser.add_argument("--update", action="store_true", help="write tests/durations.tsv")
    arguments = parser.parse_args()
    if not RECORDED.exists():
        parser.exit(1, f"{RECORDED.relative_to(ROOT)} is missing: run tests first, for example `make test`\n")
    seconds: dict[str, float] = json.loads(RECORDED.read_text(encoding="utf-8"))
    if arguments.update:
        factor = slowness()
        rows = [line.split("\t") for line in LISTED.read_text(encoding="utf-8").splitlines()] if LISTED.exists() else []
        measured = {test: cost / factor for test, cost in seconds.items()}
        LISTED.write_text(listed(measured, {name: mean for mean, name in rows}), encoding="utf-8")
    print(report(seconds, arguments.top))


if __name__ == "__main__":
    main()
