"""The verbs of a table that concern its past: roll back, tag, compare (P36)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from acid_platform.handles.autocommit import autocommit
from acid_platform.metastore.pasts import AsOf, KeptHistory, Tag
from acid_platform.tables.context import ScanRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.handles.difference import Difference
    from acid_platform.handles.warehouse import Warehouse


class TablePasts(ABC):
    """The part of `Table` for its past."""

    _warehouse: Warehouse

    @property
    @abstractmethod
    def name(self) -> str:
        """`db.table`, in lower case."""

    def rollback_to(self, as_of: int | datetime | str, engine: str | None = None) -> int:
        """Makes the rows those of a past snapshot, in a new transaction that overwrites what has
        changed since; columns that were added since stay, and are NULL.

        `as_of`: see `read`. Returns the number of rows written. It conflicts like an overwrite
        (P30). Raises NoSuchPast, NotEnoughHistory, WriteConflict, LockTimeout.
        """
        with self._warehouse.using(engine):
            return autocommit(
                self._warehouse, self.name, lambda txn: txn.table(self.name).rollback_to(as_of)
            )

    def tag(
        self,
        name: str,
        as_of: int | datetime | str | None = None,
        expires: datetime | timedelta | None = None,
    ) -> Tag:
        """Names a snapshot, the present one or that of `as_of`, and keeps its files.

        They stay until the tag is dropped or expires, whatever the retention. Raises NoSuchPast,
        NotEnoughHistory, and InvalidDefinition for a name that is in use.
        """
        past = None if as_of is None else AsOf.of(as_of)
        if isinstance(expires, timedelta):
            expires = datetime.now(UTC) + expires
        until = AsOf.of(expires).time if expires else 0
        user = self._warehouse.info().user
        return self._warehouse.metastore.create_tag(self.name, name, past, until or 0, user)

    def tags(self) -> tuple[Tag, ...]:
        """The tags, oldest snapshot first."""
        return self.retained().tags

    def drop_tag(self, name: str) -> None:
        """Raises NoSuchPast."""
        self._warehouse.metastore.drop_tag(self.name, name)

    def diff(
        self,
        before: int | datetime | str | None,
        after: int | datetime | str | None = None,
        limit: int = 20,
    ) -> Difference:
        """The rows that differ between two snapshots (None: now), compared by value.

        `limit`: how many of them to show; the counts are of all. Raises as `read`.
        """
        from acid_platform.handles.difference import difference

        asked = [None if past is None else AsOf.of(past) for past in (before, after)]
        with self._warehouse.leases.fresh(self.name) as read:
            pasts = [None if past is None else read.past(self.name, past) for past in asked]
            scans = read.scans(
                [
                    ScanRequest(read.table(self.name) if past is None else past.table, None, past)
                    for past in pasts
                ]
            )
            settings = read.in_force
        select = self._warehouse.engines.select
        then, later = scans
        return difference(
            lambda text, reads: select(text, reads, settings), self.name, then, later, limit
        )

    def changes(
        self,
        since: int | datetime | str | None,
        until: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """The rows that the commits after `since` and up to `until` (None: now) have changed.

        Both are as `as_of` of `read`; without `since` every row is new. The columns are those of
        the table at `until`, then `_change_type` (`insert`, `delete`, `update_preimage` or
        `update_postimage`), `_write_id`, `_txn_id` and `_commit_timestamp`, which ascends with the
        order of commits. Without order; the frame keeps its files as that of `read` does. Raises
        NotEnoughHistory (which says since when changes are kept), NoSuchPast, UnknownColumn,
        InvalidDefinition.
        """
        from acid_platform.engine.spark.change_frames import changed_rows

        first, last = (None if past is None else AsOf.of(past) for past in (since, until))
        scan = self._warehouse.leases.changes(self.name, first, last)
        return changed_rows(lambda: self._warehouse.spark, scan, columns)

    def changes_arrow(
        self,
        since: int | datetime | str | None,
        until: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `changes` as record batches, without a JVM; a few are in memory at a time.

        Of each partition, the removed rows come first. The files stay until the last batch is read
        or the reader is closed. Raises as `changes`, while batches are read also CorruptFile and
        SnapshotExpired.
        """
        import pyarrow as pa

        first, last = (None if past is None else AsOf.of(past) for past in (since, until))
        leases = self._warehouse.leases
        schema, batches = leases.change_batches(self.name, first, last, columns)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def retained(self) -> KeptHistory:
        """Since when the table can be read as of the past, and what that costs in bytes."""
        (kept,) = self._warehouse.metastore.kept_history(self.name)
        return kept
