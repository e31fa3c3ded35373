"""The demo's verification sees every difference, and a wrong table makes the demo fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import definitions
from acid_platform.metastore.client.metastore import Metastore
from assets import flights_source
from scripts import demo
from scripts.demo_report import changes_of, minutes
from scripts.demo_verify import compare

RIGHT = pd.DataFrame(
    {
        "id": pd.array([1, 2, 3], "Int32"),
        "minutes": pd.array([4, None, -6], "Int32"),
        "name": ["a", None, "c"],
        "share": [0.1, None, float("inf")],
        "at": pd.to_datetime(["2013-01-01 10:00", "NaT", "2013-01-02 11:30"]),
    }
)
AS_SPARK_GIVES_IT = (
    RIGHT.astype({"id": "int32"}).assign(minutes=[4.0, float("nan"), -6.0]).iloc[::-1]
)


def test_equal_values_are_equal_whatever_their_pandas_types_and_order() -> None:
    found = compare("t", AS_SPARK_GIVES_IT[["at", "id", "minutes", "share", "name"]], RIGHT, ["id"])
    assert found.right and (found.rows, found.columns) == (3, 5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda frame: frame.assign(minutes=[4.0, 0.0, -6.0]), "minutes differs in 1 rows"),
        (
            lambda frame: frame.assign(minutes=[5.0, float("nan"), -6.0]),
            "minutes differs in 1 rows",
        ),
        (lambda frame: frame.assign(name=["a", "", "c"]), "name differs in 1 rows"),
        (
            lambda frame: frame.assign(name=["a", float("nan"), float("nan")]),
            "name differs in 1 rows",
        ),
        (
            lambda frame: frame.assign(share=[0.1000001, float("nan"), float("inf")]),
            "share differs",
        ),
        (lambda frame: frame.assign(at=frame["at"] + pd.Timedelta("1s")), "at differs in 2 rows"),
        (lambda frame: frame.iloc[1:], "the table does not have 1 rows, such as 1"),
        (
            lambda frame: pd.concat([frame, frame.tail(1).assign(id=9)]),
            "the table has too much 1 rows",
        ),
        (
            lambda frame: pd.concat([frame, frame.tail(1)]),
            "1 keys are twice in the table, such as 3",
        ),
        (lambda frame: frame.drop(columns="name"), "columns"),
    ],
)
def test_each_kind_of_difference_is_told(
    change: Callable[[pd.DataFrame], pd.DataFrame], told: str
) -> None:
    found = compare("t", change(RIGHT.assign(minutes=[4.0, float("nan"), -6.0])), RIGHT, ["id"])
    assert not found.right and told in found.differences[0]


@pytest.mark.more
def test_the_report_tells_what_deliveries_changed() -> None:
    told = [
        change
        for week in (0, 12, 26)
        for change in changes_of(
            f"week {week}",
            flights_source.delivery(week),
            {"inserted": 6000, "updated": 40, "deleted": 970},
        )
    ]
    assert [(week.week, week.statements, week.rows) for week in told] == [
        ("week 12", "DELETE, INSERT", "970 became 957"),
        ("week 12", "UPDATE", "40 corrected"),
        ("week 26", "DELETE", "970 erased"),
    ]
    assert "2013-03-20" in told[0].what and "N725MQ" in told[2].what
    assert [minutes(value) for value in (-0.4, 0.4, -1.6, 12.5)] == ["0", "0", "-2", "12"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:Parameter `owners`")
def test_a_wrong_value_in_one_row_makes_the_demo_fail(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())  # the demo sets its own
    expected = flights_source.expected_flights

    def corrupted(weeks: int) -> pd.DataFrame:
        frame = expected(weeks)
        frame.loc[1000, "distance"] = -1
        return frame

    monkeypatch.setattr(flights_source, "expected_flights", corrupted)
    try:
        assert demo.main(["--home", str(tmp_path), "--weeks", "1"]) == 1
        with dg.DagsterInstance.get() as instance:
            again = (
                definitions.defs()
                .resolve_job_def("week_job")
                .execute_in_process(
                    instance=instance, run_config=demo.QUIET, partition_key="2013-01-01"
                )
            )
        # A week that is loaded again is replaced: its checks would see it doubled.
        [event] = again.get_asset_materialization_events()
        assert event.materialization.metadata["rows deleted"].value == 6099
        assert event.materialization.metadata["dagster/row_count"].value == 6099
    finally:
        with Metastore.connect(tmp_path / "warehouse" / "_metastore") as metastore:
            metastore.stop()
    shown = capsys.readouterr().out
    assert "nyc.flights is wrong: distance differs in 1 rows" in shown
    assert shown.count("is wrong") == 1  # of six tables
    report = (tmp_path / "report.html").read_text()
    assert "distance differs in 1 rows" in report and "data:image/png;base64," in report
