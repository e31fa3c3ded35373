"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform import Warehouse

HAS_DEMO = find_spec("assets") is not None and find_spec("assets.flights") is not None
"""False if a project has removed or replaced the assets of the demo."""

# No deadline: on a machine that is busy with Spark a property may be slow.
settings.register_profile("acid", deadline=None)
settings.load_profile("acid")


ROOT = Path(__file__).parent
IN_EACH_RUN = (ROOT / "conformance", ROOT / "assets", ROOT.parent / "notebooks" / "01_first_table")
"""Where `make test` runs what uses Spark, and the notebook that it runs."""


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other tests with Spark, and other notebooks, are for `make test-all`."""
    for item in items:
        takes_long = item.get_closest_marker("spark") or item.path.suffix == ".ipynb"
        if takes_long and not str(item.path).startswith(tuple(map(str, IN_EACH_RUN))):
            item.add_marker("more")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    from acid_platform.engine.spark.session import start_session

    session = start_session(master="local[2]", memory="2g")
    yield session
    session.stop()


IN_ORC = {"acid.format": "orc"}
"""The properties of a table in a test about what ORC's files are like, or hold: it stays one in
ORC where tables that state no format are in Parquet (`-p tests.on_parquet`)."""
COMPACTORS = pytest.mark.parametrize("compactor", ["spark", "local"])
"""For tests that run their compactions with either engine, by `compact_with`."""
MOSTLY_LOCAL = pytest.mark.parametrize(
    "compactor", [pytest.param("spark", marks=pytest.mark.slow), "local"]
)
"""For tests that take seconds. Both engines write equal bytes (tests/compaction)."""


def compact_with(warehouse: Warehouse, engine: str) -> None:
    """From now on this engine executes compactions, however small they are, unless only the other
    can; statements run as before."""
    limit = {"spark": "0", "local": str(1 << 40)}[engine]
    warehouse.engines.on_cluster = lambda: engine == "spark"
    warehouse.metastore.set("acid.local.compaction.max.bytes", limit)


def few_then_more(values: Iterable[Any], few: int) -> list[Any]:
    """Parameters of a test: the first `few` run in `make test`, the others in `make test-all`."""
    return _marked_after(values, few, pytest.mark.more)


def quick_then_slow(values: Iterable[Any], quick: int) -> list[Any]:
    """Parameters of a test: the first `quick` run in `make test-all`, the others in `test-full`."""
    return _marked_after(values, quick, pytest.mark.slow)


def _marked_after(values: Iterable[Any], count: int, mark: pytest.MarkDecorator) -> list[Any]:
    first, others = list(values)[:count], list(values)[count:]
    return [*first, *(pytest.param(value, marks=mark) for value in others)]


def slow_then_soak(values: Sequence[Any], slow: int) -> list[Any]:
    """The first `slow` parameters run in `make test-full`, the others in `make lab-soak`."""
    return [
        pytest.param(value, marks=pytest.mark.slow if place < slow else pytest.mark.soak)
        for place, value in enumerate(values)
    ]


def without_variables(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Deletes variables until the patch is undone, also those that are set meanwhile: what a
    session of Spark sets must not reach the processes of later tests."""
    for name in names:
        patch.setenv(name, "")
        patch.delenv(name)


@contextmanager
def temporary_warehouse(
    path: Path, spark: SparkSession | None = None, engine: str | None = None
) -> Iterator[Warehouse]:
    """A warehouse whose metastore ends with the block."""
    from acid_platform import Warehouse
    from tests.forked_metastores import forked_metastores

    with forked_metastores():
        opened = Warehouse.open(path, spark=spark, engine=engine)
        try:
            yield opened
        finally:
            opened.release()  # ending a lease later would start the metastore again
            opened.metastore.stop()
            opened.close()


def a_warehouse(
    engine: str | None = None,
    in_spark: bool = False,
    scope: Literal["module", "function"] = "module",
) -> Any:
    """A fixture: an empty warehouse for the tests of a file, or for each test.

    `in_spark`: it has the run's session of Spark.
    """

    @pytest.fixture(scope=scope)
    def opened(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Warehouse]:
        spark = request.getfixturevalue("spark") if in_spark else None
        path = tmp_path_factory.mktemp("warehouse") / "wh"
        with temporary_warehouse(path, spark, engine) as made:
            yield made

    return opened


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def warehouse(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    """An empty warehouse for the tests of a file, once for each engine."""
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    path = tmp_path_factory.mktemp("warehouse") / "wh"
    with temporary_warehouse(path, spark, request.param) as opened:
        yield opened
