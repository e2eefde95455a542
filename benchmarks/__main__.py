"""``python -m benchmarks``: run the workload, print the table and store the results.

Environment: ``ROWS`` (default 4,000,000; 40,000,000 for growth), ``KEYS`` (``random``, ``ordered`` or ``mixed``),
``PEERS`` (comma-separated: delta-rs, delta, iceberg, hudi, or ``all``; default: those that are installed),
``HUDI_INDEX``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Final

from benchmarks.engines import ENGINES, EngineSpec
from benchmarks.peers_setup import SetupError, default_peers
from benchmarks.report import PAGE, ReadmeError, reads_section, section, update_block
from benchmarks.results import EngineResult, RunResult, load_results, machine, save_results
from benchmarks.runner import Runner, contradictions
from benchmarks.steps import LOGS, LOGS_ALONE, READS, STEPS, select
from benchmarks.targets import verdicts
from benchmarks.workload import KEYS, WORK, Variant, prepare

RESULTS: Final = WORK / "results.json"
_ENVIRONMENT: Final = ("ROWS", "KEYS", "PEERS", "HUDI_INDEX")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line. The environment gives the defaults."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", help=f"comma-separated, of: {', '.join(ENGINES)}")
    parser.add_argument("--steps", help=f"comma-separated, of: {', '.join(step.name for step in STEPS)}")
    parser.add_argument("--reads", action="store_true", help="reads on Spark as users write them, on a z-ordered table")
    parser.add_argument("--logs", action="store_true", help="writes beside the files, and what reads pay for them")
    parser.add_argument("--rows", type=int, default=int(os.environ.get("ROWS", "4000000")))
    parser.add_argument("--keys", choices=KEYS, default=os.environ.get("KEYS", "random"))
    parser.add_argument("--keep", action="store_true", help="leave the tables in .work/bench")
    parser.add_argument("--timeout", type=float, default=3_600, help="seconds for one engine's process")
    parser.add_argument("--readme", action="store_true", help="no run: put the last results into the docs")
    parser.add_argument("--targets", action="store_true", help="no run: hold the last results against the targets")
    return parser.parse_args(arguments)


def chosen_engines(wanted: str | None) -> list[str]:
    """Return the named engines, in the order of the table.

    Without names, return lakeformat, the floor, Spark's Parquet and the peers in ``PEERS``.
    """
    if wanted is None:
        peers = [name for name, spec in ENGINES.items() if spec.peer and not spec.by_name]
        peers_setting = os.environ.get("PEERS")
        some = (
            default_peers() if peers_setting is None else peers if peers_setting == "all" else peers_setting.split(",")
        )
        names = {name for name, spec in ENGINES.items() if not (spec.peer or spec.by_name)}
        names |= {name for name in some if name}
    else:
        names = set(wanted.split(","))
    if unknown := sorted(names - ENGINES.keys()):
        raise ValueError(f"no such engine: {', '.join(unknown)}; engines are {', '.join(ENGINES)}")
    return [name for name in ENGINES if name in names]


def reading_engines(chosen: Sequence[str]) -> list[str]:
    """Return all ways in which lakeformat reads on Spark, and the chosen peers that have the read steps."""
    ours = {name for name, spec in ENGINES.items() if not spec.peer}
    return [name for name, spec in ENGINES.items() if name in ours | {*chosen} and "partition" in spec.steps]


def merging_engines() -> list[str]:
    """Return lakeformat's copy-on-write engines and the merge-on-read engines of all, with delta-rs.

    ``PEERS`` selects the peers (default: all).
    """
    peers_setting = os.environ.get("PEERS", "all")
    named = {name.strip() for name in peers_setting.split(",")}

    def is_requested(spec: EngineSpec) -> bool:
        return not spec.peer or peers_setting == "all" or bool(named & {spec.name, spec.name.partition("-")[0]})

    ours = {"lakeformat", "lakeformat-spark"}
    merging = {name for name, spec in ENGINES.items() if "compact" in spec.steps} | {"delta-rs"}
    return [name for name, spec in ENGINES.items() if name in ours or (name in merging and is_requested(spec))]


def command_line() -> str:
    """Return the shell command that repeats this run."""
    settings = [f"{name}={shlex.quote(os.environ[name])}" for name in _ENVIRONMENT if os.environ.get(name)]
    return shlex.join([*settings, "python", "-m", "benchmarks", *sys.argv[1:]])


def result_name(arguments: argparse.Namespace) -> str:
    """Return the name under which the results of a run are stored."""
    kind = "reads-" if arguments.reads else "logs-" if arguments.logs else ""
    return kind + Variant(arguments.rows, arguments.keys).name


def run(arguments: argparse.Namespace) -> int:
    """Run the engines side by side. Return 1 if an engine fails or two engines disagree."""
    variant = Variant(arguments.rows, arguments.keys)
    engines = chosen_engines(arguments.engines)
    every = {step.name for step in STEPS} - LOGS_ALONE
    steps = select(every if arguments.steps is None else {"load", *arguments.steps.split(",")})
    if arguments.reads:
        engines = engines if arguments.engines else reading_engines(engines)
        steps = select({"load", "zorder", *READS})
    if arguments.logs:
        engines = engines if arguments.engines else merging_engines()
        steps = select(LOGS if arguments.steps is None else {"load", *arguments.steps.split(",")})
    print(f"preparing {variant.name}", file=sys.stderr, flush=True)
    own = {step for name in engines for step in ENGINES[name].steps}
    samples = [sample for step in steps if step.name in own for sample in step.sample_names()]
    runner = Runner(prepare(WORK, variant, samples), WORK / "engines", arguments.timeout, arguments.keep)
    found = RunResult(asdict(variant), date.today().isoformat(), command_line(), machine())
    for name in engines:
        print(f"{name}:", file=sys.stderr, flush=True)
        try:
            found.engines[name] = runner.run(ENGINES[name], steps)
        except SetupError as failure:
            found.engines[name] = EngineResult(failure=str(failure))
    save_results(RESULTS, load_results(RESULTS) | {result_name(arguments): found})
    print(reads_section(found) if arguments.reads else section(found))
    problems = contradictions(runner.dataset, found.engines)
    problems += [f"{name} failed: {result.failure}" for name, result in found.engines.items() if result.failure]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def main() -> int:
    """Run the workload, or process the results of the last run."""
    arguments = parse()
    if not (arguments.readme or arguments.targets):
        try:
            return run(arguments)
        except ValueError as mistake:
            print(mistake, file=sys.stderr)
            return 2
    runs = load_results(RESULTS)
    name = result_name(arguments)
    if name not in runs:
        print(f"no results for {name}; run `python -m benchmarks` first", file=sys.stderr)
        return 2
    missed = 0
    if arguments.targets:
        for verdict in verdicts(runs[name], runs):
            print(verdict)
            missed += not verdict.passed
    if arguments.readme:
        try:
            update_block(PAGE, "logs" if arguments.logs else "bench", section(runs[name]))
        except ReadmeError as failure:
            print(failure, file=sys.stderr)
            return 2
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
