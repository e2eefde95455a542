"""The benefit of curves: files that a filter need not read."""

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.layout import CurveBuild, CurveStrategy, fit_curve

ROWS, FILES = 65_536, 64


def skewed(rng: np.random.Generator) -> pa.Table:
    """Return four columns in which few values have most rows, and a few values are far larger."""
    columns = (np.minimum(rng.zipf(exponent, ROWS), 1 << 30) for exponent in (1.5, 1.3, 2.0, 1.2))
    return pa.table(dict(zip("abcd", columns, strict=True)))


def share_read(rows: pa.Table, places: np.ndarray) -> float:
    """Return the mean share of files read by 100 boxes around random rows, each side a fifth of the rows wide."""
    rng = np.random.default_rng(7)
    order = np.argsort(places, kind="stable")
    read = np.ones((100, FILES), bool)
    for name in rows.schema.names:
        values = np.asarray(rows[name])
        middle = np.searchsorted(np.sort(values), rng.choice(values, 100)) / ROWS
        low, high = (np.quantile(values, np.clip(middle + side, 0, 1))[:, None] for side in (-0.1, 0.1))
        files = values[order].reshape(FILES, -1)
        read &= (files.min(axis=1) <= high) & (files.max(axis=1) >= low)
    return float(read.mean())


@pytest.mark.parametrize("strategy", [CurveStrategy.Z_ORDER, CurveStrategy.HILBERT])
def test_ranks_skip_more_than_value_bits_on_skewed_data(strategy: CurveStrategy) -> None:
    rng = np.random.default_rng(5)
    rows = skewed(rng)
    sample = rows.take(rng.integers(0, ROWS, 10_000))
    curves = {build: fit_curve(strategy, rows.schema.names, sample, build=build) for build in CurveBuild}
    shares = {build: share_read(rows, curve.positions(rows)) for build, curve in curves.items()}
    assert shares[CurveBuild.DIRECT] > 0.5
    assert shares[CurveBuild.SAMPLE] < shares[CurveBuild.DIRECT] / 4


def test_frequent_value_does_not_spoil_the_other_column() -> None:
    rng = np.random.default_rng(6)
    x = np.where(rng.random(ROWS) < 0.5, 7, rng.integers(0, 1000, ROWS))
    rows = pa.table({"x": x, "y": rng.random(ROWS)})
    order = np.argsort(fit_curve(CurveStrategy.HILBERT, ["x", "y"], rows).positions(rows))
    y = np.asarray(rows["y"])[order].reshape(FILES, -1)
    # Of 64 files, 32 hold x = 7 and nothing else, each with its share of y.
    only = (x[order].reshape(FILES, -1) == 7).all(axis=1)
    assert only.sum() >= FILES // 2 - 3
    assert np.median((y.max(axis=1) - y.min(axis=1))[only]) < 2 / 32
