"""What can be read of a table: the verbs of every handle, written over what a snapshot sees."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from acid_platform.base.arguments import (
    require_condition,
    require_kind,
    require_limit,
    require_list,
)
from acid_platform.errors import InvalidDefinition
from acid_platform.handles.snapshot_view import SnapshotView
from acid_platform.layout.types import Column
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf, KeptHistory, SnapshotName, Tag
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.open import arrow_scan, select_entities
from acid_platform.tables.record_layout import all_columns_of, columns_of_record
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import arrow_schema
from acid_platform.values.row_streams import ArrowLender, polars_frame, streamed, to_frame

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.handles.held_snapshot import TableSnapshot
    from acid_platform.handles.snapshot_comparison import RowDifference
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.scan.scans import ArrowScan


class Reads(ArrowLender):
    """A table at the snapshot of a handle: a new one for each call of a Table, otherwise that of
    the transaction or snapshot which the handle belongs to."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._warehouse, self._name = warehouse, name

    @abstractmethod
    def _lasting_view(self) -> AbstractContextManager[SnapshotView]:
        """A checked block that opens what is read after it too, such as a frame."""

    @abstractmethod
    def _brief_view(self) -> AbstractContextManager[SnapshotView]:
        """A checked block at whose end the result is complete."""

    # --- the declaration -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """`db.table`, in lower case."""
        return self._name

    @property
    @abstractmethod
    def record(self) -> TableRecord:
        """The table's declaration. Raises NoSuchTable."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of_record(self.record)[0]

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        return columns_of_record(self.record)[1]

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns, then the partition columns."""
        return all_columns_of(self.record)

    @property
    def schema(self) -> pa.Schema:
        """The schema of `batches` and `to_arrow`."""
        return arrow_schema(self.all_columns)

    @property
    def location(self) -> str:
        """Path or URI of the table's directory."""
        return self.record.location

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.record.properties)

    def partitions(self) -> list[str]:
        """Names such as `month=3`, sorted; empty for an unpartitioned table."""
        with self._brief_view() as view:
            return view.partitions(self.name)

    # --- rows ----------------------------------------------------------------------------------

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> DataFrame:
        """The rows as a lazy frame, in no particular order; `row_id` adds the column row__id.

        `snapshot` reads at a write id list instead. `as_of` reads the table as it was right after
        the commit of a write id (int), at a time (UTC if it has no zone) or at a tag (str), with
        the columns of then. Neither has rows that the transaction has written itself.

        The frame keeps its snapshot. That of a Table has a read lease of the warehouse, which
        protects its files until `Warehouse.release`, `close` or `acid.read.lease.max` (P12); any
        other ends with its block. A later action raises SnapshotExpired once the files are gone.
        Raises UnknownColumn, InvalidExpression, NotEnoughHistory (which says since when history is
        kept), NoSuchPast, SnapshotExpired (P29), TxnAborted.
        """
        from acid_platform.engine.spark.query import table_rows

        _require_reading(columns, where)
        write_ids, past = _parsed(snapshot, as_of)
        with self._lasting_view() as view:
            (scan,) = view.scans([view.request(self.name, where, write_ids, past)])
        return table_rows(lambda: self._warehouse.spark, scan, columns, where, row_id, self.name)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> pa.Table:
        """The rows of `read` as a pyarrow Table, without a JVM: for notebooks and small tables.

        Only the wanted columns are decoded. `where` may compare columns with literals and with each
        other; predicates that only Spark evaluates are refused. Timestamps have no zone: they are
        wall clock times (P17). Insert-only tables of other formats than ORC and Parquet raise
        NeedsSpark: use read(). Raises UnknownColumn, InvalidExpression, UnsupportedStatement,
        UnsupportedLayout, NotEnoughHistory, NoSuchPast, CorruptFile, and SnapshotExpired or
        TxnAborted if this process was suspended for so long that files may have been removed (P29).
        """
        with self._opened(columns, where, snapshot, row_id, as_of) as scan:
            return scan.table()

    def batches(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `to_arrow` as record batches, a few of which are in memory at a time.

        The snapshot is held, and its files stay, until the last batch is read or the reader is
        closed; that of a transaction ends with it. Raises as `to_arrow`, also while batches are
        read.
        """
        return streamed(self._opened(columns, where, snapshot, row_id, as_of))

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> pd.DataFrame:
        """The rows of `to_arrow` as a frame of pandas; dates and decimals are Python's."""
        return to_frame(self.to_arrow(columns, where, snapshot, row_id, as_of))

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> pl.DataFrame:
        """The rows of `to_arrow` as a frame of Polars.

        Raises ModuleNotFoundError unless that is installed, which the platform doesn't need.
        """
        return polars_frame(self.to_arrow(columns, where, snapshot, row_id, as_of))

    def head(
        self,
        limit: int = 5,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: SnapshotName | None = None,
    ) -> pd.DataFrame:
        """The first rows in the order of the files, as pandas; reads no more than they need.

        Raises as `to_arrow`.
        """
        require_limit(limit)
        with self._opened(columns, where, as_of=as_of) as scan:
            return to_frame(scan.first(limit))

    def count(self, where: str | None = None, as_of: SnapshotName | None = None) -> int:
        """The number of rows, without Spark: from the records of files if no row needs a test.

        Raises as to_arrow; use `read(where=…).count()` for predicates that only Spark evaluates.
        """
        with self._opened([], where, as_of=as_of) as scan:
            return scan.count()

    @contextmanager
    def _opened(
        self,
        columns: Sequence[str] | None,
        where: str | None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> Iterator[ArrowScan]:
        """A scan without a JVM, whose files stay until the block ends."""
        _require_reading(columns, where)
        write_ids, past = _parsed(snapshot, as_of)
        with self._brief_view() as view:
            source = view.source(view.request(self.name, where, write_ids, past))
            yield arrow_scan(*source, columns, where, row_id)

    def snapshot(self) -> TableSnapshot:
        """The files that are read now; they are protected as those of a frame."""
        from acid_platform.handles.held_snapshot import TableSnapshot

        with self._lasting_view() as view:
            request = view.request(self.name)
            view.scans([request])
            layout, write_ids, txns = view.source(request)
            directories = select_entities(layout, write_ids, txns)
        return TableSnapshot(self.name, write_ids, txns, directories)

    # --- the past ------------------------------------------------------------------------------

    def changes(
        self,
        since: SnapshotName | None = None,
        until: SnapshotName | None = None,
        columns: Sequence[str] | None = None,
        consumer: str | None = None,
    ) -> DataFrame:
        """The rows that the commits after `since` and up to `until` (None: now) have changed.

        Both are as `as_of` of `read`; without `since` every row is new. The columns are those of
        the table at `until`, then `_change_type` (`insert`, `delete`, `update_preimage` or
        `update_postimage`), `_write_id`, `_txn_id` and `_commit_timestamp`, which ascends with the
        order of commits. Without order; the frame keeps its files as that of `read` does, and has
        no change of an open transaction.

        With `consumer`, a name, instead of `since` and `until`, these are the changes since that
        consumer's last commit, all rows if there was none. Read in a transaction, its commit moves
        the consumer's cursor: each change is consumed once, together with what is made of it. If
        another transaction has moved it, the commit raises WriteConflict.

        Raises NotEnoughHistory (which says since when changes are kept), NoSuchPast, UnknownColumn,
        InvalidDefinition.
        """
        from acid_platform.engine.spark.scan import changed_rows

        _require_reading(columns)
        first, last = _between(since, until, consumer)
        with self._lasting_view() as view:
            scan = view.changes(self.name, first, last)
        return changed_rows(lambda: self._warehouse.spark, scan, columns)

    def changes_arrow(
        self,
        since: SnapshotName | None = None,
        until: SnapshotName | None = None,
        columns: Sequence[str] | None = None,
        consumer: str | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `changes` as record batches, without a JVM; a few are in memory at a time.

        Of each partition, the removed rows come first. The files stay until the last batch is read
        or the reader is closed. Raises as `changes`, while batches are read also CorruptFile and
        SnapshotExpired.
        """
        _require_reading(columns)
        first, last = _between(since, until, consumer)

        @contextmanager
        def opened() -> Iterator[ChangeScan]:
            with self._brief_view() as view:
                yield view.changes(self.name, first, last).wanting(columns)

        return streamed(opened())

    def diff(
        self, before: SnapshotName | None, after: SnapshotName | None = None, limit: int = 20
    ) -> RowDifference:
        """The rows that differ between two snapshots (None: now), compared by value.

        `limit`: how many of them to show; the counts are of all. Raises as `read`.
        """
        from acid_platform.handles.snapshot_comparison import others_between, row_difference

        require_limit(limit)
        pasts = [_named(before), _named(after)]
        with self._brief_view() as view:
            requests = [view.request(self.name, as_of=past) for past in pasts]
            first, second = view.scans(requests)
            others = others_between(*(request.past for request in requests))
            engines, settings = self._warehouse.engines, view.in_force
            return row_difference(
                engines, settings, first, second, self.name, limit, different=others
            )

    def history(self) -> list[dict[str, Any]]:
        """Committed writes, oldest first: operation, directory, rows, bytes, transaction, time.

        Each is a dict whose fields are also attributes, such as `entry.operation`."""
        rows = self._warehouse.metastore.history(self.name)
        with self._brief_view() as view:
            write_ids, _ = view.lists(self.name)
        return [row for row in rows if write_ids.is_valid(row["write_id"])]

    def tags(self) -> tuple[Tag, ...]:
        """The tags of now, oldest snapshot first."""
        return self.retained().tags

    def retained(self) -> KeptHistory:
        """Since when the table can be read as of the past now, and what that costs in bytes."""
        (kept_history,) = self._warehouse.metastore.call(ops.GetKept(self.name))
        return kept_history


def _require_reading(columns: object, where: object = None) -> None:
    """Raises WrongType unless the columns are a list, InvalidExpression for a wrong predicate."""
    require_list("columns", columns, "a list of names, such as ['id']")
    require_condition("where", where, type(None))


def _named(name: SnapshotName | None) -> AsOf | None:
    return None if name is None else AsOf.of(name)


def _between(
    since: SnapshotName | None, until: SnapshotName | None, consumer: str | None
) -> tuple[AsOf | None, AsOf | None]:
    """Raises InvalidDefinition if a consumer and one of the others are given, WrongType."""
    if consumer is None:
        return _named(since), _named(until)
    if since is not None or until is not None:
        raise InvalidDefinition(
            f"since={since!r}, until={until!r} and consumer={consumer!r}: a consumer reads from its"
            " cursor up to the snapshot; pass either the consumer or the others"
        )
    return AsOf(consumer=consumer), None


def _parsed(
    snapshot: ValidWriteIdList | str | None, as_of: SnapshotName | None
) -> tuple[ValidWriteIdList | None, AsOf | None]:
    """Raises InvalidDefinition if both are given, WrongType."""
    given = "a write id list, or its text"
    require_kind("snapshot", snapshot, (str, ValidWriteIdList, type(None)), given)
    if snapshot is not None and as_of is not None:
        raise InvalidDefinition("snapshot= and as_of= both say what to read; pass one of them")
    write_ids = ValidWriteIdList.parse(snapshot) if isinstance(snapshot, str) else snapshot
    return write_ids, _named(as_of)
