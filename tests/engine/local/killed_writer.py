"""A local statement that is killed at a named phase.

`python -m tests.engine.local.killed_writer WAREHOUSE` reads lines `TABLE PHASE` and runs, for each
in a process of its own, an UPDATE of all rows of the table with the local engine.
"""

from __future__ import annotations

import os
import sys

from acid_platform import Warehouse
from acid_platform.engine.local.event_files import EventFiles
from acid_platform.formats.orc import AcidWriter
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.storage import durability
from acid_platform.write.publishing import Staging
from tests.compaction.killed_worker import die, killing

PHASES = (
    "begun",
    "torn file",
    "one file",
    "all files",
    "synced",
    "one published",
    "all published",
    "committing",
    "committed",
)
"""In the order in which an UPDATE of two partitions comes to them."""


def arm(phase: str) -> None:
    match phase:
        case "begun":
            killing(Metastore, "begin")
        case "torn file":
            AcidWriter._tail = die  # type: ignore[assignment,method-assign]
        case "one file":
            killing(AcidWriter, "close")
        case "all files":
            killing(EventFiles, "finished")
        case "synced":
            killing(durability, "sync")
        case "one published":
            killing(durability, "_rename")
        case "all published":
            killing(Staging, "publish")
        case "committing":
            OpenTransaction.commit = die  # type: ignore[method-assign]
        case "committed":
            killing(OpenTransaction, "commit")


def main() -> None:
    place = sys.argv[1]
    for line in sys.stdin:
        table, _, phase = line.strip().partition(" ")
        child = os.fork()  # the imports are the most of such a process
        if not child:
            arm(phase)
            warehouse = Warehouse.open(place, engine="local")
            warehouse.table(table).update({"v": "concat(v, '!')"})
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(phase, os.waitstatus_to_exitcode(status), sep=": ", flush=True)


if __name__ == "__main__":
    main()
