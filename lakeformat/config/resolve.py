"""From the user's option mapping to parsed values; what is unknown is refused or warned of by name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lakeformat.config.option import Effect, Option
from lakeformat.config.registry import OPTIONS
from lakeformat.config.unbuilt import FAMILIES, IGNORED, REFUSED
from lakeformat.errors import InvalidOptionError, nearest

__all__ = ["TIMESTAMP_PREFIXES", "Options", "resolve"]

_LOG: Final = logging.getLogger("lakeformat.config")

#: Options of the timestamp-based key generator, read by `TimestampSettings.from_options`.
TIMESTAMP_PREFIXES: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")

_BY_NAME: Final[Mapping[str, Option]] = {
    name.lower(): option for option in OPTIONS for name in (option.key, *option.aliases)
}
#: What Spark itself puts among the options of a source.
_SPARKS: Final = frozenset({"path", "paths", "header", "mergeschema"})
#: How alike two names are (0 to 1) of which one must be meant for the other.
_MISSPELT: Final = 0.9
_SECRETS: Final = ("secret", "password", "token", "credential", "key_id", "access_key", "sas")


@dataclass(frozen=True)
class Options:
    """Parsed options. ``options["where"]`` is the value or the default; `given` tells which were said."""

    values: Mapping[str, Any]
    extra_metadata: Mapping[str, str]
    timestamp: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return _BY_NAME[key.lower()].default

    def given(self, key: str) -> bool:
        """Whether the user set the option."""
        return key in self.values

    def with_values(self, **values: Any) -> Options:
        """A copy with some values set; keyword names are full option keys."""
        return Options({**self.values, **values}, self.extra_metadata, self.timestamp)


def resolve(raw: Mapping[str, Any], *, effects: Iterable[Effect] = tuple(Effect)) -> Options:
    """Parse options given under Hudi's names or short aliases, in any case.

    Raises:
        InvalidOptionError: a bad value, an unknown option of ours (with the nearest known), one option given
            twice with different values, or an option that asks for what is not built. An unknown ``hoodie.*``
            option only logs a warning, so that jobs written for other releases run.
    """
    allowed = frozenset(effects)
    where = raw.get("where")
    if where is not None and not isinstance(where, str):  # Its text would be taken for SQL.
        raise InvalidOptionError(f"option where is of type {type(where).__name__}; write text, or give it to the read")
    texts = [(str(name).lower(), _text(value)) for name, value in raw.items() if value is not None]
    prefix = dict(texts).get("hoodie.datasource.write.commitmeta.key.prefix", "_")
    values: dict[str, Any] = {}
    said: dict[str, tuple[str, str]] = {}
    extra: dict[str, str] = {}
    timestamp: dict[str, str] = {}
    for name, text in texts:
        option = _BY_NAME.get(name)
        if option is None:
            if name.startswith(TIMESTAMP_PREFIXES):
                timestamp[name] = text
            elif prefix and name.startswith(prefix):
                extra[name] = _redacted(name, text)
            else:
                _check_other(name, text)
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
    return Options(values, extra, timestamp)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")  # With its fraction: that moment, not the end of its second.
    return str(value)


def _check_other(name: str, text: str) -> None:
    if name in REFUSED:
        if text.strip().lower() != REFUSED[name].lower():
            raise InvalidOptionError(f"option {name}={text} asks for what lakeformat does not do; leave it out")
    elif name in IGNORED or name in _SPARKS or _of_a_family(name):
        _LOG.debug("option %s has no effect here", name)
    elif name.startswith("hoodie."):
        known = (*_BY_NAME, *REFUSED, *IGNORED)
        _LOG.warning("option %s is not known and has no effect%s", name, nearest(name, known))
    elif not name.startswith(("spark.", "fs.")):
        raise InvalidOptionError(f"unknown option {name!r}{nearest(name, _BY_NAME)}; see the README's table of options")


def _of_a_family(name: str) -> bool:
    return name.startswith(FAMILIES) and not nearest(name, (*_BY_NAME, *REFUSED), _MISSPELT)


def _redacted(name: str, text: str) -> str:
    return "***" if any(mark in name for mark in _SECRETS) else text
