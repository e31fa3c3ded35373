"""Showing listings, timelines and read costs in terminals, notebooks and charts."""

from typing import TYPE_CHECKING

from acid_platform.base.first_use import names_in

if TYPE_CHECKING:
    from acid_platform.display.costs import ReadCost, chart, read_cost
    from acid_platform.display.listing import Listing, human_bytes, show_table, shown
    from acid_platform.display.looks import (
        SHOWN,
        compactions,
        history,
        locks,
        retained_row,
        snapshot,
        tag_rows,
        timeline,
        transactions,
    )
    from acid_platform.display.timeline_chart import BAR, Timeline
else:
    __getattr__ = names_in(__name__, "listing", "looks", "timeline_chart", "costs")

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
