"""The environments of the engines that need one of their own. They are made on demand and kept for later runs.

This module does not handle jars: Spark resolves them when the engine's session opens.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.engines import ENGINES, EngineSpec

ROOT: Final = Path(__file__).resolve().parents[1]
#: Packages that let an engine run in the benchmark's own environment.
_IMPORTABLE: Final = {"delta-rs": "deltalake", "pyiceberg": "pyiceberg"}


class SetupError(Exception):
    """An engine's environment could not be made. The message is one line that says what to do."""


def at_home(spec: EngineSpec) -> bool:
    """Tell whether the benchmark's own environment can run the engine."""
    package = _IMPORTABLE.get(spec.name)
    return not spec.venv or (package is not None and importlib.util.find_spec(package) is not None)


def default_peers() -> tuple[str, ...]:
    """Return the peers of a run without ``PEERS``: those that the benchmark's own environment can run."""
    return tuple(spec.name for spec in ENGINES.values() if spec.peer and at_home(spec))


def python_for(spec: EngineSpec) -> Path:
    """Return the interpreter that runs the engine, after making its environment if needed. Raise `SetupError`."""
    if at_home(spec):
        return Path(sys.executable)
    python = ROOT / spec.venv / "bin" / "python"
    if spec.name == "hudi":
        _run(spec, sys.executable, ROOT / "tools" / "interop_setup.py")
    elif not python.exists():
        _run(spec, sys.executable, "-m", "venv", ROOT / spec.venv)
    if missing := _missing(spec, python):
        _run(spec, python, "-m", "pip", "install", "--quiet", *missing)
    return python


def _missing(spec: EngineSpec, python: Path) -> list[str]:
    """Return the requirements that the environment lacks, by distribution name."""
    probe = (
        "import re, sys\nfrom importlib.metadata import PackageNotFoundError, version\n"
        "for wanted in sys.argv[1:]:\n"
        "    try:\n        version(re.split('[[<>=]', wanted)[0])\n"
        "    except PackageNotFoundError:\n        print(wanted)\n"
    )
    found = subprocess.run([str(python), "-c", probe, *spec.requirements], capture_output=True, text=True, check=False)
    if found.returncode:
        raise SetupError(f"{spec.name}: {spec.venv} cannot run Python; remove it and run again")
    return found.stdout.split()


def _run(spec: EngineSpec, *command: str | Path) -> None:
    print(f"setting up {spec.name}: {' '.join(str(part) for part in command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False)
    if done.returncode:
        raise SetupError(
            f"{spec.name}: its environment {spec.venv} could not be made (exit code {done.returncode}); "
            f"see the lines above, or leave the engine out of PEERS"
        )
