"""Printing results in a terminal and in a notebook, with values as Hive prints them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from acid_platform.display.listing import DURATIONS, SIZES, TIMES, Listing, show_table
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.answers import Done, Outcome


@dataclass(frozen=True, slots=True)
class ResultRows:
    """The rows of a result, under unique column names.

    `cut`: there were more rows than the limit. `data`: the rows come from tables, not from a SHOW.
    """

    names: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    cut: bool = False
    data: bool = False
    note: str = ""

    def listing(self) -> Listing:
        """The rows to print: data as Hive prints it, times and sizes of a SHOW as in `display`."""
        if not self.data:
            return show_table(self.rows, self.names)
        return show_table(
            [{name: hive_text(name, value) for name, value in row.items()} for row in self.rows],
            self.names,
        )


def rows_of(answer: Outcome, limit: int | None = None) -> ResultRows | None:
    """The rows of a result; None for a statement without rows.

    Raises AcidError if the engine fails while it computes them.
    """
    if isinstance(answer, Done):
        return None
    if isinstance(answer, Shown):
        return ResultRows(answer.columns, tuple(answer.dicts()), note=answer.note)
    from acid_platform.values.python_dates import far_dates_as_text, far_dates_named

    table = answer.to_arrow(None if limit is None else limit + 1)
    cut = limit is not None and table.num_rows > limit
    unique = _unique(table.column_names)
    with far_dates_named():  # those inside of structs and lists
        rows = far_dates_as_text(table.rename_columns(unique).slice(0, limit)).to_pylist()
    return ResultRows(tuple(unique), tuple(rows), cut, data=True)


def hive_text(column: str, value: Any) -> Any:
    """The value as Hive prints it: NULL, true, false, structs as JSON.

    Numbers of tables become texts if `display` would take the column for a time or size.
    """
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


def _unique(names: list[str]) -> list[str]:
    """Unique names for the columns of a query: `id`, `id` → `id`, `id_2`."""
    unique: list[str] = []
    for name in names:
        count = 2
        chosen = name
        while chosen in unique:
            chosen, count = f"{name}_{count}", count + 1
        unique.append(chosen)
    return unique
