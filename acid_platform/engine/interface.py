"""What the verbs of a table need of an engine. `spark` and `local` implement it alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from acid_platform.engine.merge_clauses import MergeClause, MergeCounts
from acid_platform.engine.reads import Sources, Where
from acid_platform.engine.results import EngineName, Result
from acid_platform.engine.source_keys import SourceKeys
from acid_platform.scan.scans import Scan
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

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
