"""Pictures of a report as inline SVG: lines, columns, events in lanes, boxes of files. Pure.

A picture is 400 units wide, so its texts are readable on a phone. Each has a title and a description for those who do
not see it, and the page has a table beside it. Colors are classes of the page's style.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.services.report.markup import Html, cut, element, joined

__all__ = ["Event", "Picture", "boxes_chart", "columns_chart", "lanes_chart", "line_chart", "split_bar"]

_WIDTH: Final = 400
#: Maximum number of points of a line, and of marks in a lane.
_MOST_POINTS: Final = 300
_MOST_MARKS: Final = 120
_LANE: Final = 22
_GUTTER: Final = 116

Number = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Picture:
    """The texts of a picture for those who do not see it."""

    title: str
    text: str


def _draw(picture: Picture, height: float, *shapes: Html) -> Html:
    words = joined([element("title", picture.title), element("desc", picture.text)])
    return element(
        "svg", words, *shapes, class_="chart", viewBox=f"0 0 {_WIDTH} {height:g}", role="img", aria_label=picture.title
    )


def _text(x: float, y: float, value: str, anchor: str = "start", kind: str | None = None) -> Html:
    return element("text", value, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)


def _rule(x: float, y: float, x_end: float, y_end: float, kind: str = "rule") -> Html:
    return element("path", d=f"M{x:.1f} {y:.1f}L{x_end:.1f} {y_end:.1f}", class_=kind)


def _scale(values: Sequence[float], low: float, high: float) -> list[float]:
    """Place values between two positions; in equal steps if all are equal or there are few."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if most == least:
        return [low + (high - low) * (number + 0.5) / len(values) for number in range(len(values))]
    return [low + (high - low) * (value - least) / (most - least) for value in values]


def line_chart(
    picture: Picture, times: Sequence[float], values: Sequence[int], ends: tuple[str, str], number: Number
) -> Html:
    """Draw a value over time as steps, from 0 up.

    Args:
        times: the times, in order.
        ends: labels of the first and the last time.
        number: formats a value.
    """
    top, bottom, left, right = 16.0, 138.0, 8.0, _WIDTH - 8.0
    most = max(values, default=0) or 1
    step = max(1, -(-len(values) // _MOST_POINTS))
    chosen = sorted({*range(0, len(values), step), len(values) - 1})
    xs = _scale([times[number] for number in chosen], left, right - 2)
    ys = [bottom - (bottom - top) * values[number] / most for number in chosen]
    path = f"M{xs[0]:.1f} {ys[0]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    path += f"H{right:.1f}"
    area = f"{path}V{bottom}H{xs[0]:.1f}Z"
    shapes = [
        _rule(left, bottom, right, bottom),
        _rule(left, top, right, top, "rule faint"),
        element("path", d=Html(area), class_="area"),
        element("path", d=Html(path), class_="line"),
        element("circle", cx=f"{right:.1f}", cy=f"{ys[-1]:.1f}", r="3", class_="fill-blue"),
        _text(left, top - 5, number(most)),
        _text(left, bottom + 15, ends[0]),
        _text(right, bottom + 15, ends[1], "end"),
    ]
    return _draw(picture, 160, *shapes)


@dataclass(frozen=True, slots=True)
class Event:
    """A mark in a lane.

    Attributes:
        time: when it happened.
        lane: the name of its lane.
        text: what it was.
    """

    time: float
    lane: str
    text: str


def lanes_chart(picture: Picture, events: Sequence[Event], ends: tuple[str, str], colors: Mapping[str, str]) -> Html:
    """Draw events over time, in a lane for each kind. Events at one place are one mark with their number.

    Args:
        ends: labels of the first and the last time.
        colors: maps a lane to its color.
    """
    lanes = list(dict.fromkeys(event.lane for event in events))
    left, right = _GUTTER + 4.0, _WIDTH - 8.0
    places = _scale([event.time for event in events], left, right)
    shapes = []
    for number, lane in enumerate(lanes):
        y = 14 + number * _LANE
        mine = [(x, event) for x, event in zip(places, events, strict=True) if event.lane == lane]
        shapes += [_text(_GUTTER - 6, y + 4, cut(lane, 15), "end"), _rule(left - 4, y, right + 4, y, "rule faint")]
        cells: dict[int, list[tuple[float, Event]]] = {}
        for x, event in mine:
            cells.setdefault(int((x - left) / (right - left) * _MOST_MARKS), []).append((x, event))
        for some in cells.values():
            x = sum(place for place, _ in some) / len(some)
            text = some[0][1].text if len(some) == 1 else f"{len(some):,} x {lane}, the newest: {some[-1][1].text}"
            radius = min(9.0, 3.2 + 0.9 * (len(some) - 1) ** 0.5)
            mark = {"cx": f"{x:.1f}", "cy": y, "r": f"{radius:.1f}", "class_": f"mark fill-{colors.get(lane, 'grey')}"}
            shapes.append(element("circle", element("title", text), **mark))
    bottom = 14 + len(lanes) * _LANE
    shapes += [_text(left - 4, bottom + 4, ends[0]), _text(right + 4, bottom + 4, ends[1], "end")]
    return _draw(picture, bottom + 12, *shapes)


def columns_chart(picture: Picture, counts: Sequence[tuple[str, int]], *, dim: Sequence[bool]) -> Html:
    """Draw a column for each count, with its label below and its number above. Columns with a ``dim`` flag differ."""
    top, bottom, left, right = 20.0, 128.0, 4.0, _WIDTH - 4.0
    most = max((count for _, count in counts), default=0) or 1
    width = min(64.0, (right - left) / max(1, len(counts)))
    left = (left + right - width * len(counts)) / 2
    shapes = [_rule(4, bottom, right, bottom)]
    every = -(-len(counts) // 8)
    for number, ((label, count), is_dim) in enumerate(zip(counts, dim, strict=True)):
        x, height = left + number * width, (bottom - top) * count / most
        height = max(height, 1.5) if count else 0
        shape: dict[str, Any] = {"x": f"{x + width * 0.12:.1f}", "y": f"{bottom - height:.1f}", "rx": 1.5}
        color = "orange" if is_dim else "blue"
        shapes.append(
            element("rect", **shape, width=f"{width * 0.76:.1f}", height=f"{height:.1f}", class_=f"fill-{color}")
        )
        if count:
            shapes.append(_text(x + width / 2, bottom - height - 4, _short(count), "middle"))
        if number % every == 0:
            shapes.append(_text(x + width / 2, bottom + 14, label, "middle", "small"))
    return _draw(picture, 148, *shapes)


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:,.0f}k"


def split_bar(picture: Picture, parts: Sequence[tuple[str, float, str]]) -> Html:
    """Draw the shares of a whole as one bar, with a legend.

    Args:
        parts: the name, the share from 0 to 1, and the color of each part.
    """
    shapes, x = [], 4.0
    for number, (name, share, color) in enumerate(parts):
        width = (_WIDTH - 8) * share
        shapes.append(element("rect", x=f"{x:.1f}", y=4, width=f"{width:.1f}", height=18, class_=f"fill-{color}"))
        key = 4 + number * 190
        shapes.append(element("rect", x=key, y=32, width=10, height=10, rx=2, class_=f"fill-{color}"))
        shapes.append(_text(key + 15, 41, name))
        x += width
    return _draw(picture, 48, *shapes)


def boxes_chart(
    picture: Picture, boxes: Sequence[tuple[float, float, float, float]], names: tuple[str, str], read: Sequence[bool]
) -> Html:
    """Draw the ranges of files in two columns as boxes in a square.

    Args:
        boxes: the left, right, lower and upper bound of each box, from 0 to 1.
        names: the columns of the two axes.
        read: for each box, whether a filter reads the file.
    """
    low, size = 22.0, 270.0
    shapes = [element("rect", x=low, y=6, width=size, height=size, class_="frame")]
    # The more boxes overlap, the more transparent is each box.
    depth = sum((x_end - x) * (y_end - y) for x, x_end, y, y_end in boxes)
    shade = max(0.04, 0.4 / max(1.0, depth**0.5))
    for (x, x_end, y, y_end), is_read in sorted(zip(boxes, read, strict=True), key=lambda pair: pair[1]):
        place = {"x": f"{low + size * x:.1f}", "y": f"{6 + size * (1 - y_end):.1f}"}
        span = {"width": f"{max(1.0, size * (x_end - x)):.1f}", "height": f"{max(1.0, size * (y_end - y)):.1f}"}
        shapes.append(
            element("rect", **place, **span, class_="box read" if is_read else "box", fill_opacity=f"{shade:.2f}")
        )
    shapes.append(_text(low + size / 2, size + 22, names[0], "middle"))
    turned = f"rotate(-90 14 {6 + size / 2:.0f})"
    shapes.append(element("text", names[1], x=14, y=f"{6 + size / 2:.0f}", text_anchor="middle", transform=turned))
    for number, (name, kind) in enumerate((("read", "box read"), ("skipped", "box"))):
        shapes.append(element("rect", x=306, y=10 + number * 20, width=12, height=12, class_=kind, fill_opacity=0.4))
        shapes.append(_text(324, 20 + number * 20, name))
    return _draw(picture, size + 28, *shapes)
