"""Every type of Arrow, pandas and polars is stored with its values, or refused in one line that names the column."""

from __future__ import annotations

import datetime as dt
import gc
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, SchemaMismatchError
from lakeformat.write.rows.arrow_input import arrow_reader
from tests.helpers.tables import a_batch, a_table


class Own(pa.ExtensionType):
    """An extension type that is written in Python, without a hash, and not registered."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "own.type")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    __hash__ = None  # type: ignore[assignment]

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def extension(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def unknown(kind: pa.DataType) -> pa.Field:
    """Return a field as Arrow imports one of an extension type that nothing in this process knows."""
    return pa.field("inner", kind, metadata={b"ARROW:extension:name": b"geo.point"})


OWN: Final = Own()


class Thing:
    """An object without a value."""


def of(values: Any, kind: Any = None) -> pa.Table:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table({"id": range(len(column)), "v": column})


def pandas(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": range(len(values)), "v": values})


def polars(values: list[Any], kind: Any = None) -> pl.DataFrame:
    return pl.DataFrame({"id": range(len(values)), "v": pl.Series("v", values, dtype=kind)})


DAY, UTC = dt.date(2024, 2, 29), dt.timezone.utc
MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3)
TEN = Decimal("1.25")
UUIDS = [uuid.UUID(int=1), None, uuid.UUID(int=2)]
JSON: Final = extension(pa.json_(pa.utf8()), ['{"a": 1}', None])
STORED: dict[str, tuple[Any, list[Any]]] = {
    **{
        f"Arrow {kind}": (of(values, kind), stored)
        for kind, values, stored in [
            (pa.float16(), [np.float16(1.5), None], [1.5, None]),
            (pa.uint8(), [255, None], [255, None]),
            (pa.uint32(), [2**32 - 1, None], [2**32 - 1, None]),
            (pa.decimal64(12, 2), [TEN, None], [TEN, None]),
            (pa.decimal256(38, 2), [TEN, None], [TEN, None]),
            (pa.date64(), [DAY, None], [DAY, None]),
            (pa.timestamp("s"), [MOMENT, None], [MOMENT, None]),
            (pa.timestamp("ns"), [MOMENT, None], [MOMENT, None]),
            (pa.timestamp("us", "Asia/Tokyo"), [MOMENT.replace(tzinfo=UTC)], [MOMENT.replace(tzinfo=UTC)]),
            (pa.binary(2), [b"ab", None], [b"ab", None]),
            (pa.large_binary(), [b"ab", None], [b"ab", None]),
            (pa.binary_view(), [b"ab", None], [b"ab", None]),
            (pa.large_string(), ["a", None], ["a", None]),
            (pa.string_view(), ["a", None], ["a", None]),
            (pa.large_list(pa.int8()), [[1], None], [[1], None]),
            (pa.list_(pa.int8(), 2), [[1, 2], None], [[1, 2], None]),
            (pa.dictionary(pa.int8(), pa.float64()), [1.5, None, 1.5], [1.5, None, 1.5]),
            (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"], ["a", None, "a"]),
        ]
    },
    **{
        f"pandas {name}": (pandas(values), stored)
        for name, values, stored in [
            ("Int8", pd.array([1, None], "Int8"), [1, None]),
            ("Float32", pd.array([1.5, None], "Float32"), [1.5, None]),
            ("boolean", pd.array([True, None], "boolean"), [True, None]),
            ("string", pd.array(["a", None], "string"), ["a", None]),
            ("string of Arrow", pd.array(["a", None], "string[pyarrow]"), ["a", None]),
            ("category", pd.Categorical(["a", None, "a"]), ["a", None, "a"]),
            ("category of numbers", pd.Categorical([7, None]), [7, None]),
            ("datetime64", pd.to_datetime([MOMENT, None]), [MOMENT, None]),
            ("datetime64 with a zone", pd.to_datetime([MOMENT]).tz_localize("UTC"), [MOMENT.replace(tzinfo=UTC)]),
            ("float16", np.array([1.5], "float16"), [1.5]),
            ("uint8", np.array([255], "uint8"), [255]),
            ("int64 of Arrow", pd.array([1, None], "int64[pyarrow]"), [1, None]),
            ("decimals", [TEN, None], [TEN, None]),
            ("dates", [DAY, None], [DAY, None]),
            ("bytes", [b"a", None], [b"a", None]),
            ("lists", [[1], None], [[1], None]),
            ("arrays", [np.array([1, 2]), None], [[1, 2], None]),
            ("dicts", [{"a": 1}, None, {"b": 2}], [{"a": 1, "b": None}, None, {"a": None, "b": 2}]),
            ("missing values", [pd.NA, "a", np.nan], [None, "a", None]),
        ]
    },
    **{
        f"polars {kind}": (polars(values, kind), stored)
        for kind, values, stored in [
            (pl.Categorical, ["a", None], ["a", None]),
            (pl.Enum(["a", "b"]), ["b", None], ["b", None]),
            (pl.Array(pl.Int8, 2), [[1, 2], None], [[1, 2], None]),
            (pl.List(pl.Categorical), [["a"], None], [["a"], None]),
            (pl.Decimal(10, 2), [TEN, None], [TEN, None]),
            (pl.Datetime("ns"), [MOMENT, None], [MOMENT, None]),
            (pl.Date, [DAY, None], [DAY, None]),
            (pl.Binary, [b"a", None], [b"a", None]),
            (pl.Struct({"a": pl.UInt16}), [{"a": 1}, None], [{"a": 1}, None]),
        ]
    },
}
REFUSED: dict[str, tuple[Any, str]] = {
    **{
        f"Arrow {kind}": (of(values, kind), column)
        for kind, values, column in [
            (pa.uint64(), [2**64 - 1], "'v'"),
            (pa.decimal256(50, 2), [TEN], "'v'"),
            (pa.time32("s"), [1], "'v'"),
            (pa.time64("us"), [1], "'v'"),
            (pa.duration("s"), [1], "'v'"),
            (pa.month_day_nano_interval(), [(1, 2, 3)], "'v'"),
            (pa.list_view(pa.int8()), [[1]], "'v'"),
            (pa.run_end_encoded(pa.int32(), pa.int8()), [1, 1], "'v'"),
            (pa.map_(pa.int32(), pa.int8()), [[(1, 2)]], "'v'"),
            (pa.timestamp("ns"), [1], "'v'"),
            (pa.struct([unknown(pa.int64())]), [{"inner": 1}], r"'v.inner'.*geo\.point"),
            (pa.list_(unknown(pa.binary())), [[b"x"]], r"'v\.inner'.*geo\.point"),
        ]
    },
    "Arrow union": (
        of(pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])])),
        "'v'",
    ),
    "Arrow uuid": (of([value and value.bytes for value in UUIDS], pa.uuid()), "'v'.*uuid"),
    "Arrow json": (of(JSON), "'v'.*json"),
    "Arrow json in a struct": (of(pa.StructArray.from_arrays([JSON], ["j"])), r"'v\.j'.*json"),
    "Arrow json in a list": (of(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), JSON)), "'v'.*json"),
    "Arrow bool8": (of(extension(pa.bool8(), [1, 0, None])), "'v'.*bool8"),
    "Arrow opaque": (of(extension(pa.opaque(pa.binary(), "point", "geo"), [b"a"])), "'v'.*opaque"),
    "Arrow tensor": (of(extension(pa.fixed_shape_tensor(pa.int32(), [2]), [[1, 2]])), "'v'.*tensor"),
    "Arrow, own": (of(extension(OWN, [1])), "'v'.*(own|Own)"),
    "Arrow, own, gone": (of(extension(Own(), [1])), "'v'.*extension"),
    "Arrow, not known here": (
        pa.table([[1], [b"x"]], pa.schema([("id", pa.int64()), unknown(pa.binary()).with_name("v")])),
        r"'v'.*geo\.point",
    ),
    **{
        f"pandas {name}": (pandas(values), "v")
        for name, values in {
            "UInt64": pd.array([2**64 - 1], "UInt64"),
            "interval": pd.arrays.IntervalArray.from_tuples([(0, 1)]),
            "category of intervals": pd.cut([1, 5], [0, 4, 10]),
            "period": pd.period_range("2024-01", periods=1, freq="M"),
            "timedelta64": pd.to_timedelta([1], unit="s"),
            "sparse": pd.arrays.SparseArray([0, 0, 1]),
            "complex": np.array([1 + 2j]),
            "longdouble": np.array([1.5], np.longdouble),
            "datetime64 with nanoseconds": pd.to_datetime([1]),
            "mixed objects": [1, "a"],
            "things": [Thing()],
            "UUIDs": UUIDS,
            "times": [dt.time(1)],
            "offsets": [pd.offsets.Day(1)],
            "periods": [pd.Period("2024-01")],
        }.items()
    },
    **{
        f"polars {kind}": (polars(values, kind), "'v'")
        for kind, values in [
            (pl.Object, [Thing(), None]),
            (pl.Time, [dt.time(1)]),
            (pl.Duration, [dt.timedelta(1)]),
            (pl.UInt64, [2**64 - 1]),
            (pl.Int128, [2**100]),
        ]
    },
}


def ways(rows: Any) -> list[Any]:
    return [rows, rows.lazy()] if isinstance(rows, pl.DataFrame) else [rows]


@pytest.mark.parametrize("name", STORED)
def test_a_type_is_stored_with_its_values(name: str) -> None:
    rows, stored = STORED[name]
    for each in ways(rows):
        table = a_table(schema=pa.schema([("id", pa.int64())]))
        table.upsert(each)
        assert table.to_arrow().sort_by("id")["v"].to_pylist() == stored


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_is_refused_by_the_name_of_its_column(name: str, tmp_path: Path) -> None:
    rows, column = REFUSED[name]
    table = a_table(schema=pa.schema([("id", pa.int64())]))
    for each in ways(rows):
        for verb in (table.upsert, table.insert, table.overwrite):
            with pytest.raises(SchemaMismatchError, match=column) as refused:
                verb(each)
            assert "\n" not in str(refused.value)
    assert table.history() == []
    assert table.schema.names == ["id"]
    if "nanoseconds" not in name and "[ns]" not in name:  # Only values do not fit.
        with pytest.raises(SchemaMismatchError, match=column):
            lakeformat.create(tmp_path / "t", rows, record_key="id")
        assert not (tmp_path / "t").exists()


def test_no_row_is_lost_if_polars_panics(tmp_path: Path) -> None:
    """Some releases of polars panic in this filter, and their `collect_batches` then ends without an error."""
    files = a_table(tmp_path / "t", rows=a_batch(id=[1, 2, 3], s=["a", "b", ""]), operation="bulk_insert")
    paths = [tmp_path / "t" / path for path in files.files()["path"].to_pylist()]
    lazy = pl.scan_parquet(paths).filter(pl.col("s").is_in(["a", None], nulls_equal=True)).select("id", "s")
    table = a_table(schema=files.schema)
    try:
        table.insert(lazy)
    except InvalidInputError as error:
        assert str(error).startswith("polars cannot compute the lazy frame")  # noqa: PT017  It may also work.
        assert table.history() == []
    else:
        assert table.to_arrow().to_pylist() == [{"id": 1, "s": "a"}]


def failing(rows: pl.Series) -> pl.Series:
    raise ValueError("no such rate")


def test_an_error_of_a_lazy_frame_reaches_the_user_and_its_thread_ends() -> None:
    errors: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
        "no such rate": lambda f: f.with_columns(pl.col("v").map_batches(failing, return_dtype=pl.Int64)),
        "conversion": lambda f: f.with_columns(v=pl.lit("x").cast(pl.Int64)),
    }
    table = a_table(schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    lazy = pl.LazyFrame({"id": range(300_000), "v": 1})
    threads = threading.active_count()
    for text, query in errors.items():
        with pytest.raises((ValueError, pl.exceptions.PolarsError), match=text):
            table.insert(query(lazy))
    assert table.history() == []
    reader = arrow_reader(pl.concat([lazy] * 9))
    assert reader.read_next_batch().num_rows > 0
    del reader
    gc.collect()
    assert threading.active_count() == threads
