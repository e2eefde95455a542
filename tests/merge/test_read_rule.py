"""The rule of reading that a table's properties define."""

from __future__ import annotations

import pytest

from lakeformat import UnsupportedTableError
from lakeformat.merge import ReadRule, make_read_rule
from lakeformat.model.merge_settings import PartialUpdate
from lakeformat.model.table_config import TableConfig

COMMIT, EVENT = "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"
DEFAULTS, UNKNOWN = PartialUpdate.IGNORE_DEFAULTS, PartialUpdate.FILL_UNAVAILABLE
MODE, STRATEGY = "hoodie.record.merge.mode", "hoodie.record.merge.strategy.id"
OLD_STRATEGY, BY_PAYLOAD = "hoodie.compaction.record.merger.strategy", "00000000-0000-0000-0000-000000000000"
PAYLOAD, MODEL = "hoodie.compaction.payload.class", "org.apache.hudi.common.model."
PARTIAL, PROPERTY = "hoodie.table.partial.update.mode", "hoodie.record.merge.property."
OP, TOAST = "_change_operation_type", "__debezium_unavailable_value"
FIELD, FIELDS = "hoodie.table.precombine.field", "hoodie.table.ordering.fields"

#: Entries of hoodie.properties besides the ordering field ts, and the rule.
CASES = [
    ({PAYLOAD: MODEL + "OverwriteWithLatestAvroPayload"}, ReadRule()),
    ({PAYLOAD: MODEL + "DefaultHoodieRecordPayload"}, ReadRule(("ts",))),
    ({PAYLOAD: MODEL + "EventTimeAvroPayload"}, ReadRule(("ts",))),
    ({PAYLOAD: MODEL + "PartialUpdateAvroPayload"}, ReadRule(("ts",), DEFAULTS, by_payload=True)),
    ({PAYLOAD: MODEL + "AWSDmsAvroPayload", MODE: "CUSTOM"},
     ReadRule(delete_field="Op", delete_marker="D", ignores_case=True)),
    ({PAYLOAD: MODEL + "debezium.PostgresDebeziumAvroPayload"},
     ReadRule(("_event_lsn",), UNKNOWN, TOAST, OP, "d", by_payload=True, ignores_case=True)),
    ({PAYLOAD: MODEL + "debezium.MySqlDebeziumAvroPayload", MODE: "CUSTOM"},
     ReadRule(("_event_seq",), None, "", OP, "d", by_payload=True, ignores_case=True, is_sequence=True)),
    ({PAYLOAD: MODEL + "OverwriteNonDefaultsWithLatestAvroPayload"}, ReadRule((), DEFAULTS)),
    ({PAYLOAD: MODEL + "PartialUpdateAvroPayload", MODE: "CUSTOM", STRATEGY: BY_PAYLOAD},
     ReadRule(("ts",), DEFAULTS, by_payload=True)),
    ({STRATEGY: "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, ReadRule()),
    ({PAYLOAD: MODEL + "OverwriteWithLatestAvroPayload",
      "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, ReadRule()),
    ({STRATEGY: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, ReadRule(("ts",))),
    ({PAYLOAD: MODEL + "OverwriteWithLatestAvroPayload", MODE: EVENT}, ReadRule(("ts",))),
    ({MODE: COMMIT}, ReadRule()),
    ({MODE: "event_time_ordering"}, ReadRule(("ts",))),
    ({}, ReadRule(("ts",))),
    ({FIELD: ""}, ReadRule()),
    ({FIELD: "", FIELDS: "ts, n"}, ReadRule(("ts", "n"))),
    ({FIELDS: "a.b"}, ReadRule(("a.b",))),
    ({MODE: COMMIT, PARTIAL: "IGNORE_DEFAULTS"}, ReadRule((), DEFAULTS)),
    ({MODE: EVENT, PARTIAL: "FILL_UNAVAILABLE",
      PROPERTY + "hoodie.write.partial.update.unavailable.value": "__debezium_unavailable_value",
      PROPERTY + "hoodie.payload.delete.field": "op", PROPERTY + "hoodie.payload.delete.marker": "d"},
     ReadRule(("ts",), UNKNOWN, "__debezium_unavailable_value", "op", "d")),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_read_rule_follows_from_the_table_properties(case: int) -> None:
    properties, rule = CASES[case]
    assert make_read_rule(TableConfig({FIELD: "ts", **properties}).merge_settings) == rule


@pytest.mark.parametrize(
    ("properties", "setting"),
    [
        ({MODE: "CUSTOM", STRATEGY: "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, f"{STRATEGY}=1897ef5f"),
        ({MODE: "CUSTOM"}, f"{MODE}=CUSTOM"),
        ({PAYLOAD: MODEL + "DefaultHoodieRecordPayload", STRATEGY: "1897ef5f"}, f"{STRATEGY}=1897ef5f"),
        ({PAYLOAD: "com.example.Mine"}, f"{PAYLOAD}=com.example.Mine"),
        ({PAYLOAD: "com.example.DefaultHoodieRecordPayload"}, f"{PAYLOAD}=com.example.DefaultHoodieRecordPayload"),
        ({PAYLOAD: MODEL + "DefaultHoodieRecordPayload", OLD_STRATEGY: "1897ef5f"}, f"{OLD_STRATEGY}=1897ef5f"),
        ({PAYLOAD: MODEL + "debezium.OracleDebeziumAvroPayload"}, "OracleDebeziumAvroPayload"),
        ({MODE: EVENT, PARTIAL: "KEEP_VALUES"}, f"{PARTIAL}=KEEP_VALUES"),
    ],
)
def test_unsupported_merge_rule_is_refused_with_advice(properties: dict[str, str], setting: str) -> None:
    with pytest.raises(UnsupportedTableError, match="read_optimized") as refused:
        make_read_rule(TableConfig({FIELD: "ts", **properties}).merge_settings)
    assert setting in str(refused.value)
    assert "\n" not in str(refused.value)


def test_read_rule_names_the_columns_needed_for_merging() -> None:
    rule = ReadRule(("at.ts", "at.n", "seq"), delete_field="op", delete_marker="d")
    assert rule.base_columns() == ("_hoodie_record_key", "at", "seq")
    assert ReadRule().base_columns() == ("_hoodie_record_key",)
    assert sorted(rule.log_columns()) == ["_hoodie_is_deleted", "_hoodie_operation", "at", "op", "seq"]
    assert sorted(ReadRule().log_columns()) == ["_hoodie_is_deleted", "_hoodie_operation"]


def test_missing_ordering_field_is_dropped_from_the_rule() -> None:
    assert ReadRule(("at.ts", "seq")).for_columns({"at", "x"}) == ReadRule(("at.ts",))
    assert ReadRule(("ts",), DEFAULTS).for_columns(["x"]) == ReadRule((), DEFAULTS)
