"""Hooks of the user on a write: validators before it is visible, callbacks after, and extra metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypedDict

import pyarrow as pa

from lakeformat.config.other_arguments import check_write_arguments
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.timeline.history import STATEMENT_KEY, VERB_KEY
from lakeformat.transaction.batch_ids import batch_of
from lakeformat.transaction.callbacks import Callback, callbacks_of
from lakeformat.transaction.validators import ProposedWrite, Validator, check_validators, validators_of

__all__ = ["HookArguments", "Hooks", "check_hook_names", "check_hooks", "hooks_of", "with_statement"]

_STATEMENT_LENGTH: Final = 500


_OPTIONS_GO: Final = "; options are given to lakeformat.open(path, ...) or create"


class HookArguments(TypedDict, total=False):
    """Arguments that every writing method takes.

    Attributes:
        validators: functions that get a `ProposedWrite`, and raise or return False to refuse it.
        callbacks: functions that get a `CommitMessage` once the write is visible; their errors are logged.
        extra_metadata: texts for the commit's extra metadata.
    """

    validators: Sequence[Callable[[ProposedWrite], Any]]
    callbacks: Sequence[Callback]
    extra_metadata: Mapping[str, str]


@dataclass(frozen=True)
class Hooks:
    """The parsed validators and callbacks, and the checked extra metadata, of a write."""

    validators: tuple[Validator, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    def of_verb(self, verb: str) -> Hooks:
        """Return these hooks with the verb that history shows, e.g. ``update``, which is an ``upsert`` to Hudi."""
        return replace(self, extra_metadata={**self.extra_metadata, VERB_KEY: verb})


def check_hooks(options: Options, schema: pa.Schema) -> None:
    """Refuse hooks of the options that cannot be used. Call it before a write starts.

    Args:
        schema: the table's columns after the write.

    Raises:
        InvalidOptionError, InvalidInputError: see `hooks_of`, `check_validators` and `batch_of`.
    """
    check_validators(hooks_of(options).validators, schema)
    batch_of(options)


def check_hook_names(arguments: Mapping[str, Any], verb: str, own: Sequence[str] = ()) -> None:
    """Refuse arguments of a writing method that it does not have.

    Args:
        arguments: arguments given in addition to the method's own ones.
        own: names of the method's own arguments, which the message may suggest.

    Raises:
        InvalidOptionError: the message names the first unknown argument.
    """
    check_write_arguments(arguments, (*own, *HookArguments.__annotations__), verb, _OPTIONS_GO)


def hooks_of(
    options: Options,
    validators: Sequence[Callable[[ProposedWrite], Any]] = (),
    callbacks: Sequence[Callback] = (),
    extra_metadata: Mapping[str, str] | None = None,
) -> Hooks:
    """Return the hooks that the options and arguments name.

    Raises:
        InvalidOptionError: a validator, query or callback cannot be used.
        InvalidInputError: extra metadata is not text, or has a name that the format uses.
    """
    extra = {**options.extra_metadata, **(extra_metadata or {})}
    for key, value in extra.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInputError(f"extra metadata {key!r}: {value!r} is not text; convert it")
        if key == "schema" or (key.startswith("lakeformat.") and key != STATEMENT_KEY):
            raise InvalidInputError(f"extra metadata {key!r} is a name of the format's own; choose another")
    return Hooks(validators_of(options, validators), callbacks_of(options, callbacks), extra)


def with_statement(options: Options, text: str) -> Options:
    """Return options whose writes keep this statement, shortened, in the commit's extra metadata."""
    shortened = text if len(text) <= _STATEMENT_LENGTH else f"{text[: _STATEMENT_LENGTH - 3]}..."
    return replace(options, extra_metadata={**options.extra_metadata, STATEMENT_KEY: shortened})
