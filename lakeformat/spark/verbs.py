"""PySpark's verbs ``load`` and ``save`` for ``format("lakehouse")``, carried out in the user's process.

PySpark hands a Python data source neither columns nor executors, so the plain verbs are slow. `wrap_verbs` replaces the
methods of PySpark's classes, once per process: for this format a function of lakeformat (`_VERBS`) does the work, and a
call for any other format reaches the replaced method with the same arguments. `unwrap_verbs` puts the methods back.
``saveAsTable``, which cannot work, is refused. The verbs of streams, such as ``start``, stay: they use the data source.

What the user said before the verb, in any order, is read from the reader or writer: from its object in the JVM
(`jvm_members`), or over Spark Connect from its attributes. Spark may rename these members in any release, so they are
looked up when a verb is wrapped. If one is missing, this verb stays as PySpark made it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMAT", "Call", "options_in", "original_verb", "unwrap_verbs", "wrap_verbs"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: The name of the format. Spark compares names of Python data sources without regard to case.
FORMAT: Final = "lakehouse"


@dataclass(frozen=True)
class Call:
    """One call of a verb for ``format("lakehouse")``. Everything but the path has been said to the object.

    Attributes:
        target: the `DataFrameReader` or `DataFrameWriter`.
        path: the first argument: the path, or the table's name for ``saveAsTable``; None if it is not given.
        original: carries the call out as PySpark does, with the same arguments.
    """

    target: Any
    path: Any
    original: Callable[[], Any]


@dataclass(frozen=True)
class _Verb:
    """A method of PySpark that is replaced.

    Attributes:
        name: the method.
        classes: its classes by module: the one of classic Spark, and the one of Spark Connect.
        module, function: the function that carries out a `Call`. Its module is imported by the first call.
        jvm_object: attribute of the classic object that has its object in the JVM.
        jvm_members: methods of this object that the function needs.
        client_attributes: attributes that the object has over Spark Connect.
        sample: makes a classic object, by which the members are looked up.
        argument: the name of the first argument.
    """

    name: str
    classes: Mapping[str, str]
    module: str
    function: str
    jvm_object: str
    jvm_members: frozenset[str]
    client_attributes: frozenset[str]
    sample: Callable[[Any], Any]
    argument: str = "path"


#: The verbs that are wrapped.
_VERBS: Final = (
    _Verb(
        name="load",
        classes={
            "pyspark.sql.readwriter": "DataFrameReader",
            "pyspark.sql.connect.readwriter": "DataFrameReader",
        },
        module="lakeformat.spark.reads.load",
        function="load_frame",
        jvm_object="_jreader",
        jvm_members=frozenset({"source", "extraOptions", "userSpecifiedSchema"}),
        client_attributes=frozenset({"_client", "_format", "_options", "_schema"}),
        sample=lambda spark: spark.read,
    ),
    _Verb(
        name="save",
        classes={
            "pyspark.sql.readwriter": "DataFrameWriter",
            "pyspark.sql.connect.readwriter": "DataFrameWriter",
        },
        module="lakeformat.spark.writes.save",
        function="save",
        jvm_object="_jwrite",
        jvm_members=frozenset(
            {
                *("source", "extraOptions", "curmode"),
                *("partitioningColumns", "bucketColumnNames", "sortColumnNames", "clusteringColumns"),
            }
        ),
        client_attributes=frozenset({"_df", "_spark", "_write"}),
        sample=lambda spark: spark.range(1).write,
    ),
    _Verb(
        name="saveAsTable",
        classes={
            "pyspark.sql.readwriter": "DataFrameWriter",
            "pyspark.sql.connect.readwriter": "DataFrameWriter",
        },
        module="lakeformat.spark.writes.save",
        function="refuse_catalog",
        jvm_object="_jwrite",
        jvm_members=frozenset({"source"}),
        client_attributes=frozenset({"_write"}),
        sample=lambda spark: spark.range(1).write,
        argument="name",
    ),
)


@dataclass
class _Wrapped:
    """A replaced method.

    Attributes:
        owner: the class.
        name: the method.
        original: the function that the class had.
        wrapper: the function that replaces it.
        is_active: whether the wrapper handles the format. It stays in use, and passes every call on, if another
            library has wrapped it when `unwrap_verbs` is called.
    """

    owner: type
    name: str
    original: Callable[..., Any]
    wrapper: Callable[..., Any] = field(init=False)
    is_active: bool = True


_WRAPPED: Final[dict[tuple[type, str], _Wrapped]] = {}
_LOCK: Final = Lock()


def wrap_verbs(spark: SparkSession) -> None:
    """Replace the verbs of classic PySpark, and those of Spark Connect if it is in use. Do nothing the second time.

    Args:
        spark: a session, whose objects show whether the needed members exist.
    """
    is_classic = getattr(spark, "_jsparkSession", None) is not None
    with _LOCK:
        for verb in _VERBS:
            for module, name in verb.classes.items():
                is_connect = ".connect." in module
                # The module of Spark Connect needs packages that a classic session does without.
                if is_connect == is_classic and module not in sys.modules:
                    continue
                owner = getattr(import_module(module), name)
                if (owner, verb.name) not in _WRAPPED and _has_members(spark, verb, owner, is_connect=is_connect):
                    _wrap(verb, owner)


def _has_members(spark: Any, verb: _Verb, owner: type, *, is_connect: bool) -> bool:
    """Tell whether the objects of the class have the members that the verb needs. If not, log a line."""
    try:
        if is_connect:
            source = inspect.getsource(vars(owner)["__init__"])
            missing = sorted(name for name in verb.client_attributes if f"self.{name}" not in source)
        elif getattr(spark, "_jsparkSession", None) is None:
            return False  # A session of Spark Connect shows nothing of the classic classes.
        else:
            missing = sorted(verb.jvm_members.difference(dir(getattr(verb.sample(spark), verb.jvm_object))))
    except Exception as error:
        missing = [str(error).strip().partition("\n")[0]]
    if missing:
        _LOG.info('%s of format("lakehouse") stays as Spark has it, which lacks %s', verb.name, ", ".join(missing))
    return not missing


def _wrap(verb: _Verb, owner: type) -> None:
    original = owner.__dict__[verb.name]
    wrapped = _WRAPPED[owner, verb.name] = _Wrapped(owner, verb.name, original)
    signature = inspect.signature(original)
    #: Arguments that the object also takes by a method of the same name, such as ``format`` and ``mode``.
    said = [
        name for name, parameter in signature.parameters.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ][2:]

    @functools.wraps(original)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(self, *arguments, **named)
        except TypeError:  # PySpark raises its own error.
            return original(self, *arguments, **named)
        given = bound.arguments
        if not wrapped.is_active or not _is_ours(given.get("format"), self, verb):
            return original(self, *arguments, **named)
        if isinstance(given.get(verb.argument), os.PathLike):  # PySpark takes texts alone.
            given[verb.argument] = os.fspath(given[verb.argument])
        for name in said:
            if given.get(name) is not None:
                getattr(self, name)(given[name])
        self.options(**given.get("options", {}))
        run = getattr(import_module(verb.module), verb.function)
        return run(Call(self, given.get(verb.argument), lambda: original(*bound.args, **bound.kwargs)))

    wrapped.wrapper = wrapper
    setattr(owner, verb.name, wrapper)


def _is_ours(given: Any, target: Any, verb: _Verb) -> bool:
    """Tell whether a call is for this format: by its argument ``format``, else by what was said to the object."""
    if given is None:
        inner = getattr(target, verb.jvm_object, None)
        if inner is not None:
            given = inner.source()
        else:
            given = getattr(target, "_format", None) or getattr(getattr(target, "_write", None), "source", None)
    return isinstance(given, str) and given.lower() == FORMAT


def unwrap_verbs() -> None:
    """Put PySpark's own methods back."""
    with _LOCK:
        for wrapped in _WRAPPED.values():
            wrapped.is_active = False
            if wrapped.owner.__dict__.get(wrapped.name) is wrapped.wrapper:
                setattr(wrapped.owner, wrapped.name, wrapped.original)
        _WRAPPED.clear()


def options_in(spark: Any, options: Any) -> dict[str, str]:
    """Return a Scala map of options as a dict."""
    return dict(spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(options))


def original_verb(target: Any, name: str) -> Callable[..., Any]:
    """Return a method of a reader or writer as PySpark made it, bound to the object.

    lakeformat itself reads and writes by the data source with it.
    """
    wrapped = _WRAPPED.get((type(target), name))
    return getattr(target, name) if wrapped is None else functools.partial(wrapped.original, target)
