"""What a statement answers: rows of tables, the lines of a SHOW, or that it is done."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeAlias, Union

from acid_platform.engine.results import Result
from acid_platform.metastore.show_columns import Shown

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Done:
    """A statement without rows: `message` is what `acid sql` prints; `rows` is the number of
    changed rows, if any."""

    statement: str
    message: str = "OK"
    rows: int | None = None
    ids: tuple[int, ...] = ()
    """Ids of the compactions that were queued."""

    @classmethod
    def changed(cls, statement: str, rows: int) -> Done:
        """A result with Hive's message, such as `3 rows affected`."""
        number = "No rows" if not rows else "1 row" if rows == 1 else f"{rows} rows"
        return cls(statement, f"{number} affected", rows)

    def __str__(self) -> str:
        return self.message

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.message)}</pre>"


Answer: TypeAlias = Union[Result, "pd.DataFrame", Done]
"""The result of a SELECT, of a SHOW, and of any other statement."""
Outcome: TypeAlias = Result | Shown | Done
"""An answer before its conversion to pandas, whose import can take longer than the statement."""
