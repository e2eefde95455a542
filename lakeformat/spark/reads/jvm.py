"""Calls into Spark's JVM that handle a whole list at once.

A call through Py4J takes about 0.1 ms, so a call for each file of a large table would take minutes. Here files reach
the JVM as one array of bytes, in Hadoop's own binary form of a file status, which holds data only. Method handles of
Java, which are made once, then turn the list into Spark's objects without calls to Python.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache, reduce
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lakeformat.spark.jobs import context_of
from lakeformat.spark.reads.planner import Planner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BLOCK_BYTES", "SparkJvm", "open_jvm", "status_bytes", "written_ms"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Block size in the file statuses that Spark gets, 128 MiB.
BLOCK_BYTES: Final = 128 << 20
_FILES: Final = "org.apache.hadoop.fs."
_SOURCES: Final = "org.apache.spark.sql.execution.datasources."


def open_jvm(spark: SparkSession) -> SparkJvm | None:
    """Return the calls into the session's JVM; None if there are none, as over Spark Connect."""
    context: Any = context_of(spark)
    if context is None:
        return None
    try:
        with _OPENING:
            opened = _OPENED.get(context._gateway)
            if opened is None:
                opened = _OPENED[context._gateway] = SparkJvm(context._gateway)
            return opened
    except Exception as error:  # E.g. a later Spark has other classes.
        reason = str(error).strip().partition("\n")[0]
        _LOG.info("Spark's planner cannot ask for files, because its JVM has other classes: %s", reason)
        return None


class SparkJvm:
    """The classes and functions of one JVM that a file index needs.

    Attributes:
        gateway: Py4J's gateway to the JVM.
        path, text: the classes of Hadoop's paths and Java's texts.
        no_values: the partition values of files without partition columns.
        planner: the questions of Spark's planner.
    """

    def __init__(self, gateway: Any) -> None:
        self.gateway, jvm = gateway, gateway.jvm
        # Each name is looked up once, because each part of a name calls the JVM.
        self._class_of, self._loader = jvm.java.lang.Class.forName, jvm.Thread.currentThread().getContextClassLoader()
        self._list, self._stream, self._int = jvm.java.util.ArrayList, jvm.java.util.Arrays.stream, jvm.int
        self._wrap, self._bytes = jvm.java.nio.ByteBuffer.wrap, jvm.java.io.ByteArrayInputStream
        self._data, self._matrix = jvm.java.io.DataInputStream, jvm.org.apache.hadoop.io.TwoDArrayWritable
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._proxies = jvm.java.lang.invoke.MethodHandleProxies
        self.path, self.text = jvm.org.apache.hadoop.fs.Path, jvm.java.lang.String
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._and, self._bind = catalyst.expressions.And, catalyst.expressions.BindReferences.bindReference
        self._attributes = getattr(catalyst.expressions, "package$AttributeSeq")
        self._columns = catalyst.types.DataTypeUtils.toAttributes
        self._predicate = self.scala_object("org.apache.spark.sql.catalyst.expressions.Predicate$")
        self._as_lazy = getattr(self.scala_object("scala.collection.immutable.LazyList$"), "from")
        self._nil = self.scala_object("scala.collection.immutable.Nil$")
        self.no_values = self.scala_object("org.apache.spark.sql.catalyst.InternalRow$").empty()
        patterns = self.scala_object("org.apache.spark.sql.catalyst.trees.TreePattern$")
        self._left_to_spark = (patterns.PLAN_EXPRESSION(), patterns.DYNAMIC_PRUNING_EXPRESSION())
        self._make_functions()
        self.planner = Planner(gateway)

    def _make_functions(self) -> None:
        """Make functions of Scala from methods of Spark and Hadoop, so that the JVM maps lists without Python."""
        jvm, find_class = self.gateway.jvm, self._class
        row, directory = (
            find_class("org.apache.spark.sql.catalyst.InternalRow"),
            find_class(f"{_SOURCES}PartitionDirectory"),
        )
        path, uri = find_class(f"{_FILES}Path"), find_class("java.net.URI")
        invoke = jvm.java.lang.invoke
        find, returning, self._then = (
            invoke.MethodHandles.publicLookup(),
            invoke.MethodType.methodType,
            invoke.MethodHandles,
        )
        self._status = find_class(f"{_FILES}FileStatus")
        as_list = returning(find_class("java.util.List"), find_class("[Ljava.lang.Object;"))
        self._as_list = find.findStatic(find_class("java.util.Arrays"), "asList", as_list).asFixedArity()
        arguments = self.gateway.new_array(jvm.java.lang.Class, 1)
        arguments[0] = find_class(f"[L{_FILES}FileStatus;")
        make = find.findStatic(directory, "apply", returning(directory, row, arguments))
        self._make = self._function(make, "scala.Function2").tupled()
        self._values = find.findVirtual(directory, "values", returning(row))
        tested = find_class("org.apache.spark.sql.catalyst.expressions.BasePredicate")
        self._test = find.findVirtual(tested, "eval", returning(jvm.java.lang.Boolean.TYPE, row))
        listed = returning(find_class("scala.collection.immutable.Seq"))
        self._files = self._function(find.findVirtual(directory, "files", listed))
        address = find.findVirtual(find_class(f"{_SOURCES}FileStatusWithMetadata"), "getPath", returning(path))
        for owner, name, of in ((path, "toUri", uri), (uri, "toString", find_class("java.lang.String"))):
            address = self._then.filterReturnValue(address, find.findVirtual(owner, name, returning(of)))
        self._address = self._function(address)

    def scala_object(self, name: str) -> Any:
        """Return the instance of a Scala object, by the name of its class."""
        return self._class(name).getField("MODULE$").get(None)

    def _class(self, name: str) -> Any:
        return self._class_of(name, True, self._loader)

    def _function(self, handle: Any, name: str = "scala.Function1") -> Any:
        """Return a method handle as a function of Scala."""
        return self._proxies.asInterfaceInstance(self._class(name), handle)

    def sequence(self, array: Any) -> Any:
        """Return an array of the JVM as a sequence of Scala."""
        arguments = self._list()
        arguments.add(array)
        return self._as_scala(self._as_list.invokeWithArguments(arguments)).toIndexedSeq()

    def one(self, item: Any) -> Any:
        """Return a sequence of Scala with one item."""
        return self._nil.prepended(item)

    def take(self, items: Any, places: Sequence[int]) -> Any:
        """Return the items of a sequence of Scala at these places, in this order."""
        numbers = self.gateway.new_array(self._int, len(places))
        self._wrap(struct.pack(f">{len(places)}i", *places)).asIntBuffer().get(numbers)
        return self._as_scala(self._stream(numbers).boxed().toList()).toIndexedSeq().map(items)

    def directories(self, values: Any, statuses: Sequence[Sequence[bytes]]) -> Any:
        """Return Spark's partition directories.

        Args:
            values: a sequence of Scala with the partition values of each directory.
            statuses: for each directory its files (`status_bytes`).
        """
        sizes = struct.pack(f">{len(statuses) + 1}i", len(statuses), *map(len, statuses))
        read = self._matrix(self._status)
        data = b"".join((sizes, *(status for statuses_of in statuses for status in statuses_of)))
        read.readFields(self._data(self._bytes(data)))
        return values.zip(self.sequence(read.toArray())).map(self._make)

    def select(self, directories: Any, filters: Iterable[Any], schema: Any) -> Any:
        """Return those directories whose partition values satisfy all filters, as Spark itself decides it.

        Spark evaluates the filters when it reads the result, so that their errors reach the user as Spark's own.
        Filters with subqueries are left out: Spark applies these to the answer of a file index.

        Args:
            filters: Catalyst expressions on partition columns.
            schema: the partition columns, as a struct type of Spark.
        """
        own = [
            expression
            for expression in filters
            if not any(expression.containsPattern(kind) for kind in self._left_to_spark)
        ]
        if not own:
            return directories
        whole, columns = reduce(self._and, own), self._columns(schema)
        named = whole.references().toSeq()
        for number in range(named.size()):
            column = named.apply(number)
            columns = columns.updated(schema.fieldIndex(column.name()), column)
        predicate = self._predicate.createInterpreted(self._bind(whole, self._attributes(columns), False))
        test = self._then.filterReturnValue(self._values, self._test.bindTo(predicate))
        return self._as_lazy(directories).filter(self._function(test))

    def addresses(self, directories: Any) -> Any:
        """Return the URLs of the files as an array of texts."""
        if not directories.size():
            return self.gateway.new_array(self.text, 0)
        joined = directories.flatMap(self._files).map(self._address).mkString("\n")
        return self.gateway.jvm.java.util.regex.Pattern.compile("\n").split(joined)


_OPENED: Final[WeakKeyDictionary[Any, SparkJvm]] = WeakKeyDictionary()
_OPENING: Final = Lock()


def status_bytes(uri: str, size_bytes: int, written_ms: int) -> bytes:
    """Return the status of a file in the binary form that Hadoop's ``FileStatus`` reads: a message of Protocol Buffers.

    Every text in it is preceded by its length, so no character of a path has a meaning of its own.
    """
    path = uri.encode()
    message = b"".join((
        b"\x08\x02\x12", _varint(len(path)), path,  # a file; its path
        b"\x18", _varint(size_bytes),
        b"\x22\x03\x08\xa4\x03",  # permissions rw-r--r--
        b"\x2a\x00\x32\x00",  # owner and group
        b"\x38", _varint(written_ms), b"\x40\x00",  # times of the last change and of the last access
        b"\x50\x01\x58", _varint(BLOCK_BYTES),  # copies, block size
    ))  # fmt: skip
    return struct.pack(">i", len(message)) + message


def written_ms(instant_time: str) -> int:
    """Return the modification time that Spark gets for a file: its instant time, to the second, in Unix ms."""
    return _second_ms(instant_time[:14])


@lru_cache(maxsize=4096)
def _second_ms(text: str) -> int:
    return int(datetime.strptime(text, "%Y%m%d%H%M%S").timestamp()) * 1000


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
