"""Races of UPDATEs of one row between engines that all run at once, and nothing else.

    python -m tests.interop --races N --only-races [--engines trino,hive-4.0.1]

It needs no Spark: this platform takes part with its engine without a JVM.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from itertools import combinations_with_replacement
from pathlib import Path

from acid_platform import AcidError, Warehouse
from tests.conftest import temporary_warehouse
from tests.interop.checks import Checks, Run
from tests.interop.gateways import serving
from tests.interop.hive import Hive
from tests.interop.report import Report
from tests.interop.trino import Failed, Trino
from tests.interop.values import trino_rows

TABLE = "db.evolved"
Racer = tuple[Run, str]


def ours(warehouse: Warehouse) -> Racer:
    """This platform as one side of a race."""

    def run(statement: str) -> list[object]:
        try:
            warehouse.sql(statement)
        except AcidError as error:
            raise Failed(f"{type(error).__name__}: {error}") from error
        return []

    return run, TABLE


def races(chosen: argparse.Namespace, work: Path) -> Report:
    """Every pair of the chosen engines and this platform. Raises Unavailable."""
    report = Report("races", chosen.log)
    with (
        temporary_warehouse(work / "wh", engine="local") as warehouse,
        serving(warehouse) as (gateway, address),
        ExitStack() as running,
    ):
        warehouse.create_table(TABLE, "id int, s string, n bigint")
        warehouse.sql(f"INSERT INTO {TABLE} VALUES (12, 'left', 0), (13, 'raced', 0)")
        sides: dict[str, tuple[Racer, Racer]] = {"this platform": (ours(warehouse),) * 2}
        for name in chosen.engines.split(","):
            if name == "trino":
                trino = Trino(chosen.home, work / "trino", {"acid": address})
                running.callback(trino.stop)
                trino.await_start()
                sides["Trino"] = ((trino.sql, TABLE),) * 2
            else:
                version = name.removeprefix("hive-")
                hive = Hive(chosen.home, work / name, version, address, work / "wh")
                running.callback(hive.stop)
                first, second = hive.session(), hive.session()
                sides[f"Hive {version}"] = ((first.sql, TABLE), (second.sql, TABLE))
        checks = Checks(warehouse, gateway, report, list, trino_rows)
        for first_name, second_name in combinations_with_replacement(sides, 2):
            if (first_name, second_name) == ("this platform", "this platform"):
                continue  # the platform's own tests race that
            pair = [sides[first_name][0], sides[second_name][1]]
            checks.races(chosen.races, f"{first_name} and {second_name}", pair)
    return report
