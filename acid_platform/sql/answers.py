"""The result of a statement that returns no rows."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Done:
    """`message` is what `acid sql` prints; `rows` is the number of changed rows, if any."""

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
