"""What can be read of a table: a scan of it as a value, the verbs of every handle, and the handles
of one snapshot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from acid_platform.base.arguments import (
    require_condition,
    require_kind,
    require_limit,
    require_list,
)
from acid_platform.base.first_use import ClosedAfter
from acid_platform.errors import InvalidDefinition, NoSuchTxn, SnapshotExpired
from acid_platform.handles.snapshot_views import HeldLease, LeaseView, ScanRequest, SnapshotView
from acid_platform.layout.names import table_name
from acid_platform.layout.types import Column
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf, KeptHistory, SnapshotName, Tag
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.open import open_scan, result_of, select_entities
from acid_platform.scan.scans import ArrowScan
from acid_platform.tables.record_layout import all_columns_of, columns_of_record
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from acid_platform.values.arrow_types import arrow_schema
from acid_platform.values.row_streams import ArrowLender, polars_frame, streamed, to_frame

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.handles.past_rows import RowDifference
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import OpenTransaction
    from acid_platform.scan.change_scan import ChangeScan

_COLUMNS = "a list of names, such as ['id']"


@dataclass(frozen=True, slots=True)
class TableScan:
    """Some rows of a table, as a value: each of its outputs reads them anew. Get one by `scan`.

    Outputs but `read` need no JVM. Only the wanted columns are decoded. Their `where` may compare
    columns with literals and with each other; predicates that only Spark evaluates are refused.
    Timestamps have no zone: they are wall clock times (P17). Insert-only tables of other formats
    than ORC and Parquet raise NeedsSpark: use `read`. All raise UnknownColumn, InvalidExpression,
    UnsupportedStatement, UnsupportedLayout, NotEnoughHistory (which says since when history is
    kept), NoSuchPast, CorruptFile, and SnapshotExpired or TxnAborted if this process was suspended
    for so long that files may have been removed (P29).
    """

    table: Reads
    columns: Sequence[str] | None = None
    where: str | None = None
    write_ids: ValidWriteIdList | None = None
    row_id: bool = False
    as_of: AsOf | None = None

    def read(self) -> DataFrame:
        """The rows as a lazy frame of Spark, in no particular order.

        The frame keeps its snapshot. That of a Table has a read lease of the warehouse, which
        protects its files until `Warehouse.release`, `close` or `acid.read.lease.max` (P12); any
        other ends with its block. A later action raises SnapshotExpired once the files are gone.
        """
        from acid_platform.engine.spark.query import table_rows

        table, columns, where = self.table, self.columns, self.where
        with table._lasting_view() as view:
            (scan,) = view.scans([self._request(view)])
        warehouse = table._warehouse
        return table_rows(lambda: warehouse.spark, scan, columns, where, self.row_id, table.name)

    def to_arrow(self) -> pa.Table:
        """The rows as a pyarrow Table, in the order of the files."""
        with self._opened() as scan:
            return scan.table()

    def batches(self) -> pa.RecordBatchReader:
        """The rows of `to_arrow` as record batches, a few of which are in memory at a time.

        The snapshot is held, and its files stay, until the last batch is read or the reader is
        closed; that of a transaction ends with it. Raises also while batches are read.
        """
        return streamed(self._opened())

    def to_pandas(self) -> pd.DataFrame:
        """The rows of `to_arrow` as a frame of pandas; dates and decimals are Python's."""
        return to_frame(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """The rows of `to_arrow` as a frame of Polars.

        Raises ModuleNotFoundError unless that is installed, which the platform doesn't need.
        """
        return polars_frame(self.to_arrow())

    def lazy(self) -> pl.LazyFrame:
        """The rows of `to_arrow` as a lazy frame of Polars, as often as it is collected.

        A query of it reads the columns that it needs, and leaves out partitions, files, stripes and
        rows by its conditions. It keeps its snapshot as the frame of `read` does, also when others
        write. Raises SnapshotExpired, when it is collected, once the files may be gone.
        """
        from acid_platform.handles.lazy_frames import lazy_frame

        with self.table._lasting_view() as view:
            request = self._request(view)
            names, predicate = result_of(view.source(request)[0], self.columns, self.where)
            (scan,) = view.scans([request])
        return lazy_frame(ArrowScan(scan, names, predicate, self.row_id), self.table.name)

    def head(self, limit: int = 5) -> pd.DataFrame:
        """The first rows in the order of the files, as pandas; reads no more than they need."""
        require_limit(limit)
        with self._opened() as scan:
            return to_frame(scan.first(limit))

    def count(self) -> int:
        """The number of rows, without Spark: from the records of files if no row needs a test.

        For predicates that only Spark evaluates, use `read().count()`.
        """
        with self._opened() as scan:
            return scan.count()

    def _request(self, view: SnapshotView) -> ScanRequest:
        return view.request(self.table.name, self.where, self.write_ids, self.as_of)

    @contextmanager
    def _opened(self) -> Iterator[ArrowScan]:
        """A scan without a JVM, whose files stay until the block ends."""
        with self.table._brief_view() as view:
            layout, write_ids, txns = view.source(self._request(view))
            names, predicate = result_of(layout, self.columns, self.where)
            listings = view.listings(layout, self.where)
            scan = open_scan(layout, listings, write_ids, txns, self.where)
            yield ArrowScan(scan, names, predicate, self.row_id)


_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


def _output(
    scan: Callable[Concatenate[Any, _Given], TableScan], output: Callable[[TableScan], _Result]
) -> Callable[Concatenate[Any, _Given], _Result]:
    """The verb of a table that takes what `scan` takes, and returns this output of it."""

    @wraps(output)
    def verb(table: Any, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        return output(scan(table, *given, **named))

    of_scan = signature(scan)
    returned = signature(output).return_annotation
    verb.__doc__ = f"{output.__doc__}\n\nTakes what `scan` takes."
    verb.__signature__ = of_scan.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return verb


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

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: SnapshotName | None = None,
    ) -> TableScan:
        """Some of the rows, as a value; nothing is read before one of its outputs is asked for.

        `columns`: None for all of them. `where` is a condition in Spark's SQL. `row_id` adds the
        column row__id. `snapshot` reads at a write id list instead. `as_of` reads the table as it
        was right after the commit of a write id (int), at a time (UTC if it has no zone) or at a
        tag (str), with the columns of then. Neither has rows that the transaction has written
        itself. `read`, `to_arrow`, `batches`, `to_pandas`, `to_polars` and `lazy` take the same.
        """
        require_list("columns", columns, _COLUMNS)
        require_condition("where", where, type(None))
        given = "a write id list, or its text"
        require_kind("snapshot", snapshot, (str, ValidWriteIdList, type(None)), given)
        if snapshot is not None and as_of is not None:
            raise InvalidDefinition("snapshot= and as_of= both say what to read; pass one of them")
        write_ids = ValidWriteIdList.parse(snapshot) if isinstance(snapshot, str) else snapshot
        return TableScan(self, columns, where, write_ids, row_id, _named(as_of))

    read = _output(scan, TableScan.read)
    """`scan`, then `TableScan.read`."""
    to_arrow = _output(scan, TableScan.to_arrow)
    """`scan`, then `TableScan.to_arrow`."""
    batches: Callable[..., pa.RecordBatchReader] = _output(scan, TableScan.batches)
    """`scan`, then `TableScan.batches`."""
    to_pandas = _output(scan, TableScan.to_pandas)
    """`scan`, then `TableScan.to_pandas`."""
    to_polars = _output(scan, TableScan.to_polars)
    """`scan`, then `TableScan.to_polars`."""
    lazy = _output(scan, TableScan.lazy)
    """`scan`, then `TableScan.lazy`."""

    def head(
        self,
        limit: int = 5,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: SnapshotName | None = None,
    ) -> pd.DataFrame:
        """See `TableScan.head`."""
        return self.scan(columns, where, as_of=as_of).head(limit)

    def count(self, where: str | None = None, as_of: SnapshotName | None = None) -> int:
        """See `TableScan.count`."""
        return self.scan([], where, as_of=as_of).count()

    def snapshot(self) -> TableSnapshot:
        """The files that are read now; they are protected as those of a frame."""
        with self._lasting_view() as view:
            request = view.request(self.name)
            view.scans([request])
            layout, write_ids, txns = view.source(request)
            directories = select_entities(layout, view.listings(layout), write_ids, txns)
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

        require_list("columns", columns, _COLUMNS)
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
        require_list("columns", columns, _COLUMNS)
        first, last = _between(since, until, consumer)

        @contextmanager
        def opened() -> Iterator[ChangeScan]:
            with self._brief_view() as view:
                scan = view.changes(self.name, first, last).wanting(columns)
                with view.reading_changes(self.name, first):
                    yield scan

        return streamed(opened())

    def diff(
        self, before: SnapshotName | None, after: SnapshotName | None = None, limit: int = 20
    ) -> RowDifference:
        """The rows that differ between two snapshots (None: now), compared by value.

        `limit`: how many of them to show; the counts are of all. Raises as `read`.
        """
        from acid_platform.handles.past_rows import others_between, row_difference

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


def _named(name: SnapshotName | None) -> AsOf | None:
    return None if name is None else AsOf.of(name)


def _between(
    since: SnapshotName | None, until: SnapshotName | None, consumer: str | None
) -> tuple[AsOf | None, AsOf | None]:
    """Raises InvalidDefinition if a consumer and one of the others are given, WrongType."""
    if consumer is None:
        return _named(since), _named(until)
    require_kind("consumer", consumer, str, "a name")
    if not consumer or not consumer.isprintable():
        raise InvalidDefinition(f"{consumer!r} can't be the name of a consumer: printable letters")
    if since is not None or until is not None:
        raise InvalidDefinition(
            f"since={since!r}, until={until!r} and consumer={consumer!r}: a consumer reads from its"
            " cursor up to the snapshot; pass either the consumer or the others"
        )
    return AsOf(consumer=consumer), None


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """What a snapshot sees of a table: its id lists, and the directories of each partition."""

    table: str
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    directories: Mapping[str, AcidDirectory]
    """By partition name; '' stands for an unpartitioned table."""

    def __str__(self) -> str:
        lines = [str(self.write_ids)]
        for partition, directory in self.directories.items():
            names = [directory.base.directory] if directory.base else []
            names += [delta.directory for delta in directory.deltas]
            lines.append(f"  {partition or self.table}: {' '.join(names) or 'empty'}")
        return "\n".join(lines)

    def __rich__(self) -> object:
        from acid_platform import display

        return display.snapshot(self)

    def _repr_html_(self) -> str:
        from acid_platform import display

        return display.snapshot(self)._repr_html_()


class Snapshot(ClosedAfter):
    """A snapshot of all tables; its frames are valid until the block ends."""

    def __init__(self, warehouse: Warehouse, lease: OpenTransaction) -> None:
        self._warehouse, self._lease = warehouse, lease
        self._view = LeaseView(HeldLease(lease))

    def table(self, name: str) -> SnapshotTable:
        """The table as it was declared at the snapshot, whatever others do later (P28).

        Raises NoSuchTable, SnapshotExpired after the block.
        """
        try:
            record = self._lease.table(table_name(name))
        except NoSuchTxn as error:
            raise SnapshotExpired(
                f"{name}: the block of this snapshot has ended; take a new one by"
                " Warehouse.snapshot"
            ) from error
        return SnapshotTable(self._warehouse, self._view, record.name)

    def close(self) -> None:
        with suppress(SnapshotExpired):
            self._lease.commit()


class SnapshotTable(Reads):
    """A table as one snapshot sees it, also as it was before; get one by `Snapshot.table`.

    Every verb raises SnapshotExpired after the block, or if the snapshot was not read for
    `acid.read.lease.max` (P12).
    """

    def __init__(self, warehouse: Warehouse, view: SnapshotView, name: str) -> None:
        super().__init__(warehouse, name)
        self._view = view

    @property
    def record(self) -> TableRecord:
        return self._view.table(self.name)

    def _brief_view(self) -> AbstractContextManager[SnapshotView]:
        return self._view.checked()

    _lasting_view = _brief_view
