"""Shares the tests between two processes: one gets all Spark tests, and no file is split.

A plugin of pytest, named by the Makefile. Marks of xdist's own groups get lost with pytest 9.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent


@cache
def uses_spark(file: str) -> bool:
    path = ROOT / file
    return path.suffix == ".py" and "mark.spark" in path.read_text()


def share_of(node_id: str) -> str:
    """The group that must stay in one process: "spark", or the file."""
    file = node_id.partition("::")[0]
    return "spark" if uses_spark(file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    return Sharing(config, log)
