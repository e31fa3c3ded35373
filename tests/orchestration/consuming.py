"""A program that materializes an asset which consumes changes, and may kill itself at its commit.

Arguments: the path of the warehouse, and `before`, `after` or `never`.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import os
import signal
import sys
from typing import Any

import dagster as dg
import pyarrow as pa

from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.orchestration import TableDeclaration, TableInput, acid_asset
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from tests.orchestration.conftest import quiet


@acid_asset(
    table=TableDeclaration("db.log", "id int, what string, write_id bigint"),
    write_mode="append",
    ins={"t": TableInput("db.t", columns=["id"], changes=True)},
)
def log(t: pa.Table) -> pa.Table:
    return pa.table(
        {
            "id": t.column("id"),
            "what": t.column("_change_type"),
            "write_id": t.column("_write_id"),
        }
    )


def materialize(warehouse: WarehouseResource, **options: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [log],
        run_config=quiet(),
        resources={"warehouse": warehouse, "spark": SparkResource()},
        **options,
    )


def main(path: str, when: str) -> None:
    commit = TransactionWork.commit

    def killed(self: TransactionWork) -> None:
        if when == "after":
            commit(self)
        os.kill(os.getpid(), signal.SIGKILL)

    if when != "never":
        TransactionWork.commit = killed  # type: ignore[method-assign]
    assert materialize(WarehouseResource(path=path, engine="local")).success


if __name__ == "__main__":
    main(*sys.argv[1:])
