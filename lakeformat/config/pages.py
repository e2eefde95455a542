"""The page that says what becomes of each of Hudi's options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from lakeformat.config.answers import Answer, Kind, answer_to, open_families
from lakeformat.config.hudi import HudiOption, hudi_options

__all__ = ["OPTIONS_BEGIN", "OPTIONS_END", "hudi_page"]

#: Between these `docs/options.md` has its table of options.
OPTIONS_BEGIN: Final = "<!-- options:begin -->"
OPTIONS_END: Final = "<!-- options:end -->"

_PREFACE: Final = """\
# Options of Apache Hudi, and what becomes of them here

Made by `python tools/hudi_options.py` from the config classes of Hudi {newest}, and of {oldest} for options that later
releases dropped. Each option has one answer, under any of its names and in any letter case:

- **obeyed** ({obeyed}): see the [table of options](docs/options.md) for values and defaults.
- **ignored** ({passed}): it tunes a part that we do not have, or that works differently here; rows are the same.
- **ignored, with a warning** ({told}): something that it asks for does not happen. One warning per table and
  process says what; there is none if the option is off.
- **refused** ({refused}): rows, or files that later writes rely on, would not be what it asks for. Hudi's default, and
  the values named with it, are accepted, so jobs that write them out run.

Any other name that begins with `hoodie.` logs a warning, which names the nearest known option if there is one. It is
refused if it looks like the option for the record key, the partitions or the ordering field, and none of that option's
true names is given. The options at the end are answered by the beginning of their names.
"""


def hudi_page() -> str:
    """``OPTIONS.md``."""
    options = [(option, answer) for option in hudi_options() if (answer := answer_to(option.key.lower()))]
    kinds = Counter(answer.kind.name.lower() for _, answer in options)
    releases = sorted({option.release for option, _ in options}, key=lambda text: [*map(int, text.split("."))])
    lines = [
        _PREFACE.format(newest=releases[-1], oldest=releases[0], **kinds),
        *_table_page("option | older names | Hudi's default | answer", (_row(*row) for row in options)),
        "",
        "Names beginning so that are not in that list, of Hudi's other bundles or of releases between:",
        "",
        *_table_page("options | answer", (f"`{name}` | {_answered(None, answer)}" for name, answer in open_families())),
    ]
    return "\n".join(lines) + "\n"


def _table_page(head: str, rows: Iterator[str]) -> Iterator[str]:
    yield f"| {head} |"
    yield "|---" * len(head.split("|")) + "|"
    yield from (f"| {row} |" for row in rows)


def _row(option: HudiOption, answer: Answer) -> str:
    others = ", ".join(f"`{name}`" for name in option.others)
    default = f"`{option.default}`" if option.default else ""
    return f"`{option.key}` | {others} | {default} | {_answered(option, answer)}"


def _answered(option: HudiOption | None, answer: Answer) -> str:
    cure = f"; {answer.cure}" if answer.cure else ""
    said = f"**{answer.kind.value}**: {answer.says.rstrip('.')}{cure}"
    if answer.kind is not Kind.REFUSED:
        return said
    default = option.default.lower() if option else ""
    taken = [f"`{text}`" for text in sorted(answer.harmless - {"", default})]
    return f"{said} (taken: {', '.join(taken)})" if taken else said
