"""Small inserts of several threads in one transaction, for tables that ask for it (P44).

A table's property `acid.group.commit.interval` lets an insert wait so long for others. A thread
then writes the rows of all that have arrived into one delta and commits once. An insert joins with
rows that are checked and have the table's types already, so that nobody's mistake reaches the
group. Whatever does not fit into it commits alone, as without the property.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.table_properties import GROUP_COMMIT
from acid_platform.engine.results import Result
from acid_platform.errors import AcidError, Transient
from acid_platform.handles.row_statements import InsertRows
from acid_platform.handles.transaction import Transaction, autocommit
from acid_platform.handles.transaction_work import InsertShares
from acid_platform.layout.partition_names import written_values
from acid_platform.metastore.records import TableRecord
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.local_rows import local_parts
from acid_platform.values.partition_texts import places_of
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, is_spark_frame, require_partition_columns
from acid_platform.values.stored_values import stored_rows

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_MOST_BYTES = 16 << 20
"""The size of the rows of a group, at most. A larger insert commits alone."""


def interval_ms(record: TableRecord) -> int:
    """How long an insert into the table waits for others; 0: it commits alone, as every insert
    into a table with constraints, so that nobody's mistake reaches a group."""
    if record.constraints:
        return 0
    return int(GROUP_COMMIT.value(record.properties))


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """An insert that waits for its group."""

    record: TableRecord
    """The declaration that its rows fit."""
    rows: pa.Table
    counts: Mapping[str, int]
    """Its rows by partition, '' without partitions."""
    arrived: float = field(default_factory=elapsed_seconds)
    committed: Future[bool] = field(default_factory=Future)
    """Whether its rows are committed; if not, it has to commit alone."""


class GroupedInserts:
    """The inserts of a warehouse handle that wait for others. Thread-safe."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._begin()
        _handles.add(self)

    def _begin(self) -> None:
        self._arrived = threading.Condition()
        self._waiting: dict[str, list[_Waiting]] = {}
        """By table, as long as a thread commits its groups."""

    def insert(
        self,
        record: TableRecord,
        rows: Rows,
        fixed: Mapping[str, Any] | None = None,
        computed: bool = False,
    ) -> int | None:
        """Commits the rows with those of other threads and returns their number.

        None: nothing was written, and they have to be inserted alone. `record` is the declaration
        that the caller knows; `fixed` as in Writes.insert; `computed`: the rows are an
        Arrow table with the result of a query. Raises what a commit raises.
        """
        interval = interval_ms(record) / 1000
        waiting = self._prepared(record, rows, fixed, computed) if interval else None
        if waiting is None:
            return None
        with self._arrived:
            queue = self._waiting.get(record.name)
            if queue is None:
                thread = threading.Thread(
                    target=self._serve,
                    args=(record.name, interval),
                    name=f"group-commit-{record.name}",
                    daemon=True,
                )
                thread.start()
                queue = self._waiting[record.name] = []
            queue.append(waiting)
            self._arrived.notify_all()
        try:
            return waiting.rows.num_rows if waiting.committed.result() else None
        except BaseException:
            waiting.committed.cancel()  # an interrupted caller that still waits writes nothing
            raise

    def _prepared(
        self,
        record: TableRecord,
        rows: Rows,
        fixed: Mapping[str, Any] | None,
        computed: bool,
    ) -> _Waiting | None:
        """The rows with the table's types; None if the local engine would not take them.

        An insert that is wrong commits alone too, which raises its error.
        """
        if self._warehouse.engines.preferred_here == "spark" or is_spark_frame(rows):
            return None
        if isinstance(rows, Result | RowStream):
            return None
        try:
            own, keys = columns_of_record(record)
            columns = (*own, *keys)
            left = [column.name for column in keys if column.name not in (fixed or {})]
            require_partition_columns(rows, left, record.name)
            if {*(fixed or {})} - {column.name for column in keys}:
                return None
            texts = written_values(fixed or {}, keys, record.name)
            table = rows if computed else next(local_parts(rows, columns, record.name))
            assert isinstance(table, pa.Table)
            if len(table) < len(rows):  # type: ignore[arg-type]  # there are more parts
                return None
            stored = stored_rows(table, columns, record.name, texts, own)
            places = places_of(stored, keys)
        except AcidError:
            return None
        if not stored.num_rows or stored.nbytes > _MOST_BYTES:
            return None
        numbers = np.bincount(places.index, minlength=len(places.names)).tolist()
        return _Waiting(record, stored, dict(zip(places.names, numbers, strict=True)))

    # --- the thread of a table -----------------------------------------------------------------

    def _serve(self, table: str, interval: float) -> None:
        """Commits one group after the other, until nobody waits."""
        while group := self._next(table, interval):
            self._commit(table, [each for each in group if _claim(each)])

    def _next(self, table: str, interval: float) -> list[_Waiting]:
        """The next group, when its time is over or it is full; empty if nobody waits."""
        with self._arrived:
            queue = self._waiting[table]
            if not queue:
                del self._waiting[table]
                return []
            until = queue[0].arrived + interval
            while _bytes(queue) < _MOST_BYTES and (left := until - elapsed_seconds()) > 0:
                self._arrived.wait(left)
            count = 1
            while count < len(queue) and _bytes(queue[: count + 1]) <= _MOST_BYTES:
                count += 1
            group, self._waiting[table] = queue[:count], queue[count:]
            return group

    def _commit(self, table: str, group: Sequence[_Waiting]) -> None:
        if not group:
            return
        written = False

        def together(txn: Transaction) -> list[_Waiting]:
            nonlocal written
            written = False
            record = txn.view.table(table)
            fitting = [each for each in group if _same(each.record, record)]
            if fitting:
                rows = pa.concat_tables([each.rows for each in fitting])
                shares = InsertShares([each.counts for each in fitting])
                txn.run(InsertRows(table, rows, shares=shares))
            written = True
            return fitting

        try:
            with self._warehouse.using("local"):
                inserted = autocommit(self._warehouse, table, together)
        except BaseException as error:
            # Before the commit, an error may be that of a single insert: the others go on alone.
            alone = not written and not isinstance(error, Transient)
            for each in group:
                if alone:
                    each.committed.set_result(False)
                else:
                    each.committed.set_exception(error)
        else:
            for each in group:
                each.committed.set_result(each in inserted)


def _claim(waiting: _Waiting) -> bool:
    """Claims the insert: its caller can't cancel it any more. False if the caller gave up."""
    return waiting.committed.set_running_or_notify_cancel()


def _same(one: TableRecord, other: TableRecord) -> bool:
    """Whether it is the same declaration of the same table."""
    return (one.table_id, one.version) == (other.table_id, other.version)


def _bytes(waiting: Sequence[_Waiting]) -> int:
    return sum(each.rows.nbytes for each in waiting)


_handles: WeakSet[GroupedInserts] = WeakSet()


def _after_fork() -> None:
    """The threads that commit the parent's groups don't live in the child."""
    for handle in list(_handles):
        handle._begin()


os.register_at_fork(after_in_child=_after_fork)
