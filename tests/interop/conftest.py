"""Apache Hudi as a fixture: one Spark session per version, for the tests marked ``interop``."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.few_cases import seconds_of
from tests.helpers.hudi_spark import VERSION_OPTIONS, Hudi, missing_parts

#: Functions that CI runs with two cases, because their cases differ most: writers in turn, rules, kinds of tables. If a
#: case takes more processor seconds than `DEAR`, it runs alone. A function beyond `_BY_NIGHT` runs by night.
TWICE: Final = (
    "test_a_table_shared_with_hudi",
    "test_all_agree_after_every_operation",
    "test_all_read_the_same_after_each_operation",
    "test_both_clean_and_archive_one_table",
    "test_both_keep_the_metadata_table",
    "test_both_read_the_change_data_of_alternating_writes",
    "test_both_read_the_rows_of_alternating_writes",
    "test_each_runs_compaction_plans_of_the_other",
    "test_failed_write_of_hudi_is_rolled_back_once_it_is_dead",
    "test_hudi_goes_on_with_it",
    "test_hudi_reads_our_deletes_in_logs_as_we_do",
    "test_properties_are_the_recorded_ones",
    "test_the_same_batches_leave_the_same_rows",
    "test_we_write_to_a_table_that_hudi_made",
    "test_writers_in_turn_leave_what_hudi_alone_leaves",
)
DEAR, _BY_NIGHT = 10.0, 22.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the cases of a table version that the release of Hudi does not know: 0.15.0 knows version 6 alone.

    Of the others, leave one case of each function to CI, of some two; `make nightly` runs the rest. A case is chosen
    whose parameters the chosen cases of its file have least: so releases, versions and types take turns.
    """
    items[:] = [item for item in items if not _is_unknown(getattr(getattr(item, "callspec", None), "params", {}))]
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("interop") and not item.get_closest_marker("nightly"):
            cases[item.nodeid.partition("[")[0]].append(item)
    seen = defaultdict[Path, Counter[str]](Counter)
    for function, found in sorted(cases.items()):
        seconds = seconds_of(function)
        for _ in range((seconds <= _BY_NIGHT) + (function.endswith(TWICE) and seconds <= DEAR)):
            if found:
                chosen = min(found, key=lambda item: sum(seen[item.path][word] for word in _words(item)))
                seen[chosen.path].update(_words(chosen))
                found.remove(chosen)
        for item in found:
            item.add_marker(pytest.mark.nightly)


def _words(item: pytest.Item) -> list[str]:
    """Return the parameters of a case, as its name has them."""
    return re.findall(r"[\w.]+", item.name.partition("[")[2])


def _is_unknown(params: Mapping[str, Any]) -> bool:
    asked = (params.get(name) for name in ("version", "kind", "shared"))
    versions = (getattr(each, "version", each) for each in asked)
    is_newer = any(isinstance(each, int) and each > 6 for each in versions)
    return is_newer and params.get("hudi") == "0.15.0"


@pytest.fixture(scope="session", params=list(VERSION_OPTIONS))
def hudi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    """Yield a session of Hudi 0.15.0, then of 1.2.0, or of the version that a test requests.

    pytest groups tests so that each session starts once.
    """
    version: str = request.param
    if missing := missing_parts(version):
        pytest.fail(f"{' and '.join(missing)} missing: run `make interop`, or `make nightly` for 1.1.1", pytrace=False)
    with Hudi(version, tmp_path_factory.mktemp(f"hudi-{version}")) as session:
        yield session
