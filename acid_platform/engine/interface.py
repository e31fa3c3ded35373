"""What an engine is asked for, and what it answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from acid_platform.base.arguments import require_limit
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, SourceKeys
from acid_platform.errors import AcidError, visible
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan.result_columns import PLACE
from acid_platform.scan.scans import Scan
from acid_platform.values.arrow_types import declared_columns
from acid_platform.values.row_streams import far_dates_named, frame_of, polars_frame, to_frame
from acid_platform.values.rows import ComputedRows, Rows
from acid_platform.values.stored_values import instants
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from acid_platform.scan.change_scan import ChangeScan

_MOMENT: ContextVar[datetime | None] = ContextVar("moment", default=None)


@contextmanager
def one_moment(began: datetime | None = None) -> Iterator[None]:
    """A block in which `moment` always returns the same: when the statement `began`, or that of the
    block around it, if any."""
    if began is None and _MOMENT.get() is not None:
        yield
        return
    before = _MOMENT.set(began or datetime.now(UTC))
    try:
        yield
    finally:
        _MOMENT.reset(before)


def moment() -> datetime:
    """The time at which the statement that this thread runs began; now if there is none."""
    return _MOMENT.get() or datetime.now(UTC)


EngineName = Literal["spark", "local"]


class Result(ComputedRows):
    """The rows of a SELECT. They are computed each time that they are asked for, at one snapshot.

    Any method that computes them raises SnapshotExpired once the files are gone, and
    InvalidExpression for an expression without a value, such as a division by zero.
    """

    engine: EngineName
    """The engine that computes the rows."""
    reason: str
    """Why this engine was chosen."""

    @abstractmethod
    def declared(self) -> tuple[Column, ...]:
        """The columns as a table would declare them, with names in lower case.

        Raises InvalidDefinition for a type without one, as of a column of nothing but NULL.
        """

    @abstractmethod
    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """All rows, or the first `limit`. Timestamps are as those of Table.to_arrow."""

    @abstractmethod
    def to_spark(self) -> DataFrame:
        """The rows as a Spark DataFrame; starts Spark. Raises JavaMissing."""

    @abstractmethod
    def renamed(self, names: Sequence[str]) -> Result:
        """These rows under other names, as many as there are columns."""

    def or_else(self, make: Callable[[AcidError], Result]) -> Result:  # noqa: ARG002
        """These rows; if this engine finds that it can't compute one, `make` computes all.

        `make` takes the reason.
        """
        return self

    def constants(self) -> Iterable[tuple[str, pa.Array]]:
        """Constants that may be the value of each row, with the column of each.

        Spark fails by one that does not fit where it is stored, also if there is no row.
        """
        return ()

    def in_one_file(self) -> Result:
        """These rows, which a write puts into one file; for a few rows."""
        return self

    @abstractmethod
    def plan(self) -> str:
        """The engine's own explanation of how it computes the rows."""

    def to_pandas(self) -> pd.DataFrame:
        return to_frame(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Raises ModuleNotFoundError unless Polars is installed."""
        return polars_frame(self.to_arrow())

    def head(self, limit: int = 5) -> pd.DataFrame:
        """The first rows, as pandas."""
        require_limit(limit)
        return to_frame(self.to_arrow(limit))

    def collect(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values. Raises WrongType for dates that Python lacks."""
        table = self.to_arrow()
        if not table.num_columns:
            return [()] * table.num_rows
        with far_dates_named():
            columns = [column.to_pylist(maps_as_pydicts="strict") for column in table.columns]
        return list(zip(*columns, strict=True))

    def count(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches())

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        print(visible(self.head(limit).to_string(index=False), lines=True))

    def _repr_html_(self) -> str:
        return str(self.head(20).to_html(index=False))

    def __repr__(self) -> str:
        verbs = "to_arrow(), to_pandas(), to_polars(), to_spark(), head(), show()"
        return f"<Result of {visible(', '.join(self.columns))}: {verbs}>"


@dataclass(frozen=True, repr=False)
class ArrowResult(Result):
    """Rows that are in memory already."""

    table: pa.Table
    session: Callable[[], SparkSession]
    """Starts Spark, for `to_spark`."""
    reason: str
    engine: EngineName = "local"

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def declared(self) -> tuple[Column, ...]:
        return declared_columns(self.schema)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        require_limit(limit)
        return self.table if limit is None else self.table.slice(0, limit)

    def batches(self) -> pa.RecordBatchReader:
        return self.table.to_reader()

    def to_spark(self) -> DataFrame:
        session = self.session()
        return frame_of(session, [self.table], lambda few: session.createDataFrame(instants(few)))

    def renamed(self, names: Sequence[str]) -> ArrowResult:
        return replace(self, table=self.table.rename_columns(list(names)))

    def plan(self) -> str:
        return self.reason


ROW_ID = HiveType(
    "struct",
    (),
    (("writeid", HiveType("bigint")), ("bucketid", HiveType("int")), ("rowid", HiveType("bigint"))),
)
"""The type of ROW_ID_COLUMN."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """What a query reads of a table; `columns` None: all. The scan applies `where`."""

    scan: Scan
    columns: tuple[str, ...] | None = None
    where: str | None = None
    row_id: bool = False
    file_name: bool = False
    place: bool = False
    """Whether it reads PLACE, by which a second scan finds a row again."""


@dataclass(frozen=True, slots=True)
class ChangeRead:
    """What a query reads of the changes of a table; `columns` None: all."""

    scan: ChangeScan
    columns: tuple[str, ...] | None = None

    @property
    def file_name(self) -> bool:
        """Whether it reads the name of each row's file; a change has none."""
        return False


def columns_of(read: TableRead | ChangeRead) -> tuple[Column, ...]:
    """The columns of a source, as the query sees them."""
    if isinstance(read, ChangeRead):
        every = {column.name: column for column in read.scan.columns}
        return tuple(every[name.lower()] for name in (read.columns or every))
    scan = read.scan
    every = {column.name: column for column in (*scan.columns, *scan.partition_columns)}
    names = every if read.columns is None else (name.lower() for name in read.columns)
    chosen = tuple(every[name] for name in names)
    chosen += (PLACE,) * read.place
    return (*chosen, Column(ROW_ID_COLUMN, ROW_ID)) if read.row_id else chosen


Sources = Mapping[str, TableRead | ChangeRead]
"""By placeholder."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that also reads other tables: `FROM <target> AS … WHERE …`.

    `target` and the keys of `sources` are placeholders in `text`. `pruning`: the part of the
    predicate that only reads the table itself. `values`: the names of more columns, which `text`
    begins with: what subqueries give the accepted rows. `columns`: those that `text` reads of the
    table, None: all.
    """

    text: str
    """What follows the columns of a SELECT that returns the accepted rows."""
    target: str
    sources: Sources
    pruning: str | None = None
    values: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None


Where = str | Condition | None
"""Which rows a statement changes; None: all rows."""


Fixed = Mapping[str, str | None]
"""Values of partition columns, as the text of their directories."""


class Engine(Protocol):
    """Computes queries and writes the files of statements. Both engines give equal rows, row ids
    and errors.

    The methods that write publish their directories and return them; they raise PublicationFailed,
    TxnAborted, WrongType, UnknownColumn and InvalidExpression. Nothing is written before a method
    raises NeedsSpark.
    """

    @property
    def name(self) -> EngineName: ...

    def statement(self, txn: int) -> AbstractContextManager[object]:
        """A block that runs a statement of a transaction, and that `cancel` stops."""
        ...

    def cancel(self, txn: int) -> None:
        """Stops what the transaction's statements are computing, if anything."""
        ...

    def query(self, text: str, sources: Sources, reason: str, named: bool = True) -> Result:
        """A SELECT in Spark's SQL whose tables are the keys of `sources`. Raises UnknownColumn.

        `named`: whether the columns need the names that Spark gives them.
        """
        ...

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[WrittenDirectory]:
        """Writes the rows into deltas; `fixed` gives values of partition columns."""
        ...

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[WrittenDirectory]:
        """Writes the rows into bases; the partitions `empty` get one even without rows."""
        ...

    def update(
        self, scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[WrittenDirectory]:
        """Raises PartitionColumnUpdate, BucketColumnUpdate too."""
        ...

    def delete(self, scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]: ...

    def merge(
        self,
        scan: Scan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
        keys: SourceKeys | None = None,
    ) -> tuple[list[WrittenDirectory], MergeCounts]:
        """`aliases` of the table and the source. `keys` gets what is known of the source's keys.
        Raises SourceRowsAmbiguous too."""
        ...
