"""Questions of Spark's planner to this process, through a queue of the JVM.

Py4J can pass a call of the JVM on to Python. For each thread of the JVM that calls, it opens a connection and starts a
thread of Python, and ends neither. Spark plans in ever new threads, so a long session would run out of files.
Therefore the file index that Spark gets is a class of Java, which puts its questions into a queue. A fixed number of
threads of this process take questions from the queue and answer them, as long as the gateway lives. The JVM never calls
Python, so no callback server is needed.
"""

from __future__ import annotations

import logging
from itertools import count
from threading import Thread
from typing import Any, Final, Protocol

__all__ = ["Planner", "PlannerIndex"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Number of questions that are answered at a time. Each thread holds one connection to the JVM.
_THREADS: Final = 4
#: The file index that Spark gets. ``explain`` shows the name of its class. A question is an array: the number of the
#: index, the future of the answer, and the two lists of filters if a scan asks for its files. The number alone says
#: that Spark does not need the index any more.
_FILE_INDEX: Final = """
package lakeformat;
import java.lang.ref.Cleaner;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.Seq;
public final class LakehouseFileIndex implements FileIndex {
    private final Queue questions;
    private final Number number;
    private final Seq roots;
    private final StructType partitions;
    private final Number size;
    private final String identity;
    public LakehouseFileIndex(Queue questions, Cleaner cleaner, Number number, Seq roots, StructType partitions,
                              Number size, String identity) {
        this.questions = questions;
        this.number = number;
        this.roots = roots;
        this.partitions = partitions;
        this.size = size;
        this.identity = identity;
        cleaner.register(this, new Farewell(questions, number));
    }
    private static final class Farewell implements Runnable {
        private final Queue questions;
        private final Number number;
        Farewell(Queue questions, Number number) { this.questions = questions; this.number = number; }
        public void run() { this.questions.add(new Object[] {this.number}); }
    }
    private Object ask(Object[] question) {
        CompletableFuture answer = new CompletableFuture();
        question[0] = this.number;
        question[1] = answer;
        this.questions.add(question);
        try {
            return answer.get();
        } catch (ExecutionException error) {
            Platform.throwException(error.getCause());
        } catch (InterruptedException error) {
            Platform.throwException(error);
        }
        return null;
    }
    public Seq listFiles(Seq partitions, Seq data) { return (Seq) ask(new Object[] {null, null, partitions, data}); }
    public String[] inputFiles() { return (String[]) ask(new Object[] {null, null}); }
    public Seq rootPaths() { return this.roots; }
    public void refresh() { }
    public long sizeInBytes() { return this.size.longValue(); }
    public StructType partitionSchema() { return this.partitions; }
    public Option metadataOpsTimeNs() { return Option.apply(null); }
    public String toString() { return this.identity; }
    public int hashCode() { return this.identity.hashCode(); }
    public boolean equals(Object other) {
        return other instanceof LakehouseFileIndex && this.identity.equals(other.toString());
    }
}
"""


class PlannerIndex(Protocol):
    """The answers of a file index.

    Attributes:
        roots: the table's folder, as a sequence of Hadoop's paths.
        partitions: the declared partition columns, as Spark's struct type.
        size_bytes: size of all files, by which Spark chooses joins.
    """

    roots: Any
    partitions: Any
    size_bytes: int

    @property
    def identity(self) -> str:
        """Return a text that is the same for indexes of the same files. Spark may use one plan for both."""

    def list_files(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the partition directories that a scan with these filters must read."""

    def input_files(self) -> Any:
        """Return the URLs of all files."""


class Planner:
    """Answers the questions of one JVM's planner."""

    def __init__(self, gateway: Any) -> None:
        """Compile the class and start the threads.

        The compiler is that of Spark's own generated code. The text is a constant: nothing of a table gets into it.

        Raises:
            Exception: the JVM cannot compile the class, e.g. because a later Spark has another interface.
        """
        jvm = gateway.jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_FILE_INDEX)
        named = compiler.getClassLoader().loadClass("lakeformat.LakehouseFileIndex")
        self._make, self._list = named.getConstructors()[0], jvm.java.util.ArrayList
        self._error, self._cleaner = jvm.java.lang.RuntimeException, jvm.java.lang.ref.Cleaner.create()
        self._questions = jvm.java.util.concurrent.LinkedBlockingQueue()
        self._indexes: dict[int, PlannerIndex] = {}
        self._numbers = count()
        for number in range(_THREADS):
            Thread(target=self._serve, name=f"lakeformat-planner-{number}", daemon=True).start()

    def index_for_spark(self, index: PlannerIndex) -> Any:
        """Return a file index of Spark that asks ``index``, which is kept until Spark's garbage collector frees it."""
        number, arguments = next(self._numbers), self._list()
        facts = (index.roots, index.partitions, index.size_bytes, index.identity)
        for argument in (self._questions, self._cleaner, number, *facts):
            arguments.add(argument)
        made = self._make.newInstance(arguments.toArray())
        self._indexes[number] = index
        return made

    def _serve(self) -> None:
        """Answer questions until the JVM has gone."""
        try:
            while True:
                self._serve_one()
        except Exception as error:
            _LOG.debug("no more questions of Spark's planner are answered: %s", error)

    def _serve_one(self) -> None:
        number, *rest = self._questions.take()
        if rest:
            self._answer(self._indexes[number], *rest)
        else:
            self._indexes.pop(number)

    def _answer(self, index: PlannerIndex, answer: Any, *filters: Any) -> None:
        try:
            files = index.list_files(*filters) if filters else index.input_files()
        except Exception as error:
            _LOG.warning("Spark's planner gets an error: %s", error)
            answer.completeExceptionally(getattr(error, "java_exception", None) or self._error(str(error)))
        else:
            answer.complete(files)
