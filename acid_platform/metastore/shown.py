"""The rows of a SHOW, DESCRIBE or EXPLAIN, for people, JSON and pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.metastore import show_columns

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of a SHOW, DESCRIBE or EXPLAIN as the metastore gives them.

    Times and durations are in milliseconds.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @classmethod
    def lines(cls, column: str, values: Iterable[str]) -> Shown:
        """One column of text."""
        return cls((column,), tuple({column: value} for value in values))

    def dicts(self) -> list[dict[str, Any]]:
        """The rows with these columns; None for a time that has not come yet."""
        numbers = show_columns.TIMES | show_columns.DURATIONS
        rows = [{name: row[name] for name in self.columns} for row in self.rows]
        for row in rows:
            for name in numbers & row.keys():
                if not isinstance(row[name], int) or (name in show_columns.TIMES and not row[name]):
                    row[name] = None
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """Times in UTC and durations as such."""
        import pandas as pd

        rows = self.dicts()
        frame = pd.DataFrame(rows, columns=list(self.columns))
        for name in show_columns.TIMES & {*self.columns}:
            milliseconds = pd.Series([row[name] for row in rows], dtype="Int64")
            frame[name] = pd.to_datetime(milliseconds, unit="ms", utc=True)
        for name in show_columns.DURATIONS & {*self.columns}:
            milliseconds = pd.Series([row[name] for row in rows], dtype="Int64")
            frame[name] = pd.to_timedelta(milliseconds, unit="ms")
        return frame
