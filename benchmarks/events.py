"""The events file, through which an engine's process reports: one JSON object a line, so that an engine may print.

This module imports only the standard library, because each engine's environment loads it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Report", "run_reporting"]

#: A function that reports an event, with its name and its facts.
Report: TypeAlias = Callable[..., None]


def run_reporting(events: Path, run: Callable[[Report], None]) -> int:
    """Call a function that reports events. Report its failure, too. Return the exit code of the process."""
    with events.open("a", buffering=1) as file:

        def report(event: str, **facts: Any) -> None:
            file.write(json.dumps({"event": event, **facts}) + "\n")

        try:
            run(report)
        except Exception as failure:
            traceback.print_exc()
            report("failed", reason=f"{type(failure).__name__}: {failure}"[:2_000])
            return 1
    return 0
