"""The one answer to each option of Hudi's: obeyed, ignored (with or without a warning), or refused.

Apache Hudi's own options, as ``tools/hudi_options.py`` lists them from its config classes.

The page that says what becomes of each of Hudi's options.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from lakeformat.config.hudi_support_table import OPEN, PASSED, REFUSED, TOLD
from lakeformat.config.option import Option
from lakeformat.config.registry import OPTIONS

__all__ = [
    "BY_NAME",
    "OPTIONS_BEGIN",
    "OPTIONS_END",
    "TIMESTAMP_PREFIXES",
    "Answer",
    "HudiOption",
    "Kind",
    "answer_to",
    "hudi_names",
    "hudi_options",
    "hudi_page",
    "open_families",
]


@dataclass(frozen=True, slots=True)
class HudiOption:
    """One ``ConfigProperty``.

    Attributes:
        default: as text, ``""`` for none.
        others: older names, which Hudi still takes.
        release: the last release that has it.
    """

    key: str
    default: str
    others: tuple[str, ...]
    release: str


@cache
def hudi_options() -> tuple[HudiOption, ...]:
    """All, by key."""
    text = files(__package__).joinpath("hudi_options.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return tuple(HudiOption(key, default, tuple(filter(None, o.split(","))), last) for key, default, o, last in rows)


@cache
def hudi_names() -> Mapping[str, HudiOption]:
    """Every name in lower case, the older ones included; a name of two options is its namesake's."""
    older = {name.lower(): option for option in hudi_options() for name in option.others}
    return {**older, **{option.key.lower(): option for option in hudi_options()}}


#: Options of the timestamp-based key generator, read by `TimestampSettings.from_options`.
TIMESTAMP_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")

#: Our options by each of their names, in lower case.
BY_NAME: Final[Mapping[str, Option]] = {
    name.lower(): option for option in OPTIONS for name in (option.key, *option.aliases)
}
#: Values that switch off or ask for nothing.
_OFF: Final = frozenset({"", "false", "none", "-1"})


class Kind(enum.Enum):
    """What is done about an option."""

    OBEYED = "obeyed"
    PASSED = "ignored"
    TOLD = "ignored, with a warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of an option.

    Attributes:
        says: what it does, what is so instead, or why it is refused.
        cure: what to do about a refusal, beyond leaving the option out.
        harmless: values, in lower case, that are taken without a word although others are refused or told of.
    """

    kind: Kind
    says: str
    cure: str = ""
    harmless: frozenset[str] = frozenset()


def _rows() -> Iterator[tuple[str, Answer]]:
    for kind, table in ((Kind.TOLD, TOLD), (Kind.PASSED, PASSED)):
        for says, names in table.items():
            answer = Answer(kind, says, harmless=_OFF)
            yield from ((name, answer) for name in names.split())
    for name, (why, cure, fine) in REFUSED.items():
        yield name, Answer(Kind.REFUSED, why, cure, frozenset(fine.lower().split()))


@cache
def _table() -> tuple[tuple[str, Answer], ...]:
    return tuple(sorted(_rows(), key=lambda row: (-len(row[0]), row[0])))


@lru_cache(maxsize=4096)
def answer_to(name: str) -> Answer | None:
    """The answer to an option by any of its names, in lower case; None if nobody knows it.

    >>> answer_to("hoodie.upsert.shuffle.parallelism").kind
    <Kind.PASSED: 'ignored'>
    """
    ours, theirs = BY_NAME.get(name), hudi_names().get(name)
    if ours is not None:
        return Answer(Kind.OBEYED, ours.doc)
    if name.startswith(TIMESTAMP_PREFIXES):
        return Answer(Kind.OBEYED, "Part of the timestamp-based key generator.") if theirs else None
    if theirs is None and not any(fnmatchcase(name, family) for family in OPEN.split()):
        return None
    key = theirs.key.lower() if theirs else name
    answer = next((answer for pattern, answer in _table() if fnmatchcase(key, pattern)), None)
    if answer is None or answer.kind is not Kind.REFUSED:
        return answer
    default = theirs.default.lower() if theirs else ""
    return replace(answer, harmless=answer.harmless | {"", default})


def open_families() -> list[tuple[str, Answer]]:
    """`OPEN` with what becomes of its names that Hudi does not list."""
    answers = ((family, answer_to(family.replace("*", "..."))) for family in sorted(OPEN.split()))
    return [(family, answer) for family, answer in answers if answer]


#: Between these `docs/options.md` has its table of options.
OPTIONS_BEGIN: Final = "<!-- options:begin -->"
OPTIONS_END: Final = "<!-- options:end -->"

_PREFACE: Final = """\
# Options of Apache Hudi, and what becomes of them here

Made by `python tools/hudi_options.py` from the config classes of Hudi {newest}, and of {oldest} for options that later
releases dropped. Each option has one answer, under any of its names and in any letter case:

- **obeyed** ({obeyed}): see the [table of options](../options.md) for values and defaults.
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
    """Return the text of ``docs/reference/hudi-options.md``."""
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
