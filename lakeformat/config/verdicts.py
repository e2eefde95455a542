"""The decision about each option that a user gives: it is obeyed, ignored, refused, or misspelt.

Nothing in this module raises or logs: `resolve` does. For option names of other libraries, the error proposes
lakeformat's option with the same meaning.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from lakeformat.config.hudi_support import BY_NAME, Answer, AnswerKind, find_answer, hudi_names
from lakeformat.config.option import WRITE, Effect, Option
from lakeformat.errors import nearest_name
from lakeformat.model.keys import TIMEBASED_PREFIXES

__all__ = ["Judgement", "OptionOutcome", "Verdict", "foreign_hint", "judge"]

#: Maps names of lakeformat's options to the names in delta-rs, Delta's Spark source, pyiceberg, polars, pandas and
#: databases, in lower case and without ``_``, ``-`` and ``.``.
_NAMES: Final[Mapping[str, str]] = {
    "record_key": """
        columnkey businesskey id idcolumn idcolumns identifierfields indexcolumn key keycolumn keycolumns keyfield
        keyfields keys mergekey mergekeys on pk primarykey primarykeys recordid recordkeyfield
        recordkeyfields rowkey uniquekey
    """,
    "partition_by": """
        partition partitioncol partitioncolumn partitioncolumns partitioncols partitionedby partitionfield
        partitionfields partitioning partitionkey partitionkeys partitions partitionspec
    """,
    "ordering": """
        eventtime eventtimecolumn orderby ordercolumn orderingcolumn orderingfield orderingkey precombinefield
        precombinekey sequenceby sequencecolumn updatedat versioncolumn
    """,
    "name": "tablename",
    "table_type": "kind storagetype tablekind type",
    "operation": "savemode writemode writeoperation",
    "hoodie.write.table.version": "formatversion hudiversion protocol tableversion",
    "hive_style": "hivestylepartitioning hive",
    "merge_mode": "mergerule mergestrategy recordmergemode",
    "hoodie.table.cdc.enabled": "cdc changedatafeed changelog deltaenablechangedatafeed enablechangedatafeed",
    "as.of.instant": """
        asofinstant asoftimestamp asofversion date datetime snapshot snapshotid time timestamp timetravel
    """,
    "where": "condition expr filter filters predicate query rowfilter",
    "columns": "column fields projection select selectedfields usecols",
    "hoodie.datasource.read.begin.instanttime": """
        begininstanttime fromversion since startingtimestamp startingversion startsnapshotid starttimestamp
    """,
    "hoodie.datasource.read.end.instanttime": """
        endinginstant endingtimestamp endingversion endinstanttime endsnapshotid endtimestamp endversion until
    """,
    "hoodie.datasource.query.type": "incremental querytype readchangefeed readchangedata",
    "hoodie.datasource.overwrite.mode": "overwritemode",
    "hoodie.parquet.compression.codec": "codec compression compressioncodec",
    "hoodie.parquet.max.file.size": "filesize maxfilesize targetfilesize",
    "hoodie.parquet.block.size": "rowgroupsize maxrowgroupsize",
    "hoodie.index.type": "index indextype",
    "hoodie.bucket.index.num.buckets": "bucket buckets numbuckets",
    "hoodie.clustering.plan.strategy.sort.columns": "clusterby clusteringcolumns sortby sortcolumns zorderby",
    "lakeformat.batch.app": "txnappid",
    "lakeformat.batch.id": "txnversion",
    "storage_options": "s3options storage storageoptions fsoptions properties",
}
#: Maps names of other libraries' options, without an equivalent option in lakeformat, to advice.
_OTHERWISE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("uri", "url", "location", "tablepath", "tableuri", "root", "basepath"), "the path is given first"),
    **dict.fromkeys(("data", "df", "rows", "records"), "write rows by insert, upsert or overwrite of the table"),
    **dict.fromkeys(
        ("asof", "version"),
        "an older state is read by read(as_of=...) of the table, in Spark with the option versionAsOf; "
        "hoodie.write.table.version is for new tables",
    ),
    **dict.fromkeys(
        ("existok", "ifnotexists", "ignoreifexists"), "create opens a table that exists; if_exists='error' refuses it"
    ),
    "mode": "use a method of the table (insert, upsert, overwrite), or the option 'operation'",
    "schemamode": "columns that are new in the rows are added by themselves",
    "replacewhere": "overwrite the partitions by insert_overwrite, or delete(where=...) before",
    "overwriteschema": "columns that are new in the rows are added by themselves",
}
#: Names of storage options in other libraries, in lower case and without ``_``, ``-`` and ``.``.
_STORAGE: Final = frozenset(
    """
    accesskey accesskeyid accountkey accountname allowhttp anon bearertoken clientkwargs connectionstring endpoint
    endpointoverride endpointurl profile region regionname sastoken secret secretaccesskey secretkey serviceaccount
    serviceaccountkey sessiontoken skipsignature token virtualhostedstylerequest
    """.split()  # noqa: SIM905
)
_STORAGE_PREFIXES: Final = ("aws", "azure", "google")
_MEANT: Final[Mapping[str, str]] = {name: own_name for own_name, names in _NAMES.items() for name in names.split()}


def foreign_hint(name: str) -> tuple[str, str]:
    """Return lakeformat's equivalent of another library's option, and a hint for the error.

    The equivalent is "" if there is only advice. Both are "" if the option is unknown.

    >>> foreign_hint("asOfTimestamp")
    ('as.of.instant', "; did you mean 'as.of.instant'?")
    >>> foreign_hint("colour")
    ('', '')
    """
    squeezed = name.lower().replace("_", "").replace("-", "").replace(".", "")
    meant = _MEANT.get(squeezed, "")
    if meant:
        return meant, f"; did you mean {meant!r}?"
    if squeezed in _STORAGE or squeezed.startswith(_STORAGE_PREFIXES):
        return "", f"; give it in storage_options={{{name!r}: ...}}, in Spark as the option 'fs.{name}'"
    otherwise = _OTHERWISE.get(squeezed, "")
    return "", f"; {otherwise}" if otherwise else ""


#: Options that Spark itself adds to the options of a data source.
_SPARKS: Final = frozenset({"path", "paths", "header", "mergeschema", "checkpointlocation", "queryname"})
#: If a ``hoodie.*`` name has at least this similarity (0 to 1) to a known name, it is regarded as its misspelling.
_MISSPELT: Final = 0.9
#: If any other unknown name has at least this similarity (0 to 1) to a known name, its error proposes the known name.
_ALIKE: Final = 0.7
#: Options whose misspelling is an error, not a warning, because without the option a row would get a wrong key,
#: partition or version. Maps what the option sets to the option's key, and to texts that occur in misspellings of it.
_ROLES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "a record key": (WRITE + "recordkey.field", ("recordkey", "primarykey")),
    "partitions": (WRITE + "partitionpath.field", ("partitionpath", "partitionfield", "partitionby")),
    "an ordering field": ("hoodie.table.ordering.fields", ("precombine", "orderingfield")),
}
_PREFIX: Final = "hoodie.datasource.write.commitmeta.key.prefix"
_SECRETS: Final = (
    "secret", "password", "token", "credential", "key_id", "access_key", "access-key", "access.key", "account_key",
    "account-key", "master_key", "connection_string", "connection-string", "sas", "encryption",
)  # fmt: skip
_LIST: Final = "`lakeformat options` lists all"


class OptionOutcome(enum.Enum):
    """What happens with an option that the user gave.

    ``INCOMPLETE``: a part of it cannot be obeyed, which does not stop the write.
    """

    OBEYED = "obeyed"
    IGNORED = "ignored"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    MISSPELT = "misspelt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one option.

    Attributes:
        name: The option's name as the user gave it.
        text: The value as text, with ``***`` for secrets.
        outcome: Whether the option is obeyed, ignored, refused or misspelt.
        explanation: Text that says what the option does, what happens instead, or why it is refused.
        cure: Text that says what to do about a refusal.
        meant: For a misspelt name, the known name that was probably meant.
        error: Message of the error that a read or write with this option raises; "" if there is no error.
        warning: Message of the warning that a read or write logs; "" if there is no warning.
    """

    name: str
    text: str
    outcome: OptionOutcome
    explanation: str
    cure: str = ""
    meant: str = ""
    error: str = ""
    warning: str = ""


@dataclass
class Judgement:
    """The decisions about all options of a call.

    Attributes:
        values: Maps the keys of obeyed options to their parsed values.
        extra_metadata: Entries for the extra metadata of the commit.
        timestamp: Options of the timestamp-based key generator, by name, as texts.
        without_effect: Maps the explanation of a warning to the names of the options that are ignored with it.
        verdicts: The decision about each option.
    """

    values: dict[str, Any] = field(default_factory=dict)
    extra_metadata: dict[str, str] = field(default_factory=dict)
    timestamp: dict[str, str] = field(default_factory=dict)
    without_effect: dict[str, list[str]] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)


def judge(raw: Mapping[str, Any], *, effects: frozenset[Effect] = frozenset(Effect)) -> Judgement:
    """Decide about every option of a call. Errors and warnings are returned in the result, not raised or logged.

    Args:
        raw: Maps the names of options to their values, as the user gave them.
        effects: The actions to judge options for. Options of lakeformat that affect other actions are skipped.
    """
    judgement, first_given, other_options = Judgement(), dict[str, tuple[str, str]](), list[tuple[str, str]]()
    given = [(str(name), value) for name, value in raw.items() if value is not None]
    prefix = next((_format_text(value) for name, value in given if name.lower() == _PREFIX), "_").lower()
    for name, value in given:
        option = BY_NAME.get(name.lower())
        if option is None:
            other_options.append((name, _format_text(value)))
        elif option.effect in effects:
            judgement.verdicts.append(_judge_known(judgement, first_given, option, name, value))
    missing = [role for role, (key, _) in _ROLES.items() if Effect.TABLE in effects and not judgement.values.get(key)]
    for name, text in other_options:
        lower = name.lower()
        if prefix and lower.startswith(prefix):
            judgement.extra_metadata[lower] = _redact(lower, text)
            explanation = "It goes into the commit's extra metadata."
            judgement.verdicts.append(Verdict(name, judgement.extra_metadata[lower], OptionOutcome.OBEYED, explanation))
        else:
            judgement.verdicts.append(_judge_other(judgement, name, text, missing))
    return judgement


def _judge_known(
    judgement: Judgement, first_given: dict[str, tuple[str, str]], option: Option, name: str, value: Any
) -> Verdict:
    """Decide about an option of lakeformat. If it is obeyed, store its value in ``judgement``."""
    lower, text = name.lower(), _format_text(value)
    if option.key == "where" and not isinstance(value, str):  # Text made from another type is not a SQL condition.
        error = f"option where is of type {type(value).__name__}; write text, or give it to the read"
        return Verdict(name, text, OptionOutcome.REFUSED, "the value is not a text", "write text", error=error)
    try:
        parsed = option.parse(text)
    except ValueError as problem:
        error = f"option {lower}={text!r} is not valid: {problem}"
        return Verdict(name, text, OptionOutcome.REFUSED, "the value is not valid", str(problem), error=error)
    if option.key in judgement.values and judgement.values[option.key] != parsed:
        other, other_text = first_given[option.key]
        error = f"options {other}={other_text!r} and {lower}={text!r} mean the same and differ; give one of them"
        return Verdict(
            name, text, OptionOutcome.REFUSED, f"{other}={other_text} contradicts it", "give one", error=error
        )
    judgement.values[option.key], first_given[option.key] = parsed, (lower, text)
    return Verdict(name, _redact(lower, text), OptionOutcome.OBEYED, option.doc)


def _judge_other(judgement: Judgement, name: str, text: str, missing: Iterable[str]) -> Verdict:
    """Decide about an option that lakeformat does not have: an option of Hudi or Spark, or an unknown one."""
    lower = name.lower()
    answer, shown = find_answer(lower), _redact(lower, text)
    if lower.startswith(TIMEBASED_PREFIXES):
        return _judge_timestamp(judgement, name, text, answer)
    if answer is None:
        return _judge_unknown(name, text, missing)
    harmless = text.strip().lower() in answer.harmless
    if answer.kind is AnswerKind.IGNORED:
        if lower not in hudi_names() and (meant := _nearest_name(lower)):
            return _warn_no_effect(name, shown, meant)
        return Verdict(name, shown, OptionOutcome.IGNORED, answer.explanation)
    if answer.kind is AnswerKind.WARNED:
        if not harmless:
            judgement.without_effect.setdefault(answer.explanation, []).append(lower)
        return Verdict(
            name, shown, OptionOutcome.IGNORED, answer.explanation if not harmless else "this value requests nothing"
        )
    if harmless:
        return Verdict(name, shown, OptionOutcome.OBEYED, "This value is the behaviour of lakeformat.")
    cure = f"leave it out{f' and {answer.cure}' if answer.cure else ''}"
    error = f"option {lower}={shown} is not supported: {answer.explanation}; {cure}"
    return Verdict(name, shown, OptionOutcome.REFUSED, answer.explanation, cure, error=error)


def _judge_timestamp(judgement: Judgement, name: str, text: str, answer: Answer | None) -> Verdict:
    """Decide about an option of the timestamp-based key generator. Refuse unknown names, which may change the paths."""
    lower = name.lower()
    if answer is not None:
        judgement.timestamp[lower] = text
        return Verdict(name, text, OptionOutcome.OBEYED, answer.explanation)
    meant = nearest_name(lower, [hudi_name for hudi_name in hudi_names() if hudi_name.startswith(TIMEBASED_PREFIXES)])
    error = f"unknown option {name!r}{_format_hint(meant)}; {_LIST}"
    return Verdict(
        name,
        text,
        OptionOutcome.MISSPELT if meant else OptionOutcome.REFUSED,
        "it is not known",
        meant=meant,
        error=error,
    )


def _judge_unknown(name: str, text: str, missing: Iterable[str]) -> Verdict:
    """Decide about an option that neither lakeformat nor Hudi has."""
    lower = name.lower()
    shown = _redact(lower, text)
    if lower.startswith("fs."):
        return Verdict(name, shown, OptionOutcome.OBEYED, "It is for the file system of the table's URL.")
    if lower in _SPARKS or lower.startswith("spark."):
        return Verdict(name, shown, OptionOutcome.IGNORED, "it is for Spark itself")
    if not lower.startswith("hoodie."):
        meant, hint = foreign_hint(lower)
        if not hint:
            meant = nearest_name(lower, BY_NAME, _ALIKE)
            hint = _format_hint(meant)
        error = f"unknown option {name!r}{hint}; {_LIST}"
        outcome = OptionOutcome.MISSPELT if meant else OptionOutcome.REFUSED
        return Verdict(name, shown, outcome, "it is not known", hint.lstrip("; "), meant, error)
    squeezed = lower.replace(".", "").replace("_", "")
    for role in missing:
        key, stems = _ROLES[role]
        if any(stem in squeezed for stem in stems) or nearest_name(lower, (key, *BY_NAME[key].aliases), _MISSPELT):
            explanation = f"no other option names {role}"
            error = f"option {lower} is not known, and {explanation}; did you mean {key!r}?"
            return Verdict(name, shown, OptionOutcome.MISSPELT, explanation, meant=key, error=error)
    return _warn_no_effect(name, shown, _nearest_name(lower))


def _warn_no_effect(name: str, text: str, meant: str) -> Verdict:
    warning = f"option {name.lower()} is not known and has no effect{_format_hint(meant)}"
    outcome = OptionOutcome.MISSPELT if meant else OptionOutcome.IGNORED
    return Verdict(name, text, outcome, "it is not known and has no effect", meant=meant, warning=warning)


def _nearest_name(name: str) -> str:
    return nearest_name(name, _known_names(), _MISSPELT)


def _known_names() -> Iterator[str]:
    yield from BY_NAME
    yield from hudi_names()


def _format_hint(meant: str) -> str:
    return f"; did you mean {meant!r}?" if meant else ""


def _format_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, datetime):
        # Write microseconds even if they are 0: `parse_as_of` reads a time without a fraction as the end of its second.
        return value.isoformat(" ", "microseconds")
    return str(value)


def _redact(name: str, text: str) -> str:
    return "***" if any(mark in name for mark in _SECRETS) else text
