"""How a write found its keys, as a picture: keys -> key ranges -> footer filters -> files (``lakeformat[plot]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.errors import InvalidInputError

__all__ = ["Stage", "draw_funnel", "stages_of"]

_FACES: Final = ("#9db0c4", "#dfe7ef", "#dfe7ef", "#f2a65a")
_EDGES: Final = ("#6f859c", "#9db0c4", "#9db0c4", "#c4541c")
_TEXT: Final = "#33404d"
#: Widths go by the square root: a bar of one in ten thousand can still be seen.
_LEAST: Final = 0.012


@dataclass(frozen=True, slots=True)
class Stage:
    """One bar: what was counted, and how it came to be so many."""

    name: str
    count: int
    note: str


def stages_of(report: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The bars of a write's report.

    Raises:
        InvalidInputError: the write looked for no keys in files.
    """
    tags = [step for step in report.get("steps", ()) if step["step"] == "tag" and step.get("files")]
    if not tags:
        raise InvalidInputError(
            "this write looked for no keys in files, so there is no funnel; upserts and deletes by key look"
        )
    tag, rows, files = tags[0], report["rows"], report["files"]
    keys, found = tag["keys"], tag["files"]
    told = [f"{tag['checked']:,} looked up in key columns" if tag["checked"] else "no key column was read"]
    if tag["false_positives"]:
        told.append(f"{tag['false_positives']:,} mistakes of filters")
    changed = {what: rows.get(what, 0) for what in ("updated", "inserted", "deleted")}
    new, merged = files.get("created", 0), files.get("merged", 0)
    return (
        Stage(
            "keys and files", keys * found, f"pairs at most, of {keys:,} keys and {found:,} files in their partitions"
        ),
        Stage("left by key ranges", tag["after_ranges"], "each file's least and greatest key"),
        Stage("left by footer filters", tag["after_filters"], "; ".join(told)),
        Stage(
            "files written",
            merged + new,
            f"{merged:,} merged, {new:,} new; rows: "
            + (", ".join(f"{count:,} {what}" for what, count in changed.items() if count) or "none"),
        ),
    )


def draw_funnel(title: str, stages: Sequence[Stage]) -> Any:
    """A matplotlib figure, one bar below the other, each as wide as the root of its count.

    Raises:
        InvalidInputError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError("pictures need matplotlib: pip install 'lakeformat[plot]'") from None
    figure = Figure(figsize=(9.6, 0.62 * len(stages) + 0.9), facecolor="white", layout="constrained")
    panel = figure.subplots()
    most = max(1, *(stage.count for stage in stages))
    for at, (stage, face, edge) in enumerate(zip(stages, _FACES, _EDGES, strict=True)):
        width = max(_LEAST, (stage.count / most) ** 0.5) if stage.count else 0.0
        panel.barh(-at, width, left=-width / 2, height=0.62, facecolor=face, edgecolor=edge, linewidth=0.9)
        panel.text(-0.56, -at, stage.name, ha="right", va="center", fontsize=11, color=_TEXT)
        panel.text(0.56, -at + 0.14, f"{stage.count:,}", va="center", fontsize=12, color=_TEXT, fontweight="bold")
        panel.text(0.56, -at - 0.22, stage.note, va="center", fontsize=8.5, color=_TEXT)
    panel.set_xlim(-1.0, 1.5)
    panel.set_ylim(-len(stages) + 0.5, 0.5)
    panel.set_axis_off()
    panel.set_title(title, loc="left", fontsize=12, color=_TEXT, fontweight="bold")
    return figure
