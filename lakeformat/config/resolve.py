"""From the user's option mapping to parsed values; what is unknown is refused or warned of by name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from lakeformat.config.answers import BY_NAME, TIMESTAMP_PREFIXES, Kind, answer_to
from lakeformat.config.hudi import hudi_names
from lakeformat.config.option import WRITE, Effect
from lakeformat.config.read_settings import ReadOptions
from lakeformat.config.write_settings import WriteOptions
from lakeformat.errors import InvalidOptionError, nearest

__all__ = ["TIMESTAMP_PREFIXES", "Options", "resolve"]

_LOG: Final = logging.getLogger("lakeformat.config")

#: What Spark itself puts among the options of a source.
_SPARKS: Final = frozenset({"path", "paths", "header", "mergeschema", "checkpointlocation", "queryname"})
#: How alike two of Hudi's long names are (0 to 1) of which one must be meant for the other.
_MISSPELT: Final = 0.9
#: What a table is made without if the option's name is misspelt -> the option, and what a name like it contains.
_ROLES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "a record key": (WRITE + "recordkey.field", ("recordkey", "primarykey")),
    "partitions": (WRITE + "partitionpath.field", ("partitionpath", "partitionfield", "partitionby")),
    "an ordering field": ("hoodie.table.ordering.fields", ("precombine", "orderingfield")),
}
_SECRETS: Final = ("secret", "password", "token", "credential", "key_id", "access_key", "sas", "encryption")

#: Of which table what has been told already; in this process.
_TOLD: Final[set[tuple[str, str]]] = set()
_TOLD_AT_MOST: Final = 10_000


@dataclass(frozen=True)
class Options:
    """Parsed options: `read` and `write`, typed; any by its key, said or its default; `given` tells which were said."""

    values: Mapping[str, Any]
    extra_metadata: Mapping[str, str]
    timestamp: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return BY_NAME[key.lower()].default

    @cached_property
    def read(self) -> ReadOptions:
        """How a read works."""
        return ReadOptions.of(self.__getitem__)

    @cached_property
    def write(self) -> WriteOptions:
        """How a write works."""
        return WriteOptions.of(self.__getitem__)

    @property
    def lock_seconds(self) -> float:
        """How long a write waits for the table's lock."""
        return float(self["hoodie.write.lock.wait_time_ms"]) / 1000

    def given(self, key: str) -> bool:
        """Whether the user set the option."""
        return key in self.values

    def with_values(self, **values: Any) -> Options:
        """A copy with some values set; keyword names are full option keys."""
        return Options({**self.values, **values}, self.extra_metadata, self.timestamp)


def resolve(
    raw: Mapping[str, Any], *, effects: Iterable[Effect] = tuple(Effect), table: str = "", reads: bool = False
) -> Options:
    """Parse options given under Hudi's names or short aliases, in any case.

    Args:
        table: the table's path; of one table the same is told once per process.
        reads: for a read alone: what a write would not do is not told.

    Raises:
        InvalidOptionError: a bad value, an unknown option of ours (with the nearest known), one option given
            twice with different values, an option that asks for what is not built, or a name like that of the
            record key's, partitions' or ordering option where that is not given. Any other unknown ``hoodie.*``
            option only logs a warning, so that jobs written for other releases run.
    """
    allowed = frozenset(effects)
    where = raw.get("where")
    if where is not None and not isinstance(where, str):  # Its text would be taken for SQL.
        raise InvalidOptionError(f"option where is of type {type(where).__name__}; write text, or give it to the read")
    texts = [(str(name).lower(), _text(value)) for name, value in raw.items() if value is not None]
    prefix = dict(texts).get("hoodie.datasource.write.commitmeta.key.prefix", "_").lower()
    values: dict[str, Any] = {}
    said: dict[str, tuple[str, str]] = {}
    extra: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, text in texts:
        option = BY_NAME.get(name)
        if option is None:
            if prefix and name.startswith(prefix):
                extra[name] = _redacted(name, text)
            else:
                others[name] = text
            continue
        if option.effect not in allowed:
            continue
        try:
            value = option.parse(text)
        except ValueError as error:
            raise InvalidOptionError(f"option {name}={text!r} is not valid: {error}") from None
        if option.key in values and values[option.key] != value:
            other, other_text = said[option.key]
            raise InvalidOptionError(
                f"options {other}={other_text!r} and {name}={text!r} mean the same and differ; give one of them"
            )
        values[option.key], said[option.key] = value, (name, text)
    timestamp = {name: others.pop(name) for name in list(others) if _of_timestamps(name)}
    missing = [role for role, (key, _) in _ROLES.items() if Effect.TABLE in allowed and not values.get(key)]
    for says, names in _pass_over(others, missing, table).items():
        if not reads:
            _tell(table, says, f"no effect of {', '.join(names)}: {says}")
    return Options(values, extra, timestamp)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")  # With its fraction: that moment, not the end of its second.
    return str(value)


def _of_timestamps(name: str) -> bool:
    if not name.startswith(TIMESTAMP_PREFIXES):
        return False
    if answer_to(name) is None:  # It would change the partitions' folders.
        known = [known for known in hudi_names() if known.startswith(TIMESTAMP_PREFIXES)]
        raise InvalidOptionError(f"unknown option {name!r}{nearest(name, known)}; see OPTIONS.md")
    return True


def _pass_over(options: Mapping[str, str], missing: Iterable[str], table: str) -> Mapping[str, Sequence[str]]:
    """Refuse options that lakeformat does not have, or pass them over: what a write will not do, and for whom."""
    told: dict[str, list[str]] = {}
    for name, text in options.items():
        answer = answer_to(name)
        harmless = answer is not None and text.strip().lower() in answer.harmless
        if answer is None:
            _check_unknown(name, missing, table)
        elif answer.kind is Kind.PASSED:
            if name not in hudi_names() and (hint := _hint(name)):
                _tell(table, name, f"option {name} is not known and has no effect{hint}")
        elif answer.kind is Kind.TOLD and not harmless:
            told.setdefault(answer.says, []).append(name)
        elif not harmless:
            cure = f" and {answer.cure}" if answer.cure else ""
            raise InvalidOptionError(
                f"option {name}={_redacted(name, text)} asks for what lakeformat does not do: {answer.says}; "
                f"leave it out{cure}"
            )
    return told


def _check_unknown(name: str, missing: Iterable[str], table: str) -> None:
    if name in _SPARKS or name.startswith(("spark.", "fs.")):
        return
    if not name.startswith("hoodie."):
        hint = nearest(name, BY_NAME) or _part_of(name)
        raise InvalidOptionError(f"unknown option {name!r}{hint}; docs/options.md has them all")
    for role in missing:
        key, stems = _ROLES[role]
        squeezed = name.replace(".", "").replace("_", "")
        names = (key, *BY_NAME[key].aliases)
        if any(stem in squeezed for stem in stems) or nearest(name, names, _MISSPELT):
            raise InvalidOptionError(
                f"option {name} is not known, and no other option names {role}; did you mean {key!r}?"
            )
    _tell(table, name, f"option {name} is not known and has no effect{_hint(name)}")


def _part_of(word: str) -> str:
    """The shortest option that has the word between its dots, as ``hoodie.index.type`` has ``index``."""
    found = min((name for name in BY_NAME if word in name.split(".")), key=len, default=None)
    return "" if found is None else f"; did you mean {found!r}?"


def _hint(name: str) -> str:
    return nearest(name, (*BY_NAME, *hudi_names()), _MISSPELT)


def _tell(table: str, about: str, text: str) -> None:
    if table:
        known = (table.rstrip("/"), about)
        if known in _TOLD:
            return
        if len(_TOLD) >= _TOLD_AT_MOST:
            _TOLD.clear()
        _TOLD.add(known)
        text = f"table {table}: {text}"
    _LOG.warning("%s", text)


def _redacted(name: str, text: str) -> str:
    return "***" if any(mark in name for mark in _SECRETS) else text
