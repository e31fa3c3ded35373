"""What a statement answers: rows of tables, the lines of a SHOW, or that it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from acid_platform.engine.results import ArrowResult, Result
from acid_platform.metastore.show_columns import DURATIONS, TIMES, Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from pyspark.sql import SparkSession


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


@dataclass(frozen=True, repr=False)
class ShownResult(ArrowResult):
    """The rows of a SHOW, DESCRIBE or EXPLAIN, with the methods of every result.

    What only a DataFrame of pandas has, such as `["tab_name"]` or `to_dict`, is asked of one.
    """

    shown: Shown = field(default_factory=lambda: Shown((), ()))

    @classmethod
    def of(cls, shown: Shown, session: Callable[[], SparkSession]) -> ShownResult:
        return cls(_in_arrow(shown), session, "a listing", shown=shown)

    def to_pandas(self) -> pd.DataFrame:
        """Times in UTC and durations as such."""
        return self.shown.to_pandas()

    def head(self, limit: int = 5) -> pd.DataFrame:
        return self.to_pandas().head(limit)

    def show(self, limit: int = 20) -> None:
        super().show(limit)
        if self.shown.note:
            print(self.shown.note)

    def __repr__(self) -> str:
        return "\n".join(filter(None, (repr(self.to_pandas()), self.shown.note)))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_pandas())

    def __getitem__(self, key: Any) -> Any:
        return self.to_pandas()[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.to_pandas(), name)


def _in_arrow(shown: Shown) -> pa.Table:
    rows = shown.dicts()
    columns = {name: _column(name, [row[name] for row in rows]) for name in shown.columns}
    return pa.table(columns)


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    if name in TIMES:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    if name in DURATIONS:
        return pa.array(values, pa.duration("ms"))
    try:
        return (
            pa.array(values) if any(v is not None for v in values) else pa.array(values, "string")
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # numbers beside words
        return pa.array([None if value is None else str(value) for value in values], pa.string())


Answer: TypeAlias = Result | Done
"""The rows of a SELECT or a SHOW, and that any other statement is done."""
Outcome: TypeAlias = Result | Shown | Done
"""An answer before its conversion to Arrow."""
