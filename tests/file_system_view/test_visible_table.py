"""Files that are chosen as columns are the files that are chosen as objects."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.file_system_view.file_groups import make_listing, visible_files
from lakeformat.file_system_view.live_files import FILE_COLUMNS, ListedFiles, ListedTable
from lakeformat.file_system_view.table_listing import group_text, visible_table
from lakeformat.model.files import BaseFileName, FileGroupId
from lakeformat.timeline.timeline import Timeline
from tests.helpers.examples import examples

TIMES = [f"202511201200000{number:02}" for number in range(6)]
PARTITIONS = ["", "a", "a!", "a/b", "day=1"]
IDS = ["f1-0", "f1-1", "f10-0", "ü-0"]
STATES = [".commit", ".replacecommit", ".inflight", ".commit.requested"]

times, groups = st.sampled_from(TIMES), st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(IDS))
names = st.builds(
    lambda of, token, time: (of[0], f"{of[1]}_{token}-0-0_{time}.parquet"), groups, st.integers(0, 1), times
)
others = st.tuples(
    st.sampled_from(PARTITIONS),
    st.sampled_from(
        [".f1-0_20251120120000001.log.1_0-0-0", "f1-0_1-0-0_20251120120000001.orc", "x.parquet", "f_1.crc"]
    ),
)
instants = st.dictionaries(times, st.sampled_from(STATES), max_size=4)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(names | others, max_size=25, unique=True), instants, st.sets(groups, max_size=3), st.data())
def test_columns_choose_the_files_that_objects_choose(
    listed: list[tuple[str, str]],
    found: dict[str, str],
    hidden: set[tuple[str, str]],
    data: st.DataObject,
) -> None:
    # Of two files of a group and an instant, any may be chosen unless the commit names one: keep one of them.
    listed = list(
        {(path, name.partition("_")[0], name.rpartition("_")[2]): (path, name) for path, name in listed}.values()
    )
    timeline = Timeline.of_file_names([f"{time}{state}" for time, state in found.items()])
    replaced = frozenset(FileGroupId(*group) for group in hidden)
    strays = data.draw(st.sets(st.sampled_from(listed or [("", "")])))

    def file_names(time: str) -> Mapping[FileGroupId, str]:
        own = {}
        for path, name in listed:
            base = BaseFileName.match(name)
            if base is not None and base.instant_time == time and (path, name) not in strays:
                own[FileGroupId(path, base.file_id)] = name
        return own

    sizes = list(range(len(listed)))
    entries = [(path, name, size) for (path, name), size in zip(listed, sizes, strict=True)]
    expected = ListedFiles(visible_files(make_listing(entries).bases, timeline, replaced, file_names))
    columns = {
        "partition_path": pa.array([path for path, _ in listed], pa.string()),
        "file_name": pa.array([name for _, name in listed], pa.string()),
        "size_bytes": pa.array(sizes, pa.int64()),
    }
    table, texts = visible_table(pa.table(columns), timeline, replaced, file_names)
    chosen = ListedTable(table)
    (portion,), (own_portion,) = expected.portions(), chosen.portions()
    assert own_portion.files.schema == FILE_COLUMNS
    assert own_portion.files == portion.files
    assert texts.to_pylist() == [group_text(file.group) for file in expected.files]
    assert (chosen.count, chosen.size_bytes) == (expected.count, expected.size_bytes)
    assert chosen.partitions() == expected.partitions()
    for path in PARTITIONS:
        assert chosen.of_partition(path) == expected.of_partition(path)
