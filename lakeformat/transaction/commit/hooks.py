"""The user's hooks on a write: validators, callbacks, and extra metadata.

Pre-commit validators check the table as it will be after the write (Hudi: ``SparkPreCommitValidator``). They run in
``commit()`` when all files are written and nothing is published yet. Hudi's three SQL validators query the partitions
that a write touches; ours query the whole table.

Callbacks run after the commit is visible (Hudi: ``HoodieWriteCommitCallback``). Their errors are only logged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypedDict
from urllib.parse import urlsplit

import pyarrow as pa

from lakeformat.config.foreign_names import check_write_arguments
from lakeformat.config.option import callable_name, import_callable
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, ValidationFailedError, nearest
from lakeformat.model.commit import WriteStat
from lakeformat.predicate.query import Select, parse_select
from lakeformat.public import public
from lakeformat.read.run.view import TableView, as_text, bind_select, equals_text, evaluate
from lakeformat.timeline.history import STATEMENT_KEY, VERB_KEY
from lakeformat.transaction.order.batch_ids import batch_of

__all__ = [
    "Callback",
    "CommitMessage",
    "HookArguments",
    "Hooks",
    "HttpCallback",
    "ProposedWrite",
    "PythonValidator",
    "SqlValidator",
    "Validator",
    "callbacks_of",
    "check_hook_names",
    "check_hooks",
    "check_validators",
    "hooks_of",
    "load_callable",
    "notify",
    "run_validators",
    "validators_of",
    "with_statement",
]

_LOG: Final = logging.getLogger("lakeformat.write")
_CLASSES: Final = "hoodie.precommit.validators"
_FAILURE_POLICY: Final = f"{_CLASSES}.failure.policy"
_PACKAGE: Final = "org.apache.hudi.client.validator."
#: Maps each SQL validator class of Hudi to the option with its queries and to the kind of its check.
_SQL: Final[Mapping[str, tuple[str, str]]] = {
    "SqlQuerySingleResultPreCommitValidator": (f"{_CLASSES}.single.value.sql.queries", "result"),
    "SqlQueryEqualityPreCommitValidator": (f"{_CLASSES}.equality.sql.queries", "equal"),
    "SqlQueryInequalityPreCommitValidator": (f"{_CLASSES}.inequality.sql.queries", "unequal"),
}


@public
@dataclass(frozen=True)
class ProposedWrite:
    """The input of a validator.

    Attributes:
        operation: ``upsert``, ``insert`` ...
        before: view of the table as it is before the commit.
        after: view of the table as it will be after the commit.
        stats: the write stats of the written files.
    """

    operation: str
    before: TableView
    after: TableView
    stats: tuple[WriteStat, ...]


@dataclass(frozen=True)
class SqlValidator:
    """One query of one of Hudi's SQL validators.

    Attributes:
        kind: name of Hudi's class, without its package.
        select: the parsed query.
        expected: the required value of the query, as text; None if its results before and after the write are
            compared.
    """

    kind: str
    select: Select
    expected: str | None

    @property
    def name(self) -> str:
        """Return a name for messages: the class and the query's text."""
        return f"{self.kind} ({self.select.text})"

    def check(self, write: ProposedWrite) -> None:
        """Run the query. Raise `ValidationFailedError` if its result refuses the write."""
        select = bind_select(self.select, write.after.schema)
        after = evaluate(select, write.after)
        if self.expected is not None:
            if not equals_text(self.expected, after[0]):
                raise _make_refusal(self.name, f"found {as_text(after[0])}, wanted {self.expected}")
            return
        before = evaluate(select, write.before.with_schema(write.after.schema))
        wants_equal = _SQL[self.kind][1] == "equal"
        if (_texts(before) == _texts(after)) is not wants_equal:
            answers = f"{', '.join(_texts(before))} before and {', '.join(_texts(after))} after"
            raise _make_refusal(self.name, f"found {answers}, wanted {'equal' if wants_equal else 'different'} answers")


@dataclass(frozen=True)
class PythonValidator:
    """A function of the user, which raises or returns False to refuse the write."""

    function: Callable[[ProposedWrite], Any]

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return callable_name(self.function)

    def check(self, write: ProposedWrite) -> None:
        """Call the function. Raise `ValidationFailedError` if it raises an error or returns False."""
        try:
            verdict = self.function(write)
        except Exception as error:
            raise _make_refusal(self.name, f"{type(error).__name__}: {error}") from error
        if verdict is False:
            raise _make_refusal(self.name, "it returned False")


Validator = SqlValidator | PythonValidator


def _make_refusal(name: str, finding: str) -> ValidationFailedError:
    return ValidationFailedError(f"validator {name} refused the write: {finding}; nothing was published")


def _texts(values: Sequence[Any]) -> list[str]:
    return [as_text(value) for value in values]


def load_callable(place: str, *, option: str) -> Callable[..., Any]:
    """Import the function at ``package.module:function``.

    Raises:
        InvalidOptionError: there is no such function; the message names the option and the reason.
    """
    try:
        return import_callable(place)
    except (ImportError, TypeError) as error:
        raise InvalidOptionError(
            f"option {option}={place!r} names no function ({error}); write package.module:function"
        ) from error


def validators_of(options: Options, functions: Sequence[Callable[[ProposedWrite], Any]] = ()) -> tuple[Validator, ...]:
    """Return the validators that the options name, then one for each of the caller's functions.

    Raises:
        InvalidOptionError: a validator class is not known, or only one of a validator and its queries is given.
        InvalidInputError: a query is outside the supported subset of SQL.
    """
    names = [name.removeprefix(_PACKAGE) for name in options[_CLASSES]]
    for name in names:
        if name not in _SQL:
            raise InvalidOptionError(
                f"option {_CLASSES}={name!r} is not known{nearest(name, _SQL)}; Python functions go into "
                "lakeformat.transaction.validators"
            )
    validators: list[Validator] = []
    for name, (option, kind) in _SQL.items():
        if (name in names) != bool(options[option]):
            raise InvalidOptionError(f"{option} and {_CLASSES}={_PACKAGE}{name} need each other; give both or none")
        validators += [
            _make_sql_validator(name, text, option, single=kind == "result") for text in _split_queries(options[option])
        ]
    option = "lakeformat.transaction.validators"
    places = [load_callable(place, option=option) for place in options[option]]
    return (*validators, *(PythonValidator(function) for function in (*places, *functions)))


def _split_queries(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(";") if part.strip()]


def _make_sql_validator(name: str, text: str, option: str, *, single: bool) -> SqlValidator:
    query, mark, expected = text.rpartition("#") if single else (text, "", "")
    if single and not mark:
        raise InvalidOptionError(f"option {option}: {text!r} has no expected result; write query#result")
    select = parse_select(query.strip())
    if single and len(select.aggregates) != 1:
        raise InvalidOptionError(
            f"option {option}: {query!r} gives {len(select.aggregates)} values; write a query for one value"
        )
    return SqlValidator(name, select, expected if single else None)


def check_validators(validators: Sequence[Validator], schema: pa.Schema) -> None:
    """Check that the validators' queries fit the table's columns. Call it before anything is written.

    Raises:
        InvalidInputError: a query does not fit the columns; the message names the query and the column.
    """
    for validator in validators:
        if isinstance(validator, SqlValidator):
            bind_select(validator.select, schema)


def run_validators(hooks: Hooks, write: ProposedWrite) -> None:
    """Run the validators in order. If the hooks say so, a refusal is only logged.

    Raises:
        ValidationFailedError: a validator refuses the write; the message names the validator and its finding. Later
            validators do not run.
    """
    for validator in hooks.validators:
        try:
            validator.check(write)
        except ValidationFailedError as error:
            if not hooks.only_warns:
                raise
            _LOG.warning("%s, but %s=WARN_LOG: it goes on", str(error).partition(";")[0], _FAILURE_POLICY)
        else:
            _LOG.debug("validator %s passed", validator.name)


_ON: Final = "hoodie.write.commit.callback."
_HTTP_CLASS: Final = "org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback"


@public
@dataclass(frozen=True)
class CommitMessage:
    """The argument of a callback (Hudi: ``HoodieWriteCommitCallbackMessage``).

    Attributes:
        commit_time: the instant time.
        base_path: the table's folder or URL.
        action: ``commit`` or ``replacecommit``.
        operation: ``upsert``, ``insert`` ...
        stats: the write stats of the written files.
        extra_metadata: the extra metadata that the user set, and the batch ids; not the schema and the write report.
    """

    commit_time: str
    table_name: str
    base_path: str
    action: str
    operation: str
    stats: tuple[WriteStat, ...]
    extra_metadata: Mapping[str, str]

    def as_json(self) -> bytes:
        """Encode the message as JSON, with the field names of Hudi's message."""
        document = {
            "commitTime": self.commit_time,
            "tableName": self.table_name,
            "basePath": self.base_path,
            "commitActionType": self.action,
            "operationType": self.operation,
            "hoodieWriteStat": [asdict(stat) for stat in self.stats],
            "extraMetadata": dict(self.extra_metadata),
        }
        return json.dumps(document).encode()


@dataclass(frozen=True)
class HttpCallback:
    """A callback that POSTs the message as JSON (Hudi: ``HoodieWriteCommitHttpCallbackClient``)."""

    url: str
    timeout_seconds: int
    headers: Mapping[str, str]

    def __call__(self, message: CommitMessage) -> None:
        """Send the message. Raise ``OSError`` if the server does not answer with success."""
        from urllib.request import Request, urlopen  # A top-level import would double lakeformat's import time.

        headers = {"Content-Type": "application/json", **self.headers}
        request = Request(self.url, message.as_json(), headers, method="POST")  # noqa: S310  Checked: http or https.
        with urlopen(request, timeout=self.timeout_seconds):  # noqa: S310
            pass


Callback = Callable[[CommitMessage], Any]


def callbacks_of(options: Options, functions: Sequence[Callback] = ()) -> tuple[Callback, ...]:
    """Return the callbacks that the options name, then the caller's functions.

    Raises:
        InvalidOptionError: a class, URL, header or function cannot be used.
    """
    callbacks: list[Callback] = []
    if options[_ON + "on"]:
        kind = options[_ON + "class"]
        if kind != _HTTP_CLASS:
            raise InvalidOptionError(
                f"option {_ON}class={kind} is not known; leave it out for HTTP, or use lakeformat.transaction.callbacks"
            )
        url = options[_ON + "http.url"] or ""
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidOptionError(f"option {_ON}http.url={url!r} is not an http or https address; give one")
        headers = {"HUDI-CALLBACK-KEY": options[_ON + "http.api.key"]}
        headers.update(_headers(options[_ON + "http.custom.headers"] or ""))
        callbacks.append(HttpCallback(url, options[_ON + "http.timeout.seconds"], headers))
    option = "lakeformat.transaction.callbacks"
    callbacks += [load_callable(place, option=option) for place in options[option]]
    return (*callbacks, *functions)


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, mark, value = part.partition(":")
        if not mark or not name.strip():
            raise InvalidOptionError(f"option {_ON}http.custom.headers: {part!r} is not a header; write name:value;...")
        headers[name.strip()] = value.strip()
    return headers


def notify(callbacks: Sequence[Callback], message: CommitMessage) -> None:
    """Call all callbacks. Log their errors; the commit stays visible."""
    for callback in callbacks:
        try:
            callback(message)
        except Exception as error:
            name = callback.url if isinstance(callback, HttpCallback) else callable_name(callback)
            _LOG.warning(
                "callback %s failed after commit %s of %s: %s", name, message.commit_time, message.base_path, error
            )


_STATEMENT_LENGTH: Final = 500


_OPTIONS_GO: Final = "; options are given to lakeformat.open(path, ...) or create"


class HookArguments(TypedDict, total=False):
    """Arguments that every writing method takes.

    Attributes:
        validators: functions that get a `ProposedWrite`, and raise or return False to refuse it.
        callbacks: functions that get a `CommitMessage` once the write is visible; their errors are logged.
        extra_metadata: maps keys to the texts that are stored under them in the commit's extra metadata.
    """

    validators: Sequence[Callable[[ProposedWrite], Any]]
    callbacks: Sequence[Callback]
    extra_metadata: Mapping[str, str]


public(HookArguments)


@dataclass(frozen=True)
class Hooks:
    """The parsed validators and callbacks, and the checked extra metadata, of a write.

    Attributes:
        only_warns: whether a validator's refusal is a warning, and the write goes on.
    """

    validators: tuple[Validator, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    only_warns: bool = False

    def with_verb(self, verb: str) -> Hooks:
        """Return these hooks with a verb that the history shows, such as ``update`` for an ``upsert``."""
        return replace(self, extra_metadata={**self.extra_metadata, VERB_KEY: verb})


def check_hooks(options: Options, schema: pa.Schema) -> None:
    """Check that the hooks in the options can be used. Call it before a write starts.

    Args:
        schema: the table's columns after the write.

    Raises:
        InvalidOptionError: a validator, query, callback or batch id in the options cannot be used.
        InvalidInputError: a query does not fit the columns, or extra metadata has a reserved name.
    """
    check_validators(hooks_of(options).validators, schema)
    batch_of(options)


def check_hook_names(arguments: Mapping[str, Any], verb: str, own: Sequence[str] = ()) -> None:
    """Raise an error if a writing method was called with an unknown argument.

    Args:
        arguments: arguments given in addition to the method's own ones.
        verb: name of the method, for the message.
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
    """Return the hooks of a write: those in the options, then those in the arguments.

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
    only_warns = options.write.failure_policy == "WARN_LOG"
    return Hooks(validators_of(options, validators), callbacks_of(options, callbacks), extra, only_warns)


def with_statement(options: Options, text: str) -> Options:
    """Return the options with the text of a SQL statement, cut to 500 characters, as extra metadata of the commit."""
    shortened = text if len(text) <= _STATEMENT_LENGTH else f"{text[: _STATEMENT_LENGTH - 3]}..."
    return replace(options, extra_metadata={**options.extra_metadata, STATEMENT_KEY: shortened})
