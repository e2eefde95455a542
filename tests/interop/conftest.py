"""Apache Hudi as a fixture: one Spark session per version, for the tests marked ``interop``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.hudi_spark import VERSION_OPTIONS, Hudi, missing_parts


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
