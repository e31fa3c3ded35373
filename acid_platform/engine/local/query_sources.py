"""A scan as a stream of Arrow batches that DuckDB reads in bounded memory, as often as it needs.

DuckDB pushes no conditions into such a stream. Those that Arrow evaluates exactly as Spark does are
applied while the files are read; the query still has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from acid_platform.engine.interface import ChangeRead, TableRead, columns_of
from acid_platform.errors import AcidError, CorruptFile, NoSuchTxn, SnapshotExpired, TxnAborted
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.predicates.arrow_predicates import predicate_or_none
from acid_platform.scan.scans import ArrowScan
from acid_platform.values.row_streams import ArrowLender

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan


class QuerySource(ArrowLender):
    """What a query reads of a table; of `places` only these rows (see ArrowScan).

    `most`: how many rows of the first ones are enough.
    """

    def __init__(
        self,
        read: TableRead | ChangeRead,
        filtered: bool,
        places: np.ndarray | None = None,
        most: int | None = None,
    ) -> None:
        self.columns = columns_of(read)
        self.scan: ArrowScan | ChangeScan = (
            read.scan.wanting([column.name for column in self.columns])
            if isinstance(read, ChangeRead)
            else replace(arrow_scan_of(read, filtered), places=places)
        )
        self._most = most
        self._still_open = read.scan.still_open
        self.failure: BaseException | None = None
        """What went wrong while DuckDB read the stream, which it only reports as text."""

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(field.name, pa.timestamp("us")) if _in_zone(field.type) else field
                for field in self.scan.schema
            ]
        )

    def batches(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        scan = self.scan
        batches = scan.batches()
        if self._most is not None and isinstance(scan, ArrowScan):
            batches = scan.first_batches(self._most)
        try:
            for batch in batches:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
        except BaseException as error:
            self.failure = error
            raise

    def raise_failure(self) -> None:
        """Raises what went wrong while the stream was read, if anything."""
        failure, self.failure = self.failure, None
        cause = failure.__cause__ if isinstance(failure, CorruptFile) else None
        if isinstance(cause, FileNotFoundError) and self._still_open is not None:
            path = cause.filename or str(failure).partition(" was ")[0]
            try:
                self._still_open()
            except (SnapshotExpired, TxnAborted, NoSuchTxn) as over:
                raise SnapshotExpired(
                    f"{path} is gone: the read lease of this result has ended and the Cleaner"
                    " removed files that newer snapshots don't need; run the query again"
                ) from over
            raise CorruptFile(
                f"{path} is gone, though a commit recorded it and the snapshot of this result is"
                " held; restore it from a copy of the warehouse"
            ) from failure
        if isinstance(failure, AcidError):
            raise failure


def arrow_scan_of(read: TableRead, filtered: bool) -> ArrowScan:
    """The scan of a source without a JVM.

    With `filtered` its condition is applied, as far as Arrow evaluates it exactly as Spark does.
    """
    scan = read.scan
    names = tuple(column.name for column in columns_of(read) if column.name != ROW_ID_COLUMN)
    predicate = None
    if filtered and read.where is not None:
        predicate = predicate_or_none(read.where, (*scan.columns, *scan.partition_columns))
    return ArrowScan(scan, names, predicate, read.row_id)


def _in_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None
