"""Every option that Hudi lists has one verdict, and the code does what the verdict says."""

from __future__ import annotations

import difflib
import logging
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from lakeformat import InvalidOptionError
from lakeformat.config import hudi_support_table
from lakeformat.config.hudi_support import (
    BY_NAME,
    AnswerKind,
    describe_open_families,
    find_answer,
    hudi_names,
    hudi_options,
    hudi_page,
)
from lakeformat.config.resolve import resolve

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hudi-options.md"
#: Names that Hudi writes by default with a value that is not a number; a request for them is refused.
NEWER = {"hoodie.table.version"}
#: A value that no option has.
OTHER = "something.else"


def names(kind: AnswerKind) -> list[str]:
    return sorted(name for name in hudi_names() if (answer := find_answer(name)) and answer.kind is kind)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_option_list_covers_two_hudi_releases() -> None:
    assert Counter(option.release for option in hudi_options()).keys() == {"1.2.0", "0.15.0"}
    assert len(hudi_options()) > 650
    shared = hudi_names()["hoodie.cleaner.policy"]
    assert (shared.key, shared.default, shared.release) == ("hoodie.clean.policy", "KEEP_LATEST_COMMITS", "1.2.0")


def test_every_name_of_every_option_has_an_answer() -> None:
    for option in hudi_options():
        answers = [find_answer(name.lower()) for name in (option.key, *option.others)]
        assert answers[0] is not None, option.key
        kinds = {answer.kind for answer in answers if answer}
        assert len(kinds) == 1, (option.key, answers)


def test_every_table_entry_is_used() -> None:
    """No name is listed twice or hidden by one of our options, and no exception repeats the verdict of its family."""
    tables = (hudi_support_table.WARNED, hudi_support_table.IGNORED)
    entries = [(name, says) for table in tables for says, text in table.items() for name in text.split()]
    entries += [(name, says[0]) for name, says in hudi_support_table.REFUSED.items()]
    assert [name for name, times in Counter(name for name, _ in entries).items() if times > 1] == []
    assert [name for name, _ in entries if name in BY_NAME] == []
    idle = [(n, f) for n, a in entries for f, b in entries if n != f and a == b and fnmatchcase(n, f)]
    assert idle == []


@pytest.mark.parametrize("name", names(AnswerKind.IGNORED))
def test_ignored_option_logs_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert resolve({name.upper(): OTHER}).values == {}
    assert warnings(caplog) == []


@pytest.mark.parametrize("name", names(AnswerKind.WARNED))
def test_option_without_effect_warns_unless_switched_off(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert resolve({name: "False"}).values == {}
    assert warnings(caplog) == []
    assert resolve({name.upper(): "true"}).values == {}
    (text,) = warnings(caplog)
    answer = find_answer(name)
    assert answer is not None
    assert text == f"no effect of {name}: {answer.explanation}"


@pytest.mark.parametrize("name", names(AnswerKind.REFUSED))
def test_refused_option_is_accepted_with_its_default(name: str, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("", hudi_names()[name].default, hudi_names()[name].default.upper()):
        assert resolve({name: text}).values == {}
    with pytest.raises(InvalidOptionError) as caught:
        resolve({name.upper(): OTHER})
    message = str(caught.value)
    shown = "***" if "encryption" in name else OTHER
    assert message.startswith(f"option {name}={shown} is not supported: ")
    assert "; leave it out" in message
    assert "\n" not in message
    assert warnings(caplog) == []


@pytest.mark.parametrize("name", [name for name in names(AnswerKind.OBEYED) if hudi_names()[name].default])
def test_supported_option_accepts_hudis_default(name: str, caplog: pytest.LogCaptureFixture) -> None:
    default = hudi_names()[name].default
    if name in NEWER:
        with pytest.raises(InvalidOptionError):
            resolve({name: default})
        return
    options = resolve({name.upper(): default})
    kept = options.timestamp if "keygen.timebased" in name else options.values
    assert list(kept) == [name if "keygen.timebased" in name else BY_NAME[name].key]
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.clustering.preserve.commit.metadata", "false"),
        ("hoodie.parquet.outputtimestamptype", "TIMESTAMP_MILLIS"),
        ("hoodie.base.file.format", "parquet"),
    ],
)
def test_value_that_requests_nothing_is_accepted(name: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    assert resolve({name: value}).values == {}
    assert caplog.records == []


def test_options_with_one_warning_are_named_together(caplog: pytest.LogCaptureFixture) -> None:
    resolve({"hoodie.archive.async": "true", "hoodie.clean.async": "true", "hoodie.prewrite.cleaner.policy": "CLEAN"})
    (text,) = warnings(caplog)
    assert "hoodie.archive.async, hoodie.clean.async, hoodie.prewrite.cleaner.policy" in text


def test_warnings_come_once_per_table_and_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cleaning = {"hoodie.clean.async.enabled": "true", "hoodie.datasource.hive_sync.sync_comment": "true"}
    for _ in range(3):
        resolve(cleaning, table=f"{tmp_path}/a")
    resolve({"hoodie.archive.async": "true"}, table=f"{tmp_path}/a/")
    assert len(warnings(caplog)) == 2
    assert all(text.startswith(f"table {tmp_path}/a: no effect of hoodie.") for text in warnings(caplog))
    resolve(cleaning, table=f"{tmp_path}/b", reads=True)
    assert len(warnings(caplog)) == 2
    resolve(cleaning, table=f"{tmp_path}/b")
    assert len(warnings(caplog)) == 4


def test_page_equals_the_generated_page() -> None:
    shown, wanted = PAGE.read_text(encoding="utf-8").splitlines(), hudi_page().splitlines()
    assert not list(difflib.unified_diff(shown, wanted, PAGE.name, "python tools/hudi_options.py pages", lineterm=""))
    for option in hudi_options():
        assert sum(line.startswith(f"| `{option.key}` |") for line in shown) == 1
    sizes = [text.count("\n| `") for text in "\n".join(shown).split("\n## ")[1:]]
    assert len(sizes) == 12  # Groups, the last of beginnings of names.
    assert all(1 <= size <= 110 for size in sizes)


def test_open_option_family_answers_any_name(caplog: pytest.LogCaptureFixture) -> None:
    assert {family for family, _ in describe_open_families()} == set(hudi_support_table.OPEN.split())
    resolve({"hoodie.metrics.of.another.bundle": 1, "hoodie.write.lock.dynamodb.table": "locks"})
    assert warnings(caplog) == []
    with pytest.raises(InvalidOptionError, match="is not supported"):
        resolve({"hoodie.parquet.encryption.kms": "x"})


def test_connector_of_a_glue_job_is_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert not resolve({"className": "org.apache.hudi", "connectionName": "hudi"}, table="s3://b/glue").values
    (text,) = warnings(caplog)
    assert text.startswith("table s3://b/glue: no effect of classname, connectionname: ")
