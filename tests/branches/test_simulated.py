"""The rules of branches hold in simulated runs, and each that is broken is noticed (P80)."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform.metastore.rules import branch_commits, declared, merging, snapshots, write_set
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import stored_kinds
from acid_platform.transactions import ValidTxnList
from tests.branches.simulated import Simulated
from tests.conftest import quick_then_slow
from tests.simulation.mutations import Faulty

STEPS = 200


@pytest.mark.more
@pytest.mark.parametrize("seed", quick_then_slow(range(60), 3))
def test_P80_what_each_side_sees_and_what_can_be_merged(seed: int) -> None:
    Simulated(seed).run(STEPS)


def _nothing(_real: Any, *_: Any, **__: Any) -> None:
    return None


def _at_once(real: Any, event: branch_commits.BranchCommitted, state: State, at: int) -> None:
    commit = event.commit
    real(event, state, at)
    write_set.Committed(commit.txn, commit.commit_id, (), commit.placed, commit.written).apply(
        state, at
    )


def _as_of_its_id(_real: Any, state: State) -> Any:
    takers = sorted((txn.txn_id, txn.taken) for txn in state.open_txns() if txn.taken)

    def first(txn_id: int) -> int:
        return min((taken for key, taken in takers if key > txn_id), default=state.next_moment)

    return first


def _own_only(real: Any, state: State, txn: Any) -> ValidTxnList | None:
    found: ValidTxnList | None = real(state, txn)
    if found is None or not txn.branch:
        return found
    return ValidTxnList.of(found.high_watermark, set(found.open) | {1, 2, 3}, found.aborted)


def _forgetting(real: Any, *stored: Any) -> State:
    state: State = real(*stored)
    for commits in state.branch_commits.values():
        commits.popitem()
    return state


MUTATIONS = (
    Faulty(
        "P80", "a merge is not compared with what others did", merging.require_mergeable, _nothing
    ),
    Faulty("P80", "a merge brings nothing", merging._commit, _nothing),
    Faulty("P80", "a branch does not end", merging.expire, _nothing),
    Faulty("P80", "who runs on a branch outlives it", merging._end_readers, lambda *_: ""),
    Faulty("P80", "nobody runs on a branch", merging._with_clients, lambda *_: []),
    Faulty("P80", "commits show at once", branch_commits.BranchCommitted.apply, _at_once),
    Faulty("P80", "a snapshot of a branch is forgotten", snapshots.first_snapshot, _as_of_its_id),
    Faulty("P80", "a branch lacks rows of its parent", snapshots.snapshot, _own_only),
    Faulty("P80", "a branch sees nothing of its own", declared.commits_on, lambda *_: iter(())),
    Faulty("P80", "commits on a branch are not compared", write_set._rows, lambda *_: iter(())),
    Faulty("P80", "a snapshot loses a commit", stored_kinds.restore, _forgetting),
)


@pytest.mark.more
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_a_broken_rule_of_branches_is_noticed(mutation: Faulty) -> None:
    with mutation.applied(), pytest.raises(AssertionError, match="seed"):
        for seed in range(10):
            Simulated(seed).run(STEPS)
