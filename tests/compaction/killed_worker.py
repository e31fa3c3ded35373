"""A Worker that is killed at a named phase.

`python -m tests.compaction.killed_worker WAREHOUSE TABLE PHASE ENGINE` runs one task of the table.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from acid_platform import Warehouse
from acid_platform.compaction import execution as compaction
from acid_platform.compaction.plan import NothingToDo
from acid_platform.engine.local import compact
from acid_platform.formats.orc import AcidWriter
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import CompactionTransaction
from acid_platform.metastore.operations.compaction import TakeCompaction
from acid_platform.services.worker import CompactionRun, work_once
from acid_platform.storage import durability

PHASES = (
    "taken",
    "begun",
    "planned",
    "staged",
    "torn file",
    "some files",
    "merged",
    "one published",
    "all published",
    "committed",
)
"""In the order in which a compaction of two outputs comes to them."""


def work(warehouse: Warehouse, table: str, worker: str | None = None) -> str:
    """One task of the table, to its end; unlike `work_once`, it raises what goes wrong."""
    run = CompactionRun.take(warehouse, worker, table)
    if run is None:
        return "nothing to do"
    if isinstance(run.prepare(), NothingToDo):
        return "nothing to compact"
    run.merge()
    run.check()
    run.commit()
    return "published"


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(owner: Any, name: str, after: int = 1, of: type[object] = object) -> None:
    """The process dies when the method has done its work for the `after`th time, if its last
    argument is one `of` a class."""
    method: Callable[..., Any] = getattr(owner, name)
    done = 0

    @wraps(method)
    def wrapped(*args: Any, **more: Any) -> Any:
        nonlocal done
        result = method(*args, **more)
        done += not args or isinstance(args[-1], of)
        if done == after:
            die()
        return result

    setattr(owner, name, wrapped)


def arm(phase: str) -> None:
    match phase:
        case "taken":
            killing(Metastore, "call", of=TakeCompaction)
        case "begun":
            killing(Metastore, "begin_compaction")
        case "planned":
            killing(CompactionRun, "prepare")
        case "staged":
            killing(compaction, "make_outputs")
        case "torn file":
            AcidWriter._tail = die  # type: ignore[assignment,method-assign]
        case "some files":
            killing(compact, "rewritten")
        case "merged":
            killing(CompactionRun, "merge")
        case "one published":
            killing(durability, "_rename")
        case "all published":
            killing(compaction, "publish")
        case "committed":
            killing(CompactionTransaction, "commit_compaction")


def main() -> None:
    place, table, phase, engine = sys.argv[1:]
    warehouse = Warehouse.open(place, engine=engine)
    arm(phase)
    print(work_once(warehouse, table=table))


if __name__ == "__main__":
    main()
