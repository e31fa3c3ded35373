"""The rows of a query, whichever engine computes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from acid_platform.base.arguments import require_limit
from acid_platform.base.visible import visible
from acid_platform.engine.spark_pieces import frame_of
from acid_platform.layout.types import Column
from acid_platform.values.arrow_lending import far_dates_named, polars_frame, to_frame
from acid_platform.values.arrow_types import declared_columns
from acid_platform.values.rows import ComputedRows
from acid_platform.values.wall_clocks import instants

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

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

    def or_else(self, make: Callable[[str], Result]) -> Result:  # noqa: ARG002
        """These rows; if this engine finds that it can't compute one, `make` computes all.

        `make` takes the reason.
        """
        return self

    def held(self, most_bytes: int) -> pa.Table | Result:  # noqa: ARG002
        """All rows in this process; the other engine's result if they take more than that.

        Raises NeedsSpark if only this engine may run.
        """
        return self.to_arrow()

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
