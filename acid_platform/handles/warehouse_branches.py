"""Branches as their user holds them (P80): `wh.branches.create("x")`, `merge`, `drop`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from acid_platform.errors import AcidError, InvalidDefinition, NoSuchBranch, WriteConflict
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.client import lineage_events

if TYPE_CHECKING:
    from acid_platform.handles.branch_differences import BranchDifference
    from acid_platform.handles.past_rows import RowDifference
    from acid_platform.handles.snapshot_views import SnapshotView
    from acid_platform.handles.warehouse import Warehouse

BRANCH_AGE = timedelta(days=7)
"""How long a branch lives, unless its maker says otherwise: it keeps every old file of the
warehouse, and no compaction merges what was committed since in tables that it has written."""


class Branches:
    """The branches of a warehouse.

    A branch is the snapshot of all tables at its creation, with commits of its own. Open it by
    `Warehouse.open(branch=...)`, or set ACID_BRANCH for a whole process. Others see nothing of it
    until it is merged.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._metastore = warehouse.metastore

    def create(
        self, name: str, age: timedelta | None = BRANCH_AGE, if_not_exists: bool = False
    ) -> BranchRow:
        """Makes a branch of what is committed now. After `age` it is dropped; None: never.

        Raises InvalidDefinition for a name that is in use, unless `if_not_exists` answers the
        branch of this name, or that can be none; TooManyOpenTxns.
        """
        until = 0 if age is None else int((time.time() + age.total_seconds()) * 1000)
        try:
            return self._metastore.call(ops.MakeBranch(name, self._warehouse.info(), until))
        except InvalidDefinition:
            if if_not_exists:
                with suppress(NoSuchBranch):
                    return self.require(name, judged=False)
            raise

    def list(self, judged: bool = True) -> list[BranchRow]:
        """The branches by name, each with the tables that it has written and, if they are `judged`,
        why it can't be merged now."""
        return self._metastore.call(ops.GetBranches(judged=judged))

    def require(self, name: str, judged: bool = True) -> BranchRow:
        """The branch of this name; why it can't be merged only if it is `judged`. Raises
        NoSuchBranch."""
        (found,) = self._metastore.call(ops.GetBranches(name, judged))
        return found

    def diff(self, table: str, limit: int = 20) -> RowDifference:
        """The rows of a table that the branch of this handle has removed and added, compared by
        value; `limit`: how many of them to show.

        Raises InvalidDefinition without a branch, NoSuchTable.
        """
        from acid_platform.handles.branch_differences import at_start
        from acid_platform.handles.past_rows import row_difference

        warehouse, name = self._warehouse, table_name(table)
        if not self._metastore.branch:
            raise InvalidDefinition("open the warehouse on a branch to compare it with its start")
        branch = self.require(self._metastore.branch, judged=False)
        with warehouse.leases.brief(name) as view:
            first, second = view.scans([at_start(view, branch, name), view.request(name)])
            return row_difference(
                warehouse.engines, view.in_force, first, second, name, limit, different=frozenset()
            )

    def compare(
        self, other: Warehouse, table: str, key: Sequence[str] | None = None, limit: int = 20
    ) -> BranchDifference:
        """How a table differs between this handle, which is `here`, and another one of the same
        warehouse, on another branch or on none.

        Rows are paired by the columns of `key`, None: those of the declared primary key, empty: not
        at all. `limit`: how many rows and pairs to show. Raises NoSuchTable if neither has the
        table, UnknownColumn, InvalidDefinition for a handle on another warehouse.
        """
        from acid_platform.handles.branch_differences import one_difference

        with self._beside(other) as sides:
            return one_difference(self._warehouse.engines, sides, table_name(table), key, limit)

    def compare_all(self, other: Warehouse) -> tuple[BranchDifference, ...]:
        """As `compare`, of all tables that differ or that only one of the two has, without rows."""
        from acid_platform.handles.branch_differences import differences

        with self._beside(other) as sides:
            names = {
                record.name
                for each in (self._metastore, other.metastore)
                for record in each.call(ops.GetTables(each.branch))
            }
            return tuple(differences(self._warehouse.engines, sides, sorted(names)))

    @contextmanager
    def _beside(self, other: Warehouse) -> Iterator[tuple[SnapshotView, SnapshotView]]:
        ids = [each.call(ops.GetIdentity()).id for each in (self._metastore, other.metastore)]
        if ids[0] != ids[1]:
            raise InvalidDefinition(
                f"{other.path} is another warehouse than {self._warehouse.path}; compare handles on"
                " one, each on its branch"
            )
        with self._warehouse.leases.brief() as here, other.leases.brief() as there:
            yield here, there

    def merge(self, name: str) -> int:
        """Commits everything of the branch at one moment, and ends it; answers the highest
        transaction id then.

        Raises NoSuchBranch; WriteConflict if others have changed the same rows since the branch was
        made, with the values of some of these rows; DeclarationChanged or NoSuchTable if they have
        changed a table that it wrote, and BranchInUse while it is being written. Then nothing has
        changed.
        """
        merged = self.require(name, judged=False) if lineage_events.is_on() else None
        try:
            commit_id = self._metastore.call(ops.MergeBranch(name))
        except WriteConflict as refused:
            told = ""
            with suppress(AcidError):  # the branch may have ended meanwhile
                told = self._changed_twice(name)
            if not told:
                raise
            raise WriteConflict(
                f"branch {name} can't be merged, since both sides have changed {told} (as it was"
                " when the branch was made); nothing was changed: make another branch, and do its"
                " work again there"
            ) from refused
        if merged is not None and merged.write_ids:
            metastore, txn, tables = self._metastore, merged.txn, sorted(merged.write_ids)
            lineage_events.tell(
                txn,
                lambda: lineage_events.CommitFacts(
                    metastore.places.root,
                    txn,
                    "merge",
                    tuple(
                        lineage_events.ToldTable(
                            table, lineage_events.columns_of(metastore.table(table))
                        )
                        for table in tables
                    ),
                    frozenset(lineage_events.dataset(table, name) for table in tables),
                ),
            )
        return commit_id

    def _changed_twice(self, name: str) -> str:
        """The rows that refuse a merge, with their values; empty if nobody knows them."""
        from acid_platform.handles.branch_differences import rows_at_start

        branch = self.require(name)
        with self._warehouse.leases.brief(branch=name) as view:
            every = (rows_at_start(self._warehouse.engines, view, branch, x) for x in branch.twice)
            return "; ".join(filter(None, every))

    def drop(self, name: str) -> None:
        """Drops the branch with all that was written there. Raises NoSuchBranch."""
        self._metastore.call(ops.RemoveBranch(name))
