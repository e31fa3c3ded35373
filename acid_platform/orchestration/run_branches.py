"""Which branch a run works on (P81): the one that its tag `acid/branch` names, made at first use.

`run` is a branch of its own: of the run, or of all runs of its backfill. The tag then says its
name, so a run that repeats another works on the same branch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from acid_platform.errors import NoSuchBranch

if TYPE_CHECKING:
    import dagster as dg

    from acid_platform.handles.warehouse import Warehouse

BRANCH_TAG = "acid/branch"
START_TAG = "acid/branch_start"
"""Run tag: the transaction of the branch, which tells it from a later one of the same name."""
NOTHING = "nothing was written"
"""START_TAG of a run whose branch was dropped for that: what repeats it makes another."""
OWN = "run"
OF_RUN, OF_BACKFILL = "run/", "backfill/"
ROOT_BACKFILL = "dagster/root_backfill_id"


def is_own(branch: str) -> bool:
    """Whether it is the branch of a run or a backfill."""
    return branch.startswith((OF_RUN, OF_BACKFILL))


def enter_branch(handle: Warehouse, context: dg.InitResourceContext) -> None:
    """Puts the handle on the branch of the run, if it has one.

    A process with ACID_BRANCH works on that branch, whatever the tag says. Raises NoSuchBranch if
    the branch on which the run began, or the one that it repeats, was merged or dropped since;
    InvalidDefinition for a name that no branch can have.
    """
    run, instance, log = context.run, context.instance, context.log
    if run is None or instance is None or not run.tags.get(BRANCH_TAG):
        return
    if handle.metastore.branch:
        if log:
            log.info(
                f"this process works on branch {handle.metastore.branch} (ACID_BRANCH), so the tag"
                f" {BRANCH_TAG} is not followed"
            )
        return
    tags = (instance.get_run_by_id(run.run_id) or run).tags
    name = tags[BRANCH_TAG]
    if name == OWN:
        backfill = tags.get(ROOT_BACKFILL) or tags.get("dagster/backfill")
        name = OF_BACKFILL + backfill if backfill else OF_RUN + run.run_id
    if tags.get(START_TAG, NOTHING) != NOTHING:
        begun = 0
        with suppress(NoSuchBranch):
            begun = handle.branches.require(name, judged=False).txn
        if str(begun) != tags[START_TAG]:
            raise NoSuchBranch(
                f"branch {name}, on which this run began, or the one that it repeats, was merged or"
                " dropped; launch it anew from its job or assets, which makes another branch"
            )
    else:
        begun = handle.branches.create(name, if_not_exists=True).txn
        instance.add_run_tags(run.run_id, {BRANCH_TAG: name, START_TAG: str(begun)})
        merges = "merge_branches merges it" if is_own(name) else f"`acid branch merge {name}`"
        if log:
            log.info(f"what this run writes is on branch {name}, and nobody else's until {merges}")
    handle.metastore.branch = name


def process_branch() -> str:
    """The branch on which this process works: ACID_BRANCH, or an empty text."""
    return os.environ.get("ACID_BRANCH", "")
