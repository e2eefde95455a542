"""History: the operation of each commit, and the cleans, rollbacks, restores and savepoints between them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.timeline.history import STATEMENT_KEY
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.write.intake import plan_job
from lakeformat.write.rows.prepare import prepare
from lakeformat.write.session import WriteSession
from tests.helpers import fixture_tables

VERSIONS = (6, 8, 9)


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": at, "v": "x"} for at in ids]


@pytest.fixture(params=VERSIONS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    options = {"hoodie.write.table.version": request.param, "hoodie.clean.automatic": False}
    return lakeformat.create(tmp_path / "t", {"id": "int64", "v": "string"}, record_key="id", **options)


def test_history_lists_every_action_newest_first(table: Table) -> None:
    first = table.upsert(rows(1, 2, 3)).instant_time
    table.update({"v": "y"}, where="id = 1")
    table.delete(where="id = 2")
    table.merge(rows(3, 4)).when_matched_update().when_not_matched_insert().execute()
    kept = table.savepoint(comment="before", user="ann").instant_time
    lost = table.upsert(rows(5)).instant_time
    undone = table.rollback().instant_time
    gone = [table.upsert(rows(6)).instant_time, table.upsert(rows(7)).instant_time]
    restored = table.restore(kept).instant_time
    cleaned = table.clean(versions=1)
    found = table.history(actions=True)
    assert [entry.operation for entry in found] == [
        "clean", "restore", "rollback", "savepoint", "merge", "delete", "update", "upsert",
    ]  # fmt: skip
    assert [entry.instant_time for entry in found[:4]] == [cleaned.instant_time, restored, undone, kept]
    details = {entry.operation: entry.detail for entry in found}
    assert details["clean"].startswith(f"{len(cleaned.files)} files deleted")
    assert details["rollback"] == f"undid {lost}"
    assert details["restore"] == f"back to {kept}; undid {gone[1]}, {gone[0]}"
    assert details["savepoint"] == "keeps this commit: ann before"
    assert [entry.is_commit for entry in found] == [False] * 4 + [True] * 4
    commits = table.history()
    assert [entry.operation for entry in commits] == ["merge", "delete", "update", "upsert"]
    assert commits[-1].instant_time == first
    assert commits.others == {"clean": 1, "rollback": 1, "restore": 1, "savepoint": 1}
    assert "1 rollback" in repr(commits)
    assert [entry.operation for entry in table.history(2, actions=True)] == ["clean", "restore"]
    shown = lakeformat.sql("describe history t", t=table).to_pylist()
    assert [(row["operation"], row["version"]) for row in shown] == [
        (entry.operation, 3 - at if at >= 0 else None) for at, entry in enumerate(found, start=-4)
    ]
    assert [row["detail"] for row in shown] == [entry.detail or None for entry in found]
    called = lakeformat.sql("call show_commits(table => 't', limit => 5)", t=table).to_pylist()
    assert [row["action"] for row in called][:4] == ["clean", "restore", "rollback", "savepoint"]


def test_history_shows_the_statement_of_a_commit(table: Table) -> None:
    table.upsert(rows(1))
    hooks = Hooks(extra_metadata={STATEMENT_KEY: "update t\n set v = 'z'"})
    incoming = pa.table({"id": pa.array([1], pa.int64()), "v": ["z"]})
    options = table.options.with_values(**{"hoodie.datasource.write.operation": "upsert"})
    job = plan_job(table.context.store, table.context.writable_snapshot(), options, incoming.schema, table.context.ids)
    WriteSession(table.context, job, hooks).run_staged(prepare(incoming, job.prepare), 1)
    (entry, _) = table.history()
    assert (entry.operation, entry.statement) == ("update", "update t\n set v = 'z'")
    assert entry.describe().splitlines()[1] == "  update t set v = 'z'"
    assert lakeformat.sql("describe history t", t=table).to_pylist()[0]["statement"] == entry.statement


@pytest.mark.parametrize("name", fixture_tables.names("hudi_life"))
def test_history_lists_actions_of_hudi(name: str, tmp_path: Path) -> None:
    path, expectations = fixture_tables.unpack(name, tmp_path), fixture_tables.read_expectations(name)
    wanted = {"clean", "rollback", "restore", "savepoint"}
    on_timeline = {(each["instant"], each["action"]) for each in expectations["timeline"] if each["action"] in wanted}
    archived = {(each["instant"], each["action"]) for each in expectations["archived"] if each["action"] in wanted}
    found = lakeformat.open(path).history(actions=True)
    others = {(entry.instant_time, entry.action) for entry in found if not entry.is_commit}
    assert others == on_timeline | archived
    assert all(entry.detail for entry in found if (entry.instant_time, entry.action) in on_timeline)
    assert [entry.instant_time for entry in found if entry.is_commit] == [
        entry.instant_time for entry in lakeformat.open(path).history()
    ]
