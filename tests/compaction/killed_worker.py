"""A Worker that is killed at a named phase.

`python -m tests.compaction.killed_worker WAREHOUSE TABLE PHASE` does what `CompactionRun` does, but
merges in its own process, without a JVM; with `spark` as a fourth word it is the real Worker.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from acid_platform.compaction.plan import NothingToDo
from acid_platform.compaction.validation import Profile
from acid_platform.engine.compaction_inputs import open_inputs, rewrites
from acid_platform.engine.spark import compact
from acid_platform.engine.spark.compact import StagedCompaction
from acid_platform.layout import names
from acid_platform.metastore import Metastore
from acid_platform.services.worker import CompactionRun, work_once
from acid_platform.storage import durability
from acid_platform.storage.orc_writer import AcidWriter
from acid_platform.storage.rewrite import rewrite_bucket
from acid_platform.warehouse import Warehouse

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


def merge(run: CompactionRun) -> StagedCompaction:
    """As `compact.execute`, in this process; the rows are compared by the test instead."""
    plan, work = run.plan, run._work
    assert plan and work
    staging = f"{plan.location}/{names.temporary_name(plan.txn_id, 'local')}"
    compact.make_outputs(plan, work, staging)
    for task in rewrites(plan, work, open_inputs(plan, work).sources, staging):
        rewrite_bucket(task)
    outputs = tuple(compact.finish(plan, work, staging))
    run.staged = StagedCompaction(plan, staging, outputs, Profile(), Profile())
    return run.staged


def work(warehouse: Warehouse, table: str, worker: str | None = None) -> str:
    """One task of the table, to its end."""
    run = CompactionRun.take(warehouse, worker, table)
    if run is None:
        return "nothing to do"
    if isinstance(run.prepare(), NothingToDo):
        return "nothing to compact"
    merge(run)
    run.publish()
    return "published"


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(owner: Any, name: str, after: int = 1) -> None:
    """The process dies when the method has done its work for the `after`th time."""
    method: Callable[..., Any] = getattr(owner, name)
    done = 0

    @wraps(method)
    def wrapped(*args: Any, **more: Any) -> Any:
        nonlocal done
        result = method(*args, **more)
        done += 1
        if done == after:
            die()
        return result

    setattr(owner, name, wrapped)


def arm(phase: str) -> None:
    this = sys.modules[__name__]
    match phase:
        case "taken":
            killing(Metastore, "take_compaction")
        case "begun":
            killing(Metastore, "begin_compaction")
        case "planned":
            killing(CompactionRun, "prepare")
        case "staged":
            killing(compact, "make_outputs")
        case "torn file":
            AcidWriter._tail = die  # type: ignore[assignment,method-assign]
        case "some files":
            killing(this, "rewrite_bucket")
        case "merged":
            killing(this, "merge")
        case "one published":
            killing(durability, "_rename")
        case "all published":
            killing(compact, "publish")
        case "committed":
            killing(Metastore, "commit_compaction")


def main() -> None:
    place, table, phase, *spark = sys.argv[1:]
    warehouse = Warehouse.open(place)
    arm(phase)
    print(work_once(warehouse) if spark else work(warehouse, table))


if __name__ == "__main__":
    main()
