"""Branches (P80): what is committed on them, and the events.

A transaction on a branch sees the snapshot from which the branch starts, and what was committed on
the branch before it began. Its commit is compared with the others on the branch. For everybody else
it stays open: no snapshot sees its write ids, and no compaction merges them.
"""

from __future__ import annotations

from dataclasses import field, replace
from difflib import get_close_matches

from acid_platform.errors import InvalidDefinition, NoSuchBranch
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import Branch, BranchCommit
from acid_platform.metastore.messages import FLAT
from acid_platform.metastore.rules.declared import commits_on
from acid_platform.metastore.rules.state import State, Txn, remove_lock
from acid_platform.metastore.rules.turn import Event


def branch_named(state: State, name: str) -> Branch:
    """Raises NoSuchBranch."""
    branch = state.branches.get(name)
    if branch is None:
        near = get_close_matches(name, state.branches, 1)
        hint = f"did you mean {near[0]!r}?" if near else "make it with `acid branch create`"
        raise NoSuchBranch(f"there is no branch {name!r}; {hint}")
    return branch


def newest_on(state: State, name: str) -> Txn:
    """A transaction as it would begin now on the branch. Raises NoSuchBranch."""
    base = state.txns[branch_named(state, name).txn]
    return replace(base, sees=tuple(commit.txn for commit in commits_on(state, base.txn_id)))


def require_branchable(state: State, txn: Txn, contents: ops.CommitContents) -> None:
    """Raises InvalidDefinition for what can't be committed on a branch: other declarations, the
    position of consumers and streaming queries, and what a serializable transaction read."""
    parts = {
        "columns are added": contents.columns,
        "all files are written again": contents.rewritten,
        "a consumer of changes moves on": contents.cursors,
        "a streaming query writes": contents.sinks,
        "a transaction is serializable": contents.read,
    }
    for what, some in parts.items():
        if some:
            name = next(name for name, made in state.branches.items() if made.txn == txn.branch)
            raise InvalidDefinition(
                f"on branch {name}, rows are changed and nothing else, and here {what}; do it"
                " without the branch"
            )


class BranchMade(Event, kind="branch_made"):
    branch: Branch = field(metadata=FLAT)

    def apply(self, state: State, _at: int) -> None:
        made = self.branch
        state.branches[made.name] = made
        state.txns[made.txn] = replace(state.txns[made.txn], branch=made.txn)
        state.heartbeats.pop(made.txn, None)


class BranchCommitted(Event, kind="branch_commit"):
    commit: BranchCommit = field(metadata=FLAT)

    def apply(self, state: State, _at: int) -> None:
        commit = self.commit
        state.branch_commits.setdefault(commit.branch, {})[commit.txn] = commit
        for ext in list(state.locks_by_txn.get(commit.txn, ())):
            remove_lock(state, ext)
        state.heartbeats.pop(commit.txn, None)
        state.txns[commit.txn] = replace(state.txns[commit.txn], joined=True, sees=(), pins=())


class BranchEnded(Event, kind="branch_ended"):
    """It was merged or dropped: its transactions have ended."""

    name: str

    def apply(self, state: State, _at: int) -> None:
        state.branch_commits.pop(state.branches.pop(self.name).txn, None)
