"""`%%acid` in a notebook: a cell of Hive SQL, with each result as an HTML table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from acid_platform.base.location import Location
from acid_platform.errors import AcidError, NoSuchWarehouse
from acid_platform.handles.warehouse import Warehouse
from acid_platform.sql.present import rows_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

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
        named = self._names.get(line or "wh")
        if isinstance(named, Warehouse):
            return named
        if line.isidentifier() and line in self._names:
            raise NoSuchWarehouse(
                f"{line} is a {type(named).__name__}, not a Warehouse; give %%acid a Warehouse or"
                " a path"
            )
        if line not in self._opened:
            place = Location.of(line or None)
            if not place.made:
                raise NoSuchWarehouse(
                    f"{place.warehouse} is not a warehouse; create it with Warehouse.open({line!r})"
                )
            self._opened[line] = Warehouse.open(place.warehouse)
        return self._opened[line]


def engine_and_name(line: str) -> tuple[str | None, str]:
    """The engine of `--engine=local wh` or `--engine local wh`, if any, and the rest."""
    option = re.match(r"\s*--engine(?:\s*=\s*|\s+)(\S+)(?:\s|$)", line)
    return (option[1], line[option.end() :].strip()) if option else (None, line.strip())
