"""What lakeformat does with each of Apache Hudi's options: obey, ignore (with or without a warning), or refuse it.

``tools/hudi_options.py`` reads the list of options, ``hudi_options.tsv``, from Hudi's config classes. `hudi_page`
returns the page of the documentation that says for each option what lakeformat does with it.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from lakeformat.config.hudi_support_table import IGNORED, OPEN, REFUSED, WARNED
from lakeformat.config.option import Option
from lakeformat.config.registry import OPTIONS
from lakeformat.model.keys import TIMEBASED_PREFIXES

__all__ = [
    "BY_NAME",
    "OPTIONS_BEGIN",
    "OPTIONS_END",
    "Answer",
    "AnswerKind",
    "HudiOption",
    "describe_open_families",
    "find_answer",
    "hudi_names",
    "hudi_options",
    "hudi_page",
]


@dataclass(frozen=True, slots=True)
class HudiOption:
    """One option of Hudi, a ``ConfigProperty`` of its config classes.

    Attributes:
        default: The default as text; "" if there is none.
        others: Older names of the option that Hudi still accepts.
        release: The last Hudi release that has the option.
    """

    key: str
    default: str
    others: tuple[str, ...]
    release: str


@cache
def hudi_options() -> tuple[HudiOption, ...]:
    """Return all of Hudi's options, in the order of ``hudi_options.tsv``."""
    text = files(__package__).joinpath("hudi_options.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return tuple(HudiOption(key, default, tuple(filter(None, o.split(","))), last) for key, default, o, last in rows)


@cache
def hudi_names() -> Mapping[str, HudiOption]:
    """Return a mapping of every name of an option, in lower case, to the option. Older names are included.

    If a name is the key of one option and an older name of another option, it maps to the option with this key.
    """
    older = {name.lower(): option for option in hudi_options() for name in option.others}
    return {**older, **{option.key.lower(): option for option in hudi_options()}}


#: Maps each key and alias of lakeformat's options, in lower case, to the option.
BY_NAME: Final[Mapping[str, Option]] = {
    name.lower(): option for option in OPTIONS for name in (option.key, *option.aliases)
}
#: Values, in lower case, that switch an option off.
_OFF: Final = frozenset({"", "false", "none", "-1"})

#: Maps the title of each group of options on the page to a pattern of their keys; the first that matches counts.
_GROUPS: Final = {
    "Switches of Hudi's tests": r"_",
    "Reading": (r"as\.of|hoodie\.(datasource\.(read|query|streaming)|read\.|file\.index|logfile|hfile|cdc|common\.)"),
    "Catalogs": r"hoodie\.(datasource\.(hive_sync|meta|catalog|sync)|meta\.sync|meta_sync|metaserver|aws)",
    "Several writers": (
        r"hoodie\.(write\.(lock|concurrency|num\.retries)|client\.heartbeat|clean(er)?\.(policy\.)?failed"
        r"|(write\.)?markers|write\.executor|.*conflict|auto\.adjust\.lock|time\.generator|block)"
    ),
    "Metadata table": r"hoodie\.(metadata|expression|enable\.data\.skipping)",
    "Indexes": r"hoodie\.(index|bloom|simple|global|hbase|bucket|record\.index|layout|range|dynamic)",
    "Table services": (
        r"hoodie\.(clean|archive|compact|clustering|keep|rollback|restore|savepoint|log\.?compaction|partition\.ttl"
        r"|table\.services|commits|parquet\.small|memory\.compaction|datasource\.(compaction|clustering)|optimized\.log)"
    ),
    "Keys, partitions and the table": (
        r"hoodie\.(table|(deltastreamer\.|streamer\.)?keygen|database|partition|record\.merge|bootstrap|timeline|populate"
        r"|datasource\.write\.(table|recordkey|partitionpath|precombine|keygen|hive_style|partition|ordering|drop\.part)"
        r"|base\.(file|path)|version|payload|allow\.|assume\.date|skip\.default)"
    ),
    "Files and memory": (
        r"hoodie\.(parquet|orc|lance|log|memory|record\.size|avro|file|storage|filesystem|fs\.|embed|copyonwrite|io)"
    ),
    "Checks, callbacks and metrics": (
        r"hoodie\.(metrics|precommit|prewrite|write\.(commit|status)|commit|error|sensitive)"
    ),
    "Writing": (
        r"hoodie\.(datasource|write|insert|upsert|bulkinsert|delete|combine|merge|sql|schema|spark|finalize|consistency"
        r"|auto|internal|client|optimistic|deltastreamer|streamer|record|fail|static|release)"
    ),
}
_OTHERS: Final = "Other options"
#: The titles in the order of the page.
_SHOWN_GROUPS: Final = (
    "Keys, partitions and the table", "Writing", "Reading", "Several writers", "Table services", "Indexes",
    "Metadata table", "Catalogs", "Checks, callbacks and metrics", "Files and memory", "Switches of Hudi's tests",
)  # fmt: skip


class AnswerKind(enum.Enum):
    """What lakeformat does with an option."""

    OBEYED = "obeyed"
    IGNORED = "ignored"
    WARNED = "ignored, with a warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What lakeformat does with an option, and why.

    Attributes:
        kind: Whether the option is obeyed, ignored, ignored with a warning, or refused.
        explanation: Text that says what the option does, what happens instead, or why it is refused.
        cure: Text that says what to do besides leaving out a refused option; "" if nothing.
        harmless: Values, in lower case, that are accepted without a warning although other values are not.
    """

    kind: AnswerKind
    explanation: str
    cure: str = ""
    harmless: frozenset[str] = frozenset()


def _table_entries() -> Iterator[tuple[str, Answer]]:
    for kind, table in ((AnswerKind.WARNED, WARNED), (AnswerKind.IGNORED, IGNORED)):
        for explanation, names in table.items():
            answer = Answer(kind, explanation, harmless=_OFF)
            yield from ((name, answer) for name in names.split())
    for name, (why, cure, fine) in REFUSED.items():
        yield name, Answer(AnswerKind.REFUSED, why, cure, frozenset(fine.lower().split()))


@cache
def _table() -> tuple[tuple[str, Answer], ...]:
    return tuple(sorted(_table_entries(), key=lambda row: (-len(row[0]), row[0])))


@lru_cache(maxsize=4096)
def find_answer(name: str) -> Answer | None:
    """Return what lakeformat does with the option ``name``, a key or other name in lower case; None if it is unknown.

    >>> find_answer("hoodie.upsert.shuffle.parallelism").kind
    <AnswerKind.IGNORED: 'ignored'>
    """
    own_option, hudi_option = BY_NAME.get(name), hudi_names().get(name)
    if own_option is not None:
        return Answer(AnswerKind.OBEYED, own_option.doc)
    if name.startswith(TIMEBASED_PREFIXES):
        return Answer(AnswerKind.OBEYED, "Part of the timestamp-based key generator.") if hudi_option else None
    if hudi_option is None and not any(fnmatchcase(name, family) for family in OPEN.split()):
        return None
    key = hudi_option.key.lower() if hudi_option else name
    answer = next((answer for pattern, answer in _table() if fnmatchcase(key, pattern)), None)
    if answer is None or answer.kind is not AnswerKind.REFUSED:
        return answer
    default = hudi_option.default.lower() if hudi_option else ""
    return replace(answer, harmless=answer.harmless | {"", default})


def describe_open_families() -> list[tuple[str, Answer]]:
    """Return what lakeformat does with the options in `OPEN`: known options that are not in the list of Hudi's options.

    Each pair is a name or pattern in `OPEN`, and what lakeformat does with the options that match it. Names without an
    entry in the tables of unsupported options are left out.
    """
    answers = ((family, find_answer(family.replace("*", "..."))) for family in sorted(OPEN.split()))
    return [(family, answer) for family, answer in answers if answer]


#: The line of `docs/options.md` before its table of options.
OPTIONS_BEGIN: Final = "<!-- options:begin -->"
#: The line of `docs/options.md` after its table of options.
OPTIONS_END: Final = "<!-- options:end -->"

_PREFACE: Final = """\
# Options of Apache Hudi in lakeformat

This page is made by `python tools/hudi_options.py` from the config classes of Hudi {newest}, and of {oldest} for
options that later releases dropped. Each option has one answer, under any of its names and in any letter case:

- **obeyed** ({obeyed}): see the [table of options](../options.md) for values and defaults.
- **ignored** ({ignored}): it tunes a part that lakeformat does not have, or that works differently; rows are the same.
- **ignored, with a warning** ({warned}): its effect does not happen. One warning per table and process says so. If the
  option is off, there is no warning.
- **refused** ({refused}): rows, or files on which later writes rely, would differ from what the option means. Hudi's
  default and the values named with it are accepted, so jobs that set them explicitly run.

Any other name that begins with `hoodie.` logs a warning, which names the nearest known option if there is one. It is
refused if it looks like the option for the record key, the partitions or the ordering field, and that option is not
given by any of its true names. The options at the end of the page are answered by the beginning of their names.
"""


def hudi_page() -> str:
    """Return the text of ``docs/reference/hudi-options.md``, with a line for each option of Hudi."""
    options = [(option, answer) for option in hudi_options() if (answer := find_answer(option.key.lower()))]
    kinds = Counter(answer.kind.name.lower() for _, answer in options)
    releases = sorted({option.release for option, _ in options}, key=lambda text: [*map(int, text.split("."))])
    lines = [
        _PREFACE.format(newest=releases[-1], oldest=releases[0], **kinds),
        *_describe_groups(options),
        "## Names that only begin like an option",
        "",
        "Names with these beginnings that are not in that list, from Hudi's bundles, releases between or AWS Glue:",
        "",
        *_markdown_table(
            "options | answer", (f"`{name}` | {_describe(None, answer)}" for name, answer in describe_open_families())
        ),
    ]
    return "\n".join(lines) + "\n"


def _describe_groups(options: Sequence[tuple[HudiOption, Answer]]) -> Iterator[str]:
    """Yield a heading and a table for each group of options."""
    groups: dict[str, list[str]] = {title: [] for title in (*_SHOWN_GROUPS, _OTHERS)}
    for option, answer in options:
        title = next((title for title, keys in _GROUPS.items() if re.match(keys, option.key)), _OTHERS)
        groups[title].append(_describe_option(option, answer))
    for title, rows in ((title, rows) for title, rows in groups.items() if rows):
        yield from (f"## {title}", "")
        yield from (*_markdown_table("option | older names | Hudi's default | answer", iter(rows)), "")


def _markdown_table(head: str, rows: Iterator[str]) -> Iterator[str]:
    yield f"| {head} |"
    yield "|---" * len(head.split("|")) + "|"
    yield from (f"| {row} |" for row in rows)


def _describe_option(option: HudiOption, answer: Answer) -> str:
    others = ", ".join(f"`{name}`" for name in option.others)
    default = f"`{option.default}`" if option.default else ""
    return f"`{option.key}` | {others} | {default} | {_describe(option, answer)}"


def _describe(option: HudiOption | None, answer: Answer) -> str:
    cure = f"; {answer.cure}" if answer.cure else ""
    description = f"**{answer.kind.value}**: {answer.explanation.rstrip('.')}{cure}"
    if answer.kind is not AnswerKind.REFUSED:
        return description
    default = option.default.lower() if option else ""
    taken = [f"`{text}`" for text in sorted(answer.harmless - {"", default})]
    return f"{description} (accepted: {', '.join(taken)})" if taken else description
