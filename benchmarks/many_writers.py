"""``python -m benchmarks.many_writers``: the requests of a commit on S3, and the throughput of 8 writers.

Runs against versitygw on this machine (``tools/setup_servers.py``), or moto with ``--server moto``. A proxy counts the
requests and adds latency. The write is an upsert of 10,000 rows into 8 files (8 partitions of one file), without a
metadata table. The program fails if a commit has more than 27 requests and 2 for each file, or if 8 writers on disjoint
partitions are not three times as fast as one writer. The probe of the server, once per process, is not counted.
``.work/bench/many_writers.json`` gets the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.peers_setup import ROOT
from benchmarks.results import machine
from benchmarks.workload import WORK
from lakeformat.storage import open_storage
from tests.helpers.fault_proxy import FaultProxy, Request, fault_proxy
from tests.helpers.servers import Server, start_server

RESULTS: Final = WORK / "many_writers.json"
ROWS, FILES = 10_000, 8
#: The limits: requests of a commit, and of each file that it writes.
COMMIT_REQUESTS, FILE_REQUESTS = 27, 2
#: The limit of the throughput of many writers, as a multiple of one writer's.
SPEEDUP: Final = 3.0
OPTIONS: Final[Mapping[str, Any]] = {"hoodie.write.table.version": 9, "hoodie.metadata.enable": False}
#: The kinds of paths, with texts that are in the paths of the kind. The first that fits counts.
KINDS: Final[Sequence[tuple[str, str]]] = (
    ("state file", "/.lakeformat/state"),
    ("claim", "/.lakeformat/pending"),
    ("file index", "/.lakeformat/index"),
    ("other files of lakeformat", "/.lakeformat"),
    ("heartbeat", "/.heartbeat"),
    ("marker", "/.temp"),
    ("timeline", "/.hoodie/timeline"),
    ("hoodie.properties", "hoodie.properties"),
    ("other in .hoodie", "/.hoodie"),
    ("partition marker", ".hoodie_partition_metadata"),
    ("data file", ".parquet"),
)


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of a number of writers, and the processor seconds of a commit."""

    writers: int
    commits: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Return the commits per second."""
        return self.commits / self.seconds


def rows(writer: int, seed: int) -> pa.Table:
    """Return the rows of an upsert: the keys of the partitions of one writer, with new values."""
    ids = np.arange(ROWS) + writer * ROWS
    parts = [f"p{writer * FILES + number % FILES:03}" for number in range(ROWS)]
    return pa.table({"id": ids, "part": parts, "v": np.random.default_rng(seed).random(ROWS)})


def create(server: Server, writers: int) -> str:
    """Create a table with the rows of all writers, and return its URL."""
    url = server.new_url()
    table = lakeformat.create(
        url, rows(0, 0).schema, record_key="id", partition_by="part", storage_options=server.options, **OPTIONS
    )
    table.upsert(pa.concat_tables([rows(writer, 0) for writer in range(writers)]))
    return url


# --- requests ---------------------------------------------------------------------------------------------


def kind_of(request: Request) -> str:
    """Return the kind of a request's path; of a listing, that of the listed folder."""
    prefix = urllib.parse.parse_qs(request.query).get("prefix", [""])[0]
    path = f"{request.path}/{prefix}"
    return next((kind for kind, text in KINDS if text in path), "table folder")


def name_of(request: Request) -> str:
    """Return the method of a request; ``LIST`` for a listing."""
    return "LIST" if "list-type=2" in request.query or "comp=list" in request.query else request.method


def count_requests(server: Server, commits: int) -> tuple[Counter[tuple[str, str]], list[int]]:
    """Return the requests of the middle commit by kind and method, and the number of requests of all commits.

    Each commit is made by a table that has been opened for it, as by a new job.
    """
    url = create(server, 1)
    found: list[Counter[tuple[str, str]]] = []
    for seed in range(1, commits + 1):
        with fault_proxy(server.endpoint) as proxy:
            options = server.through(proxy.url).options
            if not open_storage(url, **options).has_versions:  # The probe. Each proxy counts as a server of its own.
                raise RuntimeError(f"{server.name} does not respect conditional writes")
            proxy.log.clear()
            table = lakeformat.open(url, storage_options=options)
            table.upsert(rows(0, seed))
            found.append(Counter((kind_of(request), name_of(request)) for request, _ in proxy.log))
    totals = [each.total() for each in found]
    return sorted(found, key=Counter.total)[len(found) // 2], totals


def request_lines(counts: Counter[tuple[str, str]]) -> Iterable[str]:
    """Yield the Markdown table of the requests."""
    methods = sorted({method for _, method in counts})
    yield f"| requests of one commit | {' | '.join(methods)} | all |"
    yield f"| --- |{' ---: |' * (len(methods) + 1)}"
    for kind in dict.fromkeys([*(kind for kind, _ in KINDS), "table folder"]):
        each = [counts[kind, method] for method in methods]
        if sum(each):
            yield f"| {kind} | {' | '.join(str(count or '') for count in each)} | {sum(each)} |"
    sums = [sum(count for (_, each), count in counts.items() if each == method) for method in methods]
    yield f"| all | {' | '.join(map(str, sums))} | {counts.total()} |"


# --- throughput -------------------------------------------------------------------------------------------


def write(url: str, options: Mapping[str, Any], writer: int, commits: int) -> None:
    """Write as one of several processes: make a commit, wait for a line on standard input, then make the others.

    Print the times of the beginning and the end, by a clock that all processes share, and the processor seconds.
    """
    table = lakeformat.open(url, storage_options=dict(options))
    table.upsert(rows(writer, 1))
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu_began = monotonic(), process_time()
    for seed in range(commits):
        table.upsert(rows(writer, seed + 2))
    print(json.dumps([began, monotonic(), process_time() - cpu_began]), flush=True)


def measure(server: Server, proxy: FaultProxy, writers: int, commits: int) -> Throughput:
    """Measure writers that write disjoint partitions of a new table."""
    url, options = create(server, writers), json.dumps(server.through(proxy.url).options)
    command = [sys.executable, "-m", "benchmarks.many_writers", "--commits", str(commits), "--url", url]
    processes = [
        subprocess.Popen(
            [*command, "--options", options, "--writer", str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for writer in range(writers)
    ]
    try:
        for process in processes:
            _wait_for(process)
        for process in processes:
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        times = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    seconds = max(end for _, end, _ in times) - min(began for began, _, _ in times)
    return Throughput(writers, writers * commits, seconds, sum(cpu for _, _, cpu in times) / (writers * commits))


def _wait_for(process: subprocess.Popen[str]) -> None:
    """Wait until a writer is ready."""
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError(f"a writer has failed: {process.args!r}")


# --- the program ------------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_writers", description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="versitygw", choices=("versitygw", "moto", "azurite"))
    parser.add_argument("--commits", type=int, default=8, help="commits of each writer")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that the proxy adds to a request")
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print Markdown. Return 1 if a limit is missed."""
    arguments = parse()
    if arguments.writer is not None:
        write(arguments.url, arguments.options, arguments.writer, arguments.commits)
        return 0
    limit, missed = COMMIT_REQUESTS + FILE_REQUESTS * FILES, []
    with start_server(arguments.server) as server:
        print(f"Upserts of {ROWS:,} rows into {FILES} files, {arguments.server}, {machine()['cores']} cores.\n")
        counts, totals = count_requests(server, 5)
        print("\n".join(request_lines(counts)))
        middle = median(totals)
        print(f"\nLimit: {COMMIT_REQUESTS} + {FILE_REQUESTS} for each file = {limit}.\n", flush=True)
        if middle > limit:
            missed.append(f"a commit makes {middle} requests, {limit} are allowed")
        with fault_proxy(server.endpoint, latency_seconds=arguments.latency) as proxy:
            one = measure(server, proxy, 1, arguments.commits)
            many = measure(server, proxy, arguments.writers, arguments.commits)
    ratio = many.per_second / one.per_second
    print(f"Latency of {arguments.latency * 1000:g} ms, {arguments.server}:\n")
    print("| writers | commits | seconds | commits / s | times one writer | CPU s / commit |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for each in (one, many):
        speedup = each.per_second / one.per_second
        figures = (f"{each.seconds:.1f}", f"{each.per_second:.2f}", f"{speedup:.2f}", f"{each.cpu_seconds:.2f}")
        print(f"| {each.writers} | {each.commits} | {' | '.join(figures)} |")
    if ratio < SPEEDUP:
        missed.append(f"{many.writers} writers are {ratio:.2f} times as fast as one, {SPEEDUP:g} times is wanted")
    save(arguments.server, counts, totals, (one, many))
    for text in missed:
        print(text, file=sys.stderr)
    return 1 if missed else 0


def save(server: str, counts: Counter[tuple[str, str]], totals: Sequence[int], found: Sequence[Throughput]) -> None:
    """Write the figures to `RESULTS`."""
    requests = {f"{method} {kind}": count for (kind, method), count in sorted(counts.items())}
    writers = [asdict(each) for each in found]
    figures = {"server": server, "requests": requests, "totals": totals, "writers": writers}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    Path(RESULTS).write_text(json.dumps({**figures, "machine": machine()}, indent=2))


if __name__ == "__main__":
    raise SystemExit(main())
