"""HTML text that is safe to join: every text from a table is escaped here, before it becomes HTML.

Pure. A `Html` is text that may stand in a page as it is. Every other text is escaped by `escaped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

__all__ = ["Html", "bar", "card", "cut", "details", "element", "escaped", "joined", "number", "pairs", "table"]

#: Maximum length of a text from the table. Longer ones are cut, which bounds the size of the page.
_LONGEST: Final = 400


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def cut(text: str, most: int = _LONGEST) -> str:
    """Cut a long text. Characters that UTF-8 cannot encode become question marks."""
    plain = text.encode("utf-8", "replace").decode()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def number(value: float) -> str:
    """Format a number with separators; a fraction with three digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def escaped(value: Any) -> Html:
    """Return a value as HTML: nothing for None, numbers with separators, every other text cut and escaped."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Html(number(value))
    return Html(escape(cut(str(value)), quote=True))


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Join parts; those that are not HTML are escaped."""
    return Html(between.join(map(escaped, parts)))


def element(name: str, *children: Any, **attributes: Any) -> Html:
    """Return an element. Attributes that are None are left out; ``_`` in a name becomes ``-``, at its end nothing.

    >>> element("p", "a<b", class_="x")
    '<p class="x">a&lt;b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value if isinstance(value, Html) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def bar(share: float, color: str = "blue") -> Html:
    """Return a bar for a cell of a table. Its number is in a cell beside it."""
    width = max(0.0, min(1.0, share)) * 100
    shape = f'<rect width="{width:.2f}" height="8" rx="1.5" class="fill-{color}"/>'
    return Html(f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>')


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> Html:
    """Return a table with a caption. The first cell of a row is its heading. A wide table can be scrolled."""
    given = [tuple(row) for row in rows]
    first = given[0] if given else ("",) * len(head)
    titles = joined(
        element("th", name, scope="col", class_="number" if _is_number(value) else None)
        for name, value in zip(head, first, strict=True)
    )
    body = joined(element("tr", *(_cell(column, value) for column, value in enumerate(row))) for row in given)
    whole = element(
        "table", element("caption", caption), element("thead", element("tr", titles)), element("tbody", body)
    )
    scroll = element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return joined([scroll, element("p", note, class_="note") if note else Html("")])


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.endswith(" %")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(column: int, value: Any) -> Html:
    is_picture = isinstance(value, Html) and value.startswith("<svg")
    kind = "number" if _is_number(value) else "picture" if is_picture else None
    return element("th", value, scope="row", class_=kind) if column == 0 else element("td", value, class_=kind)


def details(summary: str, *children: Any) -> Html:
    """Return children that a click shows."""
    return element("details", element("summary", summary), *children)


def card(title: str, *children: Any, missing: str | None = None, wide: bool = False) -> Html:
    """Return a section with a heading; or with the reason why it cannot be shown."""
    name = "".join(letter if letter.isalnum() else "-" for letter in title.lower()).strip("-")
    body = children if missing is None else (element("p", f"Not shown: {missing}", class_="gone"), *children)
    heading = element("h2", title, id=name)
    return element("section", heading, *body, class_="card wide" if wide else "card", aria_labelledby=name)


def pairs(values: Mapping[str, Any]) -> Html:
    """Return names and values as a list of descriptions."""
    return element("dl", *(joined([element("dt", name), element("dd", value)]) for name, value in values.items()))
