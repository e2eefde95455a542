"""Recorded plans of runs: ``python -m tests.simulation.recorded NAME SEED`` records the run of a seed with many undos.

A seed does something else as soon as a verb sends one request more. A recorded plan keeps the decisions by name: which
verbs run with which keys, how long each request takes, which one is lost or late, who is stopped or killed. A request
that is added later takes the usual time and meets no fault, and all others keep theirs.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.simulation.storage import Faults
from tests.simulation.workload import Plan, Run, make_plan, run

__all__ = ["NAMES", "UNDOING", "load_plan", "record"]

_FOLDER: Final = Path(__file__).parent / "plans"
#: Many undos, which must take back what the commits have recorded in the metadata table.
UNDOING: Final = {"append": 3, "upsert": 1, "insert": 2, "clean": 1, "rollback": 2, "restore": 1, "cluster": 1}
NAMES: Final = sorted(path.name.removesuffix(".json.xz") for path in _FOLDER.glob("*.json.xz"))


def record(name: str, plan: Plan) -> Run:
    """Run a plan and store it with all its decisions."""
    result = run(plan)
    decided = {name: round(each, 9) if isinstance(each, float) else each for name, each in result.decided.items()}
    document = {**asdict(plan), "walls": sorted(plan.walls), "recorded": decided}
    _FOLDER.mkdir(exist_ok=True)
    data = json.dumps(document, separators=(",", ":")).encode()
    (_FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(data, preset=9))
    return result


def load_plan(name: str) -> Plan:
    """Return a recorded plan."""
    found: Mapping[str, Any] = json.loads(lzma.decompress((_FOLDER / f"{name}.json.xz").read_bytes()))
    return Plan(**{**found, "faults": Faults(**found["faults"]), "walls": frozenset(found["walls"])})


if __name__ == "__main__":
    print(record(sys.argv[1], make_plan(int(sys.argv[2]), has_metadata_table=True, verbs=UNDOING)).problems())
