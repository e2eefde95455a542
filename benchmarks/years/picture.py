"""A picture of the lives of tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.years.workload import Look

__all__ = ["draw"]

_COLOURS: Final = ("#15304b", "#4f86b8", "#9db0c4", "#c4541c", "#e0a526", "#7a7a7a")
_WINDOW: Final = 40


def draw(lives: Mapping[str, Sequence[Look]], picture: Path) -> None:
    """Draw four panels: CPU of a commit, CPU of opening, files on disk, memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.6), layout="constrained")
    panels = figure.subplots(2, 2).flat
    titles = ("CPU of a commit, ms (running median)", "CPU of opening in a new process, ms")
    for panel, title in zip(panels, (*titles, "files on disk", "memory, MB"), strict=True):
        panel.set_title(title, fontsize=10)
    for (title, looks), colour in zip(lives.items(), _COLOURS, strict=False):
        seconds = [second * 1000 for each in looks for second in each.seconds]
        running = [statistics.median(seconds[max(0, at - _WINDOW) : at + 1]) for at in range(len(seconds))]
        at = [each.commits for each in looks]
        panels[0].plot(range(1, len(running) + 1), running, color=colour, label=title)
        if looks[-1].opening is not None:
            panels[1].plot(at, [(each.opening or 0) * 1000 for each in looks], color=colour)
        panels[2].plot(at, [each.files for each in looks], color=colour)
        panels[3].plot(at, [each.memory / 1e6 for each in looks], color=colour)
    for panel in panels:
        panel.set_ylim(bottom=0)
        panel.set_xlabel("commits")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yscale("log")
    panels[0].set_ylim(bottom=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=110)
