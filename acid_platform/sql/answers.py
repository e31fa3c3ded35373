"""What a statement answers, and how it is shown: rows of tables, the lines of a SHOW, or that it is
done.

Values are printed as Hive prints them. `%%acid` is a cell of Hive SQL in a notebook, with each
result as an HTML table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from acid_platform.base.location import Location
from acid_platform.display.listing import DURATIONS, SIZES, TIMES, Listing, show_table
from acid_platform.engine.interface import ArrowResult, Result
from acid_platform.errors import AcidError, NoSuchWarehouse
from acid_platform.metastore.operations import listings
from acid_platform.metastore.operations.listings import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell
    from pyspark.sql import SparkSession

    from acid_platform.handles.warehouse import Warehouse


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
        rows = shown.dicts()
        columns = {name: _column(name, [row[name] for row in rows]) for name in shown.columns}
        return cls(pa.table(columns), session, "a listing", shown=shown)

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


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    if name in listings.TIMES:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    if name in listings.DURATIONS:
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
    from acid_platform.values.row_streams import far_dates_as_text, far_dates_named

    table = answer.to_arrow(None if limit is None else limit + 1)
    cut = limit is not None and table.num_rows > limit
    unique = unique_names(table.column_names)
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


def unique_names(names: list[str]) -> list[str]:
    """Unique names for the columns of a query: `id`, `id` → `id`, `id_2`."""
    unique: list[str] = []
    for name in names:
        count = 2
        chosen = name
        while chosen in unique:
            chosen, count = f"{name}_{count}", count + 1
        unique.append(chosen)
    return unique


# --- cells of a notebook -----------------------------------------------------------------------

ROWS = 1000
"""The most rows of a query that a cell shows."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magic; `%load_ext acid_platform` calls it."""
    register: Any = shell.register_magic_function
    register(AcidMagic(shell.user_ns).acid, "cell", "acid")


class AcidMagic:
    """The cell magic of one notebook; a warehouse opened by its path stays open."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._opened: dict[str, Warehouse] = {}

    def acid(self, line: str, cell: str) -> None:
        """Run a cell of SQL: `%%acid`, `%%acid wh` or `%%acid path/to/warehouse`.

        Without a name it uses the variable `wh`, or else the warehouse of ACID_WAREHOUSE.
        `--engine=local` (or `spark`, `auto`) before the name chooses the engine of the cell. Each
        result is shown when its statement has ended. USE and START TRANSACTION also apply to later
        cells. Raises what Warehouse.sql raises.
        """
        import IPython.display

        display: Any = IPython.display.display
        engine, name = engine_and_name(line)
        try:
            for _, answer in self.warehouse(name).session.steps(cell, engine):
                rows = rows_of(answer, ROWS)
                display(answer if rows is None else rows.listing())
                if rows is not None and rows.cut:
                    print(f"the first {ROWS} rows")
        except AcidError as error:
            notes = getattr(error, "__notes__", ())
            raise type(error)("; ".join([str(error), *notes])) from None

    def warehouse(self, line: str) -> Warehouse:
        """The warehouse that a cell names.

        Raises NoSuchWarehouse for a word that is neither a variable nor a path.
        """
        from acid_platform.handles.warehouse import Warehouse

        named = self._names.get(line or "wh")
        if isinstance(named, Warehouse):
            return named
        if line.isidentifier() and line in self._names:
            raise NoSuchWarehouse(
                f"{line} is a {type(named).__name__}, not a Warehouse; give %%acid a Warehouse or"
                " a path"
            )
        if line not in self._opened:
            location = Location.of(line or None)
            if not location.made:
                raise NoSuchWarehouse(
                    f"{location.warehouse} is not a warehouse; create it with"
                    f" Warehouse.open({line!r})"
                )
            self._opened[line] = Warehouse.open(location.warehouse)
        return self._opened[line]


def engine_and_name(line: str) -> tuple[str | None, str]:
    """The engine of `--engine=local wh` or `--engine local wh`, if any, and the rest."""
    option = re.match(r"\s*--engine(?:\s*=\s*|\s+)(\S+)(?:\s|$)", line)
    return (option[1], line[option.end() :].strip()) if option else (None, line.strip())
