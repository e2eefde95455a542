"""A plugin of pytest: `make test` and CI run some cases of each function whose cases cost much, the night all of them.

What a case costs is read from ``tests/durations.tsv``, which ``make durations ARGS=--update`` writes.

The nightly cases of a function that has very many of them take turns, where ``--night`` says which night it is: each
night of a week runs a seventh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

import pytest

__all__ = ["BY_NIGHT", "most_different", "seconds_of"]

#: Processor seconds up to which a case is cheap: a function of cheap cases stays whole.
_CHEAP: Final = 0.02
#: Processor seconds that `make test` spends on another function: on one case at least, on so many cases at most.
_IN_TEST, _FEW = 1.0, 4
#: Processor seconds of a case beyond which it is slow: on a busy machine it could exceed the budget of `make test`.
_SLOW: Final = 1.2
#: Processor seconds that CI spends on one function, if that is enough for two cases. A case that costs more runs alone.
_IN_CI: Final = 2.5
#: Processor seconds of a case beyond which it runs by night alone, unless its function tries random examples.
BY_NIGHT: Final = 9.0
#: A function with more nightly cases than this runs a seventh of them in a night.
_MANY_BY_NIGHT, _NIGHTS = 6, 7
#: The heart of the suite, whose cases are chosen one by one.
_CHOSEN: Final = (
    "::test_write_that_dies_at_any_call_leaves_the_table_before_or_after_it",
    "::test_lives_with_all_services",
)
_LIST: Final = Path(__file__).resolve().parents[1] / "durations.tsv"
_ROWS: Final = [line.split("\t") for line in _LIST.read_text(encoding="utf-8").splitlines()]
_SECONDS: Final = {function: float(seconds) for seconds, function in _ROWS}


def seconds_of(nodeid: str) -> float:
    """Return the processor seconds of a case. A function that is not listed costs little."""
    return _SECONDS.get(nodeid.partition("[")[0], _CHEAP / 2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--night", type=int, help="night of the week, 1 to 7: large families of nightly cases take turns")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cases of expensive functions as slow or nightly. The hooks of conftest files have run before.

    ``tests/spark`` has a rule of its own.
    """
    _mark_by_cost(items)
    if (night := config.getoption("--night")) is not None:
        left_out = _of_other_nights(items, night)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _mark_by_cost(items: Sequence[pytest.Item]) -> None:
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        function = item.nodeid.partition("[")[0]
        if seconds_of(function) > _CHEAP and not _is_marked(item, "nightly", "interop", "spark"):
            cases[function].append(item)
    for function, found in cases.items():
        seconds = seconds_of(function)
        # The seconds were recorded in CI, where a property tries three times the examples (`tests.helpers.examples`).
        here = seconds / 3 if _is_marked(found[0], "hypothesis") else seconds
        few = min(_FEW, max(1, int(_IN_TEST / here))) if here < _SLOW else 0
        _mark_all_but(few, [item for item in found if not _is_marked(item, "slow")], pytest.mark.slow)
        slow = [item for item in found if _is_marked(item, "slow")]
        in_ci = max(1 if seconds > _IN_CI else 2, int(_IN_CI / seconds))
        if seconds > BY_NIGHT and not _is_marked(found[0], "hypothesis"):
            in_ci = 0
        if not function.endswith(_CHOSEN):
            _mark_all_but(in_ci - (len(found) - len(slow)), slow, pytest.mark.nightly, pytest.mark.rest)


def _of_other_nights(items: Sequence[pytest.Item], night: int) -> set[pytest.Item]:
    families = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if _is_marked(item, "nightly"):
            families[item.nodeid.partition("[")[0]].append(item)
    return {
        item
        for cases in families.values()
        if len(cases) > _MANY_BY_NIGHT
        for number, item in enumerate(cases)
        if number % _NIGHTS != night % _NIGHTS
    }


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(mark.name in names for mark in item.iter_markers())


def _mark_all_but(count: int, items: Sequence[pytest.Item], *marks: pytest.MarkDecorator) -> None:
    kept = most_different([item.name for item in items], count)
    for item in items:
        if item.name not in kept:
            for mark in marks:
                item.add_marker(mark)


def most_different(names: Sequence[str], count: int) -> list[str]:
    """Return the first case, the last one, and those that differ from the chosen ones in most of their parameters."""
    parts = [name.split("-") for name in names]
    chosen: list[int] = []
    #: Case that is not chosen -> parameters that differ from those of the chosen ones, distance to the nearest of them.
    differences = {at: (0, len(names)) for at in range(len(names))}
    while len(chosen) < min(len(names), count):
        new = (0, len(names) - 1)[len(chosen)] if len(chosen) < 2 else max(differences, key=differences.__getitem__)
        chosen.append(new)
        del differences[new]
        for at, (parameters, distance) in differences.items():
            differing = sum(mine != others for mine, others in zip_longest(parts[at], parts[new]))
            differences[at] = (parameters + differing, min(distance, abs(at - new)))
    return [names[at] for at in chosen]
