"""Answers as people read them: values as Hive prints them, in a terminal and in a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from acid_platform.display.listing import DURATIONS, SIZES, TIMES, Listing, show_table

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.sql.session import Answer


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer under names that differ.

    `cut`: there were more than the limit. `data`: rows of tables, not of a SHOW.
    """

    names: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    cut: bool = False
    data: bool = False

    def listing(self) -> Listing:
        """Data as Hive prints it; times and sizes of a SHOW as `display` does."""
        if not self.data:
            return show_table(self.rows, self.names)
        return show_table(
            [{name: hive_text(name, value) for name, value in row.items()} for row in self.rows],
            self.names,
        )


def rows_of(answer: Answer, limit: int | None = None) -> Rows | None:
    """None for a statement without rows. Raises AcidError for what fails while Spark runs."""
    from acid_platform.engine.query import fetch
    from acid_platform.sql.answers import Done

    if isinstance(answer, Done):
        return None
    if isinstance(answer, pd.DataFrame):
        names = tuple(map(str, answer.columns))
        return Rows(
            names,
            tuple(
                {str(key): _plain(value) for key, value in row.items()}
                for row in answer.to_dict("records")
            ),
        )
    found = fetch(answer, None if limit is None else limit + 1)
    cut = limit is not None and found.num_rows > limit
    unlike = _unlike(found.column_names)
    kept = found.slice(0, limit) if cut else found
    return Rows(tuple(unlike), tuple(_dicts(kept, unlike)), cut, data=True)


def _plain(value: Any) -> Any:
    """Hive's milliseconds of a time or duration; `display` and JSON start from them."""
    match value:
        case pd.Timestamp():
            return round(value.timestamp() * 1000)
        case pd.Timedelta():
            return round(value.total_seconds() * 1000)
    return None if value is pd.NaT else value


def hive_text(column: str, value: Any) -> Any:
    """NULL, true and false, structs as JSON; a number of a column called `time` is no time."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case dict() | list():
            return json.dumps(value, default=str, separators=(",", ":"))
        case int() if column in TIMES | DURATIONS | SIZES:
            return str(value)
    return value


def _unlike(names: list[str]) -> list[str]:
    """A query may name two columns alike: `id`, `id` → `id`, `id_2`."""
    unlike: list[str] = []
    for name in names:
        count = 2
        chosen = name
        while chosen in unlike:
            chosen, count = f"{name}_{count}", count + 1
        unlike.append(chosen)
    return unlike


def _dicts(table: pa.Table, names: list[str]) -> Iterator[dict[str, Any]]:
    columns = [column.to_pylist() for column in table.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))
