"""The project's performance targets: ratios and differences within one run, of warm steps unless stated otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.results import RunResult
from benchmarks.steps import EARLY_COMMITS, LATE_COMMITS

Runs = Mapping[str, RunResult]
_SMALL: Final = 4_000_000
_LARGE: Final = 40_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of one target with a run. ``got`` and ``limit`` have the same ``unit``."""

    what: str
    got: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Tell whether the target is met."""
        return self.got >= self.limit if self.at_least else self.got <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        figures = f"{self.got:8.2f} {sign} {self.limit:.2f} {self.unit}"
        return f"{'PASS' if self.passed else 'FAIL'}  {figures:<28} {self.what}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A limit for the time of ``engine``'s step: ``limit`` times that of ``of_step`` ("": the same step) of ``of``."""

    engine: str
    step: str
    limit: float
    of: str
    of_step: str = ""

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None if either side was not measured."""
        ours, theirs = run.warm(self.engine, self.step), run.warm(self.of, self.of_step or self.step)
        if ours is None or not theirs:
            return None
        what = f"{self.engine} {self.step} / {self.of} {self.of_step or self.step}"
        return Verdict(what, ours / theirs, self.limit, "x")


@dataclass(frozen=True, slots=True)
class Speedup:
    """The demand that ``engine``'s step is at least ``limit`` times faster than the peer's."""

    engine: str
    step: str
    limit: float
    peer: str

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None if either side was not measured."""
        ours, theirs = run.warm(self.engine, self.step), run.warm(self.peer, self.step)
        if not ours or theirs is None:
            return None
        what = f"{self.engine} {self.step} faster than {self.peer}"
        return Verdict(what, theirs / ours, self.limit, "x", at_least=True)


@dataclass(frozen=True, slots=True)
class FloorPlus:
    """A limit for the time of ``engine``'s step: ``factor`` times the floor's seconds plus ``extra_seconds``."""

    engine: str
    step: str
    factor: float
    extra_seconds: float

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None if either side was not measured."""
        ours, floor = run.warm(self.engine, self.step), run.warm("floor", self.step)
        if ours is None or floor is None:
            return None
        what = f"{self.engine} {self.step}, limit {self.factor} x floor + {self.extra_seconds:.0f} s"
        return Verdict(what, ours, self.factor * floor + self.extra_seconds, "s")


@dataclass(frozen=True, slots=True)
class FirstWrite:
    """The demand that the first write of a fresh session takes at most ``limit_seconds`` more than the next one."""

    engine: str
    limit_seconds: float

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None if the step was not measured."""
        result = run.engines.get(self.engine)
        if result is None or result.failure or "fresh" not in result.steps:
            return None
        first, warm = result.steps["fresh"].seconds
        return Verdict(
            f"{self.engine} first write in a fresh session - warm one", first - warm, self.limit_seconds, "s"
        )


@dataclass(frozen=True, slots=True)
class FewerBytes:
    """The demand that ``engine``'s second point query after z-ordering reads fewer bytes than the peer's."""

    engine: str
    peer: str

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None unless both sides z-ordered and ran the point query."""
        both = [run.engines.get(name) for name in (self.engine, self.peer)]
        if any(one is None or not {"zorder", "point"} <= one.steps.keys() for one in both):
            return None
        ours, theirs = (one.steps["point"].read_bytes[-1] / 1e6 for one in both if one is not None)
        return Verdict(f"{self.engine} point, bytes read / {self.peer}'s", ours, theirs, "MB")


@dataclass(frozen=True, slots=True)
class Later:
    """The demand that ``engine``'s last commits of a step take at most ``limit`` times as long as its fifth."""

    engine: str
    step: str
    limit: float

    def verdict(self, run: RunResult) -> Verdict | None:
        """Return the verdict, None if the step was not measured."""
        result = run.engines.get(self.engine)
        if result is None or result.failure or self.step not in result.steps:
            return None
        figures = result.steps[self.step].figures[-1]
        what = f"{self.engine} {self.step}, the last commits / the fifth"
        return Verdict(what, figures[LATE_COMMITS] / figures[EARLY_COMMITS], self.limit, "x")


Target = Ratio | Speedup | FloorPlus | FirstWrite | FewerBytes | Later
_WRITES: Final = ("u1", "u5", "d1")
_MERGING: Final = ("delta-dv", "iceberg-mor", "hudi-mor")

TARGETS: Final[tuple[Target, ...]] = (
    Ratio("lakeformat", "load", 2.0, "floor"),
    Ratio("lakeformat", "load", 1.3, "delta-rs"),
    *(Ratio("lakeformat", step, 1.6, "floor") for step in _WRITES),
    *(Speedup("lakeformat", step, 1.5, "delta-rs") for step in _WRITES),
    Ratio("lakeformat-spark", "load", 1.6, "spark-parquet"),
    *(FloorPlus("lakeformat-spark", step, 1.5, 1.0) for step in ("u1", "d1")),
    *(Speedup("lakeformat-spark", step, 5, peer) for step in ("u1", "d1") for peer in ("delta", "iceberg")),
    *(Speedup("lakeformat-spark", step, 15, "hudi") for step in ("u1", "d1")),
    FirstWrite("lakeformat-spark", 5.0),
    *(Ratio("lakeformat-exchanged", step, 1.5, "lakeformat-spark") for step in ("u1", "d1", "u5all", "u50")),
    Speedup("lakeformat", "zorder", 2, "delta-rs"),
    *(Speedup("lakeformat-spark", "zorder", 4, peer) for peer in ("delta", "iceberg")),
    *(FewerBytes("lakeformat-spark", peer) for peer in ("delta", "iceberg")),
    Ratio("lakeformat-spark", "scan", 1.3, "spark-parquet"),
    Ratio("lakeformat-spark", "agg", 1.8, "spark-parquet"),
    Ratio("lakeformat-spark", "native", 1.1, "spark-parquet", of_step="scan"),
    # The benefit of log files for writes, and their cost for reads (``--logs``).
    Ratio("lakeformat-mor", "u1", 0.3, "lakeformat"),
    Speedup("lakeformat-mor", "u1", 5, "delta-rs"),
    *(Ratio("lakeformat-spark-mor", step, 0.6, "lakeformat-spark") for step in ("u1", "d1")),
    *(Speedup("lakeformat-spark-mor", step, 8, peer) for step in ("u1", "d1") for peer in _MERGING),
    Ratio("lakeformat-mor", "scan", 1.5, "lakeformat"),
    Ratio("lakeformat-mor", "agg", 2.0, "lakeformat"),
    Ratio("lakeformat-mor", "compact", 1.2, "lakeformat", of_step="u1"),
    *(Ratio(f"{ours}-mor", "u20", 0.4, ours) for ours in ("lakeformat", "lakeformat-spark")),
    *(Later(ours, "dc50", 1.2) for ours in ("lakeformat-mor", "lakeformat-spark-mor")),
)

#: Limit of the time of tagging, as a multiple of one read of the key column, by kind of keys.
TAGGING: Final = {"random": 2.0, "ordered": 0.1, "mixed": 2.0}
#: Limit of the time of index AUTO, as a multiple of the better one of BLOOM and SIMPLE.
CHOICE: Final = 1.2
#: Limit in seconds for the whole upsert of `benchmarks.bad_case` on 2 cores.
BAD_CASE: Final = 20.0
#: Limit for the same 40,000-row upsert with time-ordered keys into ten times the rows.
GROWTH: Final = 1.3


def verdicts(run: RunResult, runs: Runs) -> list[Verdict]:
    """Return the verdict on every measured target. Growth needs both sizes with time-ordered keys in ``runs``."""
    found: Iterator[Verdict | None] = (target.verdict(run) for target in TARGETS)
    return [*(verdict for verdict in found if verdict is not None), *tagging(run), *growth(runs)]


def tagging(run: RunResult) -> Iterator[Verdict]:
    """Compare tagging with reading the keys, and AUTO with the better index."""
    keys = run.variant["keys"]
    read, tagged = run.warm("lakeformat", "keys"), run.warm("lakeformat", "tag")
    if read and tagged:
        yield Verdict(f"lakeformat tag / keys, {keys} keys", tagged / read, TAGGING[keys], "x")
    auto, *others = (run.warm("lakeformat", f"tag-{kind}") for kind in ("auto", "bloom", "simple"))
    if auto and all(others):
        what = f"lakeformat tag-auto / the better of tag-bloom and tag-simple, {keys} keys"
        yield Verdict(what, auto / min(seconds for seconds in others if seconds), CHOICE, "x")


def growth(runs: Runs) -> Iterator[Verdict]:
    """Compare the time of the same time-ordered upsert at 40 M rows with that at 4 M rows, for each of our engines."""
    small, large = (runs.get(f"ordered-{rows}") for rows in (_SMALL, _LARGE))
    if small is None or large is None:
        return
    for engine in ("lakeformat", "lakeformat-spark"):
        before, after = small.warm(engine, "u1"), large.warm(engine, "u1")
        if before and after:
            yield Verdict(f"{engine} u1, time-ordered keys, 40 M / 4 M rows", after / before, GROWTH, "x")
