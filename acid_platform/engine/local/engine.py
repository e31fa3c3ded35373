"""The local engine: statements run in this process, by Arrow, NumPy and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from acid_platform.engine.interface import Fixed
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts
from acid_platform.engine.publishing import WriteTarget, Written
from acid_platform.engine.queries import Sources, Where
from acid_platform.engine.results import EngineName, Result
from acid_platform.engine.rows import Rows
from acid_platform.engine.scans import TableScan
from acid_platform.errors import NeedsSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalEngine:
    """Runs statements in this process. `session` starts Spark for results that are asked for as a
    Spark DataFrame."""

    name: EngineName = "local"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def statement(self, txn: int) -> AbstractContextManager[object]:
        return nullcontext()

    def cancel(self, txn: int) -> None:
        """Nothing to do yet."""

    def query(self, text: str, sources: Sources, reason: str) -> Result:
        from acid_platform.engine.local.run import query  # DuckDB and the parser take long

        return query(text, sources, self._session, reason)

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[Written]:
        raise NeedsSpark("INSERT")

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[Written]:
        raise NeedsSpark("INSERT OVERWRITE")

    def update(
        self, scan: TableScan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[Written]:
        raise NeedsSpark("UPDATE")

    def delete(self, scan: TableScan, target: WriteTarget, where: Where) -> list[Written]:
        raise NeedsSpark("DELETE")

    def merge(
        self,
        scan: TableScan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
    ) -> tuple[list[Written], MergeCounts]:
        raise NeedsSpark("MERGE")
