"""The rows that a body returned, as the write modes need them: with Spark, or in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.engine.choice import LOCAL_BYTES
from acid_platform.engine.interface import Result
from acid_platform.errors import WrongType
from acid_platform.layout.types import Column
from acid_platform.orchestration.partition_keys import literal
from acid_platform.values.arrow_numpy import from_numpy, scalar_of
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.local_rows import local_table
from acid_platform.values.partition_texts import partition_value
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, is_spark_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from acid_platform.handles.warehouse import Warehouse


def body_rows(
    warehouse: Warehouse, rows: Rows, columns: Sequence[Column], table: str, key: Sequence[str] = ()
) -> BodyRows:
    """The rows of a body for a table with these columns, partition columns included.

    A Spark frame stays one, and rows whose key is nested become one, as does a result that is
    larger than `acid.local.max.bytes`; all others stay in this process, and a stream is one until
    `computed` is asked for. Raises UnknownColumn, WrongType, NeedsSpark.
    """
    if isinstance(rows, Result) and rows.engine == "local":
        rows = rows.held(warehouse.metastore.in_force.integer(LOCAL_BYTES))
    nested = {column.name for column in columns if column.type.nested}
    from_spark = is_spark_frame(rows) or (isinstance(rows, Result) and rows.engine == "spark")
    if from_spark or nested & set(key):
        from acid_platform.engine.spark.input_rows import as_frame

        return SparkRows(as_frame(warehouse.spark, rows, columns, table), tuple(columns))
    local = rows if isinstance(rows, RowStream) else local_table(rows, columns, table)
    return LocalRows(local, tuple(columns), table)


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows that Spark computes."""

    rows: DataFrame
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [name.lower() for name in self.rows.columns]

    def with_constants(self, values: Mapping[str, str]) -> SparkRows:
        """With more columns of the table, which have one value, each as a text."""
        kinds = {column.name: column.type for column in self.columns}
        added = [
            f"CAST({literal(value, True)} AS {kinds[name]}) AS `{name}`"
            for name, value in values.items()
        ]
        return SparkRows(self.rows.selectExpr("*", *added), self.columns)

    def computed(self) -> SparkRows:
        """These rows, computed once however often they are looked at."""
        return SparkRows(self.rows.localCheckpoint(True), self.columns)

    def with_null(self, key: Sequence[str]) -> dict[str, Any] | None:
        """A row with NULL in one of the columns; None if there is none."""
        row = self.rows.filter(" OR ".join(f"`{name}` IS NULL" for name in key)).head()
        return None if row is None else row.asDict()

    def twice(self, key: Sequence[str]) -> dict[str, Any] | None:
        """Values of the columns that several rows have; None if there are none."""
        counted = self.rows.groupBy(*key).agg({"*": "count"}).filter("`count(1)` > 1")
        row = counted.select(*key).head()
        return None if row is None else row.asDict()

    def distinct(self, key: Sequence[str]) -> DataFrame:
        """Each combination of values of the columns once."""
        return self.rows.select(*key).distinct()


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in this process; its methods are those of SparkRows.

    A table has the table's types; whoever looks at the rows of a stream needs `computed` before. As
    in Spark, NaN equals NaN.
    """

    rows: pa.Table | RowStream
    columns: tuple[Column, ...]
    table: str

    @property
    def held(self) -> pa.Table:
        assert isinstance(self.rows, pa.Table), "a stream has to be computed before"
        return self.rows

    @property
    def names(self) -> list[str]:
        return [name.lower() for name in self.rows.schema.names]

    def with_constants(self, values: Mapping[str, str]) -> LocalRows:
        """Raises WrongType."""
        constants: dict[str, pa.Scalar] = {}
        for name, text in values.items():
            kind = next(column.type for column in self.columns if column.name == name)
            value = partition_value(text, kind)
            if value is None:
                raise WrongType(
                    f"{text!r} is no value of the column {name!r} {kind} of {self.table}"
                )
            constants[name] = scalar_of(value, arrow_type(kind))
        rows = self.rows
        if isinstance(rows, RowStream):
            return replace(self, rows=rows.with_constants(constants))
        for name, one in constants.items():
            rows = rows.append_column(name, pa.repeat(one, rows.num_rows))
        return replace(self, rows=rows)

    def computed(self) -> LocalRows:
        """These rows as a table, which lies in a file if it is large."""
        return replace(self, rows=local_table(self.rows, self.columns, self.table))

    def with_null(self, key: Sequence[str]) -> dict[str, Any] | None:
        for name in key:
            if self.held.column(name).null_count:
                return self._row(self.held.column(name).is_null().index(True).as_py(), self.names)
        return None

    def twice(self, key: Sequence[str]) -> dict[str, Any] | None:
        again = self._again(key)
        return self._row(int(again.argmax()), key) if again.any() else None

    def distinct(self, key: Sequence[str]) -> pa.Table:
        return self.held.select(list(key)).filter(from_numpy(~self._again(key)))

    def _again(self, key: Sequence[str]) -> np.ndarray:
        """Mask (n,) of the rows that have the values of an earlier row."""
        again: np.ndarray = self.held.select(list(key)).to_pandas().duplicated().to_numpy()
        return again

    def _row(self, number: int, names: Sequence[str]) -> dict[str, Any]:
        row = self.held.select(list(names)).slice(number, 1)
        return dict(row.to_pylist(maps_as_pydicts="strict")[0])


BodyRows: TypeAlias = SparkRows | LocalRows
"""Rows that can be looked at several times; `rows` is what the verbs of a table take."""
