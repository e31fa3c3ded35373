"""The tier of one minute: pure rules, the kernel, and the handles on the local engine.

A plugin of pytest, named by the Makefile (`make test-quick`). A test belongs to it by the room in
which it stands, unless it is marked as `spark` or `slow` or its module starts processes. So a new
test is in the right tier without being listed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
RULES = {"compaction", "formats", "layout", "metastore", "scan", "storage", "transactions", "write"}
"""Rooms whose modules count if they start no process."""
HANDLES = {"handles"}
"""Rooms whose tests open warehouses, each with a metastore in a process of its own."""

_STARTS_A_PROCESS = re.compile(
    r"subprocess|multiprocessing|temporary_warehouse|Warehouse\.open|Metastore\.connect|processes"
)


def pytest_configure() -> None:
    """Raises UsageError if a room was renamed: its tests would be left out unnoticed."""
    gone = [room for room in sorted(RULES | HANDLES) if not (ROOT / room).is_dir()]
    if gone:
        raise pytest.UsageError(f"tests/quick.py names {', '.join(gone)}, which tests/ lacks")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves the files of the other tiers out before they are imported."""
    try:
        room, *rest = collection_path.relative_to(ROOT).parts
    except ValueError:  # the directory of all tests, or above
        return None
    if room in HANDLES or not (rest or collection_path.is_dir()):
        return None
    if room not in RULES:
        return True
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if is_test and _STARTS_A_PROCESS.search(collection_path.read_text()):
        return True
    return None
