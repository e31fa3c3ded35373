"""Showing listings, timelines and read costs in terminals, notebooks and charts."""

from typing import TYPE_CHECKING

from acid_platform.base.first_use import names_in

if TYPE_CHECKING:
    from acid_platform.display.listing import (
        SHOWN,
        Listing,
        compactions,
        history,
        human_bytes,
        locks,
        retained_row,
        show_table,
        shown,
        snapshot,
        tag_rows,
        timeline,
        transactions,
    )
    from acid_platform.display.timeline_chart import BAR, ReadCost, Timeline, chart, read_cost
else:
    __getattr__ = names_in(__name__, "listing", "timeline_chart")

__all__ = [
    "BAR",
    "SHOWN",
    "Listing",
    "ReadCost",
    "Timeline",
    "chart",
    "compactions",
    "history",
    "human_bytes",
    "locks",
    "read_cost",
    "retained_row",
    "show_table",
    "shown",
    "snapshot",
    "tag_rows",
    "timeline",
    "transactions",
]
