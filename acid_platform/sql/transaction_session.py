"""SQL inside a transaction of Python, which its own code ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.errors import UnsupportedStatement
from acid_platform.sql.commands import Command
from acid_platform.sql.sql_session import SqlSession

if TYPE_CHECKING:
    from acid_platform.handles.transaction import Transaction
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.sql.answers import Outcome
    from acid_platform.sql.statements import Statement

_BOUNDS = ("START TRANSACTION", "COMMIT", "ROLLBACK")


class TransactionSession(SqlSession):
    """Statements of one transaction. One that fails leaves it open, as a verb does."""

    def __init__(self, warehouse: Warehouse, transaction: Transaction) -> None:
        super().__init__(warehouse)
        self.transaction = transaction

    def _run(self, statement: Statement) -> Outcome:
        if isinstance(statement, Command) and statement.name in _BOUNDS:
            raise UnsupportedStatement(
                f"{statement.name} inside of txn.sql: the block that began the transaction ends it;"
                " raise an error to have it aborted"
            )
        return super()._run(statement)

    def _roll_back_after(self, error: BaseException) -> None:
        """Leaves that to the transaction's block."""
