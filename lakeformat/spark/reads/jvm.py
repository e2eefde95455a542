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
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lakeformat.spark.jobs import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BLOCK_BYTES", "SparkJvm", "open_jvm", "status_bytes", "written_ms"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Block size in the file statuses that Spark gets, 128 MiB.
BLOCK_BYTES: Final = 128 << 20
#: Seconds in which the JVM must have called Python back.
_ANSWER_S: Final = 10
#: The class whose name ``explain`` shows for our file index: it passes each call on to Python. An interface of Java
#: that Python implements has a class without a name of its own (``$Proxy27``).
_FILE_INDEX: Final = """
package lakeformat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
public final class LakehouseFileIndex implements FileIndex {
    private final FileIndex python;
    public LakehouseFileIndex(FileIndex python) { this.python = python; }
    public Seq rootPaths() { return this.python.rootPaths(); }
    public Seq listFiles(Seq partitions, Seq data) { return this.python.listFiles(partitions, data); }
    public String[] inputFiles() { return this.python.inputFiles(); }
    public void refresh() { this.python.refresh(); }
    public long sizeInBytes() { return this.python.sizeInBytes(); }
    public StructType partitionSchema() { return this.python.partitionSchema(); }
    public Option metadataOpsTimeNs() { return this.python.metadataOpsTimeNs(); }
    public String toString() { return this.python.toString(); }
    public int hashCode() { return this.python.hashCode(); }
    public boolean equals(Object other) {
        return other instanceof LakehouseFileIndex && this.toString().equals(other.toString());
    }
}
"""
_FILES: Final = "org.apache.hadoop.fs."
_SOURCES: Final = "org.apache.spark.sql.execution.datasources."


def open_jvm(spark: SparkSession) -> SparkJvm | None:
    """Return the calls into the session's JVM; None if the JVM cannot call Python, as over Spark Connect."""
    context: Any = context_of(spark)
    if context is None:
        return None
    try:
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(context._gateway)
        known = _OPENED.get(context._gateway)
        if known is None:
            known = _OPENED[context._gateway] = SparkJvm(context._gateway)
        known.check_callbacks()
    except Exception as error:  # E.g. the callback server was shut down, or a later Spark has other classes.
        reason = str(error).strip().partition("\n")[0]
        _LOG.info("Spark's planner cannot ask for files, because its JVM cannot call this process: %s", reason)
        return None
    return known


class _Answer:
    """A Java supplier of the text ``here``, in Python."""

    def get(self) -> str:
        return "here"

    class Java:
        implements = ("java.util.function.Supplier",)


class SparkJvm:
    """The classes and functions of one JVM that a file index needs.

    Attributes:
        gateway: Py4J's gateway to the JVM.
        path, text: the classes of Hadoop's paths and Java's texts.
        none: Scala's ``None``.
        no_values: the partition values of files without partition columns.
    """

    def __init__(self, gateway: Any) -> None:
        self.gateway, jvm = gateway, gateway.jvm
        # Each name is looked up once, because each part of a name calls the JVM.
        self._class_of, self._loader = jvm.java.lang.Class.forName, jvm.Thread.currentThread().getContextClassLoader()
        self._list, self._stream, self._int = jvm.java.util.ArrayList, jvm.java.util.Arrays.stream, jvm.int
        self._wrap, self._bytes = jvm.java.nio.ByteBuffer.wrap, jvm.java.io.ByteArrayInputStream
        self._data, self._matrix = jvm.java.io.DataInputStream, jvm.org.apache.hadoop.io.TwoDArrayWritable
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._future, self._seconds = (
            jvm.java.util.concurrent.CompletableFuture,
            jvm.java.util.concurrent.TimeUnit.SECONDS,
        )
        self._proxies = jvm.java.lang.invoke.MethodHandleProxies
        self.path, self.text = jvm.org.apache.hadoop.fs.Path, jvm.java.lang.String
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._and, self._bind = catalyst.expressions.And, catalyst.expressions.BindReferences.bindReference
        self._attributes = getattr(catalyst.expressions, "package$AttributeSeq")
        self._columns = catalyst.types.DataTypeUtils.toAttributes
        self._predicate = self.scala_object("org.apache.spark.sql.catalyst.expressions.Predicate$")
        self._as_lazy = getattr(self.scala_object("scala.collection.immutable.LazyList$"), "from")
        self.none, self._nil = map(self.scala_object, ("scala.None$", "scala.collection.immutable.Nil$"))
        self.no_values = self.scala_object("org.apache.spark.sql.catalyst.InternalRow$").empty()
        patterns = self.scala_object("org.apache.spark.sql.catalyst.trees.TreePattern$")
        self._left_to_spark = (patterns.PLAN_EXPRESSION(), patterns.DYNAMIC_PRUNING_EXPRESSION())
        self._make_functions()
        self._named: Any = self._compile_file_index()

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

    def _compile_file_index(self) -> Any:
        """Return the constructor of the class `_FILE_INDEX`; None if the JVM cannot compile it.

        The compiler is that of Spark's own generated code. The text is a constant: nothing of a table gets into it.
        """
        try:
            compiler = self.gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(self._loader)
            compiler.cook(_FILE_INDEX)
            return compiler.getClassLoader().loadClass("lakeformat.LakehouseFileIndex").getConstructors()[0]
        except Exception as error:
            _LOG.info("explain shows no name for the file index: %s", str(error).strip().partition("\n")[0])
            return None

    def named_index(self, index: Any) -> Any:
        """Return a file index of Spark that passes each call on to ``index``, and whose class has a name."""
        if self._named is None:
            return index
        arguments = self._list()
        arguments.add(index)
        return self._named.newInstance(arguments.toArray())

    def check_callbacks(self) -> None:
        """Raise an error if the JVM cannot call Python from threads of its own, as Spark's planner does."""
        answer = self._future.supplyAsync(_Answer()).get(_ANSWER_S, self._seconds)
        if answer != "here":
            raise ValueError(f"a wrong answer: {answer}")

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
        data = b"".join((sizes, *(status for each in statuses for status in each)))
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
        own = [each for each in filters if not any(each.containsPattern(kind) for kind in self._left_to_spark)]
        if not own:
            return directories
        whole, columns = reduce(self._and, own), self._columns(schema)
        named = whole.references().toSeq()
        for at in range(named.size()):
            column = named.apply(at)
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
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
