"""The committed or uncommitted rows that expectations are evaluated on, in pandas or in Spark.

Great Expectations evaluates them in pandas, without a JVM, if the table is small and the result is
the same: a test compares both for each expectation and type of column in the tables below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.choice import Choice
from acid_platform.errors import NeedsSpark, UnsupportedStatement
from acid_platform.handles.table import Table
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.orchestration.checks import Expectation, Finding, evaluate
from acid_platform.orchestration.docs_site import DocsSite
from acid_platform.orchestration.metadata import TableStats

if TYPE_CHECKING:
    import pandas as pd

_KEYS = (*INTEGRAL, "string", "boolean", "date")
_NUMBERS = (*INTEGRAL, "double")
PANDAS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "ExpectColumnValuesToNotBeNull": ((*_KEYS, "decimal", "double"), frozenset({"mostly"})),
    "ExpectColumnValuesToBeNull": ((*_KEYS, "double"), frozenset({"mostly"})),
    "ExpectColumnValuesToBeBetween": (
        _NUMBERS,
        frozenset({"min_value", "max_value", "strict_min", "strict_max", "mostly"}),
    ),
    "ExpectColumnMinToBeBetween": (INTEGRAL, frozenset({"min_value", "max_value"})),
    "ExpectColumnMaxToBeBetween": (INTEGRAL, frozenset({"min_value", "max_value"})),
    "ExpectColumnValuesToBeInSet": ((*INTEGRAL, "string"), frozenset({"value_set", "mostly"})),
    "ExpectColumnValuesToBeUnique": ((*INTEGRAL, "string"), frozenset({"mostly"})),
    "ExpectCompoundColumnsToBeUnique": ((*INTEGRAL, "string"), frozenset()),
    "ExpectColumnPairValuesAToBeGreaterThanB": (_NUMBERS, frozenset({"or_equal"})),
    "ExpectColumnPairValuesToBeEqual": ((*INTEGRAL, "string"), frozenset()),
    "ExpectTableRowCountToBeBetween": ((), frozenset({"min_value", "max_value"})),
    "ExpectTableRowCountToEqual": ((), frozenset({"value"})),
}
"""The expectations whose results were shown to be equal: types of their columns, and arguments."""
_OF_NULL = ("ExpectColumnValuesToNotBeNull", "ExpectColumnValuesToBeNull")
_COLUMNS = frozenset({"column", "column_A", "column_B", "column_list"})


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows of a table, and where they are read from."""

    warehouse: Warehouse
    table: Table | TransactionTable
    columns: tuple[Column, ...]
    """Those of the table that are read."""
    where: str | None
    bytes: int
    """The size of the table's files."""

    @classmethod
    def of_table(
        cls,
        warehouse: Warehouse,
        name: str,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> CheckedRows:
        """The committed rows; `columns` None: all. Raises NoSuchTable."""
        table = warehouse.table(name)
        every = (*table.columns, *table.partition_columns)
        names = None if columns is None else {column.lower() for column in columns}
        chosen = tuple(column for column in every if names is None or column.name in names)
        stats = TableStats.of(warehouse.metastore.entities(table.name))
        return cls(warehouse, table, chosen, where, stats.bytes)

    @classmethod
    def of_transaction(
        cls, warehouse: Warehouse, txn: Transaction, name: str, where: str | None = None
    ) -> CheckedRows:
        """What the transaction would commit. Raises NoSuchTable."""
        table = txn.table(name)
        stats = TableStats.of(warehouse.metastore.entities(table.name))
        own = sum(report.bytes for report in txn.reports if report.table == table.name)
        return cls(warehouse, table, table.all_columns, where, stats.bytes + own)

    def evaluate(
        self, expectations: Sequence[Expectation], key: Sequence[str] = ()
    ) -> list[Finding]:
        """As checks.evaluate. Raises CheckErrored, NeedsSpark."""
        site = DocsSite.of(self.table.name, self.warehouse.run_id)

        def work(choice: Choice) -> list[Finding]:
            names = [column.name for column in self.columns]
            if choice.engine.name == "spark":
                return evaluate(self.table.read(names, self.where), expectations, key, site)
            if unlike := next(self._unlike(expectations), ""):
                raise NeedsSpark(unlike)
            try:
                rows = self.table.to_arrow(names, self.where)
            except UnsupportedStatement as error:
                raise NeedsSpark(str(error)) from error
            return evaluate(in_pandas(rows, expectations), expectations, key, site)

        return self.warehouse.engines.run(
            work, self.warehouse.metastore.in_force, read_bytes=self.bytes
        )

    def _unlike(self, expectations: Sequence[Expectation]) -> Iterator[str]:
        """What pandas may evaluate in another way than Spark."""
        kinds = {column.name: column.type.kind for column in self.columns}
        for expectation in expectations:
            if expectation.kind not in PANDAS:
                yield f"{expectation.kind} of the check {expectation.name}"
                continue
            values = expectation.arguments
            if "column_A" in values and values["column_A"] == values.get("column_B"):
                yield f"a column beside itself in the check {expectation.name}"
            types, arguments = PANDAS[expectation.kind]
            for name in values:
                if name not in arguments | _COLUMNS:
                    yield f"the argument {name} of the check {expectation.name}"
            for name in expectation.columns:
                if kinds.get(name) not in types:
                    kind = kinds.get(name, "unknown")
                    yield f"{expectation.kind} of {name} ({kind}) in the check {expectation.name}"


def in_pandas(rows: pa.Table, expectations: Sequence[Expectation]) -> pd.DataFrame:
    """The rows as Great Expectations takes them: NULL is None, and a number stays one beside it.

    Raises NeedsSpark for NULL or NaN in a column of double whose values are compared, and for NaN
    in one that is looked through for NULL, since both are one to pandas; and for NULL in a pair of
    columns that are compared, which pandas can't do.
    """
    import pandas as pd

    pairs: set[str] = set()
    compared: set[str] = set()
    nullable: set[str] = set()
    for expectation in expectations:
        names = {name.lower() for name in expectation.columns}
        (nullable if expectation.kind in _OF_NULL else compared).update(names)
        if "column_A" in expectation.arguments:
            pairs.update(names)
    frame: pd.DataFrame = rows.to_pandas(integer_object_nulls=True, date_as_object=True)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in pairs and column.null_count:
            raise NeedsSpark(f"NULL in a pair of columns, {name}, of a check")
        if pa.types.is_string(column.type):  # in a text column of pandas 3 it would be NaN
            frame[name] = pd.Series(column.to_numpy(), dtype=object)
        if not pa.types.is_floating(column.type):
            continue
        nan = pc.any(pc.is_nan(column)).as_py()
        if (name in compared and (nan or column.null_count)) or (name in nullable and nan):
            raise NeedsSpark(f"NULL or NaN in the column {name} of a check")
        if column.null_count:
            frame[name] = pd.Series(column.to_pylist(), dtype=object)
    return frame
