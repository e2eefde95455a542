"""``docs/reference/reliability.md`` names only tests that exist, and its figures are those of the reports."""

from __future__ import annotations

import re
from pathlib import Path

from tools.reliability import PAGE, PROMISES, ROOT, page, read_page, read_reports

REPORT = """<testsuites><testsuite>
<testcase classname="tests.reliability.test_life_crash" name="a"><properties>
  <property name="crashes" value="40"/></properties></testcase>
<testcase classname="tests.reliability.test_life_crash" name="b"><properties>
  <property name="crashes" value="2"/></properties></testcase>
<testcase classname="tests.reliability.test_repair_crash" name="a"><failure/></testcase>
<testcase classname="tests.reliability.test_stateful" name="a"><skipped/></testcase>
</testsuite></testsuites>"""


def test_every_test_that_it_names_exists() -> None:
    named = {module for promise in PROMISES for module in promise.modules}
    assert [module for module in named if "def test_" not in (ROOT / module).read_text(encoding="utf-8")] == []
    shown = set(re.findall(r"`(tests/[^` ]+)`", PAGE.read_text(encoding="utf-8")))
    assert shown == named


def test_figures_are_those_of_the_reports(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(REPORT, encoding="utf-8")
    made = page(read_reports([tmp_path / "r.xml"]))
    (life,) = (line for line in made.splitlines() if "test_life_crash" in line)
    assert "| 2 passed, 42 crashes |" in life
    (repair,) = (line for line in made.splitlines() if "test_repair_crash" in line)
    assert "| 0 passed, **1 failed** |" in repair
    (stateful,) = (line for line in made.splitlines() if "test_stateful" in line)
    assert "| not in this run |" in stateful


def test_modules_that_did_not_run_keep_their_figures(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(REPORT, encoding="utf-8")
    text = page(read_reports([tmp_path / "r.xml"]))
    assert page({}, read_page(text)) == text
    assert (
        page(read_reports([tmp_path / "r.xml"]), read_page(PAGE.read_text(encoding="utf-8"))).count("42 crashes") == 1
    )
