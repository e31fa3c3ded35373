"""The local engine: statements run in this process, by Arrow, NumPy and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from acid_platform.engine.interface import EngineName, Fixed, Result, Sources, Where
from acid_platform.engine.local.running import Statements
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, SourceKeys
from acid_platform.scan.scans import Scan
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalEngine:
    """Runs statements in this process. `session` starts Spark for results that are asked for as a
    Spark DataFrame.

    What a statement needs is imported by the first of its kind: DuckDB and the parser take long.
    """

    name: EngineName = "local"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._statements = Statements()

    def statement(self, txn: int) -> AbstractContextManager[object]:
        return self._statements.running(txn)

    def cancel(self, txn: int) -> None:
        self._statements.cancel(txn)

    def query(self, text: str, sources: Sources, reason: str, named: bool = True) -> Result:
        from acid_platform.engine.local.run_query import query

        return query(text, sources, self._session, reason, named)

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[WrittenDirectory]:
        from acid_platform.engine.local.write import write_rows

        return write_rows(rows, target, fixed)

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[WrittenDirectory]:
        from acid_platform.engine.local.write import write_rows

        return write_rows(rows, target, fixed, True, empty)

    def update(
        self, scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import update_rows

        return update_rows(scan, target, assignments, where)

    def delete(self, scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import delete_rows

        return delete_rows(scan, target, where)

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
        from acid_platform.engine.local.merge import LocalMerge

        merge = LocalMerge(scan, target, source, on, clauses, aliases)
        if keys is not None:
            keys.take(merge.source)
        return merge.run()
