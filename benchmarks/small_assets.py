"""A small platform: ten assets of a thousand rows with checks. `small` alone is what
`benchmarks.launching` materializes; `benchmarks.platform_day` runs a day of all of them.

A process that has loaded this module writes at its end which large packages it has imported, into
the directory that SMALL_ASSETS_TOLD names.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import atexit
import datetime
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from acid_platform.orchestration import (
    Expectation,
    TableDeclaration,
    TableInput,
    Transaction,
    acid_asset,
    asset_key,
    services,
)
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

JOB = "small_job"
FIRST_JOB, DAY_JOB = "first_job", "day_job"
TOLD = "SMALL_ASSETS_TOLD"
LARGE = ("great_expectations", "pyspark", "pandas")
ROWS = 1000
FIRST = datetime.date(2024, 1, 1)
DAYS = dg.DailyPartitionsDefinition(FIRST.isoformat(), end_date="2024-01-31")


def check(name: str, kind: str, **arguments: Any) -> Expectation:
    return Expectation(name, kind, arguments)


def priced() -> pa.Table:
    amounts = pa.array([Decimal(number) / 4 for number in range(ROWS)], pa.decimal128(9, 2))
    return pa.table({"id": range(ROWS), "amount": amounts})


AMOUNTS = check("amounts", "ExpectColumnValuesToBeBetween", column="amount", min_value=0)


@acid_asset(
    table=TableDeclaration("bench.small", "id bigint, amount decimal(9,2)"), expectations=[AMOUNTS]
)
def small() -> pa.Table:
    return priced()


@acid_asset(
    table=TableDeclaration("bench.customers", "id bigint, mail string, since date"),
    write_mode="upsert",
    key=["id"],
    expectations=[
        check(
            "mails", "ExpectColumnValuesToMatchRegex", column="mail", regex="^[a-z0-9]+@x[.]org$"
        ),
        check("since", "ExpectColumnValuesToBeBetween", column="since", min_value=FIRST),
        check("ids", "ExpectColumnValuesToBeUnique", column="id"),
    ],
)
def customers() -> pa.Table:
    ids = range(ROWS)
    mails = [f"c{number}@x.org" for number in ids]
    return pa.table({"id": ids, "mail": mails, "since": [FIRST] * ROWS})


@acid_asset(
    table=TableDeclaration("bench.countries", "code string, name string"),
    expectations=[
        check("codes", "ExpectColumnValuesToBeInSet", column="code", value_set=["at", "de", "fr"]),
        check("three", "ExpectTableRowCountToEqual", value=3),
    ],
)
def countries() -> list[dict[str, str]]:
    names = {"at": "Austria", "de": "Germany", "fr": "France"}
    return [{"code": code, "name": name} for code, name in names.items()]


@acid_asset(
    table=TableDeclaration("bench.orders", "id bigint, amount decimal(9,2)", ("day date",)),
    partitions_def=DAYS,
    partition_expr="day",
    expectations=[
        AMOUNTS,
        check("total", "ExpectColumnSumToBeBetween", column="amount", min_value=1),
        check(
            "known",
            "UnexpectedRowsExpectation",
            unexpected_rows_query="SELECT o.id FROM {batch} AS o"
            " LEFT ANTI JOIN bench.customers AS c ON o.id = c.id",
        ),
    ],
    deps=[customers],
)
def orders() -> pa.Table:
    return priced()


@acid_asset(
    table=TableDeclaration("bench.visits", "id bigint, pages int, day date"),
    partitions_def=DAYS,
    write_mode="upsert",
    key=["id", "day"],
    expectations=[
        check("pages", "ExpectColumnMeanToBeBetween", column="pages", min_value=1, max_value=9),
        check("keys", "ExpectCompoundColumnsToBeUnique", column_list=["id", "day"]),
    ],
)
def visits(context: dg.AssetExecutionContext) -> pa.Table:
    """In a table without partitions, so that each day adds a delta to it."""
    day = datetime.date.fromisoformat(context.partition_key)
    return pa.table({"id": range(ROWS), "pages": [1, 5] * (ROWS // 2), "day": [day] * ROWS})


@acid_asset(
    table=TableDeclaration("bench.mails", "id bigint, mail string"),
    ins={"customers": TableInput("bench.customers", columns=["id", "mail"])},
    expectations=[
        check("all", "ExpectTableRowCountToEqualOtherTable", other_table_name="bench.customers"),
        check("lengths", "ExpectColumnValueLengthsToBeBetween", column="mail", max_value=20),
    ],
)
def mails(customers: pa.Table) -> pa.Table:
    return customers


@acid_asset(
    table=TableDeclaration("bench.newest", "id bigint, since date"),
    expectations=[
        check("newest", "ExpectColumnMaxToBeBetween", column="since", max_value=FIRST),
        check("given", "ExpectColumnValuesToNotBeNull", column="since"),
    ],
    deps=[customers],
)
def newest(txn: Transaction) -> None:
    txn.sql(
        "INSERT OVERWRITE TABLE bench.newest SELECT id, since FROM bench.customers"
        " WHERE since >= DATE'2024-01-01'"
    )


@acid_asset(
    table=TableDeclaration("bench.totals", "day date, amount decimal(19,2), orders bigint"),
    expectations=[check("days", "ExpectColumnValuesToBeUnique", column="day"), AMOUNTS],
    deps=[asset_key("bench.orders")],
)
def totals(txn: Transaction) -> None:
    txn.sql(
        "INSERT OVERWRITE TABLE bench.totals"
        " SELECT day, sum(amount), count(*) FROM bench.orders GROUP BY day"
    )


@acid_asset(
    table=TableDeclaration("bench.pages", "day date, pages bigint"),
    expectations=[check("pages_sum", "ExpectColumnSumToBeBetween", column="pages", min_value=0)],
    deps=[asset_key("bench.visits")],
)
def pages(txn: Transaction) -> None:
    txn.sql(
        "INSERT OVERWRITE TABLE bench.pages SELECT day, sum(pages) FROM bench.visits GROUP BY day"
    )


@acid_asset(
    table=TableDeclaration("bench.rejected", "id bigint, amount decimal(9,2)"),
    expectations=[
        Expectation(
            "small_amounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "amount", "max_value": 200},
            quarantine=True,
        ),
        check("pairs", "ExpectColumnPairValuesAToBeGreaterThanB", column_A="id", column_B="amount",
              or_equal=True),
    ],
)  # fmt: skip
def rejected() -> pa.Table:
    return priced()


def _tell(folder: str) -> None:
    Path(folder, str(os.getpid())).write_text(
        " ".join(name for name in LARGE if name in sys.modules)
    )


if os.environ.get(TOLD):
    atexit.register(_tell, os.environ[TOLD])

SINGLE = [small, customers, countries, mails, newest, totals, pages, rejected]
defs = dg.Definitions.merge(
    services(),
    dg.Definitions(
        assets=[*SINGLE, orders, visits],
        executor=dg.in_process_executor,
        jobs=[
            dg.define_asset_job(JOB, [small]),
            dg.define_asset_job(FIRST_JOB, [customers, countries, rejected]),
            dg.define_asset_job(DAY_JOB, SINGLE),
        ],
        resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
    ),
)
