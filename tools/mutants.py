"""Run mutants: ``python tools/mutants.py [room …]`` changes a module in small ways and runs the tests of its folder.

A change that no test notices is a survivor. `tests/mutants.txt` lists each survivor with the reason; the program
exits with 1 if a survivor is not in the list, or if the tests of a room catch less than 90 % of the mutants.

How it works: a process per room imports and collects the tests. A child of it runs all of them once and notes which
lines each test runs. Then each mutant gets a child of its own. The child replaces the code of one function in memory
and runs the tests that run the changed lines, the quickest first, until one fails. Its processor time is limited.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pickle
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from mutations import Mutant, find_mutants  # noqa: E402

LIST: Final = ROOT / "tests" / "mutants.txt"
#: Share of the mutants of a room that its tests must catch.
LEAST_SHARE: Final = 0.9
#: Memory that a mutant may take beyond that of its parent, in bytes.
_MEMORY: Final = 4 << 30
_NOT_READ: Final = "?"
#: Tests that run, as the option ``-m`` of pytest.
_MARKS: Final = "not slow and not interop and not nightly and not spark"
#: Plugins that are left out; without the last one all cases of expensive functions run.
_LEFT_OUT: Final = ("cacheprovider", "xdist", "faulthandler", "tests.helpers.few_cases")
_PYTEST: Final = ("-q", "-s", "-otimeout=0", "-Wignore", *(f"-pno:{name}" for name in _LEFT_OUT))
_HEADER: Final = """\
# Mutants that no test of the nearest folder catches; checked by `make mutants` (see tests/README.md).
# "=" gives the reason why no test can tell them from the code, "!" why they are not caught all the same.
# `python tools/mutants.py --update ROOM` adds survivors below "?" and drops what is gone; write a reason then.
"""


@dataclass(frozen=True, slots=True)
class Room:
    """Modules that are changed, and the tests that must notice it.

    Attributes:
        modules: patterns of paths below ``lakeformat/``.
        tests: folders and files below ``tests/``, the nearest first.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    def paths(self) -> list[str]:
        """Return the paths of the modules, relative to the root of the project."""
        found = (path for each in self.modules for path in sorted((ROOT / "lakeformat").glob(each)))
        return [str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"]


_TRANSACTION: Final = ("order/conflict", "undo/commit_undo", "undo/rollback", "order/decisions", "order/claims")
_STEPS: Final = (
    *("attempts", "conflict_checks", "compaction_conflicts", "decisions", "decision_loop"),
    *("claims", "claiming", "rollback", "undo"),
)
_TAGGING: Final = ("tagging_choices", "tagging", "new_keys", "tagging_cost", "stored_filters")
_WORKLOAD: Final = ("bucket_plan", "route_plan", "workload_profile", "packing", "remainders")
ROOMS: Final[dict[str, Room]] = {
    "merge": Room(("merge/*.py",), ("merge", "read/test_log_positions.py", "files/test_replaced_rows.py")),
    "predicate": Room(("predicate/bounds.py",), ("predicate",)),
    "files": Room(("files/footer_bounds.py",), ("read/test_footer_bounds.py", "read/test_row_group_skipping.py")),
    "layout": Room(("layout/*.py",), ("layout",)),
    "timeline": Room(("timeline/*.py",), ("timeline", "services/test_archive.py")),
    "file_system_view": Room(("file_system_view/slices.py",), ("file_system_view",)),
    "index": Room(("index/tagging.py",), tuple(f"index/test_{name}.py" for name in _TAGGING)),
    "write/workload": Room(("write/workload/*.py",), tuple(f"write/test_{name}.py" for name in _WORKLOAD)),
    "transaction": Room(
        tuple(f"transaction/{name}.py" for name in _TRANSACTION),
        tuple(f"transaction/test_{name}.py" for name in _STEPS),
    ),
    "services/clean": Room(("services/clean/*.py",), ("services",)),
    "services/archive": Room(("services/archive/*.py",), ("services",)),
    "services/plans": Room(
        tuple(f"services/{name}/plan.py" for name in ("cluster", "compact", "doctor", "restore", "upgrade")),
        ("services",),
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A survivor in the list: ``kind`` is "=" (equivalent), "!" (not caught) or "?" (without a reason)."""

    kind: str
    reason: str


Listed = dict[str, dict[str, Entry]]


def read_list(text: str) -> Listed:
    """Return the listed survivors: path of the module -> name of the mutant -> entry."""
    found: Listed = {}
    module, entry = "", Entry(_NOT_READ, "")
    for line in text.splitlines():
        if line.startswith("    "):
            found[module][line.strip()] = entry
        elif line.startswith("  "):
            entry = Entry(line[2], line[3:].strip())
        elif line and not line.startswith("#"):
            module = line.strip()
            found.setdefault(module, {})
    return found


def write_list(listed: Listed) -> str:
    """Return the text of the list, which `read_list` reads: survivors of one reason come together."""
    lines = [_HEADER]
    for module in sorted(name for name, entries in listed.items() if entries):
        lines.append(f"{module}\n")
        grouped: dict[Entry, list[str]] = defaultdict(list)
        for name, entry in listed[module].items():
            grouped[entry].append(name)
        for entry, names in grouped.items():
            lines.append(f"  {entry.kind} {entry.reason}".rstrip() + "\n")
            lines += (f"    {name}\n" for name in names)
    return "".join(lines)


@dataclass(slots=True)
class Result:
    """What happened to the mutants of one module: names of the caught ones and of the survivors."""

    caught: list[str] = field(default_factory=list)
    survived: list[str] = field(default_factory=list)


class MutationRun:
    """A plugin of pytest that runs the mutants instead of the tests.

    Args:
        root: root folder of the project.
        mutants: the mutants to run.
        folders: folders and files of tests, the nearest first.
        slots: number of mutants that run at the same time.
        most_seconds: maximum processor seconds of the tests of one mutant; the tests beyond are left out.
    """

    def __init__(
        self, root: Path, mutants: list[Mutant], folders: tuple[str, ...], slots: int, most_seconds: float
    ) -> None:
        self.results: dict[str, Result] = defaultdict(Result)
        self._root = root
        self._mutants = mutants
        self._folders = [str(root / "tests" / folder) for folder in folders]
        self._slots = slots
        self._most_seconds = most_seconds
        self._items: list[pytest.Item] = []
        #: (file, line) -> positions of the tests that run it; position -> processor seconds.
        self._tests_of: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._seconds: dict[int, float] = {}
        self._catchers: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants."""
        self._items = session.items
        files = {str(self._root / mutant.module) for mutant in self._mutants}
        for mutant in self._mutants:
            _import(mutant)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and (code := each.__code__).co_filename in files:
                self._functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
        gc.freeze()
        self._measure(files)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: S108
            self._run_all(Path(folder))
        return True

    def _measure(self, files: set[str]) -> None:
        """Run all tests once in a child, and note their lines and times. Leave out the tests that fail."""
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer"
            if (pid := os.fork()) == 0:
                _enter_child(Path(folder))
                answer.write_bytes(pickle.dumps(_run_traced(self._items, files)))
                os._exit(0)
            os.waitpid(pid, 0)
            measured = pickle.loads(answer.read_bytes()) if answer.exists() else {}  # noqa: S301
        for position, (seconds, lines) in measured.items():
            self._seconds[position] = seconds
            for line in lines:
                self._tests_of[line].add(position)
        failed = [item.nodeid for position, item in enumerate(self._items) if position not in self._seconds]
        total = sum(self._seconds.values())
        _say(f"{len(self._seconds)} tests take {total:.0f} s; {len(failed)} fail without a mutant: {failed[:5]}")

    def _run_all(self, folder: Path) -> None:
        waiting, running, free = list(reversed(self._mutants)), dict[int, _Child](), list(range(self._slots))
        done, started = 0, time.monotonic()
        while waiting or running:
            while waiting and free:
                mutant = waiting.pop()
                tests = self._choose_tests(mutant)
                if not tests:
                    self._note(mutant, None)
                    continue
                child = self._start(mutant, tests, folder / str(free[-1]), free.pop())
                running[child.pipe] = child
            ready, _, _ = select.select(list(running), [], [], 1.0)
            for pipe, child in list(running.items()):
                if pipe in ready or time.monotonic() > child.ends:
                    del running[pipe]
                    free.append(child.slot)
                    self._note(child.mutant, child.verdict(on_time=pipe in ready))
                    shutil.rmtree(folder / str(child.slot), ignore_errors=True)
                    done += 1
                    if done % 100 == 0:
                        _say(f"{done} mutants in {time.monotonic() - started:.0f} s, {len(waiting)} wait")

    def _choose_tests(self, mutant: Mutant) -> list[int]:
        """Return the tests that run the changed lines: those that caught others first, then by distance and time."""
        file = str(self._root / mutant.module)
        spans = [mutant.lines, mutant.statement] if mutant.function else [(1, 10**6)]
        found: set[int] = set()
        for first, last in spans:
            lines = range(first, last + 1) if mutant.function else (at for name, at in self._tests_of if name == file)
            found = found or {test for line in lines for test in self._tests_of.get((file, line), ())}
        catchers = self._catchers[mutant.module, mutant.function]
        order = sorted(found, key=lambda test: (-catchers[test], self._distance(test), self._seconds[test]))
        seconds, chosen = 0.0, list[int]()
        for test in order:
            seconds += self._seconds[test]
            if chosen and seconds > self._most_seconds:
                break
            chosen.append(test)
        return chosen

    def _distance(self, test: int) -> int:
        path = str(self._items[test].path)
        return next((at for at, folder in enumerate(self._folders) if path.startswith(folder)), len(self._folders))

    def _start(self, mutant: Mutant, tests: list[int], folder: Path, slot: int) -> _Child:
        seconds = sum(self._seconds[test] for test in tests)
        reads, writes = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reads)
            _enter_child(folder, int(2 * seconds + 5))
            os.write(writes, b"%d" % self._try(mutant, tests))
            os._exit(0)
        os.close(writes)
        return _Child(mutant, pid, reads, slot, time.monotonic() + 10 * seconds + 60)

    def _try(self, mutant: Mutant, tests: list[int]) -> int:
        """Return the position of the first test that fails; -1 if none fails, -2 if the change cannot be made."""
        try:
            _apply(mutant, str(self._root / mutant.module), self._functions)
        except (ValueError, SyntaxError):
            return -2
        except Exception:
            return tests[0]  # The changed constant cannot even be computed.
        failed = _run_tests([self._items[test] for test in tests])
        return -1 if failed is None else tests[failed]

    def _note(self, mutant: Mutant, caught_by: int | None) -> None:
        """Note which test caught a mutant: -1 is none, -2 that it was not tried, None that no test runs its lines."""
        result = self.results[mutant.module]
        if caught_by is None or caught_by == -1:
            _say(f"{mutant.module}:{mutant.lines[0]} survives{'' if caught_by else ' (no test)'}: {mutant.name}")
            result.survived.append(mutant.name)
        elif caught_by != -2:
            result.caught.append(mutant.name)
            if caught_by >= 0:
                self._catchers[mutant.module, mutant.function][caught_by] += 1


@dataclass(frozen=True, slots=True)
class _Child:
    """A process that runs the tests of one mutant, until ``ends`` (monotonic seconds) at most."""

    mutant: Mutant
    pid: int
    pipe: int
    slot: int
    ends: float

    def verdict(self, *, on_time: bool) -> int:
        """End the process with its children; return its answer, or -3 if it died or took too long."""
        answer = os.read(self.pipe, 20) if on_time else b""
        os.close(self.pipe)
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return int(answer or b"-3")


def _enter_child(folder: Path, seconds: int | None = None) -> None:
    """Give a new child its own group, folder and limits, and no output."""
    os.setsid()
    folder.mkdir(exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(folder)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        with open("/proc/self/statm", encoding="ascii") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))


def _run_tests(items: list[pytest.Item]) -> int | None:
    """Run tests until one fails; return its position, or None."""
    for position, item in enumerate(items):
        following = items[position + 1] if position + 1 < len(items) else None
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return position
    return None


def _run_traced(items: list[pytest.Item], files: set[str]) -> dict[int, tuple[float, set[tuple[str, int]]]]:
    """Run all tests; return the processor seconds and the run lines of ``files`` of those that pass."""
    lines: set[tuple[str, int]] = set()

    def trace_lines(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace_lines

    def trace(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        return trace_lines if frame.f_code.co_filename in files else None

    found = {}
    threading.settrace(trace)
    for position, item in enumerate(items):
        lines.clear()
        started = time.process_time()
        following = items[position + 1] if position + 1 < len(items) else None
        sys.settrace(trace)
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(None)
        if all(report.passed for report in reports):
            found[position] = (time.process_time() - started, set(lines))
    return found


def _apply(mutant: Mutant, file: str, functions: dict[tuple[str, str, int], list[FunctionType]]) -> None:
    """Make the change in this process."""
    code = mutant.compile(file)
    if mutant.function:
        changed = functions.get((file, mutant.function, mutant.first_line))
        if not changed:
            raise ValueError(f"{mutant.name}: the function was not found")
        for function in changed:
            function.__code__ = code
        return
    _set_constant(_import(mutant).__dict__, code)


def _import(mutant: Mutant) -> ModuleType:
    return importlib.import_module(mutant.module.removesuffix(".py").replace("/", "."))


def _set_constant(names: dict[str, Any], code: CodeType) -> None:
    """Run the statement that sets a constant, also for the modules that have imported the constant."""
    former = dict(names)
    exec(code, names)  # noqa: S102
    changed = {name: value for name, value in names.items() if name in former and former[name] is not value}
    for module in list(sys.modules.values()):
        for name, value in changed.items():
            if vars(module).get(name) is former[name]:
                vars(module)[name] = value


def run_group(
    root: Path, tests: tuple[str, ...], mutants: list[Mutant], slots: int, seconds: float
) -> dict[str, Result]:
    """Run mutants in a new process, because it imports the tests; return the results by module.

    The arguments are those of `MutationRun`.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        if (pid := os.fork()) == 0:
            os.environ["CI"] = "1"  # Each run draws the same examples.
            phases = [Phase.explicit, Phase.generate]
            options: dict[str, Any] = {"phases": phases, "suppress_health_check": list(HealthCheck)}
            settings.register_profile("mutants", deadline=None, max_examples=30, derandomize=True, **options)
            run = MutationRun(root, mutants, tests, slots, seconds)
            places = [str(root / "tests" / test) for test in tests]
            pytest.main(
                [f"--rootdir={root}", *places, *_PYTEST, "--hypothesis-profile=mutants", "-m", _MARKS], plugins=[run]
            )
            answer.write_bytes(pickle.dumps(dict(run.results)))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        return pickle.loads(answer.read_bytes()) if answer.exists() else {}  # noqa: S301


def judge(room: str, results: dict[str, Result], listed: Listed, *, is_sample: bool = False) -> Iterator[str]:
    """Yield what is wrong with the results of a room: survivors that are not listed, a share that is too small.

    A sample fails by its share alone, and only where a room with `LEAST_SHARE` would give it in one sample of forty.
    """
    caught = sum(len(result.caught) for result in results.values())
    survived = [(module, name) for module, result in results.items() for name in result.survived]
    entries = {(module, name): listed.get(module, {}).get(name) for module, name in survived}
    alive = sum(1 for entry in entries.values() if entry is None or entry.kind != "=")
    share = caught / (caught + alive) if caught + alive else 1.0
    _say(f"{room}: {caught} of {caught + alive} mutants are caught, {share:.1%}")
    new = sum(1 for entry in entries.values() if entry is None or entry.kind == _NOT_READ)
    if new and not is_sample:
        yield f"{room}: {new} survivors have no reason in tests/{LIST.name}: write tests, or the reasons"
    error = 2 * (LEAST_SHARE * (1 - LEAST_SHARE) / max(caught + alive, 1)) ** 0.5 if is_sample else 0.0
    if share < LEAST_SHARE - error:
        yield f"{room}: the tests catch {share:.1%} of the mutants, less than {LEAST_SHARE:.0%}"


def update(listed: Listed, known: dict[str, set[str]], results: dict[str, Result]) -> Listed:
    """Return the list with new survivors, without mutants that were caught or that are gone.

    Args:
        known: path of each module that was looked at -> names of all its mutants.
        results: results of the mutants that were run, by module.
    """
    changed = dict(listed)
    for module, names in known.items():
        result = results.get(module, Result())
        kept = {name: entry for name, entry in listed.get(module, {}).items() if name in names}
        kept = {name: entry for name, entry in kept.items() if name not in result.caught}
        changed[module] = kept | {name: Entry(_NOT_READ, "") for name in result.survived if name not in kept}
    return changed


def _say(text: str) -> None:
    print(text, flush=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change modules in small ways; the tests must notice.")
    parser.add_argument("rooms", nargs="*", help=f"rooms (all), or modules of them: {', '.join(ROOMS)}")
    parser.add_argument("--share", type=float, default=1.0, help="share of the mutants to draw at random (1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at the same time (all cores)")
    parser.add_argument("--seconds", type=float, default=20, help="maximum of the tests of a mutant (20)")
    parser.add_argument("--all", action="store_true", help="run the mutants that are listed as equivalent, too")
    parser.add_argument("--update", action="store_true", help=f"write the survivors to {LIST.name}")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the mutants that the arguments name; return 1 if a room fails."""
    options = _parse(arguments)
    listed = read_list(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    draw = random.Random(options.seed)  # noqa: S311
    modules: dict[str, list[str]] = {}
    for name, room in ROOMS.items():
        wanted = options.rooms or [name]
        paths = [path for path in room.paths() if any(each == name or path.endswith(each) for each in wanted)]
        modules |= {name: paths} if paths else {}
    known, groups = {}, defaultdict[tuple[str, ...], list[Mutant]](list)
    for name, paths in modules.items():
        for path in paths:
            found = find_mutants(path, (ROOT / path).read_text(encoding="utf-8"))
            known[path] = {mutant.name for mutant in found}
            skipped = {name for name, entry in listed.get(path, {}).items() if entry.kind == "=" and not options.all}
            run = [mutant for mutant in found if mutant.name not in skipped]
            groups[ROOMS[name].tests] += [each for each in run if options.share >= 1 or draw.random() < options.share]
    results: dict[str, Result] = {}
    for tests, mutants in groups.items():
        results |= run_group(ROOT, tests, mutants, options.jobs, options.seconds)
    if options.update:
        listed = update(listed, known, results)
        LIST.write_text(write_list(listed), encoding="utf-8")
    problems = [] if modules else [f"no room and no module has one of the names {options.rooms}"]
    for name, paths in modules.items():
        of_room = {path: results[path] for path in paths if path in results}
        if sum(len(each.caught) + len(each.survived) for each in of_room.values()) == 0 and groups[ROOMS[name].tests]:
            problems.append(f"{name}: no mutant was run; look above for an error of pytest")
        problems += judge(name, of_room, listed, is_sample=options.share < 1)
    _say("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
