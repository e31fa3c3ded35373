"""`Warehouse.duckdb()`: every table as a view at one leased snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
