"""Arrow's functions (`pyarrow.compute`), which are made when one of them is first called.

Arrow makes 300 of them, each with a documentation of its own. A count from records needs none.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
