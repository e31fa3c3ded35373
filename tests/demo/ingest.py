"""Run as a program: `python -m tests.demo.ingest WAREHOUSE WEEKS`.

Loads weekly deliveries of the demo and reports each commit. Then it writes one more week, reports
that, and holds its transaction open until it is killed.
"""

from __future__ import annotations

import sys
import time

from acid_platform import Warehouse
from assets import flights_source
from assets.flights import FLIGHTS, deliver


def main(location: str, weeks: int) -> None:
    warehouse = Warehouse.open(location)
    warehouse.create_table(
        FLIGHTS.name, FLIGHTS.columns, FLIGHTS.partitioned_by, properties=FLIGHTS.properties
    )
    for week in range(weeks):
        with warehouse.transaction() as txn:
            deliver(txn, flights_source.delivery(week))
        print(f"committed {week}", flush=True)
    with warehouse.transaction() as txn:
        deliver(txn, flights_source.delivery(weeks))
        print(f"written {txn.id}", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
